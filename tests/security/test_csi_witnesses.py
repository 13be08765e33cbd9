"""CSI snapshots of Velero 1.17 and later: whatever is left to tell of them, none is leaked by a deletion or an expiry.

The folder is what a real Velero 1.18.3 left behind: ``b2`` has five native snapshots, ``csi1`` two CSI snapshots.
"""

import gzip
import json
import shutil
from pathlib import Path

import pytest
import yaml

from reprieve.core.errors import DeniedError, UnavailableError
from reprieve.entrypoints.cli.root import run
from tests.unit.overtime import HOUR, MADE, NOW, Namespace, files_of, location, packed, record, told

REAL = Path(__file__).parents[1] / "fixtures" / "velero-1.18.3"
EXPIRED = "2027-01-05T00:00:00Z"
HANDLES = ("csi-snap-286433ba", "csi-snap-63b28083")
B2 = ("snap-cf2275f11ec112f55", "snap-1cd011801d7c44e62", "snap-a70e7b124c5adce09", "snap-5b9e2ba7765c77adc")
B2 = (*B2, "snap-f8abe96b61cac3edd")


class World:
    """A copy of the real folder, and the command run over it."""

    def __init__(self, path, capsys):
        self.path, self.capsys = path, capsys
        shutil.copytree(REAL, path)
        snapshots = [{"provider": "aws", "id": each, "tags": {"velero.io/backup": "b2"}} for each in B2]
        (path / "snapshots.yaml").write_text(yaml.safe_dump(snapshots), "utf-8")
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "cloud-credentials", "namespace": "velero"},
        }
        (path / "cluster/secret.yaml").write_text(
            yaml.safe_dump({**secret, "data": {"cloud": "W2RlZmF1bHRd"}}), "utf-8"
        )

    @property
    def directory(self):
        return self.path / "buckets/velero-bucket/cluster-a/backups/csi1"

    def change_list(self, name, change):
        """Rewrite one of csi1's lists; None takes it away."""
        path = self.directory / f"csi1-{name}.json.gz"
        if change is None:
            path.unlink()
        else:
            path.write_bytes(gzip.compress(json.dumps(change(json.loads(gzip.decompress(path.read_bytes())))).encode()))

    def status(self, **status):
        """Rewrite the record's status, and the stored one's; None takes a key away."""
        stored = self.directory / "velero-backup.json"
        for path in (self.path / "cluster/backup-csi1.json", stored):
            if path.exists():
                document = json.loads(path.read_text("utf-8"))
                merged = document["status"] | status
                document["status"] = {key: value for key, value in merged.items() if value is not None}
                path.write_text(json.dumps(document), "utf-8")

    def put(self, *objects):
        (self.path / "cluster/more.yaml").write_text(yaml.safe_dump_all(objects), "utf-8")

    def ask(self):
        return {
            "apiVersion": "velero.io/v1",
            "kind": "DeleteBackupRequest",
            "metadata": {"name": "ask", "namespace": "velero", "creationTimestamp": "2026-12-02T00:00:00Z"},
            "spec": {"backupName": "csi1"},
        }

    def run(self, *arguments):
        self.capsys.readouterr()
        code = run([*arguments, "--local", str(self.path)])
        said = self.capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out

    def decisions(self, *arguments):
        _, out = self.run(*arguments, "--now", EXPIRED, "-o", "json")
        return {(d["controller"], d["object"]["name"]): d for d in json.loads(out)}

    def records(self):
        found = [*(self.path / "cluster").rglob("*.json"), *(self.path / "cluster").rglob("*.yaml")]
        documents = [d for path in found for d in yaml.safe_load_all(path.read_text("utf-8")) if d]
        return {d["metadata"]["name"]: d for d in documents if d["kind"] == "Backup"}

    def left(self):
        """The provider's snapshots that are still there."""
        return {each["id"] for each in yaml.safe_load((self.path / "snapshots.yaml").read_text("utf-8")) or ()}


@pytest.fixture
def world(tmp_path, capsys):
    return World(tmp_path / "world", capsys)


