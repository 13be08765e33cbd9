"""Managed-disk snapshots through the real azure-mgmt-compute, against ARM on loopback.

What the contract does not ask of every cloud.
"""

import os
from datetime import timedelta

import pytest
from azure.core.pipeline.policies import SansIOHTTPPolicy

from reprieve.adapters.cloud.azure import AzureSnapshots
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import ContainerMissingError, InvalidError, ReprieveError, UnknownError
from reprieve.core.outcomes import AlreadyGone, Denied, Done, InUse, Invalid, Locked, Pending, Retryable, Unknown
from tests.integration.azure_compute import GROUP, PREFIX, SUBSCRIPTION, AzureCompute, is_delete, refusal
from tests.integration.cloud_http import GARBAGE, Answer
from tests.integration.contract_snapshots import AZURE_FILE

OTHER = "ffffffff-1bf0-4dda-aec3-111122223333"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cloud():
    made = AzureCompute()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """No credential of this machine."""
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)


def opened(cloud, *, clock=None, credential=AZURE_FILE, **config):
    opener = AzureSnapshots(
        endpoint=cloud.url,
        authentication_policy=SansIOHTTPPolicy(),
        timeout=timedelta(seconds=20),
        clock=clock or Clock(),
    )
    return opener.open(SnapshotLocation("default", "velero.io/azure", config), credential=credential)


def asked(cloud):
    return [(request.method, request.path.split("/")[-2]) for request in cloud.requests]


@pytest.mark.parametrize("header", ["Azure-AsyncOperation", "Operation-Location", "Location"])
def test_accepted_is_not_done(cloud, header):
    """An operation is followed, one call for each time that it is asked for, and never waited for."""
    cloud.follow_by, cloud.polls = header, 2
    store, snapshot = opened(cloud), cloud.add()

    outcomes = [store.delete(snapshot) for _ in range(3)]

    assert [type(outcome) for outcome in outcomes] == [Pending, Pending, Done]
    assert outcomes[0].after == timedelta(seconds=1)
    assert asked(cloud) == [("GET", "snapshots"), ("DELETE", "snapshots"), ("GET", "operations"), ("GET", "operations")]
    assert cloud.ids() == set()


def test_a_delete_without_an_operation_is_done_when_the_snapshot_is_gone(cloud):
    cloud.follow_by = ""
    store, snapshot = opened(cloud), cloud.add()

    assert [type(store.delete(snapshot)) for _ in range(2)] == [Pending, Done]


def test_a_200_without_an_operation_is_believed_when_the_snapshot_is_gone(cloud):
    store, snapshot = opened(cloud), cloud.add()
    cloud.faults.next(Answer(200), when=is_delete)

    assert [type(store.delete(snapshot)) for _ in range(2)] == [Pending, Pending]
    cloud.snapshots.clear()
    assert store.delete(snapshot) == Done()


def test_an_absent_snapshot_is_already_gone_and_is_not_deleted(cloud):
    """ARM answers 204 to a delete of what was never there, as it does to one that worked.

    So the snapshot is asked for first.
    """
    assert opened(cloud).delete(f"{PREFIX}/absent") == AlreadyGone()
    assert asked(cloud) == [("GET", "snapshots")]


def test_one_that_goes_between_the_two_calls_is_already_gone(cloud):
    snapshot = cloud.add()
    cloud.faults.next(Answer(204), when=is_delete)

    assert opened(cloud).delete(snapshot) == AlreadyGone()


def test_an_operation_that_failed_with_200_has_failed(cloud):
    store, snapshot = opened(cloud), cloud.add()
    cloud.ends_in[snapshot.rpartition("/")[2]] = ("OperationNotAllowed", "an active shared access signature")

    assert isinstance(store.delete(snapshot), Pending)
    failed = store.delete(snapshot)

    assert isinstance(failed, InUse)
    assert "an active shared access signature" in failed.message
    assert snapshot in cloud.ids()


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        pytest.param({"status": "Canceled"}, Unknown, id="cancelled"),
        pytest.param({"status": "Failed"}, Unknown, id="failed, without a reason"),
        pytest.param({"status": "Failed", "error": {"code": "ScopeLocked"}}, Locked, id="failed: locked"),
        pytest.param(
            {"status": "Failed", "error": {"code": "InternalExecutionError"}}, Retryable, id="failed: internal"
        ),
        pytest.param({"status": "Deleting"}, Pending, id="a state nobody knows: not ended"),
        pytest.param({}, Unknown, id="no state"),
    ],
)
def test_states_of_an_operation(cloud, state, outcome):
    store, snapshot = opened(cloud), cloud.add()
    store.delete(snapshot)
    cloud.faults.next(Answer.of_json(state))

    assert isinstance(store.delete(snapshot), outcome)
    assert snapshot in cloud.ids()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(refusal(429, "TooManyRequests", "slow"), Retryable, id="throttled"),
        pytest.param(Answer(503), Retryable, id="unavailable"),
        pytest.param(refusal(403, "AuthorizationFailed", "no"), Denied, id="denied"),
        pytest.param(GARBAGE, Unknown, id="garbage"),
    ],
)
def test_an_operation_that_cannot_be_asked_is_asked_again(cloud, answer, outcome):
    store, snapshot = opened(cloud), cloud.add()
    store.delete(snapshot)
    cloud.faults.next(answer)

    assert isinstance(store.delete(snapshot), outcome)
    assert store.delete(snapshot) == Done()
    assert [method for method, _ in asked(cloud)].count("DELETE") == 1


def test_an_operation_that_nobody_knows_any_more_is_begun_again(cloud):
    store, snapshot = opened(cloud), cloud.add()
    store.delete(snapshot)
    cloud.operations.clear()

    assert [type(store.delete(snapshot)) for _ in range(2)] == [Pending, Done]


