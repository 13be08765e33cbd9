"""Options that the commands share, and how they become a world to work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs
import click
from attrs import frozen

from reprieve.core.values import parse_instant
from reprieve.entrypoints.cli.screen import say
from reprieve.entrypoints.configuration import BackupsOff, Configuration, load_configuration
from reprieve.entrypoints.world import World

F = TypeVar("F", bound=Callable[..., Any])
FOLDER_PARTS = ("cluster", "buckets", "snapshots.yaml", "reprieve.yaml")
FIRST_YEAR, LAST_YEAR = 1970, 9000  # whatever is added to such a time is a time still


class Instant(click.ParamType[datetime]):
    """An RFC 3339 instant with an offset."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read the instant, or fail with an example."""
        instant = value if isinstance(value, datetime) else parse_instant(value)
        if instant is None:
            self.fail(f"{value!r} is not an RFC 3339 time with an offset, such as 2026-03-01T12:00:00Z", param, ctx)
        if not FIRST_YEAR <= instant.year < LAST_YEAR:
            self.fail(f"{value!r} does not lie between the years {FIRST_YEAR} and {LAST_YEAR}", param, ctx)
        return instant


@frozen
class Target:
    """What a command works on: a local folder or a cluster, the configuration, the namespace, the time."""

    local: Path | None
    kubeconfig: Path | None
    context: str
    config: Path | None
    namespace: str
    at: datetime | None
    collect_absent: bool = False

    @property
    def now(self) -> datetime:
        """The time of all decisions of this command."""
        return self.at or datetime.now(UTC)

    def configuration(self) -> Configuration:
        """The configuration alone; no cluster is needed for it. Raises ``ReprieveError``."""
        if self.local is not None:
            from reprieve.entrypoints import bootstrap

            return bootstrap.local_configuration(self.local, self.config)
        return load_configuration(self.config) if self.config is not None else Configuration()

    @contextmanager
    def open(self, *, read_only: bool) -> Iterator[World]:
        """Open it. Raises ``ReprieveError``."""
        from reprieve.entrypoints import bootstrap

        if self.local is not None:
            _note_an_odd_folder(self.local)
            opened = bootstrap.open_local(
                self.local,
                config=self.config,
                read_only=read_only,
                now=self.at,
                collect_absent=self.collect_absent,
            )
        else:
            opened = bootstrap.open_kubernetes(kubeconfig=self.kubeconfig, context=self.context, config=self.config)
        with opened as world:
            yield self._in_namespace(world)

    def _in_namespace(self, world: World) -> World:
        backups = world.configuration.backups
        if not self.namespace or isinstance(backups, BackupsOff):
            return world
        backups = attrs.evolve(backups, namespace=self.namespace)
        return attrs.evolve(world, configuration=attrs.evolve(world.configuration, backups=backups))


def _note_an_odd_folder(folder: Path) -> None:
    """Say so when a folder has nothing that belongs to a cluster in a folder: likely it is the wrong one."""
    if not any((folder / name).exists() for name in FOLDER_PARTS):
        say(f"reprieve: note: {folder} has none of {', '.join(FOLDER_PARTS)}: it is an empty cluster", err=True)


def target_options(command: F) -> F:
    """Add the options that say what to work on; the command gets one ``target``."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    folder = click.Path(exists=True, file_okay=False, path_type=Path)

    def gather(
        *args: Any,
        local: Path | None,
        kubeconfig: Path | None,
        context: str,
        config: Path | None,
        namespace: str,
        now: datetime | None,
        collect_absent: bool,
        **options: Any,
    ) -> Any:
        if now is not None and local is None:
            raise click.UsageError("--now goes with --local only: a cluster has its own clock")
        if local is not None and (kubeconfig is not None or context):
            raise click.UsageError("--local excludes --kubeconfig and --context: work on a folder, or on a cluster")
        if collect_absent and local is None:
            raise click.UsageError("--collect-absent goes with --local only: it is about the folder's own collector")
        target = Target(local, kubeconfig, context, config, namespace, now, collect_absent)
        return command(*args, target=target, **options)

    decorators: list[Callable[[Any], Any]] = [
        click.option("--local", type=folder, metavar="DIR", help="Work on a cluster in a folder."),
        click.option("--kubeconfig", type=file, help="Kubeconfig; the default is kubectl's, or the pod's own account."),
        click.option("--context", default="", help="Context of the kubeconfig."),
        click.option("--config", type=file, help="Configuration; in a local folder the default is DIR/reprieve.yaml."),
        click.option("--namespace", "-n", default="", help="Namespace of the backups, or of what is named."),
        click.option("--now", type=Instant(), help="The time of all decisions (with --local)."),
        click.option(
            "--collect-absent",
            is_flag=True,
            help="Let the folder's garbage collector act on owners that are absent from the start (with --local).",
        ),
    ]
    gather.__doc__ = command.__doc__
    gather.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    wrapped: Any = gather
    for decorate in reversed(decorators):
        wrapped = decorate(wrapped)
    return cast("F", wrapped)


def output_option(command: F) -> F:
    """Add ``-o table|json|yaml``."""
    choice = click.Choice(["table", "json", "yaml"])
    return click.option("-o", "--output", type=choice, default="table", show_default=True, help="Output format.")(
        command
    )


def confirm_option(command: F) -> F:
    """Add ``--confirm``."""
    option: Any = click.option("--confirm", is_flag=True, help="Do not ask.")
    decorated: F = option(command)
    return decorated


def controllers_option(command: F) -> F:
    """Add ``--controllers``."""
    help_text = "Only these, separated by commas."
    option: Any = click.option("--controllers", metavar="NAMES", callback=_controller_names, help=help_text)
    decorated: F = option(command)
    return decorated


def _controller_names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The names in the option; none where it is not given, which means all. A value that names none is an error."""
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise click.BadParameter(f"{value!r} names no controller: leave the option out to have all of them")
    return names
