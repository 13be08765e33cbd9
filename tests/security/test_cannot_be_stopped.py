"""Whatever strangers write or answer, the controller goes on: its workers live, and honest neighbours are served."""

import json
import socket
import sys
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reprieve.core.errors import InvalidError
from reprieve.core.objects import ObjectKind
from reprieve.core.outcomes import Locked
from reprieve.core.ports import SnapshotInfo
from reprieve.core.values import format_instant
from reprieve.entrypoints.configuration import BackupSettings, Configuration, DeletionSettings, ProtectionEntry
from reprieve.entrypoints.controller import probes as probing
from reprieve.entrypoints.controller import runtime as running_time
from reprieve.entrypoints.controller.metrics import Metrics
from reprieve.entrypoints.controller.probes import Probes
from reprieve.entrypoints.controller.queue import WorkQueue
from reprieve.entrypoints.controller.runtime import Lane, Runtime
from tests.security.at_work import PATIENCE, running
from tests.unit.overtime import DAY, NOW, Namespace, files_of, location, made, record

DATABASE = ObjectKind("example.com/v1", "Database")
FAR = datetime.max.replace(tzinfo=UTC)
LONG_AGO = datetime.min.replace(tzinfo=UTC)
INSTANTS = st.datetimes(timezones=st.just(UTC))


def asked(name, backup, **metadata):
    """A deletion request, as a person makes it."""
    return made("DeleteBackupRequest", name, metadata=metadata, spec={"backupName": backup})


def owner(name, **annotations):
    """An owner of a protected kind that somebody asked to delete."""
    uid = f"uid-{name}"
    marks = {"reprieve.dev/deletion-requested": uid, **annotations}
    metadata = {"name": name, "namespace": "shop", "uid": uid, "annotations": marks}
    return {"apiVersion": "example.com/v1", "kind": "Database", "metadata": metadata}


def bucket_of(*records):
    return {key: data for each in records for key, data in files_of(each).items()}


def state_of(**parts):
    return {"annotations": {"reprieve.dev/state": json.dumps({"uid": "u", **parts})}}


def scene_of(*objects, records=(), buckets=None, **settings):
    """A namespace with an honest backup, and a protected kind beside it."""
    honest = record("honest")
    scene = Namespace(
        location(),
        honest,
        *records,
        *objects,
        buckets={"b": bucket_of(honest, *records), **(buckets or {})},
        **settings,
    )
    entry = ProtectionEntry(DATABASE, "Delete", "Orphan")
    scene.configuration = Configuration(BackupSettings(**settings), protection=(entry,))
    return scene


def serve_the_honest(scene, cluster):
    """File an honest request and mark an honest owner while the others are at it, and wait until both were served."""
    cluster.create(asked("please", "honest"))
    assert cluster.until(lambda: scene.get("honest") is None)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(INSTANTS)
@example(FAR)
@example(LONG_AGO)
@example(datetime(2400, 1, 1, tzinfo=UTC))
@example(NOW)
def test_no_date_stops_a_worker(instant):
    """A hold until 9999, an expiration in 2400, a next attempt in the last year of the calendar: each made a worker
    wait longer than a thread can, and one worker after the other ended; nothing was done ever again."""
    written = format_instant(instant)
    dated = [
        record("held", annotations={"reprieve.dev/hold": "law", "reprieve.dev/hold-until": written}),
        record("expiring", expires=instant, schedule="s"),
        record("came-back", expires=NOW - DAY, annotations={"reprieve.dev/synced-at": written}),
        record(
            "failed",
            expires=NOW - DAY,
            annotations={"reprieve.dev/retention-failures": json.dumps({"count": 2, "last": written})},
        ),
        record("of-a-date", completionTimestamp=written, schedule="s"),
        record("due", expires=NOW - DAY),
    ]
    forged = state_of(nextAttempt=written, firstAttempt=written, attempts=3, stage="snapshots")
    odd = location("odd", bucket="c", backupSyncPeriod="3000000h", status={"lastSyncedTime": written})
    held = {"reprieve.dev/hold": "law", "reprieve.dev/hold-until": written}
    scene = scene_of(
        odd,
        asked("a", "held"),
        {**asked("b", "expiring", **forged), "status": {"phase": "InProgress"}},
        {**asked("c", "came-back", **state_of(finishedAt=written)), "status": {"phase": "Processed", "errors": ["x"]}},
        owner("held", **held),
        owner("honest"),
        records=dated,
        buckets={"c": {}},
    )
    with running(scene) as cluster:
        serve_the_honest(scene, cluster)
        assert cluster.until(lambda: scene.get("due") is None)
        assert cluster.until(lambda: not _there(cluster, "honest"))
        if instant > NOW:
            assert scene.get("held") is not None
            assert _there(cluster, "held")


def _there(cluster, name):
    return name in {each.meta.name for each in cluster.cluster.list(DATABASE).items}


