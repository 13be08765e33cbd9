"""Dependents by owner, from one live list of metadata a kind that serves many owners.

Guarantee: a list is used only for an owner that was seen terminating before it began, and only for a short time;
what our own writes leave behind is taken into it, and a conflict or a change that a watch tells of drops it. It covers
all namespaces, so that references across them are found too. Not guaranteed: one consistent instant over several kinds;
every effect carries the version that it rests on.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable

from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef, Resource
from reprieve.core.ports import Cluster
from reprieve.core.protection import recorded_owner
from reprieve.entrypoints.controller.owners import Moments, ProtectedKinds

MAX_AGE = 10.0  # seconds


class _Snapshot:
    """What one list found, by UID, and which of it concerns which owner."""

    def __init__(self, begun: int, at: float) -> None:
        self.begun, self.at = begun, at
        self.known: dict[str, Resource] = {}
        self.by_owner: dict[str, set[str]] = defaultdict(set)
        self._owners: dict[str, frozenset[str]] = {}

    def note(self, resource: Resource, owners: frozenset[str]) -> None:
        uid = resource.meta.uid
        self.drop(uid)
        if owners:
            self.known[uid], self._owners[uid] = resource, owners
        for owner in owners:
            self.by_owner[owner].add(uid)

    def drop(self, uid: str) -> None:
        self.known.pop(uid, None)
        for owner in self._owners.pop(uid, frozenset()):
            self.by_owner[owner].discard(uid)


class DependentLists:
    """Lists of dependents, one a kind."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: ProtectedKinds,
        moments: Moments,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_age: float = MAX_AGE,
    ) -> None:
        """Know nothing; make no call. ``clock`` gives monotonic seconds."""
        self._cluster, self._kinds, self._moments = cluster, kinds, moments
        self._clock, self._max_age = clock, max_age
        self._snapshots: dict[ObjectKind, _Snapshot] = {}
        self._listing: dict[ObjectKind, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.RLock()

    def refresh(self) -> None:
        """Begin anew: every list is made again when it is needed."""
        with self._lock:
            self._snapshots.clear()

    def concerning(self, kind: ObjectKind, owner_uid: str, *, since: int) -> list[Resource]:
        """The objects of a kind that refer to an owner, or were orphaned from it, by a list begun after ``since``.

        In order. Raises core errors, ``ContainerMissingError`` for a kind that is not served.
        """
        snapshot = self._fresh(kind, since)
        with self._lock:
            found = [snapshot.known[uid] for uid in snapshot.by_owner.get(owner_uid, ())]
        return sorted(found, key=lambda resource: resource.ref)

    def everything(self, kind: ObjectKind) -> list[Resource]:
        """All objects of a kind that refer to an owner of a protected kind. Raises core errors."""
        snapshot = self._fresh(kind, 0)
        with self._lock:
            return sorted(snapshot.known.values(), key=lambda resource: resource.ref)

    def _fresh(self, kind: ObjectKind, since: int) -> _Snapshot:
        with self._lock:
            listing = self._listing[kind]
        with listing:  # others wait for the list at hand rather than make their own
            known = self._snapshots.get(kind)
            if known is not None and known.begun > since and self._clock() - known.at <= self._max_age:
                return known
            made = self._list(kind)
            with self._lock:
                self._snapshots[kind] = made
            return made

    def _list(self, kind: ObjectKind) -> _Snapshot:
        made = _Snapshot(self._moments.next(), self._clock())
        for resource in self._cluster.list(kind, metadata_only=True).items:
            made.note(resource, self._owners(resource.meta))
        return made

    def _owners(self, meta: ObjectMeta) -> frozenset[str]:
        """The UIDs of the owners of protected kinds that an object refers to, or was orphaned from."""
        referred = frozenset(each.uid for each in meta.owners if each.uid and self._kinds.of(each.type) is not None)
        recorded = recorded_owner(meta)
        return referred | {recorded} if recorded else referred

    # What is heard of them

    def note(self, resource: Resource) -> None:
        """Take in what a write of ours left behind."""
        with self._lock:
            snapshot = self._snapshots.get(resource.type)
            if snapshot is not None:
                snapshot.note(resource, self._owners(resource.meta))

    def gone(self, ref: ObjectRef) -> None:
        """Take in that an object is gone."""
        with self._lock:
            snapshot = self._snapshots.get(ref.type)
            if snapshot is not None:
                snapshot.drop(ref.uid)

    def doubt(self, ref: ObjectRef) -> None:
        """Drop the list of a kind: something in it is no longer so."""
        with self._lock:
            self._snapshots.pop(ref.type, None)

    def hear(self, resource: Resource, *, removed: bool) -> None:
        """Compare what a watch tells with what is known; a difference that matters drops the list.

        A watch may be behind the list, so what it tells is never taken in.
        """
        with self._lock:
            snapshot = self._snapshots.get(resource.type)
            if snapshot is None:
                return
            known = snapshot.known.get(resource.meta.uid)
            same = known is not None and known.meta.resource_version == resource.meta.resource_version
            if (removed and known is not None) or (not removed and not same and self._matters(known, resource)):
                self._snapshots.pop(resource.type, None)

    def _matters(self, known: Resource | None, resource: Resource) -> bool:
        return known is not None or bool(self._owners(resource.meta))
