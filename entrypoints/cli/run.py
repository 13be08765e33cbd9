"""``reprieve run``: the controllers, on and on, or once until nothing changes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

import click

from reprieve.entrypoints.bootstrap import needs
from reprieve.entrypoints.cli import render, screen
from reprieve.entrypoints.cli.logs import LEVELS, configure_logging
from reprieve.entrypoints.cli.options import Target, controllers_option, output_option, target_options
from reprieve.entrypoints.cli.plan import exit_code
from reprieve.entrypoints.cli.root import NOT_DONE, PENDING_CHANGES
from reprieve.entrypoints.controller.build import Controllers, build_controllers, still
from reprieve.entrypoints.controller.runtime import Report, run_once
from reprieve.entrypoints.world import World


@click.command(short_help="Run the controllers.")
@click.option(
    "--once", is_flag=True, help="Run every controller until nothing changes, and exit; the clock stands still."
)
@controllers_option
@click.option("--log-level", type=click.Choice(LEVELS), default=None, help="info; with --once: warning.")
@click.option(
    "--probe-port", type=click.IntRange(0, 65535), default=0, help="Serve /healthz, /readyz and /metrics there."
)
@click.option(
    "--probe-address", default="", metavar="ADDRESS", help="The address that --probe-port is served at; default: all."
)
@output_option
@target_options
def command(
    *,
    target: Target,
    output: str,
    once: bool,
    controllers: tuple[str, ...],
    log_level: str | None,
    probe_port: int,
    probe_address: str,
) -> int:
    """Run the controllers on and on; with --once until nothing changes."""
    configure_logging(log_level or ("warning" if once else "info"))
    if target.at is not None and not once:
        raise click.UsageError("--now goes with --once only: a controller that goes on lives in real time")
    if once and probe_port:
        raise click.UsageError("--probe-port goes without --once: a single run has nothing to probe")
    if probe_address and not probe_port:
        raise click.UsageError("--probe-address goes with --probe-port only")
    with _stopped_by_signals() as stop, target.open(read_only=False) as world:
        built = build_controllers(world, names=controllers, stop=stop, elapsed=still if once else time.monotonic)
        try:
            if once:
                return _once(built, target, output, stop)
            return _forever(built, world, stop, probe_port, probe_address)
        finally:
            built.close()


def _once(built: Controllers, target: Target, output: str, stop: threading.Event) -> int:
    report: Report = run_once(built.reconcilers, now=target.now, stop=stop)
    render.decisions(report, output)
    code = exit_code(report)
    if stop.is_set():
        screen.say("reprieve: stopped before everything was done; run again to go on", err=True)
        return code or NOT_DONE
    return 0 if code == PENDING_CHANGES else code


def _forever(built: Controllers, world: World, stop: threading.Event, port: int, address: str) -> int:
    with needs("controller"):
        from reprieve.entrypoints.controller.serve import serve

    serve(built, world, stop=stop, clock=lambda: datetime.now(UTC), port=port, address=address)
    return 0


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Set an event at SIGTERM and SIGINT: the effect at hand ends, no other begins. A second signal ends at once.

    SIGINT stays ignored where it was at the start: ``nohup`` and a shell's background jobs set that, so that a Ctrl-C
    that is meant for something else does not end them. SIGTERM always ends it: a rollout knows no other way.
    """
    stop = threading.Event()
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, _stopper(stop)) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopper(stop: threading.Event) -> Callable[[int, FrameType | None], None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    return handle
