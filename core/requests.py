"""The life of a deletion request: ``elect`` who works, ``admit``, ``plan`` the stages, ``settle`` each, ``expired``.

::

    request ──admit──> Refused ──────────────────────────────> Processed, with the error
       │                Deferred(until) ── later ──> admit
       └──> Admitted ──plan──> snapshots ─> restores ─> bucketFiles ─> bucketMetadata ─> backup ─> siblings ─> requests
                                   └── settle ──> Next | Completed | Retry(at) | Failed

Guarantee: the pointer outlives the thing it points at (a stage starts only when everything before it is confirmed
gone); a request touches only the backup of its UID; the same facts in any order give the same answer; what a request
says of itself (its phase, its state) decides nothing: how far a deletion has come stands on the Backup. Not guaranteed:
that facts stay true while a stage runs; that is why the hold is asked again before each stage, and why each effect
carries its own precondition.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import assert_never

from attrs import evolve, field, frozen

from reprieve.core.backups import (
    DELETING,
    DELETION,
    ENDED,
    EVEN_IN_PROGRESS,
    RESTORE_UNFINISHED,
    UNFINISHED,
    Backup,
    CsiContent,
    DataMoverItem,
    DeletionRequest,
    Directory,
    DirectoryUnreadable,
    Inventory,
    Item,
    Layout,
    ListAbsent,
    ListCorrupt,
    MetadataAbsent,
    MetadataCorrupt,
    MetadataPresent,
    NativeSnapshot,
    RepositorySnapshot,
    RequestPhase,
    RequestState,
    Restore,
    SnapshotLocation,
    StorageLocation,
    Unlisted,
    Unnamed,
    read_state,
)
from reprieve.core.durations import format_duration
from reprieve.core.holds import HOLD_FILE, Free, Held, any_hold, hold_of
from reprieve.core.marks import (
    ClaimsRead,
    ClaimsUnread,
    Marks,
    MarksAsked,
    SnapshotsSeen,
    SnapshotsUnseen,
    identity,
    tagged_backup,
)
from reprieve.core.objects import is_object_name
from reprieve.core.outcomes import (
    AlreadyGone,
    Conflict,
    ContainerMissing,
    Denied,
    Done,
    InUse,
    Invalid,
    Locked,
    Outcome,
    Pending,
    Retryable,
    Unknown,
    is_gone,
    message_of,
)
from reprieve.core.reasons import Reason
from reprieve.core.steps import (
    DeleteFile,
    DeleteFiles,
    DeleteObject,
    DeleteRestore,
    DeleteSnapshot,
    EndRequest,
    Step,
    StepResult,
    describe,
)
from reprieve.core.values import as_set, as_tuple, bounded, cut, format_instant, joined, later
from reprieve.core.witnesses import unnamed_csi

# How long a deferral waits before it looks again, where nothing tells when the obstacle ends. Watch events come sooner.
LOOK_AGAIN = timedelta(minutes=1)
LOOK_AGAIN_HELD = timedelta(hours=1)
BACKOFF_FIRST = timedelta(seconds=30)
BACKOFF_LAST = timedelta(minutes=15)
DEFAULT_MAX_AGE = timedelta(hours=24)
BUCKET_STAGE = "bucketFiles"
RECORD_STAGE = "backup"
NATIVE = "native snapshots"
SHOWN_LIMIT = 80
NAMED = 10
NAME_LIMIT = 200


@frozen
class Absent:
    """The object was looked for, and it is not there."""


@frozen
class DeletionFacts:
    """All that a decision about one request rests on.

    ``handlers`` are the providers whose native snapshots a configured adapter can delete (``aws``); a kind of data that
    ``plan`` has no step for is refused whatever they say. ``siblings`` are all other requests for the same backup,
    those that have ended among them. ``layout`` is where the dialect's files lie; ``without_provider`` is its own
    message for native snapshots that no provider is configured for, where it has one. ``unnameable`` says of files of
    the backup or its restores which of them cannot be named, and so could not be deleted; it is asked before the first
    effect only. ``marks`` is what the clouds say of whose the snapshots are: see ``place_questions``.
    """

    request: DeletionRequest
    backup: Backup | Absent
    location: StorageLocation | Absent
    directory: Directory | DirectoryUnreadable
    marks: Marks
    snapshot_locations: tuple[SnapshotLocation, ...] = field(default=(), converter=as_tuple)
    restores: tuple[Restore, ...] = field(default=(), converter=as_tuple)
    handlers: frozenset[str] = field(default=frozenset(), converter=as_set)
    siblings: tuple[DeletionRequest, ...] = field(default=(), converter=as_tuple)
    layout: Layout = field(factory=Layout)
    without_provider: str = ""
    unnameable: tuple[str, ...] = field(default=(), converter=as_tuple)


@frozen
class Refused:
    """The request ends ``Processed`` with this error; nothing is touched."""

    reason: Reason
    message: str


@frozen
class Deferred:
    """The request stays as it is; look again at ``until``, or when something changes."""

    reason: Reason
    until: datetime
    message: str = ""


@frozen
class Admitted:
    """The deletion may go on: begun now, or resumed."""

    reason: Reason = Reason.ADMITTED
    message: str = ""


Admission = Admitted | Deferred | Refused


@frozen
class Working:
    """The request that works for its backup, and those that wait behind it, oldest first."""

    request: DeletionRequest
    waiting: tuple[DeletionRequest, ...] = field(default=(), converter=as_tuple)


@frozen
class Idle:
    """No request of the backup has work left."""


@frozen
class Stage:
    """Steps that run in parallel. ``decided`` are steps whose outcome is known already: they are never carried out."""

    name: str
    steps: tuple[Step, ...] = field(default=(), converter=as_tuple)
    decided: tuple[StepResult, ...] = field(default=(), converter=as_tuple)


@frozen
class DeletionPlan:
    """The stages in the order in which they must settle."""

    stages: tuple[Stage, ...] = field(converter=as_tuple)

    def after(self, stage: Stage) -> tuple[Stage, ...]:
        """The stages that follow one of the plan's own."""
        names = [each.name for each in self.stages]
        return self.stages[names.index(stage.name) + 1 :]


