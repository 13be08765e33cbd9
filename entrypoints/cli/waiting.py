"""Waiting for requests to end: by watch, or by carrying them out where no controller runs. No polling loop."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen

from reprieve.adapters.k8s import velero
from reprieve.core.backups import RequestPhase
from reprieve.core.errors import ExpiredError, UnavailableError
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.ports import Bookmark, Cluster, Removed, Upserted
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.decisions import Result
from reprieve.entrypoints.controller.runtime import Reconciler, Report, Watch, run_once
from reprieve.entrypoints.world import World


def carry_out(world: World, backups: Collection[str], *, now: datetime) -> Report:
    """Carry out what is asked for these backups, and nothing else that the world may wait for."""
    built = build_controllers(world, names=["deletion"], stop=threading.Event())
    keys = frozenset((world.backups.namespace, backup) for backup in backups)
    try:
        return run_once([_Only(each, keys) for each in built.reconcilers], now=now)
    finally:
        built.close()


@frozen
class _Only:
    """A controller that sees some keys only."""

    whole: Reconciler
    chosen: frozenset[Any]

    @property
    def name(self) -> str:
        return self.whole.name

    def keys(self) -> Sequence[Any]:
        every = self.whole.keys()
        return [key for key in every if key in self.chosen]

    def watches(self) -> Sequence[Watch]:
        return self.whole.watches()

    def reconcile(self, key: Any, *, now: datetime, apply: bool = True) -> Result:
        return self.whole.reconcile(key, now=now, apply=apply)


def wait_for_end(cluster: Cluster, kind: ObjectKind, refs: Sequence[ObjectRef]) -> None:
    """Return when each of the requests is processed or gone. Raises core errors when the cluster cannot be read."""
    waiting = {ref.uid for ref in refs}
    namespace = refs[0].namespace if refs else ""
    while waiting:
        listing = cluster.list(kind, namespace=namespace)
        waiting &= {each.meta.uid for each in listing.items if not _ended(Upserted(each))}
        if waiting:
            waiting = _follow(cluster, kind, namespace, listing.resource_version, waiting)


def _follow(cluster: Cluster, kind: ObjectKind, namespace: str, version: str, waiting: set[str]) -> set[str]:
    """Follow changes until nothing is waited for, or the watch ends; then the caller lists again."""
    left = set(waiting)
    try:
        for event in cluster.watch(kind, namespace=namespace, resource_version=version):
            left -= {event.resource.meta.uid} if not isinstance(event, Bookmark) and _ended(event) else set()
            if not left:
                break
    except (ExpiredError, UnavailableError):
        pass
    return left


def _ended(event: Upserted | Removed) -> bool:
    return isinstance(event, Removed) or velero.deletion_request(event.resource).phase is RequestPhase.PROCESSED
