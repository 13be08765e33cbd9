"""Ark v0.8 over a folder, end to end: what comes, expires, and goes, in Ark's own words and layout."""

import json
import threading
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from reprieve.entrypoints.cli.root import run

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MADE = "2026-01-30T03:00:00Z"
NEVER = "0001-01-01T00:00:00Z"
BUCKET = "ark-backups"
CONFIGURATION = {
    "apiVersion": "reprieve.dev/v1alpha1",
    "kind": "Configuration",
    "backups": {"namespace": "heptio-ark", "dialect": "ark", "ark": {"bucket": BUCKET, "provider": "aws"}},
}


def ark(kind, name, *, labels=None, finalizers=None, **parts):
    """An object of Ark's."""
    metadata = {"name": name, "namespace": "heptio-ark", "uid": f"uid-{name}", "creationTimestamp": MADE}
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"finalizers": finalizers} if finalizers else {}
    return {"apiVersion": "ark.heptio.com/v1", "kind": kind, "metadata": metadata, **parts}


def record(name, *snapshots, expires=NEVER, **metadata):
    """A Backup as Ark v0.8 leaves it: its snapshots are in its own status, its expiration is never absent."""
    volumes = {
        f"pv-{each}": {"snapshotID": each, "type": "gp2", "availabilityZone": "eu-west-1a", "iops": None}
        for each in snapshots
    }
    status = {"version": 1, "phase": "Completed", "startTimestamp": MADE, "expiration": expires}
    return ark("Backup", name, spec={}, status={**status, "volumeBackups": volumes}, **metadata)


def request(name, backup, uid=""):
    """A request as Ark's command makes it."""
    labels = {"ark.heptio.com/backup-name": backup, "ark.heptio.com/backup-uid": uid or f"uid-{backup}"}
    return ark("DeleteBackupRequest", name, labels=labels, spec={"backupName": backup}, status={"phase": "New"})


class Folder:
    """A cluster with Ark in a directory."""

    def __init__(self, path, capsys):
        self.path, self.capsys = path, capsys
        self.write("reprieve.yaml", CONFIGURATION)
        self.top.mkdir(parents=True)

    @property
    def top(self):
        return self.path / "buckets" / BUCKET

    def write(self, name, *documents):
        """Write a file of YAML documents."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")

    def cluster(self, *objects):
        self.write("cluster/ark.yaml", *objects)

    def snapshots(self, **backups):
        """Snapshots by the backup that they are tagged with."""
        listed = [
            {"provider": "aws", "id": each, "tags": {"ark.heptio.com/backup": backup}}
            for backup, ids in backups.items()
            for each in ids
        ]
        self.write("snapshots.yaml", listed)

    def store(self, document, *restores):
        """A backup's directory at the bucket's root, with its restores' files in it."""
        name = document["metadata"]["name"]
        files = {"ark-backup.json": json.dumps(document), f"{name}.tar.gz": "objects", f"{name}-logs.gz": "logs"}
        files |= {f"restore-{restore}-{part}.gz": part for restore in restores for part in ("logs", "results")}
        (self.top / name).mkdir(exist_ok=True)
        for file, content in files.items():
            (self.top / name / file).write_text(content, encoding="utf-8")

    def reprieve(self, *words, now=NOW):
        """Run a command over the folder: its exit code, and what it printed as JSON."""
        self.capsys.readouterr()
        code = run([*words, "--local", str(self.path), "--now", now.isoformat(), "-o", "json"])
        return code, json.loads(self.capsys.readouterr().out)

    def objects(self):
        """The objects that are left, by kind and name."""
        files = (self.path / "cluster").rglob("*.yaml")
        documents = [each for file in files for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each]
        return {(each["kind"], each["metadata"]["name"]): each for each in documents}

    def files(self):
        return {path.relative_to(self.top).as_posix() for path in self.top.rglob("*") if path.is_file()}

    def live(self):
        return {each["id"] for each in yaml.safe_load((self.path / "snapshots.yaml").read_text(encoding="utf-8")) or []}


@pytest.fixture
def folder(tmp_path, capsys):
    return Folder(tmp_path, capsys)


