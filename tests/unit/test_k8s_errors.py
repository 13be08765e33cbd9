"""What an API server's answers, and failures to get one, mean. The bodies are those of a real API server, shortened."""

import json
import ssl
from datetime import timedelta

import pytest

from reprieve.adapters.k8s.errors import Answer, Ask, error_of, failure_of
from reprieve.core import errors
from reprieve.core.outcomes import AlreadyGone, Conflict, ContainerMissing, Locked, Retryable, Unknown, outcome_of

GET = Ask("get", "backups", "velero.io", "velero", "nightly")
CREATE = Ask("create", "backups", "velero.io", "velero", "nightly")
LIST = Ask("list", "backups", "velero.io", "velero")
NAMESPACE = Ask("get", "namespaces", name="velero")
OURS = {"name": "nightly", "group": "velero.io", "kind": "backups"}
DENIED = (
    "backups.velero.io \"nightly\" is forbidden: ValidatingAdmissionPolicy 'shield' with binding 'shield' "
    "denied request: protected by its owner"
)


def status(reason, message="", code=0, **details):
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body = {**head, "message": message, "reason": reason, "details": details, "code": code}
    return json.dumps(body).encode()


def cause(reason="", field=""):
    return {"causes": [{"reason": reason, "message": "", "field": field}]}


