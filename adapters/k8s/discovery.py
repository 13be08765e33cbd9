"""Which path a kind is served at: discovery, a group and version at a time, kept until a kind is missing from it.

Guarantee: a kind that is not served is ``ContainerMissingError``, and is asked for again the next time (its
definition may come later). No name or namespace is put into a path that it could lead out of. Not guaranteed: that a
kind which was served still is; the call itself tells.
"""

from __future__ import annotations

import re
import threading
from http import HTTPStatus
from urllib.parse import quote

from attrs import frozen

from reprieve.adapters.k8s import wire
from reprieve.adapters.k8s.errors import Ask, error_of
from reprieve.adapters.k8s.transport import Request, Transport
from reprieve.core.errors import ContainerMissingError, InvalidError, NotFoundError
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.ports import Scope

_API_VERSION = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@frozen
class Endpoint:
    """Where a kind is served: its plural and its scope."""

    kind: ObjectKind
    plural: str
    scope: Scope

    def collection(self, namespace: str = "") -> str:
        """The path of all objects, or of a namespace's. Raises ``InvalidError`` for what no namespace can be called."""
        if not namespace or self.scope is Scope.CLUSTER:
            return f"{_root(self.kind)}/{self.plural}"
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidError(f"{namespace!r} is no namespace: lower case letters, digits and -, 63 at most")
        return f"{_root(self.kind)}/namespaces/{namespace}/{self.plural}"

    def item(self, ref: ObjectRef) -> str:
        """The path of one object. Raises ``NotFoundError`` for a name that no API server can have an object of."""
        if not _possible(ref.name) or not (self.scope is Scope.CLUSTER or _NAMESPACE.fullmatch(ref.namespace)):
            raise NotFoundError(f"{ref.type} {ref.key!r}: no object can have this name, so there is none")
        return f"{self.collection(ref.namespace)}/{quote(ref.name, safe='')}"

    def ask(self, verb: str, namespace: str = "", name: str = "") -> Ask:
        """What is asked, for messages."""
        return Ask(verb, self.plural, self.kind.group, "" if self.scope is Scope.CLUSTER else namespace, name)


class Discovery:
    """The endpoints of one API server. Safe to share between threads."""

    def __init__(self, transport: Transport) -> None:
        """Know nothing yet; make no call."""
        self._transport = transport
        self._lock = threading.Lock()
        self._known: dict[ObjectKind, Endpoint] = {}

    def find(self, kind: ObjectKind) -> Endpoint:
        """Say where a kind is served. Raises ``ContainerMissingError`` when it is not."""
        with self._lock:
            known = self._known.get(kind)
        return known or self._read(kind)

    def forget(self, kind: ObjectKind) -> None:
        """Ask again the next time: the API server said that it does not serve the kind (any more)."""
        with self._lock:
            self._known.pop(kind, None)

    def kinds(self) -> list[ObjectKind]:
        """Every kind that can be listed and deleted, in its group's preferred version, sorted; asked anew each time.

        What can only be read (component statuses, metrics) cannot carry a finalizer. A kind whose definition is being
        deleted is told without its other verbs, ``patch`` among them, and may hold objects still. A group whose own
        server does not answer is left out: nothing is known of its kinds.
        """
        answer = self._transport.call(Request(Ask("discover", "groups"), "GET", "/apis"))
        if answer.status != HTTPStatus.OK:
            raise error_of(Ask("discover", "groups"), answer)
        versions = ["v1", *wire.read_groups(answer.body)]
        return sorted({kind for version in versions for kind in self._listable(version)})

    def _listable(self, api_version: str) -> list[ObjectKind]:
        any_kind = ObjectKind(api_version, "")
        if not _API_VERSION.fullmatch(api_version):
            return []
        answer = self._transport.call(Request(Ask("discover", api_version), "GET", _root(any_kind)))
        if answer.status != HTTPStatus.OK:
            return []
        found = wire.read_resources(answer.body, any_kind)
        return [
            ObjectKind(api_version, each.kind)
            for each in found
            if "/" not in each.name and {"list", "delete"} <= set(each.verbs or ())
        ]

    def _read(self, kind: ObjectKind) -> Endpoint:
        if not _API_VERSION.fullmatch(kind.api_version):
            raise ContainerMissingError(f"{kind} is not served: {kind.api_version!r} is no API version")
        request = Request(Ask("discover", str(kind)), "GET", _root(kind))
        answer = self._transport.call(request)
        if answer.status != HTTPStatus.OK:
            raise _explained(error_of(request.ask, answer), kind)
        self._keep(kind, wire.read_resources(answer.body, kind))
        with self._lock:
            found = self._known.get(kind)
        if found is None:
            raise _missing(kind)
        return found

    def _keep(self, kind: ObjectKind, resources: list[wire.ServedResource]) -> None:
        whole = [resource for resource in resources if "/" not in resource.name]
        with self._lock:
            for resource in whole:
                each = ObjectKind(kind.api_version, resource.kind)
                scope = Scope.NAMESPACED if resource.namespaced else Scope.CLUSTER
                self._known[each] = Endpoint(each, resource.name, scope)


def _explained(error: Exception, kind: ObjectKind) -> Exception:
    return _missing(kind) if isinstance(error, ContainerMissingError) else error


def _missing(kind: ObjectKind) -> ContainerMissingError:
    return ContainerMissingError(
        f"the API server does not serve {kind}: install its CustomResourceDefinition, or see `kubectl api-resources`"
    )


def _root(kind: ObjectKind) -> str:
    return f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"


def _possible(name: str) -> bool:
    """Whether a name can be one segment of a path, which the server asks of every kind (a kind may ask for more)."""
    return name not in ("", ".", "..") and "/" not in name and "%" not in name and name.isprintable() and name.isascii()
