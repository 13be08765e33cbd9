"""EBS snapshots on AWS, through boto3: delete, get, list by tag, and the table of what EC2 and botocore say.

The SDK's own retries are off: retry is the core's. One client serves all threads of a location.

Guarantee: HTTP 200 counts as an answer only when its XML is the answer to the call that was made; an error page, a cut
answer or an error inside of a 200 is ``Unknown``, never done. A lock that refuses is told with its date, where the
credential may read it. Not guaranteed: that a snapshot of another region or account is told apart from one that is
gone: EC2 says ``InvalidSnapshot.NotFound`` for all of them. Core asks for the region before any call; the account is
the credential's.
"""

from __future__ import annotations

import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from datetime import UTC, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import evolve

from reprieve.adapters.budget import charge_xml, gather
from reprieve.adapters.cloud.answers import REFUSAL, limit_of
from reprieve.adapters.cloud.aws_sessions import TIMEOUT, check_profile, client_config, open_session
from reprieve.adapters.cloud.known import remember_sent
from reprieve.adapters.cloud.listing import tagged
from reprieve.adapters.cloud.secret_aws import read_profile
from reprieve.adapters.cloud.secret_text import check_config
from reprieve.adapters.cloud.tables import (
    NATIVE_PANIC,
    Fault,
    Rule,
    Table,
    build_error,
    class_names,
    error_for,
    native,
    outcome,
    pause,
    translated,
)
from reprieve.adapters.sizes import CHUNK
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import (
    ConflictError,
    ContainerMissingError,
    DeniedError,
    InUseError,
    InvalidError,
    LockedError,
    NotFoundError,
    ReprieveError,
    ThrottledError,
    UnavailableError,
    UnknownError,
)
from reprieve.core.outcomes import Outcome
from reprieve.core.ports import SnapshotInfo

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, SnapshotTypeDef

PROVIDER = "aws"
PAGE = 500  # with 50 tags on each snapshot still less than is read of an answer
GIB = 2**30

SNAPSHOT_ID = re.compile(r"snap-([0-9a-f]{8}|[0-9a-f]{17})")

