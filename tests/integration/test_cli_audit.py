"""``reprieve audit`` over a folder, and what ``backup describe`` says of expiry, holds and restores."""

import gzip
import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from reprieve.entrypoints.cli.root import run
from reprieve.entrypoints.sample import write_sample
from reprieve.entrypoints.sample_time import add_time_sample

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PRIMARY = "acme-backups-eu/backups"


class Folder:
    """The sample folder, with the part that is about time."""

    def __init__(self, path, capsys):
        self.path, self.capsys = path, capsys
        write_sample(path, now=NOW)
        add_time_sample(path, now=NOW)

    def reprieve(self, *words, output="json", now=NOW):
        """Run a command over the folder: its exit code, and what it printed."""
        self.capsys.readouterr()
        code = run([*words, "--local", str(self.path), "--now", now.isoformat(), "-o", output])
        printed = self.capsys.readouterr().out
        return code, json.loads(printed) if output == "json" else printed

    def snapshots(self, change):
        path = self.path / "snapshots.yaml"
        path.write_text(yaml.safe_dump(change(yaml.safe_load(path.read_text(encoding="utf-8")))), encoding="utf-8")

    def state(self):
        return {path: path.read_bytes() for path in self.path.rglob("*") if path.is_file()}

    def file(self, backup, name):
        return self.path / "buckets" / PRIMARY / backup / name


@pytest.fixture
def folder(tmp_path, capsys):
    return Folder(tmp_path / "folder", capsys)


def missing(report):
    return {(part["backup"], part["provider"], part["id"]) for part in report["missing"]}


def test_the_audit_finds_what_was_lost_and_changes_nothing(folder):
    """A snapshot that a list names and nobody has, files that are gone, a snapshot that nobody names."""
    before = folder.state()
    code, report = folder.reprieve("audit")
    assert code == 3
    assert ("shop-monthly-08", "aws", "snap-08b") in missing(report)
    assert ("shop-emptied", "", "backups/shop-emptied/velero-backup.json") in missing(report)
    created = "2025-12-01T12:00:00Z"
    tags = {"velero.io/backup": "shop-2023", "velero.io/pv": "pv-snap-lost"}
    assert report["orphaned"] == [{"provider": "aws", "id": "snap-lost", "tags": tags, "created": created}]
    assert "primary: backups/shop-garbled/shop-garbled-volumesnapshots.json.gz" in {
        u["what"] for u in report["unknown"]
    }
    assert folder.state() == before


def test_what_is_not_there_any_more_is_only_blamed_where_everything_was_read(folder):
    """A backup that is at work, or whose deletion has begun, misses nothing; nor does one with a snapshot of no id."""
    _, report = folder.reprieve("audit")
    assert {name for name, _, _ in missing(report)} == {"shop-monthly-08", "shop-emptied", "shop-last-link"}


def test_the_table_shows_age_and_says_that_nothing_was_deleted(folder):
    """For people: one line a finding."""
    code, printed = folder.reprieve("audit", output="table")
    assert code == 3
    (line,) = [line for line in printed.splitlines() if "snap-lost" in line]
    assert line.split()[:5] == ["orphaned", "shop-2023", "aws", "snap-lost", "90d"]
    assert printed.rstrip().endswith("1 orphaned, 2 unknown. Nothing was deleted.")


def test_a_folder_without_findings_is_exit_code_0(tmp_path, capsys):
    """Nothing to say is said."""
    (tmp_path / "cluster").mkdir()
    code = run(["audit", "--local", str(tmp_path)])
    assert (code, capsys.readouterr().out) == (0, "Nothing is missing, orphaned or unknown.\n")


def test_a_configuration_that_cannot_be_used_is_exit_code_1(tmp_path, capsys):
    """An error is no finding."""
    (tmp_path / "reprieve.yaml").write_text("apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\nbackups: false\n")
    assert run(["audit", "--local", str(tmp_path)]) == 1
    assert "backups: is false" in capsys.readouterr().err


def test_a_snapshot_without_tags_is_asked_for_before_it_counts_as_missing(folder):
    """Somebody took the tags off, or copied it: a listing by tag does not have it, the provider does."""
    folder.snapshots(lambda all_: [{**each, "tags": {}} if each["id"] == "snap-n1" else each for each in all_])
    _, report = folder.reprieve("audit")
    assert ("shop-nightly", "aws", "snap-n1") not in missing(report)


def test_a_bucket_that_is_not_there_blames_nobody(folder):
    """Its records' snapshots may be named by lists in it, so they are unknown, and nothing in it is missing."""
    (folder.path / "buckets" / "acme-backups-eu").rename(folder.path / "elsewhere")
    _, report = folder.reprieve("audit")
    assert report["missing"] == []
    assert report["orphaned"] == []
    whats = {part["what"] for part in report["unknown"]}
    assert "storage location primary" in whats
    assert any("snap-lost" in what for what in whats)


