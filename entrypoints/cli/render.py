"""Rendering of decisions: as a table for people, as JSON or YAML for machines; ``screen`` prints it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from reprieve.core.outcomes import message_of
from reprieve.core.reasons import Verdict
from reprieve.core.steps import StepResult, describe
from reprieve.core.values import format_instant
from reprieve.entrypoints.cli.screen import emit, say, table
from reprieve.entrypoints.controller.decisions import Decision, decision_to_json
from reprieve.entrypoints.controller.runtime import Report

STYLES = {Verdict.KEEP.value: "green", Verdict.ORPHAN.value: "yellow", Verdict.DELETE.value: "red"}


def decisions(report: Report, output: str) -> None:
    """Print the decisions of a plan or a run, and its failures on standard error."""
    if output != "table":
        emit([decision_to_json(decision) for decision in report.decisions], output)
    elif report.decisions:
        rows = [(d.controller, d.ref.key, d.verdict.value, d.reason.value, d.message) for d in report.decisions]
        table(("CONTROLLER", "OBJECT", "VERDICT", "REASON", "WHY"), rows, styles=STYLES)
        _steps(report.decisions)
    else:
        say("Nothing to decide.")
    for failure in report.failures:
        say(f"reprieve: error: controller {failure.controller}, {_key(failure.key)}: {failure.message}", err=True)


def _key(key: object) -> str:
    return "/".join(str(part) for part in key) if isinstance(key, tuple) else str(key) or "all objects"


def _steps(made: Iterable[Decision]) -> None:
    rows = [(decision.ref.name, *step_row(step)) for decision in made for step in decision.steps]
    if rows:
        say()
        table(("OBJECT", "STEP", "OUTCOME"), rows)


def step_row(step: Any) -> tuple[str, str]:
    """What a step works on, and what it came to where it was carried out."""
    if isinstance(step, StepResult):
        said = message_of(step.outcome)
        outcome = type(step.outcome).__name__
        return describe(step.step), f"{outcome}: {said}" if said and said != outcome else outcome
    return describe(step), "planned"


def moment(instant: datetime | None, *, none: str = "-") -> str:
    """An instant for a table."""
    return format_instant(instant) if instant else none
