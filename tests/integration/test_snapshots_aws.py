"""EBS snapshots through the real boto3, against EC2 on loopback: what the contract does not ask of every cloud."""

import os
from datetime import UTC, datetime, timedelta

import pytest

from reprieve.adapters.cloud.aws import AwsSnapshots
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import DeniedError, InvalidError, ThrottledError, UnavailableError, UnknownError
from reprieve.core.outcomes import AlreadyGone, Denied, Done, InUse, Locked, Retryable, Unknown
from tests.integration.cloud_http import GARBAGE, Answer, closed_url
from tests.integration.ec2 import REGION, SOMEBODY_ELSE, THROTTLED, Ec2, refusal

CREDENTIAL = b"""
[default]
aws_access_key_id = DEFAULTKEY
aws_secret_access_key = s
[other]
aws_access_key_id = OTHERKEY
aws_secret_access_key = s
aws_session_token = t
region = eu-west-1
"""


@pytest.fixture
def cloud():
    made = Ec2()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    """No credential, profile or region of this machine."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def opened(cloud, *, credential=CREDENTIAL, timeout=20.0, endpoint=None, **config):
    location = SnapshotLocation("default", "velero.io/aws", {"region": REGION, **config})
    opener = AwsSnapshots(endpoint=cloud.url if endpoint is None else endpoint, timeout=timedelta(seconds=timeout))
    return opener.open(location, credential=credential)


def signed_by(cloud):
    """The access key and region of each call, as its signature names them."""
    scopes = [request.headers["Authorization"].partition("Credential=")[2].split("/") for request in cloud.requests]
    return [(scope[0], scope[2]) for scope in scopes]


def test_a_deleted_snapshot_is_asked_for_once(cloud):
    snapshot = cloud.add()

    assert opened(cloud).delete(snapshot) == Done()
    assert cloud.ids() == set()
    assert len(cloud.requests) == 1


@pytest.mark.parametrize("answer", [THROTTLED, Answer(500), Answer(503, b"")], ids=["throttled", "500", "503"])
def test_the_sdk_does_not_try_again(cloud, answer):
    """velero#1135 asks for classified retries: they are the core's, so that a pause frees the worker."""
    snapshot = cloud.add()
    cloud.faults.next(answer)

    assert isinstance(opened(cloud).delete(snapshot), Retryable)
    assert len(cloud.requests) == 1
    assert snapshot in cloud.ids()


def test_the_pause_that_was_asked_for_comes_along(cloud):
    cloud.faults.next(refusal("SlowDown", "slow", status=503, headers={"Retry-After": "9"}))

    outcome = opened(cloud).delete(cloud.add())

    assert isinstance(outcome, Retryable)
    assert outcome.after == timedelta(seconds=9)


def test_in_use_says_by_what(cloud):
    snapshot = cloud.add()
    cloud.in_use[snapshot] = "ami-1"

    outcome = opened(cloud).delete(snapshot)

    assert isinstance(outcome, InUse)
    assert outcome.message.endswith(f"The snapshot {snapshot} is currently in use by ami-1")


@pytest.mark.parametrize("code", ["OperationNotPermitted", "SnapshotLocked", "InvalidSnapshot.Whatever", "NobodyKnows"])
def test_a_lock_is_told_with_its_date_whatever_the_code_is(cloud, code):
    """EC2's code for a locked snapshot is not documented: the lock itself is asked for."""
    until = datetime(2031, 2, 3, tzinfo=UTC)
    snapshot = cloud.add()
    cloud.lock_refusal, cloud.locked[snapshot] = code, until

    outcome = opened(cloud).delete(snapshot)

    assert isinstance(outcome, Locked)
    assert outcome.until == until
    assert snapshot in cloud.ids()


def test_a_lock_without_a_date(cloud):
    snapshot = cloud.add()
    cloud.locked[snapshot] = None

    outcome = opened(cloud).delete(snapshot)

    assert isinstance(outcome, Locked)
    assert outcome.until is None


@pytest.mark.parametrize(
    ("code", "outcome"), [("OperationNotPermitted", Denied), ("NobodyKnows", Unknown)], ids=["denied", "unknown"]
)
def test_no_lock_changes_nothing(cloud, code, outcome):
    cloud.faults.next(refusal(code, "no"))

    assert isinstance(opened(cloud).delete(cloud.add()), outcome)


