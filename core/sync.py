"""Sync: cluster records follow what one bucket says, and never further than it can be trusted.

::

    directory, no record          Create   (unfinished and not expired, no metadata, unreadable ─> Leave)
    directory and record          Leave   (its hold is mirrored beside its files, where that is due)
    record of this location, no directory
        not Completed or PartiallyFailed, held, terminating ─> Leave
        the listing is partial, or empty                    ─> Leave
        last pointer to data                                ─> Leave, labelled reprieve.dev/metadata-missing
        more of them than maxRemovals                       ─> Leave, all of them: TooManyDropped
        metadata file confirmed absent by one more look     ─> Drop

A pass: list the bucket, then read the records, then ask ``questions``, gather the answers, and ``compare``. In that
order: a deletion removes the metadata before the record, so metadata that is read after the records cannot bring a
deleted backup back. Records that ``questions`` names under ``finish`` come first, by ``finish``.

Guarantee: a listing that failed, is partial or empty drops nothing; no record that points at data is dropped; nothing
is written for what is there. Not guaranteed: that two backups of one name in two buckets both get a record.

Source: Velero's sync controller, and what it lacks: a brake, a second look, the last pointer (velero#9480).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, assert_never

from attrs import evolve, field, frozen

from reprieve.core.backups import (
    HOLD_MIRRORED,
    METADATA_MISSING,
    SYNC_INCOMPLETE,
    SYNCED_AT,
    UNFINISHED,
    Backup,
    Directory,
    DirectoryUnreadable,
    Item,
    Layout,
    ListAbsent,
    ListCorrupt,
    MetadataAbsent,
    MetadataCorrupt,
    MetadataPresent,
    NativeSnapshot,
    StorageLocation,
)
from reprieve.core.holds import MIRRORED_FROM, Held, hold_document, hold_of
from reprieve.core.objects import ObjectRef, is_object_name
from reprieve.core.pruning import Count, Percentage, PruneLimits
from reprieve.core.reasons import Reason
from reprieve.core.records import (
    RecordHome,
    backup_record,
    belongs_to,
    document_name,
    is_ended_volume,
    volume_record,
)
from reprieve.core.steps import ChangeMetadata, CreateRecord, DeleteFile, DeleteObject, Step, WriteHoldFile
from reprieve.core.values import FrozenMap, as_set, as_tuple, format_instant, later, string_map
from reprieve.core.witnesses import WHOLE

DROPPED_PHASES = WHOLE
"""Phases of a record that may follow its files away. Others never had files, or have somebody who works on them."""


# When a location is looked at

LEAST_PERIOD = timedelta(seconds=10)
"""Whoever may write a location writes its period: a listing every millisecond is nobody's wish."""


@frozen
class SyncNow:
    """The location's period has passed."""


@frozen
class SyncLater:
    """The location was looked at less than its period ago."""

    at: datetime


@frozen
class SyncOff:
    """The location's period is zero."""


def sync_time(location: StorageLocation, period: timedelta, *, now: datetime) -> SyncNow | SyncLater | SyncOff:
    """When a location is due. Its own period comes before ``period``; a negative one is none, zero switches off.

    No period is shorter than ``LEAST_PERIOD``.

    A last sync that lies in the future is a clock's fault and delays nothing.
    """
    own = location.sync_period
    span = period if own is None or own < timedelta(0) else own
    if not span:
        return SyncOff()
    last = location.last_synced
    due = later(last, max(span, LEAST_PERIOD)) if last is not None and last <= now else now
    return SyncNow() if due <= now else SyncLater(due)


# The facts


@frozen
class CompleteListing:
    """Every directory of backups in the bucket."""

    names: frozenset[str] = field(default=frozenset(), converter=as_set)


@frozen
class PartialListing:
    """Some of the directories: the listing broke off."""

    names: frozenset[str] = field(converter=as_set)
    why: str


@frozen
class UnavailableListing:
    """The bucket could not be listed at all."""

    why: str


BucketListing = CompleteListing | PartialListing | UnavailableListing


