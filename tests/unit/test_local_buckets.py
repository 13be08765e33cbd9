"""Object storage in a folder and in memory: one behaviour."""

import os

import pytest

from reprieve.adapters.local import FolderObjectStores, MemoryObjectStores
from reprieve.core import errors
from reprieve.core.backups import StorageLocation
from reprieve.core.outcomes import AlreadyGone, ContainerMissing, Denied, Done, Invalid, Retryable

BAD_KEYS = (
    *("../other/x", "/etc/passwd", "a/../../x", "a//b", "a/", "", ".", "a/./b"),
    *("nul\0", "a\tb", "a\x7fb", "\udce4", "x" * 1025),
)
FILES = {
    "backups/a/velero-backup.json": b"{}",
    "backups/a/a.tar.gz": b"123",
    "backups/b/x": b"",
    "backups-old/z": b"1",
    "top": b"2",
    ".hidden/.x": b"3",
}


@pytest.fixture(params=["folder", "memory"])
def stores(request, tmp_path):
    if request.param == "memory":
        return MemoryObjectStores({"bucket": FILES, "empty": {}})
    for key, data in FILES.items():
        path = tmp_path / "buckets" / "bucket" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "buckets" / "empty").mkdir()
    return FolderObjectStores(tmp_path / "buckets")


def location(bucket="bucket", prefix=""):
    return StorageLocation("default", provider="aws", bucket=bucket, prefix=prefix)


def keys(store, prefix=""):
    return [info.key for info in store.list(prefix)]


def test_read(stores):
    store = stores.open(location())
    assert store.read("backups/a/a.tar.gz", limit=3) == b"123"
    with pytest.raises(errors.InvalidError, match=r"a.tar.gz has 3 bytes, more than the limit of 2"):
        store.read("backups/a/a.tar.gz", limit=2)
    for missing in ("nothing", "backups/a", "top/below"):
        with pytest.raises(errors.NotFoundError):
            store.read(missing, limit=9)


def test_list_in_order_of_key_with_sizes(stores):
    store = stores.open(location())
    assert [(info.key, info.size) for info in store.list("")] == sorted((key, len(data)) for key, data in FILES.items())
    assert keys(store, "backups/a/") == ["backups/a/a.tar.gz", "backups/a/velero-backup.json"]
    assert keys(store, "none/") == []


def test_a_prefix_is_a_directory_and_no_text(stores):
    """Deleting what ``backups/a`` holds must not touch ``backups/ab``: as text the one begins like the other."""
    store = stores.open(location())
    store.write("backups/ab/x", b"")
    assert (
        keys(store, "backups/a") == keys(store, "backups/a/") == ["backups/a/a.tar.gz", "backups/a/velero-backup.json"]
    )
    assert keys(store, "backups") == sorted(key for key in [*FILES, "backups/ab/x"] if key.startswith("backups/"))
    assert list(store.list_directories("backups/a")) == []


@pytest.mark.parametrize("prefix", ["top", "top/", "top/below/", "x" * 300], ids=lambda prefix: prefix[:9])
def test_nothing_lies_below_a_file_or_a_name_that_cannot_be(stores, prefix):
    store = stores.open(location())
    assert keys(store, prefix) == list(store.list_directories(prefix)) == []


@pytest.mark.parametrize(
    "prefix", ["/", "//", "/backups", "backups//", "backups/../", ".", "nul\0", "\udce4", "x" * 1025], ids=ascii
)
def test_prefixes_that_are_no_directory_of_a_bucket(stores, prefix):
    store = stores.open(location())
    with pytest.raises(errors.InvalidError, match=r"^bucket bucket: key "):
        keys(store, prefix)
    with pytest.raises(errors.InvalidError, match=r"^bucket bucket: key "):
        list(store.list_directories(prefix))


def test_names_that_begin_with_a_dot_go_with_their_backup(stores):
    """A backup was deleted, its hidden files stayed and kept its directory alive: the next sync found it again."""
    store = stores.open(location())
    for key in ("backups/a/.hidden", "backups/a/.deep/x", "backups/a/file.tmp"):
        store.write(key, b"")
    assert set(store.delete(keys(store, "backups/a/")).values()) == {Done()}
    assert list(store.list_directories("backups/")) == ["b"]


def test_a_key_and_its_location_s_prefix_are_measured_together(stores):
    store = stores.open(location(prefix="/".join("p" * 100 for _ in range(9))))
    long = "k" * 120
    with pytest.raises(errors.InvalidError, match="1029 bytes, more than 1024"):
        store.write(long, b"")
    store.write(long[:-5], b"")
    assert keys(store) == [long[:-5]]


