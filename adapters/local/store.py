"""An API server's store, in memory, at the level of JSON objects: what Kubernetes promises about objects, without HTTP.

Guarantee: UIDs, resource versions (monotonic), generation, preconditions, finalizers and deletion timestamps, no-op
writes, label selectors, pages that are one snapshot, and a watch that never skips a change behave as a real API
server's. Every operation is atomic and thread-safe. Objects handed out are shared and must never be changed in place;
objects handed in are copied.
Not guaranteed: schemas, defaulting, conversion between API versions, RBAC, server-side apply, namespaces that empty
themselves.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from attrs import evolve

from reprieve.adapters.local import kinds as scopes
from reprieve.adapters.local import rules, selectors
from reprieve.adapters.local.changes import Admission, AdmissionRequest, Change, Deleted, Page, WatchItem, denial
from reprieve.adapters.local.patches import clone, json_patch, merge
from reprieve.adapters.local.status import (
    AdmissionDenied,
    Json,
    ServedKind,
    StatusError,
    already_exists,
    bad_request,
    expired,
    forbidden_in_terminating,
    invalid,
    not_found,
    not_served,
    unparsable,
)
from reprieve.core.objects import ObjectKind, mapping, text
from reprieve.core.values import format_instant

__all__ = [
    "ADMIN",
    "Admission",
    "AdmissionDenied",
    "AdmissionRequest",
    "Change",
    "ClusterStore",
    "Deleted",
    "Json",
    "Page",
    "ServedKind",
    "StatusError",
    "WatchItem",
    "denial",
    "json_patch",
]

ADMIN = "admin"
GENERATE_NAME_BASE = 58
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SEED = uuid.UUID("6d1f9f4c-7a36-5f52-9d3e-0c5a1c1f6b0e")
_NAMESPACE = ObjectKind("v1", "Namespace")
_ATTEMPTS = 8
_LATEST = -1
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
Slot = tuple[str, str]
_Objects = list[Json]  # the class has a method named list


_Changes = list[Change]
_Items = list[WatchItem]
_Hooks = list[Admission]
_Listeners = list[Callable[[Change], None]]


def random_suffix() -> str:
    """Five characters, as the API server puts after a generateName."""
    return "".join(random.choices(_SUFFIX_ALPHABET, k=5))  # noqa: S311 - a name, not a secret


def random_uid() -> str:
    """A random UID."""
    return str(uuid.uuid4())


class ClusterStore:
    """Objects by kind, namespace (empty: cluster-scoped) and name. Operations raise ``StatusError`` and nothing else.

    ``now`` gives creation and deletion timestamps, ``uid_source`` UIDs, ``suffix_source`` what follows a
    generateName. ``kinds`` None: every kind is served, its scope known, defined by a CRD or inferred; else only these
    (more by ``register`` or by a CRD). ``admission`` may be changed at any time. ``journal`` is told a change before
    it is committed; when it raises, nothing has changed. ``listeners`` are told a change after it was committed,
    under the store's lock.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        uid_source: Callable[[], str] = random_uid,
        suffix_source: Callable[[], str] = random_suffix,
        kinds: Iterable[ServedKind] | None = None,
        admission: Iterable[Admission] = (),
        require_namespaces: bool = False,
        history: int = 100_000,
        journal: Callable[[Change], None] | None = None,
    ) -> None:
        self.admission: _Hooks = list(admission)
        self.listeners: _Listeners = []
        self._now, self._uid, self._suffix = now, uid_source, suffix_source
        self._journal = journal or (lambda _change: None)
        self._open_world, self._require_namespaces = kinds is None, require_namespaces
        self._kinds: dict[ObjectKind, ServedKind] = {kind.type: kind for kind in kinds or ()}
        self._objects: dict[ObjectKind, dict[Slot, Json]] = {}
        self._by_uid: dict[str, tuple[ObjectKind, Slot]] = {}
        self._dependents: dict[str, set[tuple[ObjectKind, Slot]]] = {}
        self._history: _Changes = []
        self._history_limit = history
        self._version = self._compacted = 1  # "0" and "" have a meaning of their own in a watch
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._pending: _Changes | None = None

    # Kinds

    @property
    def resource_version(self) -> str:
        """The version of the latest write."""
        return str(self._version)

    def register(self, kind: ServedKind) -> None:
        """Serve one more kind, or an old one otherwise."""
        with self._changed:
            self._kinds[kind.type] = kind

    def kinds(self) -> tuple[ServedKind, ...]:
        """Every kind that is registered, defined by a CRD, or (when every kind is served) in use; sorted."""
        with self._changed:
            used = {kind for kind, objects in self._objects.items() if objects} if self._open_world else set()
            return tuple(self.kind(kind) for kind in sorted(used | self._kinds.keys()))

    def kind(self, kind: ObjectKind) -> ServedKind:
        """How a kind is served. 404 without a name in its details when it is not."""
        with self._changed:
            if kind in self._kinds:
                return self._kinds[kind]
            if not self._open_world:
                raise not_served()
            return scopes.known(kind) or scopes.guessed(kind, (slot[0] for slot in self._objects.get(kind, ())))

    def kind_by_plural(self, api_version: str, plural: str) -> ServedKind:
        """The kind behind a path such as ``/apis/velero.io/v1/backups``; 404 when none is known by that plural."""
        for kind in self.kinds():
            if kind.api_version == api_version and kind.plural == plural:
                return kind
        raise not_served()

    # Reads

    def get(self, kind: ObjectKind, namespace: str, name: str) -> Json:
        """Read one object. 404."""
        with self._changed:
            return self._find(self.kind(kind), namespace, name)

    def list(
        self,
        kind: ObjectKind,
        *,
        namespace: str = "",
        selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
    ) -> Page:
        """List a kind (empty namespace: all).

        Raises 400 for a bad selector or token, 410 ``Expired`` for a token whose version was compacted.
        """
        matches = _matcher(namespace, selector, field_selector)
        with self._changed:
            self.kind(kind)
            version, after = _parse_token(continue_token) if continue_token else (_LATEST, ("", ""))
            version = self._version if version == _LATEST else version
            if version < self._compacted:
                raise expired(_TOO_OLD, continue_token=_make_token(_LATEST, after))
            found = [
                (slot, obj) for slot, obj in sorted(self._at(kind, version).items()) if slot > after and matches(obj)
            ]
        if not limit or len(found) <= limit:
            return Page(tuple(obj for _, obj in found), str(version))
        remaining = None if selector or field_selector else len(found) - limit
        token = _make_token(version, found[limit - 1][0])
        return Page(tuple(obj for _, obj in found[:limit]), str(version), token, remaining)

    def dependents(self, uid: str) -> tuple[Json, ...]:
        """The objects whose ownerReferences name this UID, in order of kind, namespace and name."""
        with self._changed:
            return tuple(self._objects[kind][slot] for kind, slot in sorted(self._dependents.get(uid, ())))

    def by_uid(self, uid: str) -> Json | None:
        """The object of that UID, None when there is none."""
        with self._changed:
            place = self._by_uid.get(uid)
            return self._objects[place[0]][place[1]] if place else None

    def all_objects(self) -> Iterator[Json]:
        """Every object, in order of kind, namespace and name."""
        with self._changed:
            return iter([obj for _, objects in sorted(self._objects.items()) for _, obj in sorted(objects.items())])

    # Writes

    def create(self, obj: Mapping[str, Any], *, user: str = ADMIN, dry_run: bool = False) -> Json:
        """Create; apiVersion, kind, namespace, name or generateName are read from the object.

        Raises 400, 403, 404, 409 ``AlreadyExists``, 422.
        """
        new: Json = clone(obj)
        meta = rules.metadata(new)
        with self._changed:
            kind = self.kind(_kind_of(new))
            if meta.get("resourceVersion"):
                raise StatusError("", "resourceVersion should not be set on objects to be created", code=500)
            self._check_namespace(kind, meta)
            self._name(kind, meta)
            self._begin(kind, new)
            rules.check(kind, new)
            self._admit("CREATE", user, kind, new, None, dry_run=dry_run)
            if self._objects.get(kind.type, {}).get(_slot_of(new)) is not None:
                raise already_exists(
                    kind, meta["name"], terminating=rules.terminating(self._find(kind, *_slot_of(new)))
                )
            return self._commit(kind, None, new, dry_run=dry_run)

    def update(
        self, obj: Mapping[str, Any], *, subresource: str = "", user: str = ADMIN, dry_run: bool = False
    ) -> Json:
        """PUT. A uid or resourceVersion in the object's metadata is a precondition.

        ``subresource``: empty or ``status``. Raises 404, 409 ``Conflict``, 422.
        """
        new: Json = clone(obj)
        meta = rules.metadata(new)
        with self._changed:
            kind = self.kind(_kind_of(new))
            old = self._find(kind, text(meta.get("namespace")), text(meta.get("name")))
            if not meta.get("resourceVersion") and kind.custom:
                why = "Invalid value: 0: must be specified for an update"
                raise invalid(kind, meta["name"], "metadata.resourceVersion", why)
            rules.check_update(kind, old, new, put=True)
            return self._replace(kind, old, new, subresource=subresource, user=user, dry_run=dry_run)

    def patch(
        self,
        kind: ObjectKind,
        namespace: str,
        name: str,
        patch: Mapping[str, Any] | Callable[[Json], Json],
        *,
        subresource: str = "",
        user: str = ADMIN,
        dry_run: bool = False,
    ) -> Json:
        """Merge patch (RFC 7386) for a mapping; a callable gets a copy and gives the new object (see ``json_patch``).

        A uid or resourceVersion that the patch sets is a precondition, as for PUT. Taking the last finalizer off a
        terminating object removes it; its last state is returned. Raises 404, 409 ``Conflict``, 422.
        """
        with self._changed:
            served = self.kind(kind)
            old = self._find(served, namespace, name)
            new = patch(clone(old)) if callable(patch) else merge(old, clone(patch))
            if not isinstance(new, dict):
                raise bad_request("the patched object must be an object")
            return self._replace(served, old, clone(new), subresource=subresource, user=user, dry_run=dry_run)

    def delete(
        self,
        kind: ObjectKind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        user: str = ADMIN,
        dry_run: bool = False,
    ) -> Deleted:
        """Delete under preconditions. Raises 404, 409 ``Conflict``, 422.

        ``propagation``: Background, Foreground, Orphan, or empty: then the object's own finalizers decide.
        """
        if propagation not in {"", "Background", "Foreground", "Orphan"}:
            raise _bad_propagation(propagation)
        with self._changed:
            served = self.kind(kind)
            old = self._find(served, namespace, name)
            rules.check_delete(served, old, uid=uid, resource_version=resource_version)
            options = _delete_options(uid, resource_version, propagation)
            self._admit("DELETE", user, served, None, old, options=options, dry_run=dry_run)
            return self._terminate(served, old, propagation, dry_run=dry_run)

    def delete_collection(
        self,
        kind: ObjectKind,
        *,
        namespace: str = "",
        selector: str = "",
        field_selector: str = "",
        propagation: str = "",
        user: str = ADMIN,
        dry_run: bool = False,
    ) -> tuple[Json, ...]:
        """Delete all that match; gives them as they were before. The first refusal ends it, as on a real server."""
        gone: _Objects = []
        for obj in self.list(kind, namespace=namespace, selector=selector, field_selector=field_selector).items:
            slot = _slot_of(obj)
            try:
                self.delete(kind, *slot, propagation=propagation, user=user, dry_run=dry_run)
                gone.append(obj)
            except StatusError as error:
                if error.reason != "NotFound":
                    raise
        return tuple(gone)

    def load(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Put objects in as they are: uid, versions, timestamps and status kept.

        There is no admission, no journal, no watch event, and no history before it. What is missing of uid,
        resourceVersion and creationTimestamp is filled in, always alike. 409 for an object that is there already.
        """
        with self._changed:
            loaded = [clone(obj) for obj in objects]
            ordered = sorted(loaded, key=lambda each: not scopes.is_definition(_kind_of(each)))  # definitions first
            changes = [self._load_one(obj) for obj in ordered]
            self.compact()
            for listener in tuple(self.listeners):
                for change in changes:
                    listener(change)

    # The whole state

    def snapshot(self) -> tuple[Json, ...]:
        """Every object as it stands, for ``restore``. Cheap: the objects are shared, nothing is copied."""
        return tuple(self.all_objects())

    def restore(self, objects: Iterable[Json]) -> None:
        """Hold exactly these objects of a snapshot, as they are; they are shared from then on.

        As with ``load`` there is no admission, no journal, no watch event, and no history before it; listeners are
        told nothing, so a collector is to be made anew. The store's version does not go back.
        """
        with self._changed:
            for kind, known in self._objects.items():
                for slot, obj in known.items():
                    self._unindex(kind, slot, obj)
            self._objects = {}
            self._dependents.clear()
            for obj in objects:
                kind, slot = _kind_of(obj), _slot_of(obj)
                self._index(kind, slot, obj)
                self._objects.setdefault(kind, {})[slot] = obj
            self.compact()

    # Watching

    def watch(
        self,
        kind: ObjectKind,
        *,
        resource_version: str = "",
        namespace: str = "",
        selector: str = "",
        field_selector: str = "",
        timeout: float = 300.0,
        bookmarks: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[WatchItem]:
        """Follow changes. The version is checked at the call (410 ``Expired`` when compacted).

        Events come as they happen.

        ``""`` or ``"0"``: begins with an ADDED for every object. An object that enters or leaves the selector is
        ADDED or DELETED. Ends after ``timeout`` seconds, when ``stop()`` is true (asked at each wake-up, see
        ``wake``), or when the store is closed. With ``bookmarks``, it ends with one.
        """
        matches = _matcher(namespace, selector, field_selector)
        with self._changed:
            self.kind(kind)
            first = self._initial(kind, matches) if resource_version in {"", "0"} else []
            version = self._version if resource_version in {"", "0"} else _parse_version(resource_version)
            self._check_window(version)
        return self._follow(kind, matches, first, version, time.monotonic() + timeout, stop, bookmarks=bookmarks)

    def wake(self) -> None:
        """Wake every watcher, so that it asks its ``stop``."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End every watch, now and later. Nothing else is affected."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def compact(self, version: int | None = None) -> None:
        """Forget history up to a version (default: all of it).

        Older versions are 410 from now on, also for watches that lag.
        """
        with self._changed:
            self._compacted = max(self._compacted, min(version or self._version, self._version))
            del self._history[: bisect_right(self._history, self._compacted, key=lambda change: change.version)]

    # Several writes as one

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the store for several writes, which others see at once.

        The journal is told the net change of each object at the end, in reverse order of an object's first change:
        what hangs on an owner before the owner itself, so that a process that is killed in between finds the owner
        again. When the journal raises, what it was not told is undone.
        """
        with self._changed:
            if self._pending is not None:
                yield
                return
            self._pending = []
            start = self._version
            try:
                yield
            finally:
                pending, self._pending = self._pending, None
                self._flush(pending, start)

    # Below: what the operations are made of. Each is called with the lock held.

    def _find(self, kind: ServedKind, namespace: str, name: str) -> Json:
        found = self._objects.get(kind.type, {}).get((namespace, name))
        if found is None:
            raise not_found(kind, name)
        return found

    def _at(self, kind: ObjectKind, version: int) -> dict[Slot, Json]:
        """The objects of a kind as they were at a version within the history."""
        state = dict(self._objects.get(kind, {}))
        for change in (each for each in reversed(self._since(version)) if each.type == kind):
            if change.old is None:
                del state[change.namespace, change.name]
            else:
                state[change.namespace, change.name] = change.old
        return state

    def _since(self, version: int) -> _Changes:
        return self._history[bisect_right(self._history, version, key=lambda change: change.version) :]

    def _check_namespace(self, kind: ServedKind, meta: Json) -> None:
        namespace = meta.get("namespace") or ""
        if not isinstance(namespace, str):
            raise bad_request("metadata.namespace: must be a string")
        if not namespace and kind.namespaced and self._has_scope(kind.type):
            raise bad_request("an empty namespace may not be set during creation")
        if namespace and not kind.namespaced and self._has_scope(kind.type):
            raise bad_request(f"namespace specified for a non-namespaced object: {kind.kind}")
        if namespace and self._require_namespaces:
            self._check_namespace_object(kind, namespace, text(meta.get("name")))

    def _has_scope(self, kind: ObjectKind) -> bool:
        """Whether the scope of a kind is certain, not guessed."""
        return kind in self._kinds or scopes.known(kind) is not None

    def _check_namespace_object(self, kind: ServedKind, namespace: str, name: str) -> None:
        found = self._objects.get(_NAMESPACE, {}).get(("", namespace))
        if found is None:
            raise not_found(ServedKind("v1", "Namespace", "namespaces", namespaced=False), namespace)
        if rules.terminating(found):
            raise forbidden_in_terminating(kind, namespace, name)

    def _name(self, kind: ServedKind, meta: Json) -> None:
        """Make a name of a generateName, where there is no name."""
        base = meta.get("generateName")
        if meta.get("name") or not isinstance(base, str) or not base:
            return
        taken = self._objects.get(kind.type, {})
        for _ in range(_ATTEMPTS):
            meta["name"] = base[:GENERATE_NAME_BASE] + self._suffix()
            if (text(meta.get("namespace")), meta["name"]) not in taken:
                return

    def _begin(self, kind: ServedKind, new: Json) -> None:
        """Give a new object what the server alone decides."""
        meta = rules.metadata(new)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink", "generation"):
            meta.pop(name, None)
        meta.update(uid=self._uid(), creationTimestamp=format_instant(self._now().replace(microsecond=0)))
        if rules.has_generation(kind):
            meta["generation"] = 1
        if kind.status:
            new.pop("status", None)

    def _admit(
        self,
        operation: str,
        user: str,
        kind: ServedKind,
        new: Json | None,
        old: Json | None,
        *,
        subresource: str = "",
        options: Mapping[str, Any] | None = None,
        dry_run: bool,
    ) -> None:
        either = new if new is not None else old
        namespace, name = _slot_of(either or {})
        full = {**(options or {}), **({"dryRun": ["All"]} if dry_run else {})}
        request = AdmissionRequest(operation, user, kind, namespace, name, subresource, new, old, full)
        for hook in tuple(self.admission):
            hook(request)

    def _replace(self, kind: ServedKind, old: Json, new: Json, *, subresource: str, user: str, dry_run: bool) -> Json:
        """Put a new state in an old one's place.

        Preconditions, what a client may not change, rules, admission, commit.
        """
        self._check_identity(kind, old, new)
        new = _carry(kind, old, new, subresource)
        rules.check(kind, new)
        rules.check_new_finalizers(kind, old, new)
        meta = rules.metadata(new)
        meta["generation"] = rules.generation(kind, old, new)
        if not meta["generation"]:
            del meta["generation"]
        self._admit("UPDATE", user, kind, new, old, subresource=subresource, dry_run=dry_run)
        if new == old:
            return old
        if rules.terminating(new) and not rules.finalizers(new):
            self._remove(kind, old, dry_run=dry_run)
            return new
        return self._commit(kind, old, new, dry_run=dry_run)

    def _check_identity(self, kind: ServedKind, old: Json, new: Json) -> None:
        if _kind_of(new) != kind.type:
            raise bad_request(f"the object is not a {kind.type}")
        before, after = rules.metadata(old), rules.metadata(new)
        rules.check_update(kind, old, new, put=False)
        for name in ("name", "namespace"):
            if (after.get(name) or "") != (before.get(name) or ""):
                given = f"the {name} of the object ({after.get(name)})"
                raise bad_request(f"{given} does not match the {name} on the URL ({before.get(name)})")

    def _terminate(self, kind: ServedKind, old: Json, propagation: str, *, dry_run: bool) -> Deleted:
        """Mark an object for deletion, or remove it when no finalizer holds it."""
        left = rules.delete_finalizers(rules.finalizers(old), propagation)
        if not left:
            self._remove(kind, old, dry_run=dry_run)
            return Deleted(old, gone=True)
        meta = {**rules.metadata(old), "finalizers": left}
        if not rules.terminating(old):
            meta["deletionTimestamp"] = format_instant(self._now().replace(microsecond=0))
            meta["deletionGracePeriodSeconds"] = 0
            meta.update({"generation": meta["generation"] + 1} if meta.get("generation") else {})
        new = {**old, "metadata": meta}
        return Deleted(old if new == old else self._commit(kind, old, new, dry_run=dry_run), gone=False)

    def _commit(self, kind: ServedKind, old: Json | None, new: Json, *, dry_run: bool) -> Json:
        if not dry_run:
            version = self._version + 1
            rules.metadata(new)["resourceVersion"] = str(version)
            self._record(Change(version, kind.type, *_slot_of(new), old, new, new))
        return new

    def _remove(self, kind: ServedKind, old: Json, *, dry_run: bool) -> None:
        """Remove an object; a watch sees its last stored state, with the version of the removal."""
        if not dry_run:
            version = self._version + 1
            seen = {**old, "metadata": {**rules.metadata(old), "resourceVersion": str(version)}}
            self._record(Change(version, kind.type, *_slot_of(old), old, None, seen))

    def _record(self, change: Change) -> None:
        """Journal a change, then make it so and tell."""
        if self._pending is None:
            self._journal(change)
        else:
            self._pending.append(change)
        self._apply(change)
        self._version = change.version
        self._history.append(change)
        if len(self._history) > 2 * self._history_limit:
            self.compact(self._history[-self._history_limit - 1].version)
        for listener in tuple(self.listeners):
            listener(change)
        if self._pending is None:
            self._changed.notify_all()

    def _apply(self, change: Change) -> None:
        """Change the objects and both indexes."""
        place, slot = self._objects.setdefault(change.type, {}), (change.namespace, change.name)
        if change.old is not None:
            self._unindex(change.type, slot, change.old)
            del place[slot]
        if change.new is not None:
            self._index(change.type, slot, change.new)
            place[slot] = change.new

    def _index(self, kind: ObjectKind, slot: Slot, obj: Json) -> None:
        self._by_uid[rules.metadata(obj)["uid"]] = (kind, slot)
        for owner in rules.owners(obj):
            self._dependents.setdefault(owner["uid"], set()).add((kind, slot))
        for served in scopes.defined(obj) if scopes.is_definition(kind) else ():
            self._kinds[served.type] = served

    def _unindex(self, kind: ObjectKind, slot: Slot, obj: Json) -> None:
        if self._by_uid.get(rules.metadata(obj)["uid"]) == (kind, slot):
            del self._by_uid[rules.metadata(obj)["uid"]]
        for owner in rules.owners(obj):
            self._dependents.get(owner["uid"], set()).discard((kind, slot))
        for served in scopes.defined(obj) if scopes.is_definition(kind) else ():
            self._kinds.pop(served.type, None)

    def _flush(self, pending: _Changes, start: int) -> None:
        """Journal what a transaction did since version ``start``, net; undo what could not be journaled."""
        net = _net(pending)
        try:
            while net:
                self._journal(net[-1])
                net.pop()
        finally:
            for change in net:
                self._undo(change, start)
            self._changed.notify_all()

    def _undo(self, change: Change, start: int) -> None:
        """Take a net change back, and out of the history since version ``start``."""
        key = (change.type, change.namespace, change.name)
        self._apply(evolve(change, old=change.new, new=change.old))
        self._history = [c for c in self._history if c.version <= start or (c.type, c.namespace, c.name) != key]

    def _load_one(self, obj: Json) -> Change:
        served, meta = self.kind(_kind_of(obj)), rules.metadata(obj)
        meta["namespace"] = scopes.home(served.type, text(meta.get("namespace")))
        if not meta["namespace"]:
            del meta["namespace"]
        slot = _slot_of(obj)
        if slot in self._objects.get(served.type, {}):
            raise already_exists(served, slot[1])
        for name, value in _defaults(served, slot).items():
            meta[name] = text(meta.get(name)) or value
        version = meta["resourceVersion"]
        self._version = max(self._version, int(version) if version.isdecimal() else 0)
        change = Change(self._version, served.type, *slot, None, obj, obj)
        self._apply(change)
        return change

    def _initial(self, kind: ObjectKind, matches: selectors.Match) -> _Items:
        return [WatchItem("ADDED", obj) for _, obj in sorted(self._objects.get(kind, {}).items()) if matches(obj)]

    def _check_window(self, version: int) -> None:
        if version < self._compacted:
            raise expired(f"too old resource version: {version} ({self._compacted})")

    def _follow(
        self,
        kind: ObjectKind,
        matches: selectors.Match,
        first: _Items,
        version: int,
        deadline: float,
        stop: Callable[[], bool],
        *,
        bookmarks: bool,
    ) -> Iterator[WatchItem]:
        yield from first
        while changes := self._wait(version, deadline, stop):
            version = changes[-1].version
            yield from (item for change in changes if change.type == kind for item in _items(change, matches))
        if bookmarks:
            yield WatchItem("BOOKMARK", _bookmark(kind, version))

    def _wait(self, version: int, deadline: float, stop: Callable[[], bool]) -> _Changes:
        """Wait for changes after a version; none when the watch is to end."""
        with self._changed:
            while not (self._closed or stop()):
                self._check_window(version)
                changes = self._since(version)
                left = deadline - time.monotonic()
                if changes or left <= 0:
                    return changes
                self._changed.wait(left)
        return []


def _matcher(namespace: str, selector: str, field_selector: str) -> selectors.Match:
    try:
        by_label, by_field = selectors.label_selector(selector), selectors.field_selector(field_selector)
    except ValueError as error:
        raise bad_request(str(error)) from error
    return lambda obj: (
        (not namespace or obj["metadata"].get("namespace") == namespace) and by_label(obj) and by_field(obj)
    )


def _make_token(version: int, after: Slot) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *after]).encode()).decode()


def _parse_token(token: str) -> tuple[int, Slot]:
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token.encode()))
        return int(version), (str(namespace), str(name))
    except (ValueError, TypeError) as error:
        raise bad_request("continue key is not valid") from error


def _parse_version(text_: str) -> int:
    if not text_.isdecimal():
        raise unparsable(text_)
    return int(text_)


def _kind_of(obj: Mapping[str, Any]) -> ObjectKind:
    return ObjectKind(text(obj.get("apiVersion")), text(obj.get("kind")))


def _slot_of(obj: Mapping[str, Any]) -> Slot:
    meta = mapping(obj.get("metadata"))
    return text(meta.get("namespace")), text(meta.get("name"))


def _carry(kind: ServedKind, old: Json, new: Json, subresource: str) -> Json:
    """Put back what a client cannot change, by this path."""
    if subresource == "status":
        new = {
            **{key: value for key, value in old.items() if key != "status"},
            **({"status": new["status"]} if "status" in new else {}),
        }
        new["metadata"] = dict(rules.metadata(old))
    elif kind.status:
        new.pop("status", None)
        new.update({"status": old["status"]} if "status" in old else {})
    before, after = rules.metadata(old), rules.metadata(new)
    for name in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generation",
    ):
        after.pop(name, None)
        after.update({name: before[name]} if name in before else {})
    return new


def _bad_propagation(propagation: str) -> StatusError:
    supported = 'supported values: "Foreground", "Background", "Orphan", "nil"'
    why = f'Unsupported value: "{propagation}": {supported}'
    options = ServedKind("meta.k8s.io/v1", "DeleteOptions", "DeleteOptions")
    return invalid(options, "", "propagationPolicy", why, cause="FieldValueNotSupported")


def _delete_options(uid: str, resource_version: str, propagation: str) -> Json:
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    return {
        **({"propagationPolicy": propagation} if propagation else {}),
        **({"preconditions": preconditions} if preconditions else {}),
    }


def _defaults(kind: ServedKind, slot: Slot) -> dict[str, str]:
    """What an object that was never on a server is given, the same in every run.

    No creation date: nobody knows whether it is older than another, and a guess would decide about a deletion.
    """
    identity = "/".join((kind.api_version, kind.kind, *slot))
    return {"uid": str(uuid.uuid5(_SEED, identity)), "resourceVersion": "1"}


def _net(changes: list[Change]) -> list[Change]:
    """One change an object, from its first state to its last, in order of its first; what came and went leaves none."""
    net: dict[tuple[ObjectKind, str, str], Change] = {}
    for change in changes:
        key = (change.type, change.namespace, change.name)
        net[key] = evolve(change, old=net[key].old) if key in net else change
    return [change for change in net.values() if change.old is not None or change.new is not None]


def _items(change: Change, matches: selectors.Match) -> Iterator[WatchItem]:
    """The watch event of a change, as a selector shows it."""
    before = change.old is not None and matches(change.old)
    after = change.new is not None and matches(change.new)
    if after:
        yield WatchItem("MODIFIED" if before else "ADDED", change.last)
    elif before and change.new is not None:
        seen = {
            **(change.old or {}),
            "metadata": {**rules.metadata(change.old or {}), "resourceVersion": str(change.version)},
        }
        yield WatchItem("DELETED", seen)
    elif before:
        yield WatchItem("DELETED", change.last)


def _bookmark(kind: ObjectKind, version: int) -> Json:
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {"resourceVersion": str(version)}}
