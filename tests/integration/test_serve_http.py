"""The controller as it runs in a cluster: lease, watches, probes and metrics, over HTTP."""

import threading
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from kubernetes.client import Configuration as ClientConfiguration

from reprieve.adapters.k8s.client import connect_to
from reprieve.adapters.k8s.lease import LEASE, Free, Held, Terms, lease_holder
from reprieve.adapters.local import MemoryEvents, MemoryObjectStores, MemorySnapshotStores
from reprieve.adapters.local.store import ClusterStore
from reprieve.core.errors import ContainerMissingError, DeniedError, UnavailableError
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import SnapshotInfo
from reprieve.entrypoints.configuration import Configuration, ProtectionEntry
from reprieve.entrypoints.controller import serve as serving
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.leftovers import check_at_start
from reprieve.entrypoints.controller.metrics import Metrics
from reprieve.entrypoints.controller.probes import Probes
from reprieve.entrypoints.leases import LEASE_NAME
from reprieve.entrypoints.world import World
from tests.integration.apiserver import ApiServer, refusal, times
from tests.integration.conftest import NOW
from tests.integration.conftest import served as kind_served

PATIENCE = 60
TERMS = Terms(duration=timedelta(seconds=3), deadline=timedelta(seconds=2), retry=timedelta(milliseconds=100))
REQUEST = ObjectKind("velero.io/v1", "DeleteBackupRequest")


