"""Small builders of core values for tests: everything has a default, a test names only what it is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from reprieve.core.backups import (
    BACKUP_NAME,
    BACKUP_UID,
    DELETION,
    METADATA_FILE,
    Backup,
    DeletionRequest,
    Directory,
    Inventory,
    MetadataPresent,
    NativeSnapshot,
    RequestPhase,
    RequestState,
    Restore,
    SnapshotLocation,
    StorageLocation,
    backup_directory,
    write_state,
)
from reprieve.core.marks import MarksAsked, SnapshotsSeen
from reprieve.core.objects import ObjectMeta, ObjectRef, label_safe
from reprieve.core.requests import BUCKET_STAGE, DeletionFacts, DeletionLimits, DeletionPlan, Stage, StageOutcomes
from reprieve.core.requests import settle as core_settle
from reprieve.core.steps import DeleteSnapshot, StepResult

NOW = datetime(2024, 4, 4, 12, tzinfo=UTC)
STARTED = NOW - timedelta(days=30)
ASKED = NOW - timedelta(minutes=1)
NAMESPACE = "velero"
VELERO = "velero.io/v1"
UID = "uid-foo"
METADATA_KEY = backup_directory("foo") + METADATA_FILE
PLACES = ("a", "g", "vsl-1", "vsl-2", "vsl-8", "vsl-9")
"""Snapshot locations: each record names them all, and each has every snapshot of the tests under its backup's tag."""
SNAPSHOT_IDS = ("s", *(f"{head}{number}" for head in ("s", "snap-") for number in range(10)))
TAGGED = MarksAsked([SnapshotsSeen(place, SNAPSHOT_IDS) for place in PLACES])
LIMITS = DeletionLimits(attempts=5, deadline=timedelta(hours=1))
"""The defaults of the configuration."""


def ref(kind: str, name: str, uid: str = "") -> ObjectRef:
    return ObjectRef(VELERO, kind, name, NAMESPACE, uid)


def a_backup(name: str = "foo", *, uid: str = UID, **fields: Any) -> Backup:
    """A completed backup in location ``default``, made before the request of ``a_request``."""
    annotations, created = fields.pop("annotations", {}), fields.pop("created", STARTED)
    meta = ObjectMeta(name, NAMESPACE, uid, "1", created=created, annotations=annotations)
    defaults = {
        "phase": "Completed",
        "storage_location": "default",
        "snapshot_locations": PLACES,
        "started": STARTED,
    }
    return Backup(ref("Backup", name, uid), meta, **{**defaults, **fields})


def a_request(name: str = "foo-abcde", *, backup: str = "foo", uid: str = UID, **fields: Any) -> DeletionRequest:
    """A new request for ``foo``; an empty ``uid`` leaves it unlabelled."""
    annotations, created = fields.pop("annotations", {}), fields.pop("created", ASKED)
    labels = {BACKUP_NAME: label_safe(backup), BACKUP_UID: uid} if uid else {}
    meta = ObjectMeta(name, NAMESPACE, f"uid-{name}", "1", created=created, labels=labels, annotations=annotations)
    return DeletionRequest(ref("DeleteBackupRequest", name, meta.uid), meta, backup, **fields)


def in_progress(name: str = "foo-abcde", *, uid: str = UID, **state: Any) -> DeletionRequest:
    """A request that says of itself that it is at work, in its first pass."""
    return a_request(name, uid=uid, phase=RequestPhase.IN_PROGRESS, state=a_state(name, uid=uid, **state))


def a_state(name: str = "foo-abcde", *, uid: str = UID, **state: Any) -> RequestState:
    """How far a deletion has come in its first pass."""
    known = {
        "uid": uid,
        "request": f"uid-{name}",
        "location": "default",
        "bucket": "bucket",
        "prefix": "",
        "previous_phase": "Completed",
        "first_attempt": NOW,
    }
    return RequestState(**{**known, **state})


def deleting(name: str = "foo-abcde", *, of: dict[str, Any] | None = None, **state: Any) -> Backup:
    """The backup that the request of that name is deleting; ``of`` are fields of the backup's own."""
    fields = of or {}
    note = {DELETION: write_state(a_state(name, **state))} | fields.get("annotations", {})
    return a_backup(**{"phase": "Deleting", **fields, "annotations": note})


def at_work(name: str = "foo-abcde", *, of: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    """The facts about a deletion that is under way: the request, and the backup that names it."""
    return {"request": in_progress(name, **state), "backup": deleting(name, of=of, **state)}


def a_location(name: str = "default", **fields: Any) -> StorageLocation:
    return StorageLocation(name, **{"provider": "aws", "bucket": "bucket", **fields})


def a_snapshot_location(name: str = "vsl-1", *, provider: str = "aws", region: str = "") -> SnapshotLocation:
    return SnapshotLocation(name, provider, {"region": region} if region else {})


def a_snapshot(snapshot: str = "snap-1", *, location: str = "vsl-1", zone: str = "") -> NativeSnapshot:
    return NativeSnapshot(snapshot, location, zone, f"vol-of-{snapshot}")


def a_restore(name: str, *, backup: str = "foo", phase: str = "Completed") -> Restore:
    return Restore(ref("Restore", name, f"uid-{name}"), backup, phase)


def facts(**fields: Any) -> DeletionFacts:
    """All is well: a labelled request for a completed backup whose directory it owns, an AWS adapter, one location."""
    defaults = {
        "request": a_request(),
        "backup": a_backup(),
        "location": a_location(),
        "directory": Directory(MetadataPresent(STARTED)),
        "marks": TAGGED,
        "snapshot_locations": [a_snapshot_location()],
        "handlers": {"aws"},
    }
    return DeletionFacts(**{**defaults, **fields})


def inventory(*items: Any, troubles: Any = ()) -> Inventory:
    return Inventory(items, troubles)


SNAPSHOTS = Stage("snapshots", [DeleteSnapshot("aws", f"snap-{n}", "vsl-1") for n in (1, 2, 3)])
LAST = Stage("backup")
PLAN = DeletionPlan([SNAPSHOTS, LAST])


def settle(*outcomes: Any, now: datetime = NOW, limits: DeletionLimits = LIMITS, **state: Any) -> Any:
    """Settle the first stage, three snapshots of which each came to the outcome of its place, in a deletion at work."""
    results = [StepResult(step, outcome) for step, outcome in zip(SNAPSHOTS.steps, outcomes, strict=False)]
    stage = attrs.evolve(SNAPSHOTS, steps=SNAPSHOTS.steps[: len(outcomes)])
    deletion = DeletionPlan([stage, LAST])
    current = facts(**at_work(**state))
    return core_settle(current, StageOutcomes(deletion, stage, results), now=now, limits=limits)


def settle_stage(deletion: DeletionPlan, name: str, *results: StepResult, now: datetime = NOW, **state: Any) -> Any:
    """Settle the stage of that name with exactly these results."""
    stage = next(each for each in deletion.stages if each.name == name)
    if name == BUCKET_STAGE:
        state = {"stage": BUCKET_STAGE, **state}
    current = facts(**at_work(**state))
    return core_settle(current, StageOutcomes(deletion, stage, results), now=now, limits=LIMITS)


def stage_of(deletion: DeletionPlan, name: str) -> Stage:
    return next(stage for stage in deletion.stages if stage.name == name)
