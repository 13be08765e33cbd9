"""The sync controller over a cluster and buckets in memory: the state of the world, and what a pass costs."""

import hashlib
import json
from collections import Counter
from datetime import timedelta

import pytest

from reprieve.core.errors import ContainerMissingError, DeniedError, UnavailableError
from reprieve.core.objects import ObjectKind
from reprieve.core.reasons import Reason
from reprieve.core.values import format_instant
from reprieve.entrypoints.configuration import SyncSettings
from reprieve.entrypoints.controller.decisions import Standing
from tests.unit.overtime import (
    DAY,
    MADE,
    NOW,
    Namespace,
    files_of,
    location,
    made,
    packed,
    record,
    told,
    volume,
)

LATER = NOW + timedelta(minutes=1)
HOLD_KEY = "backups/foo/reprieve-hold.json"


def bucket(*documents, **options):
    """A bucket with the directories of backups."""
    return {key: data for document in documents for key, data in files_of(document, **options).items()}


def fail(error, *, on="", operation=""):
    """A hook that lets calls on keys with that part fail."""

    def hook(asked, _bucket, key):
        if on in key and operation in {"", asked}:
            raise error

    return hook


# Creating


def test_a_backup_in_the_bucket_gets_a_record_once_and_the_second_pass_writes_nothing():
    """D-21, blind creates: a record that is there is neither read, nor created again, nor written."""
    ns = Namespace(location(), buckets={"b": bucket(record("foo"), record("bar"))})
    report = ns.run("sync")
    assert told(report) == [("sync", "bar", "KEEP", "InBucket"), ("sync", "foo", "KEEP", "InBucket")]
    assert report.failures == ()
    assert ns.get("foo").meta.annotations == {"reprieve.dev/synced-at": format_instant(NOW)}
    assert ns.synced() == format_instant(NOW)

    report = ns.run("sync", at=LATER)
    assert told(report) == []
    assert ns.reads == Counter({"list": 1})
    assert ns.cluster.writes == Counter({"patch BackupStorageLocation": 1})
    assert ns.synced() == format_instant(LATER)


def test_a_plan_creates_nothing():
    """A plan tells the record that would come, and writes nothing, not even the time of the sync."""
    ns = Namespace(location(), buckets={"b": bucket(record("foo"))})
    report = ns.plan("sync")
    assert told(report) == [("sync", "foo", "KEEP", "InBucket")]
    assert [type(step).__name__ for step in report.decisions[0].steps] == ["CreateRecord"]
    assert ns.cluster.writes == Counter()
    assert ns.reads["write"] == 0


def test_pod_volume_backups_come_along_in_the_same_pass():
    """They belong to the new record, and the mark that they are missing is off again."""
    volumes = [volume("foo-v1", "foo"), volume("foo-v2", "foo"), volume("bar-v1", "bar")]
    ns = Namespace(location(), buckets={"b": bucket(record("foo"), volumes=volumes)})
    ns.run("sync")
    assert ns.names("PodVolumeBackup") == {"foo-v1", "foo-v2"}
    assert "reprieve.dev/sync-incomplete" not in ns.get("foo").meta.annotations
    owner = ns.get("foo-v1", "PodVolumeBackup").meta.owners[0]
    assert owner.uid == ns.get("foo").meta.uid


def test_a_pass_that_died_after_the_record_is_finished_by_the_next():
    """The record says what is missing; the next pass brings it, and only it, and stamps the location."""
    volumes = [volume("foo-v1", "foo"), volume("foo-v2", "foo")]
    ns = Namespace(location(), buckets={"b": bucket(record("foo"), volumes=volumes)})

    def refuse(verb, kind, name):
        if (verb, kind, name) == ("create", "PodVolumeBackup", "foo-v2"):
            raise UnavailableError("the API server went away")

    ns.cluster.before = refuse
    assert ns.run("sync").standing is Standing.FAILED
    assert ns.names("PodVolumeBackup") == {"foo-v1"}
    assert ns.synced() is None

    ns.cluster.before = lambda *_: None
    report = ns.run("sync")
    assert told(report) == [("sync", "foo", "KEEP", "SyncIncomplete")]
    assert ns.names("PodVolumeBackup") == {"foo-v1", "foo-v2"}
    assert ns.cluster.writes == Counter(
        {"create PodVolumeBackup": 1, "patch Backup": 1, "patch BackupStorageLocation": 1}
    )
    assert "reprieve.dev/sync-incomplete" not in ns.get("foo").meta.annotations