@pytest.mark.parametrize("prefix", ["backups", "backups/"])
def test_list_directories(stores, prefix):
    assert list(stores.open(location()).list_directories(prefix)) == ["a", "b"]
    assert list(stores.open(location()).list_directories("")) == [".hidden", "backups", "backups-old"]


def test_a_locations_prefix(stores):
    store = stores.open(location(prefix="/backups/"))
    assert keys(store) == ["a/a.tar.gz", "a/velero-backup.json", "b/x"]
    assert list(store.list_directories("")) == ["a", "b"]
    store.write("c/new", b"n")
    assert stores.open(location()).read("backups/c/new", limit=9) == b"n"
    assert stores.open(location()).read("backups-old/z", limit=9) == b"1"


def test_write_replaces(stores):
    store = stores.open(location())
    store.write("top", b"changed")
    assert store.read("top", limit=9) == b"changed"


def test_delete(stores):
    store = stores.open(location())
    assert store.delete(["backups/a/a.tar.gz", "nothing", "backups/a"]) == {
        "backups/a/a.tar.gz": Done(),
        "nothing": AlreadyGone(),
        "backups/a": AlreadyGone(),
    }
    assert keys(store, "backups/a/") == ["backups/a/velero-backup.json"]


def test_the_last_key_takes_its_directories_along_but_never_the_bucket(stores):
    store = stores.open(location())
    assert set(store.delete(sorted(FILES)).values()) == {Done()}
    assert keys(store) == list(store.list_directories("")) == []
    store.write("again", b"")
    assert keys(store) == ["again"]


def test_an_empty_bucket_is_there(stores):
    store = stores.open(location("empty"))
    assert keys(store) == []
    assert store.delete(["x"]) == {"x": AlreadyGone()}


def test_a_missing_bucket_is_never_an_empty_one(stores):
    store = stores.open(location("missing"))
    for call in (
        lambda: store.read("x", limit=9),
        lambda: list(store.list("")),
        lambda: list(store.list_directories("")),
        lambda: store.write("x", b""),
    ):
        with pytest.raises(errors.ContainerMissingError, match="missing"):
            call()
    assert isinstance(store.delete(["x"])["x"], ContainerMissing)


@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
def test_keys_that_would_leave_the_bucket_or_that_no_cloud_takes(stores, key):
    store = stores.open(location())
    with pytest.raises(errors.InvalidError, match=r"^bucket bucket: key "):
        store.read(key, limit=9)
    with pytest.raises(errors.InvalidError):
        store.write(key, b"")
    assert isinstance(store.delete([key])[key], Invalid)
    assert keys(store) == sorted(FILES)


@pytest.mark.parametrize("bucket", ["", ".", "..", "a/b", "/", "a\0"])
def test_buckets_that_are_no_names(stores, bucket):
    with pytest.raises(errors.InvalidError):
        stores.open(location(bucket))


@pytest.mark.parametrize("prefix", ["../other", "a//b", "a\tb"])
def test_a_location_s_prefix_that_is_no_directory(stores, prefix):
    with pytest.raises(errors.InvalidError, match="storage location 'default': prefix: "):
        stores.open(location(prefix=prefix))


def test_links_that_lead_out_of_the_bucket(tmp_path):
    (tmp_path / "buckets" / "b").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (tmp_path / "buckets" / "b" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "buckets" / "b" / "dir").symlink_to(tmp_path)
    store = FolderObjectStores(tmp_path / "buckets").open(location("b"))
    for key in ("link", "dir/secret"):
        with pytest.raises(errors.InvalidError, match="leads out"):
            store.read(key, limit=9)
        assert isinstance(store.delete([key])[key], Invalid)
    assert keys(store) == keys(store, "dir/") == list(store.list_directories("dir")) == []
    assert (tmp_path / "secret").read_text() == "s"


def test_a_link_to_another_backup_is_no_way_to_delete_it(tmp_path):
    (tmp_path / "b" / "backups" / "real" / "deep").mkdir(parents=True)
    (tmp_path / "b" / "backups" / "real" / "deep" / "x").write_text("1")
    (tmp_path / "b" / "backups" / "link").symlink_to("real")
    store = FolderObjectStores(tmp_path).open(location("b"))
    assert list(store.list_directories("backups/")) == ["real"]
    assert list(store.list_directories("backups/link/")) == []
    assert keys(store, "backups/link/") == keys(store, "backups/link/deep/") == []
    assert keys(store) == ["backups/real/deep/x"]


