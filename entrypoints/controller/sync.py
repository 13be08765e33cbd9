"""The sync controller: one reconcile takes one pass over one location, when its period has passed.

Records follow the bucket by the rules of ``core.sync``; ``syncing`` takes the pass. ``lastSyncedTime`` is written when
the bucket was seen whole and every step went through, and at no other time. Where a bucket could not be read, or the
brake tripped, the next look comes a period later, or when the location changes.

Guarantee: killed after any effect, the next pass ends in the same state; a pass over a settled location writes
``lastSyncedTime`` and nothing else. Not guaranteed: that a change in the bucket is seen before the period has passed.
Ark has no location object: its period is counted from this process' own last pass.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import assert_never

import structlog
from attrs import evolve, field, frozen

from reprieve.adapters.k8s.dialect import FixedLocations, ServedLocations
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import ConflictError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef
from reprieve.core.ports import Cluster
from reprieve.core.pruning import Count, Percentage, read_limit
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.steps import Step, StepResult
from reprieve.core.sync import (
    REPORTED,
    CompleteListing,
    Create,
    Drop,
    Leave,
    NotSynced,
    SyncAnswer,
    Synced,
    SyncLater,
    SyncNow,
    SyncOff,
    TooManyDropped,
    sync_time,
)
from reprieve.core.values import format_instant
from reprieve.entrypoints.configuration import SyncSettings
from reprieve.entrypoints.controller.decisions import Decision, Result, Standing
from reprieve.entrypoints.controller.effects import Effects
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.controller.runtime import Watch
from reprieve.entrypoints.controller.syncing import Answered, Carried, Finished, LocationSync, Pass, SyncMemory

NAME = "sync"
STAMP_TRIES = 5
OF_THE_LOCATION = frozenset({Reason.BRAKE, Reason.LISTING_EMPTY})
"""Reasons that concern every record alike: they are told once, of the location."""
log = structlog.get_logger()


class LastLooks:
    """When locations were last looked at, where ``lastSyncedTime`` does not tell, and what was said of them then."""

    def __init__(self) -> None:
        """Know of none."""
        self._looks: dict[StorageLocation, datetime] = {}
        self._said: dict[str, frozenset[tuple[str, str]]] = {}
        self._lock = threading.Lock()

    def note(self, location: StorageLocation, now: datetime) -> None:
        """Remember a look. A location that is changed later is another one."""
        with self._lock:
            self._looks = {each: at for each, at in self._looks.items() if each.name != location.name}
            self._looks[_as_specified(location)] = now

    def known(self, location: StorageLocation) -> StorageLocation:
        """The location as if its ``lastSyncedTime`` told of that look too."""
        with self._lock:
            times = [self._looks.get(_as_specified(location)), location.last_synced]
        return evolve(location, last_synced=max((each for each in times if each is not None), default=None))

    def news(self, location: StorageLocation, decisions: tuple[Decision, ...]) -> list[Decision]:
        """The decisions that were not made in the last pass as well."""
        with self._lock:
            before = self._said.get(location.name, frozenset())
            self._said[location.name] = frozenset(map(_sentence, decisions))
        return [decision for decision in decisions if _sentence(decision) not in before]


def _sentence(decision: Decision) -> tuple[str, str]:
    return (decision.ref.key, decision.message)


def _as_specified(location: StorageLocation) -> StorageLocation:
    return evolve(location, last_synced=None, meta=ObjectMeta(""))


@frozen
class SyncReconciler:
    """Lets records follow buckets. A key is the name of a location."""

    reader: BackupReader
    cluster: Cluster
    effects: Effects
    settings: SyncSettings
    stop: threading.Event = field(factory=threading.Event)
    looks: LastLooks = field(factory=LastLooks)
    memory: SyncMemory = field(factory=SyncMemory)

    name: str = NAME

    @property
    def max_removals(self) -> Count | Percentage:
        """The limit as the configuration says it: a share, or plain digits for a number."""
        written = self.settings.max_removals
        return read_limit(int(written) if written.isdecimal() else written, where="backups.sync.maxRemovals")

    def keys(self) -> list[str]:
        """Every location, the default one first: where two buckets have a backup of one name, it is the one to win."""
        locations = sorted(self.reader.storage_locations(), key=lambda each: (not each.default, each.name))
        return [each.name for each in locations]

    def watches(self) -> list[Watch]:
        """A location that is new, changed, or available again is looked at as soon as its period allows."""
        match self.reader.dialect.locations:
            case FixedLocations():
                return []
            case ServedLocations(kind):
                return [Watch(kind, lambda r, removed: [] if removed else [r.meta.name], self.reader.namespace)]
            case _:
                assert_never(self.reader.dialect.locations)

    def reconcile(self, key: str, *, now: datetime, apply: bool = True) -> Result:
        """Take one pass over a location if it is due. Raises core errors."""
        location = self.reader.location(key)
        if not isinstance(location, StorageLocation):
            return Result()
        match sync_time(self.looks.known(location), self.settings.interval, now=now):
            case SyncOff():
                return Result()
            case SyncLater(at):
                return Result(again=at)
            case SyncNow():
                return self._due(location, now=now, apply=apply)

    def _due(self, location: StorageLocation, *, now: datetime, apply: bool) -> Result:
        if not location.available:
            message = f"storage location {location.name} is not available: nothing is created or dropped for it"
            decision = self._of_location(location, Reason.LOCATION_UNAVAILABLE, message)
            self._log(location, (decision,))
            return Result((decision,), again=self._next(location, now))
        sync = LocationSync(self.reader, self.effects, location, self.max_removals, self.stop, self.memory)
        done = sync.run(now=now, apply=apply)
        unstamped = self._noted(location, done, now) if apply else ()
        decisions = (*self._decisions(location, done, apply=apply), *unstamped)
        self._log(location, decisions)
        return Result(decisions, done.changed, self._next(location, now))

    def _next(self, location: StorageLocation, now: datetime) -> datetime | None:
        """When the location is due again; in a local run with a clock that stands still, never."""
        following = sync_time(evolve(location, last_synced=now), self.settings.interval, now=now)
        return following.at if isinstance(following, SyncLater) else None

    # What is remembered of a pass

    def _noted(self, location: StorageLocation, done: Pass, now: datetime) -> tuple[Decision, ...]:
        """Note a pass. Where its time cannot be written, what was done stays told, and the next look waits as well."""
        try:
            self._note(location, done, now)
        except (ConflictError, NotFoundError):
            raise
        except ReprieveError as fault:
            self.looks.note(location, now)
            message = f"status.lastSyncedTime could not be written: {fault}"
            return (self._of_location(location, Reason.FAILED, message, standing=Standing.FAILED),)
        return ()

    def _note(self, location: StorageLocation, done: Pass, now: datetime) -> None:
        """Stamp a location that is synced; remember a look that another one at once would not better."""
        served = isinstance(self.reader.dialect.locations, ServedLocations)
        match done.decision.end:
            case Synced() if not done.whole:
                return
            case Synced() if served:
                self._stamp(location, now)
            case Synced() | NotSynced() | TooManyDropped():
                self.looks.note(location, now)
            case _:
                assert_never(done.decision.end)

    def _stamp(self, location: StorageLocation, now: datetime) -> None:
        """Write ``lastSyncedTime``. A location that points elsewhere by now was not synced."""
        patch = {"status": {"lastSyncedTime": format_instant(now)}}
        live = location
        for _ in range(STAMP_TRIES):
            try:
                self.cluster.patch(self._ref(live), patch, resource_version=live.meta.resource_version)
            except ConflictError:
                found = self.reader.location(location.name)
                if not isinstance(found, StorageLocation) or _as_specified(found) != _as_specified(location):
                    return
                live = found
            else:
                return

    # Telling

    def _decisions(self, location: StorageLocation, done: Pass, *, apply: bool) -> tuple[Decision, ...]:
        told = [_told(each, apply=apply) for each in done.answered if _is_news(each.answer)]
        finished = [_told_finished(each, apply=apply) for each in done.finished]
        return (*self._whole(location, done), *finished, *told)

    def _log(self, location: StorageLocation, decisions: tuple[Decision, ...]) -> None:
        """Log what was not said in the last pass too: a directory without metadata is no news every minute."""
        for decision in self.looks.news(location, decisions):
            said = {"reason": decision.reason.value, "message": decision.message}
            level = log.info if decision.steps and decision.standing is Standing.SETTLED else log.warning
            level("sync decided", **self._fields(location), object=decision.ref.key, **said)

    def _whole(self, location: StorageLocation, done: Pass) -> list[Decision]:
        """What there is to say of the location as a whole."""
        match done.decision.end:
            case TooManyDropped(message=message):
                return [self._of_location(location, Reason.BRAKE, message, standing=Standing.WAITING)]
            case NotSynced(why):
                return [self._of_location(location, Reason.UNREADABLE, _summary(why))]
            case Synced() if done.listing == CompleteListing() and done.records:
                message = f"{location.place} lists no backup at all: none of {done.records} records is dropped for that"
                return [self._of_location(location, Reason.LISTING_EMPTY, message)]
            case Synced():
                return []
            case _:
                assert_never(done.decision.end)

    def _of_location(
        self, location: StorageLocation, reason: Reason, message: str, *, standing: Standing = Standing.SETTLED
    ) -> Decision:
        return Decision(NAME, self._ref(location), Verdict.KEEP, reason, message, standing=standing)

    def _ref(self, location: StorageLocation) -> ObjectRef:
        """The location's object. Ark has none; its one bucket goes by the name that core knows it by."""
        dialect = self.reader.dialect
        served = dialect.locations.storage if isinstance(dialect.locations, ServedLocations) else None
        kind = served or ObjectKind(dialect.backup_kind.api_version, "BackupStorageLocation")
        return ObjectRef(kind.api_version, kind.kind, location.name, self.reader.namespace, location.meta.uid)

    @staticmethod
    def _fields(location: StorageLocation) -> dict[str, str]:
        return {"controller": NAME, "location": location.name, "bucket": location.place}


