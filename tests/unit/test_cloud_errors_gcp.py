"""Google Cloud: every error of the SDK and the API that a deletion can meet, and what the core calls it."""

import json
from datetime import timedelta

import google.auth.exceptions as auth
import pytest
import requests
from google.api_core import exceptions as core
from google.cloud import compute_v1

from reprieve.adapters.cloud.gcp import (
    ERRORS,
    check_id,
    operation_fault,
    read_fault,
    read_tags,
)
from reprieve.adapters.cloud.tables import build_error, error_for
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

SNAPSHOT = "The resource 'projects/p-123456/global/snapshots/disk-1' was not found"
PROJECT = "The resource 'projects/p-123456' was not found"
ZONE = "The resource 'projects/p-123456/zones/europe-west1-x' was not found"
HTML = b"<html><title>Error 404 (Not Found)</title>"


def answered(status, reason="", message="", *, headers=None, body=None, details=None):
    """The exception that the SDK makes of an HTTP answer, its URL naming the snapshot as every real one does."""
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers or {})
    inner = {"message": message, "domain": "global", "reason": reason}
    error = {"code": status, "message": message, "errors": [inner], **({"details": details} if details else {})}
    response._content = json.dumps({"error": error}).encode() if body is None else body
    url = "https://compute.googleapis.com/compute/v1/projects/p-123456/global/snapshots/disk-1"
    response.request = requests.Request("DELETE", url).prepare()
    return core.from_http_response(response)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(answered(404, "notFound", SNAPSHOT), NotFoundError, id="the snapshot"),
        pytest.param(answered(404, "notFound", PROJECT), ContainerMissingError, id="the project"),
        pytest.param(answered(404, "notFound", ZONE), ContainerMissingError, id="the zone"),
        pytest.param(answered(404, "notFound", "Not Found"), UnknownError, id="404 that names nothing"),
        pytest.param(answered(404, "notFound", ""), UnknownError, id="404 without a message"),
        pytest.param(answered(404, body=HTML), UnknownError, id="404 of somebody else"),
        pytest.param(answered(404, body=b""), UnknownError, id="an empty 404"),
        pytest.param(answered(400, "resourceInUseByAnotherResource", "used by x"), InUseError, id="in use"),
        pytest.param(answered(400, "resourceNotReady", "not ready"), UnavailableError, id="another operation runs"),
        pytest.param(answered(403, "forbidden", "Required permission"), DeniedError, id="forbidden"),
        pytest.param(answered(403, "accessNotConfigured", "API is not enabled"), DeniedError, id="API not enabled"),
        pytest.param(answered(403, "somethingNew"), DeniedError, id="any other 403"),
        pytest.param(answered(401, "authError", "Invalid Credentials"), DeniedError, id="an expired token"),
        pytest.param(answered(403, "rateLimitExceeded", "slow"), ThrottledError, id="403 that is a throttle"),
        pytest.param(answered(403, "userRateLimitExceeded", "slow"), ThrottledError, id="403, this user's throttle"),
        pytest.param(answered(429, "rateLimitExceeded"), ThrottledError, id="429"),
        pytest.param(answered(429, body=b"slow down"), ThrottledError, id="429 of a front end"),
        pytest.param(answered(412, "conditionNotMet"), ConflictError, id="412"),
        pytest.param(answered(409, "conflict"), ConflictError, id="409"),
        pytest.param(answered(412, "conditionNotMet", "under a retention policy"), LockedError, id="retention"),
        pytest.param(answered(400, "invalid", "Invalid value for field 'snapshot'"), InvalidError, id="malformed"),
        pytest.param(answered(400, "badRequest"), InvalidError, id="bad request"),
        pytest.param(answered(500, "internalError"), UnavailableError, id="500"),
        pytest.param(answered(502, body=HTML), UnavailableError, id="502"),
        pytest.param(answered(503, "backendError"), UnavailableError, id="503"),
        pytest.param(answered(504, body=b""), UnavailableError, id="504"),
        pytest.param(answered(418), UnknownError, id="a teapot"),
        pytest.param(core.RetryError("deadline", None), UnavailableError, id="retries used up"),
        pytest.param(requests.exceptions.ConnectionError("refused"), UnavailableError, id="refused, or no such host"),
        pytest.param(requests.exceptions.SSLError("certificate"), UnavailableError, id="TLS"),
        pytest.param(requests.exceptions.ReadTimeout("slow"), UnavailableError, id="read time-out"),
        pytest.param(requests.exceptions.ConnectTimeout("slow"), UnavailableError, id="connect time-out"),
        pytest.param(requests.exceptions.ChunkedEncodingError("cut"), UnavailableError, id="cut off"),
        pytest.param(auth.TransportError("no token server"), UnavailableError, id="no token server"),
        pytest.param(auth.RefreshError("busy", retryable=True), UnavailableError, id="the token server is busy"),
        pytest.param(auth.RefreshError("invalid_grant"), DeniedError, id="a revoked credential"),
        pytest.param(auth.DefaultCredentialsError("none"), DeniedError, id="no credentials"),
        pytest.param(auth.MalformedError("no key"), InvalidError, id="a credential of no use"),
        pytest.param(ValueError("projects/p/global/snapshots/disk-1 notFound"), UnknownError, id="anything else"),
    ],
)
def test_exceptions(error, expected):
    assert error_for(read_fault(error), ERRORS) is expected