ERRORS: Table = (
    Rule(NotFoundError, codes=(r"InvalidSnapshot\.NotFound",), why="HTTP 400, not 404"),
    Rule(ContainerMissingError, codes=("UnknownRegion",), why="no such host, for a region that the SDK does not know"),
    Rule(ContainerMissingError, exceptions=("UnknownEndpointError", "UnknownRegionError", "EndpointVariantError")),
    Rule(LockedError, codes=(r"\w*\.?\w*Locked",), why="a snapshot lock; its code is not documented"),
    Rule(
        LockedError,
        codes=(r"OperationNotPermitted", r"UnsupportedOperation", r"IncorrectState", r"InvalidSnapshot\.\w+"),
        words=r"\b(is|are|been) locked\b|\bsnapshot lock\b|\block (mode|duration|expir)",
        why="a snapshot lock, told by the message",
    ),
    Rule(InUseError, codes=(r"InvalidSnapshot\.InUse", "DependencyViolation"), why="an AMI, or fast snapshot restore"),
    Rule(
        DeniedError,
        codes=(
            "UnauthorizedOperation",
            "AccessDenied(Exception)?",
            "AuthFailure",
            "OperationNotPermitted",
            "InvalidClientTokenId",
            "UnrecognizedClientException",
            "SignatureDoesNotMatch",
            "IncompleteSignature",
            "MissingAuthenticationToken",
            "OptInRequired",
            "Blocked",
            "PendingVerification",
            "RegionDisabledException",
            "InvalidIdentityToken(Exception)?",
        ),
    ),
    Rule(DeniedError, codes=("ExpiredToken(Exception)?", "RequestExpired"), why="an expired token, or a wrong clock"),
    Rule(
        DeniedError,
        exceptions=(
            "NoCredentialsError",
            "PartialCredentialsError",
            "CredentialRetrievalError",
            "NoAuthTokenError",
            "TokenRetrievalError",
            "SSOError",
            "LoginError",
            "RefreshWithMFAUnsupportedError",
        ),
        why="no credential, or one that cannot be had",
    ),
    Rule(
        ThrottledError,
        codes=(
            "RequestLimitExceeded",
            "(EC2)?Thrott(ling|led)(Exception)?",
            "RequestThrottled(Exception)?",
            "TooManyRequests(Exception)?",
            "SlowDown",
            "BandwidthLimitExceeded",
            "PriorRequestNotComplete",
        ),
    ),
    Rule(ThrottledError, statuses=(429,)),
    Rule(ConflictError, codes=("IncorrectState", "IncorrectSnapshotState", "ConcurrentModification")),
    Rule(UnknownError, codes=("DryRunOperation",), why="'would have worked': nothing was done"),
    Rule(
        InvalidError,
        codes=(
            r"InvalidSnapshotID\.Malformed",
            r"InvalidParameter\w*",
            "MissingParameter",
            "UnknownParameter",
            "MalformedQueryString",
            "InvalidAction",
            "ValidationError",
        ),
    ),
    Rule(
        InvalidError,
        exceptions=(
            "ParamValidationError",
            "NoRegionError",
            "InvalidRegionError",
            "ProfileNotFound",
            "ConfigParseError",
            "ConfigNotFound",
            "InvalidConfigError",
            "InvalidEndpointConfigurationError",
            "InvalidProxiesConfigError",
        ),
        why="refused by the SDK before any call",
    ),
    Rule(
        UnavailableError,
        codes=("InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "RequestTimeout"),
    ),
    Rule(UnavailableError, statuses=(500, 502, 503, 504)),
    Rule(
        UnavailableError,
        exceptions=("ConnectionError", "HTTPClientError", "MetadataRetrievalError", "IncompleteReadError"),
        why="refused, no such host, TLS, time-out, cut off",
    ),
)
"""What EC2 and botocore say, and what it means.

Sources: EC2's list of error codes, botocore's exceptions, and runs against both.
"""


class AwsSnapshots:
    """Opens the EBS snapshots of a location.

    ``config.region``, the SDK's default where it is absent; ``config.profile`` names a profile of the Secret.

    ``endpoint`` is for stand-ins; without it ``AWS_ENDPOINT_URL_EC2`` and ``AWS_ENDPOINT_URL`` hold, as everywhere in
    the SDK.
    """

    provider = PROVIDER

    def __init__(self, *, endpoint: str = "", timeout: timedelta = TIMEOUT) -> None:
        """Take the endpoint and the longest wait for one answer; nothing is imported yet."""
        self._endpoint = endpoint
        self._timeout = timeout

    def open(self, location: SnapshotLocation, *, credential: bytes | None = None) -> AwsSnapshotStore:
        """Open a location with the bytes of a shared credentials file, or with the default chain. Makes no call.

        Raises ``InvalidError`` for a file, profile or region that cannot be used.
        """
        what = f"snapshot location {location.name}"
        check_config(location.config, what=what)
        name = location.config.get("profile", "")
        check_profile(name, secret=credential is not None, what=what)
        with translated(read_fault, ERRORS, what=what):
            profile = None if credential is None else read_profile(credential, name)
            check_region(location.region, what)
            session = open_session(profile, region=location.region)
            if not session.region_name:
                raise InvalidError(
                    f"{what}: spec.config.region is missing, and neither AWS_DEFAULT_REGION nor ~/.aws has one"
                )
            return AwsSnapshotStore(session, endpoint=self._endpoint, timeout=self._timeout)


class AwsSnapshotStore:
    """The EBS snapshots of one account and region. Safe for threads."""

    def __init__(self, session: boto3.Session, *, endpoint: str, timeout: timedelta) -> None:
        """Keep the session; the client, and with it the credential, is made by the first call."""
        self._session = session
        self._endpoint = endpoint
        self._timeout = timeout
        self._lock = threading.Lock()
        self._made: EC2Client | None = None

    def delete(self, snapshot_id: str) -> Outcome:
        """Delete one snapshot; EC2 is done when it answers. A refusal that may be a lock is looked up, for its date."""
        return outcome(lambda: self._delete(snapshot_id))

    def _delete(self, snapshot_id: str) -> None:
        what = f"deleting snapshot {snapshot_id}"
        check_id(snapshot_id)
        try:
            with native():
                self._call(what).delete_snapshot(SnapshotId=snapshot_id)
        except ReprieveError:
            raise
        except Exception as error:
            fault = self._with_lock(snapshot_id, self._read(error))
            raise build_error(fault, ERRORS, what=what) from error

    def get(self, snapshot_id: str) -> SnapshotInfo:
        """Read one snapshot. Raises ``NotFoundError`` among others."""
        what = f"reading snapshot {snapshot_id}"
        check_id(snapshot_id)
        with translated(self._read, ERRORS, what=what):
            found = self._call(what).describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"]
        if not found:
            raise NotFoundError(f"{what}: EC2 lists none of that id")
        return read_snapshot(found[0])

    def list(self, tag: str, value: str = "") -> Iterator[SnapshotInfo]:
        """List the account's own snapshots with a tag of that name (and of that value), in order of id.

        All pages are read before the first is given.
        """
        what = f"listing snapshots with tag {tag}{value and f'={value}'}"
        by_tag: FilterTypeDef = {"Name": "tag-key", "Values": [escape(tag)]}
        if value:
            by_tag = {"Name": f"tag:{tag}", "Values": [escape(value)]}
        with translated(self._read, ERRORS, what=what):
            pages = self._call(what).get_paginator("describe_snapshots")
            found = pages.paginate(
                OwnerIds=["self"],
                Filters=[by_tag],
                PaginationConfig={"PageSize": PAGE},
            )
            # Stand-ins match more than they should; EC2's filter has wildcards that we do not mean.
            read = ((map(read_snapshot, page["Snapshots"]), page.get("NextToken") or "") for page in found)
            snapshots = tagged(read, tag, what=what)
        yield from (snapshot for snapshot in snapshots if value in {"", snapshot.tags[tag]})

    def _call(self, what: str) -> EC2Client:
        """The client, made once: sessions are not safe for threads, clients are."""
        with self._lock, translated(self._read, ERRORS, what=what):
            if self._made is None:
                self._made = _client(self._session, endpoint=self._endpoint, timeout=self._timeout)
            return self._made

    def _read(self, error: Exception) -> Fault:
        """Read an exception. A host without an address, in a region that the SDK does not know, is a wrong region."""
        fault = read_fault(error)
        if "NameResolutionError" not in fault.classes or self._session.region_name in known_regions(self._session):
            return fault
        return evolve(fault, code="UnknownRegion")

    def _with_lock(self, snapshot_id: str, fault: Fault) -> Fault:
        """Ask for the lock behind a refusal that names one, or that names nothing we know.

        No answer changes nothing.
        """
        kind = error_for(fault, ERRORS)
        if kind is not LockedError and not (kind in {UnknownError, DeniedError} and fault.status == REFUSED):
            return fault
        try:
            with native():
                locks = self._call("").describe_locked_snapshots(SnapshotIds=[snapshot_id])["Snapshots"]
        except Exception:  # noqa: BLE001 (the refusal itself is what is reported; this was only for its date)
            return fault
        held = [lock for lock in locks if lock.get("LockState") not in {None, "expired"}]
        until = held[0].get("LockExpiresOn") if held else None
        return evolve(fault, code="SnapshotLocked", until=until and until.astimezone(UTC)) if held else fault


REFUSED = 400


REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def check_region(region: str, what: str) -> None:
    """Raise ``InvalidError`` for what is no region; it becomes part of a host."""
    if region and not REGION.fullmatch(region):
        raise InvalidError(f"{what}: spec.config.region {region[:200]!r} is not the name of a region")


def check_id(snapshot_id: str) -> None:
    """Raise ``InvalidError`` for what is no id of an EBS snapshot; not all that speaks EC2 says so by itself."""
    if not SNAPSHOT_ID.fullmatch(snapshot_id):
        raise InvalidError(f"{snapshot_id!r} is not the id of an EBS snapshot: snap- and 8 or 17 hexadecimal digits")


def read_snapshot(item: SnapshotTypeDef) -> SnapshotInfo:
    """Read one entry of DescribeSnapshots; the size is that of the volume, EC2 does not tell the snapshot's own."""
    size, started = item.get("VolumeSize"), item.get("StartTime")
    return SnapshotInfo(
        provider=PROVIDER,
        id=item["SnapshotId"],
        tags={tag["Key"]: tag.get("Value", "") for tag in item.get("Tags", [])},
        created=None if started is None else started.astimezone(UTC),
        size=None if size is None else size * GIB,
    )


OWN_WORDS = (
    "ConnectionError",
    "HTTPClientError",
    "NoCredentialsError",
    "NoRegionError",
    "InvalidRegionError",
    "ParamValidationError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "ClientError",
    NATIVE_PANIC,
)
"""Exceptions whose text is the library's own; the others may quote what they were answered with, or a file."""


def read_fault(error: Exception) -> Fault:
    """Read an exception of botocore; only a ``ClientError`` has a code, a status and headers.

    The classes of what caused a failed connection are among the fault's, so that a rule can tell DNS from a refusal.
    """
    if isinstance(error, ForeignAnswerError):
        return Fault(status=error.status, foreign=True)
    names = class_names(error)
    response = getattr(error, "response", None)
    answer: dict[str, Any] = response if isinstance(response, dict) else {}
    said, meta = answer.get("Error", {}), answer.get("ResponseMetadata", {})
    cause = getattr(error, "kwargs", {}).get("error")
    return Fault(
        classes=names + (class_names(cause) if isinstance(cause, Exception) else ()),
        status=meta.get("HTTPStatusCode", 0),
        code=str(said.get("Code") or "").removeprefix("Client.").removeprefix("Server."),
        message=str(said.get("Message") or ("" if said or not set(names) & set(OWN_WORDS) else error)),
        after=pause(meta.get("HTTPHeaders", {}).get("retry-after")),
        foreign="ResponseParserError" in names,
    )


def escape(tag: str) -> str:
    """Take the wildcards of EC2's filters out of a tag's name or value."""
    return re.sub(r"([\\*?])", r"\\\1", tag)


def known_regions(session: boto3.Session) -> frozenset[str]:
    """Every region of every partition that the installed SDK knows of."""
    return frozenset(
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("ec2", partition_name=partition)
    )


def _client(session: boto3.Session, *, endpoint: str, timeout: timedelta) -> EC2Client:
    client = session.client("ec2", endpoint_url=endpoint or None, config=client_config(timeout))
    session_of_client: Any = client._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001
    client.meta.events.register("before-send.ec2.*", partial(_send, session_of_client))
    client.meta.events.register("before-parse.ec2.*", _check_answer)
    _settle_redirects(client)
    return client


def _settle_redirects(client: Any) -> None:
    """Make a redirect an answer like any other.

    botocore follows none, but the library below it looks at each, and stumbles over a 303 with its connection in hand.
    """
    http = getattr(getattr(client, "_endpoint", None), "http_session", None)
    classes = getattr(http, "_pool_classes_by_scheme", None)
    if isinstance(classes, dict):  # shared by the manager and those of proxies
        classes.update({scheme: _straight(pool) for scheme, pool in classes.items()})


def _straight(pool: Any) -> Any:
    def urlopen(self: Any, *given: Any, **options: Any) -> Any:
        return pool.urlopen(self, *given, **{**options, "redirect": False})

    return type(pool.__name__, (pool,), {"urlopen": urlopen})


def _send(session: Any, request: Any, **_: object) -> Any:
    """Send a request in botocore's place, which would read whatever is sent; errors of the connection are its own."""
    from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

    remember_sent(request.headers)
    request.stream_output = True  # leaves the body to us
    answer = session.send(request)
    refusal = answer.status_code >= REFUSAL
    try:
        chunks = answer.raw.stream(CHUNK, decode_content=True)
        body = gather(chunks, limit=limit_of(answer.status_code), refusal=refusal, what="the answer of EC2")
    except ReprieveError:
        raise
    except Exception as error:
        kind = ReadTimeoutError if "ReadTimeoutError" in class_names(error) else ConnectionClosedError
        raise kind(error=error, endpoint_url=request.url, request=request) from error
    finally:
        answer.raw.close()
    charge_xml(body, "the answer of EC2")
    answer._content = body  # noqa: SLF001
    return answer


class ForeignAnswerError(Exception):
    """EC2's endpoint answered with something else than EC2's documents."""

    def __init__(self, status: int) -> None:
        """Keep the status; of the body nothing."""
        super().__init__(f"HTTP {status}")
        self.status = status


_ERROR_DOCUMENT = re.compile(rb"\s*(?:<\?xml[^<>]{0,100}\?>\s*)?<(?:Response|ErrorResponse)[\s>]")


def _check_answer(*, operation_model: Any, response_dict: Mapping[str, Any], **_: object) -> None:
    """Refuse a 200 that is not the answer to this call: botocore never looks into an answer without an output shape.

    And a refusal that is not EC2's error document: botocore would quote it.
    """
    status = response_dict["status_code"]
    if status >= 300:  # noqa: PLR2004 (HTTP: from here on botocore reads an error)
        if not _ERROR_DOCUMENT.match(response_dict["body"]):
            raise ForeignAnswerError(status)
        return
    expected = f"{operation_model.name}Response"
    try:
        root = ET.fromstring(response_dict["body"])  # noqa: S314 (botocore parses the same bytes the same way)
    except ET.ParseError as error:
        raise UnknownError(f"EC2 answered 200, but no XML where {expected} was due") from error
    _raise_inner_error(root, operation_model.name)
    if _tag(root) != expected or any(_tag(e) == "return" and (e.text or "").strip() != "true" for e in root):
        raise UnknownError(f"EC2 answered 200, but not with {expected}, or not with its return: true")


def _raise_inner_error(root: ET.Element, operation: str) -> None:
    """Raise the error inside of a 200 as botocore raises it for a 400."""
    from botocore.exceptions import ClientError

    inner = next((element for element in root.iter() if _tag(element) == "Error"), None)
    if _tag(root) == "Response" and inner is not None:
        said = {_tag(part): (part.text or "") for part in inner}
        error = {"Code": said.get("Code", ""), "Message": said.get("Message", "")}
        raise ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": 200}}, operation)  # type: ignore[typeddict-item]


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
