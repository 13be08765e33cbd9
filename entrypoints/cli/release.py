"""``reprieve release``: take finalizers of ours off, before an uninstall.

A live owner just loses the finalizer. A terminating one would end at that moment, and the garbage collector would take
its dependents, so these are orphaned first. Where they are not known, the owner stays unless ``--force`` is given.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
from attrs import frozen

from reprieve.adapters.k8s import faros
from reprieve.adapters.k8s.lease import Held
from reprieve.core.errors import InvalidError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, Resource
from reprieve.core.outcomes import is_gone
from reprieve.core.protection import (
    KEEP_EVERYTHING,
    PROTECT,
    PresentOwner,
    ProtectionDecision,
    Release,
    TerminatingOwner,
    UnknownDependent,
    decide,
    owner_of,
    release_steps,
)
from reprieve.core.shield import SHIELD_NAME
from reprieve.core.steps import StepResult
from reprieve.entrypoints.cli import render
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.naming import find_kind, find_object, parse_named
from reprieve.entrypoints.cli.options import Target, ask, confirm_option, output_option, target_options
from reprieve.entrypoints.cli.protected import opened, owner_kinds, report_all, result_to_json, say
from reprieve.entrypoints.cli.root import ERROR, NOT_DONE
from reprieve.entrypoints.controller.build import protection_reconciler
from reprieve.entrypoints.controller.leftovers import Holders, holders, served_kinds
from reprieve.entrypoints.controller.owners import ProtectedKind
from reprieve.entrypoints.controller.protection import ProtectionReconciler
from reprieve.entrypoints.controller.writes import NoNotes, Writer
from reprieve.entrypoints.leases import LEASE_NAME, controller_lease, lease_namespace
from reprieve.entrypoints.world import World

QUESTION = "Are you sure you want to continue"


@click.command(short_help="Take finalizers of ours off.")
@click.argument("owner", metavar="[KIND/NAME]", default="")
@click.option("--force", is_flag=True, help="Also owners whose dependents are not known: they may be lost.")
@confirm_option
@output_option
@target_options
def command(*, target: Target, output: str, owner: str, force: bool, confirm: bool) -> int:
    """Take finalizers of ours off every owner, or off one; a terminating owner's dependents are orphaned first.

    KIND may be one that is no longer configured, as group/version/Kind. Refuses while a controller runs.
    """
    configure_logging("warning")
    with opened(target, read_only=False) as world:
        _refuse_beside_a_controller(world, target)
        found = _one(world, owner, target.namespace) if owner else _all(world)
        releasing = _Releasing(world, target, protection_reconciler(world), force=force)
        planned = [releasing.plan(each) for each in found.found]
        _show(planned, found)
        todo = [each for each in planned if not each.refusal]
        done = releasing.carry_out(todo) if todo and (confirm or ask(QUESTION)) else []
        return _finish(planned, done, found, output)


def _refuse_beside_a_controller(world: World, target: Target) -> None:
    """A local folder is locked by itself. Raises ``InvalidError``, and core errors when the lease cannot be read."""
    if world.local:
        return
    holder = controller_lease(world, now=target.now)
    if isinstance(holder, Held):
        raise InvalidError(
            f"a controller runs ({holder.holder} holds the lease {lease_namespace(world)}/{LEASE_NAME}) and would put "
            "every finalizer back: scale it to zero, and run this again once the lease has ended"
        )


def _one(world: World, written: str, namespace: str) -> Holders:
    named = parse_named(written)
    kind = find_kind(named.kind, [*owner_kinds(world), *_quietly_served(world)])
    found = find_object(world.cluster, kind, named.name, namespace)
    if PROTECT not in found.meta.finalizers:
        raise NotFoundError(f"{found.ref} does not carry {PROTECT}: there is nothing to take off")
    return Holders([found])


def _quietly_served(world: World) -> Sequence[ObjectKind]:
    try:
        return served_kinds(world.cluster)
    except ReprieveError:
        return ()


def _all(world: World) -> Holders:
    """Every owner that carries our finalizer, of any kind that the cluster serves."""
    return holders(world.cluster, [*owner_kinds(world), *served_kinds(world.cluster)])


@frozen
class _Planned:
    """What is to be done for one owner, or why not."""

    resource: Resource
    orphans: int = 0
    lost: int = 0
    refusal: str = ""


class _Releasing:
    """One call of the command."""

    def __init__(self, world: World, target: Target, reconciler: ProtectionReconciler, *, force: bool) -> None:
        self._cluster, self._now, self._reconciler, self._force = world.cluster, target.now, reconciler, force

    def plan(self, found: Resource) -> _Planned:
        """Look at one owner; nothing is changed."""
        owner = owner_of(found)
        unknown = self._unknown(owner)
        if unknown and not self._force:
            return _Planned(found, refusal=unknown)
        decision = self._decide(owner)
        orphans = sum(bool(each.steps) for each in decision.dependents)
        return _Planned(found, orphans)

    def _unknown(self, owner: PresentOwner) -> str:
        """Why the dependents of a terminating owner are not known; empty when they are, or need not be."""
        if not isinstance(owner, TerminatingOwner):
            return ""
        if self._kind(owner.type) is None:
            return f"{owner.type} is not configured, so its dependents are not known"
        unknown = [each.why for each in self._dependents(owner) if isinstance(each, UnknownDependent)]
        return unknown[0] if unknown else ""

    def _kind(self, kind: ObjectKind) -> ProtectedKind | None:
        """How to find an owner's dependents; what Faros' owners carry is known without a configuration."""
        configured = self._reconciler.kinds.of(kind)
        if configured is None and faros.is_faros_owner(kind):
            return ProtectedKind(kind, KEEP_EVERYTHING, carries=True)
        return configured

    def _dependents(self, owner: PresentOwner) -> Sequence[object]:
        kind = self._kind(owner.type)
        return () if kind is None else self._reconciler.reader.gather(owner, kind)

    def _decide(self, owner: PresentOwner) -> ProtectionDecision:
        """Keep everything: what a terminating owner has is orphaned; what is not known is left to ``--force``."""
        if not isinstance(owner, TerminatingOwner):
            steps = release_steps(owner.ref, owner.meta)
            return ProtectionDecision([], Release(steps=steps))
        kind = self._kind(owner.type)
        gathered = self._reconciler.reader.gather(owner, kind) if kind is not None else ()
        known = [each for each in gathered if not isinstance(each, UnknownDependent)]
        return decide(owner, known, KEEP_EVERYTHING, now=self._now)

    def carry_out(self, planned: Sequence[_Planned]) -> list[tuple[Resource, list[StepResult]]]:
        """Orphan what there is to orphan, then take the finalizers off."""
        return [(each.resource, self._release(each.resource)) for each in planned]

    def _release(self, found: Resource) -> list[StepResult]:
        owner = owner_of(found)
        writer = Writer(self._cluster, NoNotes())
        results: list[StepResult] = []
        for step in self._decide(owner).steps:
            results.append(writer.carry_out(step))  # type: ignore[arg-type]
            if not is_gone(results[-1].outcome):
                break
        return results


def _show(planned: Sequence[_Planned], found: Holders) -> None:
    for each in planned:
        say(f"{each.resource.ref}: {_sentence(each)}")
    for trouble in found.troubles:
        say(f"reprieve: not looked through: {trouble}")
    if not planned:
        say(f"nothing carries {PROTECT}")


def _sentence(planned: _Planned) -> str:
    if planned.refusal:
        return f"stays: {planned.refusal}; --force takes the finalizer off all the same, and its dependents may be lost"
    if not planned.resource.meta.terminating:
        return "loses our finalizer"
    return f"is being deleted: {planned.orphans} dependents are orphaned, then it loses our finalizer"


def _finish(
    planned: Sequence[_Planned],
    done: Sequence[tuple[Resource, list[StepResult]]],
    found: Holders,
    output: str,
) -> int:
    failed = report_all([(resource.ref, results) for resource, results in done])
    if output != "table":
        render.emit([result_to_json(resource.ref, results) for resource, results in done], output)
    say(
        f"If the shield is in the cluster, delete it too: kubectl delete validatingadmissionpolicybinding,"
        f"validatingadmissionpolicy {SHIELD_NAME}"
    )
    if failed:
        return ERROR
    return NOT_DONE if found.troubles or any(each.refusal for each in planned) else 0