@pytest.fixture
def asked(folder):
    """Two backups with snapshots and restores, one of them asked for."""
    old, other = record("old", "snap-1", "snap-2"), record("other", "snap-3")
    restores = [
        ark("Restore", f"back-{b}", spec={"backupName": b}, status={"phase": "Completed"}) for b in ("old", "other")
    ]
    folder.cluster(old, other, *restores, request("old-abcde", "old"))
    folder.snapshots(old=["snap-1", "snap-2"], other=["snap-3"])
    folder.store(old, "back-old")
    folder.store(other, "back-other")
    return folder


def test_a_plan_names_what_would_go_and_touches_nothing(asked):
    """Snapshots first, restores' files by their own prefix, the metadata file last, then record and request."""
    before = (asked.objects(), asked.files(), asked.live())
    code, decisions = asked.reprieve("plan")
    (deletion,) = [each for each in decisions if each["controller"] == "deletion"]
    assert (code, deletion["verdict"], deletion["object"]["apiVersion"]) == (2, "DELETE", "ark.heptio.com/v1")
    assert [step["step"] for step in deletion["steps"]] == [
        "DeleteSnapshot",
        "DeleteSnapshot",
        "DeleteRestore",
        "DeleteFiles",
        "DeleteFile",
        "DeleteObject",
        "EndRequest",
    ]
    by_name = {step["step"]: step for step in deletion["steps"]}
    assert by_name["DeleteRestore"]["prefix"] == "old/restore-back-old-"
    assert by_name["DeleteFile"]["key"] == "old/ark-backup.json"
    assert (asked.objects(), asked.files(), asked.live()) == before


def test_a_request_deletes_one_backup_and_nothing_else(asked):
    """Record, restore, files, snapshots and the request; a second run has nothing to do."""
    code, decisions = asked.reprieve("run", "--once")
    assert (code, {each["reason"] for each in decisions if each["controller"] == "deletion"}) == (0, {"Completed"})
    assert set(asked.objects()) == {("Backup", "other"), ("Restore", "back-other")}
    assert {name.partition("/")[0] for name in asked.files()} == {"other"}
    assert asked.live() == {"snap-3"}
    assert asked.reprieve("run", "--once", now=NOW + timedelta(hours=1)) == (0, [])


def test_a_backup_with_snapshots_and_no_provider_is_refused_in_arks_own_words(asked):
    """Nothing is deleted: half a deletion would orphan the snapshots."""
    asked.write("reprieve.yaml", {**CONFIGURATION, "cloud": {"providers": ["gcp"]}})
    code, decisions = asked.reprieve("run", "--once")
    (deletion,) = [each for each in decisions if each["controller"] == "deletion"]
    assert code == 3
    assert "Ark is not configured with a PersistentVolumeProvider" in deletion["message"]
    assert asked.live() == {"snap-1", "snap-2", "snap-3"}
    assert ("Backup", "old") in asked.objects()


def test_the_command_lists_describes_and_deletes(asked):
    """``backup`` speaks the dialect that the configuration names."""
    code, listed = asked.reprieve("backup", "list")
    assert (code, [each["name"] for each in listed]) == (0, ["old", "other"])
    assert {each["expiration"] for each in listed} == {None}, "the year 1 is never"
    _, described = asked.reprieve("backup", "describe", "old")
    assert [each["id"] for each in described["snapshots"]] == ["snap-1", "snap-2"]
    assert [each["name"] for each in described["deletionAttempts"]["deleteBackupRequests"]] == ["old-abcde"]
    assert described["expiry"]["reason"] == "NeverExpires"
    assert [each["name"] for each in described["restores"]] == ["back-old"]
    code, made = asked.reprieve("backup", "delete", "other", "--confirm", "--wait")
    assert (code, len(made)) == (0, 1)
    assert ("Backup", "other") not in asked.objects()


def test_sync_brings_back_what_lies_in_the_bucket_without_the_old_finalizer(folder):
    """The namespace was deleted; the records come back without labels or locations that Ark does not know."""
    stored = record("old", "snap-1", labels={"ark-schedule": "nightly"}, finalizers=["gc.ark.heptio.com"])
    folder.cluster(ark("Schedule", "nightly"))
    folder.store(stored)
    folder.snapshots(old=["snap-1"])
    code, decisions = folder.reprieve("run", "--once")
    assert (code, [(d["controller"], d["reason"]) for d in decisions]) == (0, [("sync", "InBucket")])
    found = folder.objects()["Backup", "old"]
    assert found["metadata"]["labels"] == {"ark-schedule": "nightly"}
    assert "finalizers" not in found["metadata"]
    assert "storageLocation" not in found["spec"]
    assert set(found["metadata"]["annotations"]) == {"reprieve.dev/synced-at"}
    assert folder.reprieve("run", "--once") == (0, [])