def test_a_location_that_is_not_available_blames_nobody(folder):
    """Velero says that it cannot be reached: it is not asked."""
    path = folder.path / "cluster" / "locations.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("phase: Available", "phase: Unavailable"), encoding="utf-8"
    )
    _, report = folder.reprieve("audit")
    assert (report["missing"], report["orphaned"]) == ([], [])
    assert {"storage location primary", "storage location archive"} <= {part["what"] for part in report["unknown"]}


def test_a_record_of_a_location_that_does_not_exist_is_unknown(folder):
    """What it points at cannot be looked up."""
    record = {"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": "odd", "namespace": "velero"}}
    record |= {"spec": {"storageLocation": "nowhere"}, "status": {"phase": "Completed"}}
    (folder.path / "cluster" / "odd.yaml").write_text(yaml.safe_dump(record), encoding="utf-8")
    _, report = folder.reprieve("audit")
    assert {"what": "storage location nowhere of backup odd", "why": "it does not exist"} in report["unknown"]


def test_snapshots_of_a_backup_that_only_the_bucket_knows_are_no_orphans(folder):
    """Its record was lost, sync will bring it back; its list names the snapshot."""
    listed = [{"spec": {"location": "aws-eu"}, "status": {"providerSnapshotID": "snap-lost"}}]
    folder.file("shop-returned", "shop-returned-volumesnapshots.json.gz").write_bytes(
        gzip.compress(json.dumps(listed).encode())
    )
    _, report = folder.reprieve("audit")
    assert report["orphaned"] == []


def test_garbage_metadata_of_a_backup_without_a_record_is_unknown(folder):
    """A snapshot that carries its name could be named by it."""
    folder.file("shop-returned", "velero-backup.json").write_bytes(b"\x00")
    folder.snapshots(
        lambda all_: [*all_, {"provider": "aws", "id": "snap-r", "tags": {"velero.io/backup": "shop-returned"}}]
    )
    _, report = folder.reprieve("audit")
    whats = {part["what"] for part in report["unknown"]}
    assert {"primary: backups/shop-returned/", "aws snapshot snap-r of backup shop-returned"} <= whats


def test_a_directory_without_metadata_and_record_is_no_backup(folder):
    """What carries its name is an orphan: nobody will ever ask for it."""
    folder.file("shop-returned", "velero-backup.json").unlink()
    folder.snapshots(
        lambda all_: [*all_, {"provider": "aws", "id": "snap-r", "tags": {"velero.io/backup": "shop-returned"}}]
    )
    _, report = folder.reprieve("audit")
    assert {each["id"] for each in report["orphaned"]} == {"snap-lost", "snap-r"}


# What describe says over time


@pytest.mark.parametrize(
    ("backup", "due", "verdict", "reason"),
    [
        pytest.param("shop-weekly-01", True, "DELETE", "Expired", id="due"),
        pytest.param("shop-weekly-02", True, "KEEP", "LastGood", id="the-last-of-its-schedule"),
        pytest.param("shop-nightly", False, "KEEP", "NotDue", id="not-due"),
    ],
)
def test_describe_says_why_a_backup_is_due_or_not(folder, backup, due, verdict, reason):
    """Retention's own answer, with its sentence; nothing is filed for it."""
    before = folder.state()
    code, described = folder.reprieve("backup", "describe", backup)
    expiry = described["expiry"]
    assert (code, expiry["due"], expiry["verdict"], expiry["reason"]) == (0, due, verdict, reason)
    assert expiry["message"]
    assert folder.state() == before


def test_describe_shows_holds_and_restores(folder):
    """The hold on the record and the one beside the files; every restore; and the keys of before."""
    folder.reprieve("run", "--once", "--controllers", "sync")
    _, described = folder.reprieve("backup", "describe", "shop-legal")
    file = "backups/shop-legal/reprieve-hold.json"
    assert described["holds"] == [
        {"where": where, "reason": "case 4711", "until": None} for where in ("annotation", file)
    ]
    _, described = folder.reprieve("backup", "describe", "shop-monthly-09")
    assert described["restores"] == [{"name": "shop-monthly-09-back", "phase": "Completed"}]
    documented = ["name", "uid", "phase", "expiration", "storageLocation", "snapshots", "deletionAttempts"]
    assert list(described)[: len(documented)] == documented


def test_describe_for_people_says_the_same(folder):
    """Due, hold, restores."""
    later = NOW + timedelta(days=400)
    _, printed = folder.reprieve("backup", "describe", "shop-legal", output="table", now=later)
    assert "Due:               yes (Held: backup is held until the hold is taken off: case 4711)" in printed
    assert "Hold:              case 4711, until it is taken off (annotation)" in printed
    _, printed = folder.reprieve("backup", "describe", "shop-restoring", output="table")
    assert "Hold:              none\n" in printed
    assert "  shop-restoring-back  (InProgress)" in printed


def test_describe_goes_on_where_the_bucket_cannot_be_read(folder):
    """The mirrored hold is unknown: that is said, and the rest is shown."""
    (folder.path / "buckets" / "acme-backups-eu").rename(folder.path / "elsewhere")
    code, described = folder.reprieve("backup", "describe", "shop-legal")
    assert code == 0
    assert [each["where"] for each in described["holds"]] == ["annotation"]