@frozen
class VolumesRead:
    """The stored pod volume backups of a backup, as their documents."""

    documents: tuple[Mapping[str, Any], ...] = field(default=(), converter=as_tuple, hash=False)


Volumes = VolumesRead | ListAbsent | ListCorrupt | DirectoryUnreadable


@frozen
class StoredBackup:
    """A directory's metadata document, what the dialect's codec reads in it, and its hold file and volumes.

    ``hold_of`` is the UID of the record that the hold file was written for. ``first_synced`` is when sync brought a
    record of this very backup here before, as far as is known: one that is created again is not new.
    """

    name: str
    record: Backup
    document: Mapping[str, Any] = field(hash=False)
    hold: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    hold_sha256: str = ""
    volumes: Volumes = field(factory=VolumesRead)
    hold_of: str = ""
    first_synced: datetime | None = None


@frozen
class StoredFault:
    """A directory whose metadata document is absent or cannot be read."""

    name: str
    fault: MetadataAbsent | MetadataCorrupt | DirectoryUnreadable


@frozen
class Look:
    """One more look at the directory of a record that is there, and what in the cluster the record points at."""

    name: str
    directory: Directory | DirectoryUnreadable
    items: tuple[Item, ...] = field(default=(), converter=as_tuple)


@frozen
class SyncFacts:
    """All that a pass over one location rests on. ``records`` are all of the namespace, whatever their location.

    ``mirrored`` are the holds that were seen in their files by this process, as ``mirror_of`` names them.
    """

    location: StorageLocation
    home: RecordHome
    listing: BucketListing
    records: tuple[Backup, ...] = field(default=(), converter=as_tuple)
    stored: tuple[StoredBackup | StoredFault, ...] = field(default=(), converter=as_tuple)
    looks: tuple[Look, ...] = field(default=(), converter=as_tuple)
    max_removals: Count | Percentage = field(factory=lambda: Percentage(20))
    mirrored: frozenset[str] = field(default=frozenset(), converter=as_set)


# The answers


@frozen
class Create:
    """A record is created for what lies in the bucket."""

    ref: ObjectRef
    reason: Reason
    message: str
    steps: tuple[Step, ...] = field(default=(), converter=as_tuple)


@frozen
class Drop:
    """A record is deleted, because its files are gone and it points at nothing else."""

    ref: ObjectRef
    reason: Reason
    message: str
    steps: tuple[Step, ...] = field(default=(), converter=as_tuple)


@frozen
class Leave:
    """Nothing is created or dropped. Steps are bookkeeping: in this order, each only after the one before it."""

    ref: ObjectRef
    reason: Reason
    message: str
    steps: tuple[Step, ...] = field(default=(), converter=as_tuple)


SyncAnswer = Create | Drop | Leave


@frozen
class Synced:
    """The bucket was seen whole: when every step succeeds, ``lastSyncedTime`` is now."""


@frozen
class NotSynced:
    """Something could not be read, for these reasons: the location is not marked as synced."""

    why: tuple[str, ...] = field(converter=as_tuple)


@frozen
class TooManyDropped:
    """The brake: more records would go than ``maxRemovals`` allows, so none goes. ``message`` has the numbers."""

    dropped: int
    records: int
    allowed: int
    message: str


@frozen
class SyncDecision:
    """The answer for every record of the location and every directory of its bucket, by name."""

    answers: tuple[SyncAnswer, ...] = field(converter=as_tuple)
    end: Synced | NotSynced | TooManyDropped


@frozen
class Questions:
    """What a pass must still read: ``stored`` directories, ``looks`` at records' directories, records to ``finish``."""

    stored: tuple[str, ...] = field(default=(), converter=as_tuple)
    looks: tuple[str, ...] = field(default=(), converter=as_tuple)
    finish: tuple[Backup, ...] = field(default=(), converter=as_tuple)


REPORTED = frozenset(
    {
        Reason.NO_METADATA,
        Reason.METADATA_CORRUPT,
        Reason.METADATA_MISSING,
        Reason.NAME_INVALID,
        Reason.NAME_MISMATCH,
        Reason.OTHER_LOCATION,
        Reason.HOLD_FILE_FOREIGN,
        Reason.UNREADABLE,
        Reason.BRAKE,
        Reason.LISTING_EMPTY,
    }
)
"""Reasons of answers that a person should hear of; the others are the ordinary course."""


