"""The protection controller: one reconcile takes one owner as far as it goes now.

gather -> decide -> apply -> record. The key is the owner, never an event. Our finalizer comes before anything else;
what is kept loses its reference, each with the resource version that was read, before the owner is released; what is
deleted is deleted by UID and version, after the owner was looked at once more. A conflict means another read.

Guarantee: killed after any effect, the next reconcile ends in the same state; a settled owner costs no read and no
write. Nothing is ever adopted, and no reference is ever written. Not guaranteed: what a finalizer cannot do (see
``reprieve.core.protection``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import structlog
from attrs import evolve

from reprieve.core.errors import ConflictError, ContainerMissingError, DeniedError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef, OwnerReference, Resource
from reprieve.core.outcomes import Conflict, Done, Outcome, Pending, Retryable, is_gone, message_of
from reprieve.core.ports import Cluster, EventSink
from reprieve.core.protection import (
    PROTECT,
    AbsentOwner,
    Dependent,
    Owner,
    PresentOwner,
    ProtectionDecision,
    RetryAfter,
    UnknownOwner,
    Wait,
    decide,
    is_asked,
    may_own,
    owner_of,
    recorded_owner,
)
from reprieve.core.requests import backoff
from reprieve.core.steps import AddFinalizer, DeleteObject, MarkOwner, Step, StepResult
from reprieve.core.values import later
from reprieve.entrypoints.configuration import ProtectionEntry
from reprieve.entrypoints.controller.decisions import Result
from reprieve.entrypoints.controller.dependents import DependentReader, place_of
from reprieve.entrypoints.controller.lists import DependentLists
from reprieve.entrypoints.controller.owners import (
    Key,
    Moments,
    OwnerIndex,
    ProtectedKind,
    ProtectedKinds,
    key_of,
    protected_kind,
)
from reprieve.entrypoints.controller.runtime import Watch
from reprieve.entrypoints.controller.telling import NAME, Events, Telling, record, telling
from reprieve.entrypoints.controller.writes import ObjectStep, Writer

ROUNDS = 6
LOOK_AGAIN = timedelta(seconds=30)
"""When a wait is looked at again, should no watch have told of its end."""
log = structlog.get_logger()


class ProtectionReconciler:
    """Works on owners of protected kinds."""

    name: str = NAME

    def __init__(
        self,
        cluster: Cluster,
        entries: Iterable[ProtectionEntry],
        *,
        events: EventSink,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make no call. ``clock`` gives monotonic seconds; after ``stop`` no effect begins."""
        self.kinds = ProtectedKinds(tuple(protected_kind(entry) for entry in entries))
        self._moments = Moments()
        self.owners = OwnerIndex(self._moments)
        lists = DependentLists(cluster, self.kinds, self._moments, clock=clock)
        self.reader = DependentReader(cluster, self.kinds, self.owners, lists, self._moments, clock=clock)
        self.events = Events(events)
        self._cluster, self._stop = cluster, stop or threading.Event()
        self._writer = Writer(cluster, self)
        # By UID and namespace: a vanished owner is looked for in each namespace whose dependents refer to its UID.
        self._told: dict[tuple[str, str], Telling] = {}
        self._done: dict[tuple[str, str], dict[Step, StepResult]] = {}

    # Keys

    def keys(self) -> Sequence[Key]:
        """Every owner, and every owner that something refers to though it is not there; read afresh.

        A kind that cannot be listed is a key of its own: its reconcile tells why, and takes no other along.
        """
        self.reader.refresh()
        present, listed = self._list_owners()
        return [*present, *self._lost_keys(listed)]

    def _list_owners(self) -> tuple[list[Key], list[ProtectedKind]]:
        keys: list[Key] = []
        listed: list[ProtectedKind] = []
        carrying: list[Resource] = []
        for kind in self.kinds.kinds:
            begun = self._moments.next()
            try:
                found = self._cluster.list(kind.owner, metadata_only=True).items
            except ContainerMissingError as fault:
                log.warning("protected kind is not served", kind=str(kind.owner), fault=str(fault))
            except ReprieveError:
                keys.append(Key(kind.owner))
            else:
                self.owners.replace(kind.owner, found, begun=begun)
                listed.append(kind)
                keys += sorted(map(key_of, found))
                carrying += found if kind.carries else ()
        self.reader.carried.learn(carrying)
        return keys, listed

    def _lost_keys(self, listed: Iterable[ProtectedKind]) -> list[Key]:
        """The owners that a dependent refers to, and that no list shows."""
        keys: set[Key] = set()
        for kind in listed:
            for dependents in self.reader.scanned(kind):
                try:
                    found = self._scan(dependents, kind)
                except ReprieveError:
                    keys.add(Key(dependents))
                    continue
                keys |= {key for each in found for key in self._dangling(each.meta, kind)}
        return sorted(keys)

    def _scan(self, dependents: ObjectKind, kind: ProtectedKind) -> Sequence[Resource]:
        """All of a kind that refers to owners. What only owners brought up, whoever may make some, fails quietly."""
        try:
            return self.reader.lists.everything(dependents)
        except ContainerMissingError:
            return ()
        except DeniedError as fault:
            if dependents in kind.dependents:
                raise
            self.reader.carried.deny(dependents, fault)
            return ()

    def _dangling(self, dependent: ObjectMeta, kind: ProtectedKind) -> list[Key]:
        """The keys of owners of a kind that a dependent refers to and that are not known."""
        unknown = [each for each in dependent.owners if each.uid and self.owners.by_uid(each.uid) is None]
        mine = [each for each in unknown if self.kinds.of(each.type) is kind]
        return [key for each in mine for key in self._lost_key(dependent, each, kind)]

    def _lost_key(self, dependent: ObjectMeta, owner: OwnerReference, kind: ProtectedKind) -> list[Key]:
        try:
            place = place_of(self._cluster, kind.owner, dependent.namespace)
        except ReprieveError:
            return []
        # A cluster-scoped dependent of an owner in a namespace refers to nothing that there could be.
        return [Key(kind.owner, place or "", owner.name, owner.uid)]

    # Watches

    def watches(self) -> Sequence[Watch]:
        """Owners wake themselves; dependents wake the owners that they refer to, or were orphaned from."""
        _, listed = self._list_owners()
        for kind in listed:
            for dependents in self.reader.carried.of(kind.owner):
                with suppress(ReprieveError):
                    self._scan(dependents, kind)  # what may not be listed is not followed either
        scanned = [kind for each in self.kinds.kinds for kind in self.reader.scanned(each)]
        owners = [each.owner for each in self.kinds.kinds]
        return [Watch(kind, self._heard, metadata_only=True) for kind in dict.fromkeys((*owners, *scanned))]

    def _heard(self, resource: Resource, removed: bool) -> list[Key]:  # noqa: FBT001 - the shape of a handler
        self.reader.lists.hear(resource, removed=removed)
        mine = self.kinds.of(resource.type)
        keys = [] if mine is None or mine.owner != resource.type else self._heard_owner(resource, removed=removed)
        return [*keys, *self._heard_dependent(resource.meta, removed=removed)]

    def _heard_owner(self, resource: Resource, *, removed: bool) -> list[Key]:
        if not removed:
            return [self.owners.note(resource)]
        key = key_of(resource)
        known = self.owners.get(key)
        if known is not None and known.meta.uid == resource.meta.uid:
            self.owners.forget(key)
        self._forget(resource.ref)
        return [key, Key(key.kind, key.namespace, key.name, resource.meta.uid)]

    def _heard_dependent(self, meta: ObjectMeta, *, removed: bool) -> list[Key]:
        uids = {each.uid for each in meta.owners if self.kinds.of(each.type)} | {recorded_owner(meta)} - {""}
        found = [key for uid in sorted(uids) if (key := self.owners.by_uid(uid)) is not None]
        known = [key for key in found if may_own(key.namespace, meta.namespace)]
        lost = [
            key
            for kind in self.kinds.kinds
            if not removed and self.owners.was_listed(kind.owner)
            for key in self._dangling(meta, kind)
        ]
        return [*(key for key in known if not self._is_settled(key)), *lost]

    def _is_settled(self, key: Key) -> bool:
        known = self.owners.get(key)
        return known is not None and _needs_nothing(known.meta) and PROTECT in known.meta.finalizers

    # What writes leave behind

    def note(self, resource: Resource) -> None:
        """Take in how an object stands after a write of ours."""
        self.reader.lists.note(resource)
        kind = self.kinds.of(resource.type)
        if kind is not None and kind.owner == resource.type:
            self.owners.note(resource)

    def gone(self, ref: ObjectRef) -> None:
        """Take in that an object is gone."""
        self.reader.lists.gone(ref)
        self.owners.forget(Key(ref.type, ref.namespace, ref.name))

    def doubt(self, ref: ObjectRef) -> None:
        """Read the object again before anything rests on it."""
        self.reader.lists.doubt(ref)
        self.owners.forget(Key(ref.type, ref.namespace, ref.name))

    # One owner

    def reconcile(self, key: Key, *, now: datetime, apply: bool = True) -> Result:
        """Take one owner as far as it goes. Raises core errors."""
        if not key.name:
            self._cluster.list(key.kind, metadata_only=True)  # raises what was wrong, if it still is
            return Result(changed=True)
        kind = self.kinds.of(key.kind)
        if kind is None:
            return Result()
        if key.uid:
            return self._lost(key, kind, now=now, apply=apply)
        owner = self._look(key)
        return Result() if owner is None else self._take(owner, kind, now=now, apply=apply)

    def judge(self, owner: PresentOwner, *, now: datetime) -> ProtectionDecision:
        """What is decided about an owner as it is given; nothing is applied. Raises core errors."""
        kind = self.kinds.of(owner.type)
        if kind is None:
            raise NotFoundError(f"{owner.type} is not a protected kind")
        return decide(owner, self._facts(owner, kind), kind.policy, now=now)

    def _look(self, key: Key) -> PresentOwner | None:
        """The owner: as it was last seen where nothing live is needed, else by a live read; None when it is gone."""
        known = self.owners.get(key)
        if known is not None and _needs_nothing(known.meta):
            return owner_of(known)
        return self._live(key)

    def _live(self, key: Key) -> PresentOwner | None:
        known = self.owners.get(key)
        try:
            found = self._cluster.get(key.ref, metadata_only=True)
        except NotFoundError:
            self.owners.forget(key)
            self._forget(known.ref if known is not None else key.ref)
            return None
        self.owners.note(found)
        return owner_of(found)

    def _forget(self, owner: ObjectRef) -> None:
        self.reader.memory.forget(owner.uid)
        self.events.forget(owner.uid)
        self._told.pop(_slot(owner), None)
        self._done.pop(_slot(owner), None)

    def _facts(self, owner: PresentOwner, kind: ProtectedKind) -> tuple[Dependent, ...]:
        """Rows 1 and 2 need no dependents."""
        return () if _needs_nothing(owner.meta) else self.reader.gather(owner, kind)

    def _take(self, owner: PresentOwner, kind: ProtectedKind, *, now: datetime, apply: bool) -> Result:
        decision = decide(owner, self._facts(owner, kind), kind.policy, now=now)
        if not apply:
            return Result((record(owner.ref, decision, decision.steps, None),))
        results: list[StepResult] = []
        for left in reversed(range(ROUNDS)):
            goes_on = self._round(owner, decision, results, now=now, last=not left)
            current = self._live(_key(owner)) if goes_on else None
            if current is None or current.meta.uid != owner.meta.uid:
                break
            owner = current
            decision = decide(owner, self._facts(owner, kind), kind.policy, now=now)
        return self._result(owner.ref, decision, results, now)

    def _round(
        self, owner: PresentOwner, decision: ProtectionDecision, results: list[StepResult], *, now: datetime, last: bool
    ) -> bool:
        """Carry out one decision; tells whether another look is worth it at once: after a conflict, or a step ahead."""
        before = len(results)
        try:
            complete = self._carry_out(owner, decision, results, now)
        except ConflictError as fault:
            log.debug("read again", **_fields(owner.ref), fault=str(fault))
            if last:
                raise
            return True
        finally:
            self._keep_telling(owner.ref, decision, results[before:])
        return complete and isinstance(decision.owner, Wait) and _is_one_of_many(results[before:])

    def _keep_telling(self, ref: ObjectRef, decision: ProtectionDecision, results: Sequence[StepResult]) -> None:
        """Remember what was done, for the record of the owner once its dependents are settled and say nothing more."""
        said = telling(decision)
        if said is not None and results:
            self._told[_slot(ref)] = said
        if results:
            self._done.setdefault(_slot(ref), {}).update({result.step: result for result in results})

    def _result(
        self, ref: ObjectRef, decision: ProtectionDecision, results: Sequence[StepResult], now: datetime
    ) -> Result:
        made = record(ref, decision, results, self._told.get(_slot(ref)), stopped=self._stop.is_set())
        made = evolve(made, steps=tuple(self._done.get(_slot(ref), {}).values()))
        for result in results:
            log.info("step carried out", **_fields(ref), **_step_fields(result))
        changed = any(isinstance(result.outcome, Done | Pending) for result in results)
        return Result((made,), changed=changed, again=self._again(ref, decision, results, now))

    def _again(
        self, ref: ObjectRef, decision: ProtectionDecision, results: Sequence[StepResult], now: datetime
    ) -> datetime | None:
        """When to come back, should nothing wake the owner before."""
        instants = [later(now, self._pause(ref, result)) for result in results if not is_gone(result.outcome)]
        match decision.owner:
            case Wait(until=until):
                instants.append(until or later(now, LOOK_AGAIN))
            case RetryAfter(delta=delta):
                instants.append(later(now, delta))
            case _:
                pass
        if self._stop.is_set() or any(_deleted(result) for result in results):
            instants.append(now)
        return min(instants, default=None)

    def _pause(self, owner: ObjectRef, result: StepResult) -> timedelta:
        match result.outcome:
            case Pending():
                return LOOK_AGAIN
            case Retryable(after=after):
                return max(after, self._backoff(owner, result.step))
            case _:
                return self._backoff(owner, result.step)

    def _backoff(self, owner: ObjectRef, step: Step) -> timedelta:
        """A growing pause, counted for this step of this owner."""
        ref = _counted(step)
        return backoff(str(ref), self.reader.memory.failed(owner.uid, ref))

    # Owners that are not there

    def _lost(self, key: Key, kind: ProtectedKind, *, now: datetime, apply: bool) -> Result:
        if self.owners.by_uid(key.uid) is not None:
            return Result()
        dependents = self.reader.gather_lost(key.ref, kind)
        owner = self._confirm_lost(key) if dependents else None
        if owner is None:
            return Result()
        decision = decide(owner, dependents, kind.policy, now=now)
        if not apply:
            return Result((record(key.ref, decision, decision.steps, None),))
        results: list[StepResult] = []
        self._carry_out(owner, decision, results, now)
        self._keep_telling(key.ref, decision, results)
        return self._result(key.ref, decision, results, now)

    def _confirm_lost(self, key: Key) -> Owner | None:
        """What a live read says of an owner that no list shows; None when it is there after all."""
        try:
            found = self._cluster.get(key.ref, metadata_only=True)
        except NotFoundError:
            return AbsentOwner(key.ref)
        except ContainerMissingError as fault:
            return UnknownOwner(key.ref, str(fault), self.reader.memory.failed(key.uid, key.ref))
        self.owners.note(found)
        return None if found.meta.uid == key.uid else AbsentOwner(key.ref)

    # Effects

    def _carry_out(self, owner: Owner, decision: ProtectionDecision, results: list[StepResult], now: datetime) -> bool:
        """Carry out the dependents' steps in order, then, when all came to their end, the owner's; tells whether.

        What has to be there before them is all that is done then, since the owner is another after it.
        Raises ``ConflictError`` when something changed since it was read. ``results`` grows as steps are carried out.
        """
        there = isinstance(owner, PresentOwner)
        if there:
            self.events.tell_owner(owner.ref, decision, now)
        if decision.before:
            return self._steps(decision.before, owner, results)
        complete = True
        for verdict in decision.dependents:
            before = len(results)
            complete = self._steps(verdict.steps, owner, results) and complete
            self.events.tell(owner.ref, verdict, results[before:], now, there=there)
        return complete and self._steps(decision.owner.steps, owner, results)

    def _steps(self, steps: Iterable[Step], owner: Owner, results: list[StepResult]) -> bool:
        """Carry out steps until one does not come to its end, or a stop; tells whether all did."""
        for step in steps:
            if self._stop.is_set():
                return False
            result = self._step(step, owner)
            results.append(result)
            if not is_gone(result.outcome):
                return False
        return True

    def _step(self, step: Step, owner: Owner) -> StepResult:
        assert isinstance(step, ObjectStep)  # noqa: S101 - narrows the type: protection plans no other step
        if step.ref != owner.ref and isinstance(step, DeleteObject | MarkOwner | AddFinalizer):
            self._ask_owner_again(owner)
        result = self._writer.carry_out(step)
        if isinstance(result.outcome, Conflict):
            raise ConflictError(message_of(result.outcome))
        self._remember(step, owner, result.outcome)
        return result

    def _ask_owner_again(self, owner: Owner) -> None:
        """Right before a dependent is deleted: the owner is as it was decided upon, its marker and holds included."""
        if isinstance(owner, AbsentOwner | UnknownOwner):
            raise ConflictError(f"{owner.ref} is not there: nothing is deleted for it")
        try:
            found = self._cluster.get(owner.ref, metadata_only=True)
        except NotFoundError as fault:
            raise ConflictError(f"{owner.ref} is gone: {fault}") from fault
        if found.meta != owner.meta:
            self.owners.note(found)
            raise ConflictError(f"{owner.ref} changed since it was decided upon")

    def _remember(self, step: ObjectStep, owner: Owner, outcome: Outcome) -> None:
        if is_gone(outcome):
            self.reader.memory.succeeded(owner.ref.uid, _counted(step))
        deleted = isinstance(step, DeleteObject) and isinstance(outcome, Done | Pending)
        if deleted and step.ref != owner.ref:
            self.reader.deleted(owner.ref, step.ref)


