"""Gathering an owner's dependents as facts for the decision: read live, never from a watch.

Guarantee: what could not be read, decoded or found out is ``UnknownDependent`` with the reason, and a kind that is not
served is that for every owner that may have dependents of it; it never looks like "no dependents". Another owner of a
dependent counts as absent only when a live read says so. Not guaranteed: one consistent instant; every step carries the
version that it rests on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from reprieve.adapters.k8s import faros
from reprieve.core.errors import ConflictError, ContainerMissingError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef, OwnerReference, Resource
from reprieve.core.ports import Cluster, Scope
from reprieve.core.protection import (
    AbsentDependent,
    Dependent,
    PresentDependent,
    PresentOwner,
    UnknownDependent,
    concerns,
    refers_to,
)
from reprieve.core.values import FrozenMap
from reprieve.entrypoints.controller.carried import CarriedKinds
from reprieve.entrypoints.controller.lists import MAX_AGE, DependentLists
from reprieve.entrypoints.controller.owners import Moments, OwnerIndex, ProtectedKind, ProtectedKinds

NAMESPACE = ObjectKind("v1", "Namespace")
ANY = "(any)"
"""The name of a dependent when nothing is known but its kind."""
Slot = tuple[ObjectKind, str, str]


class Memory:
    """What has to be counted over several looks at one owner: failed reads, and dependents that come back.

    It lives as long as the process: after a restart the counts begin anew, which is the careful way for the first and
    costs a few more deletions for the second.
    """

    def __init__(self) -> None:
        """Remember nothing."""
        self._failed: dict[str, dict[Slot, int]] = {}
        self._deleted: dict[str, dict[Slot, set[str]]] = {}
        self._last: dict[str, int] = {}
        self._lock = threading.Lock()

    def failed(self, owner_uid: str, ref: ObjectRef) -> int:
        """Count one more failure in a row; tells how many."""
        with self._lock:
            counts = self._failed.setdefault(owner_uid, {})
            counts[_slot(ref)] = counts.get(_slot(ref), 0) + 1
            return counts[_slot(ref)]

    def succeeded(self, owner_uid: str, ref: ObjectRef) -> None:
        """End a row of failures."""
        with self._lock:
            self._failed.get(owner_uid, {}).pop(_slot(ref), None)

    def deleted(self, owner_uid: str, ref: ObjectRef, moment: int) -> None:
        """Remember that this very object was deleted for its owner, and when."""
        with self._lock:
            self._last[owner_uid] = moment
            self._deleted.setdefault(owner_uid, {}).setdefault(_slot(ref), set()).add(ref.uid)

    def last_deletion(self, owner_uid: str) -> int:
        """The moment of the last deletion for an owner; 0 when there was none."""
        with self._lock:
            return self._last.get(owner_uid, 0)

    def recreated(self, owner_uid: str, ref: ObjectRef) -> int:
        """How many objects of that name were deleted for the owner before this one."""
        with self._lock:
            before = self._deleted.get(owner_uid, {}).get(_slot(ref), set())
            return len(before - {ref.uid})

    def forget(self, owner_uid: str) -> None:
        """Remember nothing more of an owner that is gone."""
        with self._lock:
            self._failed.pop(owner_uid, None)
            self._deleted.pop(owner_uid, None)
            self._last.pop(owner_uid, None)


def _slot(ref: ObjectRef) -> Slot:
    return (ref.type, ref.namespace, ref.name)


class Namespaces:
    """The annotations of namespaces, read live and kept for a short time."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float], max_age: float) -> None:
        """Know nothing; make no call."""
        self._cluster, self._clock, self._max_age = cluster, clock, max_age
        self._known: dict[str, tuple[float, FrozenMap[str, str]]] = {}

    def refresh(self) -> None:
        """Forget all."""
        self._known.clear()

    def annotations(self, name: str) -> FrozenMap[str, str]:
        """A namespace's annotations; none for a cluster-scoped object. Raises core errors when it cannot be read.

        An object that is there has a namespace, so one that is not there is only missing from a partial dump.
        """
        if not name:
            return FrozenMap()
        at, known = self._known.get(name, (0.0, None))
        if known is None or self._clock() - at > self._max_age:
            known = self._read(name)
            self._known[name] = (self._clock(), known)
        return known

    def _read(self, name: str) -> FrozenMap[str, str]:
        try:
            ref = ObjectRef(NAMESPACE.api_version, NAMESPACE.kind, name)
            return self._cluster.get(ref, metadata_only=True).meta.annotations
        except NotFoundError:
            return FrozenMap()


