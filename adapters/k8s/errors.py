"""An API server's answer, or the failure to get one: what it means. One table, the first row that fits wins.

Guarantee: ``NotFoundError`` only when the answer itself names the object that was asked for; a 404 about the kind,
about the namespace, or from something that is no API server is never taken for it. What no row fits is
``UnknownError``. No SDK is needed here: an exception of one is told by the names of its classes. Not guaranteed:
messages of API servers are English prose; where a row has to read them (admission), the release that it was read from
may word it otherwise, and the row below it still refuses.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus

from attrs import field, frozen

from reprieve.adapters.k8s.library import msgspec
from reprieve.adapters.sizes import MESSAGE
from reprieve.core import errors
from reprieve.core.values import as_set, cut

LONGEST_PAUSE = timedelta(hours=1)  # a longer one is no advice any more; it must not put work off for days
_QUOTE_LIMIT = 500
_NOT_SERVED = re.compile(
    r"404 page not found|Unauthorized|Forbidden|(Internal Server Error|Bad Request)", re.IGNORECASE
)


@frozen
class Ask:
    """What was asked: for messages, and to tell whom an answer is about; ``resource`` is a plural like ``backups``."""

    verb: str
    resource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return " ".join(part for part in (self.verb, what, where) if part)


@frozen
class Answer:
    """An HTTP answer: status, headers (looked up in lower case), and the whole body."""

    status: int
    headers: Mapping[str, str] = field(factory=dict, hash=False)
    body: bytes = b""


class Cause(msgspec.Struct):
    """One of a Status' causes."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, rename="camel"):
    """Whom a Status is about; ``kind`` is a plural such as ``backups``."""

    name: str = ""
    group: str = ""
    kind: str = ""
    retry_after_seconds: int = 0
    causes: list[Cause] | None = None


class Status(msgspec.Struct, rename="camel"):
    """The body of a refusal (``kind: Status``)."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None

    @property
    def about(self) -> Details:
        """The details, empty ones where there are none."""
        return self.details or Details()


class Subject(enum.Enum):
    """Whom an answer is about."""

    OBJECT = "the object that was asked for"
    NAMESPACE = "a namespace that should hold it"
    NOTHING = "no object: the kind or the path"
    OTHER = "some other object"
    NO_STATUS = "nobody: the body is no Status"


ANYBODY = frozenset(Subject)
TOLD = ANYBODY - {Subject.NO_STATUS}


@frozen
class Rule:
    """A row: the error, and what has to fit (an empty part always does); ``says`` is searched for in the message."""

    error: type[errors.ReprieveError]
    statuses: frozenset[int] = field(converter=as_set)
    reason: str = ""
    subjects: frozenset[Subject] = field(default=TOLD, converter=as_set)
    says: str = ""
    cause: str = ""


# The only such table. Sources: the API conventions' list of status reasons, and answers of a real API server.
RULES = (
    # Admission: a policy answers 422 unless it names another reason, a webhook 403 or what it likes.
    Rule(errors.LockedError, {400, 403, 422}, says=r"\bdenied (the )?request\b"),
    Rule(errors.ContainerMissingError, {403}, cause="NamespaceTerminating"),
    Rule(errors.NotFoundError, {404}, reason="NotFound", subjects={Subject.OBJECT}),
    Rule(errors.ContainerMissingError, {404}, reason="NotFound", subjects={Subject.NAMESPACE, Subject.NOTHING}),
    Rule(errors.ContainerMissingError, {404}, subjects={Subject.NO_STATUS}, says=r"\A404 page not found\s*\Z"),
    Rule(errors.AlreadyExistsError, {409}, reason="AlreadyExists"),
    Rule(errors.ConflictError, {409}),
    Rule(errors.ConflictError, {422}, cause="metadata.uid"),  # the UID is the precondition of every patch
    Rule(errors.ExpiredError, {410}),
    Rule(errors.ExpiredError, {500}, says=r"required revision has been compacted"),
    # A resource version that is none, or one on a creation, is answered like a fault of the server; no retry mends it.
    Rule(errors.InvalidError, {500}, says=r"strconv\.ParseUint|resourceVersion should not be set"),
    Rule(errors.DeniedError, {401, 403}, subjects=ANYBODY),
    Rule(errors.ThrottledError, {429}, subjects=ANYBODY),
    Rule(errors.UnavailableError, {408, 500, 502, 503, 504}, subjects=ANYBODY),
    Rule(errors.InvalidError, {400, 405, 406, 413, 415, 422}, subjects=ANYBODY),
)

_TLS = "no trusted TLS connection (see certificate-authority in the kubeconfig)"

_CREDENTIALS = "; the credentials are wrong or have expired (see users in the kubeconfig)"

# The failure to get an answer, by the name of an exception's class or of one of its bases, and a part of its text.
FAILURES: tuple[tuple[str, str, type[errors.ReprieveError], str], ...] = (
    ("SSLError", "", errors.UnavailableError, _TLS),
    ("ApiException", "SSLError", errors.UnavailableError, _TLS),
    ("NameResolutionError", "", errors.UnavailableError, "the server's name cannot be resolved"),
    ("NewConnectionError", "", errors.UnavailableError, "no connection to the server"),
    ("ConnectTimeoutError", "", errors.UnavailableError, "the server does not accept the connection in time"),
    ("ReadTimeoutError", "", errors.UnavailableError, "no answer in time"),
    ("ProxyError", "", errors.UnavailableError, "no connection through the proxy"),
    ("MaxRetryError", "", errors.UnavailableError, "no connection to the server"),
    ("ProtocolError", "", errors.UnavailableError, "the connection broke"),
    ("ConfigException", "", errors.DeniedError, "the credentials cannot be read (see users in the kubeconfig)"),
    ("LocationValueError", "", errors.InvalidError, "the server's address is none (see clusters in the kubeconfig)"),
    ("FileNotFoundError", "", errors.InvalidError, "a file that the kubeconfig names is missing"),
    ("PermissionError", "", errors.InvalidError, "a file that the kubeconfig names cannot be read"),
    ("OSError", "", errors.UnavailableError, "no connection to the server"),
)  # fmt: skip


def error_of(ask: Ask, answer: Answer) -> errors.ReprieveError:
    """Give the error that a refusal (or any answer that was not expected) means."""
    status = read_status(answer.body)
    subject = _subject(ask, status)
    said = cut(status.message, limit=MESSAGE) if subject in TOLD else _quote(answer.body)
    rule = next((rule for rule in RULES if _fits(rule, answer.status, status, subject, said)), None)
    reason = f" {cut(status.reason, limit=_QUOTE_LIMIT)}" if status.reason else ""
    message = f"{ask}: {_told(subject, said) or 'no message'} (HTTP {answer.status}{reason})"
    message += _CREDENTIALS if answer.status == HTTPStatus.UNAUTHORIZED else ""
    return _made(rule.error if rule else errors.UnknownError, message, pause=_pause(answer, status))


def failure_of(ask: Ask, failure: BaseException) -> errors.ReprieveError:
    """Give the error that an exception of the client or of the connection means."""
    names = {cls.__name__ for cls in type(failure).__mro__}
    said = _one_line(cut(failure, limit=MESSAGE)) or type(failure).__name__
    for name, part, error, meaning in FAILURES:
        if name in names and part in said:
            return error(f"{ask}: {meaning}: {said}")
    return errors.UnknownError(f"{ask}: {type(failure).__name__}: {said}")


def read_status(body: bytes) -> Status:
    """Read a body as a Status; an empty one when it is anything else."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Status()
    return status if status.kind == "Status" else Status()