@frozen
class StageOutcomes:
    """What a stage of a plan came to. A step that has no result was not carried out (a stop came between)."""

    plan: DeletionPlan
    stage: Stage
    results: tuple[StepResult, ...] = field(default=(), converter=as_tuple)


@frozen
class DeletionLimits:
    """How often and how long a deletion is tried. Waiting and deferral do not count."""

    attempts: int = 5
    deadline: timedelta = timedelta(hours=1)


@frozen
class Next:
    """Everything of the stage is gone: this stage follows."""

    stage: Stage


@frozen
class Completed:
    """Everything is gone."""


@frozen
class Retry:
    """Come back at ``at``. ``errors`` go into the status now; ``state`` is what the Backup must say from now on."""

    at: datetime
    errors: tuple[str, ...] = field(default=(), converter=as_tuple)
    state: RequestState = field(factory=RequestState)
    reason: Reason = Reason.RETRYING


@frozen
class Failed:
    """The request ends ``Processed`` with what is left.

    ``state`` is the request's last report. ``restore_phase`` is the phase to give back to the backup; None when
    something was destroyed, or may have been: then ``left`` is what the Backup must say for whoever asks again.
    """

    errors: tuple[str, ...] = field(default=(), converter=as_tuple)
    state: RequestState = field(factory=RequestState)
    restore_phase: str | None = None
    left: RequestState = field(factory=RequestState)


Settlement = Next | Completed | Retry | Failed


# Who works, and how far it has come


def deletion_of(backup: Backup | Absent) -> RequestState:
    """The deletion of a backup that is under way, as the record itself says it; an empty state where none is.

    Only the note on a record in phase ``Deleting`` counts, and only where it names the record's own UID: a copy on
    another backup, or one that came back from a bucket, is nothing. A phase to give back is that of an end, or the
    empty one of a backup that nobody looked at: ``New`` would make Velero run the backup again.
    """
    if not isinstance(backup, Backup) or backup.phase != DELETING:
        return RequestState()
    state = read_state(backup.meta.annotations, DELETION)
    if not state.uid or state.uid != backup.meta.uid:
        return RequestState()
    return evolve(state, previous_phase=_returnable(state.previous_phase))


def _returnable(phase: str | None) -> str | None:
    return phase if phase == "" or phase in ENDED else None


def state_of(request: DeletionRequest, backup: Backup | Absent) -> RequestState:
    """How far a request at work has come; an empty state for one that is not at work.

    At work is the request that the Backup names, whatever a request says of itself. With the Backup gone there is
    nothing left but what the request says: it may end itself by it, and nothing else.
    """
    match backup:
        case Backup():
            under_way = deletion_of(backup)
            return under_way if _is_named(request, under_way) else RequestState()
        case Absent():
            return request.state if request.phase is RequestPhase.IN_PROGRESS else RequestState()
        case _:
            assert_never(backup)


def _is_named(request: DeletionRequest, under_way: RequestState) -> bool:
    return bool(under_way.request) and under_way.request == request.meta.uid


def elect(requests: Iterable[DeletionRequest], backup: Backup | Absent) -> Working | Idle:
    """Choose among the requests of one backup: the one that the Backup names works, else the oldest. The others wait.

    With the Backup gone it is the first of those that have an answer of their own: see ``elect_all``.
    """
    return next(iter(elect_all(requests, backup)), Idle())


def elect_all(requests: Iterable[DeletionRequest], backup: Backup | Absent) -> tuple[Working, ...]:
    """All that have an answer to get now: one, while the Backup is there.

    Once it is gone, each that says to be at work gets its own, so that none that was made up keeps others from theirs;
    only those wait for it that were noted to end with it. The rest, of which none is ever put off, wait in one row.
    """
    unfinished = sorted((r for r in requests if r.phase is not RequestPhase.PROCESSED), key=_seniority)
    match backup:
        case Backup():
            under_way = deletion_of(backup)
            worker = next((r for r in unfinished if _is_named(r, under_way)), next(iter(unfinished), None))
            return (Working(worker, [r for r in unfinished if r is not worker]),) if worker else ()
        case Absent():
            leaders = {r.meta.uid for r in unfinished if _leads(r)}
            led: defaultdict[str, list[DeletionRequest]] = defaultdict(list)
            at_work: list[DeletionRequest] = []
            row: list[DeletionRequest] = []
            for request in unfinished:
                named = request.state.request or ""
                if not _leads(request) and named in leaders:
                    led[named].append(request)
                else:
                    (at_work if request.phase is RequestPhase.IN_PROGRESS else row).append(request)
            alone = [Working(request, led[request.meta.uid] if _leads(request) else ()) for request in at_work]
            return (*alone, *([Working(row[0], row[1:])] if row else []))
        case _:
            assert_never(backup)


def _leads(request: DeletionRequest) -> bool:
    """Whether a request says that it is at work itself, so that others may end with it once the record is gone."""
    return request.phase is RequestPhase.IN_PROGRESS and request.state.request == request.meta.uid


def _seniority(request: DeletionRequest) -> tuple[bool, float, str]:
    created = request.meta.created
    return (created is None, created.timestamp() if created else 0.0, request.meta.name)


def bind(request: DeletionRequest, backup: Backup) -> bool:
    """Whether a request that is bound to no UID yet may be bound to this backup: not when it is older than it."""
    return not request.bound_uid and not _older(request, backup)


def _older(request: DeletionRequest, backup: Backup) -> bool:
    asked, made = request.meta.created, backup.meta.created
    return asked is not None and made is not None and asked < made


# Admission


def admit(facts: DeletionFacts, inventory: Inventory, *, now: datetime) -> Admission:
    """Decide whether a request's deletion may begin, or go on.

    Refusals come before deferrals, so that whoever asked learns at once what waiting will not mend; only a location
    that cannot be read comes earlier, as nothing more can be known. Messages are Velero's where it has one for the case
    (source: Velero's deletion controller, steps 3 to 9). Whose the snapshots are comes last, as it costs calls.
    """
    return _stop(facts, inventory, now) or _check_marks(facts, inventory, now) or _admitted(facts)


