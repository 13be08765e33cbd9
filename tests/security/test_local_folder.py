"""A folder from a stranger: a dump to look at, an example from the net. It names no file of this machine."""

import os
import socket

import pytest
import yaml

from reprieve.adapters.local.yamltext import read_json
from tests.integration.folders import NOW, backup, location, make_folder, request, snapshot_location

SECRET = "the-secret-of-this-machine"


@pytest.fixture
def folder(tmp_path, capsys):
    return make_folder(tmp_path / "world", capsys)


@pytest.fixture
def outside(tmp_path):
    """What lies beside the folder: a bucket of somebody else, and a file that is nobody's business."""
    files = {"bucket/backups/good/velero-backup.json": "{}", "bucket/backups/good/f": "x", "secret.yaml": SECRET}
    for name, content in files.items():
        (tmp_path / "outside" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "outside" / name).write_text(content, encoding="utf-8")
    yield tmp_path / "outside"
    assert {str(p.relative_to(tmp_path / "outside")) for p in (tmp_path / "outside").rglob("*") if p.is_file()} == set(
        files
    )


def replace_by_link(path, target):
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"was-{path.name}"))
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param("cluster", "bucket", id="the-cluster"),
        pytest.param("cluster/more", "bucket", id="a-folder-of-objects"),
        pytest.param("cluster/good.yaml", "secret.yaml", id="an-object"),
        pytest.param("buckets", "", id="the-buckets"),
        pytest.param("snapshots.yaml", "secret.yaml", id="the-snapshots"),
        pytest.param("snapshots.yaml", "nothing", id="the-snapshots-that-are-nowhere"),
        pytest.param("reprieve.yaml", "secret.yaml", id="the-configuration"),
    ],
)
@pytest.mark.parametrize("command", [("plan",), ("run", "--once"), ("backup", "delete", "good", "--confirm")])
def test_a_link_out_of_the_folder_is_an_error_by_name(folder, outside, name, target, command):
    """A link in a dump leads to a file of the machine: it would be read and quoted, or written and deleted there."""
    folder.put(request("ask"))
    replace_by_link(folder.path / name, outside / target)
    said = folder.run(*command, "--now", NOW)
    assert (said.code, "links are not followed" in said.err, name in said.err) == (1, True, True)
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize("place", ["buckets/bkt", "buckets/bkt/deep", "buckets/bkt/deep/er"])
def test_a_bucket_or_a_prefix_that_is_a_link_is_not_emptied(folder, outside, place):
    """The location's bucket is a link to another folder: deleting the backup deleted the files there."""
    prefix = place.removeprefix("buckets/bkt").strip("/")
    (folder.path / place).parent.mkdir(parents=True, exist_ok=True)
    replace_by_link(folder.path / place, outside / "bucket")
    folder.put(location(prefix=prefix), snapshot_location(), file="locations.yaml")
    folder.put(request("ask"))
    said = folder.run("run", "--once", "--now", NOW, "-o", "json")
    assert "links are not followed" in said.out
    assert folder.objects("Backup") == ["good"]


def fifo(path):
    os.mkfifo(path)


def unix_socket(path):
    where = os.open(path.parent, os.O_RDONLY)
    try:  # the name of a socket may not be long, so it is bound from its folder
        os.fchdir(where)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.close(where)
        os.chdir("/")


@pytest.fixture
def here():
    before = os.open(".", os.O_RDONLY)
    yield
    os.fchdir(before)
    os.close(before)


@pytest.mark.parametrize("make", [fifo, unix_socket])
@pytest.mark.parametrize("name", ["cluster/more.yaml", "snapshots.yaml", "reprieve.yaml"])
@pytest.mark.usefixtures("here")
def test_what_never_ends_is_not_read(folder, make, name):
    """A FIFO in a dump kept the command waiting for a writer for ever."""
    (folder.path / name).unlink(missing_ok=True)
    make(folder.path / name)
    said = folder.run("plan")
    assert (said.code, "no regular file" in said.err, name in said.err) == (1, True, True)


@pytest.mark.parametrize("name", ["velero-backup.json", "good-volumesnapshots.json.gz", "reprieve-hold.json", "more"])
def test_a_fifo_among_a_backup_s_files_stops_only_that_backup(folder, name):
    """A FIFO in a bucket: its backup is not deleted, nor said to be; another one is."""
    directory = folder.path / "buckets/bkt/backups/good"
    (directory / name).unlink(missing_ok=True)
    fifo(directory / name)
    folder.put(backup("fine"), file="fine.yaml")
    folder.put_files("fine")
    folder.put(request("ask"), request("ask-fine", "fine"))
    folder.run("run", "--once", "--controllers", "deletion", "--now", NOW, "-o", "json")
    assert folder.objects("Backup") == ["good"]
    assert "snap-1" in {each["id"] for each in yaml.safe_load((folder.path / "snapshots.yaml").read_text())}


def test_a_json_file_of_many_documents_is_read_in_linear_time():
    """A file of 200 KB stopped the command for minutes: each document was searched for from the start of the file.

    Counted in characters that are looked at, by a text that counts them.
    """

    class Counted(str):  # noqa: SLOT000 - a stand-in
        looked_at = 0

        def count(self, *arguments):
            start, end = (*arguments[1:], 0, len(self))[:2] if len(arguments) < 3 else arguments[1:]
            Counted.looked_at += end - start
            return super().count(*arguments)

        def __getitem__(self, where):
            found = super().__getitem__(where)
            Counted.looked_at += len(found)
            return found

    def looks(documents):
        Counted.looked_at = 0
        assert len(read_json(Counted("{}\n" * documents))) == documents
        return Counted.looked_at

    assert looks(4000) <= 4.4 * max(looks(1000), 1)


@pytest.mark.parametrize("count", [2000])
def test_a_doubled_key_is_found_in_linear_time(count):
    """Many keys, the last of them twice: every key was counted in the whole list."""
    from reprieve.adapters.local.yamltext import _pairs

    class Name(str):  # noqa: SLOT000 - a stand-in
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Name.compared += 1
            return str.__eq__(self, other)

    pairs = [(Name(f"k{number}"), 0) for number in range(count)]
    with pytest.raises(ValueError, match=f"'k{count - 1}' is there twice"):
        _pairs([*pairs, (Name(f"k{count - 1}"), 0)])
    assert Name.compared < 20 * count
