"""``reprieve release``: take finalizers of ours off, before an uninstall.

A live owner just loses the finalizer. A terminating one would end at that moment, and the garbage collector would take
its dependents, so these are orphaned first. Where they are not known, the owner stays unless ``--force`` is given.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
from attrs import field, frozen

from reprieve.adapters.k8s import faros
from reprieve.adapters.k8s.lease import Held
from reprieve.core.errors import InvalidError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, Resource
from reprieve.core.outcomes import is_gone
from reprieve.core.protection import (
    KEEP_EVERYTHING,
    PROTECT,
    Dependent,
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
from reprieve.core.values import as_tuple
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.naming import find_kind, find_object, parse_named
from reprieve.entrypoints.cli.options import Target, confirm_option, output_option, target_options
from reprieve.entrypoints.cli.protected import opened, owner_kinds, report_all, result_to_json, say
from reprieve.entrypoints.cli.root import ERROR, NOT_DONE
from reprieve.entrypoints.controller.build import protection_reconciler
from reprieve.entrypoints.controller.leftovers import Holders, holders, served_kinds
from reprieve.entrypoints.controller.owners import ProtectedKind
from reprieve.entrypoints.controller.protection import ProtectionReconciler
from reprieve.entrypoints.controller.writes import Writer
from reprieve.entrypoints.leases import LEASE_NAME, controller_lease, lease_namespace
from reprieve.entrypoints.world import World

QUESTION = "Are you sure you want to continue"
_SHIELD_STAYS = "Once no owner carries our finalizer any more, delete the shield too, if it is in the cluster"


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
        done = releasing.carry_out(todo) if todo and (confirm or screen.ask(QUESTION)) else []
        code = _finish(planned, done, output, whole=not owner and not found.troubles)
        return code or (NOT_DONE if found.troubles or len(todo) < len(planned) else 0)


def _refuse_beside_a_controller(world: World, target: Target) -> None:
    """A local folder is locked by itself. Raises ``InvalidError``, and core errors when the lease cannot be read."""
    if world.local:
        return
    holder = controller_lease(world, now=target.now)
    if isinstance(holder, Held):
        lease = f"{lease_namespace(world.configuration)}/{LEASE_NAME}"
        raise InvalidError(
            f"a controller runs ({holder.holder} holds the lease {lease}) and would put every finalizer back: "
            "scale it to zero, and run this again once the lease has ended"
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
    refusal: str = ""


@frozen
class _Released:
    """What was done for one owner, and why not all of it was; no fault when all was."""

    resource: Resource
    results: tuple[StepResult, ...] = field(default=(), converter=as_tuple)
    fault: str = ""


class _Releasing:
    """One call of the command."""

    def __init__(self, world: World, target: Target, reconciler: ProtectionReconciler, *, force: bool) -> None:
        self._now, self._reconciler, self._force = target.now, reconciler, force
        # The reconciler is told of each write: two owners of one dependent change it one after the other.
        self._writer = Writer(world.cluster, reconciler)

    def plan(self, found: Resource) -> _Planned:
        """Look at one owner; nothing is changed. Raises core errors."""
        owner = owner_of(found)
        dependents = self._dependents(owner)
        refusal = self._refusal(owner, dependents)
        if refusal:
            return _Planned(found, refusal=refusal)
        return _Planned(found, sum(bool(each.steps) for each in self._decide(owner, dependents).dependents))

    def _refusal(self, owner: PresentOwner, dependents: Sequence[Dependent]) -> str:
        """Why an owner stays: it terminates, and its dependents are not known. Empty when it may go, or is forced."""
        if self._force or not isinstance(owner, TerminatingOwner):
            return ""
        if self._kind(owner.type) is None:
            return f"{owner.type} is not configured, so its dependents are not known"
        return next((each.why for each in dependents if isinstance(each, UnknownDependent)), "")

    def _kind(self, kind: ObjectKind) -> ProtectedKind | None:
        """How to find an owner's dependents; what Faros' owners carry is known without a configuration."""
        configured = self._reconciler.kinds.of(kind)
        if configured is None and faros.is_faros_owner(kind):
            return ProtectedKind(kind, KEEP_EVERYTHING, carries=True)
        return configured

    def _dependents(self, owner: PresentOwner) -> Sequence[Dependent]:
        """What a terminating owner has; nobody's end is near for a live one, so nothing has to be known of it."""
        kind = self._kind(owner.type)
        if kind is None or not isinstance(owner, TerminatingOwner):
            return ()
        return self._reconciler.reader.gather(owner, kind)

    def _decide(self, owner: PresentOwner, dependents: Sequence[Dependent]) -> ProtectionDecision:
        """Keep everything: what a terminating owner has is orphaned; what is not known was left to ``--force``."""
        if not isinstance(owner, TerminatingOwner):
            return ProtectionDecision([], Release(steps=release_steps(owner.ref, owner.meta)))
        known = [each for each in dependents if not isinstance(each, UnknownDependent)]
        return decide(owner, known, KEEP_EVERYTHING, now=self._now)

    def carry_out(self, planned: Sequence[_Planned]) -> list[_Released]:
        """Orphan what there is to orphan, then take the finalizers off. All is read afresh: the question took time."""
        self._reconciler.reader.refresh()
        return [self._release(each.resource) for each in planned]

    def _release(self, found: Resource) -> _Released:
        owner = owner_of(found)
        try:
            dependents = self._dependents(owner)
        except ReprieveError as fault:
            return _Released(found, fault=str(fault))
        refusal = self._refusal(owner, dependents)
        if refusal:
            return _Released(found, fault=f"it stays: {refusal}")
        return _Released(found, self._carry_out(self._decide(owner, dependents)))

    def _carry_out(self, decision: ProtectionDecision) -> list[StepResult]:
        """Carry out one step after the other, up to the first that does not come to its end."""
        results: list[StepResult] = []
        for step in decision.steps:
            results.append(self._writer.carry_out(step))  # type: ignore[arg-type]
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


def _finish(planned: Sequence[_Planned], done: Sequence[_Released], output: str, *, whole: bool) -> int:
    """Print what was done, and what is left to do. ``whole``: every finalizer of ours was looked for and found."""
    failed = report_all([(each.resource.ref, each.results) for each in done])
    for each in done:
        if each.fault:
            say(f"reprieve: error: {each.resource.ref}: {each.fault}")
    if output != "table":
        screen.emit([result_to_json(each.resource.ref, each.results) for each in done], output)
    failed = failed or any(each.fault for each in done)
    say(_shield_hint(released=whole and not failed and len(done) == len(planned)))
    return ERROR if failed else 0


def _shield_hint(*, released: bool) -> str:
    """The last thing to do. While an owner is protected the shield is needed."""
    when = "If the shield is in the cluster, delete it too" if released else _SHIELD_STAYS
    return f"{when}: kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy {SHIELD_NAME}"