@pytest.mark.parametrize("header", ["Azure-AsyncOperation", "Location", ""])
def test_an_operation_that_does_not_end_is_given_up_and_counted(cloud, header):
    """velero#3701: one deletion hangs for ever. Pending costs no attempt, so it must not go on without end."""
    clock, cloud.polls, cloud.follow_by = Clock(), 100, header or "None"
    store, snapshot = opened(cloud, clock=clock, apiTimeout="1m30s"), cloud.add()
    store.delete(snapshot)
    clock.now = 90.0
    assert isinstance(store.delete(snapshot), Pending)

    clock.now = 90.5
    given_up = store.delete(snapshot)

    assert isinstance(given_up, Retryable)
    assert "has not ended within apiTimeout 0:01:30" in given_up.message
    assert isinstance(store.delete(snapshot), Pending)


@pytest.mark.parametrize("answer", [Answer(500), refusal(429, "TooManyRequests", "slow", headers={"Retry-After": "5"})])
def test_the_sdk_does_not_try_again(cloud, answer):
    snapshot = cloud.add()
    cloud.faults.next(answer, times=3)
    store = opened(cloud)

    assert isinstance(store.delete(snapshot), Retryable)
    with pytest.raises(ReprieveError):
        store.get(snapshot)
    with pytest.raises(ReprieveError):
        list(store.list("velero.io/backup"))
    assert len(cloud.requests) == 3


def test_the_pause_that_was_asked_for_comes_along(cloud):
    cloud.faults.next(refusal(429, "TooManyRequests", "slow", headers={"Retry-After": "17"}))

    outcome = opened(cloud).delete(cloud.add())

    assert isinstance(outcome, Retryable)
    assert outcome.after == timedelta(seconds=17)


def test_a_snapshot_of_another_subscription_than_the_location_s_is_not_touched(cloud):
    snapshot = cloud.add().replace(SUBSCRIPTION, OTHER)

    outcome = opened(cloud).delete(snapshot)

    assert isinstance(outcome, Invalid)
    assert OTHER in outcome.message
    assert SUBSCRIPTION in outcome.message
    assert cloud.requests == []


def test_without_a_subscription_of_its_own_a_location_works_in_the_id_s(cloud):
    credential = b"AZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c\nAZURE_CLIENT_SECRET=s\n"
    store, snapshot = opened(cloud, credential=credential), cloud.add()

    assert [type(store.delete(snapshot)) for _ in range(2)] == [Pending, Done]
    with pytest.raises(InvalidError, match="names no subscriptionId"):
        list(store.list("velero.io/backup"))


def test_a_missing_subscription_is_a_missing_container(cloud):
    store = opened(cloud, subscriptionId=OTHER)

    with pytest.raises(ContainerMissingError, match="SubscriptionNotFound"):
        store.get(f"{PREFIX}/a".replace(SUBSCRIPTION, OTHER))


def test_ids_have_no_case(cloud):
    """Azure gives ids back in whatever case it likes; a record keeps the one it saw."""
    store, snapshot = opened(cloud), cloud.add()
    spelled = snapshot.replace("resourceGroups", "resourcegroups").replace(GROUP, GROUP.upper())

    assert store.get(spelled).id == snapshot
    assert [type(store.delete(spelled)) for _ in range(2)] == [Pending, Done]


@pytest.mark.parametrize("group", [GROUP, ""], ids=["a resource group", "the whole subscription"])
def test_a_list_is_of_the_group_or_of_the_subscription(cloud, group):
    credential = AZURE_FILE.replace(f"AZURE_RESOURCE_GROUP={GROUP}".encode(), f"AZURE_RESOURCE_GROUP={group}".encode())
    snapshot = cloud.add({"velero.io/backup": "nightly"})

    (found,) = opened(cloud, credential=credential).list("velero.io/backup")

    assert found.id == snapshot
    assert ("resourceGroups" in cloud.requests[0].path) is bool(group)


def test_a_listed_snapshot_has_size_and_time(cloud):
    cloud.add({"velero.io/backup": "nightly", "velero.io/pv": "pv-1"})
    (found,) = opened(cloud).list("velero.io/backup")

    assert found.size == 8 * 2**30
    assert found.created is not None
    assert dict(found.tags) == {"velero.io/backup": "nightly", "velero.io-pv": "pv-1"}


def test_the_environment_s_file_without_a_secret(cloud, monkeypatch, tmp_path):
    """Velero's plugin reads its default credential from the file that AZURE_CREDENTIALS_FILE names."""
    file = tmp_path / "azure"
    file.write_bytes(AZURE_FILE)
    monkeypatch.setenv("AZURE_CREDENTIALS_FILE", str(file))
    snapshot = cloud.add()

    assert opened(cloud, credential=None).get(snapshot).id == snapshot


def test_a_file_that_cannot_be_read_is_told_when_opening(cloud, monkeypatch, tmp_path):
    monkeypatch.setenv("AZURE_CREDENTIALS_FILE", str(tmp_path / "none"))

    with pytest.raises(InvalidError, match="cannot be read: No such file"):
        opened(cloud, credential=None)


def test_another_snapshot_than_the_one_asked_for_is_no_answer(cloud):
    first, second = cloud.add(), cloud.add()
    cloud.faults.next(Answer.of_json(cloud.snapshots[second.rpartition("/")[2]]))

    with pytest.raises(UnknownError, match=second.rpartition("/")[2]):
        opened(cloud).get(first)


def test_a_list_that_is_none_is_no_empty_list(cloud):
    cloud.faults.next(GARBAGE)

    with pytest.raises(UnknownError):
        list(opened(cloud).list("velero.io/backup"))