def snapshot(kind, name, *, namespace="", labels=None, **parts):
    """A live VolumeSnapshot or VolumeSnapshotContent with the label of csi1."""
    labels = {"velero.io/backup-name": "csi1", **(labels or {})}
    metadata = {"name": name, "labels": labels, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": kind, "metadata": metadata, **parts}


CONTENT = snapshot(
    "VolumeSnapshotContent",
    "snapcontent-1",
    spec={"driver": "hostpath.csi.k8s.io", "deletionPolicy": "Retain"},
    status={"snapshotHandle": "csi-snap-1"},
)
VOLUME_SNAPSHOT = snapshot(
    "VolumeSnapshot", "velero-d0", namespace="csiapp", status={"boundVolumeSnapshotContentName": "snapcontent-1"}
)


def timed_out(operations):
    """The first operation ended after its time, which Velero counts as failed; what it made is in the cloud."""
    operations[0]["status"] |= {"phase": "Failed", "error": "Asynchronous action timed out"}
    return operations


def not_ready(volumes):
    """As a real Velero 1.18.3 wrote them: the handle is there, and the result is failed."""
    for each in volumes:
        each["result"] = "failed"
        each["csiSnapshotInfo"]["ReadyToUse"] = False
    return volumes


def healthy(world):
    """Nothing went wrong."""


def half_failed(world):
    """PartiallyFailed: two attempted, none counted as completed."""
    world.status(phase="PartiallyFailed", csiVolumeSnapshotsCompleted=None, backupItemOperationsCompleted=1, errors=1)
    world.change_list("itemoperations", timed_out)
    world.change_list("volumeinfo", not_ready)


def without_volumeinfo(world):
    """The same, and a lifecycle rule took volumeinfo: the operations tell."""
    half_failed(world)
    world.change_list("volumeinfo", None)


def without_lists(world):
    """The same, and the operations are lost too: only the count of the record tells."""
    without_volumeinfo(world)
    world.change_list("itemoperations", None)


def failed(world, **status):
    shutil.rmtree(world.directory)
    none = dict.fromkeys(
        ["csiVolumeSnapshotsAttempted", "csiVolumeSnapshotsCompleted", "backupItemOperationsAttempted"]
    )
    world.status(phase="Failed", backupItemOperationsCompleted=None, **{**none, **status})


def failed_counted(world):
    """Failed without a directory, as the upload failed: the count of the record tells."""
    failed(world, csiVolumeSnapshotsAttempted=2)


def failed_with_a_volume_snapshot(world):
    """Velero died in the middle: a live VolumeSnapshot is all there is."""
    failed(world)
    world.put(VOLUME_SNAPSHOT)


def failed_with_a_content(world):
    """The namespace of the snapshot is gone, its content is left."""
    failed(world)
    world.put(CONTENT)


STORIES = [
    pytest.param(healthy, "NoAdapter", [f"hostpath.csi.k8s.io {each}" for each in HANDLES], id="healthy"),
    pytest.param(half_failed, "NoAdapter", [f"hostpath.csi.k8s.io {each}" for each in HANDLES], id="half-failed"),
    pytest.param(without_volumeinfo, "NoAdapter", ["snapcontent-286433ba-84fe-4a17"], id="without-volumeinfo"),
    pytest.param(without_lists, "ListMissing", ["2 CSI snapshots were attempted"], id="without-any-list"),
    pytest.param(failed_counted, "ListMissing", ["2 CSI snapshots were attempted"], id="failed-and-counted"),
    pytest.param(failed_with_a_volume_snapshot, "NoAdapter", ["snapcontent-1"], id="failed-with-a-live-snapshot"),
    pytest.param(
        failed_with_a_content, "NoAdapter", ["hostpath.csi.k8s.io csi-snap-1"], id="failed-with-a-live-content"
    ),
]


@pytest.mark.parametrize(("story", "reason", "said"), STORIES)
def test_no_csi_snapshot_is_leaked_by_an_expiry(world, story, reason, said):
    """Velero 1.17 and later write no list of CSI snapshots: failed and half failed backups expired as if they had none.

    Nobody asked, the files and the record went, and the snapshots stayed in the cloud for ever.
    """
    story(world)
    found = world.decisions("run", "--once")
    assert found["retention", "csi1"]["verdict"] == "KEEP"
    assert found["retention", "csi1"]["reason"] == reason
    for each in said:
        assert each in found["retention", "csi1"]["message"]
    assert "csi1" in world.records()
    assert world.records()["csi1"]["status"]["phase"] != "Deleting"


@pytest.mark.parametrize(("story", "reason", "said"), STORIES)
def test_no_csi_snapshot_is_leaked_by_a_request(world, story, reason, said):
    """Somebody asks for the deletion of such a backup: it was Completed, and the snapshots stayed."""
    story(world)
    path = world.path / "cluster/ask.yaml"
    path.write_text(yaml.safe_dump(world.ask()), "utf-8")
    files = sorted(world.directory.iterdir()) if world.directory.exists() else []
    asked = world.decisions("run", "--once", "--controllers", "deletion")["deletion", "ask"]
    assert (asked["verdict"], asked["reason"]) == ("KEEP", reason)
    for each in said:
        assert each in asked["message"]
    assert "csi1" in world.records()
    assert files == (sorted(world.directory.iterdir()) if world.directory.exists() else [])


def test_what_a_restore_labelled_is_not_the_backups_and_a_backup_without_csi_data_still_goes(world):
    """A restore puts the backup's label on what it restores: that is somebody's live data, and stops nothing.

    ``b2`` has volumeinfo and both lists, and no list of CSI snapshots, since 1.17 never writes one: it goes whole.
    """
    labels = {"velero.io/backup-name": "b2", "velero.io/restore-name": "r"}
    world.put(
        snapshot("VolumeSnapshot", "restored", namespace="app1", labels=labels),
        snapshot("VolumeSnapshotContent", "restored", labels=labels, spec={"driver": "d"}),
    )
    found = world.decisions("run", "--once")
    assert found["retention", "b2"]["verdict"] == "DELETE"
    assert "b2" not in world.records()
    assert world.left() == set()
    assert not (world.directory.parent / "b2").exists()
    assert "csi1" in world.records()


def test_a_list_that_velero_must_have_written_is_missed_and_one_that_it_never_wrote_is_not(world):
    """Whoever writes to the bucket takes the list of native snapshots away and sets the count of the record to none."""
    files = world.directory.parent / "b2"
    (files / "b2-volumesnapshots.json.gz").unlink()
    (files / "b2-podvolumebackups.json.gz").unlink()
    found = world.decisions("run", "--once")
    assert found["retention", "b2"]["reason"] == "ListMissing"
    assert world.left() == set(B2)
    _, out = world.run("audit", "-o", "json", "--now", EXPIRED)
    missing = {each["id"] for each in json.loads(out)["missing"]}
    assert missing == {f"backups/b2/b2-{name}.json.gz" for name in ("volumesnapshots", "podvolumebackups")}


def test_what_only_volumeinfo_names_goes_too(world):
    """The list of native snapshots was overwritten with an empty one: volumeinfo still names all five."""
    (world.directory.parent / "b2/b2-volumesnapshots.json.gz").write_bytes(gzip.compress(b"null"))
    world.decisions("run", "--once")
    assert world.left() == set()
    assert "b2" not in world.records()


def test_describe_and_audit_see_what_retention_sees(world):
    """Audit called the list missing that 1.17 never writes; describe showed a backup without any snapshot."""
    _, out = world.run("backup", "describe", "csi1", "-o", "json", "--now", EXPIRED)
    described = json.loads(out)
    assert [each["handle"] for each in described["csiSnapshots"]] == list(HANDLES)
    assert described["expiry"]["reason"] == "NoAdapter"
    code, out = world.run("audit", "-o", "json", "--now", EXPIRED)
    assert (code, json.loads(out)) == (0, {"missing": [], "orphaned": [], "unknown": []})
    without_lists(world)
    _, out = world.run("audit", "-o", "json", "--now", EXPIRED)
    (unknown,) = json.loads(out)["unknown"]
    assert "csi1" in unknown["what"]
    assert "2 CSI snapshots were attempted" in unknown["why"]


CLAIMS = [
    pytest.param({"csiVolumeSnapshotsAttempted": 2}, {}, id="csi-snapshots-attempted"),
    pytest.param({"volumeSnapshotsAttempted": 1}, {}, id="native-snapshots-attempted"),
    pytest.param({"backupItemOperationsAttempted": 1}, {}, id="operations-attempted"),
    pytest.param({}, {"snapshotMoveData": True}, id="volumes-moved"),
]


@pytest.mark.parametrize(("status", "spec"), CLAIMS)
def test_sync_keeps_a_record_that_claims_data_and_its_expiry_leaks_nothing(status, spec):
    """A lifecycle rule emptied the directory of a half failed backup: sync dropped the record, the last to know."""
    foo, bar = record("foo", phase="PartiallyFailed", expires=NOW + HOUR, **status), record("bar")
    foo["spec"] |= spec
    ns = Namespace(location(), foo, bar, buckets={"b": files_of(bar)})
    assert told(ns.run("sync")) == [("sync", "foo", "KEEP", "MetadataMissing")]
    ns.run("retention", "deletion", at=NOW + 2 * HOUR)
    assert ns.names() == {"foo", "bar"}


@pytest.mark.parametrize("kind", ["VolumeSnapshot", "VolumeSnapshotContent", "PodVolumeBackup", "DataUpload"])
def test_a_kind_that_may_not_be_listed_is_not_taken_for_none(kind):
    """The rights were not brought up to date: 403 on the live objects looked like a backup that has none."""
    foo, bar = record("foo", expires=NOW), record("bar")
    ns = Namespace(location(), foo, bar, buckets={"b": {**files_of(foo), **files_of(bar)}})

    def refuse(verb, asked, _name):
        if (verb, asked) == ("list", kind):
            raise DeniedError(f"403 on {kind}")

    ns.cluster.before = refuse
    report = ns.run("retention", "deletion")
    assert ("retention", "foo", "KEEP", "Unreadable") in told(report)
    assert f"403 on {kind}" in report.decisions[0].message
    assert ns.names() == {"foo", "bar"}
    ns.cluster.before = lambda *_: None
    ns.run("retention", "deletion")
    assert ns.names() == {"bar"}


@pytest.mark.parametrize("fault", [DeniedError("403"), UnavailableError("503")], ids=["denied", "unavailable"])
def test_sync_drops_nothing_while_live_objects_cannot_be_listed_and_goes_on_with_the_rest(fault):
    """The record that is not in the bucket stays; the directory that has no record gets one all the same."""
    foo, bar, new = record("foo"), record("bar"), record("new")
    ns = Namespace(location(), foo, bar, buckets={"b": {**files_of(bar), **files_of(new)}})

    def refuse(verb, asked, _name):
        if (verb, asked) == ("list", "VolumeSnapshotContent"):
            raise fault

    ns.cluster.before = refuse
    ns.run("sync")
    assert ns.names() == {"foo", "bar", "new"}
    ns.cluster.before = lambda *_: None
    ns.run("sync", at=NOW + HOUR)
    assert ns.names() == {"bar", "new"}


def test_a_thousand_csi_snapshots_are_a_bounded_message():
    """Ten are named, the others counted: a status that grows with the backup could not be written any more."""
    volumes = [
        {"backupMethod": "CSISnapshot", "csiSnapshotInfo": {"driver": "d", "snapshotHandle": f"{n:04d}" * 100}}
        for n in range(1000)
    ]
    foo = record("foo", expires=MADE)
    top = "backups/foo/foo-"
    files = files_of(foo) | {f"{top}volumeinfo.json.gz": packed(volumes)}
    files |= {f"{top}{name}.json.gz": packed(None) for name in ("volumesnapshots", "podvolumebackups")}
    report = Namespace(location(), foo, buckets={"b": files}).run("retention")
    (decision,) = report.decisions
    assert "1000 CSI snapshots" in decision.message
    assert "and 990 more" in decision.message
    assert len(decision.message) < 4000