def _summary(why: tuple[str, ...]) -> str:
    more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
    return f"not synced: {why[0]}{more}"


def _is_news(answer: SyncAnswer) -> bool:
    """Whether there is something to say: what is done, and what a person should hear of."""
    match answer:
        case Create() | Drop():
            return True
        case Leave(reason=reason, steps=steps):
            return bool(steps) or (reason in REPORTED and reason not in OF_THE_LOCATION)
        case _:
            assert_never(answer)


def _told(each: Answered, *, apply: bool) -> Decision:
    answer = each.answer
    verdict = Verdict.DELETE if isinstance(answer, Drop) else Verdict.KEEP
    return _decision(answer.ref, verdict, answer.reason, answer.message, _shown(answer.steps, each.carried, apply))


def _told_finished(each: Finished, *, apply: bool) -> Decision:
    finishing = each.finishing
    steps = _shown(each.steps, each.carried, apply)
    return _decision(each.record.ref, Verdict.KEEP, finishing.reason, finishing.message, steps)


def _shown(steps: tuple[Step, ...], carried: Carried, apply: bool) -> Carried | tuple[Step, ...]:  # noqa: FBT001
    return carried if apply else steps


def _decision(
    ref: ObjectRef, verdict: Verdict, reason: Reason, message: str, shown: Carried | tuple[Step, ...]
) -> Decision:
    steps: tuple[Step | StepResult, ...] = shown.results if isinstance(shown, Carried) else shown
    fault = shown.fault if isinstance(shown, Carried) else ""
    told = f"{message}; that failed: {fault}" if fault else message
    standing = Standing.FAILED if fault else Standing.SETTLED
    return Decision(NAME, ref, verdict, reason, told, steps, standing, subject=ref.name, changes=bool(steps))
