"""One pass over one location: list the bucket, read the records, read what they leave open, compare, carry out.

In that order: a deletion removes the metadata before the record, so metadata that is read after the records cannot
bring a deleted backup back.

Guarantee: the steps of one answer are carried out in their order, and end at the first that fails; other answers go on.
Nothing is downloaded for a record that is there and settled. Not guaranteed: that a pass which was stopped is whole; it
then says so, and the location is not marked as synced.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import partial

from attrs import evolve, field, frozen

from reprieve.core.backups import (
    SYNC_INCOMPLETE,
    SYNCED_AT,
    Backup,
    Directory,
    DirectoryUnreadable,
    Item,
    StorageLocation,
)
from reprieve.core.errors import ReprieveError
from reprieve.core.outcomes import AlreadyGone, Conflict, Done, Outcome, Pending, message_of
from reprieve.core.pruning import Count, Percentage
from reprieve.core.reasons import Reason
from reprieve.core.records import RecordHome
from reprieve.core.requests import Stage
from reprieve.core.steps import CreateRecord, Step, StepResult
from reprieve.core.sync import (
    BucketListing,
    CompleteListing,
    Create,
    Finishing,
    Look,
    StoredBackup,
    StoredFault,
    SyncAnswer,
    SyncDecision,
    SyncFacts,
    UnavailableListing,
    Volumes,
    adopt_hold,
    compare,
    finish,
    mirrored_holds,
    questions,
)
from reprieve.core.values import parse_instant
from reprieve.entrypoints.controller.effects import Effects, Places
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.controller.shelves import Shelves, in_parallel

STAGE = "sync"
STOPPED = DirectoryUnreadable("stopped before it was read")


def is_through(outcome: Outcome) -> bool:
    """Whether the step after this one may be carried out."""
    return isinstance(outcome, Done | AlreadyGone | Pending)


@frozen
class Carried:
    """What steps came to; ``planned`` are all that there were to carry out."""

    planned: tuple[Step, ...] = ()
    results: tuple[StepResult, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every step went through."""
        return len(self.results) == len(self.planned) and all(is_through(each.outcome) for each in self.results)

    @property
    def changed(self) -> bool:
        """Whether another pass is worth it: something was done, or somebody else was quicker."""
        return any(isinstance(each.outcome, Done | Conflict) for each in self.results)

    @property
    def fault(self) -> str:
        """What a step came to that another read does not mend; empty when there is none."""
        faults = (r.outcome for r in self.results if not is_through(r.outcome) and not isinstance(r.outcome, Conflict))
        return next(map(message_of, faults), "")


@frozen
class Answered:
    """An answer, and what its steps came to."""

    answer: SyncAnswer
    carried: Carried = field(factory=Carried)


