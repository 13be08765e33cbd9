"""What a controller decided about one object, for people and for machines.

Guarantee: one record says who decided, about what, what, why, and the steps with what they came to; its JSON is
stable.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from attrs import frozen

from reprieve.core.objects import ObjectRef
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
    """Keep the last decision of each object, sorted by controller, namespace and name."""
    last = {decision.key: decision for decision in decisions}
    return [last[key] for key in sorted(last)]
