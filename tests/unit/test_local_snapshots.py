"""Snapshots in a file and in memory."""

from datetime import UTC, datetime, timedelta

import pytest

from reprieve.adapters.local import Disk, FolderError, FolderSnapshotStores, LocalFolder, MemorySnapshotStores
from reprieve.core import errors
from reprieve.core.backups import SnapshotLocation
from reprieve.core.outcomes import AlreadyGone, Denied, Done, InUse, Locked, Pending, Retryable, Unknown
from reprieve.core.ports import SnapshotInfo

FILE = """\
# made by hand
- provider: aws
  id: snap-1
  tags: {velero.io/backup: nightly, "n": no}   # a word
  created: 2026-01-02T03:04:05Z
# the second
- {provider: velero.io/gcp, id: disk-1, size: 5}
- provider: aws
  id: snap-0
  tags:
    velero.io/backup: weekly
"""


def stores(tmp_path, text=FILE, **options):
    path = tmp_path / "snapshots.yaml"
    path.write_text(text)
    return FolderSnapshotStores(path, **options)


def at(provider="aws"):
    return SnapshotLocation("default", provider=provider)


def test_what_the_file_says(tmp_path):
    found = stores(tmp_path)
    info = found.open(at()).get("snap-1")
    tags = {"velero.io/backup": "nightly", "n": "no"}
    assert info == SnapshotInfo("aws", "snap-1", tags, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert found.open(at("velero.io/gcp")).get("disk-1").size == 5
    assert [each.id for each in found.open(at()).list("velero.io/backup")] == ["snap-0", "snap-1"]
    assert list(found.open(at()).list("other")) == []
    with pytest.raises(errors.NotFoundError):
        found.open(at("gcp")).get("snap-1")


def test_a_deletion_is_on_the_disk_and_leaves_the_other_entries_as_they_are(tmp_path):
    store = stores(tmp_path).open(at())
    assert store.delete("snap-1") == Done()
    text = (tmp_path / "snapshots.yaml").read_text()
    assert text == "# made by hand\n" + FILE[FILE.index("- {provider") :]
    assert store.delete("snap-1") == AlreadyGone()
    assert store.delete("disk-1") == AlreadyGone()
    assert store.delete("snap-0") == Done()
    again = FolderSnapshotStores(tmp_path / "snapshots.yaml")
    assert [entry.key for entry in again.entries()] == [("gcp", "disk-1")]
    assert again.open(at("gcp")).delete("disk-1") == Done()
    assert FolderSnapshotStores(tmp_path / "snapshots.yaml").entries() == ()


@pytest.mark.parametrize(
    "text",
    [
        "[{provider: aws, id: a}, {provider: aws, id: b}]",
        "- provider: aws\n  id: a\n-\n  provider: aws\n  id: b\n",
        "  - {provider: aws, id: a}\n  - {provider: aws, id: b}\n",
        "- &x {provider: aws, id: a}\n- {<<: *x, id: b}\n",
    ],
)
def test_other_layouts_are_written_plainly(tmp_path, text):
    assert stores(tmp_path, text).open(at()).delete("a") == Done()
    (entry,) = FolderSnapshotStores(tmp_path / "snapshots.yaml").entries()
    assert entry.key == ("aws", "b")


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]\n", "---\n"])
def test_an_empty_file(tmp_path, text):
    assert stores(tmp_path, text).open(at()).delete("a") == AlreadyGone()
    assert (tmp_path / "snapshots.yaml").read_text() == text