def test_a_lock_that_may_not_be_read_is_still_a_lock(cloud):
    snapshot = cloud.add()
    cloud.locked[snapshot] = datetime(2031, 2, 3, tzinfo=UTC)
    cloud.faults.next(
        refusal("UnauthorizedOperation", "no", status=403), when=lambda r: b"DescribeLockedSnapshots" in r.body
    )

    outcome = opened(cloud).delete(snapshot)

    assert isinstance(outcome, Locked)
    assert outcome.until is None


def test_a_plain_refusal_costs_no_further_call(cloud):
    cloud.faults.next(refusal("UnauthorizedOperation", "no", status=403))

    assert isinstance(opened(cloud).delete(cloud.add()), Denied)
    assert len(cloud.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(GARBAGE, id="an HTML page"),
        pytest.param(Answer(200, b""), id="nothing"),
        pytest.param(Answer(200, b"<DeleteSnapshotRes"), id="cut off"),
        pytest.param(Answer(200, b"<OtherResponse/>"), id="the answer to something else"),
        pytest.param(
            Answer(200, b"<DeleteSnapshotResponse><return>false</return></DeleteSnapshotResponse>"),
            id="return is false",
        ),
    ],
)
def test_a_200_is_believed_only_when_it_is_the_answer(cloud, answer):
    """botocore does not look into the answer of DeleteSnapshot at all: any 200 of any proxy counted as deleted."""
    snapshot = cloud.add()
    cloud.faults.next(answer)

    assert isinstance(opened(cloud).delete(snapshot), Unknown)
    assert snapshot in cloud.ids()


def test_not_found_inside_a_200_is_not_found(cloud):
    cloud.faults.next(refusal("InvalidSnapshot.NotFound", "gone", status=200))

    assert opened(cloud).delete(cloud.add()) == AlreadyGone()


@pytest.mark.parametrize("answer", [GARBAGE, Answer(200, b"<OtherResponse/>")], ids=["garbage", "another answer"])
def test_a_list_that_is_none_is_no_empty_list(cloud, answer):
    cloud.add({"velero.io/backup": "nightly"})
    cloud.faults.next(answer)

    with pytest.raises(UnknownError):
        list(opened(cloud).list("velero.io/backup"))


def test_a_list_comes_in_pages_of_ours_alone(cloud):
    ours = {cloud.add({"velero.io/backup": "nightly"}) for _ in range(1500)}
    cloud.add({"velero.io/backup": "nightly"}, owner=SOMEBODY_ELSE)

    assert {snapshot.id for snapshot in opened(cloud).list("velero.io/backup")} == ours
    assert [call.get("NextToken") for call in cloud.calls("DescribeSnapshots")] == [None, "500", "1000"]


def test_a_listed_snapshot_has_size_and_time(cloud):
    cloud.add({"velero.io/backup": "nightly", "Name": "a & b <c>"})
    (found,) = opened(cloud).list("velero.io/backup")

    assert found.provider == "aws"
    assert found.size == 8 * 2**30
    assert found.created is not None
    assert found.created.tzinfo is UTC
    assert dict(found.tags) == {"velero.io/backup": "nightly", "Name": "a & b <c>"}


@pytest.mark.parametrize("tag", ["velero.io/*", "velero.io/backu?", "velero.io\\backup"])
def test_a_tag_with_a_wildcard_means_itself(cloud, tag):
    cloud.add({"velero.io/backup": "nightly"})
    odd = cloud.add({tag: "x"})

    assert [snapshot.id for snapshot in opened(cloud).list(tag)] == [odd]


@pytest.mark.parametrize("value", ["nightl*", "nightl?", "nightl\\y"])
def test_a_value_with_a_wildcard_means_itself(cloud, value):
    """Else a backup called ``nightl*`` would own the snapshots of ``nightly``."""
    cloud.add({"velero.io/backup": "nightly"})
    odd = cloud.add({"velero.io/backup": value})

    assert [snapshot.id for snapshot in opened(cloud).list("velero.io/backup", value)] == [odd]