def _subject(ask: Ask, status: Status) -> Subject:
    about = status.about
    if status.kind != "Status":
        return Subject.NO_STATUS
    if not about.name:
        return Subject.NOTHING
    if about.name == ask.name and about.kind in ("", ask.resource):
        return Subject.OBJECT
    return Subject.NAMESPACE if about.kind == "namespaces" else Subject.OTHER


def _fits(rule: Rule, code: int, status: Status, subject: Subject, said: str) -> bool:
    causes = {name for cause in status.about.causes or () for name in (cause.reason, cause.field)}
    return (
        code in rule.statuses
        and subject in rule.subjects
        and rule.reason in ("", status.reason)
        and (not rule.cause or rule.cause in causes)
        and re.search(rule.says, said) is not None
    )


def _made(error: type[errors.ReprieveError], message: str, *, pause: timedelta) -> errors.ReprieveError:
    if issubclass(error, errors.ThrottledError | errors.UnavailableError):
        return error(message, pause)
    return error(message)


def _pause(answer: Answer, status: Status) -> timedelta:
    """Read the pause that the server asks for: ``Retry-After`` in seconds, else the Status' own field, else none."""
    header = answer.headers.get("retry-after", "").strip()
    seconds = int(header) if re.fullmatch(r"[0-9]{1,9}", header) else status.about.retry_after_seconds
    return timedelta(seconds=min(max(seconds, 0), LONGEST_PAUSE.total_seconds()))


def _told(subject: Subject, said: str) -> str:
    """What is repeated of an answer: a Status' message; of a body that is none, only what API servers are known for.

    Whatever stands before an API server, or where one should be, may answer with what is nobody's business.
    """
    if subject in TOLD or not said or _NOT_SERVED.fullmatch(said):
        return said
    return "a body that is not an API server's"


def _quote(body: bytes) -> str:
    return _one_line(body[: _QUOTE_LIMIT * 4].decode("utf-8", "replace"))[:_QUOTE_LIMIT]


def _one_line(text: str) -> str:
    return " ".join(text.split())
