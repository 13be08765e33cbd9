"""Kubernetes objects as core values: references, metadata, and the one JSON shape that every adapter reads and writes.

Guarantee: metadata that arrives malformed (labels that are a list, a number for a name) becomes empty values, never an
exception, since objects are made by hand. Not guaranteed: fields of metadata that no decision needs (``managedFields``
and the like); they are dropped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import field, frozen

from reprieve.core.values import FrozenMap, as_tuple, format_instant, parse_instant, string_map

LABEL_LIMIT = 63
_SAFE_HEAD = 57
_SAFE_TAIL = 6
NAME_LIMIT = 253
_KIND = re.compile(r"([^\s/]+/)?[^\s/]+/[^\s/]+")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@frozen(order=True)
class ObjectKind:
    """An API version and a kind: ``velero.io/v1`` and ``Backup``; the core group's version stands alone (``v1``)."""

    api_version: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> ObjectKind:
        """Read ``group/version/Kind`` or ``version/Kind``. Raises ``ValueError`` for any other form."""
        if _KIND.fullmatch(text) is None:
            raise ValueError(f"{text!r} is not a kind: write group/version/Kind, or version/Kind for the core group")
        api_version, _, kind = text.rpartition("/")
        return cls(api_version, kind)

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version within the group."""
        return self.api_version.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.api_version}/{self.kind}"


@frozen(order=True)
class ObjectRef:
    """One object by kind, namespace (empty: cluster-scoped) and name, and by UID (empty: not known)."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @property
    def type(self) -> ObjectKind:
        """The kind of the object with its API version."""
        return ObjectKind(self.api_version, self.kind)

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@frozen(order=True)
class OwnerReference:
    """An entry of ``metadata.ownerReferences``. The UID decides; kind and name only describe."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False

    @property
    def type(self) -> ObjectKind:
        """The owner's kind with its API version."""
        return ObjectKind(self.api_version, self.kind)


@frozen
class ObjectMeta:
    """What decisions need of an object's metadata. Instants are UTC; absent ones are None."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created: datetime | None = None
    deleted: datetime | None = None
    finalizers: tuple[str, ...] = field(default=(), converter=as_tuple)
    labels: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    annotations: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    owners: tuple[OwnerReference, ...] = field(default=(), converter=as_tuple)

    @property
    def terminating(self) -> bool:
        """Whether the API server has accepted the object's deletion (a finalizer may still hold it)."""
        return self.deleted is not None


@frozen
class Resource:
    """A whole object as the API serves it: its kind, its metadata, and the rest of its JSON (``spec``, ``status`` …).

    ``body`` is never changed in place. It is empty when only metadata was asked for.
    """

    type: ObjectKind
    meta: ObjectMeta
    body: Mapping[str, Any] = field(factory=dict, hash=False)

    @property
    def ref(self) -> ObjectRef:
        """The object's full reference, UID included."""
        return ObjectRef(self.type.api_version, self.type.kind, self.meta.name, self.meta.namespace, self.meta.uid)

    def section(self, name: str) -> Mapping[str, Any]:
        """``spec`` or ``status`` (or any other part) as a mapping; empty when it is absent or not a mapping."""
        return mapping(self.body.get(name))


def label_safe(name: str) -> str:
    """Shorten a name to a label value as Velero does: over 63 characters, its first 57 and six digits of its SHA-256.

    Source: Velero's label-safe names; ``reference`` cases of long backup and location names.
    """
    if len(name) <= LABEL_LIMIT:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return name[:_SAFE_HEAD] + digest[:_SAFE_TAIL]


def is_object_name(name: str) -> bool:
    """Whether Kubernetes could have an object of this name (a DNS-1123 subdomain of at most 253 characters)."""
    return len(name) <= NAME_LIMIT and _NAME.fullmatch(name) is not None


def mapping(data: object) -> Mapping[str, Any]:
    """``data`` when it is a mapping, else an empty one: for parts of objects that people write by hand."""
    return data if isinstance(data, Mapping) else {}


