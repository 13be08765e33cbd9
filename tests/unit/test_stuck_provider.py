"""A provider that hangs: the controllers' workers go on with everybody else's requests."""

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime

import pytest
from attrs import evolve

from reprieve.adapters.cloud.rate import Limiter, Limiters
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.adapters.local import LocalCluster, MemoryEvents, MemoryObjectStores
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import UnavailableError
from reprieve.core.outcomes import Done, Retryable
from reprieve.core.ports import SnapshotInfo
from reprieve.core.reasons import Reason
from reprieve.entrypoints.bootstrap import open_kubernetes
from reprieve.entrypoints.configuration import BackupSettings, Configuration, DeletionSettings
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.world import World

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMEOUT = 30.0
FAILSAFE = 60  # real seconds, after which a test that would hang for ever fails instead
WORKERS = DeletionSettings().workers
PARALLELISM = 8


class Clock:
    """Time that passes when a call times out."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def reach(self, time: float) -> None:
        with self._lock:
            self.now = max(self.now, time)


class Stuck:
    """A provider that does not answer: the first ``size`` calls time out together when told, later ones at the end.

    It still lists what carries a backup's tag, unless it ``lists`` nothing either.
    """

    def __init__(self, clock: Clock, size: int, *, lists: bool = True) -> None:
        self.clock, self.size, self.lists = clock, size, lists
        self.calls = 0
        self.entered = threading.Semaphore(0)
        self.times_out, self.ended = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def open(self, location, *, credential=None):
        return self

    def list(self, tag, value=""):
        if not self.lists:
            self._hang()
            raise UnavailableError("timed out")
        return tagged(value)

    def delete(self, snapshot):
        self._hang()
        return Retryable(message="timed out")

    def _hang(self):
        with self._lock:
            self.calls += 1
            event = self.times_out if self.calls <= self.size else self.ended
        begun = self.clock()
        self.entered.release()
        event.wait(FAILSAFE)
        self.clock.reach(begun + TIMEOUT)


class Works:
    """A provider that deletes what it is asked to."""

    def __init__(self) -> None:
        self.deleted = set()

    def open(self, location, *, credential=None):
        return self

    def list(self, tag, value=""):
        return tagged(value)

    def delete(self, snapshot):
        self.deleted.add(snapshot)
        return Done()


def tagged(backup):
    """What carries a backup's tag: as many as any backup of the tests has."""
    return [SnapshotInfo("", f"{backup}-{number}", {"velero.io/backup": backup}) for number in range(1_000)]


class Scene:
    """Backups on two providers, a request for each, and the deletion controller over them."""

    def __init__(self, *, stuck_calls: int, lists: bool = True) -> None:
        self.clock = Clock()
        self.stuck, self.works = Stuck(self.clock, stuck_calls, lists=lists), Works()
        self.objects = [
            made("BackupStorageLocation", "default", spec={"provider": "aws", "objectStorage": {"bucket": "b"}})
            | {"status": {"phase": "Available"}},
            made("VolumeSnapshotLocation", "aws", spec={"provider": "aws", "config": {"region": "us-east-1"}}),
            made("VolumeSnapshotLocation", "gcp", spec={"provider": "gcp"}),
        ]
        self.files = {}

    def backup(self, name: str, location: str, snapshots: int) -> None:
        started = "2026-02-01T00:00:00Z"
        status = {"phase": "Completed", "startTimestamp": started, "volumeSnapshotsCompleted": snapshots}
        self.objects += [
            made("Backup", name, spec={"storageLocation": "default", "volumeSnapshotLocations": [location]})
            | {"status": status},
            made("DeleteBackupRequest", f"{name}-1", spec={"backupName": name}),
        ]
        listed = [
            {"spec": {"location": location}, "status": {"providerSnapshotID": f"{name}-{number}"}}
            for number in range(snapshots)
        ]
        self.files[f"backups/{name}/velero-backup.json"] = json.dumps({"status": {"startTimestamp": started}}).encode()
        self.files[f"backups/{name}/{name}-volumesnapshots.json.gz"] = gzip.compress(json.dumps(listed).encode())

    def build(self):
        deletion = evolve(DeletionSettings(), snapshot_parallelism=PARALLELISM)
        limiters = Limiters(lambda: Limiter(parallelism=PARALLELISM, clock=self.clock, sleep=lambda _: None))
        openers = {"aws": self.stuck, "gcp": self.works}
        stores = CloudSnapshotStores(providers=openers, openers=openers, limiters=limiters)
        cluster = LocalCluster.in_memory(self.objects, now=lambda: NOW)
        configuration = Configuration(BackupSettings(deletion=deletion))
        world = World(configuration, cluster, MemoryObjectStores({"b": self.files}), stores, MemoryEvents())
        return build_controllers(world, names=["deletion"], stop=threading.Event())


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "c", "user": {}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
}


def made(kind, name, **parts):
    metadata = {"name": name, "namespace": "velero", "uid": f"uid-{name}"}
    return {"apiVersion": "velero.io/v1", "kind": kind, "metadata": metadata, **parts}


