"""Rendering: the same content as a table for people (drawn by rich on a terminal, plain elsewhere), JSON or YAML."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from reprieve.core.outcomes import message_of
from reprieve.core.reasons import Verdict
from reprieve.core.steps import StepResult, describe
from reprieve.core.values import format_instant
from reprieve.entrypoints.controller.decisions import Decision, decision_to_json
from reprieve.entrypoints.controller.runtime import Report

STYLES = {Verdict.KEEP: "green", Verdict.ORPHAN: "yellow", Verdict.DELETE: "red"}


def emit(content: Any, output: str) -> None:
    """Print content as JSON or YAML on standard output."""
    if output == "json":
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    import yaml

    click.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), nl=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table: with rich on a terminal, in aligned columns elsewhere."""
    content = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, content, title)
    else:
        _plain_table(columns, content, title)


def _rich_table(columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(title=escape(title) or None, title_justify="left", header_style="bold", expand=False)
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*[_coloured(escape(cell)) for cell in row])
    Console().print(drawn)


def _coloured(cell: str) -> str:
    return f"[{STYLES[Verdict(cell)]}]{cell}[/]" if cell in set(Verdict) else cell


def _plain_table(columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    if title:
        click.echo(title)
    lines = [list(columns), *rows]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
    for line in lines:
        click.echo("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def decisions(report: Report, output: str) -> None:
    """Print the decisions of a plan or a run, and its failures on standard error."""
    if output != "table":
        emit([decision_to_json(decision) for decision in report.decisions], output)
    elif report.decisions:
        rows = [(d.controller, d.ref.key, d.verdict.value, d.reason.value, d.message) for d in report.decisions]
        table(("CONTROLLER", "OBJECT", "VERDICT", "REASON", "WHY"), rows)
        _steps(report.decisions)
    else:
        click.echo("Nothing to decide.")
    for failure in report.failures:
        click.echo(
            f"reprieve: error: controller {failure.controller}, {_key(failure.key)}: {failure.message}", err=True
        )


def _key(key: object) -> str:
    return "/".join(str(part) for part in key) if isinstance(key, tuple) else str(key) or "all objects"


def _steps(made: Iterable[Decision]) -> None:
    rows = [(decision.ref.name, *step_row(step)) for decision in made for step in decision.steps]
    if rows:
        click.echo()
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
