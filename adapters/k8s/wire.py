"""The JSON of an API server, read into core values: one decoder a shape.

Guarantee: an answer that is not the shape that was asked for is an ``UnknownError``, never an empty list or an empty
object. Metadata lists are decoded straight into typed metadata, bodies are never built for them. An object whose
metadata has a malformed part is read as core reads it (that part is empty). Not guaranteed: fields of metadata that
core does not keep are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from attrs import frozen

from reprieve.adapters.budget import charge_json
from reprieve.adapters.k8s.library import msgspec
from reprieve.core.errors import UnknownError
from reprieve.core.objects import ObjectKind, ObjectMeta, OwnerReference, Resource, mapping, meta_from_json

Item = TypeVar("Item")
Instant = Annotated[datetime, msgspec.Meta(tz=True)] | None


class _Owner(msgspec.Struct, rename="camel", gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _Meta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Instant = None
    deletion_timestamp: Instant = None
    finalizers: list[str] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Partial(msgspec.Struct, gc=False):
    metadata: _Meta


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "token": "continue"}):
    resource_version: str = ""
    token: str = ""


class _List(msgspec.Struct, Generic[Item]):
    kind: str
    metadata: _ListMeta
    items: list[Item] | None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class ServedResource(msgspec.Struct):
    """A line of discovery: the plural (with ``/`` for a subresource), the kind, and whether it lives in namespaces."""

    name: str
    kind: str
    namespaced: bool
    verbs: list[str] | None = None


class _ResourceList(msgspec.Struct):
    kind: str
    resources: list[ServedResource]


class _GroupVersion(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, rename="camel"):
    preferred_version: _GroupVersion


class _GroupList(msgspec.Struct):
    kind: str
    groups: list[_Group]


class _ReviewStatus(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _ReviewStatus


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_PARTIAL = msgspec.json.Decoder(_Partial)
_OBJECTS = msgspec.json.Decoder(_List[dict[str, Any]])
_PARTIALS = msgspec.json.Decoder(_List[_Partial])
_EVENT = msgspec.json.Decoder(_Event)
_RESOURCES = msgspec.json.Decoder(_ResourceList)
_GROUPS = msgspec.json.Decoder(_GroupList)
_VERSION = msgspec.json.Decoder(_Version)
_REVIEW = msgspec.json.Decoder(_Review)


@frozen
class Page:
    """One page of a list; ``token`` is empty on the last one."""

    items: tuple[Resource, ...]
    resource_version: str
    token: str


def read_resource(body: bytes, kind: ObjectKind, *, metadata_only: bool = False) -> Resource:
    """Read one object of a kind. Raises ``UnknownError`` when the body is no object with a name."""
    partial = _try(_PARTIAL, body, kind) if metadata_only else None
    resource = _from_partial(kind, partial) if partial else _whole(kind, _decode(_OBJECT, body, kind))
    return _named(Resource(kind, resource.meta) if metadata_only else resource)


def read_page(body: bytes, kind: ObjectKind, *, metadata_only: bool = False) -> Page:
    """Read one page of a list. Raises ``UnknownError`` when the body is no list with a resource version."""
    if metadata_only:
        partials = _try(_PARTIALS, body, kind)
        if partials is not None:
            return _page(partials, kind, _from_partial)
        # one odd object must not hide the others: read all of them the lenient way
    page = _page(_decode(_OBJECTS, body, kind), kind, _whole)
    return _without_bodies(page) if metadata_only else page


def read_event(line: bytes, kind: ObjectKind) -> tuple[str, bytes]:
    """Read one line of a watch: its type, and the object's JSON. Raises ``UnknownError`` when it is no event."""
    event: _Event = _decode(_EVENT, line, kind)
    return event.type, bytes(event.object)


def read_version(body: bytes, kind: ObjectKind) -> str:
    """Read the resource version of a bookmark. Raises ``UnknownError`` when there is none."""
    version = meta_from_json(mapping(_decode(_OBJECT, body, kind).get("metadata"))).resource_version
    if not version:
        raise UnknownError(f"a bookmark of {kind} arrives without a resource version: nothing is concluded from it")
    return version


def read_resources(body: bytes, kind: ObjectKind) -> list[ServedResource]:
    """Read the discovery of one group and version. Raises ``UnknownError`` when the body is none."""
    found: _ResourceList = _decode(_RESOURCES, body, kind)
    if found.kind != "APIResourceList":
        raise UnknownError(f"the discovery of {kind.api_version} answers with a {found.kind!r}: is this an API server?")
    return found.resources


def read_groups(body: bytes) -> list[str]:
    """Read the preferred version of each API group. Raises ``UnknownError`` when the body is no list of groups."""
    groups: _GroupList = _decode(_GROUPS, body, "the API groups")
    return [group.preferred_version.group_version for group in groups.groups]


def read_server_version(body: bytes) -> str:
    """Read a server's version. Raises ``UnknownError`` when the body names none."""
    version: _Version = _decode(_VERSION, body, "the server's version")
    return version.git_version


def read_review(body: bytes) -> bool:
    """Read whether an access review allows what it asks. Raises ``UnknownError`` when the body is none."""
    review: _Review = _decode(_REVIEW, body, "an access review")
    return review.status.allowed


def _try(decoder: Any, body: bytes, kind: ObjectKind) -> Any:
    charge_json(body, f"an answer about {kind}")
    try:
        return decoder.decode(body)
    except _UNREADABLE:
        return None


def _page(data: _List[Any], kind: ObjectKind, read: Any) -> Page:
    if not data.kind.endswith("List") or not data.metadata.resource_version:
        raise UnknownError(
            f"a list of {kind} is a {data.kind!r} or has no resource version: nothing is concluded from it"
        )
    items = tuple(_named(read(kind, item)) for item in data.items or ())
    return Page(items, data.metadata.resource_version, data.metadata.token)


def _without_bodies(page: Page) -> Page:
    return Page(tuple(Resource(item.type, item.meta) for item in page.items), page.resource_version, page.token)


def _whole(kind: ObjectKind, data: Mapping[str, Any]) -> Resource:
    body = {key: value for key, value in data.items() if key not in {"apiVersion", "kind", "metadata"}}
    return Resource(kind, meta_from_json(mapping(data.get("metadata"))), body)


def _from_partial(kind: ObjectKind, partial: _Partial) -> Resource:
    meta = partial.metadata
    return Resource(
        kind,
        ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            generation=meta.generation,
            created=meta.creation_timestamp and meta.creation_timestamp.astimezone(UTC),
            deleted=meta.deletion_timestamp and meta.deletion_timestamp.astimezone(UTC),
            finalizers=meta.finalizers or (),
            labels=meta.labels or {},
            annotations=meta.annotations or {},
            owners=[_owner(owner) for owner in meta.owner_references or ()],
        ),
    )


def _owner(owner: _Owner) -> OwnerReference:
    return OwnerReference(
        owner.api_version,
        owner.kind,
        owner.name,
        owner.uid,
        controller=owner.controller is True,
        block_owner_deletion=owner.block_owner_deletion is True,
    )


def _named(resource: Resource) -> Resource:
    if not resource.meta.name:
        raise UnknownError(f"an object of {resource.type} arrives without a name: nothing is concluded from it")
    return resource


def _decode(decoder: Any, body: bytes, kind: ObjectKind | str) -> Any:
    charge_json(body, f"an answer about {kind}")
    try:
        return decoder.decode(body)
    except _UNREADABLE as error:
        start = body[:80].decode("utf-8", "replace")
        raise UnknownError(f"an answer about {kind} cannot be read: {error}: it starts with {start!r}") from error
