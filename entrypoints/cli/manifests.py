"""``reprieve manifests``: what the controller is deployed with, its rights narrowed by the configuration."""

from __future__ import annotations

import os

import click
from attrs import evolve

from reprieve.adapters.local.disk import read
from reprieve.adapters.local.yamltext import read_yaml
from reprieve.core.backups import NoSecret, SecretKey, SnapshotLocation, StorageLocation
from reprieve.core.objects import ObjectKind, is_object_name
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.deployment import APPLIED, DEFAULT_SECRETS, IMAGE, PARTS, Deployed, manifests
from reprieve.entrypoints.cli.options import Target, target_options
from reprieve.entrypoints.configuration import BackupsOff, Configuration
from reprieve.entrypoints.controller.build import backup_reader
from reprieve.entrypoints.leases import lease_namespace


@click.command(short_help="Print what the controller is deployed with, and its rights.")
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="A Secret that a location names; repeatable.")
@click.option(
    "--from-locations", is_flag=True, help="Take the Secrets that the locations of the cluster, or the folder, name."
)
@click.option("--carried", multiple=True, metavar="KIND", help="A kind that Faros' owners carry; repeatable.")
@click.option("--image", default=IMAGE, show_default=True, help="The image, best by digest.")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this; repeatable.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Output format."
)
@target_options
def command(
    *,
    target: Target,
    output: str,
    secrets: tuple[str, ...],
    from_locations: bool,
    carried: tuple[str, ...],
    image: str,
    parts: tuple[str, ...],
) -> int:
    """Print the manifests of the controller, for kubectl apply -f -, its rights narrowed by the configuration.

    No cluster is needed, but with --from-locations.
    """
    configuration = _in_namespace(target)
    deployed = Deployed(
        configuration,
        target.namespace or lease_namespace(configuration),
        text=_text(target),
        image=image,
        secrets=_secrets(target, secrets, from_locations=from_locations),
        carried=_carried(configuration, carried),
    )
    text = manifests(deployed, parts or APPLIED)
    if output == "json":
        screen.emit({"apiVersion": "v1", "kind": "List", "items": [each.data for each in read_yaml(text)]}, "json")
    else:
        screen.say(*text.splitlines())
    return 0


def _in_namespace(target: Target) -> Configuration:
    """The configuration; without a file the backups are in the namespace that is named."""
    configuration, named = target.configuration(), target.namespace
    backups = configuration.backups
    if isinstance(backups, BackupsOff) or named in ("", backups.namespace):
        return configuration
    if target.config is not None or target.local is not None:
        raise click.UsageError(f"--namespace {named}: the configuration says {backups.namespace}; write it there")
    return evolve(configuration, backups=evolve(backups, namespace=named))


def _text(target: Target) -> str:
    """The configuration as it is written; empty where there is no file."""
    own = None if target.local is None else target.local / "reprieve.yaml"
    if target.config is not None:
        return target.config.read_text(encoding="utf-8")
    return read(own).decode("utf-8") if own is not None and os.path.lexists(own) else ""


def _secrets(target: Target, named: tuple[str, ...], *, from_locations: bool) -> tuple[str, ...]:
    """The Secrets that may be read. Whatever locations name is told: it was not the operator who wrote it."""
    if named and from_locations:
        raise click.UsageError("--secret excludes --from-locations: name the Secrets, or take those of the locations")
    wrong = [name for name in named if not is_object_name(name)]
    if wrong:
        raise click.UsageError(f"--secret: no Secret can be called {wrong[0]!r}")
    if not from_locations:
        return named or DEFAULT_SECRETS
    with target.open(read_only=True) as world:
        reader = backup_reader(world)
        locations: list[StorageLocation | SnapshotLocation] = [
            *reader.storage_locations(),
            *reader.snapshot_locations(),
        ]
    found: dict[str, None] = {}
    for each in locations:
        match each.credential:
            case NoSecret():
                continue
            case SecretKey(name) if not is_object_name(name):
                screen.say(
                    f"reprieve: left out: location {each.name} names {name!r}: no Secret is called that", err=True
                )
            case SecretKey(name):
                screen.say(f"reprieve: location {each.name} names Secret {name}: is that yours to be read?", err=True)
                found[name] = None
    return tuple(found)


def _carried(configuration: Configuration, named: tuple[str, ...]) -> tuple[ObjectKind, ...]:
    """The kinds that Faros' owners carry. Nobody but the operator says so: whoever may make an owner would choose."""
    tracked = [str(entry.owner) for entry in configuration.protection if entry.dialect == "faros"]
    if named and not tracked:
        raise click.UsageError("--carried: the configuration has no entry with dialect: faros")
    if tracked and not named:
        screen.say(
            f"reprieve: no right to what {', '.join(tracked)} carry: name the kinds, --carried v1/ConfigMap …", err=True
        )
    try:
        return tuple(map(ObjectKind.parse, named))
    except ValueError as fault:
        raise click.UsageError(f"--carried: {fault}") from fault
