"""The screen: the one way out for every text of the command, for people and for machines.

Names, reasons and messages were written by strangers, and a person decides by what is on the screen. So whatever could
move a terminal's cursor, change its colours, turn the direction of reading, begin a line of its own or not be seen at
all is shown as its escape; JSON and YAML escape the same characters as the format has it. A test holds that no other
module of the entrypoints prints.

Guarantee: one text is one line; JSON and YAML are well-formed whatever the names in them and whatever encoding standard
output has. Not guaranteed: that a table fits the terminal's width, nor that two letters that look alike can be told
apart.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

LINE_LIMIT = 10_000
"""Characters of one text that are shown: more would push what stands before it off the screen."""
MARKS_LIMIT = 4
"""Combining marks in a row that are shown; a tower of them covers the lines above and below."""
LAST_COLUMN = 30  # characters that the last column of a table needs at least, to be folded rather than run over
GAP = 2  # characters between two columns

# Letters and marks that Unicode calls printable though nothing is to be seen of them: two names would look the same.
_UNSEEN = frozenset(
    map(
        chr,
        (
            0x034F,
            0x115F,
            0x1160,
            0x17B4,
            0x17B5,
            *range(0x180B, 0x1810),
            0x2800,
            0x3164,
            *range(0xFE00, 0xFE10),
            0xFFA0,
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def printable(text: str) -> str:
    """The text as one line that can do nothing but be read: what is not to be seen is shown as its escape."""
    shown = text
    if len(text) > LINE_LIMIT:
        from reprieve.core.values import cut  # here, since --help needs nothing of core

        shown = cut(text, limit=LINE_LIMIT)
    if shown.isascii() and shown.isprintable():
        return shown
    marks, parts = 0, list[str]()
    for character in shown:
        marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
        seen = character.isprintable() and character not in _UNSEEN and marks <= MARKS_LIMIT
        parts.append(character if seen else _escaped(character))
    return "".join(parts)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", errors="surrogatepass").decode("ascii")


def say(*lines: str, err: bool = False) -> None:
    """Print each text as one line, on standard error when it is not the result; without a text, an empty line."""
    for line in lines or ("",):
        click.echo(printable(line), err=err)


def usage_error(fault: click.ClickException) -> None:
    """Say what is wrong with the words of a call, as click does."""
    context = fault.ctx if isinstance(fault, click.UsageError) else None
    if context is not None:
        say(*context.get_usage().splitlines(), f"Try '{context.command_path} --help' for help.", "", err=True)
    say(f"Error: {fault.format_message()}", err=True)


def help_of(context: click.Context) -> None:
    """Print a command's help on standard error."""
    say(*context.get_help().splitlines(), err=True)


# For machines


def emit(content: Any, output: str) -> None:
    """Print content as JSON or YAML on standard output."""
    click.echo(_json(content) if output == "json" else _yaml([content], marked=False))


def emit_documents(documents: Iterable[Any]) -> None:
    """Print several documents as one YAML stream, as ``kubectl apply -f -`` reads it."""
    click.echo(_yaml(documents, marked=True))


def _json(content: Any) -> str:
    """Beyond ASCII a character stays as it is when it can be seen and shown; any other becomes JSON's own escape."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    if not _can_be_shown(text):
        return json.dumps(content, indent=2)
    return text if _is_plain(text) else "".join(c if c == "\n" or _is_plain(c) else json.dumps(c)[1:-1] for c in text)


def _yaml(documents: Iterable[Any], *, marked: bool) -> str:
    import yaml

    whole = list(documents)

    def written(*, plain: bool) -> str:
        options: dict[str, Any] = {"explicit_start": True} if marked else {}
        text: str = yaml.safe_dump_all(whole, sort_keys=False, allow_unicode=plain, width=1_000, **options)
        return text.removesuffix("\n")

    text = written(plain=True)
    return text if _is_plain(text) and _can_be_shown(text) else written(plain=False)


def _is_plain(text: str) -> bool:
    return all(line.isprintable() and _UNSEEN.isdisjoint(line) for line in text.split("\n"))


def _can_be_shown(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


# Tables


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", styles: Mapping[str, str] | None = None
) -> None:
    """Print a table: with rich on a terminal, in aligned columns elsewhere. ``styles`` colours whole cells."""
    content = [[printable(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, content, printable(title), styles or {})
        return
    widths = _widths(columns, content)
    if title:
        say(title)
    for line in [list(columns), *content]:
        click.echo("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _rich_table(columns: Sequence[str], rows: list[list[str]], title: str, styles: Mapping[str, str]) -> None:
    """Only the last column is folded, so that names can be copied; where that leaves it no room, lines run over."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        box=None,
        padding=(0, GAP, 0, 0),
        title=Text(title) if title else None,
        title_justify="left",
        header_style="bold",
        pad_edge=False,
    )
    for number, column in enumerate(columns):
        drawn.add_column(column, overflow="fold", no_wrap=number + 1 < len(columns))
    for row in rows:
        drawn.add_row(*[Text(cell, style=styles.get(cell, "")) for cell in row])
    console, widths = Console(highlight=False), _widths(columns, rows)
    fixed = sum(width + GAP for width in widths[:-1])
    if console.width < fixed + min(widths[-1], LAST_COLUMN):
        console = Console(highlight=False, width=fixed + widths[-1])
    console.print(drawn)


def _widths(columns: Sequence[str], rows: list[list[str]]) -> list[int]:
    """The width of each column, in characters."""
    return [max(len(line[number]) for line in [list(columns), *rows]) for number in range(len(columns))]


# Questions


def ask(question: str) -> bool:
    """Ask until the answer is y or n. Raises ``click.ClickException`` when nobody can answer."""
    while True:
        click.echo(f"{printable(question)} (Y/N)? ", nl=False, err=True)
        answer = _answer()
        if not answer:
            say(err=True)
            raise click.ClickException(
                "nobody answered the question, so nothing was done: use --confirm to go on without it"
            )
        if answer.strip().lower() in {"y", "n"}:
            return answer.strip().lower() == "y"


def _answer() -> str:
    """A line from standard input; empty when there is none to be had, or when it is no text."""
    try:
        return sys.stdin.readline()
    except (OSError, ValueError):
        return ""