@pytest.mark.parametrize(
    ("ask", "code", "body", "expected"),
    [
        pytest.param(GET, 404, status("NotFound", **OURS), errors.NotFoundError, id="object-absent"),
        pytest.param(
            GET, 404, status("NotFound", name="nightly"), errors.NotFoundError, id="object-absent-without-its-kind"
        ),
        pytest.param(
            CREATE,
            404,
            status("NotFound", name="velero", kind="namespaces"),
            errors.ContainerMissingError,
            id="namespace",
        ),
        pytest.param(
            NAMESPACE,
            404,
            status("NotFound", name="velero", kind="namespaces"),
            errors.NotFoundError,
            id="asked-namespace",
        ),
        pytest.param(GET, 404, b"404 page not found\n", errors.ContainerMissingError, id="custom-kind-not-served"),
        pytest.param(
            GET,
            404,
            status("NotFound", "the server could not find the requested resource"),
            errors.ContainerMissingError,
            id="built-in-kind-not-served",
        ),
        pytest.param(GET, 404, b"<html>Not Found</html>", errors.UnknownError, id="404-of-a-proxy"),
        pytest.param(GET, 404, b"", errors.UnknownError, id="404-without-a-body"),
        pytest.param(
            GET, 404, status("NotFound", **(OURS | {"name": "other"})), errors.UnknownError, id="another-object-absent"
        ),
        pytest.param(
            GET, 404, status("NotFound", **(OURS | {"kind": "restores"})), errors.UnknownError, id="another-kind-absent"
        ),
        pytest.param(GET, 404, status("Gone", **OURS), errors.UnknownError, id="404-of-another-reason"),
        pytest.param(CREATE, 409, status("AlreadyExists", **OURS), errors.AlreadyExistsError, id="name-taken"),
        pytest.param(GET, 409, status("Conflict", **OURS), errors.ConflictError, id="stale-version-or-other-uid"),
        pytest.param(
            GET,
            422,
            status("Invalid", **OURS, **cause("FieldValueInvalid", "metadata.uid")),
            errors.ConflictError,
            id="patch-of-another-uid",
        ),
        pytest.param(GET, 409, b"conflict", errors.UnknownError, id="409-of-a-proxy"),
        pytest.param(LIST, 410, status("Expired"), errors.ExpiredError, id="expired-token"),
        pytest.param(LIST, 410, status("Gone"), errors.ExpiredError, id="expired-version"),
        pytest.param(LIST, 410, b"gone", errors.UnknownError, id="410-of-a-proxy"),
        pytest.param(
            LIST,
            500,
            status("", "etcdserver: mvcc: required revision has been compacted"),
            errors.ExpiredError,
            id="compacted-below-the-server",
        ),
        pytest.param(GET, 401, status("Unauthorized", "Unauthorized"), errors.DeniedError, id="no-credentials"),
        pytest.param(GET, 403, status("Forbidden", "cannot get resource", **OURS), errors.DeniedError, id="no-right"),
        pytest.param(GET, 403, b"blocked", errors.DeniedError, id="403-of-a-proxy"),
        pytest.param(GET, 422, status("Invalid", DENIED, **OURS), errors.LockedError, id="policy-as-it-comes"),
        pytest.param(GET, 403, status("Forbidden", DENIED, **OURS), errors.LockedError, id="policy-with-a-reason"),
        pytest.param(
            GET,
            400,
            status("", 'admission webhook "x" denied the request: no'),
            errors.LockedError,
            id="webhook",
        ),
        pytest.param(
            CREATE,
            403,
            status("Forbidden", **OURS, **cause("NamespaceTerminating", "metadata.namespace")),
            errors.ContainerMissingError,
            id="namespace-terminating",
        ),
        pytest.param(LIST, 429, status("TooManyRequests"), errors.ThrottledError, id="throttled"),
        pytest.param(LIST, 429, b"slow down", errors.ThrottledError, id="429-of-a-proxy"),
        pytest.param(CREATE, 400, status("BadRequest"), errors.InvalidError, id="bad-request"),
        pytest.param(GET, 405, status("MethodNotAllowed"), errors.InvalidError, id="method"),
        pytest.param(LIST, 406, status("NotAcceptable"), errors.InvalidError, id="not-acceptable"),
        pytest.param(CREATE, 413, status("RequestEntityTooLarge"), errors.InvalidError, id="too-large"),
        pytest.param(GET, 415, status("UnsupportedMediaType"), errors.InvalidError, id="media-type"),
        pytest.param(CREATE, 422, status("Invalid", **OURS), errors.InvalidError, id="invalid"),
        pytest.param(
            LIST,
            500,
            status("", 'strconv.ParseUint: parsing "abc": invalid syntax'),
            errors.InvalidError,
            id="no-version",
        ),
        pytest.param(
            CREATE,
            500,
            status("", "resourceVersion should not be set on objects to be created"),
            errors.InvalidError,
            id="version-of-a-creation",
        ),
        pytest.param(LIST, 408, b"", errors.UnavailableError, id="request-timeout"),
        pytest.param(LIST, 500, status("InternalError"), errors.UnavailableError, id="internal-error"),
        pytest.param(LIST, 502, b"<html>bad gateway</html>", errors.UnavailableError, id="bad-gateway"),
        pytest.param(LIST, 503, b"", errors.UnavailableError, id="unavailable"),
        pytest.param(LIST, 504, status("Timeout"), errors.UnavailableError, id="timeout"),
        pytest.param(GET, 204, b"", errors.UnknownError, id="unexpected-2xx"),
        pytest.param(GET, 302, b"", errors.UnknownError, id="redirect"),
        pytest.param(GET, 418, b"", errors.UnknownError, id="unheard-of"),
        pytest.param(GET, 0, b"", errors.UnknownError, id="watch-error-without-a-code"),
        pytest.param(GET, 404, status("NotFound", **OURS)[:-9], errors.UnknownError, id="truncated-status"),
        pytest.param(GET, 404, b"[" * 100_000, errors.UnknownError, id="absurd-nesting"),
        pytest.param(GET, 404, b"\xff\xfe\x00", errors.UnknownError, id="no-text"),
        pytest.param(
            GET, 404, b'{"kind":"Status","details":{"name":5}}', errors.UnknownError, id="status-of-wrong-types"
        ),
    ],
)
def test_an_answer_means(ask, code, body, expected):
    error = error_of(ask, Answer(code, body=body))

    assert type(error) is expected
    assert str(ask) in str(error)
    assert f"HTTP {code}" in str(error)


@pytest.mark.parametrize(
    ("code", "body", "outcome"),
    [
        pytest.param(404, status("NotFound", **OURS), AlreadyGone, id="absent-is-gone"),
        pytest.param(404, b"404 page not found\n", ContainerMissing, id="kind-missing-is-not-gone"),
        pytest.param(404, b"nope", Unknown, id="somebody's-404-is-not-gone"),
        pytest.param(409, status("Conflict", **OURS), Conflict, id="conflict"),
        pytest.param(422, status("Invalid", DENIED, **OURS), Locked, id="policy"),
        pytest.param(503, b"", Retryable, id="unavailable"),
    ],
)
def test_a_refused_delete_comes_to(code, body, outcome):
    assert isinstance(outcome_of(error_of(GET, Answer(code, body=body))), outcome)


