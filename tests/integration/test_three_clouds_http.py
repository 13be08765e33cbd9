"""One backup on three clouds, its files on a fourth place: one request, over the real SDKs, through the controllers."""

import base64
import gzip
import json
import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from reprieve.adapters.cloud.aws import AwsSnapshots
from reprieve.adapters.cloud.azure import AzureSnapshots
from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.adapters.cloud.gcp import GcpSnapshots
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.adapters.local import MemoryEvents
from reprieve.core.objects import ObjectKind
from reprieve.core.reasons import Reason
from reprieve.entrypoints.configuration import Configuration
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World
from tests.integration.azure_compute import AzureCompute, is_delete
from tests.integration.blob_server import Blobs
from tests.integration.cloud_http import Answer, closing, stand_ins
from tests.integration.contract_snapshots import AWS_FILE, AZURE_FILE
from tests.integration.ec2 import REGION, Ec2
from tests.integration.gcp_compute import GcpCompute

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
STARTED = "2026-02-01T03:00:00Z"
NAME = "nightly"
TAGS = {"velero.io/backup": NAME}
EACH = 3  # snapshots a cloud, one of which is gone already
POLLS = 3  # how often an operation says that it is running, before it ends
LOST = "backups/nightly/nightly-logs.gz"
CONFIG = {"aws": {"region": REGION}, "gcp": {}, "azure": {"apiTimeout": "10m"}}


class Files(Blobs):
    """The fourth place. Somebody else takes a file away between the listing and the deletion."""

    def answer(self, request):
        if self.deletes(request):
            self.bucket.files.pop(LOST, None)
        return super().answer(request)


