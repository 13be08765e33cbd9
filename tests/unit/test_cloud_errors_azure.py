"""Azure: every error of the SDK and of ARM that a deletion can meet, as raised, and what the core calls it."""

import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from azure.core import exceptions as core
from azure.identity import CredentialUnavailableError
from azure.mgmt.core.exceptions import ARMErrorFormat

from reprieve.adapters.cloud.azure import (
    ERRORS,
    Account,
    SnapshotPath,
    arm_cloud,
    check_identity,
    operation_fault,
    operation_state,
    parse_id,
    read_account,
    read_duration,
    read_fault,
    read_tags,
)
from reprieve.adapters.cloud.tables import build_error, error_for
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

SUBSCRIPTION = "0b1f6471-1bf0-4dda-aec3-111122223333"
ID = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/backups/providers/Microsoft.Compute/snapshots/disk-1"
CLASSES = {401: core.ClientAuthenticationError, 404: core.ResourceNotFoundError, 409: core.ResourceExistsError}


def response(status, document, headers=None):
    text = document if isinstance(document, str) else json.dumps(document)
    return SimpleNamespace(
        status_code=status,
        reason="",
        headers=headers or {},
        text=lambda *_: text,
        json=lambda: json.loads(text),
        body=text.encode,
        content_type="application/json",
    )


def answered(status, code="", message="", *, headers=None, body=None):
    """The exception that the SDK makes of an HTTP answer: the class by status, the code from ARM's error document."""
    document = {"error": {"code": code, "message": message}} if body is None else body
    kind = CLASSES.get(status, core.HttpResponseError)
    return kind(response=response(status, document, headers), error_format=ARMErrorFormat)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(answered(404, "ResourceNotFound"), NotFoundError, id="the snapshot"),
        pytest.param(
            answered(404, "NotFound", "Snapshot disk-1 is not found."), NotFoundError, id="a snapshot, by its name"
        ),
        pytest.param(answered(404, "NotFound", "The requested path does not exist."), UnknownError, id="a wrong path"),
        pytest.param(answered(404, "ResourceGroupNotFound"), ContainerMissingError, id="the resource group"),
        pytest.param(answered(404, "SubscriptionNotFound"), ContainerMissingError, id="the subscription"),
        pytest.param(answered(404, body="<html>"), UnknownError, id="404 of somebody else"),
        pytest.param(answered(404, body=""), UnknownError, id="an empty 404"),
        pytest.param(answered(404, "SomethingNew"), UnknownError, id="404 with another code"),
        pytest.param(answered(409, "OperationNotAllowed"), InUseError, id="in use"),
        pytest.param(answered(409, "ScopeLocked"), LockedError, id="a management lock"),
        pytest.param(answered(403, "RequestDisallowedByPolicy"), LockedError, id="a policy that denies deleting"),
        pytest.param(answered(409, "Conflict"), ConflictError, id="a conflict"),
        pytest.param(answered(409, "SomethingNew"), ConflictError, id="any other 409"),
        pytest.param(answered(412, "PreconditionFailed"), ConflictError, id="412"),
        pytest.param(answered(401, "ExpiredAuthenticationToken"), DeniedError, id="an expired token"),
        pytest.param(answered(401, "InvalidAuthenticationTokenTenant"), DeniedError, id="another tenant"),
        pytest.param(answered(403, "AuthorizationFailed"), DeniedError, id="no permission"),
        pytest.param(answered(403, body=""), DeniedError, id="any other 403"),
        pytest.param(answered(429, "OperationNotAllowed"), ThrottledError, id="429, whatever its code"),
        pytest.param(answered(429, "TooManyRequests"), ThrottledError, id="429"),
        pytest.param(answered(400, "InvalidParameter"), InvalidError, id="malformed"),
        pytest.param(answered(400, "InvalidSubscriptionId"), InvalidError, id="a malformed subscription"),
        pytest.param(answered(400, body=""), InvalidError, id="any other 400"),
        pytest.param(answered(500, "InternalServerError"), UnavailableError, id="500"),
        pytest.param(answered(503, body="<html>"), UnavailableError, id="503"),
        pytest.param(answered(504, "GatewayTimeout"), UnavailableError, id="504"),
        pytest.param(answered(418, "Teapot"), UnknownError, id="a teapot"),
        pytest.param(core.ServiceRequestError("refused"), UnavailableError, id="refused, no such host, TLS"),
        pytest.param(core.ServiceRequestTimeoutError("slow"), UnavailableError, id="connect time-out"),
        pytest.param(core.ServiceResponseError("cut"), UnavailableError, id="cut off"),
        pytest.param(core.ServiceResponseTimeoutError("slow"), UnavailableError, id="read time-out"),
        pytest.param(core.IncompleteReadError("half"), UnavailableError, id="half an answer"),
        pytest.param(core.ClientAuthenticationError("no"), DeniedError, id="a wrong credential"),
        pytest.param(CredentialUnavailableError("none"), DeniedError, id="no credentials"),
        pytest.param(core.DecodeError("no JSON"), UnknownError, id="garbage"),
        pytest.param(core.DeserializationError("no date"), UnknownError, id="an answer of another shape"),
        pytest.param(ValueError("ResourceNotFound"), UnknownError, id="anything else"),
    ],
)
def test_exceptions(error, expected):
    assert error_for(read_fault(error), ERRORS) is expected


