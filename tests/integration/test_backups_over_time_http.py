"""Backups over time, over HTTP: the official Kubernetes client and obstore against servers on loopback."""

import gzip
import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from reprieve.adapters.cloud.buckets import PROBE, CloudObjectStores
from reprieve.adapters.local import MemoryEvents, MemorySnapshotStores
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import SnapshotInfo
from reprieve.core.values import format_instant
from reprieve.entrypoints.configuration import Configuration
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.decisions import Standing
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World
from tests.integration.buckets_http import Cloud
from tests.integration.cloud_http import Answer, closing, stand_ins
from tests.integration.s3 import S3

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MADE = NOW - timedelta(days=30)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
PLACES = {"east": 250, "west": 150, "asia": 100}
SHORT, NIGHTLY = 5, 4
VELERO = "velero.io/v1"


def made(kind, name, **parts):
    return {"apiVersion": VELERO, "kind": kind, "metadata": {"name": name, "namespace": "velero"}, **parts}


def stored(name, *, expires, schedule="", completed=MADE, snapshots=0):
    """A metadata document, as another cluster wrote it: its UID, its owners and its location are not this one's."""
    owner = {"apiVersion": VELERO, "kind": "Schedule", "name": schedule, "uid": "uid-of-another-cluster"}
    labels = {"velero.io/storage-location": "elsewhere"} | ({"velero.io/schedule-name": schedule} if schedule else {})
    spec = {"storageLocation": "elsewhere", "volumeSnapshotLocations": ["aws"] if snapshots else []}
    document = made("Backup", name, spec=spec)
    document["metadata"] |= {"uid": "old", "resourceVersion": "7", "namespace": "old", "labels": labels}
    document["metadata"] |= {"ownerReferences": [owner]} if schedule else {}
    times = {"startTimestamp": MADE, "completionTimestamp": completed, "expiration": expires}
    status = {"phase": "Completed", "volumeSnapshotsCompleted": snapshots}
    return {**document, "status": status | {key: format_instant(time) for key, time in times.items()}}


class Scene:
    """Three locations with a bucket each, and a namespace that knows of nothing yet but a schedule."""

    def __init__(self, s3, store, cluster):
        self.s3, self.store = s3, store
        self.snapshots = MemorySnapshotStores(providers=["aws"])
        files = CloudObjectStores(policy=stand_ins(s3.url))
        self.world = World(Configuration(), cluster, files, self.snapshots, MemoryEvents())
        self.store.create(made("Schedule", "nightly", spec={"schedule": "0 3 * * *"}))
        self.store.create(made("VolumeSnapshotLocation", "aws", spec={"provider": "aws"}))
        for place in PLACES:
            s3.backend.create_bucket(place, "us-east-1")
            self.locate(place)

    def locate(self, name, *, bucket=""):
        """A location, with the bucket of its own name."""
        storage = {"bucket": bucket or name, "prefix": "c1"}
        spec = {"provider": "aws", "objectStorage": storage, "config": self.s3.config(), "default": name == "east"}
        self.store.create(made("BackupStorageLocation", name, spec=spec, status={"phase": "Available"}))

    def put(self, bucket, name, file, data):
        self.s3.backend.put_object(bucket, f"c1/backups/{name}/{file}", data)

    def upload(self, bucket, name, *, snapshot="", **fields):
        """A backup's directory."""
        document = stored(name, snapshots=1 if snapshot else 0, **fields)
        self.put(bucket, name, "velero-backup.json", json.dumps(document).encode())
        self.put(bucket, name, f"{name}.tar.gz", b"objects")
        if snapshot:
            listed = [{"spec": {"location": "aws"}, "status": {"providerSnapshotID": snapshot}}]
            self.put(bucket, name, f"{name}-volumesnapshots.json.gz", gzip.compress(json.dumps(listed).encode()))
            self.snapshots.snapshots.append(SnapshotInfo("aws", snapshot, {"velero.io/backup": name}))

    def fill(self):
        """500 backups: a few that expire soon, four nights of a schedule, and all the others."""
        for place, count in PLACES.items():
            for number in range(count):
                expires = NOW + (2 * DAY if number < SHORT else 300 * DAY)
                self.upload(place, f"{place}-{number:03}", expires=expires)
        for number in range(NIGHTLY):
            fields = {"expires": NOW + 2 * DAY, "schedule": "nightly", "completed": MADE + number * DAY}
            self.upload("east", f"nightly-{number}", snapshot=f"snap-{number}", **fields)

    def run(self, *names, at):
        """Run once with new controllers; counts calls from zero."""
        self.s3.requests.clear()
        built = build_controllers(self.world, names=names, stop=threading.Event())
        try:
            return run_once(built.reconcilers, now=at)
        finally:
            built.close()

    def records(self):
        """The Backups, by name."""
        found = self.store.list(ObjectKind(VELERO, "Backup")).items
        return {each["metadata"]["name"]: each for each in found}

    def count(self, kind):
        return len(self.store.list(ObjectKind(VELERO, kind)).items)

    def synced(self):
        """The locations that were synced, and when."""
        found = self.store.list(ObjectKind(VELERO, "BackupStorageLocation")).items
        times = {each["metadata"]["name"]: each["status"].get("lastSyncedTime") for each in found}
        return {name: time for name, time in times.items() if time}

    def directories(self, bucket):
        return {key.split("/")[2] for key in self.s3.backend.buckets[bucket].keys}

    def downloads(self):
        """How many files were fetched. An empty answer is confirmed by a file that cannot be there; that is none."""
        fetched = [r for r in self.s3.requests if r.method == "GET" and not Cloud.lists(r)]
        return sum(1 for r in fetched if not r.path.endswith(PROBE))


