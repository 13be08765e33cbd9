"""What protection tells: events on owner and dependent, and one record an owner.

Guarantee: the same event about the same object is told once a process; a settled owner is told nothing about. Not
guaranteed: that events arrive.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import assert_never

from attrs import frozen

from reprieve.core.objects import ObjectRef
from reprieve.core.outcomes import ContainerMissing, Denied, Invalid, Pending, is_gone
from reprieve.core.ports import EventKind, EventSink
from reprieve.core.protection import (
    DeleteOwner,
    DependentVerdict,
    Guard,
    Nothing,
    ProtectionDecision,
    Release,
    RetryAfter,
    Wait,
)
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.steps import DeleteObject, Step, StepResult
from reprieve.entrypoints.controller.decisions import Decision, Standing

NAME = "protection"
_WEIGHT = {Verdict.KEEP: 0, Verdict.ORPHAN: 1, Verdict.DELETE: 2}
_SAYS_NOTHING = {Reason.ABSENT, Reason.FOREIGN}
_WHOLE_OWNER = 5  # rows 1 to 5 are about the owner, its dependents are kept along with it


# Records


@frozen
class Telling:
    """The most telling of what was decided for one owner's dependents: ``DELETE`` before ``ORPHAN`` before ``KEEP``."""

    verdict: Verdict
    reason: Reason
    message: str


def telling(decision: ProtectionDecision) -> Telling | None:
    """The most telling verdict; None when the dependents say nothing (there are none, or all are absent or foreign)."""
    speaking = [each for each in decision.dependents if each.reason not in _SAYS_NOTHING]
    if not speaking:
        return None
    heaviest = max(_WEIGHT[each.verdict] for each in speaking)
    first, *others = [each for each in speaking if _WEIGHT[each.verdict] == heaviest]
    more = f" (and {len(others)} more)" if others else ""
    return Telling(first.verdict, first.reason, first.message + more)


def record(
    ref: ObjectRef,
    decision: ProtectionDecision,
    steps: Sequence[Step | StepResult],
    before: Telling | None,
    *,
    stopped: bool = False,
) -> Decision:
    """One owner's record.

    ``before`` is what was told of it in an earlier look, for an owner whose dependents are settled by now; ``stopped``
    says that steps may have been left.
    """
    said = _said(decision, before)
    changes = any(isinstance(each, StepResult) for each in steps) or bool(decision.steps)
    standing = _standing(decision, [each for each in steps if isinstance(each, StepResult)], stopped=stopped)
    return Decision(
        NAME, ref, said.verdict, said.reason, said.message, tuple(steps), standing, subject=ref.key, changes=changes
    )


def _said(decision: ProtectionDecision, before: Telling | None) -> Telling:
    now, action = telling(decision), decision.owner
    match action:
        case Wait() | RetryAfter():
            return Telling(now.verdict if now else Verdict.KEEP, action.reason, action.message)
        case DeleteOwner():
            return Telling(now.verdict if now else Verdict.DELETE, action.reason, action.message)
        case Release():
            return now or before or Telling(Verdict.KEEP, action.reason, action.message)
        case Nothing(Reason.OWNER_ABSENT):
            return now or Telling(Verdict.KEEP, action.reason, action.message)
        case Guard() | Nothing():
            return Telling(Verdict.KEEP, action.reason, action.message)
        case _:
            assert_never(action)


def _standing(decision: ProtectionDecision, results: Iterable[StepResult], *, stopped: bool) -> Standing:
    """Failed by the last outcome of each step, since a conflict is followed by another try."""
    outcomes = {result.step: result.outcome for result in results}.values()
    if any(isinstance(outcome, Denied | Invalid | ContainerMissing) for outcome in outcomes):
        return Standing.FAILED
    waits = isinstance(decision.owner, Wait | RetryAfter) or (stopped and bool(decision.steps))
    return Standing.WAITING if waits or not all(map(is_gone, outcomes)) else Standing.SETTLED


# Events


class Events:
    """Tells events about owners and dependents, each once."""

    def __init__(self, sink: EventSink) -> None:
        """Nothing was told yet."""
        self._sink = sink
        self._told: dict[str, set[tuple[ObjectRef, str, str]]] = {}
        self._lock = threading.Lock()

    def tell_owner(self, owner: ObjectRef, decision: ProtectionDecision, now: datetime) -> None:
        """Tell why an owner stays: it is held, it is unknown, its marker counts for nothing."""
        action = decision.owner
        name = {Reason.HELD: "Held", Reason.UNKNOWN: "Unknown", Reason.MARKER_FOREIGN: "Kept"}.get(action.reason)
        if name is not None and all(each.row <= _WHOLE_OWNER for each in decision.dependents):
            kept = [each.ref for each in decision.dependents if each.reason is not Reason.UNKNOWN]
            self._once(owner, owner, name, action.message, now)
            for ref in kept:
                self._once(owner, ref, "Kept", action.message, now)

    def tell(
        self, owner: ObjectRef, verdict: DependentVerdict, results: Sequence[StepResult], now: datetime, *, there: bool
    ) -> None:
        """Tell what became of one dependent, on it and, when it is ``there``, on its owner."""
        name = _event(verdict, results)
        if name is None:
            return
        for ref in (owner, verdict.ref) if there else (verdict.ref,):
            self._once(owner, ref, name, verdict.message, now)

    def _once(self, owner: ObjectRef, about: ObjectRef, name: str, message: str, now: datetime) -> None:
        if not about.uid:
            return  # what is not there has no events
        with self._lock:
            told = self._told.setdefault(owner.uid, set())
            if (about, name, message) in told:
                return
            told.add((about, name, message))
        kind = EventKind.WARNING if name in {"Lost", "Unknown"} else EventKind.NORMAL
        self._sink.record(about, kind=kind, reason=name, message=message, now=now)

    def forget(self, owner_uid: str) -> None:
        """Remember nothing more of an owner that is gone."""
        with self._lock:
            self._told.pop(owner_uid, None)


def _event(verdict: DependentVerdict, results: Sequence[StepResult]) -> str | None:
    """The event for what became of a dependent; None when nothing did."""
    done = [result.step for result in results if is_gone(result.outcome) or isinstance(result.outcome, Pending)]
    match verdict.reason:
        case Reason.LOST:
            return "Lost"
        case Reason.UNKNOWN:
            return "Unknown"
        case Reason.HELD if verdict.row == 11:  # noqa: PLR2004 - orphaned until its hold lifts
            return "Held"
        case Reason.RECREATED:
            return "Kept"
        case _:
            return _event_of_steps(verdict, done)


def _event_of_steps(verdict: DependentVerdict, done: Sequence[Step]) -> str | None:
    if verdict.verdict is Verdict.DELETE:
        return "Deleted" if any(isinstance(step, DeleteObject) for step in done) else None
    return "Orphaned" if verdict.verdict is Verdict.ORPHAN and done else None