def test_a_lock_of_centuries_is_looked_at_again_within_the_hour():
    """An endpoint answers that a snapshot is locked until 9999: the wait was longer than a thread can wait."""
    queue = WorkQueue(clock=lambda: 0.0)
    queue.add_after("locked", (FAR - NOW).total_seconds())
    queue.add_after("endless", float("inf"))
    queue.add_after("no-number", float("nan"))
    assert [due for due, _, _ in queue._later] == [3600.0] * 3
    assert queue._wait(None) == 3600.0


def test_a_lock_until_the_last_day_stops_nobody():
    """The same, from the store to the queue."""
    locked = record("locked", volumeSnapshotsCompleted=1)
    locked["spec"]["volumeSnapshotLocations"] = ["aws"]
    place = made("VolumeSnapshotLocation", "aws", spec={"provider": "aws"})
    scene = scene_of(place, asked("a", "locked"), records=[locked])
    scene.stores.buckets["b"] |= files_of(locked, snapshots=["snap-1"])
    scene.snapshots.snapshots.append(SnapshotInfo("aws", "snap-1", {"velero.io/backup": "locked"}))
    scene.snapshots.outcomes["snap-1"] = [Locked(FAR, "locked")] * 9
    with running(scene) as cluster:
        assert cluster.until(lambda: "locked" in str(scene.get("a", "DeleteBackupRequest").section("status")))
        serve_the_honest(scene, cluster)
    assert scene.get("locked") is not None


class Panic(BaseException):
    """What a native library raises: no Exception."""


def test_a_panic_of_a_native_library_ends_no_worker():
    """A region with a control character made the storage library panic, which is no Exception: the worker ended, and
    after as many of them as there are workers nothing was done any more."""
    records = [record(f"evil-{n}", at="evil") for n in range(6)]
    scene = scene_of(location("evil", bucket="evil"), *(asked(f"a{n}", f"evil-{n}") for n in range(6)), records=records)
    scene.stores.buckets["evil"] = {}
    panics = threading.Semaphore(0)

    def panic(_operation, bucket, _key):
        if bucket == "evil":
            panics.release()
            raise Panic("called `Result::unwrap()` on an `Err` value")

    scene.fault = panic
    with running(scene) as cluster:
        for _ in range(6):
            assert panics.acquire(timeout=PATIENCE)
        serve_the_honest(scene, cluster)
    assert {f"evil-{n}" for n in range(6)} <= scene.names()


def test_sixteen_tarpits_hold_up_no_honest_request(monkeypatch):
    """Sixteen locations whose buckets never answer held every worker, and an honest request waited for 113 s."""
    monkeypatch.setattr(running_time, "STUCK", 0.02)
    monkeypatch.setattr(running_time, "LOOK", 0.02)
    names = [f"tar-{n}" for n in range(16)]
    scene = scene_of(
        *(location(name, bucket=name) for name in names),
        *(asked(f"a-{name}", name) for name in names),
        records=[record(name, at=name) for name in names],
        deletion=DeletionSettings(workers=4),
    )
    scene.stores.buckets |= {name: {} for name in names}
    over, held = threading.Event(), threading.Semaphore(0)

    def tarpit(_operation, bucket, _key):
        if bucket.startswith("tar"):
            held.release()
            over.wait(PATIENCE)

    scene.fault = tarpit
    try:
        with running(scene, "deletion") as cluster:
            for _ in range(4):
                assert held.acquire(timeout=PATIENCE)
            serve_the_honest(scene, cluster)
            assert not over.is_set()
            over.set()
    finally:
        over.set()


def test_one_location_that_never_answers_has_one_worker():
    """Many backups in one location that was never seen to answer: one of them is asked for at a time."""
    queue = WorkQueue(clock=lambda: 0.0, place_of=lambda key: key[0])
    for n in range(8):
        queue.add(("tar", n))
    queue.add(("honest", 0))
    taken = [queue.get(timeout=0) for _ in range(3)]
    assert taken == [("tar", 0), ("honest", 0), None]


def test_what_is_refused_is_not_tried_without_a_pause():
    """A status that the API server refuses was written again at once, woken by its own events: 380,000 calls."""
    bad = record("bad")
    scene = scene_of(asked("ask-bad", "bad"), records=[bad])
    with running(scene, "deletion") as cluster:
        tries, first = [], threading.Event()

        def refuse(verb, kind, name):
            if (verb, kind, name) == ("patch", "DeleteBackupRequest", "ask-bad"):
                tries.append(verb)
                first.set()
                raise InvalidError("request is too large")

        cluster.before = refuse
        scene.annotate("ask-bad", "DeleteBackupRequest", note="0")
        assert first.wait(PATIENCE)
        for number in range(300):  # a flood of events about it
            scene.annotate("ask-bad", "DeleteBackupRequest", note=str(number))
        serve_the_honest(scene, cluster)
        assert len(tries) <= 12
    assert scene.get("bad") is not None


def test_a_period_of_a_millisecond_is_no_busy_loop():
    """A location that asks to be synced every millisecond was listed 460 times a second."""
    busy = location("busy", bucket="busy", backupSyncPeriod="1ms")
    scene = scene_of(busy, buckets={"busy": {}})
    with running(scene, "sync", "deletion") as cluster:
        for number in range(200):  # and whoever flickers it wakes nobody more often
            scene.annotate("busy", "BackupStorageLocation", note=str(number))
        serve_the_honest(scene, cluster)
        assert scene.reads["list"] < 20


