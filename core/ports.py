"""The ports: what the outside must offer. Adapters implement them; entrypoints call them; core only names them.

Guarantee asked of every adapter: reads raise ``reprieve.core.errors`` and nothing else; a delete returns an outcome and
raises nothing; a create or a patch returns the object as it now stands, or raises (it has something to return).
Not asked: that a read is fresh, unless its docstring says so.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from attrs import field, frozen

from reprieve.core.backups import SnapshotLocation, StorageLocation
from reprieve.core.objects import ObjectKind, ObjectRef, Resource
from reprieve.core.outcomes import Outcome
from reprieve.core.values import FrozenMap, as_tuple, string_map


class Propagation(enum.StrEnum):
    """Kubernetes' propagation policies of a delete."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Scope(enum.StrEnum):
    """Whether objects of a kind live in namespaces."""

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


@frozen
class Listing:
    """A complete list, all pages of it, and the resource version to start a watch from."""

    items: tuple[Resource, ...] = field(converter=as_tuple)
    resource_version: str


@frozen
class Upserted:
    """A watched object was added or modified."""

    resource: Resource


@frozen
class Removed:
    """A watched object is gone; ``resource`` is its last state."""

    resource: Resource


@frozen
class Bookmark:
    """Nothing changed; a watch may be resumed from this version."""

    resource_version: str


WatchEvent = Upserted | Removed | Bookmark


class Cluster(Protocol):
    """A Kubernetes API server, or something that behaves like one."""

    def scope(self, kind: ObjectKind) -> Scope:
        """Say how a kind is served. Raises ``ContainerMissingError`` when it is not served."""
        ...

    def get(self, ref: ObjectRef, *, metadata_only: bool = False) -> Resource:
        """Read one object live, whatever its UID (``ref.uid`` is ignored).

        Raises ``NotFoundError`` when only the object is missing.
        """
        ...

    def list(
        self, kind: ObjectKind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """List all objects of a kind, live, all pages; empty namespace: all; ``selector`` is a label selector."""
        ...

    def watch(
        self,
        kind: ObjectKind,
        *,
        resource_version: str,
        namespace: str = "",
        metadata_only: bool = False,
        timeout: timedelta = timedelta(minutes=5),
    ) -> Iterator[WatchEvent]:
        """Follow changes after ``resource_version`` until ``timeout``.

        Raises ``ExpiredError`` when that version is too old.
        """
        ...

    def create(self, manifest: Mapping[str, Any]) -> Resource:
        """Create an object (``metadata.generateName`` is honoured). Raises ``AlreadyExistsError`` among others."""
        ...

    def patch(self, ref: ObjectRef, patch: Mapping[str, Any], *, resource_version: str = "") -> Resource:
        """Merge-patch (RFC 7386) the object of that name *and* UID; ``ref.uid`` must not be empty.

        With ``resource_version``, only that version. Raises ``ConflictError`` when either does not match,
        ``NotFoundError`` when absent.
        """
        ...

    def delete(
        self, ref: ObjectRef, *, propagation: Propagation = Propagation.BACKGROUND, resource_version: str = ""
    ) -> Outcome:
        """Delete the object of that name *and* UID; ``ref.uid`` must not be empty.

        ``Done`` when the object is gone, ``Pending`` when finalizers still hold it, ``AlreadyGone`` when it was not
        there, ``Conflict`` when an object of another UID (or version, where one is given) has the name.
        """
        ...


class EventSink(Protocol):
    """Where events about objects go. Recording never raises and never blocks a decision."""

    def record(self, ref: ObjectRef, *, kind: EventKind, reason: str, message: str, now: datetime) -> None:
        """Record one event; repeats of the same one may be folded into a count."""
        ...


class EventKind(enum.StrEnum):
    """Kubernetes' two types of events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@frozen
class FileInfo:
    """A key of a bucket, its size in bytes, and when it was written."""

    key: str
    size: int
    modified: datetime | None = None


class ObjectStore(Protocol):
    """One location of object storage. Keys are relative to the location's prefix; they never start with a slash."""

    def read(self, key: str, *, limit: int) -> bytes:
        """Read a file of at most ``limit`` bytes.

        Raises ``NotFoundError``, ``InvalidError`` when it is larger, ``ContainerMissingError`` without the bucket.
        """
        ...

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List every key under a prefix, in order of key.

        Raises ``ContainerMissingError`` when the bucket is missing, also for no keys.
        """
        ...

    def list_directories(self, prefix: str) -> Iterator[str]:
        """List the names of the directories right below a prefix, without slashes."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Write a file as a whole."""
        ...

    def delete(self, keys: Sequence[str]) -> Mapping[str, Outcome]:
        """Delete many keys in as few calls as the store allows; one outcome a key. A key that was not there is gone."""
        ...


class ObjectStores(Protocol):
    """Opens object storage by location."""

    def open(self, location: StorageLocation, *, credential: bytes | None = None) -> ObjectStore:
        """Open a location, with the bytes of the Secret's key it names, or with the default chain. Makes no call.

        Raises ``InvalidError`` for a configuration that cannot be used, ``ContainerMissingError`` when no adapter
        handles the provider.
        """
        ...


@frozen
class SnapshotInfo:
    """A snapshot as its provider tells it; ``size`` in bytes, None where the provider does not say."""

    provider: str
    id: str
    tags: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    created: datetime | None = None
    size: int | None = None


class SnapshotStore(Protocol):
    """The snapshots of one provider, in the account and region of one snapshot location."""

    def delete(self, snapshot_id: str) -> Outcome:
        """Delete one snapshot. Asked again after ``Pending``, it follows the operation that it began."""
        ...

    def get(self, snapshot_id: str) -> SnapshotInfo:
        """Read one snapshot. Raises ``NotFoundError`` among others."""
        ...

    def list(self, tag: str, value: str = "") -> Iterator[SnapshotInfo]:
        """List every snapshot of ours that carries a tag of that name, in order of id; with ``value``, of that value.

        With ``value`` the tag is all that has to be told of each, and the answer may be a minute old: a provider that
        has no filter is listed once for all who ask in that minute. Whole, or raises.
        """
        ...


class SnapshotStores(Protocol):
    """Opens snapshot stores by location."""

    @property
    def providers(self) -> frozenset[str]:
        """The providers that are configured, without Velero's prefix."""
        ...

    def open(self, location: SnapshotLocation, *, credential: bytes | None = None) -> SnapshotStore:
        """Open a snapshot location. Makes no call. The same location gives the same store: it follows what is pending.

        Raises ``InvalidError`` for a configuration that cannot be used, ``ContainerMissingError`` when no adapter
        handles the provider.
        """
        ...