def test_an_expired_backup_goes_and_the_newest_of_its_schedule_stays(folder):
    """Expiry, keepLast by Ark's own label, the request, the deletion; sync does not bring it back."""
    labels = {"ark-schedule": "nightly"}
    records = [record(name, f"snap-{name}", expires="2026-02-20T00:00:00Z", labels=labels) for name in ("a", "b")]
    records[1]["status"]["completionTimestamp"] = "2026-01-31T03:00:00Z"
    folder.cluster(*records)
    folder.snapshots(a=["snap-a"], b=["snap-b"])
    for each in records:
        folder.store(each)
    code, decisions = folder.reprieve("run", "--once")
    retention = {d["object"]["name"]: d["reason"] for d in decisions if d["controller"] == "retention"}
    assert (code, retention) == (0, {"a": "Expired", "b": "LastGood"})
    assert set(folder.objects()) == {("Backup", "b")}
    assert folder.live() == {"snap-b"}
    folder.reprieve("run", "--once", now=NOW + timedelta(days=1))
    assert set(folder.objects()) == {("Backup", "b")}


def test_a_hold_is_mirrored_in_the_directory_and_keeps(folder):
    """The hold file lies where Ark's files lie, and a deletion asks it."""
    held = record("old", expires="2026-02-20T00:00:00Z")
    held["metadata"]["annotations"] = {"reprieve.dev/hold": "case 4711"}
    folder.cluster(held)
    folder.store(record("old"))
    folder.snapshots()
    code, _ = folder.reprieve("run", "--once")
    assert code == 0
    assert "old/reprieve-hold.json" in folder.files()
    assert set(folder.objects()) == {("Backup", "old")}


def test_the_old_finalizer_is_taken_off_at_start(folder):
    """Nobody serves it any more; another party's finalizer stays."""
    folder.cluster(record("old", finalizers=["gc.ark.heptio.com", "example.com/mine"]))
    folder.store(record("old"))
    code, decisions = folder.reprieve("run", "--once")
    assert (code, [(d["controller"], d["reason"]) for d in decisions]) == (0, [("migration", "OldFinalizer")])
    assert folder.objects()["Backup", "old"]["metadata"]["finalizers"] == ["example.com/mine"]


def test_the_audit_knows_arks_tags(folder):
    """A snapshot that a record names and nobody has; one that is tagged and that nobody names."""
    folder.cluster(record("old", "snap-1", "snap-2"))
    folder.store(record("old", "snap-1", "snap-2"))
    folder.snapshots(old=["snap-1"], long_gone=["snap-9"])
    code, report = folder.reprieve("audit")
    assert code == 3
    assert report["missing"] == [{"backup": "old", "provider": "aws", "id": "snap-2"}]
    assert [each["id"] for each in report["orphaned"]] == ["snap-9"]
    assert report["unknown"] == []


def test_the_period_of_the_one_bucket_is_counted_by_the_controller(folder):
    """Ark has no location object to stamp: the second look comes a period after the first."""
    from reprieve.entrypoints.bootstrap import open_local
    from reprieve.entrypoints.controller.build import build_controllers

    folder.cluster()
    folder.store(record("a"))
    with open_local(folder.path, config=None, read_only=False, now=NOW) as world:
        built = build_controllers(world, names=["sync"], stop=threading.Event())
        (reconciler,) = built.reconcilers
        assert reconciler.keys() == ["default"]
        assert reconciler.watches() == []
        assert reconciler.reconcile("default", now=NOW).again == NOW + timedelta(minutes=1)
        folder.store(record("b"))
        assert reconciler.reconcile("default", now=NOW + timedelta(seconds=59)).changed is False
        assert reconciler.reconcile("default", now=NOW + timedelta(minutes=1)).changed is True
        built.close()