def _stop(facts: DeletionFacts, inventory: Inventory, now: datetime) -> Refused | Deferred | None:
    """The first that stands in the way, of all that needs no cloud to be asked."""
    checks: tuple[Callable[[], Refused | Deferred | None], ...] = (
        lambda: _check_name(facts.request),
        lambda: _check_record(facts),
        lambda: _check_location(facts),
        lambda: _check_reachable(facts, now),
        lambda: _check_vanished(facts),
        lambda: _check_metadata(facts),
        lambda: _check_inventory(facts, inventory, now),
        lambda: _check_keys(facts),
        lambda: _check_hold(facts, now),
        lambda: _check_restores(facts, now),
    )
    stops = (check() for check in checks)
    return next((stop for stop in stops if stop is not None), None)


def _admitted(facts: DeletionFacts) -> Admitted:
    if is_resumed(facts):
        return Admitted(Reason.RESUMED, f"deletion of backup {facts.request.backup} goes on where it stopped")
    return Admitted(
        Reason.ADMITTED, f"backup {facts.request.backup} is deleted because {facts.request.meta.name} asked for it"
    )


def is_resumed(facts: DeletionFacts) -> bool:
    """Whether the deletion that the request asks for has begun, as the live record says: the request's word is none."""
    return bool(state_of(facts.request, facts.backup).uid)


def _check_name(request: DeletionRequest) -> Refused | None:
    if request.name_fault:
        return Refused(Reason.NAME_INVALID, request.name_fault)
    if not request.backup:
        return Refused(Reason.NAME_MISSING, "spec.backupName is required")
    if not is_object_name(request.backup):
        return Refused(
            Reason.NAME_INVALID,
            f"spec.backupName {_shown(request.backup)} is not a name that a backup can have: "
            "at most 253 of a-z, 0-9, '-' and '.'",
        )
    return None


def _shown(name: str) -> str:
    head = name[:SHOWN_LIMIT]
    return repr(name) if head == name else f"{head + '…'!r} ({len(name)} characters)"


def _check_record(facts: DeletionFacts) -> Refused | None:
    match facts.backup:
        case Absent():
            return None if is_resumed(facts) and facts.request.state.location else _not_found()
        case Backup() as backup:
            return _check_identity(facts.request, backup) or _check_phase(facts.request, backup)
        case _:
            assert_never(facts.backup)


def _not_found() -> Refused:
    return Refused(Reason.BACKUP_NOT_FOUND, "backup not found")


def _check_identity(request: DeletionRequest, backup: Backup) -> Refused | None:
    # A label that was rewritten while the deletion ran does not turn it to another backup: label and report must agree.
    others = sorted({request.bound_uid, request.state.uid} - {"", backup.meta.uid})
    if others:
        return Refused(
            Reason.BACKUP_RECREATED,
            f"backup was re-created since: the request is for UID {' and '.join(others)}, "
            f"the backup has UID {backup.meta.uid}; ask again",
        )
    if not request.bound_uid and _older(request, backup):
        return Refused(
            Reason.BACKUP_RECREATED, "backup was re-created since: the request is older than the backup; ask again"
        )
    return None


def _check_phase(request: DeletionRequest, backup: Backup) -> Refused | None:
    if backup.phase in UNFINISHED and request.meta.annotations.get(EVEN_IN_PROGRESS) != "true":
        return Refused(Reason.BACKUP_IN_PROGRESS, "backup is still in progress")
    return None


def _check_location(facts: DeletionFacts) -> Refused | None:
    match facts.location:
        case Absent():
            name = location_name(facts) or "(none named)"
            return Refused(Reason.LOCATION_NOT_FOUND, f"backup storage location {name} not found")
        case StorageLocation() as location:
            return _check_place(facts, location) or _check_writable(location)
        case _:
            assert_never(facts.location)


def location_name(facts: DeletionFacts) -> str:
    """The storage location that a deletion concerns: the record's, or the remembered one when the record is gone."""
    return facts.backup.storage_location if isinstance(facts.backup, Backup) else facts.request.state.location or ""


def _check_place(facts: DeletionFacts, location: StorageLocation) -> Refused | None:
    absent = isinstance(facts.backup, Absent)
    state = facts.request.state if absent else deletion_of(facts.backup)
    began = (state.location, state.bucket, state.prefix)
    if None in began or began == (location.name, location.bucket, location.prefix):
        return None
    return Refused(
        Reason.LOCATION_MOVED,
        f"the deletion began in {state.location} ({state.bucket}/{state.prefix}), but the backup's location is now "
        f"{location.name} ({location.bucket}/{location.prefix}): point it back, and ask again",
    )


def _check_writable(location: StorageLocation) -> Refused | None:
    if location.read_only:
        return Refused(
            Reason.LOCATION_READ_ONLY,
            f"cannot delete backup because backup storage location {location.name} is currently in read-only mode",
        )
    return None


def _check_reachable(facts: DeletionFacts, now: datetime) -> Deferred | None:
    name = location_name(facts)
    if isinstance(facts.location, StorageLocation) and not facts.location.available:
        why = f"cannot delete backup because backup storage location {name} is currently in Unavailable state"
        return Deferred(Reason.LOCATION_UNAVAILABLE, later(now, LOOK_AGAIN), why)
    if isinstance(facts.directory, DirectoryUnreadable):
        why = f"backup storage location {name} cannot be read: {facts.directory.why}"
        return Deferred(Reason.LOCATION_UNAVAILABLE, later(now, LOOK_AGAIN), why)
    return None


def _check_vanished(facts: DeletionFacts) -> Refused | None:
    """A resumed deletion whose record is gone ends well only when the files went before it."""
    if isinstance(facts.backup, Absent) and not isinstance(_metadata(facts), MetadataAbsent):
        return Refused(Reason.RECORD_VANISHED, "the record vanished during deletion; ask again when it is back")
    return None


def _metadata(facts: DeletionFacts) -> MetadataPresent | MetadataAbsent | MetadataCorrupt:
    return facts.directory.metadata if isinstance(facts.directory, Directory) else MetadataAbsent()


def _check_metadata(facts: DeletionFacts) -> Refused | None:
    metadata = _metadata(facts)
    if isinstance(metadata, MetadataCorrupt):
        return Refused(
            Reason.METADATA_CORRUPT,
            f"cannot tell whether {facts.layout.directory(facts.request.backup)} belongs to this backup: "
            f"{metadata.why}; repair or remove {facts.layout.metadata_file} and ask again",
        )
    return None


