"""The deletion controller over a cluster, buckets and snapshots in memory: what a request comes to, what is left."""

import json
import threading
from collections import Counter
from datetime import timedelta

import pytest

from reprieve.adapters.local import MemoryEvents
from reprieve.core.errors import ConflictError, DeniedError, NotFoundError, UnavailableError
from reprieve.core.objects import resource_from_json
from reprieve.core.outcomes import AlreadyGone, Denied, Done, InUse, Locked, Retryable, Unknown
from reprieve.core.ports import EventKind, SnapshotInfo
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.requests import DeletionLimits
from reprieve.core.steps import DeleteRestore, DeleteSnapshot, EndRequest, StepResult
from reprieve.core.values import format_instant
from reprieve.entrypoints.configuration import DeletionSettings
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.decisions import Standing
from reprieve.entrypoints.world import World
from tests.unit.overtime import DAY, HOUR, MADE, NOW, Namespace, files_of, location, made, packed, record

REQUEST = "DeleteBackupRequest"
UID = "uid-of-nightly"
LIST = "backups/nightly/nightly-volumesnapshots.json.gz"
METADATA = "backups/nightly/velero-backup.json"
HOLD_FILE = "backups/nightly/reprieve-hold.json"
MINUTE = timedelta(minutes=1)
TAGS = {"velero.io/backup": "nightly"}
LATER = NOW + DAY
STATE = {
    "uid": UID,
    "request": "uid-of-ask",
    "location": "default",
    "bucket": "b",
    "prefix": "",
    "firstAttempt": format_instant(NOW - HOUR),
}


def ask(name, *, uid=UID, labels=None, at=NOW - HOUR, backup="nightly", state=None, phase="", annotations=None):
    """A request; with ``uid`` it has the labels that Velero's command writes."""
    bound = {"velero.io/backup-name": backup, "velero.io/backup-uid": uid} if uid else {}
    notes = {"reprieve.dev/state": json.dumps(state)} if state is not None else {}
    metadata = {
        "uid": f"uid-of-{name}",
        "creationTimestamp": format_instant(at),
        "labels": bound if labels is None else labels,
        "annotations": notes | (annotations or {}),
    }
    status = {"status": {"phase": phase}} if phase else {}
    return made(REQUEST, name, metadata=metadata, spec={"backupName": backup}, **status)


def restore(name, *, phase="Completed", finalizers=()):
    """A restore of the backup."""
    metadata = {"uid": f"uid-of-{name}", "finalizers": list(finalizers)}
    return made("Restore", name, metadata=metadata, spec={"backupName": "nightly"}, status={"phase": phase})


def a_record(*, uid=UID, snapshots=(), **options):
    """The backup, with as many completed snapshots as are named."""
    found = record("nightly", **options, **({"volumeSnapshotsCompleted": len(snapshots)} if snapshots else {}))
    return found | {"metadata": found["metadata"] | {"uid": uid}}


def deleting(*, uid=UID, snapshots=("snap-1", "snap-2"), phase="Deleting", **state):
    """The backup, with the note that it is being deleted, for the request ``ask``."""
    note = {"reprieve.dev/deletion": json.dumps({**STATE, **state})}
    return a_record(uid=uid, phase=phase, snapshots=snapshots, annotations=note)


class Scene(Namespace):
    """One backup with its files, snapshots and restores, and what is asked for."""

    def __init__(
        self, *objects, snapshots=("snap-1", "snap-2"), restores=("r1",), backup=None, places=None, **settings
    ):
        self.events = MemoryEvents()
        stored = a_record(snapshots=snapshots) if backup is None else backup
        where = [location()] if places is None else places
        aws = made("VolumeSnapshotLocation", "aws", spec={"provider": "aws", "config": {"region": "eu-west-1"}})
        found = [each if isinstance(each, dict) else restore(each) for each in restores]
        super().__init__(*where, aws, stored, *found, *objects, **settings)
        self.snapshots.snapshots += [SnapshotInfo("aws", each, TAGS) for each in snapshots]
        names = [each["metadata"]["name"] for each in found]
        files = files_of(stored, snapshots=snapshots) | {f"restores/{name}/logs.gz": b"logs" for name in names}
        self.stores.buckets["b"] |= files
        self.asked_for = []
        self.snapshots.before = self.asked_for.append

    @property
    def world(self):
        return World(self.configuration, self.cluster, self.stores, self.snapshots, self.events)

    def delete(self, *, at=NOW):
        """Run the deletion controller until nothing changes."""
        return self.run("deletion", at=at)

    def reconcile(self, *, at=NOW):
        """Take one look, as a worker does."""
        self.now = at
        self.cluster.calls.clear()
        built = self.build("deletion")
        (reconciler,) = built.reconcilers
        reconciler.keys()
        try:
            return reconciler.reconcile(("velero", "nightly"), now=at)
        finally:
            built.close()

    def phase(self):
        """The backup's phase; None when the record is gone."""
        found = self.get("nightly")
        return found and found.section("status")["phase"]

    def request(self, name="ask"):
        """A request's phase, errors and state."""
        found = self.get(name, REQUEST)
        state = json.loads(found.meta.annotations.get("reprieve.dev/state", "{}"))
        status = found.section("status")
        return status.get("phase", ""), status.get("errors", []), state

    def noted(self):
        """What the Backup says of its deletion; None when it says nothing, or is gone."""
        found = self.get("nightly")
        note = found and found.meta.annotations.get("reprieve.dev/deletion")
        return note and json.loads(note)

    def labels(self, name="ask"):
        return dict(self.get(name, REQUEST).meta.labels)

    def left(self):
        """The snapshots that are there."""
        return {each.id for each in self.snapshots.snapshots}

    def files(self):
        return set(self.stores.files("b"))

    def change(self, name, patch, kind="Backup"):
        """What somebody else does meanwhile."""
        self.cluster.cluster.patch(self.get(name, kind).ref, patch)

    def vanish(self, name, kind="Backup"):
        """Somebody deletes it by hand."""
        self.cluster.cluster.delete(self.get(name, kind).ref)


def reasons(report):
    """What was decided about each request."""
    return {decision.ref.name: decision.reason for decision in report.decisions}


def the(report, name="ask"):
    return next(decision for decision in report.decisions if decision.ref.name == name)


def outcomes(report, name="ask"):
    """What each kind of step came to."""
    return [(type(each.step).__name__, type(each.outcome).__name__) for each in the(report, name).steps]


def untouched(scene):
    """Whether nothing of the backup is missing."""
    return scene.left() == {"snap-1", "snap-2"} and {METADATA, LIST} <= scene.files() and scene.phase() == "Completed"


# The whole way


def test_a_request_takes_all_that_its_backup_points_at_and_nothing_else():
    scene = Scene(ask("ask"), record("weekly"))
    scene.stores.buckets["b"] |= files_of(record("weekly"))
    report = scene.delete()
    assert reasons(report) == {"ask": Reason.COMPLETED}
    assert report.standing is Standing.SETTLED
    assert (scene.names(), scene.names("Restore"), scene.names(REQUEST)) == ({"weekly"}, set(), set())
    assert scene.left() == set()
    assert {key.split("/")[1] for key in scene.files()} == {"weekly"}
    assert outcomes(report) == [
        ("DeleteSnapshot", "Done"),
        ("DeleteSnapshot", "Done"),
        ("DeleteRestore", "Done"),
        ("DeleteFiles", "Done"),
        ("DeleteFile", "Done"),
        ("DeleteObject", "Done"),
        ("EndRequest", "Done"),
    ]


