"""``reprieve shield``: the admission policy with which the API server itself keeps the garbage collector off."""

from __future__ import annotations

from typing import Any

import click

from reprieve.core.errors import InvalidError
from reprieve.core.shield import ShieldedKind, Supported, TooOld, VersionUnreadable, check_version, shield_manifests
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.options import Target, target_options
from reprieve.entrypoints.configuration import Configuration, ConfigurationError, load_configuration

NO_ENTRY = (
    "the configuration protects no owner kind, so there is nothing to shield: add one under protection: "
    "(in a local folder: DIR/reprieve.yaml, else --config FILE)"
)


@click.command(short_help="Print the admission policy that protects dependents.")
@click.option("--check", is_flag=True, help="Ask the cluster whether it is new enough for it.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Output format."
)
@target_options
def command(*, target: Target, output: str, check: bool) -> int:
    """Print the ValidatingAdmissionPolicy and its binding for the protected kinds, for kubectl apply -f -.

    No cluster is needed, but with --check.
    """
    configuration = _configuration(target)
    if check:
        _check(target)
    manifests = _manifests(configuration)
    if output == "json":  # one List, as kubectl reads it
        screen.emit({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, "json")
    else:
        screen.emit_documents(manifests)
    return 0


def _configuration(target: Target) -> Configuration:
    if target.local is not None:
        from reprieve.entrypoints import bootstrap

        return bootstrap.local_configuration(target.local, target.config)
    return load_configuration(target.config) if target.config is not None else Configuration()


def _manifests(configuration: Configuration) -> tuple[dict[str, Any], ...]:
    if not configuration.protection:
        raise ConfigurationError(NO_ENTRY)
    kinds = [ShieldedKind(e.owner, e.shield.collector, e.shield.namespaces) for e in configuration.protection]
    manifests = shield_manifests(kinds)
    if not manifests:
        raise ConfigurationError("every entry under protection: has its shield switched off, so there is none to print")
    return manifests


def _check(target: Target) -> None:
    """Raise ``InvalidError`` when the cluster cannot have the policy."""
    if target.local is not None:
        raise click.UsageError("--check goes without --local: a folder has no version")
    from reprieve.entrypoints import bootstrap

    version = bootstrap.kubernetes_version(kubeconfig=target.kubeconfig, context=target.context)
    match check_version(version):
        case Supported():
            screen.say(f"the cluster runs {version}: it can have the shield", err=True)
        case TooOld(message) | VersionUnreadable(message):
            raise InvalidError(message)