# The pass


def questions(facts: SyncFacts, *, now: datetime) -> Questions:
    """What to read before ``compare`` can answer. Nothing is read for a record that is there and settled."""
    pass_ = _Pass(facts)
    mirrors = {r.name for r in pass_.own if pass_.mirror_due(r) and pass_.may_mirror(r)}
    looks = mirrors | set(pass_.suspects_to_look_at(now))
    finish = sorted((r for r in pass_.own if _is_incomplete(r)), key=lambda record: record.ref)
    readable = not isinstance(facts.listing, UnavailableListing)
    stored = sorted(filter(is_object_name, pass_.unrecorded()))
    return Questions(stored, sorted(looks), finish if readable else [])


def compare(facts: SyncFacts, *, now: datetime) -> SyncDecision:
    """Answer for every directory of the bucket and every record of the location, in whatever order the facts come."""
    pass_ = _Pass(facts)
    if isinstance(facts.listing, UnavailableListing):
        return SyncDecision([], NotSynced([f"{facts.location.place} could not be listed: {facts.listing.why}"]))
    brake = pass_.brake(now)
    answers = [
        *(pass_.directory(name, now) for name in pass_.unrecorded()),
        *(pass_.hidden(record) for record in pass_.elsewhere),
        *(pass_.present(record) for record in pass_.own if pass_.is_listed(record)),
        *(pass_.absent(record, brake, now) for record in pass_.own if not pass_.is_listed(record)),
    ]
    ordered = sorted(answers, key=lambda answer: answer.ref)
    return SyncDecision(ordered, brake if isinstance(brake, TooManyDropped) else _end(facts.listing, ordered))


def _end(listing: BucketListing, answers: Iterable[SyncAnswer]) -> Synced | NotSynced:
    partial = [f"the listing broke off: {listing.why}"] if isinstance(listing, PartialListing) else []
    open_ = {Reason.UNREADABLE, Reason.NOT_EXAMINED}
    unread = [f"{answer.ref.name}: {answer.message}" for answer in answers if answer.reason in open_]
    return NotSynced([*partial, *unread]) if partial or unread else Synced()