@pytest.mark.parametrize(
    ("fails", "kind"),
    [("InUse", InUse), ("Denied", Denied), ("Throttled", Retryable), ("Locked", Locked), ("Unavailable", Retryable)],
)
def test_fails_is_what_deleting_comes_to(tmp_path, fails, kind):
    text = f"- {{provider: aws, id: a, fails: {fails}}}\n"
    store = stores(tmp_path, text).open(at())
    for _ in range(2):
        assert isinstance(store.delete("a"), kind)
    assert store.get("a").id == "a"
    assert (tmp_path / "snapshots.yaml").read_text() == text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: 1\n", "not one list"),
        ("[]\n---\n[]\n", "not one list"),
        ("- 5\n", r"\[0\]: this is no mapping"),
        ("- {id: a}\n", r"\[0\].provider: None is no name"),
        ("- {provider: aws}\n", r"\[0\].id: None is no name"),
        ("- {provider: aws, id: 5}\n", r"\[0\].id: 5 is no name"),
        ("- {provider: aws, id: a, tag: {}}\n", r"\[0\].tag: this is no field"),
        ("- {provider: aws, id: a, tags: [b]}\n", r"\[0\].tags"),
        ("- {provider: aws, id: a, tags: {n: 1}}\n", r"\[0\].tags: .* no strings"),
        ("- {provider: aws, id: a, created: yesterday}\n", r"\[0\].created: 'yesterday' is no instant"),
        ("- {provider: aws, id: a, size: big}\n", r"\[0\].size: 'big' is no number"),
        ("- {provider: aws, id: a, fails: Never}\n", r"\[0\].fails: 'Never' is not known; use one of InUse, Denied"),
        ("- {provider: aws, id: a}\n- {provider: velero.io/aws, id: a}\n", r"\[1\]: aws a is there already, as \[0\]"),
        ("- {provider: aws\n", "line 2: while parsing a flow mapping"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_field(tmp_path, text, what):
    with pytest.raises(FolderError, match=what) as caught:
        stores(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "snapshots.yaml"))


def test_every_provider_is_configured_unless_told_which(tmp_path):
    found = stores(tmp_path, "- {provider: ocean, id: a}\n", more=lambda: ["velero.io/lake", ""])
    assert found.providers == {"aws", "gcp", "azure", "ocean", "lake"}
    told = stores(tmp_path, providers=["velero.io/aws"])
    assert told.providers == {"aws"}
    with pytest.raises(errors.ContainerMissingError, match="'gcp' is not configured"):
        told.open(at("gcp"))


def test_a_folder_knows_the_providers_of_its_snapshot_locations(tmp_path):
    (tmp_path / "cluster").mkdir()
    head = "apiVersion: velero.io/v1\nkind: VolumeSnapshotLocation\nmetadata: {name: a, namespace: velero}\n"
    (tmp_path / "cluster" / "vsl.yaml").write_text(head + "spec: {provider: example.com/lake}\n")
    with LocalFolder(tmp_path) as folder:
        assert folder.snapshot_stores.providers == {"aws", "gcp", "azure", "example.com/lake"}


def test_reading_only(tmp_path):
    store = stores(tmp_path, read_only=True).open(at())
    assert isinstance(store.delete("snap-1"), Denied)
    assert (tmp_path / "snapshots.yaml").read_text() == FILE


def test_a_disk_that_is_full_is_never_done(tmp_path):
    class Full(Disk):
        def fill(self, path, data):
            raise OSError(28, "No space left on device")

    store = stores(tmp_path, disk=Full()).open(at())
    assert isinstance(store.delete("snap-1"), Unknown)
    assert store.get("snap-1").id == "snap-1"
    assert (tmp_path / "snapshots.yaml").read_text() == FILE


# In memory


def test_snapshots_in_memory():
    found = MemorySnapshotStores(
        [SnapshotInfo("aws", "b", {"t": ""}), SnapshotInfo("aws", "a", {"t": ""}), SnapshotInfo("gcp", "a")]
    )
    store = found.open(at("velero.io/aws"))
    assert [info.id for info in store.list("t")] == ["a", "b"]
    assert [store.delete("a"), store.delete("a")] == [Done(), AlreadyGone()]
    assert [(info.provider, info.id) for info in found.snapshots] == [("aws", "b"), ("gcp", "a")]
    with pytest.raises(errors.NotFoundError):
        store.get("a")
    with pytest.raises(errors.ContainerMissingError):
        found.open(at("ocean"))


def test_outcomes_that_were_asked_for_come_one_after_the_other():
    pending = Pending(timedelta(seconds=3))
    found = MemorySnapshotStores([SnapshotInfo("aws", "a")], outcomes={"a": [pending, InUse("by ami-1")]})
    store = found.open(at())
    assert [store.delete("a") for _ in range(4)] == [pending, InUse("by ami-1"), Done(), AlreadyGone()]


def test_before_each_deletion():
    seen = []

    def before(snapshot_id):
        seen.append(snapshot_id)
        if len(seen) == 1:
            raise errors.ThrottledError("slow", timedelta(seconds=2))

    store = MemorySnapshotStores([SnapshotInfo("aws", "a")], before=before).open(at())
    assert [store.delete("a"), store.delete("a")] == [Retryable(timedelta(seconds=2), "slow"), Done()]
    assert seen == ["a", "a"]
