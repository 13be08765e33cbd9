"""What a controller decided about one object, for people and for machines.

Guarantee: one record says who decided, about what, what, why, and the steps with what they came to; its JSON is
stable.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from attrs import evolve, frozen

from reprieve.core.objects import ObjectRef
from reprieve.core.outcomes import AlreadyGone, Done
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.steps import Step, StepResult, step_to_json


class Standing(enum.IntEnum):
    """How an object stands after the decision; the exit code of a single run is made of these."""

    SETTLED = 0
    WAITING = 1
    FAILED = 2


@frozen
class Decision:
    """A decision about one object. After a run, ``steps`` come with their outcome."""

    controller: str
    ref: ObjectRef
    verdict: Verdict
    reason: Reason
    message: str
    steps: tuple[Step | StepResult, ...] = ()
    standing: Standing = Standing.SETTLED
    subject: str = ""
    changes: bool = False

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What records are sorted and replaced by: controller, namespace, name, kind, UID."""
        return (self.controller, self.ref.namespace, self.ref.name, self.ref.kind, self.ref.uid)


@frozen
class Result:
    """What one reconcile came to: decisions, whether it changed anything, when to come back (None: on an event)."""

    decisions: tuple[Decision, ...] = ()
    changed: bool = False
    again: datetime | None = None


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """Write a decision as the command prints it (the format of ``plan -o json``)."""
    return {
        "controller": decision.controller,
        "object": ref_to_json(decision.ref),
        "verdict": decision.verdict.value,
        "reason": decision.reason.value,
        "message": decision.message,
        "steps": [_step(step) for step in decision.steps],
    }


def ref_to_json(ref: ObjectRef) -> dict[str, str]:
    """Write a reference; a cluster-scoped object has no namespace."""
    head = {"apiVersion": ref.api_version, "kind": ref.kind}
    place = {"namespace": ref.namespace} if ref.namespace else {}
    return {**head, **place, "name": ref.name, "uid": ref.uid}


def _step(step: Step | StepResult) -> dict[str, Any]:
    if isinstance(step, StepResult):
        return {**step_to_json(step.step), "outcome": type(step.outcome).__name__}
    return step_to_json(step)


def latest(decisions: Iterable[Decision]) -> list[Decision]:
    """Keep the last decision of each object, sorted by controller, namespace and name.

    What a run has done stays told: a last look that only waits does not hide the steps of the look before it.
    """
    last: dict[Any, Decision] = {}
    for decision in decisions:
        last[decision.key] = _with_what_was_done(decision, last.get(decision.key))
    return [last[key] for key in sorted(last)]


def _with_what_was_done(decision: Decision, before: Decision | None) -> Decision:
    if before is None or before.verdict is not decision.verdict:
        return decision
    done = {each.step: each for each in before.steps if isinstance(each, StepResult) and isinstance(each.outcome, Done)}
    steps = [_first_done(step, done) for step in decision.steps]
    return evolve(decision, steps=tuple(steps) or before.steps)


def _first_done(step: Step | StepResult, done: Mapping[Step, StepResult]) -> Step | StepResult:
    """A step that this run has carried out did not find its thing gone: it was the run that took it away."""
    if isinstance(step, StepResult) and isinstance(step.outcome, AlreadyGone):
        return done.get(step.step, step)
    return step