class _Pass:
    """The facts of a pass, by name."""

    def __init__(self, facts: SyncFacts) -> None:
        here = facts.location.name
        self.facts = facts
        self.names: frozenset[str] = (
            frozenset() if isinstance(facts.listing, UnavailableListing) else facts.listing.names
        )
        self.own = [record for record in facts.records if record.storage_location == here]
        self.elsewhere = [r for r in facts.records if r.storage_location != here and r.name in self.names]
        self.stored = {each.name: each for each in facts.stored}
        self.looks = {look.name: look for look in facts.looks}

    def unrecorded(self) -> frozenset[str]:
        """The directories that no record of the namespace stands for."""
        return self.names - {record.name for record in self.facts.records}

    def is_listed(self, record: Backup) -> bool:
        return record.name in self.names

    # Directories

    def directory(self, name: str, now: datetime) -> SyncAnswer:
        """Answer for a directory that has no record."""
        ref, found = self.facts.home.ref(name), self.stored.get(name)
        if not is_object_name(name):
            return Leave(ref, Reason.NAME_INVALID, f"directory {name!r} is not a name that a backup can have")
        match found:
            case None:
                return Leave(ref, Reason.NOT_EXAMINED, "its metadata was not read in this pass")
            case StoredFault(fault=fault):
                return self._fault(ref, fault)
            case StoredBackup():
                return self._stored(ref, found, now)
            case _:
                assert_never(found)

    def _fault(self, ref: ObjectRef, fault: MetadataAbsent | MetadataCorrupt | DirectoryUnreadable) -> Leave:
        key = self.facts.home.layout.metadata_key(ref.name)
        match fault:
            case MetadataAbsent():
                return Leave(ref, Reason.NO_METADATA, f"the directory has no {key}, so it is no backup")
            case MetadataCorrupt(why):
                return Leave(ref, Reason.METADATA_CORRUPT, f"{key} cannot be read: {why}; repair or remove it")
            case DirectoryUnreadable(why):
                return Leave(ref, Reason.UNREADABLE, f"{key} could not be fetched: {why}")
            case _:
                assert_never(fault)

    def _stored(self, ref: ObjectRef, stored: StoredBackup, now: datetime) -> SyncAnswer:
        named, phase, end = document_name(stored.document), stored.record.phase, stored.record.expiration
        if named != ref.name:
            why = f"its metadata names the backup {named!r}: a record of that name would point at another directory"
            return Leave(ref, Reason.NAME_MISMATCH, why)
        unfinished = phase in UNFINISHED
        if unfinished and (end is None or now < end):
            until = f"until it expires at {format_instant(end)}" if end else "as it never expires"
            return Leave(ref, Reason.BACKUP_IN_PROGRESS, f"it is stored in phase {phase or 'New'}, and left {until}")
        step = self._record(stored, "PartiallyFailed" if unfinished else "", now)
        return Create(ref, Reason.IN_BUCKET, f"it is in {self.facts.location.place} and has no record here", [step])

    def _record(self, stored: StoredBackup, phase: str, now: datetime) -> CreateRecord:
        """The record to create, with all its bookkeeping in it, so that a crash right after loses nothing."""
        mirrored = {HOLD_MIRRORED: stored.hold_sha256} if stored.hold_sha256 else {}
        incomplete = {} if _has_no_volumes(stored.volumes) else {SYNC_INCOMPLETE: "true"}
        since = now if stored.first_synced is None else min(stored.first_synced, now)
        annotations = {SYNCED_AT: format_instant(since), **mirrored, **incomplete}
        return backup_record(stored.document, self.facts.home, annotations=annotations, hold=stored.hold, phase=phase)

    # Records that the bucket lists

    def hidden(self, record: Backup) -> SyncAnswer:
        """Answer for a directory whose name is taken by a record of another location."""
        why = (
            f"{self.facts.location.place} has a backup of this name as well, but the record belongs to location "
            f"{record.storage_location or '(none)'}: one of the two has no record here"
        )
        return Leave(record.ref, Reason.OTHER_LOCATION, why)

    def present(self, record: Backup) -> SyncAnswer:
        """Answer for a record whose directory is there."""
        if _is_incomplete(record):
            return Leave(record.ref, Reason.SYNC_INCOMPLETE, "its pod volume backups are not all here yet")
        answer = self._mirrored(record)
        return _found_again(record, answer) if METADATA_MISSING in record.meta.labels else answer

    def _mirrored(self, record: Backup) -> Leave:
        settled = Leave(record.ref, Reason.RECORDED, "the record is there")
        look = self.looks.get(record.name)
        if look is None or not self.mirror_due(record) or not self.may_mirror(record):
            return settled
        match look.directory:
            case DirectoryUnreadable(why):
                return Leave(record.ref, Reason.UNREADABLE, f"its hold could not be mirrored: {why}")
            case Directory(metadata=MetadataPresent(started)) as directory if started == record.started:
                return self._mirror(record, directory)
            case Directory():
                return settled  # another backup's directory: its hold is not this record's to write
            case _:
                assert_never(look.directory)

    def mirror_due(self, record: Backup) -> bool:
        """Whether the hold file must be looked at: a hold was not seen in it yet, or a lifted one may be left in it.

        What an annotation says of the file is no reason not to look: whoever may patch records can write it.
        """
        if hold_content(record):
            return mirror_of(record) not in self.facts.mirrored
        return HOLD_MIRRORED in record.meta.annotations

    def may_mirror(self, record: Backup) -> bool:
        """Whether a record's hold may be written to, or taken from, its directory now."""
        location = self.facts.location
        at_work = record.meta.terminating or record.phase == "Deleting" or record.phase in UNFINISHED
        return self.is_listed(record) and location.available and not location.read_only and not at_work

    def _mirror(self, record: Backup, directory: Directory) -> Leave:
        """Bring the hold file to what the record says: first the file, then the mark, so that a crash is mended.

        Only a file that was written for this very record, and that nobody changed since, is changed or removed.
        """
        wanted, file, mark = hold_content(record), directory.hold_sha256, record.meta.annotations.get(HOLD_MIRRORED, "")
        key, own = self.facts.home.layout.hold_key(record.name), directory.hold_of == record.meta.uid != ""
        changeable = not file or (own and file == mark)
        foreign = f"{key} was not written for this record, or changed since: it holds until it is removed by hand"
        if not wanted:
            removal: list[Step] = [DeleteFile(self.facts.location.name, key)] if file and changeable else []
            reason, why = (Reason.RECORDED, "") if changeable else (Reason.HOLD_FILE_FOREIGN, f", but {foreign}")
            return Leave(record.ref, reason, f"its hold was lifted{why}", [*removal, _mark(record, "")])
        if file and dict(directory.hold) == hold_document(record.meta.annotations):
            marking = [] if file == mark else [_mark(record, file)]
            return Leave(record.ref, Reason.RECORDED, f"its hold is mirrored in {key}", marking)
        if not changeable:
            return Leave(record.ref, Reason.HOLD_FILE_FOREIGN, f"its hold is another: {foreign}")
        steps = [WriteHoldFile(self.facts.location.name, key, wanted), _mark(record, _sha256(wanted))]
        return Leave(record.ref, Reason.RECORDED, f"its hold is mirrored to {key}", steps)

    # Records that the bucket does not list

    def absent(self, record: Backup, brake: TooManyDropped | None, now: datetime) -> SyncAnswer:
        """Answer for a record of this location whose directory was not seen."""
        stop = self._stop(record, now)
        if stop is not None:
            return Leave(record.ref, *stop)
        if METADATA_MISSING in record.meta.labels:
            return Leave(record.ref, Reason.METADATA_MISSING, _LAST_POINTER)
        look = self.looks.get(record.name)
        if brake is not None and not self._is_pointer(record):
            return Leave(record.ref, Reason.BRAKE, brake.message)
        return self._looked(record, look)

    def _stop(self, record: Backup, now: datetime) -> tuple[Reason, str] | None:
        """Why a record stays without a further look; None for a suspect."""
        hold = hold_of(record.meta.annotations, now=now)
        if record.meta.terminating:
            return (Reason.DELETING, "the record is being deleted already")
        if record.phase not in DROPPED_PHASES:
            return (
                Reason.PHASE_NOT_DROPPED,
                f"it is not in the bucket, but a record in phase {record.phase or 'New'} stays",
            )
        if isinstance(self.facts.listing, PartialListing):
            return (
                Reason.OBSERVATION_INCOMPLETE,
                f"the listing broke off, so it may be there: {self.facts.listing.why}",
            )
        if not self.names:
            return (
                Reason.LISTING_EMPTY,
                f"{self.facts.location.place} lists no backup at all: nothing is dropped for that",
            )
        if isinstance(hold, Held):
            return (Reason.HELD, f"it is not in the bucket, but {hold.sentence()}")
        return None

    def _looked(self, record: Backup, look: Look | None) -> SyncAnswer:
        if look is None:
            return Leave(record.ref, Reason.NOT_EXAMINED, "it is not in the listing; a second look comes later")
        match look.directory:
            case DirectoryUnreadable(why):
                return Leave(record.ref, Reason.UNREADABLE, f"it is not in the listing; the second look failed: {why}")
            case Directory(metadata=MetadataAbsent()):
                return self._gone(record)
            case Directory():
                return Leave(
                    record.ref, Reason.LISTED_AFTER_ALL, "its metadata file is there, though it was not listed"
                )
            case _:
                assert_never(look.directory)

    def _gone(self, record: Backup) -> SyncAnswer:
        version = record.meta.resource_version
        if self._is_pointer(record):
            step = ChangeMetadata(record.ref, version, labels={METADATA_MISSING: "true"})
            return Leave(record.ref, Reason.METADATA_MISSING, _LAST_POINTER, [step])
        why = f"its metadata is not in {self.facts.location.place} any more, and it points at nothing else"
        return Drop(record.ref, Reason.NOT_IN_BUCKET, why, [DeleteObject(record.ref, version)])

    def _is_pointer(self, record: Backup) -> bool:
        """Whether a record is the last that knows of data outside the bucket, as far as is known."""
        look = self.looks.get(record.name)
        return _claims_data(record) or (look is not None and any(map(_exists, look.items)))

    # The brake

    def _suspects(self, now: datetime) -> list[Backup]:
        """The records that may go as far as is known without a look, in order."""
        absent = [r for r in self.own if not self.is_listed(r) and METADATA_MISSING not in r.meta.labels]
        return sorted((r for r in absent if self._stop(r, now) is None), key=lambda record: record.ref)

    def _may_go(self, record: Backup) -> bool:
        """Whether a suspect counts for the brake: what was not looked at does, as it may be gone."""
        look = self.looks.get(record.name)
        there = look is not None and isinstance(look.directory, Directory) and not _is_absent(look.directory)
        return not there and not self._is_pointer(record)

    def _allowed(self) -> int:
        return PruneLimits(self.facts.max_removals).allowed(len(self.own))

    def brake(self, now: datetime) -> TooManyDropped | None:
        """The brake, when more would go than is allowed; None when it does not trip."""
        going, total, allowed = sum(map(self._may_go, self._suspects(now))), len(self.own), self._allowed()
        if going <= allowed:
            return None
        limit = PruneLimits(self.facts.max_removals)
        message = (
            f"would drop {going} of {total} records ({going * 100 // total} %), limit {limit}: "
            "raise `sync.maxRemovals` or drop them by name"
        )
        return TooManyDropped(going, total, allowed, message)

    def suspects_to_look_at(self, now: datetime) -> list[str]:
        """Every last pointer, and of the other suspects one more than may go: if those are gone, no more is asked."""
        suspects = self._suspects(now)
        pointers = [record.name for record in suspects if _claims_data(record)]
        others = [record.name for record in suspects if not _claims_data(record)]
        return [*pointers, *others[: self._allowed() + 1]]