def test_the_pause_that_was_asked_for_comes_along():
    error = build_error(read_fault(answered(429, "TooManyRequests", headers={"Retry-After": "17"})), ERRORS, what="w")

    assert isinstance(error, ThrottledError)
    assert error.after == timedelta(seconds=17)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("OperationNotAllowed", InUseError),
        ("ScopeLocked", LockedError),
        ("ResourceNotFound", NotFoundError),
        ("ResourceGroupNotFound", ContainerMissingError),
        ("AuthorizationFailed", DeniedError),
        ("InternalExecutionError", UnavailableError),
        ("NotFound", UnknownError),
        ("", UnknownError),
    ],
)
def test_errors_of_operations(code, expected):
    """An operation that failed answers with HTTP 200; the inner code is all there is."""
    fault = operation_fault(response(200, {"status": "Failed", "error": {"code": code, "message": "m"}}))

    assert fault is not None
    assert error_for(fault, ERRORS) is expected


@pytest.mark.parametrize("document", ["", "{}", '{"status":"Failed"}', '{"error":"text"}'])
def test_no_error_inside(document):
    assert operation_fault(response(200, document)) is None


@pytest.mark.parametrize(
    ("status", "document", "own", "state"),
    [
        pytest.param(200, '{"status":"InProgress"}', True, "InProgress", id="runs"),
        pytest.param(200, '{"status":"Succeeded"}', True, "Succeeded", id="ended"),
        pytest.param(200, '{"status":7}', True, "", id="a status that is none"),
        pytest.param(200, "<html>", True, "", id="garbage"),
        pytest.param(200, "[]", True, "", id="a list"),
        pytest.param(202, "", False, "Running", id="by Location: accepted"),
        pytest.param(204, "", False, "Succeeded", id="by Location: nothing there"),
        pytest.param(200, "", False, "Succeeded", id="by Location: ended"),
        pytest.param(200, "<html>", False, "", id="by Location: garbage"),
    ],
)
def test_the_state_of_an_operation(status, document, own, state):
    assert operation_state(response(status, document), own_state=own) == state


