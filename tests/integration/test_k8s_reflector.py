"""The reflector, leader election and events over HTTP."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from kubernetes.client import Configuration

from reprieve.adapters.k8s.client import connect_to
from reprieve.adapters.k8s.events import KubernetesEvents
from reprieve.adapters.k8s.lease import Elector, Following, Held, Leading, Terms, lease_holder
from reprieve.core import errors
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.ports import EventKind
from reprieve.entrypoints.controller.reflector import Backoff, Pace, Reflector, Subject
from tests.integration.apiserver import Close, Hang, Lines, once, refusal

BACKUP = ObjectKind("velero.io/v1", "Backup")
BACKUP_REF = ObjectRef("velero.io/v1", "Backup", "a", "velero", "uid-1")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Told:
    """What a reflector told, in order; a test waits for what must come."""

    def __init__(self):
        self.lines, self.trouble = [], []
        self.changed = threading.Condition()

    def note(self, line):
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()

    def wait_for(self, *lines):
        with self.changed:
            arrived = self.changed.wait_for(lambda: self.lines[-len(lines) :] == list(lines), timeout=10)
        assert arrived, f"told {self.lines}, waited for {lines}, trouble {self.trouble}"


def manifest(name):
    return {"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": name, "namespace": "velero"}}


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def reflector(cluster, told):
    stop = threading.Event()
    made = Reflector(
        cluster,
        Subject(BACKUP, metadata_only=True),
        stop=stop,
        on_upsert=lambda resource: told.note(f"+{resource.meta.name}"),
        on_remove=lambda resource: told.note(f"-{resource.meta.name}"),
        on_trouble=lambda error: told.trouble.append(type(error)),
        pace=Pace(Backoff(first=0.001, ceiling=0.01)),
    )
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    stop.set()
    thread.join(10)
    assert not thread.is_alive(), "a stop does not wait for a watch"


def test_changes_arrive_as_they_happen(store, reflector, told):
    store.create(manifest("a"))
    told.wait_for("+a")
    store.patch(BACKUP, "velero", "a", {"metadata": {"labels": {"x": "y"}}})
    told.wait_for("+a", "+a")
    store.delete(BACKUP, "velero", "a")
    told.wait_for("-a")

    assert reflector.has_synced
    assert reflector.items() == ()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Close(), id="connection-closed"),
        pytest.param(Lines((b"garbage\n",)), id="garbage"),
        pytest.param(Lines((), then="break"), id="broken"),
        pytest.param(Lines(()), id="ends-at-once"),
        pytest.param(refusal(410, "Expired", "too old"), id="expired"),
        pytest.param(refusal(500, "InternalError", "etcd"), id="server-error"),
        pytest.param(refusal(429, "TooManyRequests", "slow"), id="throttled"),
    ],
)
def test_nothing_is_missed_after_a_fault(api, store, cluster, told, fault, request):
    api.faults.append(once(fault, part="watch=true"))
    store.create(manifest("a"))
    reflector = request.getfixturevalue("reflector")
    told.wait_for("+a")
    store.create(manifest("b"))
    told.wait_for("+a", "+b")
    store.delete(BACKUP, "velero", "a")
    told.wait_for("-a")

    assert [resource.meta.name for resource in reflector.items()] == ["b"]


@pytest.mark.parametrize("expired_as", ["event", "http"])
def test_a_deletion_in_the_gap_is_found(api, store, cluster, told, expired_as):
    """While the connection was down the object went, and the history of it was compacted."""
    api.expired_as = expired_as
    stop = threading.Event()
    reflector = Reflector(
        cluster,
        Subject(BACKUP),
        stop=stop,
        on_upsert=lambda resource: told.note(f"+{resource.meta.name}"),
        on_remove=lambda resource: told.note(f"-{resource.meta.name}"),
        on_trouble=lambda error: told.trouble.append(type(error)),
        pace=Pace(watch=timedelta(seconds=1)),
    )
    store.create(manifest("a"))
    store.create(manifest("b"))
    api.faults.append(once(Close(), part="watch=true"))
    reflector.step()
    store.delete(BACKUP, "velero", "a")
    store.compact()

    reflector.step()
    reflector.step()

    assert told.lines == ["+a", "+b", "-a"]
    assert told.trouble == [errors.UnavailableError, errors.ExpiredError]


def test_two_candidates_for_one_lease(api, cluster):
    seconds = [0.0]

    def candidate(name):
        return Elector(
            cluster,
            namespace="velero",
            name="reprieve",
            identity=name,
            now=lambda: NOW + timedelta(seconds=seconds[0]),
            clock=lambda: seconds[0],
        )

    first, second = candidate("one"), candidate("two")
    assert (first.step(), isinstance(second.step(), Following)) == (Leading(), True)
    assert lease_holder(cluster, namespace="velero", name="reprieve", now=NOW) == Held(
        "one", NOW + timedelta(seconds=15)
    )

    api.faults.append(lambda method, path, query: Close() if method == "PATCH" else None)
    seconds[0] = 12.0
    assert isinstance(first.step(), Following), "its renewals fail, so it stops"
    api.faults.clear()
    seconds[0] = 15.0
    assert second.step() == Leading()
    assert isinstance(first.step(), Following)


def test_events_are_written_and_folded(api, cluster, store):
    backup = cluster.create(manifest("a"))
    for _ in range(2):
        events = KubernetesEvents(cluster)
        events.record(backup.ref, kind=EventKind.NORMAL, reason="Kept", message="held", now=NOW)
        events.close()

    (event,) = cluster.list(ObjectKind("v1", "Event")).items
    assert (event.body["count"], event.body["involvedObject"]["uid"]) == (2, backup.meta.uid)


def test_events_never_hold_anything_up(api):
    lost = connect_to(Configuration(host="http://127.0.0.1:9"))
    trouble = []
    events = KubernetesEvents(lost, on_trouble=trouble.append)
    events.record(BACKUP_REF, kind=EventKind.WARNING, reason="Kept", message="held", now=NOW)
    events.close()

    assert [type(error) for error in trouble] == [errors.UnavailableError]


def test_a_renewal_that_hangs_is_given_up_before_anybody_else_may_begin(api, cluster):
    seconds = [0.0]
    terms = Terms(duration=timedelta(seconds=1), deadline=timedelta(seconds=0.8), retry=timedelta(seconds=0.1))
    elector = Elector(
        cluster, namespace="velero", name="reprieve", identity="one", terms=terms, clock=lambda: seconds[0]
    )
    assert elector.step() == Leading()
    api.faults.append(once(Hang(), method="PATCH"))
    seconds[0] = 0.8

    standing = elector.step()

    assert isinstance(standing, Following)
    assert "no answer in time" in standing.why


def test_a_watch_lives_through_a_restart_of_the_server(api, store, reflector, told):
    """A server that starts again refuses for a while (503, 429), and then has forgotten the version (410)."""
    store.create(manifest("a"))
    told.wait_for("+a")
    again = [
        refusal(503, "ServiceUnavailable", "the request has been made before all known HTTP paths have been installed"),
        refusal(429, "TooManyRequests", "storage is (re)initializing"),
    ]
    api.faults += [once(fault, part="watch=true") for fault in again]
    store.delete(BACKUP, "velero", "a")
    told.wait_for("-a")
    store.create(manifest("b"))
    store.compact()
    told.wait_for("+b")