ODD = [
    pytest.param({"spec": "text", "status": ["list"]}, id="sections-that-are-none"),
    pytest.param({"spec": {"backupName": ["honest"]}, "status": {"phase": 4}}, id="values-of-other-types"),
    pytest.param({"spec": None, "status": None}, id="nothing"),
]


@pytest.mark.parametrize("parts", ODD)
@pytest.mark.parametrize("kind", ["Backup", "DeleteBackupRequest", "BackupStorageLocation", "Restore"])
def test_an_object_that_is_no_such_thing_stops_only_itself(kind, parts):
    """One object by hand, or of another version, that cannot be read: the others of its kind go on."""
    scene = scene_of(made(kind, "odd", **parts), record("due", expires=NOW - DAY))
    with running(scene) as cluster:
        serve_the_honest(scene, cluster)
        assert cluster.until(lambda: scene.get("due") is None)


def test_a_controller_whose_keys_cannot_be_listed_lets_the_others_work():
    """A panic while one controller lists its keys ended its resync thread for good."""
    due = record("due", expires=NOW - DAY)
    scene = scene_of(records=[due])
    fails = [True]

    def fault(verb, kind, _name):
        if (verb, kind) == ("list", "BackupStorageLocation") and fails[0]:
            raise Panic("decode")

    with running(scene) as cluster:
        cluster.before = fault
        serve_the_honest(scene, cluster)
        fails[0] = False


# Probes


def test_the_controller_is_unhealthy_once_a_thread_of_its_own_has_ended():
    """Workers were dead, and probes green: nobody restarted the controller."""

    class Broken(WorkQueue):
        def get(self, *, timeout=None):
            raise Panic("the queue itself")

    class Nothing:
        name = "nothing"

        def keys(self):
            return []

        def watches(self):
            return []

    stop, metrics = threading.Event(), Metrics()
    ended = threading.Event()
    before, threading.excepthook = threading.excepthook, lambda _args: ended.set()
    try:
        runtime = Runtime([Lane(Nothing(), Broken())], source=None, clock=lambda: NOW, stop=stop)
        checked = Probes(metrics, 0)
        checked.watch_over(runtime.ended)
        assert checked.answer("/healthz")[0] == 200
        runtime.start()
        assert ended.wait(PATIENCE)
        for thread in runtime._workers["nothing"]._threads:
            thread.join(PATIENCE)
        status, said = checked.answer("/healthz")
        assert (status, b"nothing-0" in said) == (500, True)
    finally:
        stop.set()
        threading.excepthook = before


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def served():
    made_probes = Probes(Metrics(), free_port(), host="127.0.0.1")
    with made_probes.serving() as port:
        yield port


def status_of(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE) as answer:
        return answer.status


def test_half_requests_do_not_kill_the_pod(served, capfd):
    """1,025 connections that send half a request each took a thread each, and the probe got no answer."""
    halves = []
    try:
        for _ in range(300):
            half = socket.create_connection(("127.0.0.1", served), timeout=PATIENCE)
            half.sendall(b"GET /healthz HT")
            halves.append(half)
        assert status_of(served) == 200
        assert sum(thread.name == "probe" for thread in threading.enumerate()) <= 3 * probing.CONNECTIONS
    finally:
        for half in halves:
            half.close()
    assert capfd.readouterr().err == ""


def test_a_connection_that_breaks_off_is_no_news(served, capfd):
    """A traceback in the log for each scan of the port."""
    for content in (b"\x16\x03\x01\x02", b"GET /" + b"x" * 70_000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200, b""):
        with socket.create_connection(("127.0.0.1", served), timeout=PATIENCE) as broken:
            broken.sendall(content)
    assert status_of(served) == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("address", ["no.such.host.invalid", "256.1.1.1", "127.0.0.1\x00"])
def test_an_address_that_cannot_be_used_is_an_error(address):
    with pytest.raises(InvalidError, match="--probe-address"), Probes(Metrics(), free_port(), host=address).serving():
        pass


# Many


def calls_of(work):
    """How many calls a piece of work makes, in Python: a measure that no other load on the machine changes."""
    count = 0

    def counted(_frame, event, _argument):
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("old", [False, True], ids=["that-are-kept", "that-expired"])
def test_thousands_of_processed_requests_of_one_backup_are_linear(old):
    """Whoever may create requests creates ten thousand for one backup: each look at them cost the square of their
    number."""
    finished = format_instant(NOW - (3 * DAY if old else timedelta(hours=1)))

    def cost(number):
        state = {"annotations": {"reprieve.dev/state": json.dumps({"uid": "u", "finishedAt": finished})}}
        ended = [{**asked(f"r{n}", "honest", **state), "status": {"phase": "Processed"}} for n in range(number)]
        built = scene_of(*ended).build("deletion")
        (reconciler,) = built.reconcilers
        (key,) = reconciler.keys()
        try:
            return calls_of(lambda: reconciler.reconcile(key, now=NOW))
        finally:
            built.close()

    few, many = cost(100), cost(400)
    assert many <= 5 * few
