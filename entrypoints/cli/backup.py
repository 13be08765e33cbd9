"""``reprieve backup``: list, describe and delete backups, as Velero's own commands do.

Before the question there is a plan.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, assert_never

import click
from attrs import frozen

from reprieve.adapters.k8s.lease import Free
from reprieve.core.backups import (
    Backup,
    CsiContent,
    DeletionRequest,
    NativeSnapshot,
    RequestPhase,
    StorageLocation,
    request_for,
)
from reprieve.core.errors import AlreadyExistsError, ContainerMissingError, InvalidError, NotFoundError, ReprieveError
from reprieve.core.holds import Held, any_hold
from reprieve.core.objects import ObjectRef, is_object_name, resource_from_json
from reprieve.core.reasons import Verdict
from reprieve.core.requests import Absent, Admitted, Deferred, Refused, bind, plan
from reprieve.core.steps import DeleteRestore, DeleteSnapshot, Step
from reprieve.core.values import format_instant, joined
from reprieve.entrypoints.cli import render, screen
from reprieve.entrypoints.cli.describing import further, say_expiry_and_holds, say_restores
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.options import Target, confirm_option, output_option, target_options
from reprieve.entrypoints.cli.root import ERROR, NOT_DONE
from reprieve.entrypoints.cli.waiting import carry_out, wait_for_end
from reprieve.entrypoints.controller.build import backup_reader, mark_reader
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.leases import LEASE_NAME, controller_lease, lease_namespace
from reprieve.entrypoints.world import World

WORST = (0, NOT_DONE, ERROR)  # of several exit codes, the last of these holds
NAME_TRIES = 5
REQUEST_STAGES = {"siblings", "requests"}


@click.group(short_help="List, describe and delete backups.")
def command() -> None:
    """List, describe and delete backups."""


# list


@command.command("list", short_help="List backups.")
@click.option("--selector", "-l", default="", help="Only backups with these labels.")
@output_option
@target_options
def list_command(*, target: Target, output: str, selector: str) -> int:
    """List backups."""
    configure_logging("warning")
    with target.open(read_only=True) as world:
        backups = _backups(world, selector)
    if output != "table":
        screen.emit([_summary(backup, target.now) for backup in backups], output)
        return 0
    if not backups:
        screen.say("No backups found.")
        return 0
    rows = [_row(backup, target.now) for backup in backups]
    screen.table(("NAME", "STATUS", "CREATED", "EXPIRES", "LOCATION", "SNAPSHOTS", "HOLD"), rows)
    return 0


def _backups(world: World, selector: str) -> list[Backup]:
    dialect = backup_reader(world).dialect
    try:
        found = world.cluster.list(dialect.backup_kind, namespace=world.backups.namespace, selector=selector)
    except InvalidError as fault:
        if not selector:
            raise
        example = "write such as app=shop, tier!=test or env in (a, b)"
        raise InvalidError(f"--selector {selector!r} is not a label selector: {fault}; {example}") from fault
    except ContainerMissingError as fault:
        raise ContainerMissingError(f"{fault}: is {dialect.name.title()} installed in this cluster?") from fault
    return sorted((dialect.backup(each) for each in found.items), key=lambda backup: backup.name)


def _status(backup: Backup) -> str:
    return "Deleting" if backup.meta.terminating else backup.phase or "New"


def _hold(backup: Backup, now: datetime) -> str:
    hold = any_hold([backup.meta.annotations], now=now)
    return hold.sentence() if isinstance(hold, Held) else ""


def _row(backup: Backup, now: datetime) -> tuple[str, ...]:
    return (
        backup.name,
        _status(backup),
        render.moment(backup.meta.created),
        render.moment(backup.expiration, none="never"),
        backup.storage_location,
        str(backup.snapshots_completed),
        _hold(backup, now) or "-",
    )


def _summary(backup: Backup, now: datetime) -> dict[str, Any]:
    return {
        "name": backup.name,
        "uid": backup.meta.uid,
        "phase": _status(backup),
        "created": format_instant(backup.meta.created) if backup.meta.created else None,
        "expiration": format_instant(backup.expiration) if backup.expiration else None,
        "storageLocation": backup.storage_location,
        "snapshots": backup.snapshots_completed,
        "hold": _hold(backup, now) or None,
    }


# describe


@command.command("describe", short_help="Describe a backup and the attempts to delete it.")
@click.argument("name")
@output_option
@target_options
def describe_command(*, target: Target, output: str, name: str) -> int:
    """Describe a backup: what it points at, and every attempt to delete it, bound to its name and UID."""
    configure_logging("warning")
    with target.open(read_only=True) as world:
        marks = mark_reader(world)
        reader = marks.reader
        backup = _one(reader, name)
        described = _describe(reader, backup) | further(marks, world.backups.retention, backup, now=target.now)
    if output != "table":
        screen.emit(described, output)
    else:
        _print_description(described)
    return 0


def _one(reader: BackupReader, name: str) -> Backup:
    backup = reader.backup(name) if is_object_name(name) else Absent()
    if isinstance(backup, Absent):
        raise NotFoundError(
            f'backup "{name}" not found in namespace {reader.namespace}; reprieve backup list shows all'
        )
    return backup


def _describe(reader: BackupReader, backup: Backup) -> dict[str, Any]:
    attempts = [r for r in reader.requests() if r.backup == backup.name and r.bound_uid == backup.meta.uid]
    failed = [r for r in attempts if r.phase is RequestPhase.PROCESSED and r.errors]
    snapshots = _snapshots(reader, backup)
    return {
        "name": backup.name,
        "uid": backup.meta.uid,
        "phase": _status(backup),
        "expiration": format_instant(backup.expiration) if backup.expiration else None,
        "storageLocation": backup.storage_location,
        "snapshots": snapshots["snapshots"],
        "deletionAttempts": {
            "failed": len(failed),
            "deleteBackupRequests": [_attempt(request) for request in sorted(attempts, key=lambda r: r.meta.name)],
        },
        "csiSnapshots": snapshots["csiSnapshots"],
    }


def _snapshots(reader: BackupReader, backup: Backup) -> dict[str, list[dict[str, str]]]:
    """The native and the CSI snapshots that any witness names; what cannot be read is said, and not shown as none."""
    location = reader.location(backup.storage_location) if backup.storage_location else Absent()
    if not isinstance(location, StorageLocation):
        return {"snapshots": [], "csiSnapshots": []}
    providers = {each.name: each.provider for each in reader.snapshot_locations()}
    try:
        live = reader.live([backup.name])[backup.name]
        items = reader.inventory(backup, reader.store(location), live).items
    except ReprieveError as fault:
        screen.say(f"reprieve: the snapshots of {backup.name} cannot be read: {fault}", err=True)
        return {"snapshots": [], "csiSnapshots": []}
    native = [item for item in items if isinstance(item, NativeSnapshot) and item.id]
    csi = [item for item in items if isinstance(item, CsiContent)]
    return {
        "snapshots": [
            {"id": snapshot.id, "provider": providers.get(snapshot.location, ""), "location": snapshot.location}
            for snapshot in sorted(native, key=lambda snapshot: (snapshot.location, snapshot.id))
        ],
        "csiSnapshots": [
            {"handle": content.handle, "driver": content.driver, "content": content.name}
            for content in sorted(csi, key=lambda content: (content.driver, content.handle, content.name))
        ],
    }


def _attempt(request: DeletionRequest) -> dict[str, Any]:
    created, following = request.meta.created, request.state.next_attempt
    return {
        "name": request.meta.name,
        "creationTimestamp": format_instant(created) if created else None,
        "phase": request.phase.value,
        "errors": list(request.errors),
        "attempts": request.state.attempts,
        "nextAttempt": format_instant(following) if following else None,
    }


def _print_description(described: dict[str, Any]) -> None:
    attempts = described["deletionAttempts"]
    screen.say(f"Name:              {described['name']}")
    screen.say(f"UID:               {described['uid']}")
    screen.say(f"Phase:             {described['phase']}")
    screen.say(f"Storage location:  {described['storageLocation']}")
    screen.say(f"Expires:           {described['expiration'] or 'never'}")
    say_expiry_and_holds(described)
    screen.say(f"Snapshots:         {len(described['snapshots'])}")
    for snapshot in described["snapshots"]:
        screen.say(f"  {snapshot['id']}  ({snapshot['provider']}, snapshot location {snapshot['location']})")
    if described["csiSnapshots"]:
        screen.say(f"CSI snapshots:     {len(described['csiSnapshots'])}")
    for snapshot in described["csiSnapshots"]:
        screen.say(f"  {snapshot['handle'] or '(no handle)'}  ({snapshot['driver']}, content {snapshot['content']})")
    say_restores(described)
    if attempts["deleteBackupRequests"]:
        _print_attempts(attempts)


def _print_attempts(attempts: dict[str, Any]) -> None:
    failed = f" ({attempts['failed']} failed)" if attempts["failed"] else ""
    screen.say("", f"Deletion Attempts{failed}:")
    for number, each in enumerate(attempts["deleteBackupRequests"]):
        tries = f", {each['attempts']} failed attempts" if each["attempts"] else ""
        following = f", next attempt {each['nextAttempt']}" if each["nextAttempt"] else ""
        start = [""] if number else []
        screen.say(*start, f"  {each['creationTimestamp'] or '-'}: {each['phase']} ({each['name']}{tries}{following})")
        if each["errors"]:
            screen.say("  Errors:")
        for error in each["errors"]:
            screen.say(f"    {error}")


# delete


@frozen
class Judged:
    """A backup that is asked for, and what a request for it would come to."""

    backup: Backup
    verdict: Verdict
    reason: str
    message: str


@frozen
class Askable(Judged):
    """A request is to be created; ``steps`` are those of the plan."""

    steps: int = 0


@frozen
class Asked(Judged):
    """A request is there already and has not ended: no second one is made."""

    request: ObjectRef


@frozen
class Hopeless(Judged):
    """A request would be refused, so none is created."""


Selected = Askable | Asked | Hopeless


@command.command("delete", short_help="Ask for the deletion of backups.")
@click.argument("names", nargs=-1)
@click.option("--selector", "-l", default="", help="All backups with these labels.")
@click.option("--all", "everything", is_flag=True, help="All backups.")
@click.option("--wait", is_flag=True, help="Wait until the deletion has ended (with --local: carry it out).")
@click.option("--even-in-progress", is_flag=True, help="Also a backup that is still in progress.")
@confirm_option
@output_option
@target_options
def delete_command(
    *,
    target: Target,
    output: str,
    names: tuple[str, ...],
    selector: str,
    everything: bool,
    wait: bool,
    even_in_progress: bool,
    confirm: bool,
) -> int:
    """Ask for the deletion of backups, with everything that they point at. A plan is shown before the question."""
    configure_logging("warning")
    if bool(names) + bool(selector) + everything != 1:
        raise click.UsageError(
            "you must specify exactly one of: specific backup name(s), the --all flag, or the --selector flag"
        )
    with target.open(read_only=False) as world:
        deletion = _Deletion(world, target, even_in_progress=even_in_progress)
        selected = deletion.select(names, selector)
        deletion.show(selected)
        asked = deletion.ask_for(selected, confirmed=confirm, wait=wait)
        code = max(deletion.wait(asked) if wait else 0, ERROR if deletion.failed else 0, key=WORST.index)
        created = [ref for each, ref in asked if isinstance(each, Askable)]
        if output != "table":
            screen.emit([{"name": ref.name, "namespace": ref.namespace, "uid": ref.uid} for ref in created], output)
        return code


class _Deletion:
    """One call of ``backup delete``."""

    def __init__(self, world: World, target: Target, *, even_in_progress: bool) -> None:
        self.world, self.target, self.even_in_progress = world, target, even_in_progress
        self.marks = mark_reader(world)
        self.reader = self.marks.reader
        self.dialect = self.reader.dialect
        self.failed = False

    def select(self, names: Sequence[str], selector: str) -> list[Selected]:
        """Find the backups and judge each as the controller would now."""
        found = self._named(names) if names else _backups(self.world, selector)
        if not found and not self.failed:
            screen.say("No backups found", err=True)
        waiting = [request for request in self.reader.requests() if request.phase is not RequestPhase.PROCESSED]
        return [self._judge(backup, [r for r in waiting if _concerns(r, backup)]) for backup in found]

    def _named(self, names: Iterable[str]) -> list[Backup]:
        found: list[Backup] = []
        for name in dict.fromkeys(names):
            try:
                found.append(_one(self.reader, name))
            except NotFoundError as fault:
                self.fail(str(fault))
        return found

    def fail(self, message: str) -> None:
        """Say what failed, and let the exit code be 1."""
        screen.say(f"reprieve: error: {message}", err=True)
        self.failed = True

    def _judge(self, backup: Backup, waiting: Sequence[DeletionRequest]) -> Selected:
        if waiting:
            request = waiting[0]
            message = f"already asked for by {request.meta.name}, which has not ended"
            return Asked(backup, Verdict.DELETE, "AlreadyAsked", message, request.ref)
        gathered, admission = self.marks.judge(self.reader.gather(self._draft(backup), []), now=self.target.now)
        match admission:
            case Refused(reason, message):
                self.failed = True
                return Hopeless(backup, Verdict.KEEP, reason.value, message)
            case Deferred(reason=reason, message=message):
                return Askable(backup, Verdict.KEEP, reason.value, f"{message}; the request would wait")
            case Admitted() as admitted:
                stages = [s for s in plan(gathered.facts, gathered.inventory).stages if s.name not in REQUEST_STAGES]
                steps = [step for stage in stages for step in (*stage.steps, *(done.step for done in stage.decided))]
                return Askable(backup, Verdict.DELETE, admitted.reason.value, _told(steps), len(steps))

    def _manifest(self, backup: Backup) -> dict[str, Any]:
        return self.dialect.request_manifest(request_for(backup, even_in_progress=self.even_in_progress))

    def _draft(self, backup: Backup) -> DeletionRequest:
        """The request as it would be, to ask core what would become of it."""
        return self.dialect.deletion_request(resource_from_json(self._manifest(backup)))

    def show(self, selected: Sequence[Selected]) -> None:
        """Show the plan, on standard error, since standard output belongs to the result."""
        for each in selected:
            steps = f" ({each.steps} steps)" if isinstance(each, Askable) and each.steps else ""
            screen.say(f"{each.backup.name}: {each.verdict.value} {each.reason}: {each.message}{steps}", err=True)

    def ask_for(self, selected: Sequence[Selected], *, confirmed: bool, wait: bool) -> list[tuple[Selected, ObjectRef]]:
        """Create the requests, once somebody has agreed; gives them with those that are there already.

        In a folder waiting means carrying out, so that is agreed to as well.
        """
        carried_out = wait and self.target.local is not None
        needs_a_yes = any(isinstance(each, Askable) or (carried_out and isinstance(each, Asked)) for each in selected)
        if needs_a_yes and not (confirmed or screen.ask("Are you sure you want to continue")):
            return []
        asked: list[tuple[Selected, ObjectRef]] = []
        for each in selected:
            try:
                asked += self._request_of(each)
            except ReprieveError as fault:
                self.fail(f"{each.backup.name}: no request could be created: {fault}")
        return asked

    def _request_of(self, each: Selected) -> list[tuple[Selected, ObjectRef]]:
        match each:
            case Asked(request=request):
                return [(each, request)]
            case Askable(backup=backup):
                return [(each, self._submit(backup))]
            case Hopeless():
                return []
            case _:
                assert_never(each)

    def _submit(self, backup: Backup) -> ObjectRef:
        """Create the request. A generated name that is taken is generated anew."""
        for left in reversed(range(NAME_TRIES)):
            try:
                created = self.world.cluster.create(self._manifest(backup))
            except AlreadyExistsError:
                if not left:
                    raise
            else:
                screen.say(f'Request to delete backup "{backup.name}" submitted successfully.', err=True)
                screen.say(
                    "The backup will be fully deleted after all associated data "
                    "(disk snapshots, backup files, restores) are removed.",
                    err=True,
                )
                return created.ref
        raise InvalidError("no free name was generated")

    def wait(self, asked: Sequence[tuple[Selected, ObjectRef]]) -> int:
        """Wait for the requests to end; in a local folder, carry them out, and no others."""
        if self.target.local is not None:
            report = carry_out(self.world, {each.backup.name for each, _ in asked}, now=self.target.now)
            for failure in report.failures:
                self.fail(failure.message)
        else:
            self._warn_without_controller()
            wait_for_end(self.world.cluster, self.dialect.request_kind, [ref for _, ref in asked])
        return max((self._judge_end(each.backup, ref) for each, ref in asked), key=WORST.index, default=0)

    def _warn_without_controller(self) -> None:
        """Nobody may be there to do the work; it is no error, since Velero's own controller may be.

        Who may not read the lease is told nothing.
        """
        with contextlib.suppress(ReprieveError):
            if not isinstance(controller_lease(self.world, now=self.target.now), Free):
                return
            lease = f"{lease_namespace(self.world.configuration)}/{LEASE_NAME}"
            screen.say(f"no controller holds the lease {lease}: until one runs, this waits", err=True)

    def _judge_end(self, backup: Backup, ref: ObjectRef) -> int:
        try:
            request = self.dialect.deletion_request(self.world.cluster.get(ref))
        except NotFoundError:
            return self._judge_gone(backup, ref)
        errors = joined(request.errors, by="; ")
        if request.phase is RequestPhase.PROCESSED:
            self.fail(f"{backup.name}: {ref.name} ended with: {errors or 'no error, yet it is still there'}")
            return ERROR
        why = f": {errors}" if errors else ""
        screen.say(f"{backup.name}: {ref.name} has not ended yet ({request.phase.value}){why}", err=True)
        return NOT_DONE

    def _judge_gone(self, backup: Backup, ref: ObjectRef) -> int:
        """A request that is gone has done its work when its backup is gone too; somebody may have taken it away."""
        live = self.reader.backup(backup.name)
        if isinstance(live, Backup) and live.meta.uid == backup.meta.uid:
            self.fail(f"{backup.name}: {ref.name} is gone, but the backup is still there: somebody took it back")
            return ERROR
        screen.say(f"{backup.name} is deleted", err=True)
        return 0


def _concerns(request: DeletionRequest, backup: Backup) -> bool:
    """Whether a request asks for exactly this backup; one without its UID label yet does, if it is not older."""
    if request.backup != backup.name:
        return False
    return request.bound_uid == backup.meta.uid or bind(request, backup)


def _told(steps: Iterable[Step]) -> str:
    """What a plan takes away, counted by kind."""
    counts = Counter(type(step) for step in steps)
    named = {DeleteSnapshot: "snapshot", DeleteRestore: "restore"}
    parts = [f"{counts[kind]} {word}{'s' * (counts[kind] != 1)}" for kind, word in named.items() if counts[kind]]
    return ", ".join([*parts, "its files and its record"])