def test_the_default_location_wins_a_name_that_two_buckets_have():
    """The other one is reported, and nothing of it is read."""
    both = {"b": bucket(record("foo")), "a": bucket(record("foo", at="archive"))}
    ns = Namespace(location("archive", bucket="a"), location(default=True), buckets=both)
    report = ns.run("sync")
    assert ns.get("foo").section("spec")["storageLocation"] == "default"
    assert ("sync", "foo", "KEEP", "OtherLocation") in told(report)


def test_owner_references_of_a_schedule_are_kept_only_with_its_uid():
    """D-52, the owner-reference fight: a schedule of another cluster is not this one's, so nobody fights over it."""
    alive = made("Schedule", "nightly", metadata={"uid": "uid-here"})
    stored = record("foo", schedule="nightly")
    references = [
        {"apiVersion": "velero.io/v1", "kind": "Schedule", "name": "nightly", "uid": uid}
        for uid in ("there", "uid-here")
    ]
    stored["metadata"]["ownerReferences"] = references
    ns = Namespace(location(), alive, buckets={"b": bucket(stored)})
    ns.run("sync")
    assert [owner.uid for owner in ns.get("foo").meta.owners] == ["uid-here"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        pytest.param({"backups/foo/foo-logs.gz": b"x"}, "NoMetadata", id="no-metadata"),
        pytest.param({"backups/foo/velero-backup.json": b"\x00\xff garbage"}, "MetadataCorrupt", id="garbage"),
        pytest.param({"backups/foo/velero-backup.json": b'{"kind": "Restore"}'}, "MetadataCorrupt", id="other-kind"),
        pytest.param({"backups/Foo_1/velero-backup.json": b"{}"}, "NameInvalid", id="no-name-for-an-object"),
        pytest.param(
            {"backups/foo/velero-backup.json": json.dumps(record("bar")).encode()}, "NameMismatch", id="renamed"
        ),
    ],
)
def test_a_directory_that_is_no_backup_is_reported_and_the_others_come(files, reason):
    """One bad directory takes nothing else along; the location counts as synced, since all of it was seen."""
    ns = Namespace(location(), buckets={"b": {**files, **bucket(record("good"))}})
    report = ns.run("sync")
    assert ns.names() == {"good"}
    assert reason in {row[3] for row in told(report)}
    assert report.standing is Standing.SETTLED
    assert ns.synced() == format_instant(NOW)


# Dropping


def known(*names, **options):
    """Records that are here, all of them also in the bucket but for ``foo``."""
    records = [record(name, **options) for name in ("foo", *names)]
    return records, bucket(*records[1:])


def test_a_record_whose_files_are_gone_is_dropped():
    """It points at nothing any more, and one more look confirmed it."""
    records, files = known("bar")
    ns = Namespace(location(), *records, buckets={"b": files})
    report = ns.run("sync")
    assert told(report) == [("sync", "foo", "DELETE", "NotInBucket")]
    assert ns.names() == {"bar"}
    assert ns.run("sync", at=LATER).decisions == ()


@pytest.mark.parametrize(
    ("status", "extra"),
    [
        pytest.param({"volumeSnapshotsCompleted": 2}, [], id="native-snapshots"),
        pytest.param({"csiVolumeSnapshotsCompleted": 1}, [], id="csi"),
        pytest.param({}, [volume("foo-v1", "foo")], id="pod-volume-backups-in-another-namespace"),
    ],
)
def test_the_last_pointer_to_data_stays(status, extra):
    """D-25 and D-27: a lifecycle rule emptied the directory, and the snapshots would have been nobody's."""
    records = [record("foo", **status), record("bar")]
    ns = Namespace(location(), *records, *extra, buckets={"b": bucket(records[1])})
    report = ns.run("sync")
    assert told(report) == [("sync", "foo", "KEEP", "MetadataMissing")]
    assert ns.get("foo").meta.labels["reprieve.dev/metadata-missing"] == "true"
    assert ns.run("sync", at=LATER).standing is Standing.SETTLED
    assert ns.cluster.writes == Counter({"patch BackupStorageLocation": 1})


def test_the_brake_drops_nothing_and_is_an_exit_code():
    """Another bucket, a lifecycle rule: 9 of 10 records would go, so none does, and the numbers are told once."""
    records, files = known(*(f"b{number}" for number in range(9)))
    ns = Namespace(location(), *records, buckets={"b": {k: v for k, v in files.items() if "/b0/" in k}})
    report = ns.run("sync")
    (brake,) = report.decisions
    assert (brake.ref.kind, brake.ref.name, brake.reason) == ("BackupStorageLocation", "default", Reason.BRAKE)
    assert "of 10 records" in brake.message
    assert "sync.maxRemovals" in brake.message
    assert report.standing is Standing.WAITING
    assert len(ns.names()) == 10
    assert ns.synced() is None


