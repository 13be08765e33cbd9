"""End to end over HTTP: the official Kubernetes client, boto3 and obstore against servers on loopback."""

import gzip
import json
import logging
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import boto3
import pytest
from werkzeug.serving import make_server

from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.adapters.local import MemoryEvents
from reprieve.core.reasons import Reason
from reprieve.entrypoints.configuration import Configuration
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import plan_once, run_once
from reprieve.entrypoints.world import World
from tests.integration import ec2
from tests.integration.cloud_http import stand_ins

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REGION = ec2.REGION
BUCKET = "acme-backups"
SNAPSHOTS = 40


class Aws:
    """EC2 and S3 as moto serves them, on loopback, with every call counted by what it does."""

    def __init__(self):
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self.calls = Counter()
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._count, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _count(self, environ, start):
        with self._lock:
            self.calls[self._name(environ)] += 1
        return self._app(environ, start)

    @staticmethod
    def _name(environ):
        """The EC2 action, or S3's method; a bulk delete is a POST with ``?delete``."""
        method = environ["REQUEST_METHOD"]
        if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
            import io

            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            return parse_qs(body.decode()).get("Action", ["?"])[0]
        return "DeleteObjects" if method == "POST" and "delete" in environ.get("QUERY_STRING", "") else method

    @property
    def writes(self):
        """The calls that change something."""
        reads = {"GET", "HEAD", "DescribeSnapshots", "DescribeLockedSnapshots"}
        return Counter({name: count for name, count in self.calls.items() if name not in reads})

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def aws(monkeypatch):
    """AWS on loopback, and the environment that leads the SDKs there."""
    from moto.core.models import botocore_stubber  # noqa: F401 - moto's backends are shared; they are reset below
    from moto.ec2.models import ec2_backends
    from moto.s3.models import s3_backends

    server = Aws()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL_EC2": server.url,
    }.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()
    for backends in (ec2_backends, s3_backends):
        backends.reset()


def backup(name, started):
    """A Backup as Velero leaves it."""
    return {
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": {"name": name, "namespace": "velero", "labels": {"velero.io/storage-location": "default"}},
        "spec": {"storageLocation": "default", "volumeSnapshotLocations": ["aws"]},
        "status": {"phase": "Completed", "startTimestamp": started, "volumeSnapshotsCompleted": SNAPSHOTS},
    }


def entry(snapshot):
    """A record of a snapshot in Velero's list."""
    spec = {"location": "aws", "volumeAZ": f"{REGION}a", "persistentVolumeName": f"pv-{snapshot}"}
    return {"spec": spec, "status": {"providerSnapshotID": snapshot, "phase": "Completed"}}


class Scene:
    """Two backups with 40 snapshots each, one of them missing, and restores of both."""

    def __init__(self, aws, store):
        self.s3 = boto3.client("s3", endpoint_url=aws.url)
        self.ec2 = boto3.client("ec2")
        self.store = store
        self.s3.create_bucket(Bucket=BUCKET)
        self.volume = self.ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1)["VolumeId"]
        self._locations(aws.url)
        self.snapshots = {name: self._backup(name) for name in ("nightly", "weekly")}
        self.gone = self.snapshots["nightly"][7]
        self.ec2.delete_snapshot(SnapshotId=self.gone)

    def _locations(self, url):
        config = {"region": REGION, "s3Url": url, "s3ForcePathStyle": "true"}
        self._create(
            "BackupStorageLocation",
            "default",
            spec={"provider": "aws", "objectStorage": {"bucket": BUCKET, "prefix": "c1"}, "config": config},
            status={"phase": "Available"},
        )
        self._create("VolumeSnapshotLocation", "aws", spec={"provider": "velero.io/aws", "config": {"region": REGION}})

    def _create(self, kind, name, **parts):
        metadata = {"name": name, "namespace": "velero"}
        return self.store.create({"apiVersion": "velero.io/v1", "kind": kind, "metadata": metadata, **parts})

    def _backup(self, name):
        record = backup(name, "2026-02-01T03:00:00Z")
        tags = [{"ResourceType": "snapshot", "Tags": [{"Key": "velero.io/backup", "Value": name}]}]
        made = [self.ec2.create_snapshot(VolumeId=self.volume, TagSpecifications=tags) for _ in range(SNAPSHOTS)]
        snapshots = [each["SnapshotId"] for each in made]
        record["metadata"]["uid"] = self.store.create(record)["metadata"]["uid"]
        files = {
            "velero-backup.json": json.dumps(record).encode(),
            f"{name}.tar.gz": b"objects",
            f"{name}-logs.gz": b"logs",
            f"{name}-volumesnapshots.json.gz": gzip.compress(json.dumps([entry(s) for s in snapshots]).encode()),
        }
        for file, content in files.items():
            self.s3.put_object(Bucket=BUCKET, Key=f"c1/backups/{name}/{file}", Body=content)
        for restore in (f"{name}-r1", f"{name}-r2"):
            self._create("Restore", restore, spec={"backupName": name}, status={"phase": "Completed"})
            self.s3.put_object(Bucket=BUCKET, Key=f"c1/restores/{restore}/restore-{restore}-logs.gz", Body=b"logs")
        return snapshots

    def ask(self, name):
        """A request as Velero's command makes it."""
        found = self.get("Backup", name)
        labels = {"velero.io/backup-name": name, "velero.io/backup-uid": found["metadata"]["uid"]}
        metadata = {"generateName": f"{name}-", "namespace": "velero", "labels": labels}
        spec = {"backupName": name}
        kind = "DeleteBackupRequest"
        return self.store.create({"apiVersion": "velero.io/v1", "kind": kind, "metadata": metadata, "spec": spec})

    def names(self, kind):
        """The names of all objects of a kind."""
        from reprieve.core.objects import ObjectKind

        return {each["metadata"]["name"] for each in self.store.list(ObjectKind("velero.io/v1", kind)).items}

    def get(self, kind, name):
        """One object's JSON."""
        from reprieve.core.objects import ObjectKind

        found = self.store.list(ObjectKind("velero.io/v1", kind)).items
        return next(each for each in found if each["metadata"]["name"] == name)

    def files(self):
        """All keys of the bucket."""
        listed = self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {each["Key"] for each in listed}

    def live(self):
        """The ids of the snapshots that are there."""
        return {each["SnapshotId"] for each in self.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]}