def _key(owner: PresentOwner) -> Key:
    """The key of an owner that is there."""
    return Key(owner.type, owner.meta.namespace, owner.meta.name)


def _slot(owner: ObjectRef) -> tuple[str, str]:
    """Under what is remembered of an owner what was done for it."""
    return (owner.uid, owner.namespace)


def _counted(step: Step) -> ObjectRef:
    """Under what the failures of a step are counted, apart from those of reads."""
    ref = step.ref if isinstance(step, ObjectStep) else ObjectRef("", "", "")
    return evolve(ref, kind=f"{type(step).__name__} {ref.kind}")


def _deleted(result: StepResult) -> bool:
    return isinstance(result.step, DeleteObject) and is_gone(result.outcome)


def _is_one_of_many(results: Sequence[StepResult]) -> bool:
    """Whether the steps were ones before others (a finalizer, then a marker, then the deletion).

    After a deletion the next look is a reconcile of its own: whether a dependent is gone for good is told by a list
    that begins after its deletion, and one such list serves all the owners that come by then.
    """
    return bool(results) and not any(isinstance(result.step, DeleteObject) for result in results)


def _needs_nothing(meta: ObjectMeta) -> bool:
    """Whether an owner is one of rows 1 and 2, for which no dependent has to be known."""
    return not meta.terminating and (PROTECT not in meta.finalizers or not is_asked(meta))


def _fields(owner: ObjectRef) -> dict[str, str]:
    return {"controller": NAME, "owner": owner.key, "kind": owner.kind}


def _step_fields(result: StepResult) -> dict[str, str]:
    return {
        "step": type(result.step).__name__,
        "outcome": type(result.outcome).__name__,
        "detail": message_of(result.outcome),
    }
