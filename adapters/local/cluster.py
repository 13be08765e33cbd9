"""``LocalCluster``: the cluster port of core over a ``ClusterStore``, in memory.

Guarantee: it answers as the Kubernetes adapter does over a real API server; one contract suite runs against both.
With a collector, each write is followed by the collector's work, and both are seen at once.
Not guaranteed: what the store does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from reprieve.adapters.local.collector import Collector
from reprieve.adapters.local.status import AdmissionDenied, Json, StatusError
from reprieve.adapters.local.store import ADMIN, ClusterStore, WatchItem
from reprieve.core import errors
from reprieve.core.objects import ObjectKind, ObjectRef, Resource, resource_from_json
from reprieve.core.outcomes import Done, Invalid, Outcome, Pending, outcome_of
from reprieve.core.ports import Bookmark, Listing, Propagation, Removed, Scope, Upserted, WatchEvent

_NO_UID = "the UID of the object is missing: nothing is changed or deleted by its name alone"


_ERRORS: Mapping[str, type[errors.ReprieveError]] = {
    "NotFound": errors.NotFoundError,
    "AlreadyExists": errors.AlreadyExistsError,
    "Conflict": errors.ConflictError,
    "Expired": errors.ExpiredError,
    "Forbidden": errors.DeniedError,
    "Unauthorized": errors.DeniedError,
    "BadRequest": errors.InvalidError,
    "Invalid": errors.InvalidError,
    "MethodNotAllowed": errors.InvalidError,
    "RequestEntityTooLarge": errors.InvalidError,
    "TooManyRequests": errors.ThrottledError,
}


def translate(error: StatusError) -> errors.ReprieveError:
    """Map an API error to what a port raises. The only such map of this adapter."""
    if isinstance(error, AdmissionDenied):
        return errors.LockedError(error.message)
    if error.reason == "NotFound" and not error.details:
        return errors.ContainerMissingError(error.message)
    if any(cause.get("field") == "metadata.uid" for cause in error.details.get("causes", ())):
        return errors.ConflictError(error.message)  # what a server says to a patch of another UID
    return _ERRORS.get(error.reason, errors.UnknownError)(error.message)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except StatusError as error:
        raise translate(error) from error


class LocalCluster:
    """The cluster port over a store.

    ``collector`` works after each write, when it is given; ``user`` is on whose behalf writes are made.
    """

    def __init__(self, store: ClusterStore, *, collector: Collector | None = None, user: str = ADMIN) -> None:
        self.store = store
        self.collector = collector
        self._user = user

    @classmethod
    def in_memory(
        cls,
        objects: Iterable[Mapping[str, Any]] = (),
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        collect: bool = False,
        collect_absent: bool = True,
    ) -> LocalCluster:
        """Make a cluster of objects' JSON, with a store of its own that serves every kind.

        ``collect``: with the garbage collector.
        """
        store = ClusterStore(now=now)
        with _translated():
            store.load(objects)
        return cls(store, collector=Collector(store, collect_absent=collect_absent) if collect else None)

    def scope(self, kind: ObjectKind) -> Scope:
        """Say how a kind is served; see the port."""
        with _translated():
            return Scope.NAMESPACED if self.store.kind(kind).namespaced else Scope.CLUSTER

    def kinds(self) -> Sequence[ObjectKind]:
        """Every kind that is known: registered, defined by a CRD, or in use."""
        return [kind.type for kind in self.store.kinds()]

    def get(self, ref: ObjectRef, *, metadata_only: bool = False) -> Resource:
        """Read one object; see the port."""
        with _translated():
            return _resource(self.store.get(ref.type, ref.namespace, ref.name), metadata_only=metadata_only)

    def list(
        self, kind: ObjectKind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """List all objects of a kind; see the port."""
        with _translated():
            page = self.store.list(kind, namespace=namespace, selector=selector)
        return Listing([_resource(obj, metadata_only=metadata_only) for obj in page.items], page.resource_version)

    def watch(
        self,
        kind: ObjectKind,
        *,
        resource_version: str,
        namespace: str = "",
        metadata_only: bool = False,
        timeout: timedelta = timedelta(minutes=5),
    ) -> Iterator[WatchEvent]:
        """Follow changes; ends with a bookmark. See the port."""
        with _translated():
            items = self.store.watch(
                kind,
                resource_version=resource_version,
                namespace=namespace,
                timeout=timeout.total_seconds(),
                bookmarks=True,
            )
            for item in items:
                yield _event(item, metadata_only=metadata_only)

    def create(self, manifest: Mapping[str, Any]) -> Resource:
        """Create an object; see the port."""
        try:
            with _translated(), self._followed_up():
                return resource_from_json(self.store.create(manifest, user=self._user))
        except errors.NotFoundError as error:  # what is not there is its namespace
            raise errors.ContainerMissingError(str(error)) from error

    def patch(self, ref: ObjectRef, patch: Mapping[str, Any], *, resource_version: str = "") -> Resource:
        """Merge-patch the object of that name and UID; see the port."""
        if not ref.uid:
            raise errors.InvalidError(f"{ref}: {_NO_UID}")
        identity = {"uid": ref.uid, **({"resourceVersion": resource_version} if resource_version else {})}
        meta = patch.get("metadata")
        full = {**patch, "metadata": {**(meta if isinstance(meta, Mapping) else {}), **identity}}
        with _translated(), self._followed_up():
            return resource_from_json(self.store.patch(ref.type, ref.namespace, ref.name, full, user=self._user))

    def delete(
        self, ref: ObjectRef, *, propagation: Propagation = Propagation.BACKGROUND, resource_version: str = ""
    ) -> Outcome:
        """Delete the object of that name and UID; see the port."""
        if not ref.uid:
            return Invalid(f"{ref}: {_NO_UID}")
        try:
            with _translated(), self._followed_up():
                self._delete(ref, propagation, resource_version)
            return self._after(ref)
        except errors.ReprieveError as error:
            return outcome_of(error)

    def _delete(self, ref: ObjectRef, propagation: Propagation, resource_version: str) -> None:
        self.store.delete(
            ref.type,
            ref.namespace,
            ref.name,
            uid=ref.uid,
            resource_version=resource_version,
            propagation=propagation.value,
            user=self._user,
        )

    def _after(self, ref: ObjectRef) -> Outcome:
        """What is left of a deleted object, now that the collector has worked."""
        found = self.store.by_uid(ref.uid)
        if found is None:
            return Done()
        holders = ", ".join(found["metadata"].get("finalizers", ()))
        return Pending(message=f"{ref} waits for its finalizers: {holders}")

    @contextmanager
    def _followed_up(self) -> Iterator[None]:
        """Let the collector work after a write, before anybody sees it."""
        with self.store.transaction():
            yield
            if self.collector is not None:
                self.collector.step()


def _resource(obj: Json, *, metadata_only: bool) -> Resource:
    head: Json = {key: obj[key] for key in ("apiVersion", "kind", "metadata") if key in obj}
    return resource_from_json(head if metadata_only else obj)


def _event(item: WatchItem, *, metadata_only: bool) -> WatchEvent:
    match item.type:
        case "BOOKMARK":
            return Bookmark(item.object["metadata"]["resourceVersion"])
        case "DELETED":
            return Removed(_resource(item.object, metadata_only=metadata_only))
        case _:
            return Upserted(_resource(item.object, metadata_only=metadata_only))
