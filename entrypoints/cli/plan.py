"""``reprieve plan``: what ``run`` would do now. Nothing is applied, nothing is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import click

from reprieve.core.errors import ReprieveError
from reprieve.entrypoints.cli import render, screen
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.options import Target, controllers_option, output_option, target_options
from reprieve.entrypoints.cli.root import ERROR, NOT_DONE, PENDING_CHANGES
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.decisions import Standing
from reprieve.entrypoints.controller.places import refused_places, told
from reprieve.entrypoints.controller.runtime import Report, plan_once
from reprieve.entrypoints.world import World


@click.command(short_help="Show what run would do now.")
@controllers_option
@output_option
@target_options
def command(*, target: Target, output: str, controllers: tuple[str, ...]) -> int:
    """Show what run would do now: verdict, object, reason and steps. Nothing is applied."""
    configure_logging("warning")
    with target.open(read_only=True) as world:
        built = build_controllers(world, names=controllers, stop=threading.Event())
        try:
            report = plan_once(built.reconcilers, now=target.now)
        finally:
            built.close()
        sentences = tuple(_of_places(world))
    render.decisions(report, output)
    for sentence in sentences:
        screen.say(f"reprieve: {sentence}", err=True)
    return exit_code(report)


def _of_places(world: World) -> Iterator[str]:
    """What is to be said of locations that are not asked. Whose account may not list them has its plan all the same."""
    try:
        places = refused_places(world)
    except ReprieveError as fault:
        yield f"whether all storage locations may be asked cannot be read: {fault}"
        return
    if places:
        yield from told(places, world.configuration.endpoints)


def exit_code(report: Report) -> int:
    """1 for a failure, 3 for what is refused or waits, 2 for pending changes."""
    if report.standing is Standing.FAILED:
        return ERROR
    if report.standing is Standing.WAITING:
        return NOT_DONE
    return PENDING_CHANGES if any(decision.changes for decision in report.decisions) else 0
