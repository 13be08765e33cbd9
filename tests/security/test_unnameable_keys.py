"""Files whose keys cannot be named, below a backup's directory or its restores': found before anything is deleted."""

import json

import pytest

from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import DeniedError
from reprieve.core.ports import SnapshotInfo
from tests.unit.overtime import HOUR, NOW, Namespace, files_of, location, made, record, told

AWS = made("VolumeSnapshotLocation", "aws", spec={"provider": "aws"})
RESTORE = made("Restore", "r", spec={"backupName": "foo"}, status={"phase": "Completed"})
KEYS = [
    pytest.param("backups/foo/../x", id="dots"),
    pytest.param("backups/foo/./x", id="dot"),
    pytest.param("backups/foo//x", id="two-slashes"),
    pytest.param("backups/foo/x\ny", id="a-new-line"),
    pytest.param("backups/foo/x\x00", id="a-nul"),
    pytest.param("backups/foo/deep/\x7f", id="a-control-character-further-down"),
    pytest.param("backups/foo/" + "x" * 1020, id="longer-than-a-key-can-be"),
    pytest.param("restores/r//x", id="below-a-restore"),
    pytest.param("restores/r/x\r\ny", id="a-line-below-a-restore"),
]


def scene(*more):
    """``foo`` and ``bar`` have expired, each with a snapshot; ``more`` are keys that somebody put there."""
    foo, bar = (record(name, expires=NOW, volumeSnapshotsCompleted=1) for name in ("foo", "bar"))
    files = files_of(foo, snapshots=["snap-foo"]) | files_of(bar, snapshots=["snap-bar"])
    snapshots = [SnapshotInfo("aws", f"snap-{name}", {"velero.io/backup": name}) for name in ("foo", "bar")]
    files |= {"restores/r/restore-r-logs.gz": b"x"} | dict.fromkeys(more, b"x")
    return Namespace(location(), AWS, RESTORE, foo, bar, buckets={"b": files}, snapshots=snapshots)


def snapshots_left(ns):
    return {each.id for each in ns.snapshots.open(SnapshotLocation("aws", "aws")).list("velero.io/backup")}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("asked", [False, True], ids=["by-expiry", "by-a-request"])
def test_a_key_that_cannot_be_named_stops_the_deletion_before_the_snapshots_go(key, asked):
    """Who can write to the bucket puts one odd key beside the files: the snapshots went, then the files could not.

    The backup was left without its data, in phase Deleting, for ever. Its neighbour goes meanwhile.
    """
    ns = scene(key)
    if asked:
        ns.cluster.cluster.create(made("DeleteBackupRequest", "ask", spec={"backupName": "foo"}))
    report = ns.run("retention", "deletion")
    (stopped,) = [
        d for d in report.decisions if d.subject == "foo" and d.controller == ("deletion" if asked else "retention")
    ]
    assert (stopped.verdict, stopped.reason) == ("KEEP", "KeyInvalid")
    assert repr(key)[1:9] in stopped.message
    assert "\n" not in stopped.message
    assert snapshots_left(ns) == {"snap-foo"}
    assert ns.get("foo").section("status")["phase"] == "Completed"
    assert "backups/foo/velero-backup.json" in ns.stores.files("b")
    assert ns.get("bar") is None
    if asked:
        assert ns.get("ask", "DeleteBackupRequest").section("status")["errors"] == [stopped.message]

    del ns.stores.files("b")[key]
    if asked:
        ns.cluster.cluster.create(made("DeleteBackupRequest", "again", spec={"backupName": "foo"}))
    ns.run("retention", "deletion", at=NOW + HOUR)
    ns.run("deletion", at=NOW + HOUR)
    assert ns.get("foo") is None
    assert snapshots_left(ns) == set()
    assert not [key for key in ns.stores.files("b") if "/foo/" in key]


def test_a_request_that_says_it_is_at_work_is_asked_all_the_same():
    """Whoever may create requests writes phase and state into one: what has begun is not asked again, it seemed."""
    ns = scene("backups/foo//x")
    state = {"uid": ns.get("foo").meta.uid, "request": "uid-ask", "stage": "snapshots", "previousPhase": "Completed"}
    forged = {"annotations": {"reprieve.dev/state": json.dumps(state)}, "uid": "uid-ask"}
    asked = made("DeleteBackupRequest", "ask", metadata=forged, spec={"backupName": "foo"})
    ns.cluster.cluster.create(asked | {"status": {"phase": "InProgress"}})
    for at in (NOW, NOW + HOUR):
        ns.run("retention", "deletion", at=at)
    assert snapshots_left(ns) == {"snap-foo"}
    assert ns.get("foo").section("status")["phase"] == "Completed"


def test_a_plan_tells_it_too():
    """What would be refused is told before anybody is asked to answer."""
    ns = scene("backups/foo//x")
    ns.cluster.cluster.create(made("DeleteBackupRequest", "ask", spec={"backupName": "foo"}))
    assert ("deletion", "ask", "KEEP", "KeyInvalid") in told(ns.plan("deletion"))


def test_a_directory_that_cannot_be_listed_defers():
    """Whether there is such a key is not known: nothing goes."""
    ns = scene()

    def refuse(operation, _bucket, key):
        if operation == "list" and key == "restores/r/":
            raise DeniedError("403")

    ns.fault = refuse
    report = ns.run("retention", "deletion")
    assert ("retention", "foo", "KEEP", "LocationUnavailable") in told(report)
    assert "snap-foo" in snapshots_left(ns)
    assert ns.get("bar") is None


def test_a_marker_of_a_folder_is_harmless():
    """Consoles write empty objects that end in a slash: they are no files, and stop nothing."""
    ns = scene()
    ns.stores.files("b").update({"backups/foo/": b"", "backups/foo/deep/": b"", "restores/r/": b""})
    report = ns.run("retention", "deletion")
    assert ("deletion", "foo") in {(d.controller, d.subject) for d in report.decisions if d.reason == "Completed"}
    assert snapshots_left(ns) == set()
    assert ns.get("foo") is None