_LAST_POINTER = "its metadata is not in the bucket any more, but it is the last that points at its data: it stays"


def _found_again(record: Backup, answer: Leave) -> Leave:
    """Take the label ``metadata-missing`` off a record whose directory is back, in the one patch that there may be."""
    patches = [step for step in answer.steps if isinstance(step, ChangeMetadata)]
    others = [step for step in answer.steps if not isinstance(step, ChangeMetadata)]
    patch = patches[0] if patches else ChangeMetadata(record.ref, record.meta.resource_version)
    message = f"its directory is back; {answer.message}"
    return evolve(answer, message=message, steps=[*others, evolve(patch, without_labels=[METADATA_MISSING])])


def _claims_data(record: Backup) -> bool:
    """Whether a record itself says that it points at data. One whose pod volume backups are not here yet may."""
    claimed = record.native_claim or record.csi_claim or record.legacy_snapshots or record.operations_attempted
    return bool(claimed) or record.moves_data or _is_incomplete(record)


def _exists(item: Item) -> bool:
    """Whether an item stands for data: a native snapshot that was recorded without an id was never taken."""
    return not isinstance(item, NativeSnapshot) or bool(item.id)


def _is_absent(directory: Directory) -> bool:
    return isinstance(directory.metadata, MetadataAbsent)