def test_as_many_writing_calls_as_the_design_says():
    """R restores, then InProgress, Deleting, stage and Backup, one per request, and one per further request noted."""
    scene = Scene(ask("ask"), ask("again"), restores=("r1", "r2"))
    scene.delete()
    assert scene.cluster.writes == Counter(
        {
            "patch DeleteBackupRequest": 2,
            "patch Backup": 2,
            "delete Restore": 2,
            "delete Backup": 1,
            "delete DeleteBackupRequest": 2,
        }
    )


def test_what_is_settled_is_not_written_again():
    """Held, refused, failed: the second look at each makes no writing call."""
    scene = Scene(ask("ask"), backup=a_record(annotations={"reprieve.dev/hold": "law"}, snapshots=("a", "b")))
    assert reasons(scene.delete()) == {"ask": Reason.HELD}
    scene.delete()
    assert scene.cluster.writes == Counter()
    refused = Scene(ask("ask", uid="other"))
    assert reasons(refused.delete()) == {"ask": Reason.BACKUP_RECREATED}
    assert refused.delete(at=NOW + MINUTE).decisions == ()
    assert refused.cluster.writes == Counter()


def test_how_a_request_ends_is_an_event():
    """Normal for what went well, a warning for what did not; none for a wait that is looked at again and again."""
    scene = Scene(ask("ask"), ask("of-old", uid="other", at=NOW - 2 * HOUR))
    scene.delete()
    told = [(event.ref.name, event.kind, event.reason) for event in scene.events.events]
    assert told == [
        ("of-old", EventKind.WARNING, "BackupRecreated"),
        ("ask", EventKind.NORMAL, "Completed"),
    ]
    assert "7 steps" in scene.events.events[1].message

    failing = Scene(ask("ask"))
    failing.snapshots.outcomes["snap-1"] = [Denied("no rights")]
    failing.delete()
    assert [(e.kind, e.reason) for e in failing.events.events] == [(EventKind.WARNING, "Failed")]
    held = Scene(ask("ask"), backup=a_record(annotations={"reprieve.dev/hold": "law"}))
    held.delete()
    assert held.events.events == ()


# Who works, and who is bound to what


def test_of_several_the_one_in_progress_works_and_all_end_with_it():
    """Completed ends every request with that UID, an old answer among them; one for another UID stays."""
    scene = Scene(
        ask("oldest", at=NOW - 3 * HOUR),
        ask("works", phase="InProgress"),
        ask("unlabelled", uid=""),
        ask("answered", phase="Processed", state={"uid": UID, "finishedAt": format_instant(NOW - HOUR)}),
        ask("for-another", uid="other", phase="Processed"),
        backup=deleting(request="uid-of-works"),
    )
    report = scene.delete()
    assert the(report, "works").message.startswith("backup nightly and all that it points at are gone")
    assert the(report, "oldest").message == "ended together with works"
    assert scene.names(REQUEST) == {"for-another"}


def test_a_refusal_ends_only_the_request_itself():
    scene = Scene(ask("of-old", uid="other", at=NOW - 2 * HOUR), ask("ask"))
    first = scene.reconcile()
    assert [(d.ref.name, d.reason) for d in first.decisions] == [("of-old", Reason.BACKUP_RECREATED)]
    assert first.again == NOW
    assert scene.request("ask")[0] == ""
    assert reasons(scene.delete()) == {"ask": Reason.COMPLETED}
    assert scene.names(REQUEST) == {"of-old"}


def test_failed_ends_every_request_with_that_uid():
    scene = Scene(ask("ask"), ask("again", uid=""), ask("for-another", uid="other", at=NOW))
    scene.snapshots.outcomes["snap-1"] = [Denied("no rights")]
    scene.delete()
    error = "error deleting snapshot snap-1: no rights"
    for name in ("ask", "again"):
        phase, errors, state = scene.request(name)
        assert (phase, errors) == ("Processed", [error])
        assert (state["uid"], state["finishedAt"], state["reason"]) == (UID, format_instant(NOW), "Failed")
    assert scene.request("for-another")[2]["reason"] == "BackupRecreated"


@pytest.mark.parametrize(
    ("worker", "backup"),
    [
        pytest.param(
            ask("worker", at=NOW - 2 * HOUR, uid=""),
            a_record(annotations={"reprieve.dev/hold": "law"}, snapshots=("snap-1", "snap-2")),
            id="it-waits-too",
        ),
        pytest.param(
            ask("worker", phase="InProgress"),
            deleting(request="uid-of-worker", attempts=1, reason="Retrying", nextAttempt=format_instant(NOW + MINUTE)),
            id="it-pauses-after-a-failure",
        ),
    ],
)
def test_name_and_uid_are_written_at_first_sight(worker, backup):
    """So that a waiting request stays bound to the backup that was meant, whatever the request before it does."""
    scene = Scene(worker, ask("waits", uid=""), ask("half", labels={"velero.io/backup-uid": UID}), backup=backup)
    assert reasons(scene.delete())["waits"] is Reason.QUEUED
    both = {"velero.io/backup-name": "nightly", "velero.io/backup-uid": UID}
    assert [scene.labels(name) for name in ("worker", "waits", "half")] == [both] * 3
    scene.delete()
    assert scene.cluster.writes == Counter()


def test_a_request_that_is_older_than_the_backup_is_never_bound_to_it():
    """velero: a stale request could delete a new backup of the same name. Nor does it count as an attempt on it."""
    old = ask("old", uid="", at=MADE - DAY)
    scene = Scene(ask("worker", at=MADE - 2 * DAY), old, backup=a_record(annotations={"reprieve.dev/hold": "law"}))
    scene.delete()
    assert scene.labels("old") == {}
    scene.vanish("worker", REQUEST)
    assert reasons(scene.delete()) == {"old": Reason.BACKUP_RECREATED}
    assert scene.request("old")[2] == {"uid": "", "finishedAt": format_instant(NOW), "reason": "BackupRecreated"}
    assert scene.labels("old") == {}


def test_a_refusal_is_one_patch_with_uid_end_and_reason():
    scene = Scene(ask("ask", uid=""), places=[location(read_only=True)])
    report = scene.delete()
    assert scene.cluster.writes == Counter({"patch DeleteBackupRequest": 1})
    message = "cannot delete backup because backup storage location default is currently in read-only mode"
    state = {"uid": UID, "finishedAt": format_instant(NOW), "reason": "LocationReadOnly"}
    assert scene.request() == ("Processed", [message], state)
    assert scene.labels() == {"velero.io/backup-name": "nightly", "velero.io/backup-uid": UID}
    assert (the(report).verdict, report.standing) == (Verdict.KEEP, Standing.WAITING)
    assert untouched(scene)


