"""``reprieve backup``: list, describe and delete backups, as Velero's own commands do.

Before the question there is a plan.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click
from attrs import frozen

from reprieve.adapters.k8s import velero
from reprieve.core.backups import Backup, DeletionRequest, NativeSnapshot, RequestPhase, StorageLocation, request_for
from reprieve.core.errors import AlreadyExistsError, ContainerMissingError, InvalidError, NotFoundError, ReprieveError
from reprieve.core.holds import Held, any_hold
from reprieve.core.objects import ObjectRef, is_object_name, resource_from_json
from reprieve.core.reasons import Verdict
from reprieve.core.requests import Absent, Admitted, Deferred, Refused, admit, plan
from reprieve.core.values import format_instant
from reprieve.entrypoints.cli import render
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.cli.options import Target, ask, confirm_option, output_option, target_options
from reprieve.entrypoints.cli.root import ERROR, NOT_DONE
from reprieve.entrypoints.controller.build import backup_reader, build_controllers
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World

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
        render.emit([_summary(backup, target.now) for backup in backups], output)
        return 0
    if not backups:
        click.echo("No backups found.")
        return 0
    rows = [_row(backup, target.now) for backup in backups]
    render.table(("NAME", "STATUS", "CREATED", "EXPIRES", "LOCATION", "SNAPSHOTS", "HOLD"), rows)
    return 0


def _backups(world: World, selector: str) -> list[Backup]:
    try:
        found = world.cluster.list(velero.BACKUP, namespace=world.backups.namespace, selector=selector)
    except ContainerMissingError as fault:
        raise ContainerMissingError(f"{fault}: is Velero installed in this cluster?") from fault
    return sorted((velero.backup(each) for each in found.items), key=lambda backup: backup.name)


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
        reader = backup_reader(world)
        backup = _one(reader, name)
        described = _describe(reader, backup)
    if output != "table":
        render.emit(described, output)
    else:
        _print_description(described, _hold(backup, target.now))
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
    return {
        "name": backup.name,
        "uid": backup.meta.uid,
        "phase": _status(backup),
        "expiration": format_instant(backup.expiration) if backup.expiration else None,
        "storageLocation": backup.storage_location,
        "snapshots": _snapshots(reader, backup),
        "deletionAttempts": {
            "failed": len(failed),
            "deleteBackupRequests": [_attempt(request) for request in sorted(attempts, key=lambda r: r.meta.name)],
        },
    }


def _snapshots(reader: BackupReader, backup: Backup) -> list[dict[str, str]]:
    location = reader.location(backup.storage_location) if backup.storage_location else Absent()
    if not isinstance(location, StorageLocation):
        return []
    providers = {each.name: each.provider for each in reader.snapshot_locations()}
    try:
        items = reader.inventory(backup, location).items
    except ReprieveError as fault:
        click.echo(f"reprieve: the snapshots of {backup.name} cannot be read: {fault}", err=True)
        return []
    native = [item for item in items if isinstance(item, NativeSnapshot) and item.id]
    return [
        {"id": snapshot.id, "provider": providers.get(snapshot.location, ""), "location": snapshot.location}
        for snapshot in sorted(native, key=lambda snapshot: (snapshot.location, snapshot.id))
    ]


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


def _print_description(described: dict[str, Any], hold: str) -> None:
    attempts = described["deletionAttempts"]
    click.echo(f"Name:              {described['name']}")
    click.echo(f"UID:               {described['uid']}")
    click.echo(f"Phase:             {described['phase']}")
    click.echo(f"Storage location:  {described['storageLocation']}")
    click.echo(f"Expires:           {described['expiration'] or 'never'}")
    click.echo(f"Hold:              {hold or 'none'}")
    click.echo(f"Snapshots:         {len(described['snapshots'])}")
    for snapshot in described["snapshots"]:
        click.echo(f"  {snapshot['id']}  ({snapshot['provider']}, snapshot location {snapshot['location']})")
    if attempts["deleteBackupRequests"]:
        _print_attempts(attempts)


def _print_attempts(attempts: dict[str, Any]) -> None:
    failed = f" ({attempts['failed']} failed)" if attempts["failed"] else ""
    click.echo(f"\nDeletion Attempts{failed}:")
    for each in attempts["deleteBackupRequests"]:
        following = f", next attempt {each['nextAttempt']}" if each["nextAttempt"] else ""
        click.echo(
            f"  {each['creationTimestamp']}: {each['phase']} ({each['name']}, {each['attempts']} tries{following})"
        )
        for error in each["errors"]:
            click.echo(f"    {error}")


# delete


@frozen
class Selected:
    """A backup to ask the deletion of, with what the deletion would do, or why it is not asked for."""

    backup: Backup
    verdict: Verdict
    reason: str
    message: str
    steps: int = 0
    ask: bool = True


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
        if not any(each.ask for each in selected) or not (confirm or ask("Are you sure you want to continue")):
            return deletion.finish([], output)
        asked = [deletion.submit(each) for each in selected if each.ask]
        code = deletion.wait(asked) if wait else 0
        return max(deletion.finish(asked, output), code, key=(0, NOT_DONE, ERROR).index)


class _Deletion:
    """One call of ``backup delete``."""

    def __init__(self, world: World, target: Target, *, even_in_progress: bool) -> None:
        self.world, self.target, self.even_in_progress = world, target, even_in_progress
        self.reader = backup_reader(world)
        self.failed = False

    def select(self, names: Sequence[str], selector: str) -> list[Selected]:
        """Find the backups and judge each as the controller would now."""
        found = self._named(names) if names else _backups(self.world, selector)
        if not found and not self.failed:
            click.echo("No backups found", err=True)
        pending = {r.bound_uid: r for r in self.reader.requests() if r.phase is not RequestPhase.PROCESSED}
        return [self._judge(backup, pending.get(backup.meta.uid)) for backup in found]

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
        click.echo(f"reprieve: error: {message}", err=True)
        self.failed = True

    def _judge(self, backup: Backup, pending: DeletionRequest | None) -> Selected:
        if pending is not None:
            message = f"already asked for by {pending.meta.name}, which has not ended"
            return Selected(backup, Verdict.KEEP, "AlreadyAsked", message, ask=False)
        gathered = self.reader.gather(self._draft(backup), [])
        match admit(gathered.facts, gathered.inventory, now=self.target.now):
            case Refused(reason, message):
                self.failed = True
                return Selected(backup, Verdict.KEEP, reason.value, message, ask=False)
            case Deferred(reason=reason, message=message):
                return Selected(backup, Verdict.KEEP, reason.value, f"{message}; the request would wait")
            case Admitted():
                stages = plan(gathered.facts, gathered.inventory).stages
                steps = [
                    s for stage in stages if stage.name not in REQUEST_STAGES for s in (*stage.steps, *stage.decided)
                ]
                message = (
                    f"{len(gathered.inventory.items)} items outside the bucket, its files, its restores, its record"
                )
                return Selected(backup, Verdict.DELETE, "Admitted", message, len(steps))

    def _manifest(self, backup: Backup) -> dict[str, Any]:
        return velero.request_manifest(request_for(backup, even_in_progress=self.even_in_progress))

    def _draft(self, backup: Backup) -> DeletionRequest:
        """The request as it would be, to ask core what would become of it."""
        return velero.deletion_request(resource_from_json(self._manifest(backup)))

    def show(self, selected: Sequence[Selected]) -> None:
        """Show the plan, on standard error, since standard output belongs to the result."""
        for each in selected:
            steps = f" ({each.steps} steps)" if each.steps else ""
            click.echo(f"{each.backup.name}: {each.verdict.value} {each.reason}: {each.message}{steps}", err=True)

    def submit(self, selected: Selected) -> ObjectRef:
        """Create the request. A generated name that is taken is generated anew."""
        for left in reversed(range(NAME_TRIES)):
            try:
                created = self.world.cluster.create(self._manifest(selected.backup))
            except AlreadyExistsError:
                if not left:
                    raise
            else:
                click.echo(f'Request to delete backup "{selected.backup.name}" submitted successfully.', err=True)
                click.echo(
                    "The backup will be fully deleted after all associated data "
                    "(disk snapshots, backup files, restores) are removed.",
                    err=True,
                )
                return created.ref
        raise InvalidError("no free name was generated")

    def wait(self, asked: Sequence[ObjectRef]) -> int:
        """Wait for the requests to end; in a local folder, carry them out."""
        if self.target.local is not None:
            built = build_controllers(self.world, names=["deletion"], stop=threading.Event())
            try:
                run_once(built.reconcilers, now=self.target.now)
            finally:
                built.close()
            return self._judge_ends(asked)
        from reprieve.entrypoints.cli.waiting import wait_for_end

        wait_for_end(self.world.cluster, velero.REQUEST, asked)
        return self._judge_ends(asked)

    def _judge_ends(self, asked: Sequence[ObjectRef]) -> int:
        codes = [self._judge_end(ref) for ref in asked]
        return max(codes, key=(0, NOT_DONE, ERROR).index, default=0)

    def _judge_end(self, ref: ObjectRef) -> int:
        try:
            request = velero.deletion_request(self.world.cluster.get(ref))
        except NotFoundError:
            click.echo(f"{ref.name}: the backup is deleted", err=True)
            return 0
        errors = "; ".join(request.errors)
        if request.phase is RequestPhase.PROCESSED:
            self.fail(f"{ref.name}: {errors}")
            return ERROR
        click.echo(f"{ref.name}: {request.phase.value}, not ended yet {errors}".rstrip(), err=True)
        return NOT_DONE

    def finish(self, asked: Sequence[ObjectRef], output: str) -> int:
        """Print the requests that were created; exit code 1 when any name failed."""
        if output != "table":
            render.emit([{"name": ref.name, "namespace": ref.namespace, "uid": ref.uid} for ref in asked], output)
        return ERROR if self.failed else 0
