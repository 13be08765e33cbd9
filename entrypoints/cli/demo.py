"""``reprieve demo``: the main job on a sample folder, from the question to what is left."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from reprieve.entrypoints import bootstrap
from reprieve.entrypoints.cli import render
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.root import ERROR
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.decisions import Decision
from reprieve.entrypoints.controller.runtime import Report, run_once


@click.command(short_help="Show the main job on a sample folder.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Make the sample here, and leave it.")
def command(*, keep: Path | None) -> int:
    """Make a sample folder, run the controllers over it, and show what was deleted, what was kept, and why."""
    configure_logging("error")
    if keep is not None:
        if keep.exists() and any(keep.iterdir()):
            raise click.UsageError(f"{keep} is not empty: name a folder that is, or one that is not there yet")
        keep.mkdir(parents=True, exist_ok=True)
        return _show(keep, kept=True)
    with tempfile.TemporaryDirectory(prefix="reprieve-demo-") as folder:
        return _show(Path(folder), kept=False)


def _show(folder: Path, *, kept: bool) -> int:
    from reprieve.entrypoints.sample import Story, write_sample

    now = datetime.now(UTC).replace(microsecond=0)
    told: Sequence[Story] = write_sample(folder, now=now)
    asked = sum(1 for story in told if story.asked)
    click.echo(f"{len(told) - 1} backups on two clouds; somebody asked for the deletion of {asked} by name and UID.\n")
    before = _counts(folder)
    report = _run(folder, now)
    _tell(told, report)
    _show_counts(before, _counts(folder))
    if kept:
        click.echo(f"\nThe folder is left in {folder}. Try: reprieve plan --local {folder}")
    return ERROR if report.failures else 0


def _run(folder: Path, now: datetime) -> Report:
    with bootstrap.open_local(folder, config=None, read_only=False) as world:
        built = build_controllers(world, names=(), stop=threading.Event())
        try:
            return run_once(built.reconcilers, now=now)
        finally:
            built.close()


def _tell(told: Iterable[object], report: Report) -> None:
    from reprieve.entrypoints.sample import Story

    by_request = {decision.ref.name: decision for decision in report.decisions}
    rows = []
    for story in told:
        assert isinstance(story, Story)  # noqa: S101 - narrows the type of what write_sample made
        decision = by_request.pop(story.asked, None)
        rows.append(_story_row(story.backup, story.tells, decision))
    rows += [
        _story_row(f"({name})", "a request that ended three days ago", d) for name, d in sorted(by_request.items())
    ]
    render.table(("BACKUP", "STORY", "VERDICT", "REASON", "WHY"), rows)


def _story_row(backup: str, tells: str, decision: Decision | None) -> tuple[str, str, str, str, str]:
    if decision is None:
        return (backup, tells, "KEEP", "NotAsked", "no request names it")
    return (backup, tells, decision.verdict.value, decision.reason.value, decision.message)


def _counts(folder: Path) -> dict[str, int]:
    import yaml

    snapshots = yaml.safe_load((folder / "snapshots.yaml").read_text(encoding="utf-8")) or []
    files = [path for path in (folder / "buckets").rglob("*") if path.is_file()]
    kinds = [
        document.get("kind")
        for path in (folder / "cluster").rglob("*.yaml")
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document
    ]
    return {
        "Backup objects": kinds.count("Backup"),
        "deletion requests": kinds.count("DeleteBackupRequest"),
        "restores": kinds.count("Restore"),
        "snapshots in the clouds": len(snapshots),
        "files in the buckets": len(files),
    }


def _show_counts(before: dict[str, int], after: dict[str, int]) -> None:
    click.echo()
    render.table(("WHAT IS LEFT", "BEFORE", "AFTER"), [(name, str(before[name]), str(after[name])) for name in before])
