"""Disk snapshots on Google Cloud, through google-cloud-compute.

Delete, get, list by tag, and the table of what the API and the SDK say.

A delete is accepted with an operation. The first ``delete`` gives ``Pending``; each later one asks that operation once,
without waiting: its end is the delete's end, its error is the delete's error (an operation that failed raises nothing
by itself), one that nobody knows any more means asking for the delete again.

Guarantee: a 404 is "gone" only when its message names the snapshot; one that names the project, or nothing, is not. An
operation that does not end within ``DEADLINE`` is given up as ``Retryable``, so that an attempt is counted. Not
guaranteed: that an operation is followed over a restart. It is asked for again then, which is safe.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from attrs import frozen

from reprieve.adapters.cloud.answers import bound_requests, pin
from reprieve.adapters.cloud.listing import Shared, tagged
from reprieve.adapters.cloud.secret_gcp import (
    STS_URL,
    TOKEN_URI,
    Federation,
    GoogleKey,
    ServiceAccount,
    User,
    read_key,
)
from reprieve.adapters.cloud.secret_text import check_config
from reprieve.adapters.cloud.tables import (
    Fault,
    NativePanicError,
    Rule,
    Table,
    build_error,
    class_names,
    native,
    not_installed,
    outcome,
    pause,
    translated,
    words,
)
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import (
    ConflictError,
    ContainerMissingError,
    DeniedError,
    InUseError,
    InvalidError,
    LockedError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
    UnknownError,
)
from reprieve.core.outcomes import Done, Outcome, Pending, Retryable
from reprieve.core.ports import SnapshotInfo
from reprieve.core.values import parse_instant

if TYPE_CHECKING:
    from google.cloud import compute_v1

PROVIDER = "gcp"
TIMEOUT = timedelta(seconds=30)
DEADLINE = timedelta(minutes=10)
POLL = timedelta(seconds=2)
CONNECTIONS = 64
PAGE = 500
GIB = 2**30
SCOPE = "https://www.googleapis.com/auth/compute"

SNAPSHOT_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
OPERATION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", re.ASCII)
PROJECT_ID = re.compile(r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]|[0-9]+")

ERRORS: Table = (
    Rule(
        NotFoundError,
        codes=("notFound", "RESOURCE_NOT_FOUND"),
        words=r"'?projects/[^/' ]+/global/snapshots/[^/' ]+'?",
        why="the message names the snapshot; also inside an operation",
    ),
    Rule(
        ContainerMissingError,
        codes=("notFound", "RESOURCE_NOT_FOUND"),
        words=r"projects/[^/' ]+('|/(zones|regions)/[^/' ]+'|$| )|\bproject\b.*\bnot found\b|unknown project",
        why="the message names the project, zone or region",
    ),
    Rule(ContainerMissingError, codes=("PROJECT_DELETED", "CONSUMER_INVALID", "unknownProject")),
    Rule(
        ThrottledError,
        codes=(
            "(user)?rateLimitExceeded",
            "RATE_LIMIT_EXCEEDED",
            "dailyLimitExceeded",
            "RESOURCE_EXHAUSTED",
            "concurrentOperationsQuotaExceeded",
            "OPERATION_RATE_EXCEEDED",
        ),
        why="HTTP 403 as well: the reason tells it from a refusal",
    ),
    Rule(ThrottledError, statuses=(429,)),
    Rule(InUseError, codes=("resourceInUse(ByAnotherResource)?", "RESOURCE_IN_USE(_BY_ANOTHER_RESOURCE)?")),
    Rule(UnavailableError, codes=("resourceNotReady", "RESOURCE_NOT_READY"), why="another operation works on it"),
    Rule(
        LockedError,
        statuses=(400, 403, 412),
        words=r"retention (policy|period)|deletion protection|\bis locked\b|\ba lien\b",
        why="not seen on a snapshot: Compute Engine has no lock for them",
    ),
    Rule(
        DeniedError,
        codes=(
            "forbidden",
            "authError",
            "required",
            "insufficientPermissions",
            "accessNotConfigured",
            "SERVICE_DISABLED",
            "PERMISSIONS_ERROR",
            "ACCESS_TOKEN_\\w+",
            "IAM_PERMISSION_DENIED",
        ),
    ),
    Rule(InvalidError, exceptions=("MalformedError", "InvalidValue", "InvalidResource"), why="a credential of no use"),
    Rule(
        UnavailableError, codes=("retryable",), exceptions=("RefreshError",), why="the token server asks to come back"
    ),
    Rule(
        DeniedError,
        exceptions=("DefaultCredentialsError", "RefreshError", "UserAccessTokenError", "ReauthFailError"),
        why="no credential, or an expired or revoked one",
    ),
    Rule(DeniedError, statuses=(401, 403)),
    Rule(ConflictError, codes=("conditionNotMet", "CONDITION_NOT_MET", "fingerprintMismatch")),
    Rule(ConflictError, statuses=(409, 412)),
    Rule(
        InvalidError,
        codes=("invalid", "invalidParameter", "badRequest", "INVALID_(FIELD_VALUE|USAGE|ARGUMENT)", "INVALID"),
    ),
    Rule(InvalidError, statuses=(400,)),
    Rule(
        UnavailableError,
        codes=("backendError", "internalError", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE", "TIMEOUT"),
    ),
    Rule(UnavailableError, statuses=(408, 500, 502, 503, 504)),
    Rule(
        UnavailableError,
        exceptions=(
            "ConnectionError",
            "Timeout",
            "TimeoutError",
            "TransportError",
            "RetryError",
            "ChunkedEncodingError",
        ),
        why="refused, no such host, TLS, time-out, cut off",
    ),
)
"""What Compute Engine and its SDK say, and what it means.

