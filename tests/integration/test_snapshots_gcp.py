"""Disk snapshots through the real google-cloud-compute, against Compute Engine on loopback.

What the contract does not ask of every cloud.
"""

import json
import os
from datetime import timedelta

import pytest

from reprieve.adapters.cloud.gcp import DEADLINE, POLL, GcpSnapshots
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import InvalidError, UnavailableError, UnknownError
from reprieve.core.outcomes import AlreadyGone, Conflict, Denied, Done, InUse, Pending, Retryable, Unknown
from tests.integration.cloud_http import GARBAGE, Answer
from tests.integration.gcp_compute import PROJECT, GcpCompute, is_delete, refusal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cloud():
    made = GcpCompute()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """No credential and no project of this machine, and no look for a metadata server."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "GCLOUD_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")


def opened(cloud, *, clock=None, credential=None, **config):
    opener = GcpSnapshots(endpoint=cloud.url, timeout=timedelta(seconds=20), clock=clock or Clock())
    location = SnapshotLocation("default", "velero.io/gcp", config)
    return opener.open(location, credential=cloud.credential() if credential is None else credential)


def asked(cloud):
    return [(request.method, request.path.rpartition("/")[2].rpartition("-")[0]) for request in cloud.requests]


def test_accepted_is_not_done(cloud):
    """An operation is followed, one call for each time that it is asked for, and never waited for."""
    cloud.polls = 3
    store, snapshot = opened(cloud), cloud.add()

    outcomes = [store.delete(snapshot) for _ in range(4)]

    assert [type(outcome) for outcome in outcomes] == [Pending, Pending, Pending, Done]
    assert outcomes[0].after == POLL
    assert asked(cloud) == [("DELETE", "disk"), *[("GET", "operation")] * 3]
    assert cloud.ids() == set()


def test_an_operation_that_is_done_at_once(cloud):
    snapshot = cloud.add()
    cloud.faults.next(Answer.of_json({"name": "operation-1", "status": "DONE"}), when=is_delete)

    assert opened(cloud).delete(snapshot) == Done()


def test_an_operation_that_failed_is_not_taken_for_done(cloud):
    """An operation raises nothing when it has failed; whoever does not look counts the snapshot as deleted."""
    store, snapshot = opened(cloud), cloud.add()
    cloud.ends_in[snapshot] = (400, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "used by an image")

    assert isinstance(store.delete(snapshot), Pending)
    assert isinstance(store.delete(snapshot), InUse)
    assert snapshot in cloud.ids()


def test_after_a_failed_operation_the_delete_is_asked_for_again(cloud):
    store, snapshot = opened(cloud), cloud.add()
    cloud.ends_in[snapshot] = (400, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "used by an image")
    store.delete(snapshot)
    store.delete(snapshot)
    cloud.ends_in.clear()

    assert [type(store.delete(snapshot)) for _ in range(2)] == [Pending, Done]


def test_an_operation_that_nobody_knows_any_more_is_begun_again(cloud):
    store, snapshot = opened(cloud), cloud.add()
    store.delete(snapshot)
    cloud.operations.clear()

    assert [type(store.delete(snapshot)) for _ in range(2)] == [Pending, Done]


def test_after_a_restart_the_delete_is_asked_for_again(cloud):
    snapshot = cloud.add()
    opened(cloud).delete(snapshot)

    assert [type(opened(cloud).delete(snapshot))] == [Pending]


def test_an_operation_that_ended_while_nobody_asked(cloud):
    store, snapshot = opened(cloud), cloud.add()
    store.delete(snapshot)
    cloud.snapshots.clear()
    cloud.operations.clear()

    assert store.delete(snapshot) == AlreadyGone()


def test_an_operation_that_does_not_end_is_given_up_and_counted(cloud):
    """velero#3701: one deletion hangs for ever. Pending costs no attempt, so it must not go on without end."""
    clock, cloud.polls = Clock(), 100
    store, snapshot = opened(cloud, clock=clock), cloud.add()
    store.delete(snapshot)
    clock.now = DEADLINE.total_seconds()
    assert isinstance(store.delete(snapshot), Pending)

    clock.now += 1
    given_up = store.delete(snapshot)

    assert isinstance(given_up, Retryable)
    assert "has not ended within 0:10:00" in given_up.message
    assert isinstance(store.delete(snapshot), Pending)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(refusal(429, "rateLimitExceeded", "slow"), Retryable, id="throttled"),
        pytest.param(Answer(503), Retryable, id="unavailable"),
        pytest.param(refusal(403, "forbidden", "no"), Denied, id="denied"),
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


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(200, b"{}"), id="an empty document"),
        pytest.param(Answer(200, b""), id="nothing"),
        pytest.param(Answer.of_json({"status": "DONE"}), id="no name"),
        pytest.param(Answer.of_json({"error": {"code": 404, "message": "not found"}}), id="an error with 200"),
        pytest.param(Answer(404, b"<html>"), id="404 of somebody else"),
    ],
)
def test_what_is_no_answer_is_unknown(cloud, answer):
    snapshot = cloud.add()
    cloud.faults.next(answer, when=is_delete)

    assert isinstance(opened(cloud).delete(snapshot), Unknown)
    assert snapshot in cloud.ids()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(refusal(503, "backendError", "busy", headers={"Retry-After": "4"}), Retryable, id="503"),
        pytest.param(refusal(412, "conditionNotMet", "changed"), Conflict, id="412"),
        pytest.param(refusal(401, "authError", "Invalid Credentials"), Denied, id="an expired token"),
    ],
)
def test_a_refused_delete(cloud, answer, outcome):
    cloud.faults.next(answer, when=is_delete, times=3)
    snapshot = cloud.add()

    assert isinstance(opened(cloud).delete(snapshot), outcome)
    assert snapshot in cloud.ids()


