"""Managed-disk snapshots on Azure, through azure-mgmt-compute.

Delete, get, list by tag, and the table of what ARM and the SDK say.

An id is the full resource id, as Velero records it. A delete asks for the snapshot first, since ARM answers 204 for one
that was never there; then it is accepted with 202, and each later ``delete`` asks that operation once, without waiting.

Guarantee: "gone" is only said for a 404 whose code is about the snapshot, or for an operation that says that it
succeeded; an operation that failed answers with HTTP 200, and its inner error is what counts. One that does not end
within the location's ``apiTimeout`` is given up as ``Retryable``, so that an attempt is counted. Not guaranteed: that
an operation is followed over a restart. It is asked for again then, which is safe.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from reprieve.adapters.cloud.answers import bound_requests, pin
from reprieve.adapters.cloud.known import remember
from reprieve.adapters.cloud.listing import Shared, tagged
from reprieve.adapters.cloud.secret_azure import read_secret, read_values
from reprieve.adapters.cloud.secret_text import check_config
from reprieve.adapters.cloud.tables import (
    NATIVE_PANIC,
    Fault,
    Rule,
    Table,
    build_error,
    class_names,
    not_installed,
    outcome,
    pause,
    translated,
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
from reprieve.core.outcomes import AlreadyGone, Done, Outcome, Pending, Retryable
from reprieve.core.ports import SnapshotInfo
from reprieve.core.values import cut

if TYPE_CHECKING:
    from azure.core.rest import HttpResponse
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import Snapshot

PROVIDER = "azure"
TIMEOUT = timedelta(seconds=30)
CONNECT_TIMEOUT = timedelta(seconds=10)
API_TIMEOUT = "2m"  # the default of Velero's plugin
POLL = timedelta(seconds=2)
CONNECTIONS = 64

SUBSCRIPTION = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
GROUP = r"[-\w.()]{0,89}[-\w()]"
SNAPSHOT_ID = re.compile(
    rf"/subscriptions/(?P<subscription>{SUBSCRIPTION})/resourceGroups/(?P<group>{GROUP})"
    r"/providers/Microsoft\.Compute/snapshots/(?P<name>[A-Za-z0-9_][-A-Za-z0-9_.]{0,79})",
    re.IGNORECASE | re.ASCII,
)

ERRORS: Table = (
    Rule(ContainerMissingError, codes=("ResourceGroupNotFound", "SubscriptionNotFound", "TenantNotFound")),
    Rule(NotFoundError, codes=("ResourceNotFound",), why="also inside an operation; a 404 alone is not enough"),
    Rule(NotFoundError, statuses=(404,), codes=("NotFound",), words="snapshot", why="when it names a snapshot"),
    Rule(ThrottledError, statuses=(429,), why="with Retry-After"),
    Rule(
        ThrottledError,
        codes=("TooManyRequests", "SubscriptionRequestsThrottled", r"\w*RateLimit\w*", "ThrottlingError"),
    ),
    Rule(LockedError, codes=("ScopeLocked", "RequestDisallowedByPolicy"), why="a management lock, or a policy"),
    Rule(
        InUseError,
        codes=("OperationNotAllowed", "SnapshotInUse", "ResourceInUse", "InUse\\w*"),
        why="also inside an operation: an active shared access signature, a copy that runs",
    ),
    Rule(
        DeniedError,
        codes=(
            "AuthorizationFailed",
            "LinkedAuthorizationFailed",
            "InvalidAuthenticationToken\\w*",
            "ExpiredAuthenticationToken",
            "AuthenticationFailed\\w*",
            "ReadOnlyDisabledSubscription",
            "DisallowedOperation",
        ),
    ),
    Rule(
        DeniedError,
        exceptions=("ClientAuthenticationError", "CredentialUnavailableError"),
        why="no credential, or an expired or revoked one",
    ),
    Rule(DeniedError, statuses=(401, 403)),
    Rule(
        UnavailableError,
        codes=("Internal\\w*Error", "ServerTimeout", "GatewayTimeout", "ServiceUnavailable", "ServerBusy"),
        why="also inside an operation",
    ),
    Rule(
        ConflictError,
        codes=("PreconditionFailed", "Conflict\\w*", "AnotherOperationInProgress", "ResourceGroupBeingDeleted"),
    ),
    Rule(ConflictError, statuses=(409, 412)),
    Rule(
        InvalidError,
        codes=("Invalid\\w*", "BadRequest", "MissingApiVersionParameter", "NoRegisteredProviderFound"),
    ),
    Rule(InvalidError, statuses=(400,)),
    Rule(UnavailableError, statuses=(408, 500, 502, 503, 504)),
    Rule(
        UnavailableError,
        exceptions=("ServiceRequestError", "ServiceResponseError", "IncompleteReadError"),
        why="refused, no such host, TLS, time-out, cut off",
    ),
)
"""What ARM and its SDK say, and what it means.