def made(kind, name, **parts):
    """An object of Velero's."""
    return {"apiVersion": "velero.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "velero"}, **parts}


class Controller:
    """A controller in a thread, over HTTP, with its buckets and snapshots in memory."""

    def __init__(self, cluster):
        self.stop, self.exited, self.deleted = threading.Event(), threading.Event(), threading.Event()
        stores = MemorySnapshotStores([SnapshotInfo("aws", "snap-1")], before=lambda _: self.deleted.set())
        world = World(Configuration(), cluster, MemoryObjectStores({"b": {}}), stores, MemoryEvents())
        self.built = build_controllers(world, names=["deletion"], stop=self.stop)
        self.thread = threading.Thread(target=self._serve, args=(world,))
        self.thread.start()

    def _serve(self, world):
        serving.serve(
            self.built,
            world,
            stop=self.stop,
            clock=lambda: datetime.now(UTC),
            terms=TERMS,
            exit_at_once=self._exit,
        )

    def _exit(self):
        self.exited.set()
        self.stop.set()

    def end(self):
        self.stop.set()
        self.thread.join(PATIENCE)
        self.built.close()
        assert not self.thread.is_alive()


@pytest.fixture
def controller(cluster):
    """A controller that is stopped at the end."""
    started = Controller(cluster)
    yield started
    started.end()


def gone(cluster, name):
    """Wait, by watch, until a request is gone."""
    listing = cluster.list(REQUEST, namespace="velero")
    if all(each.meta.name != name for each in listing.items):
        return True
    events = cluster.watch(
        REQUEST, namespace="velero", resource_version=listing.resource_version, timeout=timedelta(seconds=PATIENCE)
    )
    return any(type(event).__name__ == "Removed" and event.resource.meta.name == name for event in events)


def test_a_request_that_comes_while_it_runs_is_carried_out(controller, cluster, store):
    """Seen by watch, carried out under the lease, and the lease is let go of at the end."""
    storage = {"provider": "aws", "objectStorage": {"bucket": "b"}}
    store.create(made("BackupStorageLocation", "default", spec=storage, status={"phase": "Available"}))
    store.create(made("Backup", "nightly", spec={"storageLocation": "default"}, status={"phase": "Completed"}))
    store.create(made("DeleteBackupRequest", "ask", spec={"backupName": "nightly"}))
    assert gone(cluster, "ask")
    assert cluster.list(ObjectKind("velero.io/v1", "Backup"), namespace="velero").items == ()
    held = lease_holder(cluster, namespace="velero", name=LEASE_NAME, now=datetime.now(UTC))
    assert isinstance(held, Held)
    controller.end()
    now = datetime.now(UTC)
    assert not isinstance(lease_holder(cluster, namespace="velero", name=LEASE_NAME, now=now), Held)


def test_a_controller_that_loses_its_lease_exits_at_once(controller, api, cluster):
    """Leadership lost: no other effect, the process goes."""
    assert _has_lease(cluster)
    api.faults.append(times(10_000, refusal(503, "ServiceUnavailable", "etcd leader lost"), part="leases"))
    assert controller.exited.wait(PATIENCE)


def _has_lease(cluster):
    kind = ObjectKind("coordination.k8s.io/v1", "Lease")
    listing = cluster.list(kind, namespace="velero")
    if listing.items:
        return True
    events = cluster.watch(
        kind, namespace="velero", resource_version=listing.resource_version, timeout=timedelta(seconds=PATIENCE)
    )
    return any(True for _ in events)


def served(cluster, *, names=(), port=0):
    """One start of the controllers, which is stopped at once should it succeed."""
    stop = threading.Event()
    entry = ProtectionEntry(ObjectKind("example.com/v1", "Database"), on_request="Orphan", otherwise="Orphan")
    world = World(
        Configuration(protection=(entry,)), cluster, MemoryObjectStores({}), MemorySnapshotStores(), MemoryEvents()
    )
    built = build_controllers(world, names=names, stop=stop)
    stop.set()
    try:
        serving.serve(built, world, stop=stop, clock=lambda: datetime.now(UTC), terms=TERMS, port=port)
    finally:
        built.close()


@pytest.fixture
def without_velero():
    """An API server that serves leases, and nothing of Velero's."""
    store = ClusterStore(now=lambda: datetime.now(UTC), kinds=[kind_served("coordination.k8s.io/v1/Lease")])
    with ApiServer(store) as server:
        cluster = connect_to(ClientConfiguration(host=server.url))
        yield cluster
        cluster.close()


def test_a_start_without_velero_says_so(without_velero):
    """Velero was not installed: the controller stood by for ever, ready, without a word."""
    with pytest.raises(ContainerMissingError, match=r"DeleteBackupRequest.*is velero installed in this cluster"):
        served(without_velero)
    assert without_velero.list(LEASE).items == ()


def test_a_start_without_velero_is_fine_for_protection_alone(without_velero):
    served(without_velero, names=["protection"])
    assert isinstance(lease_holder(without_velero, namespace="velero", name=LEASE_NAME, now=NOW), Free)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(refusal(401, "Unauthorized", "Unauthorized"), DeniedError, id="wrong-credentials"),
        pytest.param(refusal(503, "ServiceUnavailable", "etcd leader lost"), UnavailableError, id="server-down"),
    ],
)
def test_a_start_that_is_in_vain_ends_with_its_reason(api, cluster, fault, error):
    api.faults.append(times(10_000, fault))

    with pytest.raises(error):
        served(cluster)


def test_the_start_asks_for_nothing_that_it_may_not(api, cluster):
    """An account with the rights of the manifests was refused once for each kind of the cluster, at every start."""
    refused = []
    api.authorize = lambda access: access.resource != "*" and (access.namespace == "velero" or refused.append(access))

    check_at_start(cluster, (), local=False)

    assert refused == []
    assert api.counts()["list"] == 0


def test_probes_and_metrics_are_served():
    """Ready only once it is; the metrics are Prometheus'; anything else says what there is."""
    metrics = Metrics()
    probes = Probes(metrics, 0)
    assert probes.answer("/healthz")[0] == 200
    assert probes.answer("/readyz")[0] == 503
    probes.ready()
    assert probes.answer("/readyz")[0] == 200
    metrics.observe("deletion", ValueError("x"))
    assert (
        b'reprieve_reconcile_failures_total{controller="deletion",error="ValueError"} 1.0'
        in probes.answer("/metrics")[1]
    )
    assert probes.answer("/")[0] == 404


def test_probes_answer_over_http():
    """A real port on loopback."""
    probes = Probes(Metrics(), free_port(), host="127.0.0.1")
    with probes.serving() as port, urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
        assert answer.read() == b"ok"


def free_port():
    """A port that is free now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