def test_the_brake_lets_as_many_go_as_plain_digits_in_the_configuration_say():
    """``maxRemovals: 9`` is a number and no share."""
    records, files = known(*(f"b{number}" for number in range(9)))
    kept = {k: v for k, v in files.items() if "/b0/" in k}
    ns = Namespace(location(), *records, buckets={"b": kept}, sync=SyncSettings(max_removals="9"))
    assert ns.run("sync").standing is Standing.SETTLED
    assert ns.names() == {"b0"}


def test_an_empty_listing_drops_nothing():
    """An emptied bucket is told once, of the location, and not of each record."""
    records, _ = known("bar")
    ns = Namespace(location(), *records)
    assert told(ns.run("sync")) == [("sync", "default", "KEEP", "ListingEmpty")]
    assert ns.names() == {"foo", "bar"}


def test_a_same_named_backup_of_another_location_is_left_alone():
    """D-47: a location points to another bucket; the backup of that name there is another one, and is not deleted."""
    here, there = record("foo"), record("foo", startTimestamp=format_instant(MADE - DAY))
    ns = Namespace(location(bucket="new"), here, buckets={"b": bucket(here), "new": bucket(there)})
    ns.run("sync")
    assert ns.names() == {"foo"}
    assert set(bucket(there)) <= set(ns.stores.files("new"))
    assert ns.get("foo").section("status")["startTimestamp"] == format_instant(MADE)


def test_a_record_that_is_held_in_between_is_not_dropped():
    """The delete carries the resource version that was decided on: a hold that comes in makes it a conflict."""
    records, files = known("bar")
    ns = Namespace(location(), *records, buckets={"b": files})
    ns.cluster.before = lambda verb, kind, _name: (
        ns.annotate("foo", hold="wait") if (verb, kind) == ("delete", "Backup") else None
    )
    report = ns.run("sync")
    assert ns.names() == {"foo", "bar"}
    assert report.standing is Standing.SETTLED
    assert ns.synced() == format_instant(NOW), "the pass after the conflict was whole"


# What could not be read


@pytest.mark.parametrize(
    ("error", "operation"),
    [
        pytest.param(DeniedError("403 AccessDenied"), "list", id="403"),
        pytest.param(ContainerMissingError("NoSuchBucket"), "list", id="404"),
        pytest.param(UnavailableError("connection reset"), "list", id="broken-off"),
    ],
)
def test_a_bucket_that_cannot_be_listed_changes_nothing(error, operation):
    """Nothing is created or dropped, the location is not stamped, and that is told once, without an exit code."""
    records, files = known("bar")
    ns = Namespace(location(), *records, buckets={"b": files})
    ns.fault = fail(error, operation=operation)
    report = ns.run("sync")
    assert told(report) == [("sync", "default", "KEEP", "Unreadable")]
    assert str(error) in report.decisions[0].message
    assert report.standing is Standing.SETTLED
    assert ns.names() == {"foo", "bar"}
    assert ns.cluster.writes == Counter()


def test_a_metadata_file_that_cannot_be_fetched_leaves_the_location_unsynced():
    """The other directory comes; the one that was not read comes when it can be."""
    ns = Namespace(location(), buckets={"b": bucket(record("foo"), record("bar"))})
    ns.fault = fail(DeniedError("403"), on="backups/foo/velero-backup.json")
    report = ns.run("sync")
    assert ns.names() == {"bar"}
    assert ("sync", "foo", "KEEP", "Unreadable") in told(report)
    assert ns.synced() is None
    ns.fault = fail(DeniedError("403"), on="nothing")
    ns.run("sync")
    assert ns.names() == {"foo", "bar"}


def test_a_hold_file_that_cannot_be_fetched_keeps_its_backup_out():
    """It could be held, so no record without that hold may come back."""
    ns = Namespace(location(), buckets={"b": {**bucket(record("foo")), HOLD_KEY: b'{"reprieve.dev/hold": "law"}'}})
    ns.fault = fail(UnavailableError("timeout"), on="reprieve-hold")
    ns.run("sync")
    assert ns.names() == set()


def test_an_unavailable_location_is_told_and_not_asked():
    """Its bucket is not listed, and ``lastSyncedTime`` is not moved."""
    records, files = known("bar")
    ns = Namespace(location(available=False), *records, buckets={"b": files})
    assert told(ns.run("sync")) == [("sync", "default", "KEEP", "LocationUnavailable")]
    assert ns.reads == Counter()
    assert ns.cluster.writes == Counter()


