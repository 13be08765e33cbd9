"""KIND/NAME on the command line: which object it means.

A kind is written as its name (``GitTrackObject``, in any case) where that is unambiguous among the kinds at hand, or in
full (``faros.pusher.com/v1alpha1/GitTrackObject``), which is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from attrs import frozen

from reprieve.core.errors import ContainerMissingError, InvalidError, NotFoundError
from reprieve.core.objects import ObjectKind, ObjectRef, Resource
from reprieve.core.ports import Cluster, Scope

NAMES_SHOWN = 5


@frozen
class Named:
    """A kind as it was written (in full, or its name alone) and an object's name."""

    kind: str
    name: str


def parse_named(written: str) -> Named:
    """Split KIND/NAME. Raises ``click.UsageError``."""
    kind, slash, name = written.rpartition("/")
    if not (slash and kind and name):
        raise click.UsageError(
            f"{written!r} is not KIND/NAME: write for instance GitTrackObject/deployment-web, "
            "or group/version/Kind/name"
        )
    return Named(kind, name)


def find_kind(written: str, candidates: Iterable[ObjectKind]) -> ObjectKind:
    """The kind that is meant. Raises ``InvalidError`` when none is, or several are."""
    known = sorted(set(candidates))
    if "/" in written:
        full = [kind for kind in known if str(kind).lower() == written.lower()]
        return full[0] if full else _parsed(written)
    matches = [kind for kind in known if kind.kind.lower() == written.lower()]
    if len(matches) == 1:
        return matches[0]
    several = ", ".join(map(str, matches or known)) or "none"
    what = "is ambiguous; it can be" if matches else "is no kind that is known here; known are"
    raise InvalidError(f"{written!r} {what} {several}; write it in full, as group/version/Kind/name")


def is_among(written: str, kinds: Iterable[ObjectKind]) -> bool:
    """Whether what is written, a kind's name or the kind in full, means one of these kinds."""
    return any(written.lower() in {kind.kind.lower(), str(kind).lower()} for kind in kinds)


def _parsed(written: str) -> ObjectKind:
    try:
        return ObjectKind.parse(written)
    except ValueError as fault:
        raise InvalidError(str(fault)) from fault


def find_object(cluster: Cluster, kind: ObjectKind, name: str, namespace: str) -> Resource:
    """Read the object that is meant, metadata only, live.

    Without a namespace, for a kind that lives in one: the only object of that name in any. Raises ``NotFoundError``,
    ``InvalidError`` when there are several, and ``ContainerMissingError`` for a kind that is not served.
    """
    if cluster.scope(kind) is Scope.CLUSTER or namespace:
        place = "" if cluster.scope(kind) is Scope.CLUSTER else namespace
        return cluster.get(ObjectRef(kind.api_version, kind.kind, name, place), metadata_only=True)
    found = [each for each in cluster.list(kind, metadata_only=True).items if each.meta.name == name]
    if not found:
        raise NotFoundError(f"{kind.kind} {name} is not there, in no namespace")
    return _only(found)


def _only(found: Sequence[Resource]) -> Resource:
    if len(found) > 1:
        places = ", ".join(each.meta.namespace for each in found[:NAMES_SHOWN])
        named = f"{found[0].type.kind} {found[0].meta.name}"
        raise InvalidError(f"{named} is in {len(found)} namespaces ({places}): name one with -n")
    return found[0]


def object_place(cluster: Cluster, kind: ObjectKind, name: str, namespace: str) -> ObjectRef:
    """A reference to an object that may not be there, for messages; ``namespace`` counts where the kind has one."""
    try:
        cluster_scoped = cluster.scope(kind) is Scope.CLUSTER
    except ContainerMissingError:
        cluster_scoped = False
    return ObjectRef(kind.api_version, kind.kind, name, "" if cluster_scoped else namespace)
