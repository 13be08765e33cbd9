"""What the commands about protected owners share: the world, the kinds at hand, and how a decision is shown.

The plan goes to standard error, since standard output belongs to the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from reprieve.adapters.k8s import faros
from reprieve.core.errors import ContainerMissingError
from reprieve.core.objects import ObjectKind, ObjectRef, Resource
from reprieve.core.outcomes import is_gone, message_of
from reprieve.core.protection import ProtectionDecision
from reprieve.core.steps import StepResult, step_to_json
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.options import Target
from reprieve.entrypoints.configuration import ConfigurationError
from reprieve.entrypoints.controller.decisions import ref_to_json
from reprieve.entrypoints.world import World


@contextmanager
def opened(target: Target, *, read_only: bool) -> Iterator[World]:
    """Open the world. ``--namespace`` is that of the object which is named, so it does not move the backups."""
    with attrs.evolve(target, namespace="").open(read_only=read_only) as world:
        yield world


def need_entries(world: World) -> None:
    """Raise ``ConfigurationError`` when nothing is protected."""
    if not world.configuration.protection:
        raise ConfigurationError(
            "the configuration protects no owner kind: add one under protection:, with owner, onRequest and otherwise "
            "(in a local folder: DIR/reprieve.yaml, else --config FILE)"
        )


def owner_kinds(world: World) -> list[ObjectKind]:
    """The protected owner kinds."""
    return [entry.owner for entry in world.configuration.protection]


def list_owners(world: World) -> list[Resource]:
    """All owners of protected kinds, live, metadata only. A kind that is not served has none. Raises core errors."""
    found: list[Resource] = []
    for kind in owner_kinds(world):
        try:
            found += world.cluster.list(kind, metadata_only=True).items
        except ContainerMissingError:
            continue
    return found


def parent_kinds(owners: Sequence[Resource]) -> list[ObjectKind]:
    """The kinds that own protected owners: those that controller references name, and Faros' own."""
    named = {each.type for owner in owners for each in owner.meta.owners if each.controller}
    tracks = {faros.GIT_TRACK, faros.CLUSTER_GIT_TRACK} if any(map(_is_faros, owners)) else set()
    return sorted(named | tracks)


def _is_faros(owner: Resource) -> bool:
    return faros.is_faros_owner(owner.type)


def say(message: str) -> None:
    """Say something to the person, on standard error."""
    screen.say(message, err=True)


def show(ref: ObjectRef, decision: ProtectionDecision) -> None:
    """Show what is decided about an owner and each of its dependents."""
    say(f"{ref}: {decision.owner.reason.value}: {decision.owner.message or 'nothing stands against it'}")
    for each in decision.dependents:
        say(f"  {each.ref}: {each.verdict.value} {each.reason.value}: {each.message}")
    if not decision.dependents:
        say("  it has no dependents")


def result_to_json(ref: ObjectRef, results: Sequence[StepResult]) -> dict[str, Any]:
    """One object, and what was done about it."""
    steps = [{**step_to_json(each.step), "outcome": type(each.outcome).__name__} for each in results]
    return {"object": ref_to_json(ref), "steps": steps}


def report_all(done: Iterable[tuple[ObjectRef, Sequence[StepResult]]]) -> bool:
    """Say which steps did not come to their end; tells whether there were any."""
    failed = [(ref, each) for ref, results in done for each in results if not is_gone(each.outcome)]
    for ref, each in failed:
        said = message_of(each.outcome)
        say(f"reprieve: error: {ref}: {type(each.step).__name__}: {type(each.outcome).__name__}: {said}")
    return bool(failed)