def test_a_forged_stage_in_a_refused_request_opens_no_door_for_the_next():
    """The list is lost, so the deletion is refused. A hand's ``stage`` must not turn that into a leak at the next."""
    forged = {"uid": UID, "stage": "bucketFiles", "previousPhase": "Failed", "attempts": 3}
    scene = Scene(ask("first", state=forged, at=NOW - 2 * HOUR), ask("second"))
    del scene.stores.buckets["b"][LIST]
    report = scene.delete()
    assert reasons(report) == {"first": Reason.LIST_MISSING, "second": Reason.LIST_MISSING}
    assert scene.request("first")[2] == {"uid": UID, "finishedAt": format_instant(NOW), "reason": "ListMissing"}
    assert scene.left() == {"snap-1", "snap-2"}


# A plan


def test_a_plan_writes_nothing_and_shows_what_a_run_would_end():
    """The waiting request is not bound yet; the plan knows that the run would bind it first."""
    scene = Scene(ask("ask"), ask("waits", uid=""))
    report = scene.plan("deletion")
    assert scene.cluster.writes == Counter()
    assert scene.labels("waits") == {}
    ends = [step.ref.name for step in the(report).steps if isinstance(step, EndRequest)]
    assert ends == ["waits", "ask"]
    assert reasons(report) == {"ask": Reason.ADMITTED, "waits": Reason.QUEUED}


def elsewhere(scene):
    """Let the list say that the second snapshot's volume was in a zone of another region."""
    zones = {"snap-1": "eu-west-1a", "snap-2": "us-east-1a"}
    entries = [
        {"spec": {"location": "aws", "volumeAZ": zone}, "status": {"providerSnapshotID": each}}
        for each, zone in zones.items()
    ]
    scene.stores.buckets["b"][LIST] = packed(entries)


def test_a_plan_has_no_outcomes_not_even_those_that_are_known_already():
    scene = Scene(ask("ask"))
    elsewhere(scene)
    planned = the(scene.plan("deletion"))
    assert not any(isinstance(step, StepResult) for step in planned.steps)
    assert {step.id for step in planned.steps if isinstance(step, DeleteSnapshot)} == {"snap-1", "snap-2"}
    assert "us-east-1a" in planned.message


def test_a_snapshot_of_another_region_is_invalid_and_its_store_is_never_asked():
    """There it would pass for deleted. The rest of the stage has its turn, then the request ends."""
    scene = Scene(ask("ask"))
    elsewhere(scene)
    report = scene.delete()
    assert scene.asked_for == ["snap-1"]
    assert scene.left() == {"snap-2"}
    assert sorted(outcomes(report)) == [("DeleteSnapshot", "Done"), ("DeleteSnapshot", "Invalid")]
    assert scene.request()[0] == "Processed"
    assert {METADATA, LIST} <= scene.files()
    assert scene.phase() == "Deleting"


# What is written when


def stopping_at(verb, kind):
    """A cluster that stops answering right before a call."""

    def refuse(asked, of, _name):
        if (asked, of) == (verb, kind):
            raise UnavailableError("no answer")

    return refuse


def test_the_state_is_first_written_in_the_patch_that_says_in_progress():
    """Cut off right after that patch: phase and state are both there, and the backup is not touched yet."""
    scene = Scene(ask("ask", uid=""))
    scene.cluster.before = stopping_at("patch", "Backup")
    assert scene.delete().standing is Standing.FAILED
    assert scene.request() == (
        "InProgress",
        [],
        {
            "uid": UID,
            "request": "uid-of-ask",
            "location": "default",
            "bucket": "b",
            "prefix": "",
            "previousPhase": "Completed",
            "firstAttempt": format_instant(NOW),
        },
    )
    assert scene.labels() == {"velero.io/backup-name": "nightly", "velero.io/backup-uid": UID}
    assert untouched(scene)


def test_the_backup_says_deleting_before_anything_goes():
    scene = Scene(ask("ask"))
    seen = []
    scene.snapshots.before = lambda _id: seen.append(scene.phase())
    scene.delete()
    assert seen == ["Deleting", "Deleting"]


def test_the_bucket_stage_is_noted_before_the_first_file_goes():
    """From then on an absent list is the deletion's own doing; a crash there is resumed to the end."""
    scene = Scene(ask("ask"))
    noted = []

    def watch(operation, _bucket, key):
        if operation == "delete" and key.startswith("backups/"):
            noted.append((scene.noted().get("stage"), METADATA in scene.files()))

    scene.fault = watch
    scene.delete()
    assert set(noted[:-1]) == {("bucketFiles", True)}
    assert noted[-1] == ("bucketFiles", True), "the metadata file goes last, in a call of its own"


def test_a_deletion_that_died_among_the_files_ends_though_the_list_is_gone():
    scene = Scene(ask("ask"))
    scene.cluster.before = stopping_at("delete", "Backup")
    scene.delete()
    assert (scene.files(), scene.noted()["stage"]) == (set(), "bucketFiles")
    scene.cluster.before = lambda *_call: None
    assert reasons(scene.delete(at=LATER)) == {"ask": Reason.COMPLETED}
    assert scene.names() == set()


# Retries


def test_errors_are_told_at_every_retry_and_the_attempts_are_counted():
    limits = DeletionLimits(attempts=3, deadline=DAY)
    scene = Scene(ask("ask"), deletion=DeletionSettings(limits=limits))
    scene.snapshots.outcomes["snap-1"] = [InUse("an image uses it")] * 3
    scene.snapshots.outcomes["snap-2"] = [InUse("an image uses it")] * 3
    error = ["error deleting snapshot snap-1: an image uses it", "error deleting snapshot snap-2: an image uses it"]
    report = scene.delete()
    phase, errors, state = scene.request()
    assert (phase, errors, state["attempts"], state["reason"]) == ("InProgress", error, 1, "Retrying")
    assert (the(report).verdict, the(report).reason, report.standing) == (
        Verdict.DELETE,
        Reason.RETRYING,
        Standing.WAITING,
    )
    assert outcomes(report) == [("DeleteSnapshot", "InUse")] * 2, "what the run came to is told at its end"
    assert scene.delete(at=NOW + timedelta(seconds=1)).decisions[0].reason is Reason.RETRYING
    assert scene.asked_for == ["snap-1", "snap-2"], "a pause is a pause"

    scene.delete(at=NOW + HOUR)
    assert scene.request()[2]["attempts"] == 2
    assert reasons(scene.delete(at=NOW + 2 * HOUR)) == {"ask": Reason.FAILED}
    phase, errors, _ = scene.request()
    assert (phase, errors[:2]) == ("Processed", error)
    assert errors[2].startswith("gave up after 3 of 3 attempts")
    assert untouched(scene), "nothing was destroyed: the phase goes back"