def owns_directory(facts: DeletionFacts) -> bool:
    """Whether the bucket's directory is this record's: started at the same instant, or without metadata to tell.

    A failed second backup of the same name, or a location that was pointed at another bucket, does not own it.
    """
    match _metadata(facts):
        case MetadataPresent(started):
            return isinstance(facts.backup, Backup) and facts.backup.started == started
        case MetadataAbsent():
            return True
        case MetadataCorrupt():
            return False
        case _ as unmatched:
            assert_never(unmatched)


def _check_inventory(facts: DeletionFacts, inventory: Inventory, now: datetime) -> Refused | Deferred | None:
    if isinstance(facts.backup, Absent):
        return None
    if not owns_directory(facts):
        return _check_stranger(facts.backup, inventory, facts.layout) or _check_listed(inventory, now)
    return (
        _check_snapshot_locations(facts, inventory)
        or _check_handlers(facts, inventory)
        or _check_lists(facts, facts.backup, inventory)
        or _check_listed(inventory, now)
    )


def _check_listed(inventory: Inventory, now: datetime) -> Deferred | None:
    """Objects that may not be listed may name data: to take them for none would leak it."""
    unlisted = sorted(f"{t.what}: {t.why}" for t in inventory.troubles if isinstance(t, Unlisted))
    if not unlisted:
        return None
    return Deferred(
        Reason.UNREADABLE,
        later(now, LOOK_AGAIN),
        f"it cannot be told what the backup points at: objects may not be listed ({joined(unlisted, by='; ')}); "
        "grant what deploy/rbac.yaml grants",
    )


def _check_stranger(backup: Backup, inventory: Inventory, layout: Layout) -> Refused | None:
    """A record that does not own its directory goes alone; not one that says it has data: its lists are elsewhere."""
    claimed = backup.native_claim + backup.csi_claim + len(backup.legacy_snapshots)
    outside = [item for item in inventory.items if not isinstance(item, NativeSnapshot)]
    if claimed or outside or any(isinstance(trouble, Unnamed) for trouble in inventory.troubles):
        return Refused(
            Reason.NOT_THE_OWNER,
            f"the files under {layout.directory(backup.name)} belong to another backup of that name, and this record "
            f"says that it has {claimed} snapshots and {len(outside)} other items: point the location at the bucket "
            "that has its lists, and ask again",
        )
    return None


def _check_snapshot_locations(facts: DeletionFacts, inventory: Inventory) -> Refused | None:
    known = {location.name for location in facts.snapshot_locations}
    missing = sorted({s.location for s in _native(inventory)} - known)
    if missing:
        names = joined(missing) or "(none named)"
        return Refused(Reason.SNAPSHOT_LOCATION_NOT_FOUND, f"volume snapshot location {names} not found")
    return _check_named(facts.backup, inventory) if facts.layout.located else None


def _check_named(backup: Backup | Absent, inventory: Inventory) -> Refused | None:
    """A record with snapshots names where they were taken: Velero writes there each location that it used."""
    named = backup.snapshot_locations if isinstance(backup, Backup) else ()
    others = sorted({s.location for s in _native(inventory)} - set(named))
    if others:
        return Refused(
            Reason.SNAPSHOT_LOCATION_NOT_NAMED,
            f"the backup's list names snapshots in volume snapshot location {joined(others)}, but its record names "
            f"{joined(sorted(named)) or 'none'} in spec.volumeSnapshotLocations: if they are the backup's, add the "
            "location there, and ask again",
        )
    return None


def _native(inventory: Inventory) -> list[NativeSnapshot]:
    """The native snapshots that exist: one recorded with an empty id was never taken."""
    return [item for item in inventory.items if isinstance(item, NativeSnapshot) and item.id]


def _check_handlers(facts: DeletionFacts, inventory: Inventory) -> Refused | None:
    providers = {location.name: location.provider for location in facts.snapshot_locations}
    orphans = Counter(label for item in inventory.items for label in _orphan(item, providers, facts.handlers))
    if not orphans:
        return None
    if facts.without_provider and any(kind == NATIVE for kind, _ in orphans):
        return Refused(Reason.NO_ADAPTER, facts.without_provider)
    parts = [f"{count} {kind} ({handler})" for (kind, handler), count in sorted(orphans.items())]
    return Refused(
        Reason.NO_ADAPTER,
        f"the backup has data that no configured adapter can delete: {joined(parts)}{_csi_named(inventory)}; "
        "nothing was deleted, since half a deletion would orphan it. Delete that data with the tool that made it, or "
        "configure its provider",
    )


def _csi_named(inventory: Inventory) -> str:
    """The CSI snapshots by driver and handle, in brackets: what is left to delete for whoever does it by hand."""
    names = sorted(
        " ".join(filter(None, [item.driver, item.handle or item.name])) or "(without a name)"
        for item in inventory.items
        if isinstance(item, CsiContent)
    )
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f" (CSI snapshots: {', '.join(cut(name, limit=NAME_LIMIT) for name in names[:NAMED])}{more})"


def _orphan(item: Item, providers: dict[str, str], handlers: frozenset[str]) -> list[tuple[str, str]]:
    """The kind and the handler of an item that nobody here can delete; nothing for what can be, or was never taken."""
    match item:
        case NativeSnapshot(id=snapshot, location=location):
            provider = providers.get(location, "") or "no provider"
            return [(NATIVE, provider)] if snapshot and provider not in handlers else []
        case CsiContent():
            return [("CSI snapshots", "CSI")]
        case RepositorySnapshot(id=snapshot, uploader=uploader):
            return [("repository snapshots", uploader or "restic")] if snapshot else []
        case DataMoverItem():
            return [("data-mover items", "data mover")]
        case _:
            assert_never(item)