def test_the_url_of_the_call_does_not_count():
    """The SDK puts the URL, with the snapshot's name in it, before the message.

    A missing project looked like a snapshot that is gone.
    """
    error = answered(404, "notFound", PROJECT)

    assert "snapshots/disk-1" in str(error)
    assert error_for(read_fault(error), ERRORS) is ContainerMissingError


def test_the_reason_of_an_error_info_counts_too():
    details = [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "RATE_LIMIT_EXCEEDED",
            "domain": "googleapis.com",
        }
    ]

    assert error_for(read_fault(answered(403, message="slow", details=details)), ERRORS) is ThrottledError


def test_the_pause_that_was_asked_for_comes_along():
    error = build_error(read_fault(answered(403, "rateLimitExceeded", headers={"Retry-After": "7"})), ERRORS, what="w")

    assert isinstance(error, ThrottledError)
    assert error.after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("code", "status", "message", "expected"),
    [
        pytest.param("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", 400, "used", InUseError, id="in use"),
        pytest.param("RESOURCE_NOT_FOUND", 404, SNAPSHOT, NotFoundError, id="gone meanwhile"),
        pytest.param("RESOURCE_NOT_FOUND", 404, PROJECT, ContainerMissingError, id="the project went"),
        pytest.param("RESOURCE_NOT_READY", 400, "not ready", UnavailableError, id="not ready"),
        pytest.param("PERMISSIONS_ERROR", 403, "required", DeniedError, id="denied"),
        pytest.param("RATE_LIMIT_EXCEEDED", 403, "slow", ThrottledError, id="throttled"),
        pytest.param("INTERNAL_ERROR", 500, "oops", UnavailableError, id="internal"),
        pytest.param("SOMETHING_NEW", 0, "what", UnknownError, id="anything else"),
    ],
)
def test_errors_of_operations(code, status, message, expected):
    inner = {"errors": [{"code": code, "message": message}]}
    operation = compute_v1.Operation(name="o", status="DONE", http_error_status_code=status, error=inner)
    fault = operation_fault(operation)

    assert fault is not None
    assert error_for(fault, ERRORS) is expected


def test_an_operation_that_only_has_a_status_has_failed_too():
    fault = operation_fault(
        compute_v1.Operation(name="o", status="DONE", http_error_status_code=503, http_error_message="no")
    )

    assert fault is not None
    assert error_for(fault, ERRORS) is UnavailableError


def test_an_operation_without_an_error_has_none():
    assert operation_fault(compute_v1.Operation(name="o", status="DONE")) is None


@pytest.mark.parametrize("name", ["a", "disk-1", "a" * 63])
def test_names(name):
    check_id(name)


@pytest.mark.parametrize("name", ["", "A", "1a", "a-", "a_b", "a/b", "..", "a" * 64, "ä"])
def test_malformed_names(name):
    with pytest.raises(InvalidError, match="is not the name of a disk snapshot"):
        check_id(name)


@pytest.mark.parametrize(
    ("description", "tags"),
    [
        pytest.param('{"velero.io/backup":"nightly"}', {"velero.io/backup": "nightly"}, id="Velero's"),
        pytest.param("made by hand", {}, id="a person's"),
        pytest.param("", {}, id="none"),
        pytest.param("[1]", {}, id="another document"),
        pytest.param('{"a":1,"b":"x"}', {"b": "x"}, id="not all of it strings"),
        pytest.param("[" * 100_000, {}, id="too deep"),
    ],
)
def test_tags_in_a_description(description, tags):
    assert read_tags(description) == tags
