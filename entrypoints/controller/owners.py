"""Owners of protected kinds as they were last seen, metadata only, and which kinds those are.

Guarantee: safe for use by many threads; it is known from which moment on an owner was seen terminating, so that a list
of dependents can be told to have begun after it. Not guaranteed: freshness. What destroys rests on a live read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import count

from attrs import frozen

from reprieve.core.objects import ObjectKind, ObjectRef, Resource
from reprieve.core.protection import Policy, Verb
from reprieve.entrypoints.configuration import ProtectionEntry


@frozen(order=True)
class Key:
    """An owner by kind, namespace (empty: cluster-scoped) and name.

    With a UID: an owner that is referred to but not there. Without a name: the kind itself, which could not be listed.
    """

    kind: ObjectKind
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def ref(self) -> ObjectRef:
        """The reference, with the UID where there is one."""
        return ObjectRef(self.kind.api_version, self.kind.kind, self.name, self.namespace, self.uid)

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind.kind} {place}" if place else str(self.kind)


def key_of(resource: Resource) -> Key:
    """The key of an owner that is there."""
    return Key(resource.type, resource.meta.namespace, resource.meta.name)


@frozen
class ProtectedKind:
    """A protected owner kind: its policy, and where its dependents are to be found.

    ``dependents`` are the kinds that are listed for references; with ``carries`` an owner also carries its dependent's
    manifest, as Faros' owners do.
    """

    owner: ObjectKind
    policy: Policy
    dependents: tuple[ObjectKind, ...] = ()
    carries: bool = False


def protected_kind(entry: ProtectionEntry) -> ProtectedKind:
    """Read an entry of the configuration."""
    policy = Policy(Verb(entry.on_request), Verb(entry.otherwise), entry.allow_delete_by_annotation)
    return ProtectedKind(entry.owner, policy, entry.dependents, entry.dialect == "faros")


@frozen
class ProtectedKinds:
    """All protected owner kinds. References name them in any version of their group."""

    kinds: tuple[ProtectedKind, ...] = ()

    def of(self, kind: ObjectKind) -> ProtectedKind | None:
        """The protected kind that a reference's or an object's kind means."""
        wanted = (kind.group, kind.kind)
        return next((each for each in self.kinds if (each.owner.group, each.owner.kind) == wanted), None)

    @property
    def dependents(self) -> tuple[ObjectKind, ...]:
        """Every kind of dependents that the configuration names, once, in order."""
        return tuple(dict.fromkeys(kind for each in self.kinds for kind in each.dependents))


class Moments:
    """A counter that tells which of two things came first within this process."""

    def __init__(self) -> None:
        """Start at one: nothing comes before."""
        self._count = count(1)

    def next(self) -> int:
        """A moment later than all before. Safe from any thread: the counter steps in one go."""
        return next(self._count)


class OwnerIndex:
    """The owners that are known."""

    def __init__(self, moments: Moments) -> None:
        """Know nothing."""
        self._moments = moments
        self._by_key: dict[Key, Resource] = {}
        self._by_uid: dict[str, Key] = {}
        self._terminating: dict[str, int] = {}
        self._heard: dict[Key, int] = {}
        self._listed: set[ObjectKind] = set()
        self._lock = threading.RLock()

    def replace(self, kind: ObjectKind, resources: Iterable[Resource], *, begun: int) -> None:
        """Know exactly these owners of a kind, by a list that began at a moment.

        What was heard of an owner since then is newer, and stays.
        """
        found = {key_of(each): each for each in resources}
        with self._lock:
            mine = [each for each in self._by_key if each.kind == kind]
            for key in [each for each in mine if each not in found and not self._heard_since(each, begun)]:
                self._drop(key)
            for key in [each for each in found if not self._heard_since(each, begun)]:
                self._keep(key, found[key])
            self._heard = {key: at for key, at in self._heard.items() if key.kind != kind or at > begun}
            self._listed.add(kind)

    def _heard_since(self, key: Key, begun: int) -> bool:
        return self._heard.get(key, 0) > begun

    def note(self, resource: Resource) -> Key:
        """Know an owner as it stands; tells its key."""
        key = key_of(resource)
        with self._lock:
            self._heard[key] = self._moments.next()
            self._keep(key, resource)
        return key

    def _keep(self, key: Key, resource: Resource) -> None:
        before, uid = self._by_key.get(key), resource.meta.uid
        if before is not None and before.meta.uid != uid:
            self._drop(key)
        self._by_key[key] = resource
        self._by_uid[uid] = key
        if resource.meta.terminating:
            self._terminating.setdefault(uid, self._moments.next())

    def forget(self, key: Key) -> None:
        """Know an owner no longer."""
        with self._lock:
            self._heard[key] = self._moments.next()
            self._drop(key)

    def _drop(self, key: Key) -> None:
        before = self._by_key.pop(key, None)
        if before is not None:
            self._by_uid.pop(before.meta.uid, None)
            self._terminating.pop(before.meta.uid, None)

    def get(self, key: Key) -> Resource | None:
        """The owner as it was last seen."""
        with self._lock:
            return self._by_key.get(key)

    def by_uid(self, uid: str) -> Key | None:
        """The key of the owner of that UID."""
        with self._lock:
            return self._by_uid.get(uid)

    def terminating_since(self, uid: str) -> int:
        """The moment at which an owner was first seen terminating; 0 when it was not."""
        with self._lock:
            return self._terminating.get(uid, 0)

    def was_listed(self, kind: ObjectKind) -> bool:
        """Whether all owners of a kind were listed once, so that a UID that is not known is a sign of something."""
        with self._lock:
            return kind in self._listed

    def of(self, kind: ObjectKind) -> list[Resource]:
        """All owners of a kind that are known, in order."""
        with self._lock:
            return [self._by_key[key] for key in sorted(key for key in self._by_key if key.kind == kind)]