def _check_lists(facts: DeletionFacts, backup: Backup, inventory: Inventory) -> Refused | None:
    corrupt = sorted(f"{t.key} cannot be read: {t.why}" for t in inventory.troubles if isinstance(t, ListCorrupt))
    if corrupt:
        return Refused(Reason.LIST_CORRUPT, f"error getting backup's volume snapshots: {joined(corrupt, by='; ')}")
    if _lists_taken(facts):
        return None
    absent = sorted((t for t in inventory.troubles if isinstance(t, ListAbsent)), key=lambda t: t.key)
    if absent and backup.native_claim + backup.csi_claim:
        whole = (backup.snapshots_completed, backup.csi_snapshots_completed) == (backup.native_claim, backup.csi_claim)
        return Refused(
            Reason.LIST_MISSING,
            f"the record says that {backup.native_claim} native and {backup.csi_claim} CSI snapshots were "
            f"{'completed' if whole else 'attempted'}, but {absent[0].key} is not in the bucket: without the list they "
            "would be leaked",
        )
    beside = next((trouble for trouble in absent if trouble.beside), None)
    if beside is not None:
        return Refused(
            Reason.LIST_MISSING,
            f"{beside.beside} is in the bucket, but {beside.key}, which Velero writes with it, is not: what it named "
            "would be leaked",
        )
    # Asked here too, so that an inventory which others put together hides no count.
    unnamed = sorted(
        {t.why for t in inventory.troubles if isinstance(t, Unnamed)} | set(unnamed_csi(backup, inventory))
    )
    if unnamed:
        return Refused(Reason.LIST_MISSING, f"{joined(unnamed, by='; ')}: they would be leaked")
    return None


def _lists_taken(facts: DeletionFacts) -> bool:
    """Whether a deletion of this backup has begun with its files: by then what the lists name was confirmed gone.

    Whichever request began it: one that failed among the files leaves the rest to whoever asks again.
    """
    return deletion_of(facts.backup).stage == BUCKET_STAGE


def _check_keys(facts: DeletionFacts) -> Refused | None:
    """A file that cannot be deleted would stop the deletion after the snapshots went: it stops it before."""
    if not facts.unnameable:
        return None
    return Refused(
        Reason.KEY_INVALID,
        f"files of the backup cannot be deleted: {joined(facts.unnameable, by='; ')}; nothing was deleted. Remove them "
        "with the bucket's own tool, and ask again",
    )


def _check_hold(facts: DeletionFacts, now: datetime) -> Deferred | None:
    return hold_stop(facts.backup, facts.directory, now=now)


def hold_stop(backup: Backup | Absent, directory: Directory | DirectoryUnreadable, *, now: datetime) -> Deferred | None:
    """Ask the hold of a record and of its directory; None when neither holds.

    Asked at admission and again before each stage. A hold that no annotation shows is told with its place.
    """
    annotations = [backup.meta.annotations] if isinstance(backup, Backup) else []
    mirrored = [directory.hold] if isinstance(directory, Directory) else []
    match any_hold([*annotations, *mirrored], now=now):
        case Held(until=until) as hold:
            unseen = not any(isinstance(hold_of(each, now=now), Held) for each in annotations)
            where = f" (so says {HOLD_FILE} in its directory)" if unseen else ""
            return Deferred(Reason.HELD, until or later(now, LOOK_AGAIN_HELD), f"backup is {hold.sentence()}{where}")
        case Free():
            return None
        case _ as unmatched:
            assert_never(unmatched)


def _check_restores(facts: DeletionFacts, now: datetime) -> Deferred | None:
    running = sorted(r.ref.name for r in _own_restores(facts) if r.phase in RESTORE_UNFINISHED)
    if running and not isinstance(facts.backup, Absent):
        return Deferred(
            Reason.RESTORE_RUNNING, later(now, LOOK_AGAIN), f"restore {joined(running)} of the backup is still running"
        )
    return None


def _own_restores(facts: DeletionFacts) -> list[Restore]:
    return [restore for restore in facts.restores if restore.backup == facts.request.backup]


# Whose the snapshots are


@frozen
class PlaceQuestion:
    """What to ask the place of a snapshot location, once: which snapshots carry the backup's tag.

    Then, of these ids, each that is not among them, by itself. ``ids`` are in order.
    """

    location: SnapshotLocation
    ids: tuple[str, ...] = field(converter=as_tuple)


def place_questions(facts: DeletionFacts, inventory: Inventory, *, now: datetime) -> tuple[PlaceQuestion, ...]:
    """What is to be asked of the clouds, and to be put into ``facts.marks``, before ``admit`` can say yes.

    Nothing where the answer does not hang on it: a held backup costs no call.
    """
    if _stop(facts, inventory, now) is not None:
        return ()
    locations = {location.name: location for location in facts.snapshot_locations}
    return tuple(PlaceQuestion(locations[name], ids) for name, ids in _to_prove(facts, inventory).items())


def claims_wanted(marks: MarksAsked) -> bool:
    """Whether it matters which snapshots other records name: one is there, without any backup's tag, and needs none."""
    seen = [place for place in marks.places if isinstance(place, SnapshotsSeen)]
    return any(s.provider in marks.untagged and not tagged_backup(s) for place in seen for s in place.others)


def _to_prove(facts: DeletionFacts, inventory: Inventory) -> dict[str, list[str]]:
    """The ids of the snapshots that would be deleted, by snapshot location.

    Not those that cannot be in their location's region: they are told as what they are, and asked for nowhere.
    """
    if isinstance(facts.backup, Absent) or not owns_directory(facts):
        return {}
    locations = {location.name: location for location in facts.snapshot_locations}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for snapshot in _native(inventory):
        location = locations.get(snapshot.location)
        if location is not None and isinstance(misplaced(snapshot, location), InPlace):
            found[snapshot.location].add(snapshot.id)
    return {name: sorted(ids) for name, ids in sorted(found.items())}


def _check_marks(facts: DeletionFacts, inventory: Inventory, now: datetime) -> Refused | Deferred | None:
    """What a list names is deleted where the place has it under this backup's tag; see ``marks``."""
    wanted = _to_prove(facts, inventory)
    if not wanted or not isinstance(facts.backup, Backup):
        return None
    marks = facts.marks if isinstance(facts.marks, MarksAsked) else MarksAsked()
    providers = {location.name: location.provider for location in facts.snapshot_locations}
    places = {place.location: place for place in marks.places}
    foreign: list[str] = []
    unproven: list[str] = []
    for name, ids in wanted.items():
        match places.get(name, SnapshotsUnseen(name, "nobody asked")):
            case SnapshotsUnseen(why=why):
                unproven.append(f"volume snapshot location {name} cannot be asked whose its snapshots are: {why}")
            case SnapshotsSeen() as place:
                wrong, open_ = _doubts(facts.backup.name, providers[name], ids, place, marks)
                foreign += wrong
                unproven += open_
            case unmatched:
                assert_never(unmatched)
    if foreign:
        return Refused(
            Reason.NOT_THE_BACKUPS,
            f"the backup's list names snapshots that are not its own: {joined(foreign, by='; ')}; nothing was deleted. "
            "If they are its own, give them its tag and ask again; old ones may go without one where the configuration "
            "has cloud.PROVIDER.requireTags: false",
        )
    if unproven:
        return Deferred(Reason.SNAPSHOTS_UNPROVEN, later(now, LOOK_AGAIN), joined(sorted(set(unproven)), by="; "))
    return None


