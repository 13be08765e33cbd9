"""Rendering: the same content as a table for people (drawn by rich on a terminal, plain elsewhere), JSON or YAML.

Guarantee: JSON and YAML are well-formed whatever the names in them and whatever encoding standard output has; a name
cannot move a terminal's cursor or change its colours. Not guaranteed: that a table fits the terminal's width.
"""

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
from reprieve.entrypoints.cli.root import printable
from reprieve.entrypoints.controller.decisions import Decision, decision_to_json
from reprieve.entrypoints.controller.runtime import Report

LAST_COLUMN = 30  # characters that the last column of a table needs at least, to be folded rather than run over
GAP = 2  # characters between two columns
STYLES = {Verdict.KEEP: "green", Verdict.ORPHAN: "yellow", Verdict.DELETE: "red"}


def emit(content: Any, output: str) -> None:
    """Print content as JSON or YAML on standard output."""
    text = _written(content, output, plain=True)
    click.echo(text if _can_be_shown(text) else _written(content, output, plain=False))


def _written(content: Any, output: str, *, plain: bool) -> str:
    """The content as text; ``plain`` leaves characters beyond ASCII as they are, else they are escaped."""
    if output == "json":
        return json.dumps(content, indent=2, ensure_ascii=not plain)
    import yaml

    return yaml.safe_dump(content, sort_keys=False, allow_unicode=plain).removesuffix("\n")


def _can_be_shown(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def say(text: str, *, err: bool = False) -> None:
    """Print lines for people, on standard error when they are not the result."""
    click.echo(printable(text), err=err)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table: with rich on a terminal, in aligned columns elsewhere."""
    content = [[printable(str(cell), keep="") for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, content, title)
    else:
        _plain_table(columns, content, title)


def _rich_table(columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    """Only the last column is folded, so that names can be copied; where that leaves it no room, lines run over."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(
        box=None,
        padding=(0, GAP, 0, 0),
        title=escape(title) or None,
        title_justify="left",
        header_style="bold",
        pad_edge=False,
    )
    for number, column in enumerate(columns):
        drawn.add_column(column, overflow="fold", no_wrap=number + 1 < len(columns))
    for row in rows:
        drawn.add_row(*[_coloured(escape(cell)) for cell in row])
    console, widths = Console(highlight=False), _widths(columns, rows)
    fixed = sum(width + GAP for width in widths[:-1])
    if console.width < fixed + min(widths[-1], LAST_COLUMN):
        console = Console(highlight=False, width=fixed + widths[-1])
    console.print(drawn)


def _widths(columns: Sequence[str], rows: list[list[str]]) -> list[int]:
    """The width of each column, in characters."""
    return [max(len(line[number]) for line in [list(columns), *rows]) for number in range(len(columns))]


def _coloured(cell: str) -> str:
    return f"[{STYLES[Verdict(cell)]}]{cell}[/]" if cell in set(Verdict) else cell


def _plain_table(columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    if title:
        click.echo(title)
    widths = _widths(columns, rows)
    for line in [list(columns), *rows]:
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
        say(f"reprieve: error: controller {failure.controller}, {_key(failure.key)}: {failure.message}", err=True)


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
