"""The retention controller over a cluster and buckets in memory: requests that are filed, and those that are not."""

import json
import threading
from collections import Counter
from datetime import timedelta

import pytest

from reprieve.core.errors import AlreadyExistsError, DeniedError, UnavailableError
from reprieve.core.outcomes import Denied
from reprieve.core.ports import SnapshotInfo
from reprieve.core.reasons import Reason
from reprieve.core.values import format_instant
from reprieve.entrypoints.configuration import DeletionSettings, RetentionSettings
from reprieve.entrypoints.controller.decisions import Standing
from reprieve.entrypoints.controller.runtime import Runtime
from tests.unit.overtime import DAY, HOUR, NOW, Namespace, files_of, location, made, record, told

EXPIRED = NOW - HOUR
HERE = (location(),)
AWS = made("VolumeSnapshotLocation", "aws", spec={"provider": "aws"})


def namespace(*records, locations=HERE, snapshots=(), **settings):
    """Records whose directories are all there."""
    files = {key: data for each in records for key, data in files_of(each).items()}
    return Namespace(*locations, AWS, *records, buckets={"b": files}, snapshots=snapshots, **settings)


def requests(ns):
    """The backups that are asked for."""
    from reprieve.core.objects import ObjectKind

    found = ns.cluster.cluster.list(ObjectKind("velero.io/v1", "DeleteBackupRequest")).items
    return sorted(each.section("spec")["backupName"] for each in found)


def test_an_expired_backup_gets_one_request_bound_to_its_name_and_uid():
    """D-15, thousands of requests: pass after pass there is one, as long as it has not ended."""
    ns = namespace(record("old", expires=EXPIRED), record("young", expires=NOW + HOUR), record("ever"))
    report = ns.run("retention")
    assert told(report)[-1] == ("retention", "old", "KEEP", "RequestPending")
    assert requests(ns) == ["old"]
    uid = ns.get("old").meta.uid
    (name,) = ns.names("DeleteBackupRequest")
    labels = ns.get(name, "DeleteBackupRequest").meta.labels
    assert dict(labels) == {"velero.io/backup-name": "old", "velero.io/backup-uid": uid}
    for _ in range(3):
        ns.run("retention")
        assert ns.cluster.writes == Counter()


def test_expiry_exactly_now_is_due():
    """One second before it is not."""
    ns = namespace(record("old", expires=NOW))
    ns.run("retention", at=NOW - timedelta(seconds=1))
    assert requests(ns) == []
    ns.run("retention", at=NOW)
    assert requests(ns) == ["old"]


def test_the_next_look_is_at_the_moment_of_the_next_expiry():
    """Not at the next scan; and what is refused or has to wait waits for the scan."""
    ns = namespace(record("a", expires=NOW + 3 * HOUR), record("b", expires=NOW + timedelta(seconds=7)))
    (reconciler,) = ns.build("retention").reconcilers
    assert reconciler.reconcile("velero", now=NOW).again == NOW + timedelta(seconds=7)


def test_what_would_have_to_wait_is_looked_at_again_by_the_scan_alone():
    """D-16, hammering: a backup whose restore runs is not asked for once a minute."""
    restore = made("Restore", "r", spec={"backupName": "old"}, status={"phase": "InProgress"})
    ns = Namespace(location(), restore, record("old", expires=EXPIRED), buckets={"b": files_of(record("old"))})
    (reconciler,) = ns.build("retention").reconcilers
    result = reconciler.reconcile("velero", now=NOW)
    assert [d.reason for d in result.decisions] == [Reason.RESTORE_RUNNING]
    assert result.again is None
    assert requests(ns) == []


def test_the_resync_of_the_controller_is_its_interval():
    """A scan comes as often as the configuration says, not as often as the other controllers resync."""
    ns = namespace(retention=RetentionSettings(interval=2 * HOUR))
    (lane,) = ns.build("retention").lanes
    assert lane.resync == 2 * HOUR
    assert lane.reconciler.keys() == ["velero"]