def _doubts(
    backup: str, provider: str, ids: Iterable[str], place: SnapshotsSeen, marks: MarksAsked
) -> tuple[list[str], list[str]]:
    """Of the ids that a place was asked for: why some are not the backup's, and why of some it cannot be told."""
    settled = {identity(provider, each) for each in (*place.tagged, *place.absent)}
    there = {identity(provider, each.id): each for each in place.others}
    claims = marks.claims.claims if isinstance(marks.claims, ClaimsRead) else ()
    claimed = {identity(claim.provider, claim.id): claim for claim in sorted(claims, reverse=True)}
    foreign: list[str] = []
    unproven: list[str] = []
    for each in ids:
        key, shown = identity(provider, each), f"{cut(each, limit=NAME_LIMIT)} in {place.location}"
        if key in settled:
            continue
        if each in place.nameless:
            foreign.append(f"{shown} cannot be one ({place.nameless[each]})")
        elif key not in there:
            unproven.append(f"nobody asked whose snapshot {shown} is")
        elif owner := tagged_backup(there[key]):
            foreign += [] if owner == backup else [f"{shown} is tagged for backup {cut(owner, limit=NAME_LIMIT)}"]
        elif provider not in marks.untagged:
            foreign.append(f"{shown} carries no backup's tag")
        elif key in claimed:
            held = f", which is {claimed[key].held}" if claimed[key].held else ""
            foreign.append(f"{shown} is named by backup {claimed[key].backup} too{held}")
        elif isinstance(marks.claims, ClaimsUnread):
            unproven.append(f"it cannot be told whether another record names snapshot {shown}: {marks.claims.why}")
    return foreign, unproven


# The plan


def plan(facts: DeletionFacts, inventory: Inventory) -> DeletionPlan:
    """Order what an admitted request deletes. Stages without a step are left out.

    Things go before the lists that name them, the metadata file after all other files, the record after its files, the
    working request after all others: as long as it is there, the deletion can be resumed.
    """
    data = _data_stages(facts, inventory) if owns_directory(facts) else []
    stages = [*data, *_record_stage(facts), *_request_stages(facts)]
    return DeletionPlan([stage for stage in stages if stage.steps or stage.decided])


def _record_stage(facts: DeletionFacts) -> list[Stage]:
    return [Stage(RECORD_STAGE, [DeleteObject(facts.backup.ref)])] if isinstance(facts.backup, Backup) else []


def _data_stages(facts: DeletionFacts, inventory: Inventory) -> list[Stage]:
    if isinstance(facts.backup, Absent):
        return []  # admitted only when the metadata is gone, and that goes last
    location, name, layout = location_name(facts), facts.request.backup, facts.layout
    directory, metadata = layout.directory(name), layout.metadata_key(name)
    restores = sorted(_own_restores(facts), key=lambda restore: restore.ref)
    return [
        _snapshot_stage(facts, inventory),
        Stage("restores", [DeleteRestore(r.ref, location, layout.restore_prefix(name, r.ref.name)) for r in restores]),
        Stage(BUCKET_STAGE, [DeleteFiles(location, directory, metadata)]),
        Stage("bucketMetadata", [DeleteFile(location, metadata)]),
    ]


def _snapshot_stage(facts: DeletionFacts, inventory: Inventory) -> Stage:
    locations = {location.name: location for location in facts.snapshot_locations}
    steps: set[DeleteSnapshot] = set()
    known: dict[DeleteSnapshot, Invalid | AlreadyGone] = {}
    absent = _absent(facts)
    for snapshot in sorted(_native(inventory), key=lambda s: (s.location, s.id, s.zone)):
        location = locations[snapshot.location]
        step = DeleteSnapshot(location.provider, snapshot.id, location.name)
        steps.add(step)
        if (location.name, snapshot.id) in absent:
            known.setdefault(step, AlreadyGone())
        if isinstance(fault := misplaced(snapshot, location), Invalid) and not isinstance(known.get(step), Invalid):
            known[step] = fault
    order = sorted(steps, key=lambda s: (s.location, s.id))
    return Stage(
        "snapshots", [s for s in order if s not in known], [StepResult(s, known[s]) for s in order if s in known]
    )


def _absent(facts: DeletionFacts) -> frozenset[tuple[str, str]]:
    """The snapshots of which their place said that they are not there, by location and id: nobody asks again."""
    places = facts.marks.places if isinstance(facts.marks, MarksAsked) else ()
    seen = [place for place in places if isinstance(place, SnapshotsSeen)]
    return frozenset((place.location, each) for place in seen for each in place.absent)


@frozen
class InPlace:
    """Nothing says that the snapshot lies elsewhere."""


def misplaced(snapshot: NativeSnapshot, location: SnapshotLocation) -> Invalid | InPlace:
    """Tell a snapshot that cannot be in its location's region: AWS would answer "not found", as if it were deleted.

    Asked for every snapshot before any store is called. Rule: an AWS zone is its region's name and something that does
    not go on as a number (``us-east-1a``, ``us-west-2-lax-1a``).
    """
    region, zone = location.region, snapshot.zone
    if location.provider != "aws" or not region or not zone:
        return InPlace()
    if zone.startswith(region) and not zone[len(region) :][:1].isdigit():
        return InPlace()
    return Invalid(
        f"its volume was in zone {zone}, which is not in region {region} of snapshot location {location.name}: "
        "there it would pass for deleted"
    )


