"""Events about objects, over the local cluster."""

from datetime import UTC, datetime, timedelta

import pytest

from reprieve.adapters.k8s.events import WAITING_LIMIT, KubernetesEvents
from reprieve.adapters.local.cluster import LocalCluster
from reprieve.core import errors
from reprieve.core.objects import ObjectKind, ObjectRef, is_object_name
from reprieve.core.ports import EventKind

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
EVENT = ObjectKind("v1", "Event")
BACKUP = ObjectRef("velero.io/v1", "Backup", "nightly", "velero", "uid-1")


@pytest.fixture
def cluster():
    return LocalCluster.in_memory(now=lambda: NOW)


def sink(cluster, **kwargs):
    return KubernetesEvents(cluster, threaded=False, **kwargs)


def record(events, ref=BACKUP, *, reason="Refused", message="no", now=NOW):
    events.record(ref, kind=EventKind.WARNING, reason=reason, message=message, now=now)


def written(cluster):
    return cluster.list(EVENT).items


def test_an_event_says_what_about_whom(cluster):
    events = sink(cluster)
    record(events)
    events.flush()

    (event,) = written(cluster)
    assert event.meta.namespace == "velero"
    assert event.meta.name.startswith("nightly.")
    assert event.body == {
        "involvedObject": {
            "apiVersion": "velero.io/v1",
            "kind": "Backup",
            "namespace": "velero",
            "name": "nightly",
            "uid": "uid-1",
        },
        "type": "Warning",
        "reason": "Refused",
        "message": "no",
        "count": 1,
        "firstTimestamp": "2026-03-01T12:00:00Z",
        "lastTimestamp": "2026-03-01T12:00:00Z",
        "source": {"component": "reprieve"},
        "reportingComponent": "reprieve",
    }


def test_nothing_is_written_while_recording(cluster):
    record(sink(cluster))

    assert written(cluster) == ()


def test_repeats_are_folded_also_over_several_runs(cluster):
    for minute in range(3):
        events = sink(cluster)
        record(events, now=NOW + timedelta(minutes=minute))
        record(events, now=NOW + timedelta(minutes=minute, seconds=30))
        events.flush()

    (event,) = written(cluster)
    assert event.body["count"] == 6
    assert event.body["firstTimestamp"] == "2026-03-01T12:00:00Z"
    assert event.body["lastTimestamp"] == "2026-03-01T12:02:30Z"


def test_different_things_said_are_different_events(cluster):
    events = sink(cluster)
    record(events)
    record(events, message="yes")
    record(events, reason="Held")
    record(events, ObjectRef("velero.io/v1", "Backup", "nightly", "velero", "uid-2"))
    events.flush()

    assert len(written(cluster)) == 4


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a" * 253, id="long"),
        pytest.param("a" * 199 + "-" + "b" * 9, id="cut-at-a-dash"),
        pytest.param("../../x", id="path-like"),
        pytest.param("Nächtlich", id="non-ascii"),
        pytest.param("\ud800", id="no-character"),
        pytest.param("", id="empty"),
    ],
)
def test_any_object_gets_an_event_of_a_valid_name(cluster, name):
    events = sink(cluster)
    record(events, ObjectRef("velero.io/v1", "Backup", name, "velero"))
    waiting = next(iter(events._waiting))

    assert is_object_name(waiting)


def test_a_cluster_scoped_objects_event_is_in_default(cluster):
    events = sink(cluster)
    record(events, ObjectRef("v1", "Namespace", "velero", uid="uid-3"))
    events.flush()

    (event,) = written(cluster)
    assert event.meta.namespace == "default"
    assert "namespace" not in event.body["involvedObject"]


def test_a_message_is_cut_to_what_the_server_takes(cluster):
    events = sink(cluster)
    record(events, message="ä" * 2000)
    events.flush()

    (event,) = written(cluster)
    assert event.body["message"] == "ä" * 512


def test_an_event_that_cannot_be_written_is_dropped_and_reported(cluster):
    class Down:
        def create(self, manifest):
            raise errors.UnavailableError("down")

    trouble = []
    events = sink(Down(), on_trouble=trouble.append)
    record(events)
    record(events, message="another")
    events.flush()

    assert [str(error) for error in trouble] == ["down", "down"]
    assert events.dropped == 2


def test_an_event_that_lived_its_hour_out_is_made_anew(cluster):
    class Forgetful:
        """Says that the event exists, until it is read."""

        def __init__(self):
            self.created = []

        def create(self, manifest):
            self.created.append(manifest)
            if len(self.created) == 1:
                raise errors.AlreadyExistsError("there")

        def get(self, ref):
            raise errors.NotFoundError("gone")

    forgetful = Forgetful()
    events = sink(forgetful)
    record(events)
    events.flush()

    assert [manifest["count"] for manifest in forgetful.created] == [1, 1]
    assert events.dropped == 0


def test_an_event_whose_count_is_nonsense_counts_on(cluster):
    events = sink(cluster)
    record(events)
    events.flush()
    (event,) = written(cluster)
    cluster.patch(event.ref, {"count": "many"})
    record(events)
    events.flush()

    assert written(cluster)[0].body["count"] == 2


def test_too_many_at_once_are_dropped_not_kept_for_ever(cluster):
    events = sink(cluster)
    for number in range(WAITING_LIMIT + 5):
        record(events, message=str(number))
    record(events, message="0")

    assert len(events._waiting) == WAITING_LIMIT
    assert events.dropped == 5


def test_closing_writes_what_waits(cluster):
    events = KubernetesEvents(cluster)
    record(events)
    record(events, message="another")
    events.close()

    assert len(written(cluster)) == 2
    record(events, message="too late")
    assert (len(written(cluster)), events.dropped) == (2, 1)


def test_closing_without_events_starts_nothing(cluster):
    events = KubernetesEvents(cluster)
    events.close()

    assert events._thread is None
