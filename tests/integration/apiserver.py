"""A small API server for tests: the Kubernetes REST protocol over ``ClusterStore``, on loopback, in threads.

Guarantee: paths, verbs, status codes and bodies follow the Kubernetes API's documentation (and a real API server,
where it was asked), so that any client can be tried against it. Not guaranteed: schemas and defaulting, server-side
apply, strategic merge (treated as a merge patch for built-in kinds), Table output, protobuf, TLS.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import msgspec
from attrs import field, frozen

from reprieve.adapters.local.store import ClusterStore, ServedKind, StatusError, WatchItem, json_patch

Json = dict[str, Any]
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}
PAGE_NOT_FOUND = b"404 page not found\n"


# Faults: what a test makes the server do instead of (or after) answering.


@frozen
class Answer:
    """An answer as given; a mapping becomes JSON."""

    status: int
    body: Any = b""
    headers: Mapping[str, str] = field(factory=dict)

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)


@frozen
class Hang:
    """No answer until the server stops."""


@frozen
class Close:
    """The connection is closed without an answer."""


@frozen
class Raw:
    """Bytes that are no HTTP, then the end of the connection."""

    data: bytes


@frozen
class Truncated:
    """A 200 whose body ends before its announced length."""

    body: bytes
    missing: int = 100


@frozen
class Lines:
    """A chunked 200 with these lines, then its proper end, a broken connection, or silence."""

    lines: tuple[bytes, ...]
    then: str = "end"  # end, break, hang


@frozen
class After:
    """The request is carried out, then its answer is replaced by a fault."""

    fault: Any


Fault = Callable[[str, str, Mapping[str, str]], Any]


def refusal(code: int, reason: str, message: str, **details: Any) -> Answer:
    """A Status of failure, as an answer."""
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return Answer(code, {**head, "message": message, "reason": reason, "details": details, "code": code})


def times(count: int, fault: Any, *, method: str = "", part: str = "") -> Fault:
    """A fault for the first ``count`` requests of a method whose path (or query) contains a part."""
    left = [count]

    def hit(verb: str, path: str, query: Mapping[str, str]) -> Any:
        if method not in ("", verb) or part not in f"{path}?{urllib.parse.urlencode(query)}" or left[0] <= 0:
            return None
        left[0] -= 1
        return fault

    return hit


def once(fault: Any, *, method: str = "", part: str = "") -> Fault:
    """A fault for the first such request."""
    return times(1, fault, method=method, part=part)


@frozen
class Access:
    """What an authorizer is asked."""

    user: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    subresource: str = ""


@frozen
class Call:
    """A call that reached the server; ``path`` is without its query."""

    verb: str
    path: str


@frozen
class Target:
    """Where a path leads: a kind, and what of it."""

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@frozen
class Ask:
    """A request, taken apart."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str
    content_type: str
    body: bytes
    user: str

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"

    @property
    def watching(self) -> bool:
        return self.query.get("watch") in ("1", "true", "True")


@frozen
class Stream:
    """A watch to send."""

    target: Target
    items: Iterator[WatchItem]
    partial: bool