def test_one_step_that_fails_does_not_stop_the_others_of_its_stage():
    scene = Scene(ask("ask"), snapshots=("snap-1", "snap-2", "snap-3"))
    scene.snapshots.outcomes["snap-2"] = [Retryable(message="throttled")]

    def fault(snapshot):
        if snapshot == "snap-1":
            raise RuntimeError("a fault of ours")

    scene.snapshots.before = fault
    report = scene.delete()
    assert scene.left() == {"snap-1", "snap-2"}
    assert Counter(outcome for _, outcome in outcomes(report)) == {"Unknown": 1, "Retryable": 1, "Done": 1}
    assert scene.phase() == "Deleting"
    assert {METADATA, LIST} <= scene.files()
    assert scene.names("Restore") == {"r1"}


@pytest.mark.parametrize(
    ("second", "phase"),
    [pytest.param([Denied("no")], "Completed", id="nothing-gone"), pytest.param([], "Deleting", id="one-is-gone")],
)
def test_the_phase_goes_back_only_when_nothing_was_destroyed(second, phase):
    scene = Scene(ask("ask"))
    scene.snapshots.outcomes = {"snap-1": [Denied("no")], "snap-2": list(second)}
    report = scene.delete()
    assert (the(report).reason, report.standing) == (Reason.FAILED, Standing.FAILED)
    assert the(report).verdict is Verdict.DELETE, "it was admitted, and its steps were carried out"
    assert scene.phase() == phase


def test_a_lock_defers_and_counts_no_attempt():
    """Locked until a date: the request stays, keeps its attempts, and the lock is not asked again before its date."""
    scene = Scene(ask("ask"), deletion=DeletionSettings(limits=DeletionLimits(attempts=1, deadline=MINUTE)))
    until = NOW + 30 * DAY
    scene.snapshots.outcomes["snap-1"] = [Locked(until, "compliance")]
    report = scene.delete()
    assert (the(report).verdict, the(report).reason, report.standing) == (
        Verdict.KEEP,
        Reason.LOCKED,
        Standing.WAITING,
    )
    assert "lock" in the(report).message
    state = scene.request()[2]
    assert (state.get("attempts", 0), state["nextAttempt"]) == (0, format_instant(until))
    scene.delete(at=until - MINUTE)
    assert sorted(scene.asked_for) == ["snap-1", "snap-2"]
    assert reasons(scene.delete(at=until)) == {"ask": Reason.COMPLETED}


def test_the_time_of_a_hold_does_not_count_towards_the_deadline():
    """An attempt fails, then the lawyers hold the backup for ten days; the deletion has its time after that."""
    scene = Scene(ask("ask"), deletion=DeletionSettings(limits=DeletionLimits(attempts=5, deadline=HOUR)))
    scene.snapshots.outcomes["snap-1"] = [InUse("an image uses it")] * 2
    assert reasons(scene.delete()) == {"ask": Reason.RETRYING}
    scene.annotate("nightly", hold="case 4711")
    assert reasons(scene.delete(at=NOW + DAY)) == {"ask": Reason.HELD}
    assert scene.request()[2]["reason"] == "Held"
    scene.annotate("nightly", hold=None)
    assert reasons(scene.delete(at=NOW + 10 * DAY)) == {"ask": Reason.RETRYING}
    assert scene.request()[2]["attempts"] == 2
    assert reasons(scene.delete(at=NOW + 11 * DAY)) == {"ask": Reason.COMPLETED}


def test_a_missing_secret_is_never_taken_for_gone():
    """The credential that a snapshot location names is not there: nothing is known of the snapshots."""
    scene = Scene(ask("ask"))
    scene.change("aws", {"spec": {"credential": {"name": "cloud", "key": "aws"}}}, "VolumeSnapshotLocation")
    report = scene.delete()
    assert (the(report).reason, report.standing) == (Reason.SNAPSHOTS_UNPROVEN, Standing.WAITING)
    assert "Secret velero/cloud is not there" in the(report).message
    assert scene.asked_for == []
    assert untouched(scene)


def test_a_missing_secret_of_the_bucket_waits():
    scene = Scene(ask("ask"), places=[location(credential={"name": "cloud", "key": "aws"})])
    assert reasons(scene.delete()) == {"ask": Reason.LOCATION_UNAVAILABLE}
    assert untouched(scene)


def test_a_credential_is_read_once_a_stage():
    """A thousand snapshots are not a thousand reads of one Secret."""
    scene = Scene(ask("ask"), snapshots=tuple(f"snap-{number}" for number in range(30)))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cloud", "namespace": "velero"}}
    scene.cluster.cluster.create({**secret, "data": {"aws": "a2V5"}})
    scene.change("aws", {"spec": {"credential": {"name": "cloud", "key": "aws"}}}, "VolumeSnapshotLocation")
    scene.delete()
    assert scene.left() == set()
    assert scene.cluster.calls["get Secret"] == 2, "once to ask whose they are, once to delete them"


# Restores


def test_a_restore_that_veleros_finalizer_holds_is_waited_for():
    """Pending counts no attempt, however long; the files of the backup stay; the end comes when the finalizer goes."""
    finalizer = "restores.velero.io/external-resources-finalizer"
    limits = DeletionLimits(attempts=1, deadline=MINUTE)
    scene = Scene(
        ask("ask"), restores=(restore("r1", finalizers=[finalizer]), "r2"), deletion=DeletionSettings(limits=limits)
    )
    report = scene.delete()
    assert (the(report).reason, report.standing) == (Reason.PENDING, Standing.WAITING)
    assert finalizer in the(report).message
    assert dict(outcomes(report)) == {"DeleteSnapshot": "Done", "DeleteRestore": "Pending"} | dict(outcomes(report)[3:])
    assert scene.names("Restore") == {"r1"}
    assert {METADATA, LIST} <= scene.files()
    for hours in range(1, 30):
        assert reasons(scene.delete(at=NOW + hours * HOUR)) == {"ask": Reason.PENDING}
    assert scene.cluster.writes == Counter({"delete Restore": 1}), "a wait that goes on is not noted again"

    scene.change("r1", {"metadata": {"finalizers": None}}, "Restore")
    assert reasons(scene.delete(at=LATER)) == {"ask": Reason.COMPLETED}
    assert (scene.names(), scene.names("Restore"), scene.names(REQUEST)) == (set(), set(), set())


def test_a_restore_that_cannot_go_keeps_the_files_of_the_backup():
    scene = Scene(ask("ask"))

    def refuse(verb, kind, _name):
        if (verb, kind) == ("delete", "Restore"):
            raise DeniedError("forbidden")

    scene.cluster.before = refuse
    report = scene.delete()
    steps = [each for each in the(report).steps if isinstance(each.step, DeleteRestore)]
    assert [type(each.outcome).__name__ for each in steps] == ["Denied"]
    assert (scene.request()[0], scene.phase()) == ("Processed", "Deleting")
    assert {METADATA, LIST} <= scene.files()


def failing(operation, start, fault, *, after=0):
    """A bucket in which one operation on keys that start so fails, but for the first times."""
    left = [after]

    def fail(asked, _bucket, key):
        if asked == operation and key.startswith(start):
            left[0] -= 1
            if left[0] < 0:
                raise fault

    return fail


def test_a_restore_whose_files_cannot_go_stays():
    """The pointer outlives the thing it points at."""
    scene = Scene(ask("ask"))
    scene.fault = failing("delete", "restores/", UnavailableError("no answer"))
    assert reasons(scene.delete()) == {"ask": Reason.RETRYING}
    assert scene.names("Restore") == {"r1"}
    assert scene.request()[1][0].startswith("error deleting restore velero/r1: ")