Sources: ARM's list of common errors, azure.core's exceptions, runs against both.
"""


@frozen
class SnapshotPath:
    """A snapshot's full resource id, in its parts."""

    subscription: str
    group: str
    name: str


@frozen
class Operation:
    """A delete that was accepted.

    ``url`` tells its state, empty where ARM gave none; ``own_state``: the answer's body is that state.
    """

    url: str
    own_state: bool
    begun: float


@frozen
class Account:
    """Where and as whom to work. ``values`` are those of the credential's file, or of the environment."""

    location: str
    subscription: str
    group: str
    api_timeout: timedelta
    values: Mapping[str, str] = field(repr=False)
    from_secret: bool


class AzureSnapshots:
    """Opens the snapshots of a location: ``config.subscriptionId``, ``config.resourceGroup`` and ``config.apiTimeout``.

    What is absent comes from the credential's file, else from the environment. ``endpoint`` and
    ``authentication_policy`` are for stand-ins; ``clock`` gives seconds that only grow.
    """

    provider = PROVIDER

    def __init__(
        self,
        *,
        endpoint: str = "",
        authentication_policy: Any = None,
        timeout: timedelta = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the longest wait for one answer; nothing is imported yet."""
        self._endpoint = endpoint
        self._policy = authentication_policy
        self._timeout = timeout
        self._clock = clock

    def open(self, location: SnapshotLocation, *, credential: bytes | None = None) -> AzureSnapshotStore:
        """Open a location with the bytes of a file of ``AZURE_…=`` lines, or with the default chain. Makes no call.

        Raises ``InvalidError`` for an ``apiTimeout``, a cloud or a credential that cannot be used.
        """
        account = read_account(location, credential)
        arm_cloud(account.values)
        check_identity(account)

        def connect(subscription: str) -> ComputeManagementClient:
            return _connect(account, subscription, endpoint=self._endpoint, policy=self._policy, timeout=self._timeout)

        return AzureSnapshotStore(account, connect, clock=self._clock)


class AzureSnapshotStore:
    """The snapshots of one location. Safe for threads."""

    def __init__(
        self, account: Account, connect: Callable[[str], ComputeManagementClient], *, clock: Callable[[], float]
    ) -> None:
        """Keep how to connect; a client, and with it the credential, is made by the first call."""
        self._account = account
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._clients: dict[str, ComputeManagementClient] = {}
        self._pending: dict[str, Operation] = {}
        self._shared = Shared(clock)

    def delete(self, snapshot_id: str) -> Outcome:
        """Begin to delete one snapshot, or follow the operation that was begun before. Never waits for an operation."""
        return outcome(lambda: self._delete(snapshot_id))

    def _delete(self, snapshot_id: str) -> Outcome:
        path = self._path(snapshot_id)
        with self._lock:
            pending = self._pending.get(snapshot_id)
        followed = None if pending is None else self._follow(snapshot_id, path, pending)
        return followed or self._begin(snapshot_id, path)

    def _begin(self, snapshot_id: str, path: SnapshotPath) -> Outcome:
        what = f"deleting snapshot {path.name}"
        client = self._client(path.subscription, what)
        with translated(read_fault, ERRORS, what=what):
            _look(client, path)
            poller: Any = client.snapshots.begin_delete(
                path.group, path.name, polling=False, cls=lambda response, *_: response.http_response
            )
            answer: HttpResponse = poller.result()
        if answer.status_code == NO_CONTENT:
            return AlreadyGone()
        return self._accept(snapshot_id, answer, what)

    def _accept(self, snapshot_id: str, answer: HttpResponse, what: str) -> Outcome:
        """Keep the operation of an accepted delete; a 200 is believed as well only once it has been confirmed."""
        if not is_document(answer):
            raise UnknownError(f"{what}: ARM answered {answer.status_code} with something that is no JSON")
        if fault := operation_fault(answer):
            raise build_error(fault, ERRORS, what=what)
        own = answer.headers.get("Azure-AsyncOperation") or answer.headers.get("Operation-Location") or ""
        operation = Operation(own or answer.headers.get("Location") or "", bool(own), self._clock())
        with self._lock:
            self._pending[snapshot_id] = operation
        return Pending(after=pause(answer.headers.get("Retry-After")) or POLL, message=f"{what} is running")

    def _follow(self, snapshot_id: str, path: SnapshotPath, pending: Operation) -> Outcome | None:
        """Ask once how far a delete has come. None: nobody knows it any more, so it has to be asked for again."""
        what = f"deleting snapshot {path.name}"
        if not pending.url:
            return self._confirm(snapshot_id, path, pending, what)
        client = self._client(path.subscription, what)
        with translated(read_fault, ERRORS, what=f"following the operation of {what}"):
            from azure.core.rest import HttpRequest

            answer = client.send_request(HttpRequest("GET", pending.url))
            if answer.status_code == NOT_FOUND:
                self._forget(snapshot_id)
                return None
            _raise_for(answer)
        return self._read_state(snapshot_id, pending, answer, what)

    def _read_state(self, snapshot_id: str, pending: Operation, answer: HttpResponse, what: str) -> Outcome:
        state = operation_state(answer, own_state=pending.own_state)
        if state == "":
            raise UnknownError(f"{what}: ARM answered {answer.status_code}, but not with the state of an operation")
        if state not in ENDED:
            return self._wait(snapshot_id, pending, answer, what)
        self._forget(snapshot_id)
        if state == SUCCEEDED:
            return Done()
        raise build_error(operation_fault(answer) or Fault(code=state), ERRORS, what=f"{what}: operation {state}")

    def _confirm(self, snapshot_id: str, path: SnapshotPath, pending: Operation, what: str) -> Outcome:
        """ARM gave no operation to follow: the delete is done when the snapshot is not found any more."""
        client = self._client(path.subscription, what)
        try:
            with translated(read_fault, ERRORS, what=what):
                _look(client, path)
        except NotFoundError:
            self._forget(snapshot_id)
            return Done()
        return self._wait(snapshot_id, pending, None, what)

    def _wait(self, snapshot_id: str, pending: Operation, answer: HttpResponse | None, what: str) -> Outcome:
        if self._clock() - pending.begun > self._account.api_timeout.total_seconds():
            self._forget(snapshot_id)
            return Retryable(
                message=f"{what} has not ended within apiTimeout {self._account.api_timeout}; asked for again"
            )
        after = pause(answer.headers.get("Retry-After")) if answer is not None else POLL
        return Pending(after=after or POLL, message=f"{what} is running")

    def _forget(self, snapshot_id: str) -> None:
        with self._lock:
            self._pending.pop(snapshot_id, None)

    def get(self, snapshot_id: str) -> SnapshotInfo:
        """Read one snapshot. Raises ``NotFoundError`` among others."""
        path = self._path(snapshot_id)
        what = f"reading snapshot {path.name}"
        client = self._client(path.subscription, what)
        with translated(read_fault, ERRORS, what=what):
            return _look(client, path)

    def list(self, tag: str, value: str = "") -> Iterator[SnapshotInfo]:
        """List the snapshots with a tag, in order of id: the resource group's, without one the subscription's.

        Azure's tag names have no slashes and no case; the tag is given under the name that was asked for. All pages are
        read before the first snapshot is given. With ``value``, one listing serves all who ask within a minute.
        """
        if not value:
            yield from self._listed(tag)
            return
        ids = self._shared.ids(tag, value, partial(self._listed, tag))
        yield from (SnapshotInfo(PROVIDER, snapshot, {tag: value}) for snapshot in ids)

    def _listed(self, tag: str) -> Sequence[SnapshotInfo]:
        what = f"listing snapshots with tag {tag}"
        if not self._account.subscription:
            raise InvalidError(f"{what}: {self._account.location} names no subscriptionId, neither does its credential")
        client = self._client(self._account.subscription, what)
        with translated(read_fault, ERRORS, what=what):
            group = self._account.group
            found = client.snapshots.list_by_resource_group(group) if group else client.snapshots.list()
            pages: Any = found.by_page()
            read = ((map(partial(read_snapshot, tag=tag), page), pages.continuation_token or "") for page in pages)
            return tagged(read, tag, what=what)

    def _path(self, snapshot_id: str) -> SnapshotPath:
        """Parse an id. One of another subscription than the location's is refused.

        Its credential is not meant for it.
        """
        path = parse_id(snapshot_id)
        ours = self._account.subscription
        if ours and path.subscription.lower() != ours.lower():
            raise InvalidError(
                f"snapshot {path.name} is in subscription {path.subscription}, {self._account.location} is for {ours}"
            )
        return path

    def _client(self, subscription: str, what: str) -> ComputeManagementClient:
        with self._lock, translated(read_fault, ERRORS, what=what):
            if subscription not in self._clients:
                self._clients[subscription] = self._connect(subscription)
            return self._clients[subscription]


NO_CONTENT, NOT_FOUND, ACCEPTED, FAILURE = 204, 404, 202, 400
SUCCEEDED = "Succeeded"
ENDED = {SUCCEEDED, "Failed", "Canceled"}


def parse_id(snapshot_id: str) -> SnapshotPath:
    """Parse a full resource id strictly: nothing before, after or between its parts. Raises ``InvalidError``."""
    found = SNAPSHOT_ID.fullmatch(snapshot_id)
    if found is None:
        raise InvalidError(
            f"{snapshot_id[:200]!r} is not the id of a snapshot: "
            "/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/snapshots/NAME"
        )
    return SnapshotPath(**found.groupdict())


def read_snapshot(item: Snapshot, *, tag: str = "") -> SnapshotInfo:
    """Read one snapshot; ``tag`` is the name that Azure's spelling of it is given back under.

    The size is that of the disk.
    """
    if not item.id:
        raise UnknownError("ARM answered 200, but not with a snapshot")
    created = item.time_created
    return SnapshotInfo(
        provider=PROVIDER,
        id=item.id,
        tags=read_tags(item.tags or {}, tag),
        created=None if created is None else created.astimezone(UTC),
        size=item.disk_size_bytes,
    )


def read_tags(tags: Mapping[str, str], asked: str) -> dict[str, str]:
    """Undo Azure's spelling of the tag that was asked for.

    Velero writes ``velero.io-backup`` for ``velero.io/backup``.
    """
    spelled = asked.replace("/", "-").lower()
    return {asked if key.lower() == spelled else key: value or "" for key, value in tags.items()}


def _look(client: ComputeManagementClient, path: SnapshotPath) -> SnapshotInfo:
    item = client.snapshots.get(path.group, path.name)
    if (item.id or "").rpartition("/")[2].lower() != path.name.lower():
        told = item.id if item.id and SNAPSHOT_ID.fullmatch(item.id) else "no snapshot"
        raise UnknownError(f"ARM was asked for snapshot {path.name} and answered 200, but with {told}")
    return read_snapshot(item)


def is_document(answer: HttpResponse) -> bool:
    """Whether an answer is empty, or JSON."""
    try:
        return not answer.text().strip() or isinstance(answer.json(), dict)
    except ValueError:
        return False


def operation_state(answer: HttpResponse, *, own_state: bool) -> str:
    """The state of an operation.

    The body's where the URL is the operation's own, else the HTTP status says it. Empty: neither.
    """
    if not own_state:
        return "Running" if answer.status_code == ACCEPTED else SUCCEEDED if is_document(answer) else ""
    try:
        document = answer.json()
    except ValueError:
        return ""
    state = document.get("status") if isinstance(document, dict) else None
    return state if isinstance(state, str) else ""


def operation_fault(answer: HttpResponse) -> Fault | None:
    """What an answer with HTTP 200 says went wrong, None where it says nothing.

    The status itself means nothing then.
    """
    document = answer.json() if answer.text().strip() else {}
    error = document.get("error")
    if not isinstance(error, dict):
        return None
    return Fault(classes=("Operation",), code=str(error.get("code") or ""), message=str(error.get("message") or ""))


def read_fault(error: Exception) -> Fault:
    """Read an exception of azure.core or azure.identity; code and message are those of ARM's error document.

    Of an answer that is none, and of what token servers said, nothing is told that has not their form.
    """
    said, response = getattr(error, "error", None), getattr(error, "response", None)
    headers = getattr(response, "headers", None) or {}
    status = getattr(error, "status_code", None)
    code = str(getattr(said, "code", None) or "")
    names = class_names(error)
    token = _TOKEN_ERROR.search(cut(error, limit=4096)) if "ClientAuthenticationError" in names else None
    if code or response is not None:
        message = str(getattr(said, "message", None) or "") if code else ""
    else:
        message = _own_words(error, names)
    return Fault(
        classes=names,
        status=status if isinstance(status, int) else 0,
        code=code or (token["code"] if token else ""),
        message=token["text"] if token and not code else message,
        after=pause(headers.get("Retry-After")),
        foreign=response is not None and not (code or token) and _has_body(response),
    )


OWN_WORDS = frozenset({"ServiceRequestError", "ServiceResponseError", "IncompleteReadError", NATIVE_PANIC})
IDENTITY_FAILED = frozenset({"ClientAuthenticationError", "CredentialUnavailableError"})

_TOKEN_ERROR = re.compile(r"(?P<code>AADSTS[0-9]{4,8}): (?P<text>[ -~]{0,300})", re.ASCII)


def _own_words(error: Exception, names: Sequence[str]) -> str:
    """The first line of what the SDK says by itself, of the connection or of an identity; others quote their answer.

    Nothing of a line that has a document in it.
    """
    line = cut(error, limit=4096).split("\n", 1)[0].strip()
    if OWN_WORDS & set(names):
        return line
    return line if IDENTITY_FAILED & set(names) and not set("{<[") & set(line) else ""


def _has_body(response: Any) -> bool:
    try:
        return bool(response.text().strip())
    except Exception:  # noqa: BLE001 (an answer that cannot be read is none of ARM's)
        return True


def _raise_for(answer: HttpResponse) -> None:
    if answer.status_code >= FAILURE:
        from azure.core.exceptions import HttpResponseError
        from azure.mgmt.core.exceptions import ARMErrorFormat

        raise HttpResponseError(response=answer, error_format=ARMErrorFormat)


def read_account(location: SnapshotLocation, credential: bytes | None) -> Account:
    """Gather a location's configuration and the values of its credential. Raises ``InvalidError``."""
    what = f"snapshot location {location.name}"
    check_config(location.config, what=what)
    values = _environment() if credential is None else read_secret(credential)
    subscription = location.config.get("subscriptionId") or values.get("AZURE_SUBSCRIPTION_ID", "")
    if subscription and not re.fullmatch(SUBSCRIPTION, subscription, re.IGNORECASE | re.ASCII):
        raise InvalidError(f"{what}: subscriptionId {subscription[:200]!r} is not the id of a subscription")
    group = location.config.get("resourceGroup") or values.get("AZURE_RESOURCE_GROUP", "")
    if group and not re.fullmatch(GROUP, group, re.ASCII):
        raise InvalidError(f"{what}: resourceGroup {group[:200]!r} is not the name of a resource group")
    return Account(
        location=what,
        subscription=subscription,
        group=group,
        api_timeout=read_duration(location.config.get("apiTimeout") or API_TIMEOUT, what),
        values=values,
        from_secret=credential is not None,
    )


def _environment() -> Mapping[str, str]:
    """The environment's values; as in Velero's plugin, those of the file ``AZURE_CREDENTIALS_FILE`` go before them."""
    own = {key: value for key, value in os.environ.items() if key.startswith("AZURE_")}
    file = own.get("AZURE_CREDENTIALS_FILE")
    if not file:
        return own
    try:
        return own | read_values(Path(file).read_bytes())
    except OSError as error:
        raise InvalidError(f"AZURE_CREDENTIALS_FILE {file} cannot be read: {error.strerror}") from error


UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def read_duration(text: str, what: str) -> timedelta:
    """Read a duration as Go writes it, like ``2m`` or ``1h30m``.

    Raises ``InvalidError`` for anything else, nothing and zero included.
    """
    parts = re.findall(r"(\d{1,19}(?:\.\d{1,19})?)(ms|[hms])", text[:100])
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not seconds:
        raise InvalidError(f"{what}: apiTimeout {text!r} is not a duration like 2m or 1h30m")
    return timedelta(seconds=seconds)


CLOUDS = {
    "azurecloud": ("AZURE_PUBLIC_CLOUD", "login.microsoftonline.com"),
    "azurepubliccloud": ("AZURE_PUBLIC_CLOUD", "login.microsoftonline.com"),
    "azureusgovernment": ("AZURE_US_GOVERNMENT", "login.microsoftonline.us"),
    "azureusgovernmentcloud": ("AZURE_US_GOVERNMENT", "login.microsoftonline.us"),
    "azurechinacloud": ("AZURE_CHINA_CLOUD", "login.chinacloudapi.cn"),
}
"""Names of ``AZURE_CLOUD_NAME`` without case (source.

Velero's Azure plugin), azure.core's name for the cloud, its token server.
"""


def arm_cloud(values: Mapping[str, str]) -> tuple[str, str]:
    """The cloud of ``AZURE_CLOUD_NAME``, the public one without. Raises ``InvalidError``."""
    name = values.get("AZURE_CLOUD_NAME") or "AzurePublicCloud"
    if name.lower() not in CLOUDS:
        raise InvalidError(
            f"AZURE_CLOUD_NAME {name!r} is none of AzurePublicCloud, AzureUSGovernmentCloud, AzureChinaCloud"
        )
    return CLOUDS[name.lower()]


IDENTITY = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID")
OWN_SECRETS = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH")
SECRETS = (*OWN_SECRETS, "AZURE_FEDERATED_TOKEN_FILE")  # the last one is a token of this process' own


def check_identity(account: Account) -> None:
    """Refuse half an identity in a Secret; one without any is Velero's way to say "use the pod's own"."""
    if not account.from_secret or not any(account.values.get(key) for key in SECRETS):
        return
    missing = [key for key in IDENTITY if not account.values.get(key)]
    if missing:
        raise InvalidError(f"{account.location}: the credential's Secret has no {' and no '.join(missing)}")


def _connect(
    account: Account, subscription: str, *, endpoint: str, policy: Any, timeout: timedelta
) -> ComputeManagementClient:
    try:
        from azure.core import AzureClouds
        from azure.core.pipeline.transport import RequestsTransport
        from azure.mgmt.compute import ComputeManagementClient
    except ImportError as error:
        raise not_installed(PROVIDER) from error

    seconds = timeout.total_seconds()
    # A transport of one's own does not hear of the client's time-outs, which would be 300 s.
    transport = RequestsTransport(
        connection_timeout=min(seconds, CONNECT_TIMEOUT.total_seconds()), read_timeout=seconds
    )
    transport.open()
    bound_requests(transport.session, connections=CONNECTIONS)
    client = ComputeManagementClient(
        _credential(account),
        subscription,
        **({"base_url": endpoint} if endpoint else {}),
        **({"authentication_policy": policy} if policy is not None else {}),
        cloud_setting=AzureClouds[arm_cloud(account.values)[0]],
        transport=transport,
        retry_total=0,
        permit_redirects=False,
    )
    # Pages and operations are followed by URLs out of answers: not to anywhere else, and not with a token.
    pin(transport.session, url=client._config.base_url)  # noqa: SLF001 (the SDK keeps it nowhere else)
    return client


def _credential(account: Account) -> Any:
    """The identity of the Secret's file; of a file that names none, and of no Secret, the SDK's default chain."""
    from azure import identity

    values, authority = account.values, arm_cloud(account.values)[1]
    remember(values.get("AZURE_CLIENT_SECRET"))
    who: dict[str, Any] = {"tenant_id": values.get(IDENTITY[0]), "client_id": values.get(IDENTITY[1])}
    options: dict[str, Any] = {"authority": authority, "retry_total": 0, "permit_redirects": False}
    if not account.from_secret and not values.get("AZURE_CREDENTIALS_FILE"):
        return identity.DefaultAzureCredential(**options)
    if secret := values.get("AZURE_CLIENT_SECRET"):
        return identity.ClientSecretCredential(**who, client_secret=secret, **options)
    if certificate := values.get("AZURE_CLIENT_CERTIFICATE_PATH"):
        return identity.CertificateCredential(**who, certificate_path=certificate, **options)
    if token := values.get("AZURE_FEDERATED_TOKEN_FILE"):
        return identity.WorkloadIdentityCredential(**who, token_file_path=token, **options)
    return identity.DefaultAzureCredential(managed_identity_client_id=who["client_id"], **options)