@pytest.mark.parametrize("answer", [Answer(503), refusal(429, "rateLimitExceeded", "slow")], ids=["503", "429"])
def test_the_sdk_does_not_try_again(cloud, answer):
    """The SDK's own retry of reads goes on for ten minutes, and no time-out bounds it."""
    snapshot = cloud.add()
    cloud.faults.next(answer, times=3)
    store = opened(cloud)

    assert isinstance(store.delete(snapshot), Retryable)
    with pytest.raises(Exception, match="reading snapshot"):
        store.get(snapshot)
    with pytest.raises(Exception, match="listing snapshots"):
        list(store.list("velero.io/backup"))
    assert len(cloud.requests) == 3


def test_the_project_of_the_location_goes_before_that_of_the_credential(cloud):
    snapshot = cloud.add()

    assert (
        opened(cloud, project=PROJECT, credential=cloud.credential(project_id="someone-elses")).get(snapshot).id
        == snapshot
    )


def test_a_location_may_say_where_snapshots_are_stored(cloud):
    snapshot = cloud.add()

    assert opened(cloud, snapshotLocation="europe-west1").get(snapshot).id == snapshot


def test_the_default_chain_without_a_secret(cloud, monkeypatch, tmp_path):
    file = tmp_path / "key.json"
    file.write_bytes(cloud.credential())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    store = GcpSnapshots(endpoint=cloud.url).open(SnapshotLocation("default", "gcp"))

    assert store.get(cloud.add()).provider == "gcp"


def test_no_credentials_at_all_is_denied_and_asks_nothing(cloud):
    store = GcpSnapshots(endpoint=cloud.url).open(SnapshotLocation("default", "gcp", {"project": PROJECT}))

    assert isinstance(store.delete(cloud.add()), Denied)
    assert cloud.requests == []


def test_no_project_anywhere_is_invalid(cloud):
    info = json.loads(cloud.credential())
    del info["project_id"]
    store = opened(cloud, credential=json.dumps(info).encode())

    with pytest.raises(InvalidError, match=r"spec\.config\.project is missing"):
        store.get(cloud.add())


def test_a_malformed_project_is_told_when_opening(cloud):
    with pytest.raises(InvalidError, match=r"spec\.config\.project 'a/b' is not the id of a project"):
        opened(cloud, project="a/b")


def test_labels_are_tags_too(cloud):
    labelled = cloud.add(labels={"team": "storage"})
    cloud.add(description="team")

    (found,) = opened(cloud).list("team")

    assert (found.id, found.tags["team"]) == (labelled, "storage")


def test_a_list_that_is_not_complete_is_no_list(cloud):
    page = {
        "kind": "compute#snapshotList",
        "items": [],
        "warning": {"code": "UNREACHABLE", "message": "a region is down"},
    }
    cloud.faults.next(Answer.of_json(page))

    with pytest.raises(UnavailableError, match="not complete: UNREACHABLE"):
        list(opened(cloud).list("velero.io/backup"))


def test_an_empty_page_says_so_and_is_fine(cloud):
    page = {"kind": "compute#snapshotList", "warning": {"code": "NO_RESULTS_ON_PAGE", "message": "none"}}
    cloud.faults.next(Answer.of_json(page))

    assert list(opened(cloud).list("velero.io/backup")) == []


def test_another_snapshot_than_the_one_asked_for_is_no_answer(cloud):
    first, second = cloud.add(), cloud.add()
    cloud.faults.next(Answer.of_json(cloud.snapshots[second]))

    with pytest.raises(UnknownError, match=second):
        opened(cloud).get(first)