def strings(data: object) -> dict[str, str]:
    """The entries of a mapping whose keys and values are strings (YAML has other keys too)."""
    entries: Mapping[Any, Any] = mapping(data)
    return {k: v for k, v in entries.items() if isinstance(k, str) and isinstance(v, str)}


def texts(data: object) -> dict[str, str]:
    """The entries of labels or annotations. A value that is no text (``hold: 4711``, unquoted) counts as its text.

    No API server stores such a value, but a file or a document in a bucket can have it, and nothing may get lost.
    """
    entries: Mapping[Any, Any] = mapping(data)
    return {k: v if isinstance(v, str) else _scalar(v) for k, v in entries.items() if isinstance(k, str)}


def _scalar(value: object) -> str:
    return "" if value is None else json.dumps(value, sort_keys=True, default=str)


def text(data: object) -> str:
    """``data`` when it is a string, else an empty one."""
    return data if isinstance(data, str) else ""


def resource_from_json(data: Mapping[str, Any]) -> Resource:
    """Read an object's JSON. Malformed parts of its metadata become empty."""
    body = {key: value for key, value in data.items() if key not in {"apiVersion", "kind", "metadata"}}
    kind = ObjectKind(text(data.get("apiVersion")), text(data.get("kind")))
    return Resource(kind, meta_from_json(mapping(data.get("metadata"))), body)


def resource_to_json(resource: Resource) -> dict[str, Any]:
    """Write an object's JSON, as it would be sent to an API server; empty metadata fields are left out."""
    head = {"apiVersion": resource.type.api_version, "kind": resource.type.kind}
    return {**head, "metadata": meta_to_json(resource.meta), **resource.body}


def meta_from_json(data: Mapping[str, Any]) -> ObjectMeta:
    """Read ``metadata``. Malformed parts become empty."""
    finalizers, owners, generation = data.get("finalizers"), data.get("ownerReferences"), data.get("generation")
    return ObjectMeta(
        name=text(data.get("name")),
        namespace=text(data.get("namespace")),
        uid=text(data.get("uid")),
        resource_version=text(data.get("resourceVersion")),
        generation=generation if isinstance(generation, int) else 0,
        created=parse_instant(data.get("creationTimestamp")),
        deleted=parse_instant(data.get("deletionTimestamp")),
        finalizers=[f for f in finalizers if isinstance(f, str)] if isinstance(finalizers, list) else [],
        labels=texts(data.get("labels")),
        annotations=texts(data.get("annotations")),
        owners=[owner_from_json(o) for o in owners if isinstance(o, Mapping)] if isinstance(owners, list) else [],
    )


def meta_to_json(meta: ObjectMeta) -> dict[str, Any]:
    """Write ``metadata``; empty fields are left out."""
    full = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "generation": meta.generation,
        "creationTimestamp": format_instant(meta.created) if meta.created else "",
        "deletionTimestamp": format_instant(meta.deleted) if meta.deleted else "",
        "finalizers": list(meta.finalizers),
        "labels": dict(meta.labels),
        "annotations": dict(meta.annotations),
        "ownerReferences": [owner_to_json(owner) for owner in meta.owners],
    }
    return {key: value for key, value in full.items() if value}


def owner_from_json(data: Mapping[str, Any]) -> OwnerReference:
    """Read one entry of ``metadata.ownerReferences``."""
    return OwnerReference(
        text(data.get("apiVersion")),
        text(data.get("kind")),
        text(data.get("name")),
        text(data.get("uid")),
        controller=data.get("controller") is True,
        block_owner_deletion=data.get("blockOwnerDeletion") is True,
    )


def owner_to_json(owner: OwnerReference) -> dict[str, Any]:
    """Write one entry of ``metadata.ownerReferences``; the two flags only where they are set."""
    head: dict[str, Any] = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    flags = {"controller": owner.controller, "blockOwnerDeletion": owner.block_owner_deletion}
    return head | {name: True for name, on in flags.items() if on}
