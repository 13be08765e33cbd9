"""AWS: every error of boto3 and EC2 that a deletion can meet, as the SDK raises it, and what the core calls it."""

from datetime import timedelta

import botocore.exceptions as sdk
import pytest
from urllib3.exceptions import NameResolutionError, NewConnectionError

from reprieve.adapters.cloud.aws import ERRORS, check_id, escape, read_fault
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

URL = "https://ec2.us-east-1.amazonaws.com/"


def said(code, *, status=400, message="", headers=None):
    meta = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}, "RetryAttempts": 0}
    return sdk.ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": meta}, "DeleteSnapshot")


CODES = {
    NotFoundError: ["InvalidSnapshot.NotFound", "Client.InvalidSnapshot.NotFound"],
    InUseError: ["InvalidSnapshot.InUse", "DependencyViolation"],
    LockedError: ["SnapshotLocked", "InvalidSnapshot.Locked"],
    DeniedError: [
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "OperationNotPermitted",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "OptInRequired",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "MissingAuthenticationToken",
    ],
    ThrottledError: [
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "EC2ThrottledException",
        "RequestThrottled",
        "SlowDown",
        "TooManyRequestsException",
    ],
    ConflictError: ["IncorrectState"],
    InvalidError: [
        "InvalidSnapshotID.Malformed",
        "InvalidParameterValue",
        "InvalidParameterCombination",
        "MissingParameter",
        "UnknownParameter",
        "ValidationError",
    ],
    UnavailableError: ["InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "RequestTimeout"],
    UnknownError: ["DryRunOperation", "SomethingNew", "", "InvalidSnapshot.NotFoundEither", "404"],
}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(code, error, id=f"{code or 'none'}-{error.__name__}")
        for error, codes in CODES.items()
        for code in codes
    ],
)
def test_codes(code, expected):
    assert error_for(read_fault(said(code)), ERRORS) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            said("RequestLimitExceeded", status=503), ThrottledError, id="throttled with 503, not unavailable"
        ),
        pytest.param(said("Anything", status=429), ThrottledError, id="429"),
        pytest.param(said("503", status=503), UnavailableError, id="an empty 503"),
        pytest.param(said("502", status=502), UnavailableError, id="a load balancer's 502"),
        pytest.param(said("404", status=404), UnknownError, id="404 without a code"),
        pytest.param(
            said("OperationNotPermitted", message="The snapshot snap-1 is locked and can not be deleted."),
            LockedError,
            id="a lock, told by the message",
        ),
        pytest.param(
            said("UnauthorizedOperation", message="explicit deny; the account is locked"), DeniedError, id="no lock"
        ),
        pytest.param(said("Throttling", message=None), ThrottledError, id="no message"),
        pytest.param(sdk.EndpointConnectionError(endpoint_url=URL), UnavailableError, id="refused"),
        pytest.param(sdk.ConnectTimeoutError(endpoint_url=URL), UnavailableError, id="connect time-out"),
        pytest.param(sdk.ReadTimeoutError(endpoint_url=URL), UnavailableError, id="read time-out"),
        pytest.param(sdk.ConnectionClosedError(endpoint_url=URL), UnavailableError, id="cut off"),
        pytest.param(sdk.SSLError(endpoint_url=URL, error="certificate"), UnavailableError, id="TLS"),
        pytest.param(sdk.ProxyConnectionError(proxy_url=URL), UnavailableError, id="proxy"),
        pytest.param(sdk.HTTPClientError(error="x"), UnavailableError, id="anything on the way"),
        pytest.param(sdk.NoCredentialsError(), DeniedError, id="no credentials"),
        pytest.param(sdk.PartialCredentialsError(provider="env", cred_var="x"), DeniedError, id="half a credential"),
        pytest.param(sdk.CredentialRetrievalError(provider="p", error_msg="x"), DeniedError, id="credential not had"),
        pytest.param(sdk.TokenRetrievalError(provider="p", error_msg="x"), DeniedError, id="token not had"),
        pytest.param(sdk.UnauthorizedSSOTokenError(), DeniedError, id="expired single sign-on"),
        pytest.param(sdk.ParamValidationError(report="x"), InvalidError, id="refused by the SDK"),
        pytest.param(sdk.NoRegionError(), InvalidError, id="no region"),
        pytest.param(sdk.InvalidRegionError(region_name="no region"), InvalidError, id="a malformed region"),
        pytest.param(sdk.ProfileNotFound(profile="x"), InvalidError, id="no such profile"),
        pytest.param(sdk.ConfigParseError(path="x"), InvalidError, id="a broken file"),
        pytest.param(
            sdk.UnknownEndpointError(service_name="ec2", region_name="x"), ContainerMissingError, id="no endpoint"
        ),
        pytest.param(sdk.PaginationError(message="same token twice"), UnknownError, id="pages in a circle"),
        pytest.param(KeyError("Snapshots"), UnknownError, id="an answer with a part missing"),
    ],
)
def test_exceptions(error, expected):
    assert error_for(read_fault(error), ERRORS) is expected


def test_a_refusal_and_a_host_without_an_address_are_told_apart():
    """botocore raises one class for both; the cause is kept."""
    dns = sdk.EndpointConnectionError(endpoint_url=URL, error=NameResolutionError("ec2.x.invalid", None, OSError("no")))
    refused = sdk.EndpointConnectionError(endpoint_url=URL, error=NewConnectionError(None, "refused"))

    assert "NameResolutionError" in read_fault(dns).classes
    assert "NameResolutionError" not in read_fault(refused).classes
    assert error_for(read_fault(dns), ERRORS) is UnavailableError


def test_the_pause_that_was_asked_for_comes_along():
    error = build_error(read_fault(said("SlowDown", status=503, headers={"retry-after": "7"})), ERRORS, what="w")

    assert isinstance(error, ThrottledError)
    assert error.after == timedelta(seconds=7)


@pytest.mark.parametrize("snapshot", ["snap-01234567", "snap-0123456789abcdef0"])
def test_ids(snapshot):
    check_id(snapshot)


@pytest.mark.parametrize(
    "snapshot", ["", "snap-", "snap-0123456", "snap-0123456789ABCDEF0", "vol-01234567", "snap-01234567 "]
)
def test_malformed_ids(snapshot):
    with pytest.raises(InvalidError, match="is not the id of an EBS snapshot"):
        check_id(snapshot)


def test_a_tag_with_wildcards_means_itself():
    assert escape(r"a*b?c\d") == r"a\*b\?c\\d"