def test_not_found_of_anything_but_the_thing_itself_is_never_gone():
    """Whatever says "not found" before the delete was asked for, nothing is known of the files."""
    scene = Scene(ask("ask"))
    scene.fault = failing("list", "backups/nightly", NotFoundError("no such account"))
    assert reasons(scene.delete()) == {"ask": Reason.LOCATION_UNAVAILABLE}
    scene.fault = failing("list", "backups/nightly", NotFoundError("no such account"), after=1)
    report = scene.delete()
    assert outcomes(report)[-1] == ("DeleteFiles", "Invalid")
    assert (scene.request()[0], scene.names()) == ("Processed", {"nightly"})
    assert {METADATA, LIST} <= scene.files()


# Between two stages


def hold_by_annotation(scene):
    scene.annotate("nightly", hold="case 4711")


def hold_by_file(scene):
    scene.stores.buckets["b"][HOLD_FILE] = json.dumps({"reprieve.dev/hold": "case 4711"}).encode()


def garbled_hold_file(scene):
    scene.stores.buckets["b"][HOLD_FILE] = b"{"


@pytest.mark.parametrize(
    ("stage", "set_hold"),
    [
        pytest.param("snapshots", hold_by_annotation, id="during-snapshots-on-the-record"),
        pytest.param("snapshots", hold_by_file, id="during-snapshots-beside-the-files"),
        pytest.param("snapshots", garbled_hold_file, id="during-snapshots-and-nobody-can-read-it"),
        pytest.param("restores", hold_by_annotation, id="during-restores-on-the-record"),
        pytest.param("restores", hold_by_file, id="during-restores-beside-the-files"),
        pytest.param("bucketFiles", hold_by_annotation, id="during-files-on-the-record"),
    ],
)
def test_the_hold_is_asked_again_before_each_stage(set_hold, stage):
    """A hold that is set while a stage runs stops the deletion before the next; once it is off, the deletion ends."""
    scene = Scene(ask("ask"))

    def on_snapshot(_id):
        if stage == "snapshots":
            set_hold(scene)

    def on_file(operation, _bucket, key):
        during = {"restores": "restores/", "bucketFiles": "backups/"}.get(stage)
        if during and operation == "delete" and key.startswith(during) and key != METADATA:
            scene.fault = lambda *_call: None
            set_hold(scene)

    scene.snapshots.before, scene.fault = on_snapshot, on_file
    report = scene.delete()
    assert reasons(report) == {"ask": Reason.HELD}
    assert (the(report).verdict, report.standing) == (Verdict.KEEP, Standing.WAITING)
    assert METADATA in scene.files()
    assert (LIST in scene.files()) == (stage != "bucketFiles")
    assert (scene.names("Restore") == {"r1"}) == (stage == "snapshots")
    assert (scene.phase(), scene.request()[0]) == ("Deleting", "InProgress")
    scene.delete()
    assert scene.cluster.writes == Counter()

    scene.annotate("nightly", hold=None)
    scene.stores.buckets["b"].pop(HOLD_FILE, None)
    scene.snapshots.before = lambda _id: None
    assert reasons(scene.delete(at=LATER)) == {"ask": Reason.COMPLETED}
    assert scene.files() == set()


def test_a_hold_file_that_is_written_among_the_files_that_go_is_left():
    """The stage finds it at its end, and the next look finds the hold: record, metadata and hold file stay."""
    scene = Scene(ask("ask"))

    def hold(operation, _bucket, key):
        if operation == "delete" and key.startswith("backups/"):
            scene.fault = lambda *_call: None
            hold_by_file(scene)

    scene.fault = hold
    assert reasons(scene.delete()) == {"ask": Reason.RETRYING}
    assert reasons(scene.delete(at=LATER)) == {"ask": Reason.HELD}
    assert scene.files() == {METADATA, HOLD_FILE}
    assert scene.phase() == "Deleting"


def test_a_bucket_that_cannot_be_read_between_two_stages_stops_the_deletion():
    """The hold may be mirrored there: what cannot be asked is not a no."""
    scene = Scene(ask("ask"))

    def lost(operation, _bucket, _key):
        if operation == "read":
            raise UnavailableError("no answer")

    def lose(_id):
        scene.fault = lost

    scene.snapshots.before = lose
    report = scene.delete()
    assert reasons(report) == {"ask": Reason.LOCATION_UNAVAILABLE}
    assert (scene.names("Restore"), scene.phase()) == ({"r1"}, "Deleting")
    scene.fault, scene.snapshots.before = lambda *_call: None, lambda _id: None
    assert reasons(scene.delete(at=LATER)) == {"ask": Reason.COMPLETED}


def test_a_hold_that_is_set_while_the_deletion_begins_is_a_conflict_and_then_a_hold():
    """Between the look at the record and the patch that says Deleting somebody sets a hold: nothing is destroyed."""
    scene = Scene(ask("ask"))

    def hold(verb, kind, _name):
        if (verb, kind) == ("patch", "Backup"):
            scene.cluster.before = lambda *_call: None
            scene.annotate("nightly", hold="case 4711")

    scene.cluster.before = hold
    assert reasons(scene.delete()) == {"ask": Reason.HELD}
    assert untouched(scene)


def test_a_hold_that_is_set_while_a_later_pass_gathers_is_seen_before_its_first_stage():
    """The backup says Deleting already, so no patch of it would notice: the first stage asks the record itself."""
    scene = Scene(ask("ask", phase="InProgress", state=STATE), backup=deleting())

    def hold(operation, _bucket, _key):
        if operation == "read":
            scene.fault = lambda *_call: None
            hold_by_annotation(scene)

    scene.fault = hold
    assert reasons(scene.delete()) == {"ask": Reason.HELD}
    assert scene.left() == {"snap-1", "snap-2"}


def test_a_request_that_somebody_edits_meanwhile_is_read_again():
    scene = Scene(ask("ask"))

    def edit(verb, kind, name):
        if (verb, kind) == ("patch", REQUEST):
            scene.cluster.before = lambda *_call: None
            scene.change(name, {"metadata": {"annotations": {"note": "mine"}}}, REQUEST)

    scene.cluster.before = edit
    report = scene.delete()
    assert (reasons(report), report.failures) == ({"ask": Reason.COMPLETED}, ())


def test_what_somebody_takes_back_meanwhile_counts():
    """The leave to delete a running backup is taken off between the look at the request and the patch that begins."""
    even = ask("ask", annotations={"reprieve.dev/even-in-progress": "true"})
    scene = Scene(even, backup=a_record(phase="InProgress", snapshots=("snap-1", "snap-2")))

    def take_back(verb, kind, name):
        if (verb, kind) == ("patch", REQUEST):
            scene.cluster.before = lambda *_call: None
            scene.annotate(name, REQUEST, even_in_progress=None)

    scene.cluster.before = take_back
    assert reasons(scene.delete()) == {"ask": Reason.BACKUP_IN_PROGRESS}
    assert (scene.left(), scene.phase()) == ({"snap-1", "snap-2"}, "InProgress")