@pytest.fixture
def run():
    """Runs the scene's keys with as many workers as the controller has; gives the reasons of what was decided."""
    opened = []

    def running(scene):
        built = scene.build()
        pool = ThreadPoolExecutor(WORKERS)
        opened.append((scene, built, pool))
        (reconciler,) = built.reconcilers
        return {key[1]: pool.submit(reconciler.reconcile, key, now=NOW) for key in sorted(reconciler.keys())}

    yield running
    for scene, built, pool in opened:
        scene.stuck.times_out.set()
        scene.stuck.ended.set()
        pool.shutdown()
        built.close()


def reasons(futures):
    _, late = wait(futures.values(), timeout=FAILSAFE / 2)
    assert not late
    return {name: future.result().decisions[0].reason for name, future in futures.items()}


@pytest.mark.parametrize(
    ("lists", "came_to"),
    [
        pytest.param(True, {Reason.RETRYING, Reason.SNAPSHOTS_UNPROVEN}, id="deleting"),
        pytest.param(False, {Reason.SNAPSHOTS_UNPROVEN}, id="asking-whose-they-are"),
    ],
)
def test_all_workers_wait_for_a_stuck_provider_once_and_never_again(run, lists, came_to):
    """velero#3701: one deletion hangs for ever and later ones are not picked up.

    Here every worker is caught by a provider that does not answer. After that time-out the stuck provider's other
    requests come back at once, and the requests of the provider that works are carried out, though any further call to
    the stuck one would hang.
    """
    scene = Scene(stuck_calls=WORKERS, lists=lists)
    for number in range(3 * WORKERS):
        scene.backup(f"a-stuck-{number:02}", "aws", 1)
        scene.backup(f"b-works-{number:02}", "gcp", 1)
    futures = run(scene)
    for _ in range(WORKERS):
        assert scene.stuck.entered.acquire(timeout=FAILSAFE)
    scene.stuck.times_out.set()
    found = reasons(futures)

    assert {each for name, each in found.items() if "stuck" in name} == came_to
    assert {each for name, each in found.items() if "works" in name} == {Reason.COMPLETED}
    assert scene.stuck.calls == WORKERS


def test_a_large_deletion_at_a_stuck_provider_gives_its_worker_back(run):
    """A thousand snapshots at half a minute each would keep a worker, and all threads of the provider, for hours."""
    scene = Scene(stuck_calls=PARALLELISM)
    scene.backup("a-stuck", "aws", 1_000)
    scene.backup("b-works", "gcp", 10)
    futures = run(scene)
    for _ in range(PARALLELISM):
        assert scene.stuck.entered.acquire(timeout=FAILSAFE)
    works = futures.pop("b-works")
    assert works.result(timeout=FAILSAFE / 2).decisions[0].reason is Reason.COMPLETED  # while the other one hangs
    scene.stuck.times_out.set()

    assert reasons(futures) == {"a-stuck": Reason.RETRYING}
    assert scene.stuck.calls == PARALLELISM
    assert len(scene.works.deleted) == 10


def test_the_configured_parallelism_bounds_the_calls_of_an_account(tmp_path):
    configuration = tmp_path / "config.yaml"
    configuration.write_text(
        "apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n"
        f"backups: {{deletion: {{snapshotParallelism: {PARALLELISM}}}}}\n"
    )
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(KUBECONFIG))
    running, most, lock, gate = [], [], threading.Lock(), threading.Event()
    entered = threading.Semaphore(0)

    def effect():
        with lock:
            running.append(1)
            most.append(len(running))
        entered.release()
        gate.wait(FAILSAFE)
        with lock:
            running.pop()
        return Done()

    with open_kubernetes(kubeconfig=kubeconfig, context="", config=configuration) as world:
        limiter = world.snapshot_stores._limiters.of(("aws", "an account"))
        with ThreadPoolExecutor(3 * PARALLELISM) as pool:
            calls = [pool.submit(limiter.call, effect) for _ in range(3 * PARALLELISM)]
            for _ in range(PARALLELISM):
                assert entered.acquire(timeout=FAILSAFE)
            gate.set()
            assert [call.result() for call in calls] == [Done()] * (3 * PARALLELISM)
    assert max(most) == PARALLELISM


def test_one_stuck_account_is_no_reason_to_hold_back_another_of_the_same_provider():
    scene = Scene(stuck_calls=0)
    limiters = Limiters(lambda: Limiter(clock=scene.clock))
    stores = CloudSnapshotStores(providers=["aws"], openers={"aws": scene.stuck}, limiters=limiters)
    location = SnapshotLocation("x", "aws", {"region": "us-east-1"})
    scene.stuck.ended.set()
    stores.open(location, credential=b"a").delete("snap-1")
    held = stores.open(evolve(location, name="another-name"), credential=b"a").delete("snap-1")
    assert "held back" in held.message
    assert scene.stuck.calls == 1

    stores.open(location, credential=b"b").delete("snap-1")
    stores.open(SnapshotLocation("x", "aws", {"region": "us-east-2"}), credential=b"a").delete("snap-1")
    assert scene.stuck.calls == 3