class DependentReader:
    """Reads the dependents of owners."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: ProtectedKinds,
        owners: OwnerIndex,
        lists: DependentLists,
        moments: Moments,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make no call. ``clock`` gives monotonic seconds."""
        self._cluster, self._kinds, self._owners = cluster, kinds, owners
        self.lists, self._moments = lists, moments
        self._namespaces = Namespaces(cluster, clock, MAX_AGE)
        self.carried = CarriedKinds(cluster)
        self.memory = Memory()

    def refresh(self) -> None:
        """Begin anew: nothing that was read before counts."""
        self.lists.refresh()
        self._namespaces.refresh()

    def gather(self, owner: PresentOwner, kind: ProtectedKind) -> tuple[Dependent, ...]:
        """All that an owner has, or may have, as facts. Raises ``ConflictError`` when the owner changed meanwhile."""
        carried = [self._carried(owner)] if kind.carries else []
        listed = [each for dependents in kind.dependents for each in self._listed(owner, dependents)]
        return tuple({_slot(each.ref): each for each in (*listed, *carried)}.values())

    def gather_lost(self, owner: ObjectRef, kind: ProtectedKind) -> tuple[Dependent, ...]:
        """What still refers to an owner that is not there. Raises core errors; what is not served has nothing."""
        found: list[Resource] = []
        for each in self.scanned(kind):
            try:
                found += self.lists.concerning(each, owner.uid, since=0)
            except ContainerMissingError:
                continue
        lost = [each for each in found if refers_to(each.meta, owner.uid) and self._looks_for(kind, owner, each)]
        return tuple(self._present(owner, each) for each in lost)

    def _looks_for(self, kind: ProtectedKind, owner: ObjectRef, dependent: Resource) -> bool:
        """Whether a dependent's reference leads to the very place where the owner was not found, and to no other."""
        return (place_of(self._cluster, kind.owner, dependent.meta.namespace) or "") == owner.namespace

    def scanned(self, kind: ProtectedKind) -> tuple[ObjectKind, ...]:
        """The kinds of dependents that are looked through for references to owners that vanished."""
        learned = self.carried.of(kind.owner) if kind.carries else ()
        return tuple(dict.fromkeys((*kind.dependents, *learned)))

    def deleted(self, owner: ObjectRef, ref: ObjectRef) -> None:
        """Remember a deletion: only a list that begins after it tells whether the dependent is gone for good."""
        self.memory.deleted(owner.uid, ref, self._moments.next())

    # Found by reference

    def _listed(self, owner: PresentOwner, kind: ObjectKind) -> list[Dependent]:
        uid = owner.meta.uid
        since = max(self._owners.terminating_since(uid), self.memory.last_deletion(uid))
        anyone = ObjectRef(kind.api_version, kind.kind, ANY, owner.meta.namespace)
        try:
            found = self.lists.concerning(kind, uid, since=since)
        except ReprieveError as fault:
            return [self._unknown(owner.ref, anyone, f"its kind cannot be listed: {fault}")]
        self.memory.succeeded(uid, anyone)
        # What lies elsewhere, or only says that it was ours, is nobody's dependent here: nothing is asked about it.
        return [self._present(owner.ref, each) for each in found if concerns(owner.meta, each.meta)]

    # Carried by the owner

    def _carried(self, owner: PresentOwner) -> Dependent:
        """What the owner's data names: a whole read of the owner, then a live read of that."""
        try:
            whole = self._cluster.get(owner.ref)
        except NotFoundError as fault:
            raise ConflictError(f"{owner.ref} is gone: {fault}") from fault
        if whole.meta.uid != owner.meta.uid:
            raise ConflictError(f"{owner.ref} was made anew meanwhile")
        self.carried.note(whole)
        match faros.dependent_of(whole, self._cluster.scope):
            case faros.Undecodable(ref, why):
                return self._unknown(owner.ref, ref, why)
            case ref:
                return self._read(owner, ref)

    def _read(self, owner: PresentOwner, ref: ObjectRef) -> Dependent:
        try:
            found = self._cluster.get(ref, metadata_only=True)
        except NotFoundError:
            self.memory.succeeded(owner.meta.uid, ref)
            return AbsentDependent(ref)
        except ReprieveError as fault:
            return self._unknown(owner.ref, ref, f"it cannot be read: {fault}")
        if not concerns(owner.meta, found.meta):
            return PresentDependent(found.type, found.meta)  # foreign: nothing more has to be known of it
        return self._present(owner.ref, found)

    # Facts

    def _unknown(self, owner: ObjectRef, ref: ObjectRef, why: str) -> UnknownDependent:
        return UnknownDependent(ref, why, self.memory.failed(owner.uid, ref))

    def _present(self, owner: ObjectRef, found: Resource) -> Dependent:
        ref, meta = found.ref, found.meta
        try:
            annotations = self._namespaces.annotations(meta.namespace)
        except ReprieveError as fault:
            return self._unknown(owner, ref, f"the annotations of its namespace cannot be read: {fault}")
        self.memory.succeeded(owner.uid, ref)
        return PresentDependent(
            found.type,
            meta,
            namespace_annotations=annotations,
            absent_owners=self._absent(meta, (each for each in meta.owners if each.uid != owner.uid)),
            recreated=self.memory.recreated(owner.uid, ref),
            protected=self._kinds.of(found.type) is not None,
        )

    def _absent(self, dependent: ObjectMeta, others: Iterable[OwnerReference]) -> frozenset[str]:
        return frozenset(each.uid for each in others if each.uid and self._confirmed_absent(dependent, each))

    def _confirmed_absent(self, dependent: ObjectMeta, owner: OwnerReference) -> bool:
        """Whether a live read, where Kubernetes would look, finds no owner of that UID."""
        try:
            place = place_of(self._cluster, owner.type, dependent.namespace)
            if place is None:
                return False
            ref = ObjectRef(owner.api_version, owner.kind, owner.name, place)
            return self._cluster.get(ref, metadata_only=True).meta.uid != owner.uid
        except NotFoundError:
            return True
        except ReprieveError:
            return False


def place_of(cluster: Cluster, owner_kind: ObjectKind, dependent_namespace: str) -> str | None:
    """The namespace that an owner reference looks in (empty: cluster-scoped); None when it can look nowhere.

    Raises ``ContainerMissingError`` when the kind is not served.
    """
    if cluster.scope(owner_kind) is Scope.CLUSTER:
        return ""
    return dependent_namespace or None
