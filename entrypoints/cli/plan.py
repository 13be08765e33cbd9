"""``reprieve plan``: what ``run`` would do now. Nothing is applied, nothing is written."""

from __future__ import annotations

import threading

import click

from reprieve.entrypoints.cli import render, screen
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.options import Target, controllers_option, output_option, target_options
from reprieve.entrypoints.cli.root import ERROR, NOT_DONE, PENDING_CHANGES
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.decisions import Standing
from reprieve.entrypoints.controller.places import refused_places, told
from reprieve.entrypoints.controller.runtime import Report, plan_once


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
        places = refused_places(world)
        policy = world.configuration.endpoints
    render.decisions(report, output)
    for sentence in told(places, policy) if places else ():
        screen.say(f"reprieve: {sentence}", err=True)
    return exit_code(report)


def exit_code(report: Report) -> int:
    """1 for a failure, 3 for what is refused or waits, 2 for pending changes."""
    if report.standing is Standing.FAILED:
        return ERROR
    if report.standing is Standing.WAITING:
        return NOT_DONE
    return PENDING_CHANGES if any(decision.changes for decision in report.decisions) else 0
