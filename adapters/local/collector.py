"""Kubernetes' garbage collector over a ``ClusterStore``: background, foreground, orphan, and owners that are absent.

What it does was measured on a real one: foreground deletes dependents at once, whatever finalizers the owner carries
and whatever ``blockOwnerDeletion`` says; a dependent goes when *all* its owners are absent or wait for it; an owner
is looked up in the dependent's own namespace or cluster-wide, and another UID under its name counts as absent.

Guarantee: deterministic; ``step`` ends when nothing is left to do or everything left was refused. A refusal (an
admission policy, a conflict) is remembered and tried again at the next step; the dependent stays till then.
Not guaranteed: pauses between attempts, and the controller for namespaces.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from attrs import field, frozen

from reprieve.adapters.local import rules
from reprieve.adapters.local.status import Json, StatusError
from reprieve.adapters.local.store import Change, ClusterStore
from reprieve.core.objects import ObjectKind, text
from reprieve.core.values import as_tuple

USER = "system:serviceaccount:kube-system:generic-garbage-collector"
_BOUND = 1_000_000


@frozen
class Refusal:
    """What the collector wanted to do, and was refused."""

    kind: ObjectKind
    namespace: str
    name: str
    message: str


@frozen
class Sweep:
    """What a step came to: how many objects it wrote or deleted, and what was refused."""

    writes: int
    refused: tuple[Refusal, ...] = field(default=(), converter=as_tuple)


_Place = tuple[ObjectKind, str, str]


class Collector:
    """The collector of one store. It looks at everything in its first step, then at what has changed.

    ``collect_absent`` False: an owner that was absent when the collector was made is taken for one that we were not
    shown (a partial dump): its dependents stay.
    """

    def __init__(self, store: ClusterStore, *, collect_absent: bool = True, user: str = USER) -> None:
        self._store, self._user = store, user
        self._queue: deque[_Place] = deque()
        self._queued: set[_Place] = set()
        self._refused: dict[_Place, str] = {}
        self._unseen: set[tuple[str, str]] = set()
        self._writes = 0
        with store.transaction():
            store.listeners.append(self._note)
            for obj in store.all_objects():
                self._enqueue(_place(obj))
            self._unseen = set() if collect_absent else self._absent_now()

    def step(self) -> Sweep:
        """Work until nothing changes any more. Everything that it does is seen by others at once."""
        with self._store.transaction():
            self._writes = 0
            for place in sorted(self._refused):
                self._enqueue(place)
            self._refused.clear()
            for _ in range(_BOUND):
                if not self._queue:
                    break
                self._visit()
            return Sweep(self._writes, [Refusal(*place, why) for place, why in sorted(self._refused.items())])

    def _absent_now(self) -> set[tuple[str, str]]:
        """The owners that are referred to and not there, as (namespace of the dependent, UID)."""
        return {
            (_namespace(obj), owner["uid"])
            for obj in self._store.all_objects()
            for owner in rules.owners(obj)
            if self._owner(obj, owner) is None
        }

    def _note(self, change: Change) -> None:
        """Enqueue a changed object and, once it is deleted or terminating, what depends on it."""
        if change.new is not None:
            self._enqueue((change.type, change.namespace, change.name))
        if change.new is None or rules.terminating(change.new):
            self._enqueue_dependents(change.last)
        if change.old is not None:
            for owner in rules.owners(change.old):  # it may have been the last dependent that its owner waited for
                found = self._store.by_uid(owner["uid"])
                if found is not None:
                    self._enqueue(_place(found))

    def _enqueue(self, place: _Place) -> None:
        if place not in self._queued:
            self._queued.add(place)
            self._queue.append(place)

    def _enqueue_dependents(self, owner: Json) -> None:
        for dependent in self._store.dependents(owner["metadata"]["uid"]):
            self._enqueue(_place(dependent))

    def _visit(self) -> None:
        place = self._queue.popleft()
        self._queued.discard(place)
        self._try(place)

    def _try(self, place: _Place) -> None:
        """Do what one object needs; remember a refusal, forget what is gone."""
        try:
            self._attend(self._store.get(*place))
        except StatusError as error:
            if error.reason != "NotFound":
                self._refused[place] = error.message

    def _attend(self, obj: Json) -> None:
        if rules.terminating(obj):
            held_by = rules.finalizers(obj)
            if rules.FOREGROUND in held_by:
                self._foreground(obj)
            elif rules.ORPHAN in held_by:
                self._orphan(obj)
        else:
            self._judge(obj)

    def _foreground(self, owner: Json) -> None:
        """Try to delete every dependent, blocking or not; then let the owner go once none that blocks it is left."""
        uid = owner["metadata"]["uid"]
        for dependent in self._store.dependents(uid):
            if not rules.terminating(dependent):
                self._try(_place(dependent))
        if not any(_blocks(dependent, owner) for dependent in self._store.dependents(uid)):
            self._take_finalizer(owner, rules.FOREGROUND)

    def _orphan(self, owner: Json) -> None:
        """Take the reference off every dependent, then the finalizer off the owner; a refusal leaves the finalizer."""
        uid = owner["metadata"]["uid"]
        for dependent in self._store.dependents(uid):
            self._take_references(dependent, {uid})
        self._take_finalizer(owner, rules.ORPHAN)

    def _judge(self, obj: Json) -> None:
        """Delete an object whose owners are all absent or waiting.

        One that a live owner keeps loses the other references.
        """
        listed = rules.owners(obj)
        going = {owner["uid"]: self._is_waiting(obj, owner) for owner in listed if self._is_going(obj, owner)}
        if not going:
            return
        if len(going) < len({owner["uid"] for owner in listed}):
            self._take_references(obj, set(going))
        elif any(going.values()) and (dependents := self._store.dependents(obj["metadata"]["uid"])):
            if any(rules.terminating(each) and rules.FOREGROUND in rules.finalizers(each) for each in dependents):
                self._unblock(obj)  # most likely a circle: two that wait for each other
            self._delete(obj, "Foreground")
        else:
            self._delete(obj, "Orphan" if rules.ORPHAN in rules.finalizers(obj) else "Background")

    def _is_going(self, dependent: Json, owner: Json) -> bool:
        """Whether an owner no longer keeps its dependent: absent, or waiting for it."""
        if self._owner(dependent, owner) is not None:
            return self._is_waiting(dependent, owner)
        return (_namespace(dependent), owner["uid"]) not in self._unseen and self._is_served(owner)

    def _is_waiting(self, dependent: Json, owner: Json) -> bool:
        found = self._owner(dependent, owner)
        return found is not None and rules.terminating(found) and rules.FOREGROUND in rules.finalizers(found)

    def _is_served(self, owner: Json) -> bool:
        """Whether the owner's kind is served at all; of one that is not, nothing is known."""
        try:
            self._store.kind(_owner_kind(owner))
        except StatusError:
            return False
        return True

    def _owner(self, dependent: Json, owner: Json) -> Json | None:
        """The owner of a reference's kind, name and UID, in the dependent's namespace or cluster-wide."""
        for namespace in dict.fromkeys((_namespace(dependent), "")):
            try:
                found = self._store.get(_owner_kind(owner), namespace, text(owner.get("name")))
            except StatusError:
                continue
            if found["metadata"]["uid"] == owner["uid"]:
                return found
        return None

    def _delete(self, obj: Json, propagation: str) -> None:
        kind, namespace, name = _place(obj)
        uid = obj["metadata"]["uid"]
        self._store.delete(kind, namespace, name, uid=uid, propagation=propagation, user=self._user)
        self._writes += 1

    def _take_references(self, obj: Json, uids: set[str]) -> None:
        kept = [owner for owner in rules.owners(obj) if owner["uid"] not in uids]
        self._patch(obj, {"ownerReferences": kept})

    def _unblock(self, obj: Json) -> None:
        self._patch(obj, {"ownerReferences": [{**owner, "blockOwnerDeletion": False} for owner in rules.owners(obj)]})

    def _take_finalizer(self, obj: Json, finalizer: str) -> None:
        self._patch(obj, {"finalizers": [name for name in rules.finalizers(obj) if name != finalizer]})

    def _patch(self, obj: Json, change: dict[str, Any]) -> None:
        """Patch metadata of exactly the object that was looked at."""
        meta = obj["metadata"]
        identity = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        self._store.patch(*_place(obj), {"metadata": {**identity, **change}}, user=self._user)
        self._writes += 1


def _place(obj: Json) -> _Place:
    return (
        ObjectKind(text(obj.get("apiVersion")), text(obj.get("kind"))),
        _namespace(obj),
        text(obj["metadata"].get("name")),
    )


def _namespace(obj: Json) -> str:
    return text(obj["metadata"].get("namespace"))


def _owner_kind(owner: Json) -> ObjectKind:
    return ObjectKind(text(owner.get("apiVersion")), text(owner.get("kind")))


def _blocks(dependent: Json, owner: Json) -> bool:
    uid = owner["metadata"]["uid"]
    return any(each["uid"] == uid and each.get("blockOwnerDeletion") is True for each in rules.owners(dependent))
