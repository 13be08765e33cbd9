"""What obstore says of object storage, and what it means to the core: one reader of its exceptions, one table of rules.

obstore keeps status, code and message of an answer in the text of its exceptions only. The reader takes them from the
part that is machine-written (Rust's debug form, where keys and bodies are quoted and escaped), so that no key can pass
for an answer.

Guarantee: what is not understood is ``UnknownError``; a 404 that does not say of what is neither "gone" nor "container
missing".
Not guaranteed: a ``Retry-After``: obstore drops the headers of an answer, so the pause of a throttled call is the
core's own back-off.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from reprieve.adapters.cloud import egress
from reprieve.adapters.cloud.tables import Fault, Rule, Table, class_names
from reprieve.adapters.sizes import KIB, MESSAGE
from reprieve.core import errors
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
from reprieve.core.values import cut, parse_instant

NOT_FOUND = 404
DEBUG_LIMIT = 16 * KIB
PER_KEY = "PerKey"
"""In ``Fault.classes``: the call as a whole went well, single keys of it did not."""

NOT_CONNECTED = "HttpConnect"
"""In ``Fault.classes``: no connection came about."""

ERRORS: Table = (
    Rule(
        UnknownError,
        codes=(egress.REDIRECT_REFUSED, egress.ADDRESS_REFUSED),
        why="said by ourselves: an endpoint leads elsewhere, and is not followed",
    ),
    Rule(
        ContainerMissingError,
        codes=("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "NotFoundBucket", "AccountNotFound"),
        why="the bucket, never the key",
    ),
    Rule(ContainerMissingError, statuses=(404,), words=r"specified (bucket|container) does not exist"),
    Rule(NotFoundError, codes=("NoSuchKey", "BlobNotFound", "NoSuchVersion")),
    Rule(NotFoundError, statuses=(404,), words=r"specified (blob|key) does not exist"),
    Rule(NotFoundError, exceptions=("FileNotFoundError",), statuses=(0,), why="a folder or memory: no status"),
    Rule(
        LockedError,
        codes=("RetentionPolicyNotMet", "ObjectUnderActiveHold", "ObjectLocked", r"BlobImmutableDueTo\w+"),
        why="retention, holds and legal holds of GCS and Azure",
    ),
    Rule(
        LockedError,
        words=r"object lock|WORM protected|retention policy|retention period|active (temporary|event-based) hold"
        r"|blob is immutable|object is locked",
        why="S3 says AccessDenied, MinIO InvalidRequest, an Azure batch 409 without a code: the message tells",
    ),
    Rule(InUseError, codes=(r"LeaseIdMissing\w*", "SnapshotsPresent", "PendingCopyOperation")),
    Rule(InUseError, words=r"lease on the blob|blob has snapshots", why="in an Azure batch the code is not told"),
    Rule(
        ThrottledError,
        codes=(
            "SlowDown",
            "Throttl(ing|ed)(Exception)?",
            "RequestLimitExceeded",
            "TooManyRequests",
            "(User)?RateLimitExceeded",
            "ServerBusy",
            "BandwidthLimitExceeded",
        ),
    ),
    Rule(ThrottledError, statuses=(429,)),
    Rule(ThrottledError, statuses=(503,), words=r"reduce your request rate|server is busy|slow down"),
    Rule(
        DeniedError,
        codes=(
            "AccessDenied",
            r"Invalid(AccessKeyId|Token|Security|AuthenticationInfo)",
            "SignatureDoesNotMatch",
            "(Expired|Token)(Token|RefreshRequired|Expired)",
            "RequestTimeTooSkewed",
            r"(AllAccess|Account|Container)\w*Disabled",
            "AccountProblem",
            r"Auth(orization|entication)(Failed|Failure|PermissionMismatch|ServiceMismatch|SourceIPMismatch)",
            "InsufficientAccountPermissions",
            "NoAuthenticationInformation",
            "PublicAccessNotPermitted",
            "UserProjectAccountProblem",
        ),
    ),
    Rule(
        InvalidError,
        codes=("PermanentRedirect", "BareRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint\\w*"),
        why="the bucket is in another region than config.region says",
    ),
    Rule(InvalidError, codes=("InvalidObjectState", "BlobArchived"), why="in an archive tier: not to be read"),
    Rule(DeniedError, exceptions=("PermissionDeniedError", "UnauthenticatedError")),
    Rule(DeniedError, statuses=(401, 403)),
    Rule(UnavailableError, codes=("InternalError", "ServiceUnavailable", "RequestTimeout", "OperationTimedOut")),
    Rule(ConflictError, codes=("OperationAborted", "ConditionalRequestConflict", "PreconditionFailed")),
    Rule(ConflictError, statuses=(409, 412)),
    Rule(InvalidError, exceptions=("InvalidPathError", "InvalidPath"), why="a key that the library cannot name"),
    Rule(InvalidError, statuses=(400, 405, 411, 413, 414, 416, 501)),
    Rule(UnavailableError, statuses=(408, 500, 502, 503, 504)),
    Rule(
        UnavailableError,
        exceptions=(NOT_CONNECTED, "HttpTimeout", "HttpRequest", "HttpInterrupted"),
        why="refused, no such host, TLS, time-out, cut off",
    ),
)
"""What object storage says, and what it means.