@pytest.mark.parametrize(
    ("profile", "expected"), [("", ("DEFAULTKEY", REGION)), ("other", ("OTHERKEY", REGION))], ids=["default", "named"]
)
def test_the_profile_of_the_location_signs(cloud, profile, expected):
    config = {"profile": profile} if profile else {}
    opened(cloud, **config).delete(cloud.add())

    assert signed_by(cloud) == [expected]


def test_the_region_may_come_with_the_profile(cloud):
    location = SnapshotLocation("default", "aws", {"profile": "other"})
    AwsSnapshots(endpoint=cloud.url).open(location, credential=CREDENTIAL).delete(cloud.add())

    assert signed_by(cloud) == [("OTHERKEY", "eu-west-1")]


def test_a_secret_without_a_key_does_not_fall_back_on_this_machine(cloud, monkeypatch):
    """Whoever names a Secret wants that account: deleting with the pod's own would be another one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AMBIENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")

    with pytest.raises(InvalidError, match="has no aws_access_key_id and no aws_secret_access_key"):
        opened(cloud, credential=b"[default]\nregion = eu-west-1\n")


def test_the_default_chain_without_a_secret(cloud, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AMBIENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)

    assert opened(cloud, credential=None, endpoint="").delete(cloud.add()) == Done()
    assert signed_by(cloud) == [("AMBIENT", REGION)]


def test_no_credentials_at_all_is_denied_and_asks_nothing(cloud):
    assert isinstance(opened(cloud, credential=None).delete(cloud.add()), Denied)
    assert cloud.requests == []


def test_no_region_is_told_when_opening():
    with pytest.raises(InvalidError, match=r"snapshot location default: spec\.config\.region is missing"):
        AwsSnapshots().open(SnapshotLocation("default", "aws"), credential=CREDENTIAL.partition(b"[other]")[0])


def test_a_profile_without_a_secret_is_told_when_opening(cloud):
    with pytest.raises(InvalidError, match=r"spec\.config\.profile 'nobody' is a profile of the Secret"):
        opened(cloud, credential=None, profile="nobody")


def test_a_region_that_is_none_is_invalid(cloud):
    with pytest.raises(InvalidError, match="region"):
        opened(cloud, region="us east!").get(cloud.add())


ROLE = b"""[default]
role_arn = arn:aws:iam::123456789012:role/velero
source_profile = source
external_id = x-1
duration_seconds = 3600

[source]
aws_access_key_id = SOURCEKEY
aws_secret_access_key = s
"""


def test_a_role_is_taken_on_with_keys_of_the_secret_and_without_a_file(cloud, tmp_path, monkeypatch):
    """Botocore reads such profiles from files only; ours are made of values."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.url)
    monkeypatch.setenv("AWS_PROFILE", "of this machine")

    outcome = opened(cloud, credential=ROLE).delete(cloud.add())

    (asked,) = cloud.calls("AssumeRole")
    assert asked["RoleArn"] == "arn:aws:iam::123456789012:role/velero"
    assert (asked["ExternalId"], asked["DurationSeconds"], asked["RoleSessionName"]) == ("x-1", "3600", "reprieve")
    assert outcome == Done()
    assert signed_by(cloud)[0] == ("SOURCEKEY", REGION)
    assert signed_by(cloud)[1] != ("SOURCEKEY", REGION)
    assert list(tmp_path.iterdir()) == []


def test_a_role_is_not_taken_on_at_an_endpoint_for_everything(cloud, monkeypatch):
    """AWS_ENDPOINT_URL is for a store that resembles AWS: the keys that may take a role on are none of its business."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    monkeypatch.setenv("HTTPS_PROXY", closed_url())

    assert isinstance(opened(cloud, credential=ROLE).delete(cloud.add()), Retryable)
    assert cloud.requests == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(refusal("UnauthorizedOperation", "no", status=403), DeniedError, id="denied"),
        pytest.param(THROTTLED, ThrottledError, id="throttled"),
        pytest.param(Answer(502, b"<html>"), UnavailableError, id="unavailable"),
    ],
)
def test_reads_raise_what_a_deletion_reports(cloud, answer, error):
    cloud.faults.next(answer, times=2)
    store, snapshot = opened(cloud), cloud.add()

    with pytest.raises(error):
        store.get(snapshot)
    with pytest.raises(error):
        list(store.list("velero.io/backup"))