# When


@pytest.mark.parametrize(
    ("own", "interval", "due"),
    [
        pytest.param(None, "1m", [60], id="the-configurations"),
        pytest.param("5m", "1m", [300], id="its-own"),
        pytest.param("-1m", "1m", [60], id="negative-is-the-configurations"),
        pytest.param("0s", "1m", [], id="its-own-zero-is-off"),
    ],
)
def test_the_period_of_a_location(own, interval, due):
    """The next look comes a period after this one; zero switches off; between two looks the bucket is not asked."""
    spec = {} if own is None else {"backupSyncPeriod": own}
    minute = timedelta(minutes=1) if interval == "1m" else timedelta(0)
    ns = Namespace(location(**spec), buckets={"b": bucket(record("foo"))}, sync=SyncSettings(minute))
    (reconciler,) = ns.build("sync").reconcilers
    first = reconciler.reconcile("default", now=NOW)
    assert [(again - NOW).total_seconds() for again in [first.again] if again] == due
    asked = ns.reads["list"]
    assert reconciler.reconcile("default", now=NOW + timedelta(seconds=30)).changed is False
    assert ns.reads["list"] == asked


def test_a_failed_look_is_not_repeated_by_every_event():
    """D-17, hammering: a location that cannot be read is asked again after its period, or once it is changed."""
    ns = Namespace(location(), buckets={"other": bucket(record("foo"))})
    (reconciler,) = ns.build("sync").reconcilers
    for _ in range(3):
        reconciler.reconcile("default", now=NOW)
    assert ns.reads["list"] == 1
    ns.cluster.patch(ns.get("default", "BackupStorageLocation").ref, {"spec": {"objectStorage": {"bucket": "other"}}})
    reconciler.reconcile("default", now=NOW)
    assert ns.names() == {"foo"}


def test_a_location_that_was_moved_during_the_pass_is_not_stamped():
    """What was synced is not what it points at by now."""
    ns = Namespace(location(), buckets={"b": bucket(record("foo")), "other": {}})

    def move(verb, kind, _name):
        if (verb, kind) == ("create", "Backup"):
            ref = ns.get("default", "BackupStorageLocation").ref
            ns.cluster.cluster.patch(ref, {"spec": {"objectStorage": {"bucket": "other"}}})

    ns.cluster.before = move
    (reconciler,) = ns.build("sync").reconcilers
    reconciler.reconcile("default", now=NOW)
    assert ns.synced() is None


def test_a_location_whose_status_changed_during_the_pass_is_stamped_all_the_same():
    """Velero validates locations all the time: that is a conflict, and no reason to begin anew."""
    ns = Namespace(location(), buckets={"b": bucket(record("foo"))})

    def validate(verb, kind, _name):
        if (verb, kind) == ("create", "Backup"):
            ref = ns.get("default", "BackupStorageLocation").ref
            ns.cluster.cluster.patch(ref, {"status": {"lastValidationTime": format_instant(NOW)}})

    ns.cluster.before = validate
    (reconciler,) = ns.build("sync").reconcilers
    reconciler.reconcile("default", now=NOW)
    assert ns.synced() == format_instant(NOW)


def test_a_time_that_cannot_be_written_hides_nothing_and_is_not_tried_without_a_pause():
    """Without the right to patch the location, a pass failed, told nothing of what it did, and began anew at once."""
    ns = Namespace(location(), buckets={"b": bucket(record("foo"))})

    def forbid(verb, kind, _name):
        if (verb, kind) == ("patch", "BackupStorageLocation"):
            raise DeniedError("no right to patch it")

    ns.cluster.before = forbid
    (reconciler,) = ns.build("sync").reconcilers
    first = reconciler.reconcile("default", now=NOW)
    assert {d.ref.name: (d.reason, d.standing) for d in first.decisions} == {
        "foo": (Reason.IN_BUCKET, Standing.SETTLED),
        "default": (Reason.FAILED, Standing.FAILED),
    }
    assert first.decisions[-1].message == "status.lastSyncedTime could not be written: no right to patch it"
    assert reconciler.reconcile("default", now=NOW + timedelta(seconds=1)).again == first.again


def test_a_location_that_changes_wakes_its_key_and_one_that_goes_does_not():
    """The watch names the location."""
    ns = Namespace(location())
    (reconciler,) = ns.build("sync").reconcilers
    (watch,) = reconciler.watches()
    found = ns.get("default", "BackupStorageLocation")
    assert watch.kind == ObjectKind("velero.io/v1", "BackupStorageLocation")
    assert (watch.keys_of(found, False), watch.keys_of(found, True)) == (["default"], [])