def test_a_record_that_vanishes_while_its_deletion_runs():
    """Its files are still there, so the request ends and says so; nothing more is taken."""
    scene = Scene(ask("ask"))
    scene.snapshots.before = lambda _id: scene.get("nightly") and scene.vanish("nightly")
    assert reasons(scene.delete()) == {"ask": Reason.RECORD_VANISHED}
    assert scene.request()[1] == ["the record vanished during deletion; ask again when it is back"]
    assert {METADATA, LIST} <= scene.files()
    assert scene.names("Restore") == {"r1"}


def test_a_record_that_is_made_again_while_its_deletion_runs():
    """The new one has the same name and another UID: its files and its phase are none of the request's business."""
    scene = Scene(ask("ask"))

    def make_again(_id):
        scene.snapshots.before = lambda _id: None
        scene.vanish("nightly")
        scene.cluster.cluster.create(a_record(uid="given-by-the-server", phase="Deleting"))

    scene.snapshots.before = make_again
    assert reasons(scene.delete()) == {"ask": Reason.BACKUP_RECREATED}
    assert {METADATA, LIST} <= scene.files()
    assert (scene.names("Restore"), scene.phase()) == ({"r1"}, "Deleting")


def test_a_stop_lets_the_effect_at_hand_end_and_begins_no_other():
    """Then the deletion is resumed, and ends as if there had been no stop."""
    settings = DeletionSettings(snapshot_parallelism=1)
    scene = Scene(ask("ask"), snapshots=("snap-1", "snap-2", "snap-3"), deletion=settings)
    scene.snapshots.before = lambda _id: scene.stop.set()
    report = scene.delete()
    assert scene.left() == {"snap-2", "snap-3"}
    assert (scene.request()[0], report.standing) == ("InProgress", Standing.WAITING)
    assert {METADATA, LIST} <= scene.files()
    scene.stop.clear()
    scene.snapshots.before = lambda _id: None
    assert reasons(scene.delete(at=LATER)) == {"ask": Reason.COMPLETED}
    assert scene.left() == set()


def test_a_stop_between_two_stages_begins_no_stage():
    scene = Scene(ask("ask"), snapshots=("snap-1",), restores=("r1", "r2"))
    scene.snapshots.before = lambda _id: scene.stop.set()
    report = scene.delete()
    assert (scene.left(), scene.names("Restore")) == (set(), {"r1", "r2"})
    assert (the(report).reason, the(report).verdict) == (Reason.PENDING, Verdict.DELETE)


def test_after_a_stop_not_even_the_next_stage_is_noted():
    scene = Scene(ask("ask"))

    def stop(operation, _bucket, key):
        if operation == "delete" and key.startswith("restores/"):
            scene.stop.set()

    scene.fault = stop
    report = scene.delete()
    assert scene.names("Restore") == set(), "the effect at hand ends"
    assert "stage" not in scene.request()[2]
    assert the(report).message.startswith("stopped between two effects")


# Resumed


@pytest.mark.parametrize(
    ("state", "backup"),
    [
        pytest.param(STATE, deleting(), id="by-reprieve"),
        pytest.param(None, deleting(), id="by-reprieve-whose-report-was-lost"),
        pytest.param(STATE, a_record(phase="Deleting", snapshots=("snap-1", "snap-2")), id="by-an-older-reprieve"),
        pytest.param(None, a_record(phase="Deleting", snapshots=("snap-1", "snap-2")), id="by-velero"),
    ],
)
def test_a_request_found_in_progress_is_resumed_whoever_began_it(state, backup):
    """velero#10169: a request that was in progress when the server died is never picked up again."""
    scene = Scene(ask("ask", phase="InProgress", state=state), backup=backup)
    scene.snapshots.snapshots.pop()
    report = scene.delete()
    assert reasons(report) == {"ask": Reason.COMPLETED}
    assert Counter(outcomes(report))[("DeleteSnapshot", "AlreadyGone")] == 1
    assert (scene.names(), scene.left(), scene.files()) == (set(), set(), set())


def test_resumed_when_record_and_metadata_are_gone_it_is_completed():
    scene = Scene(ask("ask", phase="InProgress", state=STATE | {"stage": "bucketFiles"}), restores=())
    scene.vanish("nightly")
    scene.stores.buckets["b"].clear()
    assert reasons(scene.delete()) == {"ask": Reason.COMPLETED}
    assert scene.names(REQUEST) == set()


def test_resumed_when_only_the_record_is_gone_it_ends_and_says_so():
    scene = Scene(ask("ask", phase="InProgress", state=STATE))
    scene.vanish("nightly")
    assert reasons(scene.delete()) == {"ask": Reason.RECORD_VANISHED}
    assert scene.request()[0] == "Processed"
    assert {METADATA, LIST} <= scene.files()
    assert scene.left() == {"snap-1", "snap-2"}


def test_a_deletion_whose_location_was_pointed_elsewhere_does_not_follow():
    scene = Scene(ask("ask", phase="InProgress", state=STATE), backup=deleting(bucket="old"))
    assert reasons(scene.delete()) == {"ask": Reason.LOCATION_MOVED}
    assert (scene.left(), METADATA in scene.files(), scene.phase()) == ({"snap-1", "snap-2"}, True, "Deleting")


def test_a_backup_that_was_made_again_between_two_passes_gets_no_phase_of_the_old_one():
    """Somebody made it again from a copy, note and all: the note names the old UID."""
    paused = STATE | {"uid": "uid-of-the-old", "previousPhase": "Completed", "attempts": 1, "reason": "Retrying"}
    copy = a_record(phase="Deleting", annotations={"reprieve.dev/deletion": json.dumps(paused)})
    scene = Scene(ask("ask", uid="uid-of-the-old", phase="InProgress", state=paused), backup=copy)
    assert reasons(scene.delete()) == {"ask": Reason.BACKUP_RECREATED}
    assert scene.phase() == "Deleting"


def test_a_refusal_between_two_passes_gives_the_phase_back():
    paused = {"previousPhase": "PartiallyFailed", "attempts": 1, "reason": "Retrying"}
    scene = Scene(ask("ask", phase="InProgress"), backup=deleting(**paused), places=[location(read_only=True)])
    assert reasons(scene.delete()) == {"ask": Reason.LOCATION_READ_ONLY}
    assert (scene.phase(), scene.noted()) == ("PartiallyFailed", None)


# What is noted on the Backup


def test_a_deletion_whose_request_was_taken_away_goes_on_with_the_next():
    """The first attempt took one snapshot; then somebody deleted the request. The Backup says how far it had come."""
    scene = Scene(ask("ask"))
    scene.snapshots.outcomes["snap-1"] = [InUse("an image uses it")]
    scene.delete()
    scene.vanish("ask", REQUEST)
    assert scene.delete(at=NOW + HOUR).decisions == ()
    assert (scene.phase(), scene.noted()["attempts"]) == ("Deleting", 1)
    scene.cluster.cluster.create(ask("again", uid="", at=NOW + HOUR))
    assert reasons(scene.delete(at=NOW + HOUR)) == {"again": Reason.COMPLETED}
    assert (scene.names(), scene.left(), scene.files()) == (set(), set(), set())


