"""Pruning: which owners left the desired set, and get a request for their deletion.

An owner's owner (a GitTrack) tracks owners (its GitTrackObjects) by controller reference. When a manifest leaves the
desired set, its owner is *marked*: it gets the request annotation with its own UID, and the decision table of
``reprieve.core.protection`` does the rest. When the manifest is back in time, the mark is taken off.

Guarantee: nothing is marked on a partial or failed observation, under an owner's owner that is not live, when more than
``maxPruned`` would go, or when the desired set is empty; held owners and those that already terminate are never marked.
Not guaranteed: that a mark comes before a tracker that deletes by itself: run it before the change reaches the tracker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import assert_never

from attrs import field, frozen

from reprieve.core.errors import ReprieveError
from reprieve.core.holds import Held, HoldState, any_hold
from reprieve.core.objects import ObjectMeta, ObjectRef, Resource
from reprieve.core.protection import (
    AbsentOwner,
    LiveOwner,
    Owner,
    TerminatingOwner,
    UnknownOwner,
    is_asked,
)
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.steps import MarkOwner, Step, UnmarkOwner
from reprieve.core.values import as_set, as_tuple

FAROS_GROUP = "faros.pusher.com"
_PERCENTAGE = re.compile(r"(\d{1,3})%")


# Keys: an owner without its UID


@frozen(order=True)
class OwnerKey:
    """An owner by group, kind, namespace (empty: cluster-scoped) and name: what a manifest can say about it."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def key_of(ref: ObjectRef) -> OwnerKey:
    """The key of an object; its version and UID do not count."""
    return OwnerKey(ref.type.group, ref.kind, ref.namespace, ref.name)


# Faros' rules (source: reference/faros.md A2 and A4)


def faros_key(kind: str, name: str, namespace: str) -> OwnerKey:
    """The owner that Faros makes for a manifest: ``lower(kind-name)``, ``:`` becomes ``-``, in the same namespace.

    A manifest without a namespace gets a ClusterGitTrackObject. The manifest's group is no part of the name.
    """
    owner = "GitTrackObject" if namespace else "ClusterGitTrackObject"
    return OwnerKey(FAROS_GROUP, owner, namespace, f"{kind}-{name}".lower().replace(":", "-"))


@frozen
class FarosTracker:
    """A GitTrack (or ClusterGitTrack: empty namespace) and the flags that Faros runs with.

    ``only_namespace`` is ``--namespace`` (empty: all), ``ignored_resources`` are ``resource.group/version`` of
    ``--ignore-resource``, ``exclude_namespaced`` is the mode ``ExcludeNamespaced`` of ClusterGitTracks.
    """

    namespace: str = ""
    only_namespace: str = ""
    ignored_resources: frozenset[str] = field(default=frozenset(), converter=as_set)
    exclude_namespaced: bool = False


@frozen
class Managed:
    """Faros applies the manifest."""


@frozen
class Ignored:
    """Faros neither applies the manifest nor deletes its owner, for that reason. It counts as desired."""

    why: str


def faros_handling(tracker: FarosTracker, resource: str, namespace: str) -> Managed | Ignored:
    """Whether Faros ignores a manifest of ``resource.group/version`` in a namespace (empty: none), by its own rules.

    An ignored manifest stays in the desired set: Faros never deletes what is in git, whether it applies it or not.
    """
    rules = (
        (
            bool(namespace and tracker.only_namespace) and namespace != tracker.only_namespace,
            f"namespace `{namespace}` is not managed by this Faros",
        ),
        (resource in tracker.ignored_resources, f"resource `{resource}` ignored globally by flag"),
        (
            bool(namespace and tracker.namespace) and namespace != tracker.namespace,
            f"namespace `{namespace}` is not managed by this GitTrack",
        ),
        (
            bool(namespace) and not tracker.namespace and tracker.exclude_namespaced,
            "namespaced resources cannot be managed by ClusterGitTrack",
        ),
        (bool(tracker.namespace) and not namespace, "a GitTrack cannot manage a cluster-scoped resource"),
    )
    return next((Ignored(why) for applies, why in rules if applies), Managed())


def tracked_by(uid: str, owners: Iterable[Resource]) -> tuple[Resource, ...]:
    """The owners whose *controller* reference carries this UID, in order of reference. An empty UID tracks nothing."""
    mine = [each for each in owners if uid and any(ref.controller and ref.uid == uid for ref in each.meta.owners)]
    return tuple(sorted(mine, key=lambda each: each.ref))


# What was observed


@frozen
class CompleteSet:
    """Every manifest was read: these owners are desired, and no others."""

    keys: frozenset[OwnerKey] = field(converter=as_set)


@frozen
class PartialSet:
    """Some manifests could not be read (``troubles``: file and reason); these owners are desired, others may be."""

    keys: frozenset[OwnerKey] = field(converter=as_set)
    troubles: tuple[str, ...] = field(converter=as_tuple)


@frozen
class UnavailableSet:
    """The desired set could not be read at all, for that reason."""

    why: str