def _request_stages(facts: DeletionFacts) -> list[Stage]:
    others = sorted({r.ref for r in siblings_of_one_backup(facts)} - {facts.request.ref})
    return [Stage("siblings", [EndRequest(ref) for ref in others]), Stage("requests", [EndRequest(facts.request.ref)])]


def siblings_of_one_backup(facts: DeletionFacts) -> tuple[DeletionRequest, ...]:
    """The other requests that are bound to the same UID, by name: they end with this one, Completed or Failed.

    Once the record is gone only those that were noted before it went, each on itself: see ``unnoted_siblings``.
    """
    if isinstance(facts.backup, Backup):
        ending = [r for r in facts.siblings if facts.backup.meta.uid and r.bound_uid == facts.backup.meta.uid]
    else:
        uid = facts.request.bound_uid
        worker = facts.request.meta.uid if _leads(facts.request) else None
        ending = [r for r in facts.siblings if uid and r.bound_uid == uid and worker and r.state.request == worker]
    return tuple(sorted(ending, key=lambda r: r.ref))


def unnoted_siblings(facts: DeletionFacts) -> tuple[tuple[DeletionRequest, RequestState], ...]:
    """The requests that end with this one and do not say so yet, with the report that says it.

    To be written before the record goes. After that nothing but the requests themselves can tell a deletion that was
    cut off before its last call from a request that somebody made up: that one ends itself alone.
    """
    worker = facts.request.meta.uid
    ending = [r for r in siblings_of_one_backup(facts) if r.state.request != worker]
    return tuple((r, _noted(r, worker)) for r in ending)


def _noted(request: DeletionRequest, worker: str) -> RequestState:
    ended = request.phase is RequestPhase.PROCESSED
    return evolve(request.state, request=worker) if ended else RequestState(uid=request.bound_uid, request=worker)


# Settling a stage


def begin(facts: DeletionFacts, *, now: datetime) -> RequestState:
    """The state that a pass begins with: written on the Backup in the patch that makes it ``Deleting``.

    Whom it deletes, where, for which request, and the old phase of the record. A deletion that is under way keeps its
    state; one whose request ended or was taken away is taken over by the next, whose attempts are counted anew.
    """
    worker = facts.request.meta.uid
    if isinstance(facts.backup, Absent):
        known = state_of(facts.request, facts.backup)
        return _at_work_again(known if known.location is not None else _placed(known, facts), now)
    known = deletion_of(facts.backup)
    if not known.uid:
        phase = _returnable(facts.backup.phase)
        fresh = RequestState(facts.backup.meta.uid, request=worker, previous_phase=phase, first_attempt=now)
        return _placed(fresh, facts)
    if known.request != worker:
        known = evolve(known, request=worker, attempts=0, first_attempt=now, next_attempt=None, reason=None)
    return _at_work_again(known if known.location is not None else _placed(known, facts), now)


def _placed(state: RequestState, facts: DeletionFacts) -> RequestState:
    match facts.location:
        case StorageLocation(name=name, bucket=bucket, prefix=prefix):
            return evolve(state, location=name, bucket=bucket, prefix=prefix)
        case Absent():
            return state
        case _:
            assert_never(facts.location)


def _at_work_again(state: RequestState, now: datetime) -> RequestState:
    """Note that a pass has begun, so that a crash in it can be told from a pause.

    After a lock or a deferral the deadline starts anew. A pass that may have taken files away before it was cut off
    leaves no phase to give back.
    """
    if state.stage == BUCKET_STAGE:
        state = evolve(state, previous_phase=None)
    if state.reason in _PAUSES:
        return evolve(state, reason=None, next_attempt=None, first_attempt=now)
    return evolve(state, reason=None, next_attempt=None) if state.reason == Reason.RETRYING.value else state


_PAUSES = frozenset(
    reason.value
    for reason in (
        Reason.LOCKED,
        Reason.HELD,
        Reason.RESTORE_RUNNING,
        Reason.LOCATION_UNAVAILABLE,
        Reason.SNAPSHOTS_UNPROVEN,
        Reason.UNREADABLE,
    )
)


def postpone(state: RequestState, deferred: Deferred) -> RequestState:
    """The state to write, once, when a request that is at work is deferred: that time does not count.

    In the middle of a pass something may be gone already: then there is no phase to give back. No reason is noted then,
    or still that of a wait, which is noted once for many passes.
    """
    phase = None if state.reason in {None, Reason.PENDING.value} else state.previous_phase
    return evolve(state, reason=deferred.reason.value, next_attempt=None, previous_phase=phase)


def phase_after_refusal(facts: DeletionFacts) -> str | None:
    """The phase to give back to a backup whose deletion is refused; None when it must stay as it is.

    Between two passes the state tells whether anything was destroyed. A pass that was cut off in the middle tells
    nothing, and then the phase stays ``Deleting``: a backup that may not be whole must not look whole.
    """
    state = state_of(facts.request, facts.backup)
    paused = state.reason in {Reason.RETRYING.value, *_PAUSES}
    return state.previous_phase if isinstance(facts.backup, Backup) and paused else None


def settle(facts: DeletionFacts, outcomes: StageOutcomes, *, now: datetime, limits: DeletionLimits) -> Settlement:
    """Judge a stage by its outcomes: go on, come back, or give up.

    Final outcomes (Denied, Invalid, ContainerMissing) end the request once every step of the stage had its turn.
    Retried are Retryable, Conflict, InUse and Unknown, each counted as one attempt a pass. Pending and Locked are
    waited for and not counted. A stage that was stopped half way is taken up again at once. The Backup in ``facts``
    carries the state that was last written; once it is gone, the request does.
    """
    results = _all_results(outcomes)
    known = state_of(facts.request, facts.backup)
    state = _mark_destroyed(known, outcomes)
    kind = max((_kind(result.outcome) for result in results), default=_GONE)
    if _untried(outcomes):
        return _wait(state, results, now)
    if kind == _GONE:
        following = outcomes.plan.after(outcomes.stage)
        return Next(following[0]) if following else Completed()
    if kind == _FINAL:
        return _fail(state, known, _errors(results), now)
    if kind == _COUNTED:
        return _retry(facts, state, results, now, limits)
    return _wait(state, results, now)


_GONE, _WAITING, _COUNTED, _FINAL = range(4)