def test_one_of_which_nothing_was_gone_gives_the_phase_back_whoever_ends_it():
    scene = Scene(ask("ask"))
    scene.snapshots.outcomes = {each: [InUse("an image uses it"), Denied("no")] for each in ("snap-1", "snap-2")}
    scene.delete()
    scene.vanish("ask", REQUEST)
    scene.cluster.cluster.create(ask("again", at=NOW + HOUR))
    assert reasons(scene.delete(at=NOW + HOUR)) == {"again": Reason.FAILED}
    assert (scene.phase(), scene.noted()) == ("Completed", None)


def test_what_a_failed_deletion_left_among_the_files_is_taken_by_the_next():
    """The lists are gone by then; that this is a deletion's own doing stands on the Backup, not on a request."""
    scene = Scene(ask("ask"))
    scene.fault = failing("delete", METADATA, DeniedError("no rights"))
    assert reasons(scene.delete()) == {"ask": Reason.FAILED}
    assert (scene.files(), scene.phase(), scene.noted()["stage"]) == ({METADATA}, "Deleting", "bucketFiles")
    scene.vanish("ask", REQUEST)
    scene.fault = lambda *_call: None
    scene.cluster.cluster.create(ask("again"))
    assert reasons(scene.delete()) == {"again": Reason.COMPLETED}


def test_an_attempt_counts_though_somebody_wrote_to_the_backup_meanwhile():
    """A label that others keep changing made each note of an attempt a conflict, and the next attempt come at once."""
    scene = Scene(ask("ask"))
    scene.snapshots.outcomes = {each: [InUse("an image uses it")] * 9 for each in ("snap-1", "snap-2")}
    scene.snapshots.before = lambda each: scene.asked_for.append(each) or scene.annotate("nightly", touched=each)
    report = scene.delete()
    assert (reasons(report), report.failures) == ({"ask": Reason.RETRYING}, ())
    assert (scene.noted()["attempts"], len(scene.asked_for)) == (1, 2)


def test_errors_are_told_though_somebody_wrote_to_the_request_meanwhile():
    scene = Scene(ask("ask"))
    scene.snapshots.outcomes = {each: [Denied("no")] for each in ("snap-1", "snap-2")}
    scene.snapshots.before = lambda each: scene.annotate("ask", REQUEST, note=each)
    assert reasons(scene.delete()) == {"ask": Reason.FAILED}
    assert len(scene.request()[1]) == 2


@pytest.mark.parametrize("phase", ["Completed", "InProgress"])
def test_a_phase_that_somebody_set_meanwhile_stops_the_deletion(phase):
    """At work is who the Backup names while it says Deleting; a Backup that says something else is looked at anew."""
    scene = Scene(ask("ask"))

    def set_back(each):
        scene.snapshots.before = lambda _id: None
        scene.change("nightly", {"status": {"phase": phase}})

    scene.snapshots.before = set_back
    report = scene.delete()
    assert reasons(report) == {"ask": Reason.COMPLETED if phase == "Completed" else Reason.BACKUP_IN_PROGRESS}
    assert report.passes > 1


def test_a_deletion_that_died_after_its_record_ends_with_all_its_requests():
    """With the Backup gone, the requests that were noted to end with it still do, and one that was not is answered."""
    answered = ask("answered", phase="Processed", state={"uid": UID, "finishedAt": format_instant(NOW)})
    scene = Scene(ask("ask"), ask("waits", uid=""), answered)
    scene.cluster.before = stopping_at("delete", REQUEST)
    scene.delete()
    assert (scene.names(), scene.names(REQUEST)) == (set(), {"ask", "waits", "answered"})
    scene.cluster.cluster.create(ask("late"))
    scene.cluster.before = lambda *_call: None
    assert reasons(scene.delete(at=NOW + MINUTE)) == {
        "ask": Reason.COMPLETED,
        "waits": Reason.COMPLETED,
        "late": Reason.BACKUP_NOT_FOUND,
    }
    assert scene.names(REQUEST) == {"late"}


def test_a_request_that_is_taken_away_as_the_record_goes_stops_nothing():
    scene = Scene(ask("ask"), ask("waits"))

    def take_away(verb, kind, name):
        if (verb, kind, name) == ("patch", REQUEST, "waits"):
            scene.cluster.before = lambda *_call: None
            scene.vanish("waits", REQUEST)

    scene.cluster.before = take_away
    assert reasons(scene.delete())["ask"] is Reason.COMPLETED
    assert (scene.names(), scene.names(REQUEST)) == (set(), set())


def test_a_request_that_has_ended_since_it_was_last_seen_begins_nothing():
    """The watch lags behind: the request was seen at work, has failed since, and the phase was given back."""
    scene = Scene(ask("ask", phase="InProgress", state=STATE), backup=deleting())
    built = scene.build("deletion")
    (reconciler,) = built.reconcilers
    reconciler.keys()
    scene.change("ask", {"status": {"phase": "Processed"}}, REQUEST)
    with pytest.raises(ConflictError):
        reconciler.reconcile(("velero", "nightly"), now=NOW)
    built.close()
    assert scene.left() == {"snap-1", "snap-2"}


# Whose directory it is


def second_of_the_name(**status):
    """A failed second backup of the same name: it started later than what the directory says."""
    found = a_record(phase="Failed", **status)
    return found | {"status": found["status"] | {"startTimestamp": format_instant(NOW - HOUR)}}


def test_a_record_that_does_not_own_the_directory_goes_alone():
    scene = Scene(ask("ask"), backup=second_of_the_name(), snapshots=())
    scene.stores.buckets["b"] |= files_of(a_record(), snapshots=("snap-1",))
    before = scene.files()
    report = scene.delete()
    assert outcomes(report) == [("DeleteObject", "Done"), ("EndRequest", "Done")]
    assert (scene.files(), scene.names(), scene.names("Restore")) == (before, set(), {"r1"})


def test_it_is_refused_when_it_says_that_it_has_snapshots():
    scene = Scene(ask("ask"), backup=second_of_the_name(volumeSnapshotsCompleted=1), snapshots=())
    scene.stores.buckets["b"] |= files_of(a_record())
    assert reasons(scene.delete()) == {"ask": Reason.NOT_THE_OWNER}
    assert scene.names() == {"nightly"}


# Refused and deferred


def test_data_that_no_configured_adapter_deletes_is_named_and_nothing_is_touched():
    scene = Scene(ask("ask"))
    labels = {"velero.io/backup-name": "nightly"}
    for name, uploader in (("v1", "kopia"), ("v2", "kopia"), ("v3", "restic")):
        volume = made("PodVolumeBackup", name, metadata={"namespace": "shop", "labels": labels})
        scene.cluster.cluster.create(volume | {"spec": {"uploaderType": uploader}, "status": {"snapshotID": name}})
    scene.change("aws", {"spec": {"provider": "gcp"}}, "VolumeSnapshotLocation")
    scene.snapshots._providers = frozenset({"aws"})
    scene.delete()
    (error,) = scene.request()[1]
    assert "2 native snapshots (gcp), 2 repository snapshots (kopia), 1 repository snapshots (restic)" in error
    assert untouched(scene)


