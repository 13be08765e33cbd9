"""The root command: finds subcommands by name, turns errors into messages and exit codes.

Exit codes, the first that holds: 1 error, 3 something was refused or waits, 2 changes are pending, 0.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from reprieve.entrypoints.cli import screen

ERROR, PENDING_CHANGES, NOT_DONE = 1, 2, 3

COMMANDS = {
    "demo": ("reprieve.entrypoints.cli.demo", "Show the main job on a sample folder, in a minute."),
    "run": ("reprieve.entrypoints.cli.run", "Run the controllers, on and on or once."),
    "plan": ("reprieve.entrypoints.cli.plan", "Show what run would do now; nothing is applied."),
    "backup": ("reprieve.entrypoints.cli.backup", "List, describe and delete backups."),
    "audit": ("reprieve.entrypoints.cli.audit", "Find missing and orphaned snapshots; nothing is deleted."),
    "request-deletion": ("reprieve.entrypoints.cli.request_deletion", "Ask for the deletion of an owner, by its UID."),
    "prune": ("reprieve.entrypoints.cli.prune", "Mark owners whose manifest left the desired set."),
    "shield": ("reprieve.entrypoints.cli.shield", "Print the admission policy that keeps the garbage collector off."),
    "manifests": ("reprieve.entrypoints.cli.manifests", "Print what the controller is deployed with, and its rights."),
    "release": ("reprieve.entrypoints.cli.release", "Take finalizers of ours off, before an uninstall."),
}


class LazyGroup(click.Group):
    """A group that loads a subcommand's module only when that subcommand is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click asks for it
        """Name the subcommands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click asks for it
        """Load one subcommand."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click asks for it
        """List the subcommands with their lines, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _show_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:  # noqa: FBT001 - click's shape
    from importlib.metadata import PackageNotFoundError, version  # here, since nothing else needs it

    if not asked:
        return
    try:
        screen.say(f"reprieve {version('reprieve')}")
    except PackageNotFoundError:
        screen.say("reprieve, run from its source tree: it is not installed")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Deletion that is safe: a thing is deleted only because somebody asked for it, by name and UID.",
    epilog="Options stand after the command words. Exit codes: 1 error, 3 refused or waiting, 2 changes pending, 0.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def root() -> None:
    """Hold the subcommands."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; tells the exit code. Every error ends here, as a message."""
    try:
        code = root.main(args=list(arguments), prog_name=_prog_name(), standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as fault:
        screen.help_of(fault.ctx)
        return ERROR
    except click.ClickException as fault:
        screen.usage_error(fault)
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        screen.say("reprieve: interrupted; nothing more was done", err=True)
        return ERROR
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERROR
    except Exception as fault:  # noqa: BLE001 - the last place where an error can become a message
        return _report(fault)
    return code if isinstance(code, int) else 0


def _report(fault: Exception) -> int:
    from reprieve.core.errors import ReprieveError  # here, since --help needs nothing of core
    from reprieve.entrypoints.configuration import ConfigurationError

    if isinstance(fault, ReprieveError):
        for line in fault.faults if isinstance(fault, ConfigurationError) else (str(fault),):
            screen.say(f"reprieve: error: {line}", err=True)
        return ERROR
    if isinstance(fault, OSError):
        where = f"{fault.filename}: " if fault.filename is not None else ""
        screen.say(f"reprieve: error: {where}{fault.strerror or fault}; check permissions and the space left", err=True)
        return ERROR
    if os.environ.get("REPRIEVE_DEBUG"):
        raise fault
    screen.say(f"reprieve: internal error: {type(fault).__name__}: {fault}", err=True)
    screen.say("This is a fault of reprieve. REPRIEVE_DEBUG=1 shows where; please report it.", err=True)
    return ERROR


def _prog_name() -> str:
    return "kubectl reprieve" if Path(sys.argv[0]).name == "kubectl-reprieve" else "reprieve"
