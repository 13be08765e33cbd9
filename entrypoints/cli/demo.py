"""``reprieve demo``: the main job on a sample folder, from the question to what is left."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprieve.core.objects import ObjectRef
from reprieve.entrypoints import bootstrap
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.root import ERROR
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.decisions import Decision
from reprieve.entrypoints.controller.runtime import Report, run_once
from reprieve.entrypoints.world import World

if TYPE_CHECKING:
    from reprieve.entrypoints.sample_protection import Track


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
    from reprieve.entrypoints.sample_protection import write_protection_sample

    now = datetime.now(UTC).replace(microsecond=0)
    told: Sequence[Story] = write_sample(folder, now=now)
    tracks = write_protection_sample(folder)
    asked = sum(1 for story in told if story.asked)
    screen.say(
        f"{len(told) - 1} backups on two clouds; somebody asked for the deletion of {asked} by name and UID.", ""
    )
    before, carried = _counts(folder), _carried(folder)
    report = _run(folder, now)
    _tell(told, [decision for decision in report.decisions if decision.controller == "deletion"])
    _show_counts(before, _counts(folder))
    accidents = _run(folder, now, after=partial(_let_it_happen, folder, now))
    _tell_tracks(tracks, accidents)
    _show_counts(carried, _carried(folder))
    hour = _an_hour_later(folder, now + timedelta(hours=1))
    if kept:
        screen.say("", f"The folder is left in {folder}. Try: reprieve plan --local {folder}")
    return ERROR if report.failures or accidents.failures or hour.failures else 0


def _run(folder: Path, now: datetime, *, after: Callable[[World], None] = lambda _: None) -> Report:
    """Run every controller once; ``after`` is what happens in the cluster before."""
    with bootstrap.open_local(folder, config=None, read_only=False) as world:
        after(world)
        built = build_controllers(world, names=(), stop=threading.Event())
        try:
            return run_once(built.reconcilers, now=now)
        finally:
            built.close()


# Time


def _an_hour_later(folder: Path, now: datetime) -> Report:
    """Show what expires, what comes back, what is dropped, and what the audit finds."""
    from reprieve.core.audit import audit
    from reprieve.entrypoints.cli.audit import show, survey
    from reprieve.entrypoints.sample_time import add_time_sample

    ages = add_time_sample(folder, now=now)
    report = _run(folder, now)
    mine = {d.ref.name: d for d in report.decisions if d.controller in {"sync", "retention"}}
    screen.say(
        "", "An hour later. Nobody asked; these are the work of expiry (retention) and of the bucket (sync).", ""
    )
    rows = [(age.backup, age.tells, *_said(mine[age.backup])) for age in ages]
    screen.table(("BACKUP", "STORY", "VERDICT", "REASON", "WHY"), rows)
    screen.say("", "What reprieve audit finds then:", "")
    with bootstrap.open_local(folder, config=None, read_only=True) as world:
        show(audit(survey(world).facts(), now=now))
    return report


# Protection


def _let_it_happen(folder: Path, now: datetime, world: World) -> None:
    """Take one manifest out of the desired set, which is asked for; then let the accidents happen."""
    from reprieve.entrypoints.cli.protected import owner_kinds
    from reprieve.entrypoints.sample_protection import happen, put_up_shield

    put_up_shield(world.cluster, owner_kinds(world))
    _prune(folder, now, world)
    happen(world.cluster)


def _prune(folder: Path, now: datetime, world: World) -> None:
    from reprieve.adapters.k8s import faros
    from reprieve.core.protection import owner_of
    from reprieve.core.pruning import PruneLimits, prune
    from reprieve.entrypoints.cli.desired import read_desired
    from reprieve.entrypoints.cli.protected import list_owners
    from reprieve.entrypoints.cli.prune import carry_out
    from reprieve.entrypoints.sample_protection import TOOLS

    parent = world.cluster.get(ObjectRef(faros.API_VERSION, "GitTrack", TOOLS, TOOLS))
    wanted = read_desired(folder / "desired", parent).keys
    decision = prune(owner_of(parent), list_owners(world), wanted, PruneLimits(), now=now)
    carry_out(world, [each for each in decision.verdicts if each.steps])


def _tell_tracks(tracks: Sequence[Track], report: Report) -> None:
    from reprieve.entrypoints.sample_protection import PRUNED

    mine = [decision for decision in report.decisions if decision.controller == "protection"]
    screen.say(
        "",
        f"{len(mine)} GitTrackObjects carry a resource each. Three GitTracks were deleted by accident, with the "
        "shield up; one manifest left the desired set, so its owner was marked.",
        "",
    )
    rows = [_track_row(track, [d for d in mine if d.ref.namespace == track.name]) for track in tracks]
    rows += [
        (d.ref.key, "1", "its manifest left git: asked for by prune", *_said(d)) for d in mine if d.ref.name == PRUNED
    ]
    screen.table(("GITTRACK", "OWNERS", "STORY", "VERDICT", "REASON", "WHY"), rows)


def _track_row(track: Track, made: Sequence[Decision]) -> tuple[str, str, str, str, str, str]:
    """One line for the owners of a track that share a fate; the first of them speaks."""
    from reprieve.entrypoints.sample_protection import PRUNED

    fate = [decision for decision in made if decision.ref.name != PRUNED]
    return (track.name, str(len(fate)), track.tells, *_said(fate[0]))


def _said(decision: Decision) -> tuple[str, str, str]:
    return (decision.verdict.value, decision.reason.value, decision.message)


def _carried(folder: Path) -> dict[str, int]:
    kinds = _kinds(folder)
    named = ("GitTrack", "GitTrackObject", "Deployment", "Service", "ConfigMap", "CronJob")
    return {f"{name}s": kinds.count(name) for name in named}


# Backups


def _tell(told: Iterable[object], made: Iterable[Decision]) -> None:
    from reprieve.entrypoints.sample import Story

    by_request = {decision.ref.name: decision for decision in made}
    rows = []
    for story in told:
        assert isinstance(story, Story)  # noqa: S101 - narrows the type of what write_sample made
        decision = by_request.pop(story.asked, None)
        rows.append(_story_row(story.backup, story.tells, decision))
    rows += [
        _story_row(f"({name})", "a request that ended three days ago", d) for name, d in sorted(by_request.items())
    ]
    screen.table(("BACKUP", "STORY", "VERDICT", "REASON", "WHY"), rows)


def _story_row(backup: str, tells: str, decision: Decision | None) -> tuple[str, str, str, str, str]:
    if decision is None:
        return (backup, tells, "KEEP", "NotAsked", "no request names it")
    return (backup, tells, decision.verdict.value, decision.reason.value, decision.message)


def _counts(folder: Path) -> dict[str, int]:
    import yaml

    snapshots = yaml.safe_load((folder / "snapshots.yaml").read_text(encoding="utf-8")) or []
    files = [path for path in (folder / "buckets").rglob("*") if path.is_file()]
    kinds = _kinds(folder)
    return {
        "Backup objects": kinds.count("Backup"),
        "deletion requests": kinds.count("DeleteBackupRequest"),
        "restores": kinds.count("Restore"),
        "snapshots in the clouds": len(snapshots),
        "files in the buckets": len(files),
    }


def _kinds(folder: Path) -> list[str]:
    """The kind of each object in the folder."""
    import yaml

    return [
        document.get("kind")
        for path in (folder / "cluster").rglob("*.yaml")
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document
    ]


def _show_counts(before: dict[str, int], after: dict[str, int]) -> None:
    screen.say()
    screen.table(("WHAT IS LEFT", "BEFORE", "AFTER"), [(name, str(before[name]), str(after[name])) for name in before])