def _has_no_volumes(volumes: Volumes) -> bool:
    return isinstance(volumes, ListAbsent) or volumes == VolumesRead()


def _is_incomplete(record: Backup) -> bool:
    return SYNC_INCOMPLETE in record.meta.annotations and not record.meta.terminating


# The mirrored hold


def hold_content(record: Backup) -> str:
    """What the hold file of a record must say: JSON with sorted keys and a final newline; empty without a hold."""
    document = hold_document(record.meta.annotations)
    if not document:
        return ""
    return json.dumps({**document, MIRRORED_FROM: record.meta.uid}, sort_keys=True, ensure_ascii=False) + "\n"


def _sha256(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def mirror_of(record: Backup) -> str:
    """The hold of one very record, by which a process remembers that it saw it in its file."""
    return f"{record.meta.uid}/{_sha256(hold_content(record))}"


def mirrored_holds(facts: SyncFacts) -> frozenset[str]:
    """The holds of the location's records that are known to be in their files after the looks of this pass."""
    looks = {look.name: look.directory for look in facts.looks}
    held = [r for r in facts.records if r.storage_location == facts.location.name and hold_content(r)]
    return frozenset(
        mirror_of(record)
        for record in held
        if mirror_of(record) in facts.mirrored or _shows_hold(looks.get(record.name), record)
    )


def _shows_hold(directory: Directory | DirectoryUnreadable | None, record: Backup) -> bool:
    return (
        isinstance(directory, Directory)
        and directory.metadata == MetadataPresent(record.started)
        and dict(directory.hold) == hold_document(record.meta.annotations)
    )


def adopt_hold(record: Backup, stored: StoredBackup, location: StorageLocation, layout: Layout) -> tuple[Step, ...]:
    """The hold file becomes that of the record which sync has just created, so that lifting the hold lifts it too.

    Only one in which the hold of another record was mirrored: one that was put there by hand is nobody's.
    """
    mirrored = dict(stored.hold) == hold_document(record.meta.annotations)
    if not stored.hold_of or not mirrored or location.read_only:
        return ()
    content = hold_content(record)
    return (WriteHoldFile(location.name, layout.hold_key(record.name), content), _mark(record, _sha256(content)))


def _mark(record: Backup, digest: str) -> ChangeMetadata:
    version = record.meta.resource_version
    if digest:
        return ChangeMetadata(record.ref, version, annotations={HOLD_MIRRORED: digest})
    return ChangeMetadata(record.ref, version, without_annotations=[HOLD_MIRRORED])


# Pod volume backups


@frozen
class Finishing:
    """What completes a record: ``creates`` first, and when all of them succeeded (or were there), ``then``."""

    reason: Reason
    message: str
    creates: tuple[CreateRecord, ...] = field(default=(), converter=as_tuple)
    then: tuple[Step, ...] = field(default=(), converter=as_tuple)


def finish(record: Backup, volumes: Volumes, existing: Iterable[str], home: RecordHome) -> Finishing:
    """Bring a record's pod volume backups along, and take ``reprieve.dev/sync-incomplete`` off once they are there.

    ``existing`` are the names of the pod volume backups in the namespace: none of them is written again.
    """
    match volumes:
        case VolumesRead(documents):
            return _finish(record, documents, frozenset(existing), home)
        case ListAbsent():
            return Finishing(Reason.RECORDED, "it has no pod volume backups", then=[_complete(record)])
        case ListCorrupt(key, why):
            return Finishing(Reason.LIST_CORRUPT, f"{key} cannot be read: {why}; the record stays incomplete")
        case DirectoryUnreadable(why):
            return Finishing(Reason.UNREADABLE, f"its pod volume backups could not be read: {why}")
        case _:
            assert_never(volumes)


def _finish(
    record: Backup, documents: Iterable[Mapping[str, Any]], existing: frozenset[str], home: RecordHome
) -> Finishing:
    ended = [document for document in documents if is_ended_volume(document) and belongs_to(document, record)]
    mine = {document_name(document): document for document in ended if is_object_name(document_name(document))}
    missing = [mine[name] for name in sorted(mine.keys() - existing)]
    message = f"{len(missing)} of {len(mine)} pod volume backups are still to be created"
    creates = [volume_record(document, home, record) for document in missing]
    return Finishing(Reason.SYNC_INCOMPLETE if missing else Reason.RECORDED, message, creates, [_complete(record)])


def _complete(record: Backup) -> ChangeMetadata:
    return ChangeMetadata(record.ref, record.meta.resource_version, without_annotations=[SYNC_INCOMPLETE])
