"""``reprieve shield``: the admission policies by which the API server itself guards what reprieve protects.

The shield keeps the garbage collector off dependents; the markers' policy (``--markers``) keeps those from asking for a
deletion by an annotation who may only patch.
"""

from __future__ import annotations

from typing import Any

import click

from reprieve.core.errors import InvalidError
from reprieve.core.markers import markers_manifests, requests_manifests
from reprieve.core.objects import ObjectKind, is_object_name
from reprieve.core.shield import ShieldedKind, Supported, TooOld, VersionUnreadable, check_version, shield_manifests
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.options import Target, target_options
from reprieve.entrypoints.configuration import (
    BackupSettings,
    BackupsOff,
    Configuration,
    ConfigurationError,
)

NO_ENTRY = (
    "the configuration protects no owner kind, so there is nothing to shield: add one under protection: "
    "(in a local folder: DIR/reprieve.yaml, else --config FILE)"
)
NAMESPACE = ObjectKind("v1", "Namespace")


@click.command(short_help="Print the admission policies that protect dependents, markers and holds.")
@click.option("--check", is_flag=True, help="Ask the cluster whether it is new enough for it.")
@click.option(
    "--markers", is_flag=True, help="Print instead what keeps those who may only patch from asking for a deletion."
)
@click.option(
    "--requests", is_flag=True, help="With --markers: who files a deletion request has to be able to delete its backup."
)
@click.option(
    "--service-account",
    metavar="NAMESPACE/NAME",
    help="With --markers: the controller's own account, which is let through.  [default: reprieve, beside the backups]",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Output format."
)
@target_options
def command(
    *, target: Target, output: str, check: bool, markers: bool, requests: bool, service_account: str | None
) -> int:
    """Print the ValidatingAdmissionPolicy and its binding for the protected kinds, for kubectl apply -f -.

    No cluster is needed, but with --check.
    """
    if (requests or service_account) and not markers:
        raise click.UsageError("--requests and --service-account go with --markers")
    configuration = target.configuration()
    if check:
        _check(target)
    manifests = _markers(configuration, service_account, requests=requests) if markers else _manifests(configuration)
    if output == "json":  # one List, as kubectl reads it
        screen.emit({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, "json")
    else:
        screen.emit_documents(manifests)
    return 0


def _manifests(configuration: Configuration) -> tuple[dict[str, Any], ...]:
    if not configuration.protection:
        raise ConfigurationError(NO_ENTRY)
    kinds = [ShieldedKind(e.owner, e.shield.collector, e.shield.namespaces) for e in configuration.protection]
    manifests = shield_manifests(kinds)
    if not manifests:
        raise ConfigurationError("every entry under protection: has its shield switched off, so there is none to print")
    return manifests


def _markers(
    configuration: Configuration, service_account: str | None, *, requests: bool
) -> tuple[dict[str, Any], ...]:
    """The policies for everything that the configuration lets reprieve work on."""
    from reprieve.entrypoints.controller.build import dialect_of

    backups, entries = configuration.backups, configuration.protection
    others = [kind for entry in entries for kind in entry.dependents]
    others += [NAMESPACE] if entries else []  # its annotations are a policy of its objects
    off = isinstance(backups, BackupsOff)
    if off and (requests or not entries):
        what = "--requests guards deletion requests" if requests else "protection: has no entry"
        raise ConfigurationError(f"backups: is false in the configuration, and {what}: there is nothing to guard")
    settings = BackupSettings() if isinstance(backups, BackupsOff) else backups
    dialect = dialect_of(settings)
    others += [] if off else [dialect.backup_kind, dialect.request_kind]
    account = _account(service_account or f"{settings.namespace}/reprieve")
    manifests = markers_manifests(owners=[each.owner for each in entries], others=others, accounts=[account])
    return (*manifests, *(requests_manifests(dialect.request_kind, accounts=[account]) if requests else ()))


def _account(text: str) -> str:
    """The user name of a ServiceAccount that is given as ``namespace/name``."""
    namespace, _, name = text.partition("/")
    if not (is_object_name(namespace) and is_object_name(name)):
        raise click.UsageError(f"--service-account {text!r}: write NAMESPACE/NAME, such as velero/reprieve")
    return f"system:serviceaccount:{namespace}:{name}"


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
