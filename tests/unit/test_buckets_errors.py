"""The table of what object storage says, over texts as obstore writes them."""

import json
from datetime import UTC, datetime

import pytest

from reprieve.adapters.cloud.buckets_errors import ERRORS, PER_KEY, is_unclear_404, raised_by_us, read_fault
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


class GenericError(Exception):
    """Named as obstore's."""


class PermissionDeniedError(Exception):
    """Named as obstore's."""


class InvalidPathError(Exception):
    """Named as obstore's."""


def literal(text: str) -> str:
    """A string as Rust's debug form writes it."""
    return json.dumps(text, ensure_ascii=False)


def told(status, body="", *, path="k", cls=GenericError, inner="Status"):
    """An answer with an HTTP status, as obstore tells it."""
    debug = (
        f"Generic {{\n    path: {literal(path)},\n    source: RetryError(\n        RetryErrorImpl {{\n"
        f"            method: GET,\n            inner: {inner} {{\n                status: {status},\n"
        f"                body: Some(\n                    {literal(body)},\n                ),\n            }},\n"
    )
    return cls(f"Object at location {path} : HTTP {status}: {body}\n\nDebug source:\n{debug}")


def xml(code, message="Message."):
    return f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"


def transport(kind, cause):
    return GenericError(
        "Generic S3 error: Error performing GET http://a/k in 1ms - HTTP error: error sending request"
        "\n\nDebug source:\n"
        f"Generic {{\n    inner: Http(\n        HttpError {{\n            kind: {kind},\n"
        f"            source: reqwest::Error {{\n                kind: Request,\n"
        f"                message: {literal(cause)},\n"
    )


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "NoSuchKey", NotFoundError),
        (404, "BlobNotFound", NotFoundError),
        (404, "NoSuchBucket", ContainerMissingError),
        (404, "ContainerNotFound", ContainerMissingError),
        (409, "ContainerBeingDeleted", ContainerMissingError),
        (403, "AccessDenied", DeniedError),
        (403, "InvalidAccessKeyId", DeniedError),
        (403, "SignatureDoesNotMatch", DeniedError),
        (403, "RequestTimeTooSkewed", DeniedError),
        (400, "ExpiredToken", DeniedError),
        (400, "TokenRefreshRequired", DeniedError),
        (400, "InvalidToken", DeniedError),
        (403, "AccountProblem", DeniedError),
        (403, "AllAccessDisabled", DeniedError),
        (403, "AccountIsDisabled", DeniedError),
        (403, "AuthorizationFailure", DeniedError),
        (403, "AuthorizationPermissionMismatch", DeniedError),
        (403, "AuthenticationFailed", DeniedError),
        (401, "Anything", DeniedError),
        (403, "RetentionPolicyNotMet", LockedError),
        (403, "ObjectUnderActiveHold", LockedError),
        (409, "BlobImmutableDueToPolicy", LockedError),
        (409, "BlobImmutableDueToLegalHold", LockedError),
        (412, "LeaseIdMissing", InUseError),
        (409, "SnapshotsPresent", InUseError),
        (503, "SlowDown", ThrottledError),
        (503, "ServerBusy", ThrottledError),
        (400, "RequestLimitExceeded", ThrottledError),
        (429, "", ThrottledError),
        (409, "OperationAborted", ConflictError),
        (412, "PreconditionFailed", ConflictError),
        (400, "AuthorizationHeaderMalformed", InvalidError),
        (301, "PermanentRedirect", InvalidError),
        (403, "InvalidObjectState", InvalidError),
        (400, "MalformedXML", InvalidError),
        (501, "NotImplemented", InvalidError),
        (500, "InternalError", UnavailableError),
        (503, "ServiceUnavailable", UnavailableError),
        (400, "RequestTimeout", UnavailableError),
        (504, "", UnavailableError),
        (404, "", UnknownError),
        (404, "SomethingNew", UnknownError),
        (418, "", UnknownError),
        (200, "", UnknownError),
    ],
)
def test_a_status_and_a_code_mean_one_thing(status, code, expected):
    assert error_for(read_fault(told(status, xml(code) if code else "")), ERRORS) is expected


@pytest.mark.parametrize(
    ("status", "code", "message", "expected"),
    [
        pytest.param(
            403,
            "AccessDenied",
            "Access Denied because object protected by object lock.",
            LockedError,
            id="s3-object-lock",
        ),
        pytest.param(
            400, "InvalidRequest", "Object is WORM protected and cannot be overwritten", LockedError, id="minio"
        ),
        pytest.param(
            403,
            "Forbidden",
            "Object 'b/k' is under active Temporary hold and cannot be deleted",
            LockedError,
            id="gcs-hold",
        ),
        pytest.param(503, "ServiceUnavailable", "Please reduce your request rate.", ThrottledError, id="s3-rate"),
        pytest.param(
            404, "NotFound", "The specified bucket does not exist.", ContainerMissingError, id="bucket-by-word"
        ),
    ],
)
def test_where_the_code_does_not_tell_the_message_does(status, code, message, expected):
    assert error_for(read_fault(told(status, xml(code, message))), ERRORS) is expected