def _kind(outcome: Outcome) -> int:
    match outcome:
        case Done() | AlreadyGone():
            return _GONE
        case Pending() | Locked():
            return _WAITING
        case Retryable() | Conflict() | InUse() | Unknown():
            return _COUNTED
        case Denied() | Invalid() | ContainerMissing():
            return _FINAL
        case _:
            assert_never(outcome)


def _all_results(outcomes: StageOutcomes) -> list[StepResult]:
    known = {result.step: result for result in (*outcomes.stage.decided, *outcomes.results)}
    return [*known.values(), *(StepResult(s, Pending(timedelta(0), "not tried yet")) for s in _untried(outcomes))]


def _untried(outcomes: StageOutcomes) -> list[Step]:
    tried = {result.step for result in outcomes.results}
    return [step for step in outcomes.stage.steps if step not in tried]


def _mark_destroyed(state: RequestState, outcomes: StageOutcomes) -> RequestState:
    """Forget the previous phase once something may be gone: it is never given back to a backup that is not whole.

    What was gone already counts as well: after a crash nobody can tell it from what the crashed run deleted. When the
    bucket stage is known to have changed nothing, its mark is taken back.
    """
    late = outcomes.plan.stages[0].name != outcomes.stage.name
    known = (*outcomes.stage.decided, *outcomes.results)
    if state.previous_phase is None or late or any(_may_be_gone(result) for result in known):
        return evolve(state, previous_phase=None)
    return evolve(state, stage=None) if outcomes.stage.name == BUCKET_STAGE else state


def _may_be_gone(result: StepResult) -> bool:
    """Whether a step took something away, or may have: one of many parts that failed did, unless it says otherwise."""
    parts = isinstance(result.step, DeleteFiles | DeleteRestore)
    going = isinstance(result.outcome, Pending) and result.outcome.begun
    return is_gone(result.outcome) or going or (parts and not result.intact)


def _errors(results: list[StepResult], *, last: str = "") -> tuple[str, ...]:
    failed = [r for r in results if _kind(r.outcome) in {_COUNTED, _FINAL} or isinstance(r.outcome, Locked)]
    told = sorted(f"error deleting {describe(r.step)}: {message_of(r.outcome)}" for r in failed)
    return bounded(told, last=last)


def _fail(state: RequestState, known: RequestState, errors: tuple[str, ...], now: datetime) -> Failed:
    ended = evolve(state, finished_at=now, next_attempt=None, reason=Reason.FAILED.value)
    # Not the attempts: killed before the request says that it failed, the last attempt is made again, and fails again.
    left = evolve(known, previous_phase=state.previous_phase, stage=state.stage)
    return Failed(errors, ended, state.previous_phase, left)


def _retry(
    facts: DeletionFacts, state: RequestState, results: list[StepResult], now: datetime, limits: DeletionLimits
) -> Retry | Failed:
    attempts = state.attempts + 1
    # After a wait the deadline's clock starts anew: waiting does not count.
    waited = state.reason == Reason.PENDING.value
    first = now if waited or state.first_attempt is None else min(state.first_attempt, now)
    counted = evolve(state, attempts=attempts, first_attempt=first)
    at = later(now, _pause(facts.request.meta.uid, attempts, results))
    if attempts >= limits.attempts or at - first > limits.deadline:
        known = state_of(facts.request, facts.backup)
        return _fail(counted, known, _errors(results, last=_gave_up(attempts, first, limits)), now)
    return Retry(at, _errors(results), evolve(counted, next_attempt=at, reason=Reason.RETRYING.value), Reason.RETRYING)


def _gave_up(attempts: int, first: datetime, limits: DeletionLimits) -> str:
    return (
        f"gave up after {attempts} of {limits.attempts} attempts since {format_instant(first)} "
        f"(deadline {format_duration(limits.deadline)}): mend the cause and ask again"
    )


def _pause(uid: str, attempts: int, results: list[StepResult]) -> timedelta:
    asked = max((r.outcome.after for r in results if isinstance(r.outcome, Retryable)), default=timedelta(0))
    return max(asked, backoff(uid, attempts))


def backoff(uid: str, attempt: int) -> timedelta:
    """How long to pause after the n-th failed attempt (from 1): doubling from 30 s to 15 min, less up to a fifth.

    The jitter comes from a hash of the request's UID and the attempt: spread, and yet the same at every look.
    """
    whole: timedelta = min(BACKOFF_FIRST * 2 ** min(attempt - 1, 20), BACKOFF_LAST)
    spread = hashlib.sha256(f"{uid}/{attempt}".encode()).digest()[0] / 255
    return whole * (1 - spread / 5)


def _wait(state: RequestState, results: list[StepResult], now: datetime) -> Retry:
    locked = [r.outcome for r in results if isinstance(r.outcome, Locked)]
    pending = [r.outcome for r in results if isinstance(r.outcome, Pending)]
    times = [later(now, p.after) for p in pending] + [_unlocks(lock, now) for lock in locked]
    reason = Reason.LOCKED if locked else Reason.PENDING
    at = min(times)
    return Retry(at, _errors(results), evolve(state, next_attempt=at, reason=reason.value), reason)


def _unlocks(lock: Locked, now: datetime) -> datetime:
    """When to ask a locked thing again; one that is locked past its own date is no reason to ask without a pause."""
    if lock.until is None:
        return later(now, LOOK_AGAIN_HELD)
    return lock.until if lock.until > now else later(now, LOOK_AGAIN)


# The end


def expired(request: DeletionRequest, *, now: datetime, max_age: timedelta = DEFAULT_MAX_AGE) -> bool:
    """Whether a processed request has served its time: ``max_age`` since it finished, or was created if not ours.

    The boundary counts, and whether the backup still exists does not (source: Velero's deletion controller, step 2).
    """
    since = ended_at(request, now=now)
    return request.phase is RequestPhase.PROCESSED and since is not None and now - since >= max_age


def ended_at(request: DeletionRequest, *, now: datetime) -> datetime | None:
    """When a processed request ended: as it says itself, unless that is more than a day ahead, else by its creation.

    None when it has neither. No clock of ours is that much ahead, and such a request would never be old enough to go.
    """
    finished = request.state.finished_at
    return finished if finished is not None and finished <= later(now, DEFAULT_MAX_AGE) else request.meta.created
