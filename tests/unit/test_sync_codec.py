"""What sync reads in a directory: bytes to documents, and every other shape to a fault."""

import gzip
import hashlib
import json

import pytest

from reprieve.adapters.k8s import velero
from reprieve.adapters.k8s.velero_sync import stored_backup, stored_volumes
from reprieve.core.backups import ListAbsent, ListCorrupt, MetadataCorrupt
from reprieve.core.holds import HOLD
from reprieve.core.sync import StoredBackup, StoredFault, VolumesRead

VOLUMES = ListAbsent("list")
DOCUMENT = {"kind": "Backup", "metadata": {"name": "foo"}, "status": {"phase": "Completed"}}


def read(metadata, hold=None):
    return stored_backup("foo", metadata, hold=hold, volumes=VOLUMES, read=velero.backup)


def test_a_directory_is_read():
    hold = b'{"reprieve.dev/hold": "legal"}'
    found = read(json.dumps(DOCUMENT).encode(), hold)

    assert isinstance(found, StoredBackup)
    assert (found.name, found.record.phase, found.document) == ("foo", "Completed", DOCUMENT)
    assert (dict(found.hold), found.hold_sha256) == ({HOLD: "legal"}, hashlib.sha256(hold).hexdigest())
    assert found.volumes == VOLUMES


def test_without_a_hold_file_there_is_no_hold():
    found = read(json.dumps(DOCUMENT).encode())

    assert (dict(found.hold), found.hold_sha256) == ({}, "")


def test_a_hold_file_that_cannot_be_read_holds():
    found = read(json.dumps(DOCUMENT).encode(), b"{")

    assert list(found.hold) == [HOLD]
    assert found.hold_sha256


def test_a_document_without_a_kind_is_a_backup():
    assert isinstance(read(b'{"metadata": {"name": "foo"}}'), StoredBackup)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        pytest.param(b"", "it is not JSON", id="empty"),
        pytest.param(b"\xff\xfe", "it is not JSON", id="garbage"),
        pytest.param(b"[]", "it has a list where an object must be", id="a-list"),
        pytest.param(b'{"kind": "Restore"}', "it is a Restore, not a Backup", id="another-kind"),
        pytest.param(b"[" * 100_000, "it is not JSON", id="too-deep"),
    ],
)
def test_garbage_is_a_fault_with_its_reason(metadata, why):
    found = read(metadata)

    assert isinstance(found, StoredFault)
    assert isinstance(found.fault, MetadataCorrupt)
    assert why in found.fault.why


def test_a_document_of_wrong_shapes_is_read_all_the_same():
    found = read(b'{"metadata": [], "spec": 7, "status": "x"}')

    assert isinstance(found, StoredBackup)
    assert (found.record.name, found.record.phase) == ("", "")


@pytest.mark.parametrize(
    ("data", "volumes"),
    [
        pytest.param(
            gzip.compress(b'[{"metadata": {"name": "v"}}]'), VolumesRead([{"metadata": {"name": "v"}}]), id="one"
        ),
        pytest.param(gzip.compress(b"null"), VolumesRead(), id="null-is-empty"),
    ],
)
def test_volumes_are_read(data, volumes):
    assert stored_volumes("key", data) == volumes


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"[]", id="not-gzip"),
        pytest.param(gzip.compress(b"{}"), id="no-list"),
        pytest.param(gzip.compress(b"[7]"), id="no-object-in-it"),
        pytest.param(gzip.compress(b"[]")[:-9], id="truncated"),
    ],
)
def test_volumes_that_cannot_be_read_are_corrupt(data):
    found = stored_volumes("key", data)

    assert isinstance(found, ListCorrupt)
    assert found.key == "key"
    assert found.why