@pytest.fixture
def scene(aws, store):
    """The scene, with the counters at zero."""
    made = Scene(aws, store)
    aws.calls.clear()
    return made


@pytest.fixture
def controllers(aws, cluster):
    """The controllers as they run in a cluster, over real SDKs."""
    files, snapshots = CloudObjectStores(policy=stand_ins(aws.url)), CloudSnapshotStores(providers=["aws"])
    world = World(Configuration(), cluster, files, snapshots, MemoryEvents())
    built = build_controllers(world, names=["deletion"], stop=threading.Event())
    yield built.reconcilers
    built.close()


def test_one_request_deletes_one_backup_and_nothing_else(scene, aws, api, controllers):
    """One request; the other backup untouched; as many writing calls as the design says; a second pass makes none."""
    request = scene.ask("nightly")
    before = len(api.writes())
    report = run_once(controllers, now=NOW)
    asked = aws.calls["DescribeSnapshots"]

    assert [(d.ref.name, d.reason) for d in report.decisions] == [(request["metadata"]["name"], Reason.COMPLETED)]
    assert report.failures == ()
    assert scene.names("Backup") == {"weekly"}
    assert scene.names("Restore") == {"weekly-r1", "weekly-r2"}
    assert scene.names("DeleteBackupRequest") == set()
    assert scene.live() == set(scene.snapshots["weekly"])
    assert {key.split("/")[2].removesuffix("-r1").removesuffix("-r2") for key in scene.files()} == {"weekly"}

    # S + R + ceil((K-1)/1000) + 1 + 4 + one per request; restore files apart (one call for each restore's files)
    restores, keys = 2, 1 + 1
    # One snapshot was gone already: that shows when it is asked whose they are, once for all, once for what is missing.
    assert aws.writes == Counter({"DeleteSnapshot": SNAPSHOTS - 1, "DeleteObjects": keys + restores})
    assert asked == 2
    assert len(api.writes()) - before == restores + 4 + 1

    aws.calls.clear()
    before = len(api.writes())
    assert run_once(controllers, now=NOW + timedelta(minutes=1)).decisions == ()
    assert aws.writes == Counter()
    assert len(api.writes()) == before


def test_a_plan_over_http_changes_nothing(scene, aws, api, controllers):
    """The plan names every step and makes no writing call."""
    scene.ask("nightly")
    before = len(api.writes())
    report = plan_once(controllers, now=NOW)
    steps = Counter(type(step).__name__ for step in report.decisions[0].steps)
    assert steps == {
        "DeleteSnapshot": SNAPSHOTS,
        "DeleteRestore": 2,
        "DeleteFiles": 1,
        "DeleteFile": 1,
        "DeleteObject": 1,
        "EndRequest": 1,
    }
    assert aws.writes == Counter()
    assert len(api.writes()) == before


def test_a_bucket_that_is_not_there_is_never_taken_for_an_empty_one(scene, aws, api, controllers):
    """A missing bucket defers; neither a snapshot nor the record goes."""
    for key in scene.files():
        scene.s3.delete_object(Bucket=BUCKET, Key=key)
    scene.s3.delete_bucket(Bucket=BUCKET)
    scene.ask("nightly")
    aws.calls.clear()
    report = run_once(controllers, now=NOW)
    assert [d.reason for d in report.decisions] == [Reason.LOCATION_UNAVAILABLE]
    assert scene.names("Backup") == {"nightly", "weekly"}
    assert aws.writes == Counter()