# Holds


def test_a_hold_is_mirrored_beside_the_files_and_comes_back_with_the_record():
    """The namespace is deleted and made anew: the record that comes back from the bucket is held again."""
    held = record("foo", annotations={"reprieve.dev/hold": "case 4711"})
    ns = Namespace(location(), held, buckets={"b": bucket(record("foo"))})
    ns.run("sync")
    file = ns.stores.files("b")[HOLD_KEY]
    assert json.loads(file) == {
        "reprieve.dev/hold": "case 4711",
        "reprieve.dev/mirrored-from": ns.get("foo").meta.uid,
    }
    assert ns.get("foo").meta.annotations["reprieve.dev/hold-mirrored"] == hashlib.sha256(file).hexdigest()

    again = Namespace(location(), buckets={"b": ns.stores.files("b")})
    again.run("sync")
    assert again.get("foo").meta.annotations["reprieve.dev/hold"] == "case 4711"
    again.run("sync", at=LATER)
    assert again.cluster.writes == Counter({"patch BackupStorageLocation": 1})


def test_a_hold_that_is_changed_and_lifted_changes_and_removes_the_file():
    """Only the record that it was written for may do so."""
    held = record("foo", annotations={"reprieve.dev/hold": "case 4711"})
    ns = Namespace(location(), held, buckets={"b": bucket(record("foo"))})
    ns.run("sync")
    ns.annotate("foo", hold="case 4712")
    ns.run("sync", at=LATER)
    assert json.loads(ns.stores.files("b")[HOLD_KEY])["reprieve.dev/hold"] == "case 4712"
    ns.annotate("foo", hold=None)
    ns.run("sync", at=LATER + timedelta(minutes=1))
    assert HOLD_KEY not in ns.stores.files("b")
    assert "reprieve.dev/hold-mirrored" not in ns.get("foo").meta.annotations


def test_a_hold_file_that_cannot_be_written_is_tried_again():
    """The mark comes after the file, so a bucket that refuses leaves no mark."""
    held = record("foo", annotations={"reprieve.dev/hold": "case 4711"})
    ns = Namespace(location(), held, buckets={"b": bucket(record("foo"))})
    ns.fault = fail(DeniedError("403"), operation="write")
    report = ns.run("sync")
    assert report.standing is Standing.FAILED
    assert report.decisions[0].message == f"its hold is mirrored to {HOLD_KEY}; that failed: 403"
    assert "reprieve.dev/hold-mirrored" not in ns.get("foo").meta.annotations
    assert ns.synced() is None


def test_no_hold_is_written_into_a_read_only_location():
    """A read-only location is synced, and never written to."""
    held = record("foo", annotations={"reprieve.dev/hold": "case 4711"})
    ns = Namespace(location(read_only=True), held, buckets={"b": bucket(record("foo"))})
    ns.run("sync")
    assert HOLD_KEY not in ns.stores.files("b")
    assert ns.reads["write"] == 0
    assert ns.synced() == format_instant(NOW)


# A stop


def test_a_stop_leaves_the_rest_for_the_next_start():
    """What was not read is not there for this pass; nothing is dropped, nothing is stamped."""
    records, files = known("bar")
    ns = Namespace(location(), *records, buckets={"b": {**files, **bucket(record("new"))}})
    (reconciler,) = ns.build("sync").reconcilers
    ns.stop.set()
    reconciler.reconcile("default", now=NOW)
    assert ns.names() == {"foo", "bar"}
    assert ns.synced() is None


def test_a_list_of_volumes_that_is_garbage_keeps_the_record_incomplete():
    """The record comes, says that something is missing, and does so at each pass without a write."""
    files = {**bucket(record("foo")), "backups/foo/foo-podvolumebackups.json.gz": packed([])[:9]}
    ns = Namespace(location(), buckets={"b": files})
    ns.run("sync")
    assert ns.get("foo").meta.annotations["reprieve.dev/sync-incomplete"] == "true"
    report = ns.run("sync", at=LATER)
    assert ("sync", "foo", "KEEP", "ListCorrupt") in told(report)
    assert ns.cluster.writes == Counter({"patch BackupStorageLocation": 1})


def test_a_location_that_is_gone_has_no_pass():
    """Its key ends without a word."""
    ns = Namespace()
    (reconciler,) = ns.build("sync").reconcilers
    assert reconciler.reconcile("default", now=NOW).decisions == ()