@pytest.fixture
def scene(monkeypatch, store, cluster):
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    with closing(S3()) as s3:
        yield Scene(s3, store, cluster)


def changes(api, since):
    """The writing calls since then, by verb and kind."""
    return Counter(
        f"{call.verb} {call.path.split('/namespaces/velero/')[-1].split('/')[0]}" for call in api.writes()[since:]
    )


def test_one_full_life(scene, api):
    """Created by sync, expired, requested, deleted, never back: 500 backups, three locations, a schedule."""
    scene.fill()
    total = sum(PLACES.values()) + NIGHTLY
    before = len(api.writes())
    report = scene.run(at=NOW)
    assert report.standing is Standing.SETTLED
    assert changes(api, before) == Counter({"create backups": total, "patch backupstoragelocations": 3})
    found = scene.records()
    assert Counter(each["spec"]["storageLocation"] for each in found.values()) == Counter(
        {**PLACES, "east": PLACES["east"] + NIGHTLY}
    )
    assert not any("ownerReferences" in each["metadata"] for each in found.values()), (
        "D-52: no owner of another cluster"
    )
    assert scene.synced() == dict.fromkeys(PLACES, format_instant(NOW))

    before = len(api.writes())
    scene.run(at=NOW + MINUTE)
    assert changes(api, before) == Counter({"patch backupstoragelocations": 3}), "nothing is written for what is there"
    assert scene.downloads() == 0

    before = len(api.writes())
    report = scene.run(at=NOW + 2 * DAY - MINUTE)
    assert changes(api, before) == Counter({"patch backupstoragelocations": 3}), "a minute before expiry nothing is due"

    report = scene.run(at=NOW + 2 * DAY)
    gone = {f"{place}-{number:03}" for place in PLACES for number in range(SHORT)}
    gone |= {f"nightly-{number}" for number in range(NIGHTLY - 1)}
    reasons = {d.ref.name: d.reason.value for d in report.decisions if d.controller == "retention"}
    assert reasons == {**dict.fromkeys(gone, "Expired"), f"nightly-{NIGHTLY - 1}": "LastGood"}
    assert report.standing is Standing.SETTLED
    assert set(scene.records()) == set(found) - gone
    assert scene.count("DeleteBackupRequest") == 0
    assert [each.id for each in scene.snapshots.snapshots] == [f"snap-{NIGHTLY - 1}"]
    assert not gone & {name for place in PLACES for name in scene.directories(place)}

    before = len(api.writes())
    scene.run(at=NOW + 2 * DAY + MINUTE)
    assert set(scene.records()) == set(found) - gone
    assert changes(api, before) == Counter({"patch backupstoragelocations": 3})


# What a bucket may answer

