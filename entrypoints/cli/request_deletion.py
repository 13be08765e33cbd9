"""``reprieve request-deletion``: ask for an owner's deletion, by name and UID. The plan stands before the question."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import click
from attrs import field, frozen

from reprieve.core.errors import NotFoundError
from reprieve.core.holds import Held, hold_of
from reprieve.core.objects import Resource
from reprieve.core.outcomes import Pending
from reprieve.core.protection import (
    PROTECT,
    LiveOwner,
    PresentOwner,
    ProtectionDecision,
    RetryAfter,
    TerminatingOwner,
    Wait,
    is_asked,
    owner_of,
)
from reprieve.core.pruning import tracked_by
from reprieve.core.steps import DELETION_REQUESTED, AddFinalizer, DeleteObject, MarkOwner, StepResult
from reprieve.core.values import FrozenMap
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.naming import find_kind, find_object, is_among, parse_named
from reprieve.entrypoints.cli.options import Target, confirm_option, output_option, target_options
from reprieve.entrypoints.cli.protected import (
    list_owners,
    need_entries,
    opened,
    owner_kinds,
    parent_kinds,
    report_all,
    result_to_json,
    say,
    show,
)
from reprieve.entrypoints.cli.root import ERROR, NOT_DONE
from reprieve.entrypoints.controller.build import protection_reconciler
from reprieve.entrypoints.controller.writes import NoNotes, ObjectStep, Writer
from reprieve.entrypoints.world import World

QUESTION = "Are you sure you want to continue"


@click.command(short_help="Ask for the deletion of an owner.")
@click.argument("owner", metavar="KIND/NAME")
@click.option("--cascade", is_flag=True, help="KIND/NAME is an owner's owner: ask for all that it tracks, then for it.")
@confirm_option
@output_option
@target_options
def command(*, target: Target, output: str, owner: str, cascade: bool, confirm: bool) -> int:
    """Ask for the deletion of an owner, with the dependents that its policy lets go. A plan is shown first.

    The request is bound to the owner's UID. Holds are respected: the request then waits.
    """
    configure_logging("warning")
    named = parse_named(owner)
    with opened(target, read_only=False) as world:
        need_entries(world)
        # An owner's owner that is named without --cascade is told so, so its kind has to be known as well.
        owners = list_owners(world) if cascade or not is_among(named.kind, owner_kinds(world)) else []
        kind = find_kind(named.kind, [*owner_kinds(world), *parent_kinds(owners)])
        found = find_object(world.cluster, kind, named.name, target.namespace)
        asking = _Asking(world, target, output, confirm=confirm)
        return asking.for_all(found, owners) if cascade else asking.for_one(found)


@frozen
class _Judged:
    """An owner, and what would become of it once it is asked for."""

    resource: Resource
    decision: ProtectionDecision

    @property
    def obstacle(self) -> str:
        """What a request would have to wait for; empty when nothing."""
        action = self.decision.owner
        waits = isinstance(self.resource_as_owner, LiveOwner) and isinstance(action, Wait | RetryAfter)
        return action.message if waits else ""

    @property
    def resource_as_owner(self) -> PresentOwner:
        """The owner as a fact."""
        return owner_of(self.resource)


@frozen
class _Asking:
    """One call of the command."""

    world: World
    target: Target
    output: str
    confirm: bool = field(kw_only=True)

    # One owner

    def for_one(self, found: Resource) -> int:
        if found.type not in owner_kinds(self.world):
            protected = ", ".join(map(str, owner_kinds(self.world)))
            raise NotFoundError(
                f"{found.type} is not a protected kind, so nobody would read the request; protected are {protected}. "
                "For an owner's owner use --cascade, for anything else kubectl delete"
            )
        if is_asked(found.meta):
            say(f"{found.ref} is asked for already; reprieve plan shows what it waits for")
            return self._finish([])
        judged = self._judge(found)
        show(found.ref, judged.decision)
        if judged.obstacle:
            say("the request would wait for that, and go on by itself")
        if not self._agreed():
            return self._finish([])
        return self._finish([(found, self._mark(found))])

    def _judge(self, found: Resource) -> _Judged:
        """What would be decided if the owner were asked for, and had our finalizer."""
        annotations = FrozenMap({**found.meta.annotations, DELETION_REQUESTED: found.meta.uid})
        finalizers = tuple(dict.fromkeys((*found.meta.finalizers, PROTECT)))
        asked = attrs.evolve(found.meta, annotations=annotations, finalizers=finalizers)
        owner: PresentOwner = (TerminatingOwner if found.meta.terminating else LiveOwner)(found.type, asked)
        return _Judged(found, protection_reconciler(self.world).judge(owner, now=self.target.now))

    def _mark(self, found: Resource) -> list[StepResult]:
        return self._carry_out([MarkOwner(found.ref, found.meta.resource_version)])

    def _carry_out(self, steps: Sequence[ObjectStep]) -> list[StepResult]:
        writer = Writer(self.world.cluster, NoNotes())
        return [writer.carry_out(step) for step in steps]

    def _agreed(self) -> bool:
        return self.confirm or screen.ask(QUESTION)

    # An owner's owner

    def for_all(self, parent: Resource, owners: Sequence[Resource]) -> int:
        tracked = [self._judge(each) for each in tracked_by(parent.meta.uid, owners)]
        refusal = self._refusal(parent, tracked)
        for each in tracked:
            show(each.resource.ref, each.decision)
        if refusal:
            say(f"reprieve: refused, nothing is marked: {refusal}")
            self._finish([])
            return NOT_DONE
        protected = parent.type in owner_kinds(self.world)
        then = "is marked too" if protected else "is deleted, in the background and by its UID"
        say(f"{len(tracked)} owners that {parent.ref} tracks are marked; when all are, {parent.ref} {then}")
        if not self._agreed():
            return self._finish([])
        return self._mark_all(parent, [each.resource for each in tracked], protected=protected)

    def _refusal(self, parent: Resource, tracked: Sequence[_Judged]) -> str:
        """What stands against the whole: it cannot wait by itself, since the owner's owner would go first."""
        if not tracked:
            return (
                f"{parent.ref} tracks no owner of a protected kind, so there is nothing to mark; to delete it alone: "
                "kubectl delete, or without --cascade where its kind is protected"
            )
        if parent.meta.terminating:
            return (
                f"{parent.ref} is being deleted already, and what it tracks is not marked for that; "
                "ask for the owners by name"
            )
        hold = hold_of(parent.meta.annotations, now=self.target.now)
        if isinstance(hold, Held):
            return f"{parent.ref} is {hold.sentence()}; take the hold off, or wait for its end"
        obstacles = [each.obstacle for each in tracked if each.obstacle]
        more = f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else ""
        return f"{obstacles[0]}{more}; ask again when that is over" if obstacles else ""

    def _mark_all(self, parent: Resource, tracked: Sequence[Resource], *, protected: bool) -> int:
        """Mark every owner, our finalizer first, and only then let the owner's owner go."""
        done = [(each, self._guard_and_mark(each)) for each in tracked]
        if report_all([(each.ref, results) for each, results in done]):
            say(f"reprieve: error: {parent.ref} stays, since not all that it tracks is marked: run again")
            self._emit(done)
            return ERROR
        last = self._mark(parent) if protected else self._delete(parent)
        return self._finish([*done, (parent, last)])

    def _guard_and_mark(self, found: Resource) -> list[StepResult]:
        if is_asked(found.meta):
            return []
        if PROTECT in found.meta.finalizers or found.meta.terminating:
            return self._mark(found)
        guard = AddFinalizer(found.ref, found.meta.resource_version, (*found.meta.finalizers, PROTECT))
        # The mark follows at whatever version the finalizer left: it is bound to the UID.
        return self._carry_out([guard, MarkOwner(found.ref, "")])

    def _delete(self, parent: Resource) -> list[StepResult]:
        return self._carry_out([DeleteObject(parent.ref, parent.meta.resource_version)])

    # The end

    def _finish(self, done: Sequence[tuple[Resource, Sequence[StepResult]]]) -> int:
        """Print what was done; exit code 1 when any of it failed."""
        ended = [(found.ref, [r for r in results if not isinstance(r.outcome, Pending)]) for found, results in done]
        failed = report_all(ended)
        self._emit(done)
        if self.output == "table" and done and not failed:
            say(f"{len(done)} requests made; a running controller carries them out (reprieve plan shows how)")
        return ERROR if failed else 0

    def _emit(self, done: Sequence[tuple[Resource, Sequence[StepResult]]]) -> None:
        if self.output != "table":
            screen.emit([result_to_json(found.ref, results) for found, results in done], self.output)