@pytest.mark.parametrize("snapshot", [ID, ID.replace("resourceGroups", "resourcegroups"), ID.upper()])
def test_ids(snapshot):
    path = parse_id(snapshot)

    assert path == SnapshotPath(*[snapshot.split("/")[index] for index in (2, 4, 8)])


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param("", id="empty"),
        pytest.param("disk-1", id="a bare name"),
        pytest.param(ID[1:], id="no slash at the start"),
        pytest.param(f"{ID}/", id="a slash at the end"),
        pytest.param(f"{ID}/x", id="a part too many"),
        pytest.param(f"{ID}\n", id="a line feed"),
        pytest.param(f"{ID}?x=1", id="a query"),
        pytest.param(f"https://management.azure.com{ID}", id="a URL"),
        pytest.param(ID.replace("snapshots", "disks"), id="a disk"),
        pytest.param(ID.replace(SUBSCRIPTION, "not-a-guid"), id="no subscription"),
        pytest.param(ID.replace("backups", ""), id="no group"),
        pytest.param(ID.replace("backups", "a/../b"), id="a path in the group"),
        pytest.param(ID.replace("backups", "ends."), id="a group that ends with a dot"),
        pytest.param(ID.replace("disk-1", ".."), id="a path as name"),
        pytest.param(ID.replace("disk-1", "a" * 81), id="a name too long"),
        pytest.param(ID.replace("disk-1", "a%2Fb"), id="an escaped slash"),
    ],
)
def test_malformed_ids(snapshot):
    with pytest.raises(InvalidError, match="is not the id of a snapshot"):
        parse_id(snapshot)


def test_tags_get_back_the_name_that_was_asked_for():
    tags = {"Velero.io-backup": "nightly", "velero.io-pv": "pv-1"}

    assert read_tags(tags, "velero.io/backup") == {"velero.io/backup": "nightly", "velero.io-pv": "pv-1"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("2m", 120), ("1h30m", 5400), ("90s", 90), ("1.5m", 90), ("500ms", 0.5), ("1h0m0s", 3600)]
)
def test_durations(text, seconds):
    assert read_duration(text, "w") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "2", "m", "2 m", "-2m", "2d", "0s", "2m!", "two minutes"])
def test_durations_of_no_use(text):
    with pytest.raises(InvalidError, match=r"snapshot location x: apiTimeout .* is not a duration like 2m or 1h30m"):
        read_duration(text, "snapshot location x")


def account(**values):
    return Account("location x", "", "", timedelta(minutes=2), values, from_secret=True)


def test_half_an_identity_is_refused():
    with pytest.raises(InvalidError, match="has no AZURE_TENANT_ID and no AZURE_CLIENT_ID"):
        check_identity(account(AZURE_CLIENT_SECRET="TOPSECRET"))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="none: the pod's own"),
        pytest.param({"AZURE_CLIENT_ID": "c"}, id="a managed identity"),
        pytest.param({"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}, id="a secret"),
    ],
)
def test_a_whole_identity_is_taken(values):
    assert check_identity(account(**values)) is None


def test_an_account_shows_no_secret():
    assert "TOPSECRET" not in repr(account(AZURE_CLIENT_SECRET="TOPSECRET"))


@pytest.mark.parametrize(
    ("name", "cloud"),
    [
        ("", "AZURE_PUBLIC_CLOUD"),
        ("AzurePublicCloud", "AZURE_PUBLIC_CLOUD"),
        ("AZUREUSGOVERNMENTCLOUD", "AZURE_US_GOVERNMENT"),
        ("AzureChinaCloud", "AZURE_CHINA_CLOUD"),
    ],
)
def test_clouds(name, cloud):
    assert arm_cloud({"AZURE_CLOUD_NAME": name})[0] == cloud


def test_an_unknown_cloud():
    with pytest.raises(InvalidError, match="AZURE_CLOUD_NAME 'AzureMoonCloud' is none of AzurePublicCloud"):
        arm_cloud({"AZURE_CLOUD_NAME": "AzureMoonCloud"})


def test_the_location_goes_before_the_credential():
    location = SnapshotLocation("x", "azure", {"subscriptionId": SUBSCRIPTION, "apiTimeout": "5m"})
    found = read_account(location, b"AZURE_SUBSCRIPTION_ID=other\nAZURE_RESOURCE_GROUP=cluster\n")

    assert (found.subscription, found.group, found.api_timeout) == (SUBSCRIPTION, "cluster", timedelta(minutes=5))


def test_a_malformed_subscription_is_refused():
    with pytest.raises(InvalidError, match="subscriptionId 'prod' is not the id of a subscription"):
        read_account(SnapshotLocation("x", "azure", {"subscriptionId": "prod"}), None)