@frozen
class Finished:
    """A record whose pod volume backups were brought along."""

    record: Backup
    finishing: Finishing
    carried: Carried = field(factory=Carried)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All its steps, in order."""
        return (*self.finishing.creates, *self.finishing.then)


@frozen
class Pass:
    """What a pass over a location came to."""

    listing: BucketListing
    decision: SyncDecision
    answered: tuple[Answered, ...] = ()
    finished: tuple[Finished, ...] = ()
    records: int = 0

    @property
    def whole(self) -> bool:
        """Whether every step went through, and everything that a record needs could be read."""
        read = all(each.finishing.reason is not Reason.UNREADABLE for each in self.finished)
        return read and all(each.whole for each in self._carried())

    @property
    def changed(self) -> bool:
        """Whether anything changed."""
        return any(each.changed for each in self._carried())

    def _carried(self) -> list[Carried]:
        return [*(each.carried for each in self.answered), *(each.carried for each in self.finished)]


class SyncMemory:
    """What this process saw: when sync first brought each backup's record, and which holds were in their files.

    A record that something keeps on taking away, and sync on creating, is not new each time: else its grace would be
    renewed for ever. What is remembered is bounded. Safe for threads.
    """

    def __init__(self, limit: int = 100_000) -> None:
        """Remember the first time of at most ``limit`` backups."""
        self._limit = limit
        self._first: OrderedDict[tuple[str, str, datetime | None], datetime] = OrderedDict()
        self._holds: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

    def note_records(self, location: StorageLocation, records: Iterable[Backup]) -> None:
        """Take in what the records that sync created say of when."""
        for record in records:
            if record.storage_location == location.name:
                self._note(location, record, parse_instant(record.meta.annotations.get(SYNCED_AT)))

    def note_created(self, location: StorageLocation, stored: StoredBackup, answer: Create) -> None:
        """Take in a record that was created: it may be gone before the next pass sees it."""
        for step in answer.steps:
            if isinstance(step, CreateRecord):
                self._note(location, stored.record, parse_instant(step.manifest["metadata"]["annotations"][SYNCED_AT]))

    def _note(self, location: StorageLocation, record: Backup, at: datetime | None) -> None:
        if at is None:
            return
        key = (location.name, record.name, record.started)
        with self._lock:
            self._first[key] = min(at, self._first.get(key, at))
            self._first.move_to_end(key)
            while len(self._first) > self._limit:
                self._first.popitem(last=False)

    def dated(self, location: StorageLocation, stored: StoredBackup | StoredFault) -> StoredBackup | StoredFault:
        """A directory with the time at which sync first brought its record, where that is known."""
        if isinstance(stored, StoredFault):
            return stored
        with self._lock:
            first = self._first.get((location.name, stored.name, stored.record.started))
        return evolve(stored, first_synced=first)

    def holds(self, location: StorageLocation) -> frozenset[str]:
        """The holds that were seen in their files."""
        with self._lock:
            return self._holds.get(location.name, frozenset())

    def note_holds(self, location: StorageLocation, holds: frozenset[str]) -> None:
        """Know these of a location, and no others."""
        with self._lock:
            self._holds[location.name] = holds


@frozen
class LocationSync:
    """Takes passes over one location."""

    reader: BackupReader
    effects: Effects
    location: StorageLocation
    max_removals: Count | Percentage
    stop: threading.Event = field(factory=threading.Event)
    memory: SyncMemory = field(factory=SyncMemory)

    def run(self, *, now: datetime, apply: bool) -> Pass:
        """Take one pass; with ``apply`` off, only decide. Raises core errors when the cluster cannot be read."""
        shelves = self._shelves()
        listing = shelves.listing() if isinstance(shelves, Shelves) else shelves
        facts = self._facts(listing)
        if not isinstance(shelves, Shelves) or isinstance(listing, UnavailableListing):
            return Pass(listing, compare(facts, now=now))
        finished = self._finish_all(facts, shelves, now=now, apply=apply)
        if any(each.carried.changed for each in finished):
            facts = evolve(facts, records=self.reader.backups())
        self.memory.note_records(self.location, facts.records)
        facts = self._read_on(facts, shelves, now)
        self.memory.note_holds(self.location, mirrored_holds(facts))
        decision = compare(facts, now=now)
        answered = self._carry_out(decision, facts) if apply else tuple(Answered(a) for a in decision.answers)
        own = sum(record.storage_location == self.location.name for record in facts.records)
        return Pass(listing, decision, answered, finished, own)

    # Gathering

    def _shelves(self) -> Shelves | UnavailableListing:
        try:
            return Shelves(self.reader.store(self.location), self.reader.dialect)
        except ReprieveError as fault:
            return UnavailableListing(str(fault))

    def _facts(self, listing: BucketListing) -> SyncFacts:
        """The records come after the listing."""
        records = () if isinstance(listing, UnavailableListing) else self.reader.backups()
        mirrored = self.memory.holds(self.location)
        return SyncFacts(
            self.location, self._home(), listing, records, max_removals=self.max_removals, mirrored=mirrored
        )

    def _home(self, schedules: Iterable[object] = ()) -> RecordHome:
        dialect = self.reader.dialect
        name = self.location.name if dialect.layout.located else ""
        return RecordHome(dialect.backup_kind, self.reader.namespace, name, dialect.layout, schedules)

    def _read_on(self, facts: SyncFacts, shelves: Shelves, now: datetime) -> SyncFacts:
        """Read what ``questions`` asks for, and nothing else."""
        asked = questions(facts, now=now)
        home = self._home(self.reader.schedules()) if asked.stored else facts.home
        listed = facts.listing.names if isinstance(facts.listing, CompleteListing) else frozenset(asked.looks)
        items, unread = self._live([name for name in asked.looks if name not in listed])
        read = partial(self._stored, shelves)
        directories = in_parallel(lambda name: unread.get(name) or self._look(name), asked.looks)
        looks = [Look(n, found, items.get(n, ())) for n, found in zip(asked.looks, directories, strict=True)]
        stored = [self.memory.dated(self.location, each) for each in in_parallel(read, asked.stored)]
        return evolve(facts, home=home, stored=stored, looks=looks)

    def _live(self, names: Collection[str]) -> tuple[Mapping[str, tuple[Item, ...]], Mapping[str, DirectoryUnreadable]]:
        """What live objects name for records that may go; where that cannot be told, why, which keeps them all."""
        try:
            live = self.reader.live(names)
        except ReprieveError as fault:
            return {}, dict.fromkeys(names, DirectoryUnreadable(f"what it points at cannot be listed: {fault}"))
        untold = {name: each.unlisted[0] for name, each in live.items() if each.unlisted}
        return {name: each.items for name, each in live.items()}, {
            name: DirectoryUnreadable(f"{each.what} cannot be listed: {each.why}") for name, each in untold.items()
        }

    def _look(self, name: str) -> Directory | DirectoryUnreadable:
        return STOPPED if self.stop.is_set() else self.reader.directory(self.location, name)

    def _stored(self, shelves: Shelves, name: str) -> StoredBackup | StoredFault:
        return StoredFault(name, STOPPED) if self.stop.is_set() else shelves.stored(name)

    # Records that came without all of their pod volume backups

    def _finish_all(self, facts: SyncFacts, shelves: Shelves, *, now: datetime, apply: bool) -> tuple[Finished, ...]:
        records = questions(facts, now=now).finish
        existing = self.reader.volume_names() if records else frozenset()
        return tuple(self._finish(each, shelves.volumes(each.name), existing, apply=apply) for each in records)

    def _finish(self, record: Backup, volumes: Volumes, existing: Iterable[str], *, apply: bool) -> Finished:
        finishing = finish(record, volumes, existing, self._home())
        found = Finished(record, finishing)
        return evolve(found, carried=self._steps(found.steps)) if apply else found

    # Carrying out

    def _carry_out(self, decision: SyncDecision, facts: SyncFacts) -> tuple[Answered, ...]:
        stored = {each.name: each for each in facts.stored if isinstance(each, StoredBackup)}
        incomplete = any(_is_incomplete(answer) for answer in decision.answers)
        existing = self.reader.volume_names() if incomplete else frozenset()
        busy = [answer for answer in decision.answers if answer.steps]
        done = in_parallel(lambda answer: self._answer(answer, stored, existing), busy)
        carried = {each.answer.ref: each for each in done}
        return tuple(carried.get(answer.ref, Answered(answer)) for answer in decision.answers)

    def _answer(self, answer: SyncAnswer, stored: Mapping[str, StoredBackup], existing: Iterable[str]) -> Answered:
        carried = self._steps(answer.steps)
        found = stored.get(answer.ref.name)
        if not (carried.whole and isinstance(answer, Create) and found is not None):
            return Answered(answer, carried)
        self.memory.note_created(self.location, found, answer)
        if not (found.hold_of or _is_incomplete(answer)):
            return Answered(answer, carried)
        record = self.reader.backup(answer.ref.name)
        if isinstance(record, Backup) and found.hold_of:
            adopting = self._steps(adopt_hold(record, found, self.location, self.reader.dialect.layout))
            carried = _both(carried, adopting)
            record = self.reader.backup(answer.ref.name) if adopting.changed else record
        if not carried.whole or not isinstance(record, Backup) or SYNC_INCOMPLETE not in record.meta.annotations:
            return Answered(answer, carried)  # somebody was quicker
        return Answered(answer, _both(carried, self._finish(record, found.volumes, existing, apply=True).carried))

    def _steps(self, steps: tuple[Step, ...]) -> Carried:
        """Carry out steps in their order, until one does not go through or a stop comes."""
        results: list[StepResult] = []
        for step in steps:
            done = self.effects.run(Stage(STAGE, [step]), Places({self.location.name: self.location}))
            results += [_settled(result) for result in done]
            if not done or not is_through(results[-1].outcome):
                break
        return Carried(steps, tuple(results))


def _both(first: Carried, second: Carried) -> Carried:
    return Carried((*first.planned, *second.planned), (*first.results, *second.results))


def _settled(result: StepResult) -> StepResult:
    """A pod volume backup that is there by now is as good as created."""
    step = result.step
    there = (
        isinstance(step, CreateRecord) and step.ref.kind == "PodVolumeBackup" and isinstance(result.outcome, Conflict)
    )
    return evolve(result, outcome=AlreadyGone()) if there else result


def _is_incomplete(answer: SyncAnswer) -> bool:
    """Whether an answer creates a record that pod volume backups belong to."""
    steps = answer.steps if isinstance(answer, Create) else ()
    manifests = [step.manifest for step in steps if isinstance(step, CreateRecord)]
    return any(SYNC_INCOMPLETE in manifest["metadata"].get("annotations", {}) for manifest in manifests)