class ApiServer:
    """The server. Use as a context manager; ``url`` is its address, ``store`` its content.

    ``tokens`` maps bearer tokens to users (empty: everybody is ``admin``); ``authorize`` refuses by giving False;
    ``expired_as`` is ``event`` or ``http``: how a watch from a forgotten version is refused (a real server does both).
    ``verbs`` says for a plural what discovery tells of it, where that is not everything (a kind that can only be read,
    or one whose definition is being deleted).
    """

    def __init__(
        self,
        store: ClusterStore,
        *,
        tokens: Mapping[str, str] | None = None,
        authorize: Callable[[Access], bool] = lambda _access: True,
        expired_as: str = "event",
    ) -> None:
        self.store = store
        self.tokens = dict(tokens or {})
        self.authorize = authorize
        self.expired_as = expired_as
        self.verbs: dict[str, list[str]] = {}
        self.faults: list[Fault] = []
        self.calls: list[Call] = []
        self.stopping = threading.Event()
        handler = type("Handler", (_Handler,), {"api": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.store.wake()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def counts(self) -> Counter[str]:
        """How many calls there were, by verb."""
        return Counter(call.verb for call in self.calls)

    def writes(self) -> list[Call]:
        """The calls that write, in order."""
        return [call for call in self.calls if call.verb in WRITES]

    # From a request to an answer

    def answer(self, ask: Ask) -> Answer | Stream:
        try:
            return self._answer(ask)
        except StatusError as error:
            return Answer(error.code, error.status())
        except Exception as error:  # noqa: BLE001 - a test has to see it, not to hang
            return refusal(500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}")

    def _answer(self, ask: Ask) -> Answer | Stream:
        parts = [part for part in ask.path.split("/") if part]
        fixed = self._fixed(parts, ask)
        if fixed is not None:
            return fixed
        target = self._target(parts)
        if target is None:
            return Answer(404, PAGE_NOT_FOUND, {"Content-Type": "text/plain; charset=utf-8"})
        verb = _verb(ask, target)
        self._check_access(ask, verb, target)
        return getattr(self, f"_{verb}")(ask, target)

    def _fixed(self, parts: list[str], ask: Ask) -> Answer | None:
        match parts:
            case ["version"]:
                return Answer(200, VERSION)
            case ["healthz" | "readyz" | "livez"]:
                return Answer(200, b"ok", {"Content-Type": "text/plain; charset=utf-8"})
            case ["api"]:
                return Answer(200, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
            case ["apis"]:
                groups = [_group(name, versions) for name, versions in self._groups().items()]
                return Answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            case ["apis", group] if group in self._groups():
                return Answer(200, {"apiVersion": "v1", **_group(group, self._groups()[group])})
            case ["api", version] if kinds := self._kinds(version):
                return Answer(200, _resources(version, kinds, self.verbs))
            case ["apis", group, version] if kinds := self._kinds(f"{group}/{version}"):
                return Answer(200, _resources(f"{group}/{version}", kinds, self.verbs))
            case ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] if ask.method == "POST":
                return self._review(ask)
        return None

    def _review(self, ask: Ask) -> Answer:
        """What the asking user may do; anybody may ask that."""
        body = _body(ask)
        asked = body["spec"]["resourceAttributes"]
        parts = [asked.get(part, "") for part in ("verb", "group", "resource", "namespace", "name")]
        return Answer(201, {**body, "metadata": {}, "status": {"allowed": self.authorize(Access(ask.user, *parts))}})

    def _groups(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for kind in self.store.kinds():
            if kind.type.group and kind.type.version not in found.setdefault(kind.type.group, []):
                found[kind.type.group].append(kind.type.version)
        return found

    def _kinds(self, api_version: str) -> list[ServedKind]:
        return [kind for kind in self.store.kinds() if kind.api_version == api_version]

    def _target(self, parts: list[str]) -> Target | None:
        """Where the path leads; None when no such group and version is served."""
        match parts:
            case ["api", version, *rest]:
                api_version = version
            case ["apis", group, version, *rest]:
                api_version = f"{group}/{version}"
            case _:
                return None
        if not self._kinds(api_version) or not rest:
            return None
        return self._within(api_version, rest)

    def _within(self, api_version: str, rest: list[str]) -> Target | None:
        match rest:
            case ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if api_version == "v1":
                return self._found(api_version, "namespaces", "", rest[1:])
            case ["namespaces", namespace, plural, *tail]:
                return self._found(api_version, plural, namespace, tail)
            case [plural, *tail]:
                return self._found(api_version, plural, "", tail)
        return None

    def _found(self, api_version: str, plural: str, namespace: str, tail: list[str]) -> Target | None:
        try:
            kind = self.store.kind_by_plural(api_version, plural)
        except StatusError:
            if is_builtin(api_version.rpartition("/")[0]):
                raise
            return None
        misplaced = (namespace and not kind.namespaced) or (tail and kind.namespaced and not namespace)
        if misplaced or tail[1:] not in ([], ["status"]):
            raise StatusError("NotFound", "the server could not find the requested resource")
        target = Target(kind, namespace, *tail)
        if target.subresource and not kind.status:  # a real server names the object here, although it is there
            raise StatusError("NotFound", f'{kind.resource} "{target.name}" not found', details=_details(target))
        return target

    def _check_access(self, ask: Ask, verb: str, target: Target) -> None:
        kind = target.kind
        access = Access(ask.user, verb, kind.type.group, kind.plural, target.namespace, target.name, target.subresource)
        if self.authorize(access):
            return
        where = f' in the namespace "{target.namespace}"' if target.namespace else " at the cluster scope"
        named = f' "{target.name}"' if target.name else ""
        message = (
            f'{kind.resource}{named} is forbidden: User "{ask.user}" cannot {verb} resource "{kind.plural}" '
            f'in API group "{kind.type.group}"{where}'
        )
        raise StatusError("Forbidden", message, details=_details(target))

    # One method a verb

    def _get(self, ask: Ask, target: Target) -> Answer:
        return _object(ask, self.store.get(target.kind.type, target.namespace, target.name))

    def _list(self, ask: Ask, target: Target) -> Answer:
        if ask.query.get("continue") and ask.query.get("resourceVersion"):
            raise StatusError("BadRequest", "specifying resource version is not allowed when using continue")
        page = self.store.list(
            target.kind.type,
            namespace=target.namespace,
            selector=ask.query.get("labelSelector", ""),
            field_selector=ask.query.get("fieldSelector", ""),
            limit=max(0, _number(ask.query.get("limit", "0"), "limit")),
            continue_token=ask.query.get("continue", ""),
        )
        meta: Json = {"resourceVersion": page.resource_version}
        if page.continue_token or not is_builtin(target.kind.type.group):
            meta["continue"] = page.continue_token
        if page.remaining:
            meta["remainingItemCount"] = page.remaining
        if _partial(ask.accept, "List"):
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            return Answer(200, {**head, "metadata": meta, "items": [_metadata_of(item) for item in page.items]})
        head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version}
        return Answer(200, {**head, "metadata": meta, "items": [_listed(target.kind, item) for item in page.items]})

    def _watch(self, ask: Ask, target: Target) -> Answer | Stream:
        try:
            items = self.store.watch(
                target.kind.type,
                resource_version=ask.query.get("resourceVersion", ""),
                namespace=target.namespace,
                selector=ask.query.get("labelSelector", ""),
                field_selector=ask.query.get("fieldSelector", "")
                or (f"metadata.name={target.name}" if target.name else ""),
                timeout=float(_number(ask.query.get("timeoutSeconds", "1800"), "timeoutSeconds")),
                bookmarks=ask.query.get("allowWatchBookmarks") in ("1", "true", "True"),
                stop=self.stopping.is_set,
            )
        except StatusError as error:
            if error.reason != "Expired" or self.expired_as == "http":
                raise
            items = iter([WatchItem("ERROR", error.status())])
        return Stream(target, items, partial=_partial(ask.accept))

    def _create(self, ask: Ask, target: Target) -> Answer:
        obj = _fitting(_body(ask), target)
        return _object(ask, self.store.create(obj, user=ask.user, dry_run=ask.dry_run), code=201)

    def _update(self, ask: Ask, target: Target) -> Answer:
        obj = _fitting(_body(ask), target)
        return _object(ask, self.store.update(obj, subresource=target.subresource, user=ask.user, dry_run=ask.dry_run))

    def _patch(self, ask: Ask, target: Target) -> Answer:
        return _object(
            ask,
            self.store.patch(
                target.kind.type,
                target.namespace,
                target.name,
                _patch_body(ask, target),
                subresource=target.subresource,
                user=ask.user,
                dry_run=ask.dry_run,
            ),
        )

    def _delete(self, ask: Ask, target: Target) -> Answer:
        options = _delete_options(ask)
        conditions = options.get("preconditions") or {}
        deleted = self.store.delete(
            target.kind.type,
            target.namespace,
            target.name,
            uid=conditions.get("uid", ""),
            resource_version=conditions.get("resourceVersion", ""),
            propagation=options.get("propagationPolicy", ""),
            user=ask.user,
            dry_run=ask.dry_run or options.get("dryRun") == ["All"],
        )
        if not deleted.gone:
            return _object(ask, deleted.object)
        details = {**_details(target), "uid": deleted.object["metadata"]["uid"]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Answer(200, status)

    def _deletecollection(self, ask: Ask, target: Target) -> Answer:
        gone = self.store.delete_collection(
            target.kind.type,
            namespace=target.namespace,
            selector=ask.query.get("labelSelector", ""),
            field_selector=ask.query.get("fieldSelector", ""),
            propagation=_delete_options(ask).get("propagationPolicy", ""),
            user=ask.user,
            dry_run=ask.dry_run,
        )
        head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version}
        meta = {"resourceVersion": self.store.resource_version}
        return Answer(200, {**head, "metadata": meta, "items": [_listed(target.kind, item) for item in gone]})

    def _notallowed(self, ask: Ask, target: Target) -> Answer:
        raise StatusError(
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            details=_details(target),
        )


def is_builtin(group: str) -> bool:
    """Whether a group is Kubernetes' own: some answers differ from those of custom resources."""
    return "." not in group or group.endswith(".k8s.io")


def _verb(ask: Ask, target: Target) -> str:
    match ask.method, bool(target.name):
        case "GET", _ if ask.watching:
            return "watch"
        case "GET", named:
            return "get" if named else "list"
        case "POST", False if target.namespace or not target.kind.namespaced:
            return "create"
        case "PUT", True:
            return "update"
        case "PATCH", True:
            return "patch"
        case "DELETE", named if named or target.namespace or not target.kind.namespaced:
            return "delete" if named else "deletecollection"
    return "notallowed"


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(api_version: str, kinds: list[ServedKind], told: Mapping[str, list[str]]) -> Json:
    found = []
    for kind in kinds:
        verbs = told.get(kind.plural) or [
            "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"
        ]  # fmt: skip
        line = {
            "name": kind.plural,
            "singularName": kind.kind.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
        }
        found.append({**line, "verbs": verbs})
        if kind.status:
            found.append(
                {**line, "name": f"{kind.plural}/status", "singularName": "", "verbs": ["get", "patch", "update"]}
            )
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": found}


def _details(target: Target) -> Json:
    found = {"name": target.name, "group": target.kind.type.group, "kind": target.kind.plural}
    return {key: value for key, value in found.items() if value}


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise StatusError("BadRequest", f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})') from None


def _partial(accept: str, of: str = "") -> bool:
    """Whether the first media type that is known asks for metadata only; 406 when the shape does not fit."""
    for entry in accept.split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        shape = dict(part.split("=", 1) for part in parameters if "=" in part)
        if kind in ("application/json", "*/*", "application/*", ""):
            if not shape.get("as"):
                return False
            if shape["as"] == f"PartialObjectMetadata{of}" and shape.get("g") == "meta.k8s.io":
                return True
            if shape["as"].startswith("PartialObjectMetadata"):
                message = f"you requested {shape['as']}, but the requested object is {'' if of else 'not '}a list"
                raise StatusError("NotAcceptable", message, code=406)
    raise StatusError("NotAcceptable", "only the following media types are accepted: application/json", code=406)


def _metadata_of(obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _listed(kind: ServedKind, obj: Json) -> Json:
    """The lists of built-in kinds leave apiVersion and kind out of their items."""
    return (
        {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
        if is_builtin(kind.type.group)
        else obj
    )


def _object(ask: Ask, obj: Json, *, code: int = 200) -> Answer:
    return Answer(code, _metadata_of(obj) if _partial(ask.accept) else obj)


def _parsed(body: bytes, what: str) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise StatusError("BadRequest", f"{what}: {error}") from None


def _body(ask: Ask) -> Json:
    if ask.content_type not in ("", "application/json"):
        raise StatusError("UnsupportedMediaType", "the body of the request was in an unknown format", code=415)
    obj = _parsed(ask.body, "couldn't get version/kind; json parse error")
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
        raise StatusError("BadRequest", "the body is no object")
    return obj


def _fitting(obj: Json, target: Target) -> Json:
    """The object, its namespace and name filled in from the path, or 400 when the two do not agree."""
    for key, expected in (("apiVersion", target.kind.api_version), ("kind", target.kind.kind)):
        if obj.get(key, expected) != expected:
            message = f"the {key} in the data ({obj[key]}) does not match the expected {key} ({expected})"
            custom_kind = key == "kind" and not is_builtin(target.kind.type.group)
            raise StatusError("Invalid" if custom_kind else "BadRequest", message)
    meta = dict(obj.get("metadata", {}))
    for key, expected in (("namespace", target.namespace), ("name", target.name)):
        if expected and meta.get(key) not in (None, "", expected):
            raise StatusError(
                "BadRequest", f"the {key} of the provided object does not match the {key} sent on the request"
            )
        if expected:
            meta[key] = expected
    return {**obj, "apiVersion": target.kind.api_version, "kind": target.kind.kind, "metadata": meta}


def _patch_body(ask: Ask, target: Target) -> Any:
    supported = [JSON_PATCH, MERGE_PATCH] + ([STRATEGIC_PATCH] if is_builtin(target.kind.type.group) else [])
    if ask.content_type not in supported:
        message = (
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(supported)}"
        )
        raise StatusError("UnsupportedMediaType", message, code=415)
    patch = _parsed(ask.body, "error decoding patch")
    if isinstance(patch, list) is not (ask.content_type == JSON_PATCH):
        raise StatusError("BadRequest", "error decoding patch: the body does not fit its content type")
    return json_patch(patch) if isinstance(patch, list) else patch


def _delete_options(ask: Ask) -> Json:
    options = _parsed(ask.body, "couldn't get version/kind; json parse error") if ask.body.strip() else {}
    if not isinstance(options, dict) or options.get("kind", "DeleteOptions") != "DeleteOptions":
        raise StatusError("BadRequest", "the body is no DeleteOptions")
    given = options if ask.body.strip() else ask.query  # a real server looks at the query only where there is no body
    policy = given.get("propagationPolicy") or ""
    if policy not in ("", "Background", "Foreground", "Orphan"):
        message = f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "{policy}"'
        raise StatusError("Invalid", message)
    return {**options, "propagationPolicy": policy}


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive; headers and body leave in one write."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: ApiServer

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            self._handle()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _handle(self) -> None:
        raw, _, query = self.path.partition("?")
        path = urllib.parse.unquote(raw)
        parsed = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        user = self._user()
        headers = self.headers
        content_type = headers.get("Content-Type", "").partition(";")[0].strip()
        ask = Ask(self.command, path, parsed, headers.get("Accept", "*/*"), content_type, body, user)
        self._record(ask)
        fault = next(
            (hit for each in list(self.api.faults) if (hit := each(self.command, path, parsed)) is not None), None
        )
        if isinstance(fault, After):
            self.api.answer(ask)
            fault = fault.fault
        if fault is not None:
            self._fail(fault)
        elif not user:
            self._send(refusal(401, "Unauthorized", "Unauthorized"))
        else:
            self._send(self.api.answer(ask))

    def _user(self) -> str:
        """The user; empty when the token is none of ours."""
        if not self.api.tokens:
            return "admin"
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return self.api.tokens.get(token.strip(), "") if scheme.lower() == "bearer" else ""

    def _record(self, ask: Ask) -> None:
        parts = [part for part in ask.path.split("/") if part]
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(ask.method, "get")
        with contextlib.suppress(StatusError):
            target = self.api._target(parts)
            verb = _verb(ask, target) if target else verb
        self.api.calls.append(Call(verb, ask.path))

    def _send(self, answer: Answer | Stream) -> None:
        if isinstance(answer, Stream):
            self._send_stream(_rendered(answer))
            return
        data = answer.encoded()
        head = {"Content-Type": "application/json", "Content-Length": str(len(data)), **answer.headers}
        self._write_head(answer.status, head, data)

    def _write_head(self, status: int, headers: Mapping[str, str], data: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self._headers_buffer.append(b"\r\n")
        head = b"".join(self._headers_buffer)
        self._headers_buffer = []
        self.wfile.write(head + data)

    def _send_stream(self, lines: Iterator[bytes], then: str = "end") -> None:
        self._write_head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
        for line in lines:
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        if then == "hang":
            self.api.stopping.wait(30)
        if then == "end":
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._drop()

    def _fail(self, fault: Any) -> None:
        match fault:
            case Answer():
                self._send(fault)
            case Hang():
                self.api.stopping.wait(30)
                self._drop()
            case Close():
                self._drop()
            case Raw(data):
                self.wfile.write(data)
                self._drop()
            case Truncated(body, missing):
                head = {"Content-Type": "application/json", "Content-Length": str(len(body) + missing)}
                self._write_head(200, head, body)
                self._drop()
            case Lines(lines, then):
                self._send_stream(iter(lines), then)
            case _:
                raise TypeError(f"{fault!r} is no fault")

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _rendered(stream: Stream) -> Iterator[bytes]:
    for item in stream.items:
        whole = item.type == "ERROR" or not stream.partial
        obj = item.object if whole else _metadata_of(item.object)
        yield msgspec.json.encode({"type": item.type, "object": obj}) + b"\n"
