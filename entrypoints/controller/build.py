"""Builds the controllers that the configuration switches on, over a world of adapters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from attrs import frozen

from reprieve.adapters.k8s.dialect import VELERO, Dialect, ark_dialect
from reprieve.entrypoints.configuration import BackupSettings, BackupsOff, ConfigurationError
from reprieve.entrypoints.controller.deletion import DeletionReconciler
from reprieve.entrypoints.controller.effects import Confirmed, Effects, Pools
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.controller.index import RequestIndex
from reprieve.entrypoints.controller.marks import MarkReader, OtherLists
from reprieve.entrypoints.controller.migration import MigrationReconciler
from reprieve.entrypoints.controller.protection import ProtectionReconciler
from reprieve.entrypoints.controller.queue import WorkQueue
from reprieve.entrypoints.controller.retention import RetentionReconciler, rules_of
from reprieve.entrypoints.controller.runtime import Lane, Reconciler
from reprieve.entrypoints.controller.secrets import Secrets
from reprieve.entrypoints.controller.sync import SyncReconciler
from reprieve.entrypoints.world import World

PROTECTION_WORKERS = 4


@frozen
class Controllers:
    """Lanes that are ready to run, and how to let go of their threads."""

    lanes: tuple[Lane, ...]
    close: Callable[[], None]

    @property
    def reconcilers(self) -> tuple[Reconciler, ...]:
        """The controllers themselves."""
        return tuple(lane.reconciler for lane in self.lanes)


def still() -> float:
    """The clock of a single run, which stands still."""
    return 0.0


def build_controllers(
    world: World, *, names: Sequence[str], stop: threading.Event, elapsed: Callable[[], float] = still
) -> Controllers:
    """Build the controllers of those names, or all that are switched on. Raises ``ConfigurationError``.

    ``elapsed`` counts seconds within a pass; by default time stands still, as it does in a single run.
    """
    pools = Pools(_parallelism(world))
    makers = {**_backup_makers(world, pools, stop, elapsed), **_protection_makers(world, stop)}
    unknown = sorted(set(names) - set(makers))
    if unknown:
        raise ConfigurationError(
            f"--controllers: {', '.join(unknown)} is not switched on; there are {', '.join(makers) or 'none'}"
        )
    chosen = [maker for name, maker in makers.items() if not names or name in names]
    return Controllers(tuple(maker() for maker in chosen), pools.close)


def _parallelism(world: World) -> int:
    backups = world.configuration.backups
    return 1 if isinstance(backups, BackupsOff) else backups.deletion.snapshot_parallelism


def _backup_makers(
    world: World, pools: Pools, stop: threading.Event, elapsed: Callable[[], float]
) -> dict[str, Callable[[], Lane]]:
    if isinstance(world.configuration.backups, BackupsOff):
        return {}
    # In this order: records come and holds are mirrored first, and requests are filed before they are worked on.
    return {
        "migration": lambda: Lane(MigrationReconciler(backup_reader(world), world.cluster)),
        "sync": lambda: _sync(world, pools, stop),
        "retention": lambda: _retention(world, pools, stop, elapsed),
        "deletion": lambda: _deletion(world, pools, stop, elapsed),
    }


def _protection_makers(world: World, stop: threading.Event) -> dict[str, Callable[[], Lane]]:
    if not world.configuration.protection:
        return {}
    return {"protection": lambda: Lane(protection_reconciler(world, stop), workers=PROTECTION_WORKERS)}


def protection_reconciler(world: World, stop: threading.Event | None = None) -> ProtectionReconciler:
    """The reconciler of the world's protected owner kinds; commands ask it what would be decided."""
    return ProtectionReconciler(world.cluster, world.configuration.protection, events=world.events, stop=stop)


def backup_reader(world: World) -> BackupReader:
    """The reader of the world's backups."""
    namespace = world.backups.namespace
    secrets = Secrets(world.cluster, namespace)
    dialect = dialect_of(world.backups)
    return BackupReader(world.cluster, world.object_stores, secrets, namespace, world.handlers, dialect)


def dialect_of(settings: BackupSettings) -> Dialect:
    """The dialect that the configuration names; Ark's has its one bucket and its one provider from there."""
    if settings.ark is None or settings.dialect != "ark":
        return VELERO
    return ark_dialect(bucket=settings.ark.bucket, provider=settings.ark.provider, namespace=settings.namespace)


def mark_reader(
    world: World, *, elapsed: Callable[[], float] = still, confirmed: Confirmed | None = None
) -> MarkReader:
    """The reader of whose the snapshots of the world's backups are."""
    reader, untagged = backup_reader(world), world.configuration.untagged
    return MarkReader(reader, world.snapshot_stores, untagged, confirmed or Confirmed(), OtherLists(elapsed))


def _effects(world: World, reader: BackupReader, pools: Pools, stop: threading.Event) -> Effects:
    stores = (world.object_stores, world.snapshot_stores)
    return Effects(world.cluster, *stores, reader.secrets, pools, stop, reader.dialect)


def _sync(world: World, pools: Pools, stop: threading.Event) -> Lane:
    reader = backup_reader(world)
    effects = _effects(world, reader, pools, stop)
    reconciler = SyncReconciler(reader, world.cluster, effects, world.backups.sync, stop)
    return Lane(reconciler, WorkQueue(place_of=lambda location: location))


def _retention(world: World, pools: Pools, stop: threading.Event, elapsed: Callable[[], float]) -> Lane:
    settings, marks = world.backups.retention, mark_reader(world, elapsed=elapsed)
    effects = _effects(world, marks.reader, pools, stop)
    return Lane(RetentionReconciler(marks, effects, rules_of(settings), stop), resync=settings.interval)


def _deletion(world: World, pools: Pools, stop: threading.Event, elapsed: Callable[[], float]) -> Lane:
    settings, reader = world.backups.deletion, backup_reader(world)
    effects = _effects(world, reader, pools, stop)
    reconciler = DeletionReconciler(
        mark_reader(world, elapsed=elapsed, confirmed=effects.confirmed),
        RequestIndex(),
        world.cluster,
        effects,
        world.events,
        settings,
        stop,
        elapsed,
    )
    return Lane(reconciler, WorkQueue(place_of=reconciler.place_of), workers=settings.workers)
