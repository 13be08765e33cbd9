"""The cluster port over an API server's REST protocol.

Guarantee: reads are live and complete (every page, or an error); patches and deletes carry the UID that they are
meant for, so that an object which was made anew under the same name is never touched; every trouble is one of
``reprieve.core.errors`` or an outcome. Not guaranteed: that a write whose answer was lost was not carried out; asking
again tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

from attrs import evolve

from reprieve.adapters.budget import Tally, account, size_of, weight_of
from reprieve.adapters.k8s import wire
from reprieve.adapters.k8s.discovery import Discovery
from reprieve.adapters.k8s.errors import Answer, Ask, error_of, read_status
from reprieve.adapters.k8s.transport import JSON, MERGE_PATCH, Request, Transport
from reprieve.adapters.sizes import ANSWER_PAGE, TOKEN
from reprieve.core.errors import (
    ContainerMissingError,
    ExpiredError,
    InvalidError,
    ReprieveError,
    TooMuchError,
    UnknownError,
)
from reprieve.core.objects import ObjectKind, ObjectRef, Resource, mapping, text
from reprieve.core.outcomes import Conflict, Done, Invalid, Outcome, Pending, Unknown, outcome_of
from reprieve.core.ports import Bookmark, Listing, Propagation, Removed, Scope, Upserted, WatchEvent
from reprieve.core.values import to_plain

PAGE = 500
FEWER = 8  # so many times fewer objects are asked for after a page that was too large
_GRACE = timedelta(seconds=15)  # how much later than its time-out a watch may end before it counts as dead
_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_HELD = timedelta(minutes=1)  # a watch tells when the last finalizer is off; this is for one that was missed
_REVIEWS = "authorization.k8s.io"
_REVIEW_PATH = f"/apis/{_REVIEWS}/v1/selfsubjectaccessreviews"
_REVIEW: Final = {
    "apiVersion": f"{_REVIEWS}/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {"resourceAttributes": {"verb": "list", "group": "*", "resource": "*"}},
}
_EXPECTED: Final = {"GET": {200}, "POST": {200, 201, 202}, "PATCH": {200}, "DELETE": {200, 202}}


class KubernetesCluster:
    """``reprieve.core.ports.Cluster`` over an API server. Safe to share between threads."""

    def __init__(self, transport: Transport, *, page: int = PAGE, discovery: Discovery | None = None) -> None:
        """Take a connection, and how many objects to ask for at once; make no call."""
        self._transport, self._page = transport, page
        self._discovery = discovery or Discovery(transport)

    def within(self, timeout: timedelta) -> KubernetesCluster:
        """Give the same cluster, its calls bounded by another time-out (a Lease cannot wait as long as a list)."""
        return KubernetesCluster(self._transport.within(timeout), page=self._page, discovery=self._discovery)

    def close(self) -> None:
        """End the watches, which then raise ``UnavailableError``, and close the connections."""
        self._transport.close()

    def scope(self, kind: ObjectKind) -> Scope:
        """Say how a kind is served. Raises ``ContainerMissingError`` when it is not."""
        return self._discovery.find(kind).scope

    def kinds(self) -> Sequence[ObjectKind]:
        """Every kind that can be listed and deleted, in its group's preferred version. Raises core errors."""
        return self._discovery.kinds()

    def may_list_everything(self) -> bool:
        """Say whether this account may list every kind in every namespace; it need not. Raises core errors."""
        request = Request(Ask("create", "selfsubjectaccessreviews", _REVIEWS), "POST", _REVIEW_PATH, body=_REVIEW)
        answer = self._transport.call(request)
        if answer.status not in _EXPECTED["POST"]:
            raise error_of(request.ask, answer)
        return wire.read_review(answer.body)

    def version(self) -> str:
        """Say which version the API server is, as ``v1.31.2``. Raises core errors."""
        request = Request(Ask("get", "version"), "GET", "/version")
        answer = self._transport.call(request)
        if answer.status != HTTPStatus.OK:
            raise error_of(request.ask, answer)
        return wire.read_server_version(answer.body)

    def get(self, ref: ObjectRef, *, metadata_only: bool = False) -> Resource:
        """Read one object live; see the port."""
        served = self._discovery.find(ref.type)
        ask = served.ask("get", ref.namespace, ref.name)
        accept = _PARTIAL if metadata_only else JSON
        with account():
            answer = self._call(ref.type, Request(ask, "GET", served.item(ref), accept=accept))
            return _same(ref, wire.read_resource(answer.body, ref.type, metadata_only=metadata_only))

    def list(
        self, kind: ObjectKind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """List all objects, page by page; when a page's token expires, once again in one page, which cannot expire."""
        query = (("labelSelector", selector),) if selector else ()
        accept = _PARTIALS if metadata_only else JSON
        served = self._discovery.find(kind)
        base = Request(
            served.ask("list", namespace), "GET", served.collection(namespace), query, accept, limit=ANSWER_PAGE
        )
        try:
            return self._pages(kind, base, limit=self._page, metadata_only=metadata_only)
        except ExpiredError:
            return self._pages(kind, base, limit=0, metadata_only=metadata_only)

    def watch(
        self,
        kind: ObjectKind,
        *,
        resource_version: str,
        namespace: str = "",
        metadata_only: bool = False,
        timeout: timedelta = timedelta(minutes=5),
    ) -> Iterator[WatchEvent]:
        """Follow changes; see the port. A broken stream is ``UnavailableError``, what is no event ``UnknownError``."""
        served = self._discovery.find(kind)
        seconds = max(1, round(timeout.total_seconds()))
        query = (
            ("watch", "true"),
            ("resourceVersion", resource_version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(seconds)),
        )
        accept = _PARTIAL if metadata_only else JSON
        request = Request(served.ask("watch", namespace), "GET", served.collection(namespace), query, accept)
        for line in self._lines(kind, request, idle=timedelta(seconds=seconds) + _GRACE):
            with account():
                event = _event(line, kind, request, metadata_only=metadata_only)
            yield event

    def create(self, manifest: Mapping[str, Any]) -> Resource:
        """Create an object; see the port. A kind that lives in namespaces needs ``metadata.namespace``."""
        body = to_plain(manifest)
        meta = mapping(body.get("metadata"))
        kind = ObjectKind(text(body.get("apiVersion")), text(body.get("kind")))
        served = self._discovery.find(kind)
        namespace, name = text(meta.get("namespace")), text(meta.get("name"))
        if served.scope is Scope.NAMESPACED and not namespace:
            raise InvalidError(
                f"cannot create {kind} {name!r}: it lives in a namespace, and metadata.namespace is empty"
            )
        request = Request(served.ask("create", namespace, name), "POST", served.collection(namespace), body=body)
        with account():
            return wire.read_resource(self._call(kind, request).body, kind)

    def patch(self, ref: ObjectRef, patch: Mapping[str, Any], *, resource_version: str = "") -> Resource:
        """Merge-patch the object of that name and UID; see the port. The preconditions travel in the patch itself."""
        if not ref.uid:
            raise InvalidError(f"cannot patch {ref.type} {ref.key}: the reference carries no UID")
        served = self._discovery.find(ref.type)
        ask = served.ask("patch", ref.namespace, ref.name)
        body = _guarded(to_plain(patch), ref.uid, resource_version)
        request = Request(ask, "PATCH", served.item(ref), content_type=MERGE_PATCH, body=body)
        with account():
            return _same(ref, wire.read_resource(self._call(ref.type, request).body, ref.type))

    def delete(
        self, ref: ObjectRef, *, propagation: Propagation = Propagation.BACKGROUND, resource_version: str = ""
    ) -> Outcome:
        """Delete the object of that name and UID; see the port."""
        if not ref.uid:
            return Invalid(f"cannot delete {ref.type} {ref.key}: the reference carries no UID")
        try:
            with account():
                return _deleted(self._call(ref.type, self._deletion(ref, propagation, resource_version)), ref)
        except ReprieveError as error:
            return outcome_of(error)

    def _deletion(self, ref: ObjectRef, propagation: Propagation, resource_version: str) -> Request:
        served = self._discovery.find(ref.type)
        version = {"resourceVersion": resource_version} if resource_version else {}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": ref.uid, **version},
            "propagationPolicy": propagation.value,
        }
        return Request(served.ask("delete", ref.namespace, ref.name), "DELETE", served.item(ref), body=options)

    def _pages(self, kind: ObjectKind, base: Request, *, limit: int, metadata_only: bool) -> Listing:
        """Read page after page. One that is too large is asked for again with fewer objects on it."""
        items: list[Resource] = []
        tokens: set[str] = set()
        token, tally = "", Tally(str(base.ask))
        with account() as ours:
            while True:
                before = ours.held
                try:
                    answer = self._call(kind, _paged(base, limit, token))
                    page = wire.read_page(answer.body, kind, metadata_only=metadata_only)
                except TooMuchError:
                    ours.settle(before)
                    if limit <= 1:
                        raise
                    limit = max(1, limit // FEWER)
                    continue
                ours.settle(before)
                tally.page(len(page.items))
                tally.keep(sum(weight_of(each.meta) + size_of(each.body) for each in page.items))
                items.extend(page.items)
                token = page.token
                if not token:
                    return Listing(items, page.resource_version)
                if token in tokens or len(token) > TOKEN:
                    raise UnknownError(
                        f"{base.ask}: the server gives the same page for ever, or no token that could be one: "
                        "nothing is concluded from it"
                    )
                tokens.add(token)

    def _call(self, kind: ObjectKind, request: Request) -> Answer:
        answer = self._transport.call(request)
        if answer.status in _EXPECTED[request.method]:
            return answer
        error = error_of(request.ask, answer)
        if isinstance(error, ContainerMissingError):
            self._discovery.forget(kind)
        raise error

    def _lines(self, kind: ObjectKind, request: Request, *, idle: timedelta) -> Iterator[bytes]:
        try:
            yield from self._transport.lines(request, idle=idle)
        except ContainerMissingError:
            self._discovery.forget(kind)
            raise


def _paged(base: Request, limit: int, token: str) -> Request:
    size = (("limit", str(limit)),) if limit else ()
    more = (("continue", token),) if token else ()
    return evolve(base, query=(*base.query, *size, *more))


def _guarded(patch: dict[str, Any], uid: str, resource_version: str) -> dict[str, Any]:
    """Put the preconditions into a merge patch: the API server refuses one that differs, as a conflict."""
    version = {"resourceVersion": resource_version} if resource_version else {}
    return {**patch, "metadata": {**mapping(patch.get("metadata")), "uid": uid, **version}}


def _same(ref: ObjectRef, found: Resource) -> Resource:
    if found.meta.name != ref.name:
        raise UnknownError(f"asked for {ref.type} {ref.key}, answered with {found.ref}: nothing is concluded from it")
    return found


def _event(line: bytes, kind: ObjectKind, request: Request, *, metadata_only: bool) -> WatchEvent:
    name, body = wire.read_event(line, kind)
    match name:
        case "ADDED" | "MODIFIED":
            return Upserted(wire.read_resource(body, kind, metadata_only=metadata_only))
        case "DELETED":
            return Removed(wire.read_resource(body, kind, metadata_only=metadata_only))
        case "BOOKMARK":
            return Bookmark(wire.read_version(body, kind))
        case "ERROR":
            raise error_of(request.ask, Answer(read_status(body).code, body=body))
        case _:
            raise UnknownError(f"{request.ask}: an event of type {name!r} is not known: nothing is concluded from it")


def _deleted(answer: Answer, ref: ObjectRef) -> Outcome:
    """Tell gone from accepted. A Status of success, or the last state of an object that was not told to wait, is gone.

    Source: an API server answers with the object, ``deletionTimestamp`` set, when finalizers or a grace period hold it.
    """
    if read_status(answer.body).status == "Success":
        return Done()
    try:
        meta = wire.read_resource(answer.body, ref.type, metadata_only=True).meta
    except UnknownError as error:
        return Unknown(str(error))
    if meta.name != ref.name or meta.uid != ref.uid:
        return Conflict(f"the API server answers the deletion of {ref.key} ({ref.uid}) with {meta.name} ({meta.uid})")
    if meta.finalizers:
        return Pending(_HELD, f"accepted; held by the finalizers {', '.join(meta.finalizers)}")
    accepted = meta.terminating or answer.status == HTTPStatus.ACCEPTED
    return Pending(message="accepted; the object is terminating") if accepted else Done()