Sources: the error lists of S3, GCS (XML API) and Azure Blob, and runs of obstore.
"""

_DEBUG = "\n\nDebug source:\n"
_LITERAL = r'"((?:[^"\\]|\\.)*)"'
_STATUS = re.compile(r"^[ \t]*status: (\d{3}),$", re.MULTILINE)
_BODY = re.compile(rf"^[ \t]*body: (?:Some\(\s*)?{_LITERAL},?$", re.MULTILINE)
_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+),$", re.MULTILINE)
_VARIANT = re.compile(r"^[ \t]*(?:inner|source): (\w+)", re.MULTILINE)
_RAISED = re.compile(r"^[ \t]*type: <class 'reprieve\.core\.errors\.(\w+)'>,$", re.MULTILINE)
_DOCUMENT = re.compile(r"\ufeff?\s*(?:<\?xml[^<>]{0,100}\?>\s*)?<(Error|DeleteResult)[\s>]")
_CODE = re.compile(r"<Code>\s*([\w.]{1,100})\s*</Code>", re.ASCII)
_MESSAGE = re.compile(r"<Message>([^<]{0,2000})</Message>")
_REASON = re.compile(rf"^[ \t]*reason: {_LITERAL},$", re.MULTILINE)
_BATCH_CODE = re.compile(r'^[ \t]*code: "(\d{3})",$', re.MULTILINE)
_CAUSES = re.compile(rf"^[ \t]*(?:\w+: )?(?:{_LITERAL}|([A-Z]\w+)),?$", re.MULTILINE)
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S*")  # may hold a signature
_UNTIL = re.compile(r"until\s+'?(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d))", re.IGNORECASE)
_CLOUDS = ("Generic S3 error:", "Generic GCS error:", "Generic MicrosoftAzure error:")


def read_fault(error: Exception) -> Fault:
    """Read an exception of obstore: its class, and what its text keeps of the answer.

    Of the answer's body only what a provider's own error document says, which is XML of a known root.
    """
    head, debug, whole = _parts(error)
    batch = _first(_BATCH_CODE, debug)
    status = int(_first(_STATUS, debug) or batch or 0)
    body = _unescaped(_first(_BODY, debug))
    ours = _DOCUMENT.match(body) is not None
    kinds = _kinds(debug, body if ours else "", batch)
    bare = "BareRedirect" if "BareRedirect" in kinds else ""
    message = _unescaped(_first(_REASON, debug)) if batch else _first(_MESSAGE, body) if ours else ""
    body = body if whole else body or "cut off"  # a provider's own error document is never that long
    foreign = _is_foreign(status=status, body=body, document=ours or bool(batch), head=head, kinds=kinds)
    if not (status or foreign):
        message = message or _summary(head, debug)
    return Fault(
        classes=(*class_names(error), *kinds),
        status=status,
        code=(_first(_CODE, body) if ours else "") or bare,
        message=message,
        until=_until(message),
        foreign=foreign,
    )


def _parts(error: Exception) -> tuple[str, str, bool]:
    """What an exception says, its debug form, and whether that is all of it: both are cut before any pattern.

    The status stands before the body, so that it is still there.
    """
    text = str(error)
    head, _, debug = text.rpartition(_DEBUG)
    return cut(head or text, limit=MESSAGE), debug[:DEBUG_LIMIT], len(debug) <= DEBUG_LIMIT


def _is_foreign(*, status: int, body: str, document: bool, head: str, kinds: tuple[str, ...]) -> bool:
    """Whether the answer was something else than the provider's: a body of another shape, or a 200 that is no answer.

    What obstore says of the latter quotes it.
    """
    if status:
        return bool(body.strip()) and not document
    connected = not any(kind.startswith("Http") for kind in kinds) and "BareRedirect" not in kinds
    return connected and head.startswith(_CLOUDS)


def raised_by_us(error: Exception) -> errors.ReprieveError | None:
    """The core's error that one of our own credential providers raised inside obstore, if that is what happened."""
    head, debug, _ = _parts(error)
    name = _first(_RAISED, debug)
    known: Any = getattr(errors, name, None) if name else None
    return known(head.partition(f"{name}: ")[2]) if known else None


def is_unclear_404(fault: Fault) -> bool:
    """Whether the answer was 404 and said neither "of the key" nor "of the bucket"."""
    return fault.status == NOT_FOUND and not any(
        rule.fits(fault) for rule in ERRORS if rule.error in {NotFoundError, ContainerMissingError}
    )


def _kinds(debug: str, body: str, batch: str) -> tuple[str, ...]:
    """Name what no class does: the transport (``HttpConnect``), a key of a bulk call, obstore's variant."""
    transport = tuple(f"Http{kind}" for kind in _TRANSPORT.findall(debug))
    per_key = (PER_KEY,) if batch or "<DeleteResult" in body else ()
    return (*transport, *per_key, *dict.fromkeys(_VARIANT.findall(debug)))


def _summary(head: str, debug: str) -> str:
    """The first line of the text, and the innermost cause where the first line only says that the request failed."""
    first = _QUERY.sub(r"\1", head.split("\n", 1)[0])
    causes = _CAUSES.findall(debug) if "HttpError {" in debug else []
    return f"{first}: {_unescaped(''.join(causes[-1]))}" if causes else first


def _until(message: str) -> datetime | None:
    found = _first(_UNTIL, message)
    return parse_instant(found) if found else None


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]+)\}|(.))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def _unescaped(literal: str) -> str:
    """Undo the escapes of Rust's debug form."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), literal)