ENTRY = "<CommonPrefixes><Prefix>c1/backups/{name}/</Prefix></CommonPrefixes>"
PAGE = (
    '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Name>east</Name><Prefix>c1/backups/</Prefix><Delimiter>/</Delimiter><MaxKeys>1000</MaxKeys><KeyCount>1</KeyCount>"
    "<IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken>"
    f"{ENTRY.format(name='a')}</ListBucketResult>"
)
XML = {"Content-Type": "application/xml"}
CUT_OFF = Answer(200, PAGE[: len(PAGE) // 2].encode(), XML)
FIRST = Answer(200, PAGE.encode(), XML)


def is_second_page(request):
    return Cloud.lists(request) and "continuation-token" in request.query


@pytest.mark.parametrize(
    "canned",
    [
        pytest.param([(S3.answers["denied"], Cloud.lists)], id="403"),
        pytest.param([(S3.answers["missing"], Cloud.lists)], id="404-no-such-bucket"),
        pytest.param([(CUT_OFF, Cloud.lists)], id="a-page-that-is-cut-off"),
        pytest.param([(S3.answers["denied"], is_second_page), (FIRST, Cloud.lists)], id="403-on-the-second-page"),
    ],
)
def test_a_bucket_that_cannot_be_listed_creates_and_drops_nothing(scene, api, canned):
    """It is told, with the bucket's own words; the other two locations are synced all the same."""
    for place in PLACES:
        scene.upload(place, f"{place}-a", expires=NOW + DAY)
    record = made("Backup", "east-b", spec={"storageLocation": "east"}, status={"phase": "Completed"})
    scene.store.create(record)
    for answer, when in canned:
        scene.s3.faults.next(answer, when=lambda r, when=when: r.path.startswith("/east") and when(r), times=20)
    before = len(api.writes())
    report = scene.run("sync", at=NOW)
    told = [(d.ref.kind, d.ref.name, d.reason.value) for d in report.decisions if d.ref.kind != "Backup"]
    assert told == [("BackupStorageLocation", "east", "Unreadable")]
    assert report.standing is Standing.SETTLED
    assert set(scene.records()) == {"east-b", "west-a", "asia-a"}
    assert set(scene.synced()) == {"west", "asia"}
    assert changes(api, before) == Counter({"create backups": 2, "patch backupstoragelocations": 2})


def test_a_location_whose_bucket_is_not_there_drops_nothing(scene):
    """No canned answer: the stand-in itself has no such bucket. A missing bucket is never an empty one."""
    scene.locate("lost", bucket="nobody-made-this")
    scene.store.create(made("Backup", "lost-a", spec={"storageLocation": "lost"}, status={"phase": "Completed"}))
    report = scene.run("sync", at=NOW)
    assert [(d.ref.name, d.reason.value) for d in report.decisions] == [("lost", "Unreadable")]
    assert "nobody-made-this" in report.decisions[0].message
    assert set(scene.records()) == {"lost-a"}


def test_garbage_metadata_takes_nothing_else_along(scene):
    """One directory cannot be read: it is reported by its key, and its neighbour comes."""
    scene.put("east", "bad", "velero-backup.json", b"\x1f\x8b\x00 no JSON")
    scene.put("east", "half", "half-logs.gz", b"logs")
    scene.upload("east", "good", expires=NOW + DAY)
    report = scene.run("sync", at=NOW)
    reasons = {d.ref.name: d.reason.value for d in report.decisions}
    assert reasons == {"bad": "MetadataCorrupt", "half": "NoMetadata", "good": "InBucket"}
    assert set(scene.records()) == {"good"}
    assert set(scene.synced()) == set(PLACES)


def test_ten_thousand_directories_cost_pages_and_no_download(scene, api):
    """All of them have a record: the bucket is listed, the records are listed, and nothing is fetched or written."""
    names = [f"b-{number:05}" for number in range(10_001)]
    for name in names:
        scene.put("east", name, "velero-backup.json", b"{}")
        scene.store.create(made("Backup", name, spec={"storageLocation": "east"}, status={"phase": "Completed"}))
    before = len(api.writes())
    report = scene.run("sync", at=NOW)
    assert report.decisions == ()
    assert scene.downloads() == 0
    assert Counter(r.path.split("/")[1] for r in scene.s3.requests if Cloud.lists(r))["east"] == 11
    assert changes(api, before) == Counter({"patch backupstoragelocations": 3})
    assert len(scene.records()) == len(names)