Sources: the API's error shapes, google.api_core, runs against both.
"""


@frozen
class Operation:
    """A delete that was accepted: the operation's name, and when it was begun (seconds of the injected clock)."""

    name: str
    begun: float


@frozen
class Clients:
    """The two clients of one location, and the project that they work in."""

    project: str
    snapshots: compute_v1.SnapshotsClient
    operations: compute_v1.GlobalOperationsClient


class GcpSnapshots:
    """Opens the disk snapshots of a location.

    ``config.project``, else the credential's project, else the default chain's.

    ``config.snapshotLocation`` says where new snapshots are stored; names are global, so deleting needs none.
    ``endpoint`` is for stand-ins. ``clock`` gives seconds that only grow.
    """

    provider = PROVIDER

    def __init__(
        self,
        *,
        endpoint: str = "",
        timeout: timedelta = TIMEOUT,
        deadline: timedelta = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the longest wait for one answer, and for one operation; nothing is imported yet."""
        self._endpoint = endpoint
        self._timeout = timeout
        self._deadline = deadline
        self._clock = clock

    def open(self, location: SnapshotLocation, *, credential: bytes | None = None) -> GcpSnapshotStore:
        """Open a location with the bytes of a credential's JSON, or with the default chain. Makes no call.

        Raises ``InvalidError`` for a project or a credential that cannot be used.
        """
        what = f"snapshot location {location.name}"
        check_config(location.config, what=what)
        key = None if credential is None else read_key(credential)
        project = location.config.get("project", "") or (key.project if key else "")
        with translated(read_fault, ERRORS, what=what):
            if project and not PROJECT_ID.fullmatch(project):
                raise InvalidError(f"{what}: spec.config.project {project!r} is not the id of a project")
            known = None if key is None else credentials_from(key, scope=SCOPE)

        def connect() -> Clients:
            return _connect(known, project=project, endpoint=self._endpoint, what=what)

        return GcpSnapshotStore(connect, timeout=self._timeout, deadline=self._deadline, clock=self._clock)


class GcpSnapshotStore:
    """The disk snapshots of one project. Safe for threads."""

    def __init__(
        self, connect: Callable[[], Clients], *, timeout: timedelta, deadline: timedelta, clock: Callable[[], float]
    ) -> None:
        """Keep how to connect; the clients, and with them the credential, are made by the first call."""
        self._connect = connect
        self._timeout = timeout.total_seconds()
        self._deadline = deadline
        self._clock = clock
        self._lock = threading.Lock()
        self._made: Clients | None = None
        self._pending: dict[str, Operation] = {}
        self._shared = Shared(clock)

    def delete(self, snapshot_id: str) -> Outcome:
        """Begin to delete one snapshot, or follow the operation that was begun before. Never waits for an operation."""
        return outcome(lambda: self._delete(snapshot_id))

    def _delete(self, snapshot_id: str) -> Outcome:
        check_id(snapshot_id)
        with self._lock:
            pending = self._pending.get(snapshot_id)
        followed = None if pending is None else self._follow(snapshot_id, pending)
        return followed or self._begin(snapshot_id)

    def _begin(self, snapshot_id: str) -> Outcome:
        what = f"deleting snapshot {snapshot_id}"
        clients = self._clients(what)
        with translated(read_fault, ERRORS, what=what):
            operation = clients.snapshots.delete_unary(
                project=clients.project, snapshot=snapshot_id, retry=None, timeout=self._timeout
            )
        name = operation.name if OPERATION_NAME.fullmatch(operation.name) else ""  # it becomes part of a URL
        return self._settle(snapshot_id, Operation(name, self._clock()), operation)

    def _follow(self, snapshot_id: str, pending: Operation) -> Outcome | None:
        """Ask the operation once. None: it is not known any more, so the delete has to be asked for again."""
        what = f"following operation {pending.name} that deletes snapshot {snapshot_id}"
        clients = self._clients(what)
        try:
            with native():
                operation = clients.operations.get(
                    project=clients.project, operation=pending.name, retry=None, timeout=self._timeout
                )
        except Exception as error:
            fault = read_fault(error)
            if fault.status == NOT_FOUND:
                self._forget(snapshot_id)
                return None
            raise build_error(fault, ERRORS, what=what) from error
        return self._settle(snapshot_id, pending, operation)

    def _settle(self, snapshot_id: str, pending: Operation, operation: compute_v1.Operation) -> Outcome:
        """Read what an operation came to; only its status ``DONE`` without an error is done."""
        what = f"deleting snapshot {snapshot_id}, operation {pending.name or 'without a name'}"
        fault = operation_fault(operation)
        if fault or operation.status.name == "DONE" or not pending.name:
            self._forget(snapshot_id)
        if fault:
            raise build_error(fault, ERRORS, what=what)
        if not pending.name:
            raise UnknownError(f"{what}: Compute Engine answered 200 without an operation")
        if operation.status.name == "DONE":
            return Done()
        return self._wait(snapshot_id, pending, what)

    def _wait(self, snapshot_id: str, pending: Operation, what: str) -> Outcome:
        if self._clock() - pending.begun > self._deadline.total_seconds():
            self._forget(snapshot_id)
            return Retryable(message=f"{what} has not ended within {self._deadline}; asked for again")
        with self._lock:
            self._pending[snapshot_id] = pending
        return Pending(after=POLL, message=f"{what} is running")

    def _forget(self, snapshot_id: str) -> None:
        with self._lock:
            self._pending.pop(snapshot_id, None)

    def get(self, snapshot_id: str) -> SnapshotInfo:
        """Read one snapshot. Raises ``NotFoundError`` among others."""
        what = f"reading snapshot {snapshot_id}"
        check_id(snapshot_id)
        clients = self._clients(what)
        with translated(read_fault, ERRORS, what=what):
            found = clients.snapshots.get(
                project=clients.project, snapshot=snapshot_id, retry=None, timeout=self._timeout
            )
            if found.name != snapshot_id:
                told = found.name if SNAPSHOT_NAME.fullmatch(found.name) else "no snapshot"
                raise UnknownError(f"{what}: Compute Engine answered 200, but with {told}")
            return read_snapshot(found)

    def list(self, tag: str, value: str = "") -> Iterator[SnapshotInfo]:
        """List the project's snapshots with a tag (or label) of that name, in order of id.

        All pages are read before the first one is given; a page that says that it is not complete is
        ``UnavailableError``. With ``value``, one listing serves all who ask within a minute.
        """
        if not value:
            yield from self._listed(tag)
            return
        ids = self._shared.ids(tag, value, partial(self._listed, tag))
        yield from (SnapshotInfo(PROVIDER, snapshot, {tag: value}) for snapshot in ids)

    def _listed(self, tag: str) -> Sequence[SnapshotInfo]:
        what = f"listing snapshots with tag {tag}"
        clients = self._clients(what)
        with translated(read_fault, ERRORS, what=what):
            request = {"project": clients.project, "max_results": PAGE}
            pages = clients.snapshots.list(request=request, retry=None, timeout=self._timeout).pages
            read = ((map(read_snapshot, _complete(page, what).items), page.next_page_token) for page in pages)
            return tagged(read, tag, what=what)

    def _clients(self, what: str) -> Clients:
        with self._lock, translated(read_fault, ERRORS, what=what):
            if self._made is None:
                self._made = self._connect()
            return self._made


NOT_FOUND = 404
HARMLESS = {"", "NO_RESULTS_ON_PAGE"}


def check_id(snapshot_id: str) -> None:
    """Raise ``InvalidError`` for what is no name of a snapshot, before it gets into a URL."""
    if not SNAPSHOT_NAME.fullmatch(snapshot_id):
        raise InvalidError(
            f"{snapshot_id!r} is not the name of a disk snapshot: 1 to 63 of a-z, 0-9 and -, a letter first"
        )


def read_snapshot(item: compute_v1.Snapshot) -> SnapshotInfo:
    """Read one snapshot; the size is that of the disk.

    Velero writes its tags as JSON into the description, beside those of the disk (source: velero-plugin-for-gcp,
    ``getSnapshotTags``); labels count as well.
    """
    return SnapshotInfo(
        provider=PROVIDER,
        id=item.name,
        tags={**dict(item.labels), **read_tags(item.description)},
        created=parse_instant(item.creation_timestamp),
        size=item.disk_size_gb * GIB if item.disk_size_gb else None,
    )


def read_tags(description: str) -> dict[str, str]:
    """Read the tags in a description; one that a person wrote has none."""
    try:
        document = json.loads(description)
    except (ValueError, RecursionError):
        return {}
    pairs = document.items() if isinstance(document, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}


def operation_fault(operation: compute_v1.Operation) -> Fault | None:
    """What an operation says went wrong, None where it says nothing."""
    status = operation.http_error_status_code
    if not operation.error.errors and not status:
        return None
    first = operation.error.errors[0] if operation.error.errors else None
    message = first.message if first and first.message else operation.http_error_message
    return Fault(classes=("Operation",), status=status, code=first.code if first else "", message=message)


def read_fault(error: Exception) -> Fault:
    """Read an exception of google.api_core, google.auth or requests.

    The reason is the first error's, else the ErrorInfo's.

    The exception's own message starts with the URL of the call, which names the snapshot whatever is missing: where the
    API said something, only that counts.
    """
    response, names = getattr(error, "response", None), class_names(error)
    said = _error_document(response)
    details = getattr(error, "errors", None)
    first: Mapping[str, Any] = (
        details[0] if isinstance(details, list) and details and isinstance(details[0], dict) else {}
    )
    reason = first.get("reason") or getattr(error, "reason", None)
    retryable = "retryable" if getattr(error, "retryable", False) else ""
    status = getattr(error, "code", None)
    if said is None:  # no answer, or none that this exception keeps
        message = str(error) if _in_its_own_words(error) else ""
    else:
        message = str((first or said).get("message") or "")
    return Fault(
        classes=names,
        status=int(status) if isinstance(status, int) else 0,
        code=reason if isinstance(reason, str) else retryable,
        message=message,
        after=pause((getattr(response, "headers", None) or {}).get("Retry-After")),
        foreign=said == {} and bool(response.content.strip()) if response is not None else "ParseError" in names,
    )


def _error_document(response: Any) -> Mapping[str, Any] | None:
    """The API's error in an answer: ``{"error": {"code": 404, "message": …}}``; empty where it is something else."""
    if response is None:
        return None
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return {}
    found = document.get("error") if isinstance(document, dict) else None
    return found if isinstance(found, dict) and isinstance(found.get("code"), int) else {}


def _in_its_own_words(error: Exception) -> bool:
    """Whether an exception's text is of the connection, or the token server's of a known shape.

    The others quote whatever they were answered with.
    """
    module = type(error).__module__
    if module.startswith(("google.auth", "google.oauth2")):
        return TOKEN_ERROR.fullmatch(str(error.args[0] if error.args else "")) is not None
    return module.startswith("requests") or isinstance(error, NativePanicError)


TOKEN_ERROR = re.compile(r"[a-z_]{1,40}(?:: [ -~]{0,200})?", re.ASCII)
"""What the token server says: ``invalid_grant: …``."""


def credentials_from(key: GoogleKey, *, scope: str) -> Any:
    """Make the SDK's credential of a Secret's; nothing is called. Raises ``InvalidError`` where the key is none."""
    try:
        with native():
            return _credentials(key, scope)
    except ImportError as error:
        raise not_installed(PROVIDER) from error
    except Exception as error:  # google-auth says a ValueError, its library for keys anything; their texts may quote it
        kind = "key of a service account" if isinstance(key, ServiceAccount) else "credential"
        raise InvalidError(f"the credential's Secret holds a {kind} that cannot be used") from error


def _credentials(key: GoogleKey, scope: str) -> Any:
    """By values, and with Google's own addresses alone."""
    from google.auth import identity_pool
    from google.oauth2 import credentials, service_account

    made: Any
    match key:
        case ServiceAccount(email, private_key, private_key_id, project):
            made = service_account.Credentials
            info = {"client_email": email, "private_key": private_key, "private_key_id": private_key_id}
            known = {**info, "project_id": project, "token_uri": TOKEN_URI}
            return made.from_service_account_info(known, scopes=[scope], always_use_jwt_access=True)
        case User(client_id, client_secret, refresh_token, quota_project):
            made = credentials.Credentials
            return made(
                None,
                refresh_token=refresh_token,
                token_uri=TOKEN_URI,
                client_id=client_id,
                client_secret=client_secret,
                scopes=[scope],
                quota_project_id=quota_project or None,
            )
        case Federation(audience, token_type, file, name, account):
            made = identity_pool.Credentials
            form = {"format": {"type": "json", "subject_token_field_name": name}} if name else {}
            return made(
                audience,
                token_type,
                token_url=STS_URL,
                credential_source={"file": file, **form},
                service_account_impersonation_url=IMPERSONATION.format(account) if account else None,
                scopes=[scope],
            )
        case _:
            assert_never(key)


IMPERSONATION = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{}:generateAccessToken"


def _connect(known: Any, *, project: str, endpoint: str, what: str) -> Clients:
    try:
        import google.auth
        from google.cloud import compute_v1
    except ImportError as error:
        raise not_installed(PROVIDER) from error

    credentials, found = (known, "") if known is not None else google.auth.default(scopes=[SCOPE])
    if not (project or found):
        raise InvalidError(f"{what}: spec.config.project is missing, and the credential names no project")
    options = {"api_endpoint": endpoint} if endpoint else {}
    snapshots = compute_v1.SnapshotsClient(credentials=credentials, client_options=options)
    operations = compute_v1.GlobalOperationsClient(credentials=credentials, client_options=options)
    for client in (snapshots, operations):
        _settle_session(client.transport)
    return Clients(project or found or "", snapshots, operations)


def _settle_session(transport: Any) -> None:
    """Bound what is read, and let no answer lead anywhere.

    The SDK's session follows redirects, and so does the one that renews its token.
    """
    session: Any = getattr(transport, "_session", None)
    if session is None:
        return
    bound_requests(session, connections=CONNECTIONS)
    pin(session, url=transport.host if "://" in transport.host else f"https://{transport.host}")
    for each in (session, getattr(session, "_auth_request_session", None)):
        if each is not None:
            each.max_redirects = 0


def _complete(page: compute_v1.SnapshotList, what: str) -> compute_v1.SnapshotList:
    """Refuse a page that says that something is missing from it: an absent snapshot would look deleted."""
    warning: Any = page.warning
    if str(warning.code) not in HARMLESS:
        said = words(f"{warning.code}: {warning.message}")
        raise UnavailableError(f"{what}: the list is not complete: {said}")
    return page