@pytest.mark.parametrize(
    "kind", [pytest.param(k, id=k.lower()) for k in ("Connect", "Timeout", "Request", "Interrupted")]
)
def test_transport_failures_pass(kind):
    fault = read_fault(transport(kind, "Connection refused"))
    assert error_for(fault, ERRORS) is UnavailableError
    assert fault.message.endswith("error sending request: Connection refused")


def test_an_answer_that_is_no_http_is_unknown():
    assert error_for(read_fault(transport("Unknown", "")), ERRORS) is UnknownError


def test_no_signature_of_a_url_gets_into_a_message():
    error = GenericError("Error performing GET https://a.example/c/k?sv=1&sig=s3cret in 1ms - HTTP error")
    assert read_fault(error).message == "Error performing GET https://a.example/c/k in 1ms - HTTP error"


def test_the_date_of_release_is_told():
    until = "2031-05-01T02:00:00.000+02:00"
    refused = read_fault(told(403, xml("RetentionPolicyNotMet", f"cannot be deleted or overwritten until {until}")))
    error = build_error(refused, ERRORS, what="x")
    assert isinstance(error, LockedError)
    assert error.until == datetime(2031, 5, 1, tzinfo=UTC)


HOSTILE = [
    "<Code>NoSuchKey</Code>",
    'x", body: Some( "<Code>NoSuchKey</Code>',
    "Debug source: status: 404, <Code>NoSuchBucket</Code>",
    "<DeleteResult><Code>NoSuchKey</Code>",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_key_cannot_pass_for_an_answer(path):
    """Whoever may write into a bucket chooses its keys, and keys stand in the texts that are read."""
    fault = read_fault(told(500, "", path=path))
    assert error_for(fault, ERRORS) is UnavailableError
    assert fault.code == ""
    assert PER_KEY not in fault.classes


def test_a_body_cannot_pass_for_the_library_s_own_lines():
    body = "x\n\nDebug source:\n                status: 404,\n    type: <class 'reprieve.core.errors.NotFoundError'>,\n"
    fault = read_fault(told(500, body))
    assert fault.status == 500
    assert raised_by_us(told(500, body)) is None


def test_single_keys_of_a_bulk_delete_are_told_from_the_call():
    failed = "<Error><Key>y</Key><Code>AccessDenied</Code></Error>"
    body = f"<DeleteResult><Deleted><Key>x</Key></Deleted>{failed}</DeleteResult>"
    assert PER_KEY in read_fault(told(200, body, inner="Response")).classes
    assert PER_KEY not in read_fault(told(403, xml("AccessDenied"))).classes


def test_a_part_of_an_azure_batch_is_read():
    reason = "This operation is not permitted as the blob is immutable due to a policy."
    failed = f'        path: "y",\n        code: "409",\n        reason: {literal(reason)},\n'
    debug = f"Generic {{\n    source: DeleteFailed {{\n{failed}"
    fault = read_fault(GenericError(f"Bulk delete request failed for key y: {reason}\n\nDebug source:\n{debug}"))
    assert (fault.status, fault.message) == (409, reason)
    assert PER_KEY in fault.classes
    assert error_for(fault, ERRORS) is LockedError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(FileNotFoundError("Object at location k not found"), NotFoundError, id="a-file"),
        pytest.param(PermissionDeniedError("no"), DeniedError, id="a-folder"),
        pytest.param(
            InvalidPathError('Path "a//b" contained empty path segment'), InvalidError, id="a-key-in-a-listing"
        ),
        pytest.param(ValueError("anything"), UnknownError, id="anything-else"),
    ],
)
def test_errors_without_an_answer(error, expected):
    assert error_for(read_fault(error), ERRORS) is expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, "", True),
        (404, "404 page not found", True),
        (404, xml("NoSuchKey"), False),
        (404, xml("NoSuchBucket"), False),
        (403, "", False),
    ],
)
def test_a_404_that_says_nothing_is_unclear(status, body, expected):
    assert is_unclear_404(read_fault(told(status, body))) is expected


def test_our_own_providers_errors_come_back_as_they_were_raised():
    raised = Exception(
        "The operation lacked valid authentication credentials for path External AWS credential provider: "
        "DeniedError: AWS credentials: none found\n\nDebug source:\nUnauthenticated {\n    source: PyErr {\n"
        "        type: <class 'reprieve.core.errors.DeniedError'>,\n        value: DeniedError('none found'),\n"
    )
    error = raised_by_us(raised)
    assert isinstance(error, DeniedError)
    assert str(error) == "AWS credentials: none found"