@pytest.mark.parametrize(
    ("headers", "body", "after"),
    [
        pytest.param({"retry-after": "7"}, b"", timedelta(seconds=7), id="header"),
        pytest.param({}, status("TooManyRequests", retryAfterSeconds=3), timedelta(seconds=3), id="details"),
        pytest.param({"retry-after": "7"}, status("", retryAfterSeconds=3), timedelta(seconds=7), id="header-first"),
        pytest.param({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"", timedelta(0), id="a-date-is-not-read"),
        pytest.param({"retry-after": "99999999"}, b"", timedelta(hours=1), id="absurd-pause-is-capped"),
        pytest.param({"retry-after": "9" * 40}, b"", timedelta(0), id="endless-digits"),
        pytest.param({}, status("", retryAfterSeconds=-3), timedelta(0), id="negative"),
        pytest.param({}, b"", timedelta(0), id="nothing-said"),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_the_pause_that_is_asked_for_is_kept(code, headers, body, after):
    assert error_of(LIST, Answer(code, headers, body)).after == after


def raised(name, *bases):
    """An exception of a library, known by the names of its classes alone."""
    return type(name, bases or (Exception,), {})


HTTP_ERROR = raised("HTTPError")
NEW_CONNECTION = raised("NewConnectionError", HTTP_ERROR)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        pytest.param(raised("SSLError", HTTP_ERROR)("bad certificate"), errors.UnavailableError, id="tls"),
        pytest.param(ssl.SSLCertVerificationError("self-signed"), errors.UnavailableError, id="tls-of-python"),
        pytest.param(
            raised("ApiException")("(0)\nReason: SSLError"), errors.UnavailableError, id="tls-as-the-client-wraps-it"
        ),
        pytest.param(raised("ApiException")("(0)\nReason: ?"), errors.UnknownError, id="the-client-otherwise"),
        pytest.param(raised("NameResolutionError", NEW_CONNECTION)("?"), errors.UnavailableError, id="dns"),
        pytest.param(NEW_CONNECTION("refused"), errors.UnavailableError, id="refused"),
        pytest.param(raised("ConnectTimeoutError", HTTP_ERROR)(), errors.UnavailableError, id="connect-time-out"),
        pytest.param(raised("ReadTimeoutError", HTTP_ERROR)(), errors.UnavailableError, id="read-time-out"),
        pytest.param(raised("MaxRetryError", HTTP_ERROR)(), errors.UnavailableError, id="max-retries"),
        pytest.param(raised("ProtocolError", HTTP_ERROR)(), errors.UnavailableError, id="broken"),
        pytest.param(raised("IncompleteRead", raised("ProtocolError"))(), errors.UnavailableError, id="truncated"),
        pytest.param(raised("ProxyError", HTTP_ERROR)(), errors.UnavailableError, id="proxy"),
        pytest.param(raised("ConfigException")("no token"), errors.DeniedError, id="credentials"),
        pytest.param(raised("LocationParseError", raised("LocationValueError"))(), errors.InvalidError, id="address"),
        pytest.param(FileNotFoundError("ca.crt"), errors.InvalidError, id="file-missing"),
        pytest.param(PermissionError("ca.crt"), errors.InvalidError, id="file-unreadable"),
        pytest.param(ConnectionResetError("reset"), errors.UnavailableError, id="reset"),
        pytest.param(TimeoutError(), errors.UnavailableError, id="time-out-of-python"),
        pytest.param(raised("DecodeError", HTTP_ERROR)("gzip"), errors.UnknownError, id="content-encoding"),
        pytest.param(ValueError("what"), errors.UnknownError, id="anything-else"),
    ],
)
def test_a_failure_means(failure, expected):
    error = failure_of(GET, failure)

    assert type(error) is expected
    assert str(error).startswith("get backups.velero.io velero/nightly: ")
    assert "\n" not in str(error)