@pytest.mark.parametrize("name", ["a\nb", os.fsdecode(b"caf\xe9")], ids=["control", "no-text"])
def test_a_file_whose_name_is_no_key_stops_the_listing_of_its_directory_only(tmp_path, name):
    """What cannot be named cannot be deleted: half a listing would end in "all gone" beside a file that is left."""
    for directory in ("backups/a", "backups/c"):
        (tmp_path / "b" / directory).mkdir(parents=True)
        (tmp_path / "b" / directory / "x").write_text("1")
    (tmp_path / "b" / "backups" / "a" / name).write_text("2")
    store = FolderObjectStores(tmp_path).open(location("b"))
    with pytest.raises(errors.InvalidError, match=r"^bucket b: key 'backups/a/"):
        keys(store, "backups/a/")
    assert keys(store, "backups/c/") == ["backups/c/x"]
    assert list(store.list_directories("backups/")) == ["a", "c"]


def test_a_key_in_memory_that_is_none_stops_the_listing_of_its_directory_only():
    store = MemoryObjectStores({"bucket": {"backups/a//b": b"", "backups/c/x": b""}}).open(location())
    with pytest.raises(errors.InvalidError, match=r"^bucket bucket: key 'backups/a//b'"):
        keys(store, "backups/a/")
    assert keys(store, "backups/c/") == ["backups/c/x"]
    assert list(store.list_directories("backups/")) == ["a", "c"]


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path):
    """Read as empty, it would drop the record of every backup in it."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "backups").symlink_to("backups")  # a link to itself: nobody can read it
    store = FolderObjectStores(tmp_path).open(location("b", prefix="backups"))
    with pytest.raises(errors.ReprieveError, match="cannot be read"):
        keys(store)
    with pytest.raises(errors.ReprieveError, match="cannot be read"):
        list(store.list_directories("x/"))


def test_leftovers_of_writes_and_directories_without_files_are_no_keys(tmp_path):
    (tmp_path / "b" / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "b" / "k").mkdir()
    (tmp_path / "b" / "k" / ".reprieve-1-1.tmp").write_text("x")
    store = FolderObjectStores(tmp_path).open(location("b"))
    assert keys(store) == list(store.list_directories("")) == []
    with pytest.raises(errors.InvalidError, match="leftover"):
        store.read("k/.reprieve-1-1.tmp", limit=9)


def test_a_key_below_a_file_is_refused(tmp_path):
    (tmp_path / "b").mkdir()
    store = FolderObjectStores(tmp_path).open(location("b"))
    store.write("a", b"1")
    with pytest.raises(errors.InvalidError):
        store.write("a/b", b"2")
    store.write("c/d", b"3")
    with pytest.raises(errors.InvalidError):
        store.write("c", b"4")
    assert keys(store) == ["a", "c/d"]


def test_names_that_a_file_system_cannot_hold(tmp_path):
    (tmp_path / "b").mkdir()
    store = FolderObjectStores(tmp_path).open(location("b"))
    with pytest.raises(errors.ReprieveError):
        store.write("x" * 300, b"")
    with pytest.raises(errors.ReprieveError):
        store.read("x" * 300, limit=9)


def test_reading_only(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "k").write_text("1")
    store = FolderObjectStores(tmp_path, read_only=True).open(location("b"))
    assert store.read("k", limit=9) == b"1"
    with pytest.raises(errors.DeniedError):
        store.write("k", b"2")
    assert isinstance(store.delete(["k"])["k"], Denied)
    assert keys(store) == ["k"]


def test_a_hook_lets_calls_fail():
    def hook(operation, bucket, key):
        if (operation, key) == ("delete", "backups/b/x"):
            raise errors.ThrottledError("slow down")
        if operation == "list":
            raise errors.UnavailableError("away")

    store = MemoryObjectStores({"bucket": FILES}, hook=hook).open(location(prefix="backups"))
    outcomes = store.delete(["b/x", "a/a.tar.gz"])
    assert isinstance(outcomes["b/x"], Retryable)
    assert outcomes["a/a.tar.gz"] == Done()
    with pytest.raises(errors.UnavailableError):
        list(store.list(""))


def test_a_date_that_no_calendar_has_is_none(tmp_path, monkeypatch):
    """Some file systems keep years beyond 9999; the listing ended with a traceback."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x").write_bytes(b"")
    plain = type(tmp_path).stat

    def stat(path, **how):
        found = plain(path, **how)
        return os.stat_result([*found[:8], 10**12, found[9]]) if path.name == "x" else found

    monkeypatch.setattr(type(tmp_path), "stat", stat)
    assert [info.modified for info in FolderObjectStores(tmp_path).open(location()).list("")] == [None]