class Scene:
    """Snapshots on three clouds, files in a container, the records in a cluster, every credential in a Secret."""

    def __init__(self, store, clouds, files) -> None:
        self.store, self.clouds, self.files = store, clouds, files
        self._locations()
        self.snapshots = {name: [cloud.add(TAGS) for _ in range(EACH)] for name, cloud in clouds.items()}
        self.kept = {name: cloud.add() for name, cloud in clouds.items()}
        self.gone = {name: self._lose(name, ids[0]) for name, ids in self.snapshots.items()}
        self._backup()

    def _locations(self):
        credentials = {"aws": AWS_FILE, "gcp": self.clouds["gcp"].credential(), "azure": AZURE_FILE}
        for name, credential in {**credentials, "files": self.files.credential}.items():
            data = {"cloud": base64.b64encode(credential).decode()}
            self._create("v1", "Secret", f"{name}-credential", data=data)
        for name, config in CONFIG.items():
            spec = {"provider": f"velero.io/{name}", "config": config, "credential": reference(name)}
            self._create("velero.io/v1", "VolumeSnapshotLocation", name, spec=spec)
        place = {"provider": self.files.provider, "objectStorage": {"bucket": "backups"}, "config": self.files.config()}
        spec = {**place, "credential": reference("files")}
        self._create("velero.io/v1", "BackupStorageLocation", "default", spec=spec, status={"phase": "Available"})

    def _create(self, version, kind, name, **parts):
        metadata = {"name": name, "namespace": "velero"}
        return self.store.create({"apiVersion": version, "kind": kind, "metadata": metadata, **parts})

    def _lose(self, name, snapshot):
        cloud = self.clouds[name]
        if name == "aws":
            cloud._backend.delete_snapshot(snapshot)
        else:
            del cloud.snapshots[snapshot.rpartition("/")[2]]
        return snapshot

    def _backup(self):
        listed = [
            {"spec": {"location": name}, "status": {"providerSnapshotID": snapshot, "phase": "Completed"}}
            for name, ids in self.snapshots.items()
            for snapshot in ids
        ]
        status = {"phase": "Completed", "startTimestamp": STARTED, "volumeSnapshotsCompleted": len(listed)}
        spec = {"storageLocation": "default", "volumeSnapshotLocations": list(CONFIG)}
        self._create("velero.io/v1", "Backup", NAME, spec=spec, status=status)
        self.files.put(f"backups/{NAME}/velero-backup.json", json.dumps({"status": status}).encode())
        self.files.put(f"backups/{NAME}/{NAME}-volumesnapshots.json.gz", gzip.compress(json.dumps(listed).encode()))
        self.files.put(LOST)
        self.files.put("backups/weekly/velero-backup.json")
        request = {"apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "spec": {"backupName": NAME}}
        self.store.create({**request, "metadata": {"name": f"{NAME}-1", "namespace": "velero"}})

    def left(self, name):
        """The backup's snapshots that a cloud still has."""
        return set(self.snapshots[name]) & set(self.clouds[name].ids())

    def get(self, kind, name):
        found = self.store.list(ObjectKind("velero.io/v1", kind)).items
        return next((each for each in found if each["metadata"]["name"] == name), None)

    def request(self):
        return self.get("DeleteBackupRequest", f"{NAME}-1")

    def state(self):
        return json.loads(self.request()["metadata"]["annotations"]["reprieve.dev/state"])

    def record_is_whole(self):
        """The Backup object, its metadata and its list of snapshots are all there."""
        keys = {f"backups/{NAME}/velero-backup.json", f"backups/{NAME}/{NAME}-volumesnapshots.json.gz"}
        return self.get("Backup", NAME) is not None and keys <= self.files.keys()


def reference(name):
    return {"name": f"{name}-credential", "key": "cloud"}


@pytest.fixture
def scene(store):
    with ExitStack() as stack:
        clouds = {
            name: stack.enter_context(closing(make()))
            for name, make in {"aws": Ec2, "gcp": GcpCompute, "azure": AzureCompute}.items()
        }
        clouds["gcp"].polls = clouds["azure"].polls = POLLS
        yield Scene(store, clouds, stack.enter_context(closing(Files())))


@pytest.fixture
def controllers(scene, cluster):
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    urls = {name: cloud.url for name, cloud in scene.clouds.items()}
    openers = {
        "aws": AwsSnapshots(endpoint=urls["aws"]),
        "gcp": GcpSnapshots(endpoint=urls["gcp"]),
        "azure": AzureSnapshots(endpoint=urls["azure"], authentication_policy=SansIOHTTPPolicy()),
    }
    files = CloudObjectStores(policy=stand_ins(scene.files.url))
    world = World(Configuration(), cluster, files, CloudSnapshotStores(openers=openers), MemoryEvents())
    built = build_controllers(world, names=["deletion"], stop=threading.Event())
    yield built.reconcilers
    built.close()


def run_until(controllers, reason, *, begin=NOW):
    """Run every ten minutes until the request is decided for that reason; gives what was decided before, and when."""
    seen, now = [], begin
    while not seen or seen[-1] is not reason:
        assert len(seen) < 2 * POLLS, seen
        now += timedelta(minutes=10)
        seen.append(run_once(controllers, now=now).decisions[0].reason)
    return seen[:-1], now


def test_one_request_deletes_a_backup_on_three_clouds(scene, controllers):
    """velero#308, velero#2980: what was gone already failed the whole deletion, and asking again did not help."""
    report = run_once(controllers, now=NOW)

    assert [decision.reason for decision in report.decisions] == [Reason.PENDING]
    assert scene.left("aws") == set()
    assert scene.left("gcp") == set(scene.snapshots["gcp"][1:])
    assert scene.left("azure") == set(scene.snapshots["azure"][1:])
    assert scene.record_is_whole()
    assert scene.get("Backup", NAME)["status"]["phase"] == "Deleting"

    waited, _ = run_until(controllers, Reason.COMPLETED)

    assert set(waited) <= {Reason.PENDING}
    assert {name: cloud.ids() for name, cloud in scene.clouds.items()} == {n: {s} for n, s in scene.kept.items()}
    assert {name: len(scene.clouds[name].operations) for name in ("gcp", "azure")} == dict.fromkeys(
        ("gcp", "azure"), EACH - 1
    )
    assert scene.files.keys() == {"backups/weekly/velero-backup.json"}
    assert scene.get("Backup", NAME) is None
    assert scene.request() is None


def test_operations_that_end_in_an_error_are_retried_and_lose_nothing(scene, controllers):
    """A Google operation that failed raises nothing by itself, an Azure one fails with HTTP 200: both were accepted."""
    used, shared = scene.snapshots["gcp"][1], scene.snapshots["azure"][1]
    message = f"The snapshot resource 'projects/p/global/snapshots/{used}' is already being used"
    scene.clouds["gcp"].ends_in[used] = (400, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", message)
    scene.clouds["azure"].ends_in[shared.rpartition("/")[2]] = ("OperationNotAllowed", "The snapshot is being used.")
    _, at = run_until(controllers, Reason.RETRYING)

    assert scene.record_is_whole()
    assert (scene.left("gcp"), scene.left("azure")) == ({used}, {shared})
    errors = "\n".join(scene.request()["status"]["errors"])
    assert "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE" in errors
    assert "operation Failed: OperationNotAllowed: The snapshot is being used." in errors
    assert (scene.request()["status"]["phase"], scene.state()["attempts"]) == ("InProgress", 1)

    scene.clouds["gcp"].ends_in.clear()
    scene.clouds["azure"].ends_in.clear()
    run_until(controllers, Reason.COMPLETED, begin=at)

    assert (scene.left("gcp"), scene.left("azure")) == (set(), set())
    assert scene.get("Backup", NAME) is None


def test_an_operation_that_ends_in_a_refusal_fails_the_request_with_the_reason(scene, controllers):
    denied = scene.snapshots["gcp"][2]
    scene.clouds["gcp"].ends_in[denied] = (403, "PERMISSIONS_ERROR", "Required 'compute.snapshots.delete' permission")
    run_until(controllers, Reason.FAILED)

    assert scene.record_is_whole()
    assert scene.left("gcp") == {denied}
    assert scene.request()["status"]["phase"] == "Processed"
    (error,) = scene.request()["status"]["errors"]
    assert denied in error
    assert "PERMISSIONS_ERROR, HTTP 403: Required 'compute.snapshots.delete' permission" in error
    assert scene.get("Backup", NAME)["status"]["phase"] == "Deleting"


def test_a_cloud_that_is_down_keeps_the_record_and_the_others_are_done(scene, controllers):
    scene.clouds["azure"].faults.next(Answer(503), when=is_delete, times=100)
    report = run_once(controllers, now=NOW)

    assert [decision.reason for decision in report.decisions] == [Reason.RETRYING]
    assert scene.left("aws") == set()
    assert scene.left("azure") == set(scene.snapshots["azure"][1:])
    assert scene.record_is_whole()


def test_a_cloud_that_cannot_be_asked_whose_the_snapshots_are_stops_the_deletion_before_it_begins(scene, controllers):
    scene.clouds["azure"].server.close()
    report = run_once(controllers, now=NOW)

    assert [decision.reason for decision in report.decisions] == [Reason.SNAPSHOTS_UNPROVEN]
    assert {name: scene.left(name) for name in scene.clouds} == {n: set(s[1:]) for n, s in scene.snapshots.items()}
    assert scene.record_is_whole()
    assert scene.get("Backup", NAME)["status"]["phase"] == "Completed"


def test_a_listing_without_a_filter_is_shared(scene, controllers):
    """Google Cloud and Azure list a whole place; three passes within a minute list it once."""
    run_until(controllers, Reason.COMPLETED)
    listings = {
        name: [r for r in cloud.requests if r.method == "GET" and r.path.endswith("/snapshots")]
        for name, cloud in scene.clouds.items()
        if name != "aws"
    }

    assert {name: len(found) for name, found in listings.items()} == {"gcp": 1, "azure": 1}
