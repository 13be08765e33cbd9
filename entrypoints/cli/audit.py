"""``reprieve audit``: what records and lists name, against what buckets and providers have. It never deletes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import click

from reprieve.core.audit import AuditReport, MissingPart, OrphanedSnapshot, UnknownPart, audit, report_to_json
from reprieve.core.durations import format_duration
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.options import Target, output_option, target_options
from reprieve.entrypoints.cli.root import NOT_DONE
from reprieve.entrypoints.controller.build import backup_reader
from reprieve.entrypoints.controller.survey import Survey
from reprieve.entrypoints.world import World

COLUMNS = ("FINDING", "BACKUP", "PROVIDER", "WHAT", "AGE", "SIZE", "WHY")
GIB = 2**30


@click.command(short_help="Find missing and orphaned snapshots.")
@output_option
@target_options
def command(*, target: Target, output: str) -> int:
    """Compare every record and list with what the buckets and the snapshot providers have. Nothing is deleted.

    Missing: a backup's snapshot, list or file is not there. Orphaned: a snapshot carries a backup's tag, and no backup
    anywhere names it. Unknown: what could not be read, and what it might explain. Exit code 3 when there is any.
    """
    configure_logging("warning")
    with target.open(read_only=True) as world:
        report = audit(survey(world).facts(), now=target.now)
    if output != "table":
        screen.emit(report_to_json(report), output)
    elif report.is_clean:
        screen.say("Nothing is missing, orphaned or unknown.")
    else:
        show(report)
    return 0 if report.is_clean else NOT_DONE


def survey(world: World) -> Survey:
    """The survey of a world."""
    return Survey(backup_reader(world), world.snapshot_stores)


def show(report: AuditReport) -> None:
    """Print the findings as a table, and how many there are."""
    screen.table(COLUMNS, _rows(report))
    counts = (len(report.missing), len(report.orphaned), len(report.unknown))
    screen.say("", "{} missing, {} orphaned, {} unknown. Nothing was deleted.".format(*counts))


def _rows(report: AuditReport) -> Iterator[tuple[str, ...]]:
    yield from map(_missing, report.missing)
    yield from map(_orphaned, report.orphaned)
    yield from map(_unknown, report.unknown)


def _missing(part: MissingPart) -> tuple[str, ...]:
    kind = "snapshot" if part.provider else "storage"
    why = f"it is not in {kind} location {part.location}"
    return ("missing", part.backup, part.provider or "-", part.id, "-", "-", why)


def _orphaned(orphan: OrphanedSnapshot) -> tuple[str, ...]:
    found = orphan.snapshot
    age = _age(orphan.age) if orphan.age is not None else "-"
    size = f"{found.size / GIB:.1f} GiB" if found.size is not None else "-"
    return ("orphaned", orphan.backup, found.provider, found.id, age, size, "no backup that is known names it")


def _age(age: timedelta) -> str:
    return f"{age.days}d" if age.days else format_duration(age)


def _unknown(part: UnknownPart) -> tuple[str, ...]:
    return ("unknown", "-", "-", part.what, "-", "-", part.why)
