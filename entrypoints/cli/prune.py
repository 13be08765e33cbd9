"""``reprieve prune``: mark the owners whose manifest left the desired set, and unmark those whose manifest is back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_never

import click

from reprieve.core.errors import NotFoundError, ReprieveError
from reprieve.core.objects import ObjectMeta, ObjectRef, Resource
from reprieve.core.protection import AbsentOwner, Owner, UnknownOwner, owner_of
from reprieve.core.pruning import (
    Clear,
    EmptyDesiredSet,
    NotObserved,
    NotTheTime,
    PruneDecision,
    PruneLimits,
    PruneVerdict,
    TooManyPruned,
    prune,
    read_limit,
    tracked_by,
)
from reprieve.core.reasons import Reason
from reprieve.core.steps import StepResult
from reprieve.entrypoints.cli import screen
from reprieve.entrypoints.cli.desired import Desired, read_desired
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.naming import Named, find_kind, find_object, object_place, parse_named
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
)
from reprieve.entrypoints.cli.root import ERROR, NOT_DONE
from reprieve.entrypoints.controller.writes import NoNotes, Writer
from reprieve.entrypoints.world import World

QUESTION = "Are you sure you want to continue"


@click.command(short_help="Mark owners whose manifest left the desired set.")
@click.option("--owner", required=True, metavar="KIND/NAME", help="The owner's owner, such as GitTrack/shop.")
@click.option("--desired", required=True, metavar="DIR", help="The folder with the manifests.")
@confirm_option
@output_option
@target_options
def command(*, target: Target, output: str, owner: str, desired: str, confirm: bool) -> int:
    """Mark the owners whose manifest left the desired set, and unmark those whose manifest is back.

    Run it before the change reaches a tracker that deletes by itself.
    """
    configure_logging("warning")
    named, folder = parse_named(owner), _folder(desired)
    with opened(target, read_only=False) as world:
        need_entries(world)
        owners = list_owners(world)
        parent, resource = _parent(world, named, owners, target.namespace)
        wanted = read_desired(folder, resource)
        limits = _limits(world, tracked_by(parent.ref.uid, owners))
        decision = prune(parent, owners, wanted.keys, limits, now=target.now)
        _show(parent.ref, wanted, decision)
        todo = [each for each in decision.verdicts if each.steps]
        done = carry_out(world, todo) if todo and (confirm or screen.ask(QUESTION)) else []
        return _finish(decision, done, output)


def _folder(written: str) -> Path:
    """The folder that is meant. An empty name, as of a variable that is not set, is not the working directory."""
    if not written.strip():
        raise click.UsageError("--desired is empty: name the folder with the manifests (. is the working directory)")
    return Path(written)


def _parent(world: World, named: Named, owners: Sequence[Resource], namespace: str) -> tuple[Owner, Resource]:
    """The owner's owner as a fact, and as an object (an empty one when it is not there)."""
    kind = find_kind(named.kind, [*parent_kinds(owners), *owner_kinds(world)])
    try:
        found = find_object(world.cluster, kind, named.name, namespace)
    except NotFoundError:
        ref = object_place(world.cluster, kind, named.name, namespace)
        return AbsentOwner(ref), _stand_in(ref)
    except ReprieveError as fault:
        ref = ObjectRef(kind.api_version, kind.kind, named.name, namespace)
        return UnknownOwner(ref, str(fault)), _stand_in(ref)
    return owner_of(found), found


def _stand_in(ref: ObjectRef) -> Resource:
    return Resource(ref.type, ObjectMeta(ref.name, ref.namespace))


def _limits(world: World, tracked: Sequence[Resource]) -> PruneLimits:
    """The most careful limit of the kinds that are tracked."""
    kinds = {each.type for each in tracked}
    entries = [e for e in world.configuration.protection if e.owner in kinds] or list(world.configuration.protection)
    limits = [PruneLimits(read_limit(_written(e.max_pruned), where="protection.maxPruned")) for e in entries]
    return min(limits, key=lambda limit: limit.allowed(len(tracked)))


def _written(limit: str) -> int | str:
    return int(limit) if limit.isdigit() else limit


def _show(parent: ObjectRef, wanted: Desired, decision: PruneDecision) -> None:
    ignored = f", {len(wanted.ignored)} of them ignored by Faros, such as {wanted.ignored[0]}" if wanted.ignored else ""
    say(f"{parent} tracks {len(decision.verdicts)} owners; {wanted.manifests} manifests are desired{ignored}")
    for each in decision.verdicts:
        if each.reason is not Reason.DESIRED:
            say(f"  {each.ref}: {each.verdict.value} {each.reason.value}: {each.message}")
    if not isinstance(decision.stop, Clear):
        say(f"reprieve: {decision.stop.reason.value}: {decision.stop.message}")
    elif not any(each.steps for each in decision.verdicts):
        say("nothing is to be marked or unmarked")


def carry_out(world: World, todo: Sequence[PruneVerdict]) -> list[tuple[ObjectRef, list[StepResult]]]:
    """Set and take off marks, each bound to the UID and the version that was read."""
    writer = Writer(world.cluster, NoNotes())
    return [(each.ref, [writer.carry_out(step) for step in each.steps]) for each in todo]  # type: ignore[arg-type]


def _finish(decision: PruneDecision, done: Sequence[tuple[ObjectRef, list[StepResult]]], output: str) -> int:
    failed = report_all([(ref, results) for ref, results in done])
    results = dict(done)
    if output != "table":
        screen.emit([_to_json(each, results.get(each.ref, [])) for each in decision.verdicts], output)
    elif done and not failed:
        say(f"{len(done)} owners changed; a running controller carries the requests out (reprieve plan shows how)")
    return ERROR if failed else _code(decision)


def _to_json(verdict: PruneVerdict, results: list[StepResult]) -> dict[str, Any]:
    said = {"verdict": verdict.verdict.value, "reason": verdict.reason.value, "message": verdict.message}
    plain = result_to_json(verdict.ref, results)
    return {"object": plain["object"], **said, "steps": plain["steps"]}


def _code(decision: PruneDecision) -> int:
    match decision.stop:
        case Clear():
            return 0
        case NotObserved() | NotTheTime(reason=Reason.OWNER_UNKNOWN):
            return ERROR
        case TooManyPruned() | EmptyDesiredSet() | NotTheTime():
            return NOT_DONE
        case _:
            assert_never(decision.stop)
