"""Codec of Faros' ``faros.pusher.com/v1alpha1``: which object a GitTrackObject carries, read from its ``spec.data``.

The data is the dependent's manifest, JSON or YAML, in base64. API version, kind, namespace and name of the dependent
stand nowhere else: ``spec.kind`` and ``spec.name`` only describe, and nothing falls back on them.

Guarantee: reading is total; what cannot be read, or could not be owned by this owner under Kubernetes' rules, is
``Undecodable`` with the reason. Hostile data (huge, nested, full of aliases) costs little. Not guaranteed: that the
dependent exists, or still refers to the owner; a live read tells.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from reprieve.core.errors import ReprieveError
from reprieve.core.objects import ObjectKind, ObjectRef, Resource, is_object_name, mapping, text
from reprieve.core.ports import Scope

API_VERSION = "faros.pusher.com/v1alpha1"
GROUP = "faros.pusher.com"
GIT_TRACK = ObjectKind(API_VERSION, "GitTrack")
CLUSTER_GIT_TRACK = ObjectKind(API_VERSION, "ClusterGitTrack")
GIT_TRACK_OBJECT = ObjectKind(API_VERSION, "GitTrackObject")
CLUSTER_GIT_TRACK_OBJECT = ObjectKind(API_VERSION, "ClusterGitTrackObject")

DATA_LIMIT = 4 * 1024 * 1024  # characters of base64; an API server takes requests of 3 MiB at most
DEPTH_LIMIT = 100
_QUOTE = 80


@frozen
class Undecodable:
    """What an owner carries could not be found out, for that reason; ``ref`` is what its spec claims, for messages."""

    ref: ObjectRef
    why: str


class _FaultError(ValueError):
    """The data is not what it should be; the text says why."""


def is_faros_owner(kind: ObjectKind) -> bool:
    """Whether objects of this kind carry a manifest, in any version of the group."""
    return kind.group == GROUP and kind.kind in {GIT_TRACK_OBJECT.kind, CLUSTER_GIT_TRACK_OBJECT.kind}


def kind_prefix(name: str) -> str:
    """The kind of the dependent in lower case, as an owner's name begins with it (``deployment-web``)."""
    return name.partition("-")[0]


def dependent_of(owner: Resource, scope_of: Callable[[ObjectKind], Scope]) -> ObjectRef | Undecodable:
    """The object that an owner carries (without UID), or why that cannot be said.

    ``scope_of`` asks the cluster how a kind is served; what it raises (``ContainerMissingError`` for a kind that is
    not served) becomes the reason.
    """
    claimed = _claimed(owner)
    try:
        named = _named(_document(owner.section("spec").get("data")))
        return _placed(named, scope_of(named.type), owner)
    except (_FaultError, ReprieveError) as fault:
        return Undecodable(claimed, f"{owner.ref}: {fault}")


def dependent_kind(owner: Resource) -> ObjectKind | Undecodable:
    """The kind of what an owner carries, whether or not that may exist."""
    try:
        return _named(_document(owner.section("spec").get("data"))).type
    except _FaultError as fault:
        return Undecodable(_claimed(owner), f"{owner.ref}: {fault}")


def _claimed(owner: Resource) -> ObjectRef:
    spec = owner.section("spec")
    kind, name = text(spec.get("kind")) or "object", text(spec.get("name")) or owner.meta.name
    return ObjectRef("", kind, name, owner.meta.namespace)


# Where it may be


def _placed(named: ObjectRef, scope: Scope, owner: Resource) -> ObjectRef:
    """Check the place against Kubernetes' rules: an owner in a namespace owns within it, a cluster-scoped one anywhere.

    Source: reference/faros.md A8, #143: a reference across namespaces, or from a cluster-scoped object to an owner in
    a namespace, counts as one to an absent owner.
    """
    home = owner.meta.namespace
    if scope is Scope.CLUSTER:
        if home:
            raise _FaultError(f"{named.type} {named.name} is cluster-scoped, so an owner in a namespace cannot own it")
        return ObjectRef(named.api_version, named.kind, named.name)
    if not named.namespace:
        raise _FaultError(f"spec.data names no namespace for {named.type} {named.name}, which lives in one")
    if home and named.namespace != home:
        raise _FaultError(
            f"{named.type} {named.key} is in another namespace than its owner ({home}): Kubernetes allows no such owner"
        )
    return named


# What the data says


def _named(document: Mapping[str, Any]) -> ObjectRef:
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        raise _FaultError("spec.data has no metadata")
    api_version, kind = _text_at(document, "apiVersion"), _text_at(document, "kind")
    name = _text_at(metadata, "name", "metadata.")
    namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise _FaultError(f"spec.data: metadata.namespace is a {type(namespace).__name__}, not a string")
    try:
        parsed = ObjectKind.parse(f"{api_version}/{kind}")
    except ValueError as fault:
        raise _FaultError(f"spec.data: {_shown(fault)}") from fault
    if "/" in name or name in {".", ".."} or (namespace and not is_object_name(namespace)):
        raise _FaultError(f"spec.data: no object can be called {_shown(name)} in {_shown(namespace)}")
    return ObjectRef(parsed.api_version, parsed.kind, name, namespace or "")


def _text_at(data: Mapping[str, Any], key: str, where: str = "") -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        found = "is missing" if value in (None, "") else f"is a {type(value).__name__}, not a string"
        raise _FaultError(f"spec.data: {where}{key} {found}")
    return value


def _document(data: object) -> Mapping[str, Any]:
    """The manifest in ``spec.data``: a mapping."""
    if not isinstance(data, str) or not data:
        raise _FaultError("spec.data is missing" if data in (None, "") else "spec.data is not a string of base64")
    if len(data) > DATA_LIMIT:
        raise _FaultError(f"spec.data has {len(data)} characters, more than {DATA_LIMIT} are not read")
    document = _parsed(_decoded(data))
    if not isinstance(document, Mapping):
        raise _FaultError(f"spec.data is a {type(document).__name__}, not an object")
    return mapping(document)


def _decoded(data: str) -> str:
    """Undo the base64. Line breaks in it are allowed, as the API server allows them."""
    try:
        return base64.b64decode(data.replace("\n", "").replace("\r", ""), validate=True).decode()
    except (binascii.Error, ValueError) as fault:
        raise _FaultError(f"spec.data is not UTF-8 text in base64: {_shown(fault)}") from fault


def _parsed(content: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return _parsed_yaml(content)


def _parsed_yaml(content: str) -> Any:
    """Read YAML that is no bomb: it is looked over as a stream of events before anything is built of it."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _look_over(yaml.parse(content, Loader=loader))
        return yaml.load(content, Loader=loader)  # noqa: S506 - both loaders are the safe one
    except _FaultError:
        raise
    except Exception as fault:  # a parser may raise anything over hostile text
        raise _FaultError(f"spec.data is neither JSON nor YAML: {_shown(fault)}") from fault


def _look_over(events: Any) -> None:
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise _FaultError("spec.data has YAML aliases, which are not read: write it out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_LIMIT:
            raise _FaultError(f"spec.data is nested more than {DEPTH_LIMIT} deep")


def _shown(value: object) -> str:
    """A value or a fault in a few words, on one line."""
    words = " ".join(str(value).split())
    return words if len(words) <= _QUOTE else f"{words[:_QUOTE]}…"