DesiredSet = CompleteSet | PartialSet | UnavailableSet


# The brake's limit


class LimitInvalidError(ReprieveError, ValueError):
    """A limit is neither a number nor a percentage."""


@frozen
class Count:
    """At most that many."""

    number: int


@frozen
class Percentage:
    """At most that share of what is tracked."""

    percent: int


@frozen
class PruneLimits:
    """How many owners one run may mark, counting those that are marked already. It is always at least one."""

    max_pruned: Count | Percentage = field(factory=lambda: Percentage(20))

    def allowed(self, tracked: int) -> int:
        """How many of so many may go."""
        match self.max_pruned:
            case Count(number):
                return max(1, number)
            case Percentage(percent):
                return max(1, tracked * percent // 100)
            case _:
                assert_never(self.max_pruned)

    def __str__(self) -> str:
        limit = self.max_pruned
        return f"{limit.percent} %" if isinstance(limit, Percentage) else str(limit.number)


def read_limit(value: object, *, where: str) -> Count | Percentage:
    """Read ``maxPruned`` and its like: a whole number of at least 0, or a percentage such as ``"20%"`` (0 to 100).

    ``where`` is its path in the configuration. Raises ``LimitInvalidError`` for anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Count(value)
    found = _PERCENTAGE.fullmatch(value) if isinstance(value, str) else None
    if found and int(found[1]) <= 100:  # noqa: PLR2004 - a whole
        return Percentage(int(found[1]))
    raise LimitInvalidError(f'{where} is {value!r}: write a whole number, or a percentage from "0%" to "100%"')


# The decision


@frozen
class Clear:
    """Nothing stood against marking."""


@frozen
class NotObserved:
    """The desired set was not read completely: nothing is marked."""

    reason: Reason
    message: str


@frozen
class NotTheTime:
    """The owner's owner is not there, terminates, or is itself asked for: no mark is set, and none is taken off."""

    reason: Reason
    message: str


@frozen
class TooManyPruned:
    """The brake tripped: more would go than ``allowed``. Nothing is marked."""

    leaving: int
    tracked: int
    allowed: int
    message: str
    reason: Reason = Reason.BRAKE


@frozen
class EmptyDesiredSet:
    """The brake tripped: nothing is desired, yet owners are tracked. Nothing is marked."""

    tracked: int
    message: str
    reason: Reason = Reason.BRAKE


Stop = Clear | NotObserved | NotTheTime | TooManyPruned | EmptyDesiredSet


@frozen
class PruneVerdict:
    """What happens to one tracked owner: ``DELETE`` with a mark as its step, else ``KEEP``."""

    ref: ObjectRef
    verdict: Verdict
    reason: Reason
    message: str
    steps: tuple[Step, ...] = field(default=(), converter=as_tuple)


@frozen
class PruneDecision:
    """One verdict a tracked owner, in order of reference, and what stood against marking: only ``Clear`` marks."""

    verdicts: tuple[PruneVerdict, ...] = field(converter=as_tuple)
    stop: Stop = field(factory=Clear)


def prune(
    parent: Owner, owners: Iterable[Resource], desired: DesiredSet, limits: PruneLimits, *, now: datetime
) -> PruneDecision:
    """Decide which of the owners that ``parent`` controls are marked, and which marks are taken off.

    ``owners`` may hold others too: only those with a controller reference to the parent's UID count. ``now`` is UTC; it
    ends holds.
    """
    match parent:
        case LiveOwner(meta=meta) if not is_asked(meta):
            tracked = tracked_by(meta.uid, owners)
            verdicts = [_verdict(each, parent, desired, now) for each in tracked]
            stop = _stop(parent, verdicts, desired, limits)
            return PruneDecision([_stopped(each, stop) for each in verdicts], stop)
        case LiveOwner() | TerminatingOwner() | AbsentOwner() | UnknownOwner():
            wrong_time = _not_the_time(parent)
            tracked = tracked_by(parent.ref.uid, owners)
            kept = [_keep(each, wrong_time.reason, wrong_time.message) for each in tracked]
            return PruneDecision(kept, wrong_time)
        case _:
            assert_never(parent)


def _not_the_time(parent: Owner) -> NotTheTime:
    match parent:
        case LiveOwner():
            why = "has a request for its own deletion, so what it tracks is not judged by the desired set"
            return NotTheTime(Reason.ASKED, f"{parent.ref} {why}")
        case TerminatingOwner():
            why = "is being deleted: what it tracks is never marked for that"
            return NotTheTime(Reason.OWNER_TERMINATING, f"{parent.ref} {why}")
        case AbsentOwner(ref):
            return NotTheTime(Reason.OWNER_ABSENT, f"{ref} is not there: the loss of an owner is no request")
        case UnknownOwner(ref, why):
            return NotTheTime(Reason.OWNER_UNKNOWN, f"{ref} is unknown, so nothing is done: {why}")
        case _:
            assert_never(parent)


def _verdict(owner: Resource, parent: LiveOwner, desired: DesiredSet, now: datetime) -> PruneVerdict:
    """What the desired set says about one owner, before the brake."""
    if owner.meta.terminating:
        return _keep(owner, Reason.OWNER_TERMINATING, f"{owner.ref} is being deleted already")
    if key_of(owner.ref) in _known_keys(desired):
        return _back(owner) if is_asked(owner.meta) else _keep(owner, Reason.DESIRED, f"{owner.ref} is desired")
    if not isinstance(desired, CompleteSet):
        return _keep(owner, Reason.OBSERVATION_INCOMPLETE, _incomplete(desired))
    return _leaving(owner, parent.meta, any_hold([parent.meta.annotations, owner.meta.annotations], now=now))


def _known_keys(desired: DesiredSet) -> frozenset[OwnerKey]:
    return frozenset() if isinstance(desired, UnavailableSet) else desired.keys


def _leaving(owner: Resource, parent: ObjectMeta, hold: HoldState) -> PruneVerdict:
    """The manifest is gone."""
    if is_asked(owner.meta):
        return PruneVerdict(owner.ref, Verdict.DELETE, Reason.MARKED, f"{owner.ref} is marked already")
    if isinstance(hold, Held):
        message = f"{owner.ref} left the desired set of {parent.name}, but is {hold.sentence()}"
        return _keep(owner, Reason.HELD, message)
    message = f"{owner.ref} left the desired set of {parent.name}: it is marked for deletion by its own UID"
    mark = MarkOwner(owner.ref, owner.meta.resource_version)
    return PruneVerdict(owner.ref, Verdict.DELETE, Reason.MANIFEST_GONE, message, [mark])


def _back(owner: Resource) -> PruneVerdict:
    step = UnmarkOwner(owner.ref, owner.meta.resource_version)
    message = f"{owner.ref} is desired again: its mark is taken off"
    return PruneVerdict(owner.ref, Verdict.KEEP, Reason.MANIFEST_BACK, message, [step])


def _keep(owner: Resource, reason: Reason, message: str) -> PruneVerdict:
    return PruneVerdict(owner.ref, Verdict.KEEP, reason, message)


# What stands against marking


def _stop(parent: LiveOwner, verdicts: list[PruneVerdict], desired: DesiredSet, limits: PruneLimits) -> Stop:
    match desired:
        case PartialSet() | UnavailableSet():
            return NotObserved(Reason.OBSERVATION_INCOMPLETE, _incomplete(desired))
        case CompleteSet(keys):
            return _brake(parent, verdicts, limits, empty=not keys)
        case _:
            assert_never(desired)


def _incomplete(desired: PartialSet | UnavailableSet) -> str:
    match desired:
        case PartialSet(troubles=troubles):
            shown = troubles[0] if troubles else "no reason given"
            more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
            return f"nothing is marked, since the desired set is incomplete: {shown}{more}; mend that and run again"
        case UnavailableSet(why):
            return f"nothing is marked, since the desired set could not be read: {why}; mend that and run again"
        case _:
            assert_never(desired)


def _brake(parent: LiveOwner, verdicts: list[PruneVerdict], limits: PruneLimits, *, empty: bool) -> Stop:
    """Only new marks trip the brake; those that are there already count, so that it cannot be crept past."""
    leaving = sum(each.verdict is Verdict.DELETE for each in verdicts)
    tracked = sum(each.reason is not Reason.OWNER_TERMINATING for each in verdicts)
    allowed = limits.allowed(tracked)
    if not any(each.reason is Reason.MANIFEST_GONE for each in verdicts):
        return Clear()
    if empty:
        return EmptyDesiredSet(tracked, _empty_message(parent, tracked))
    if leaving > allowed:
        return TooManyPruned(leaving, tracked, allowed, _brake_message(leaving, tracked, allowed, limits))
    return Clear()


def _empty_message(parent: LiveOwner, tracked: int) -> str:
    return (
        f"the desired set is empty, yet {parent.ref} tracks {tracked}: nothing is marked; check path and ref, or ask "
        f"by name: reprieve request-deletion {parent.type.kind}/{parent.meta.name} --cascade"
    )


def _brake_message(leaving: int, tracked: int, allowed: int, limits: PruneLimits) -> str:
    return (
        f"would mark {leaving} of {tracked} owners ({leaving * 100 // tracked} %), limit {limits} ({allowed}): nothing "
        "is marked; raise maxPruned, or ask for their deletion by name with reprieve request-deletion"
    )


def _stopped(verdict: PruneVerdict, stop: Stop) -> PruneVerdict:
    """Take a mark back that something stands against; marks that are taken off stay so, since that is the safe way."""
    match stop:
        case TooManyPruned(message=message, reason=reason) | EmptyDesiredSet(message=message, reason=reason):
            new = verdict.reason is Reason.MANIFEST_GONE
            return PruneVerdict(verdict.ref, Verdict.KEEP, reason, message) if new else verdict
        case Clear() | NotObserved() | NotTheTime():
            return verdict
        case _:
            assert_never(stop)