def test_the_runtime_resyncs_a_lane_as_often_as_it_asks_for():
    """A lane without a wish of its own has the runtime's."""

    def between_two_resyncs(lane):
        """The seconds that are waited between two looks at every key; no single wait may be longer than an hour."""
        waits, looks, stop = [], [], threading.Event()
        stop.wait = waits.append
        runtime = Runtime([lane], source=lambda *_: None, clock=lambda: NOW, stop=stop, resync=HOUR)
        runtime._resync_once = lambda _lane: looks.append(1) or (stop.set() if len(looks) == 2 else None)
        runtime._keep_resyncing(lane)
        assert max(waits) <= 3600
        return sum(waits[: len(waits) // 2])

    lanes = namespace(retention=RetentionSettings(interval=2 * HOUR)).build("retention", "deletion").lanes
    assert [between_two_resyncs(lane) for lane in lanes] == [7200.0, 3600.0]


def test_a_request_is_worked_on_in_the_same_run():
    """Expired, asked for, deleted: record, files and request are gone, and sync does not bring it back."""
    ns = namespace(record("old", expires=EXPIRED), record("young", expires=NOW + HOUR))
    report = ns.run()
    assert [row for row in told(report) if row[0] == "retention"] == [("retention", "old", "DELETE", "Expired")]
    assert ns.names() == {"young"}
    assert requests(ns) == []
    assert {key.split("/")[1] for key in ns.stores.files("b")} == {"young"}
    assert ns.run(at=NOW + timedelta(minutes=1)).standing is Standing.SETTLED
    assert ns.names() == {"young"}


def test_a_plan_files_nothing():
    """It shows the request, and that something is to be done."""
    ns = namespace(record("old", expires=EXPIRED))
    report = ns.plan("retention")
    assert told(report) == [("retention", "old", "DELETE", "Expired")]
    assert report.decisions[0].changes
    assert ns.cluster.writes == Counter()


@pytest.mark.parametrize(
    ("documents", "locations", "reason"),
    [
        pytest.param(
            [record("old", expires=EXPIRED, annotations={"reprieve.dev/hold": "law"})], [location()], "Held", id="held"
        ),
        pytest.param([record("old", expires=EXPIRED, phase="InProgress")], [location()], "BackupInProgress", id="runs"),
        pytest.param([record("old", expires=EXPIRED, schedule="nightly")], [location()], "LastGood", id="last-good"),
        pytest.param(
            [record("old", expires=EXPIRED, annotations={"reprieve.dev/synced-at": format_instant(NOW)})],
            [location()],
            "GraceAfterSync",
            id="just-synced",
        ),
        pytest.param([record("old", expires=EXPIRED)], [], "LocationNotFound", id="no-location"),
        pytest.param(
            [record("old", expires=EXPIRED, volumeSnapshotsCompleted=1)], [location()], "ListMissing", id="refused"
        ),
    ],
)
def test_what_is_kept_is_told_and_counts_for_no_exit_code(documents, locations, reason):
    """Due, and kept, with a reason."""
    ns = namespace(*documents, locations=locations)
    report = ns.run("retention")
    assert told(report) == [("retention", "old", "KEEP", reason)]
    assert report.standing is Standing.SETTLED
    assert requests(ns) == []


def test_ten_thousand_backups_that_are_not_due_are_not_told():
    """There is nothing to say of them."""
    ns = namespace(*(record(f"b{number}", expires=NOW + DAY) for number in range(100)))
    assert ns.run("retention").decisions == ()
    assert ns.cluster.calls == Counter(
        {"list Backup": 1, "list DeleteBackupRequest": 1, "list BackupStorageLocation": 1}
    )


def test_the_label_is_written_when_it_changes_and_at_no_other_time():
    """Velero's ``gc-failure``: on with the trouble, off with its end, and nothing in between."""
    ns = namespace(record("old", expires=EXPIRED), locations=[location(available=False)])
    ns.run("retention")
    assert ns.get("old").meta.labels["velero.io/gc-failure"] == "BSLUnavailable"
    ns.run("retention")
    assert ns.cluster.writes == Counter()
    ns.cluster.patch(ns.get("default", "BackupStorageLocation").ref, {"status": {"phase": "Available"}})
    ns.run("retention")
    assert "velero.io/gc-failure" not in ns.get("old").meta.labels
    assert requests(ns) == ["old"]


def test_locations_that_cannot_be_listed_file_nothing():
    """Unknown never deletes."""
    ns = namespace(record("old", expires=EXPIRED))

    def refuse(verb, kind, _name):
        if (verb, kind) == ("list", "BackupStorageLocation"):
            raise DeniedError("forbidden")

    ns.cluster.before = refuse
    report = ns.run("retention")
    assert told(report) == [("retention", "old", "KEEP", "Unreadable")]
    assert requests(ns) == []


def test_a_candidate_that_cannot_be_examined_keeps_only_itself():
    """The others get their request; it gets its own at the next scan."""
    ns = namespace(record("odd", expires=EXPIRED), record("old", expires=EXPIRED))

    def refuse(verb, kind, name):
        if (verb, kind, name) == ("get", "Backup", "odd"):
            raise UnavailableError("timeout")

    ns.cluster.before = refuse
    report = ns.run("retention")
    assert ("retention", "odd", "KEEP", "NotExamined") in told(report)
    assert requests(ns) == ["old"]


def test_a_failed_deletion_makes_a_pause_and_the_pause_grows():
    """D-16: a deletion that cannot work is asked for after 1 h, then after 2 h, not at every scan."""
    snapshot = SnapshotInfo("aws", "snap-1", {"velero.io/backup": "old"})
    old = record("old", expires=EXPIRED, volumeSnapshotsCompleted=1)
    ns = namespace(old, snapshots=[snapshot], deletion=DeletionSettings(request_max_age=timedelta(minutes=1)))
    ns.stores.buckets["b"] |= files_of(old, snapshots=["snap-1"])
    ns.snapshots.outcomes["snap-1"] = [Denied("no rights")] * 2

    report = ns.run("retention", "deletion")
    assert ("retention", "old", "KEEP", "Paused") in told(report)
    failures = ns.get("old").meta.annotations["reprieve.dev/retention-failures"]
    assert json.loads(failures) == {"count": 1, "last": format_instant(NOW)}
    ns.run("retention", "deletion", at=NOW + timedelta(minutes=59))
    assert requests(ns) == [], "the request that failed has expired, and there is no other"

    ns.run("retention", "deletion", at=NOW + HOUR)
    assert json.loads(ns.get("old").meta.annotations["reprieve.dev/retention-failures"])["count"] == 2
    ns.run("retention", "deletion", at=NOW + 2 * HOUR)
    assert requests(ns) == []
    ns.run("retention", "deletion", at=NOW + 3 * HOUR)
    assert ns.names() == set()


def test_a_pass_that_died_between_label_and_request_is_mended_by_the_next():
    """The patch is there, the request is not: the next pass files it and patches nothing."""
    ns = namespace(record("old", expires=EXPIRED))
    ns.cluster.patch(ns.get("old").ref, {"metadata": {"labels": {"velero.io/gc-failure": "BSLNotFound"}}})

    def die(verb, kind, _name):
        if (verb, kind) == ("create", "DeleteBackupRequest"):
            raise UnavailableError("killed")

    ns.cluster.before = die
    assert ns.run("retention").standing is Standing.FAILED
    ns.cluster.before = lambda *_: None
    ns.run("retention")
    assert ns.cluster.writes == Counter({"create DeleteBackupRequest": 1})
    assert requests(ns) == ["old"]


def test_a_backup_that_changed_in_between_gets_no_request_in_that_pass():
    """The patch conflicts, so the request that would follow it is not filed; the hold that came in is seen."""
    ns = namespace(record("old", expires=EXPIRED))
    ns.cluster.patch(ns.get("old").ref, {"metadata": {"labels": {"velero.io/gc-failure": "BSLNotFound"}}})
    ns.cluster.before = lambda verb, kind, _name: (
        ns.annotate("old", hold="wait")
        if (verb, kind) == ("patch", "Backup") and "reprieve.dev/hold" not in ns.get("old").meta.annotations
        else None
    )
    report = ns.run("retention")
    assert told(report) == [("retention", "old", "KEEP", "Held")]
    assert requests(ns) == []


def test_a_generated_name_that_is_taken_is_generated_anew():
    """Five digits are not many."""
    ns = namespace(record("old", expires=EXPIRED))
    taken = iter([AlreadyExistsError("taken"), AlreadyExistsError("taken")])

    def collide(verb, kind, _name):
        if (verb, kind) == ("create", "DeleteBackupRequest") and (fault := next(taken, None)):
            raise fault

    ns.cluster.before = collide
    ns.run("retention")
    assert requests(ns) == ["old"]


def test_at_most_max_requests_are_filed_in_a_pass_the_oldest_first():
    """And no more than those are looked at in their buckets."""
    ages = {"a": 3, "b": 1, "c": 4, "d": 2}
    records = [record(name, expires=NOW - age * HOUR) for name, age in ages.items()]
    ns = namespace(*records, retention=RetentionSettings(max_requests=2))
    (reconciler,) = ns.build("retention").reconcilers
    result = reconciler.reconcile("velero", now=NOW)
    assert requests(ns) == ["a", "c"]
    assert {d.ref.name for d in result.decisions if d.reason is Reason.MAX_REQUESTS} == {"b", "d"}
    assert ns.cluster.calls["get Backup"] == 2


def test_a_run_whose_clock_stands_still_is_one_pass():
    """A year of backups expired while nobody looked: a single run asked for all of them, batch after batch.

    The limit is there so that a wrong clock or a wrong expiry shows before everything is gone.
    """
    records = [record(name, expires=NOW - age * HOUR) for name, age in {"a": 3, "b": 1, "c": 2}.items()]
    ns = namespace(*records, retention=RetentionSettings(max_requests=1))
    (reconciler,) = ns.build("retention").reconcilers

    def look(now):
        return {d.ref.name: d.message for d in reconciler.reconcile("velero", now=now).decisions}

    look(NOW)
    assert look(NOW)["b"] == "its turn comes later: 1 request in this pass (maxRequests 1)"
    assert requests(ns) == ["a"]
    look(NOW + HOUR)
    assert requests(ns) == ["a", "c"]


def test_a_plan_does_not_count_for_the_next_pass():
    ns = namespace(record("old", expires=EXPIRED), retention=RetentionSettings(max_requests=1))
    (reconciler,) = ns.build("retention").reconcilers
    reconciler.reconcile("velero", now=NOW, apply=False)
    reconciler.reconcile("velero", now=NOW)
    assert requests(ns) == ["old"]


def test_a_stop_files_nothing_more():
    """What was not examined is kept."""
    ns = namespace(record("old", expires=EXPIRED))
    (reconciler,) = ns.build("retention").reconcilers
    ns.stop.set()
    reconciler.reconcile("velero", now=NOW)
    assert requests(ns) == []


def test_only_an_expiration_that_changes_wakes_the_controller():
    """A running backup tells of its progress every few seconds; a pass for each would be hammering."""
    ns = namespace(record("old", expires=NOW + HOUR))
    (reconciler,) = ns.build("retention").reconcilers
    (watch,) = reconciler.watches()
    reconciler.reconcile("velero", now=NOW)
    assert list(watch.keys_of(ns.get("old"), False)) == []
    found = ns.cluster.patch(ns.get("old").ref, {"status": {"expiration": format_instant(NOW + DAY)}})
    assert list(watch.keys_of(found, False)) == ["velero"]
    assert list(watch.keys_of(found, False)) == []
    assert list(watch.keys_of(found, True)) == []


# Migration

OLD = "gc.ark.heptio.com"


def carrier(name, *others):
    """A Backup with the finalizer of old Ark releases."""
    found = record(name)
    found["metadata"]["finalizers"] = [OLD, *others]
    return found


def test_the_old_finalizer_goes_and_no_other():
    """B8: what somebody else put there stays; a second run makes one list and no write."""
    ns = Namespace(carrier("foo", "example.com/mine"), carrier("bar"), record("clean"))
    report = ns.run("migration")
    assert [row[:2] for row in told(report)] == [("migration", "bar"), ("migration", "foo")]
    assert [d.message.rpartition("; ")[2] for d in report.decisions] == [
        "others, which stay: none",
        "others, which stay: example.com/mine",
    ]
    assert ns.get("foo").meta.finalizers == ("example.com/mine",)
    assert ns.get("bar").meta.finalizers == ()
    ns.run("migration")
    assert ns.cluster.calls == Counter({"list Backup": 1})


def test_a_backup_that_hung_in_termination_goes_at_last():
    """Its files stay, and sync brings the record back."""
    stuck = carrier("foo")
    ns = Namespace(location(), stuck, buckets={"b": files_of(record("foo"))})
    ns.cluster.cluster.delete(ns.get("foo").ref)
    old = ns.get("foo").meta.uid
    ns.run("migration", "sync")
    assert ns.get("foo").meta.uid != old
    assert ns.get("foo").meta.finalizers == ()


def test_a_plan_takes_no_finalizer_off():
    """It shows the patch."""
    ns = Namespace(carrier("foo"))
    report = ns.plan("migration")
    assert [type(step).__name__ for d in report.decisions for step in d.steps] == ["RemoveFinalizer"]
    assert ns.cluster.writes == Counter()


def test_a_conflict_is_read_again_and_another_backups_trouble_does_not_stop_it():
    """A finalizer that was added in between is not lost; a Backup that may not be patched is an error of its own."""
    ns = Namespace(carrier("foo"), carrier("no"))

    def meddle(verb, _kind, name):
        if verb == "patch" and name == "no":
            raise DeniedError("forbidden")
        if verb == "patch" and "example.com/new" not in ns.get("foo").meta.finalizers:
            ns.cluster.cluster.patch(ns.get("foo").ref, {"metadata": {"finalizers": [OLD, "example.com/new"]}})

    ns.cluster.before = meddle
    report = ns.run("migration")
    assert ns.get("foo").meta.finalizers == ("example.com/new",)
    assert [(failure.key, failure.message) for failure in report.failures] == [("no", "forbidden")]
    assert report.standing is Standing.FAILED


def test_a_backup_that_is_gone_or_clean_by_now_is_left():
    """The key was listed; the live read says that there is nothing to do."""
    ns = Namespace(record("clean"))
    (reconciler,) = ns.build("migration").reconcilers
    assert reconciler.reconcile("clean", now=NOW).decisions == ()
    assert reconciler.reconcile("gone", now=NOW).decisions == ()
    assert reconciler.watches() == []