@pytest.mark.parametrize(
    ("prepare", "reason", "again"),
    [
        pytest.param(
            lambda s: s.change("default", {"status": {"phase": "Unavailable"}}, "BackupStorageLocation"),
            Reason.LOCATION_UNAVAILABLE,
            MINUTE,
            id="unavailable",
        ),
        pytest.param(lambda s: s.stores.buckets.clear(), Reason.LOCATION_UNAVAILABLE, MINUTE, id="bucket-missing"),
        pytest.param(hold_by_annotation, Reason.HELD, HOUR, id="held"),
        pytest.param(
            lambda s: s.annotate("nightly", hold="x", hold_until=format_instant(NOW + 3 * DAY)),
            Reason.HELD,
            3 * DAY,
            id="held-until",
        ),
        pytest.param(hold_by_file, Reason.HELD, HOUR, id="held-by-the-file-beside-it"),
        pytest.param(
            lambda s: s.change("r1", {"status": {"phase": "InProgress"}}, "Restore"),
            Reason.RESTORE_RUNNING,
            MINUTE,
            id="restore-running",
        ),
    ],
)
def test_what_is_deferred_stays_and_knows_when_to_look_again(prepare, reason, again):
    scene = Scene(ask("ask"))
    prepare(scene)
    result = scene.reconcile()
    assert [(d.verdict, d.reason, d.standing) for d in result.decisions] == [(Verdict.KEEP, reason, Standing.WAITING)]
    assert result.again == NOW + again
    assert scene.request() == ("", [], {})
    assert (scene.left(), scene.phase()) == ({"snap-1", "snap-2"}, "Completed")


def test_a_hold_ends_exactly_at_its_instant():
    scene = Scene(ask("ask"), backup=a_record(snapshots=("snap-1", "snap-2")))
    scene.annotate("nightly", hold="x", hold_until=format_instant(LATER))
    assert reasons(scene.delete(at=LATER - timedelta(microseconds=1))) == {"ask": Reason.HELD}
    assert reasons(scene.delete(at=LATER)) == {"ask": Reason.COMPLETED}


def test_a_backup_in_progress_goes_only_when_the_request_says_so():
    running = a_record(phase="InProgress", snapshots=("snap-1", "snap-2"))
    assert reasons(Scene(ask("ask"), backup=running).delete()) == {"ask": Reason.BACKUP_IN_PROGRESS}
    even = ask("ask", annotations={"reprieve.dev/even-in-progress": "true"})
    assert reasons(Scene(even, backup=running).delete()) == {"ask": Reason.COMPLETED}


# Expiry


def processed(finished, **options):
    return ask("ask", phase="Processed", state={"uid": UID, "finishedAt": format_instant(finished)}, **options)


def test_an_ended_request_goes_a_day_after_its_end_whether_or_not_the_backup_exists():
    scene = Scene(processed(NOW - DAY + timedelta(seconds=1), at=NOW - 10 * DAY))
    result = scene.reconcile()
    assert (result.decisions, result.again) == ((), NOW + timedelta(seconds=1))
    report = scene.delete(at=NOW + timedelta(seconds=1))
    assert (reasons(report), report.standing) == ({"ask": Reason.EXPIRED}, Standing.SETTLED)
    assert scene.names(REQUEST) == set()
    assert untouched(scene)


def test_an_expired_request_that_may_not_be_removed_is_a_failure_and_no_endless_run():
    scene = Scene(processed(NOW - DAY))
    scene.cluster.delete = lambda *_args, **_options: Denied("forbidden")
    report = scene.delete()
    assert (report.passes, report.standing) == (1, Standing.FAILED)
    assert "forbidden" in the(report).message
    assert scene.reconcile().again > NOW


def test_a_finalizer_of_somebody_else_on_an_expired_request_is_waited_for():
    held = processed(NOW - DAY)
    held["metadata"]["finalizers"] = ["example.com/mine"]
    report = Scene(held).delete()
    assert (report.passes, report.standing) == (1, Standing.SETTLED)
    assert outcomes(report) == [("EndRequest", "Pending")]


# What a run tells at its end


def test_what_a_run_took_away_is_told_as_done_though_a_later_look_finds_it_gone():
    """The first look deletes the snapshots and waits for a restore; the second finds them gone."""
    scene = Scene(ask("ask"), restores=(restore("r1", finalizers=["example.com/mine"]),))
    report = scene.delete()
    assert report.passes == 2
    assert outcomes(report) == [("DeleteSnapshot", "Done")] * 2 + [("DeleteRestore", "Pending")]


@pytest.mark.parametrize("outcome", [Done(), AlreadyGone(), Unknown("?")], ids=lambda outcome: type(outcome).__name__)
def test_only_what_is_gone_lets_the_next_stage_start(outcome):
    scene = Scene(ask("ask"))
    scene.snapshots.outcomes["snap-1"] = [outcome]
    scene.delete()
    gone = not isinstance(outcome, Unknown)
    assert (scene.names("Restore") == set()) == gone
    assert (METADATA not in scene.files()) == gone


def test_every_object_is_deleted_by_its_uid():
    scene = Scene(ask("ask"))
    refs = [step.ref for step in the(scene.plan("deletion")).steps if hasattr(step, "ref")]
    assert {(ref.kind, ref.namespace, ref.uid) for ref in refs} == {
        ("Restore", "velero", "uid-of-r1"),
        ("Backup", "velero", UID),
        (REQUEST, "velero", "uid-of-ask"),
    }


def test_a_pause_counts_from_the_end_of_a_slow_stage():
    """A cloud that said "slow down" after half a minute was asked again at once: the pause was over by then."""
    ticking = iter([100.0, 140.0])
    scene = Scene(ask("ask"))
    scene.snapshots.outcomes = {"snap-1": [Retryable(timedelta(seconds=60), "slow down")]}
    built = build_controllers(scene.world, names=["deletion"], stop=threading.Event(), elapsed=lambda: next(ticking))
    (reconciler,) = built.reconcilers
    reconciler.keys()
    result = reconciler.reconcile(("velero", "nightly"), now=NOW)
    built.close()
    assert result.again == NOW + timedelta(seconds=40 + 60)


def test_a_location_wakes_only_for_what_a_deletion_depends_on():
    """Sync stamps each location once a minute; every waiting request was gathered whole each time."""
    scene = Scene(ask("ask"))
    built = scene.build("deletion")
    (reconciler,) = built.reconcilers
    reconciler.keys()
    watch = next(each for each in reconciler.watches() if each.kind.kind == "BackupStorageLocation")

    def wakes(**changes):
        document = location()
        document["status"] = document["status"] | changes
        return watch.keys_of(resource_from_json(document), False)

    assert wakes() == [("velero", "nightly")]
    assert wakes(lastSyncedTime="2026-03-01T12:00:00Z") == []
    assert wakes(phase="Unavailable") == [("velero", "nightly")]
    assert watch.keys_of(resource_from_json(location()), True) == [("velero", "nightly")]
    built.close()
