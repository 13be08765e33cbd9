"""A namespace of backups in memory, with buckets that count and controllers that are run at any time."""

import gzip
import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

from reprieve.adapters.local import LocalCluster, MemoryEvents, MemoryObjectStores, MemorySnapshotStores
from reprieve.core.errors import NotFoundError
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.values import format_instant
from reprieve.entrypoints.configuration import BackupSettings, Configuration
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import plan_once, run_once
from reprieve.entrypoints.world import World

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MADE = NOW - timedelta(days=30)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
VELERO = "velero.io/v1"


def made(kind, name, *, metadata=None, **parts):
    """An object of Velero's, as Kubernetes JSON."""
    head = {"name": name, "namespace": "velero", **(metadata or {})}
    return {"apiVersion": VELERO, "kind": kind, "metadata": head, **parts}


def location(name="default", *, bucket="b", available=True, read_only=False, status=None, **spec):
    """A storage location with a bucket of its own."""
    spec = {"provider": "aws", "objectStorage": {"bucket": bucket}, **spec}
    spec |= {"accessMode": "ReadOnly"} if read_only else {}
    phase = {"phase": "Available" if available else "Unavailable"}
    return made("BackupStorageLocation", name, spec=spec, status=phase | (status or {}))


def record(name, *, at="default", phase="Completed", expires=None, schedule="", annotations=None, **status):
    """A Backup as Velero leaves it."""
    labels = {"velero.io/storage-location": at} | ({"velero.io/schedule-name": schedule} if schedule else {})
    status = {
        "phase": phase,
        "startTimestamp": format_instant(MADE),
        "completionTimestamp": format_instant(MADE),
        **({"expiration": format_instant(expires)} if expires else {}),
        **status,
    }
    metadata = {"labels": labels, "annotations": annotations or {}, "creationTimestamp": format_instant(MADE)}
    spec = {"storageLocation": at, "volumeSnapshotLocations": ["aws"]}
    return made("Backup", name, metadata=metadata, spec=spec, status=status)


def packed(documents):
    """A list as it lies in a bucket."""
    return gzip.compress(json.dumps(documents).encode(), mtime=0)


def files_of(document, *, snapshots=(), volumes=()):
    """The files of a backup's directory, by key."""
    name = document["metadata"]["name"]
    top = f"backups/{name}/"
    files = {f"{top}velero-backup.json": json.dumps(document).encode(), f"{top}{name}.tar.gz": b"objects"}
    listed = [{"spec": {"location": "aws"}, "status": {"providerSnapshotID": each}} for each in snapshots]
    files |= {f"{top}{name}-volumesnapshots.json.gz": packed(listed)} if snapshots else {}
    return files | ({f"{top}{name}-podvolumebackups.json.gz": packed(list(volumes))} if volumes else {})


def volume(name, backup):
    """A stored PodVolumeBackup of another cluster."""
    owner = {"apiVersion": VELERO, "kind": "Backup", "name": backup, "uid": "old-uid"}
    labels = {"velero.io/backup-name": backup, "velero.io/backup-uid": "old-uid"}
    metadata = {"name": name, "namespace": "old", "labels": labels, "ownerReferences": [owner]}
    status = {"phase": "Completed", "snapshotID": f"kopia-{name}"}
    spec = {"uploaderType": "kopia", "backupStorageLocation": "old"}
    return {"apiVersion": VELERO, "kind": "PodVolumeBackup", "metadata": metadata, "spec": spec, "status": status}


class CountedCluster:
    """A cluster that counts calls by verb and kind. ``before`` is asked before each, and may raise a core error."""

    def __init__(self, cluster):
        self.cluster, self.calls, self.before = cluster, Counter(), lambda _verb, _kind, _name: None

    def _count(self, verb, kind, name=""):
        self.calls[f"{verb} {kind}"] += 1
        self.before(verb, kind, name)

    def scope(self, kind):
        return self.cluster.scope(kind)

    def watch(self, *arguments, **options):
        return self.cluster.watch(*arguments, **options)

    def get(self, ref, **options):
        self._count("get", ref.kind, ref.name)
        return self.cluster.get(ref, **options)

    def list(self, kind, **options):
        self._count("list", kind.kind)
        return self.cluster.list(kind, **options)

    def create(self, manifest):
        self._count("create", manifest["kind"], manifest["metadata"].get("name", ""))
        return self.cluster.create(manifest)

    def patch(self, ref, patch, **options):
        self._count("patch", ref.kind, ref.name)
        return self.cluster.patch(ref, patch, **options)

    def delete(self, ref, **options):
        self._count("delete", ref.kind, ref.name)
        return self.cluster.delete(ref, **options)

    @property
    def writes(self):
        """The calls that change something."""
        return Counter({call: n for call, n in self.calls.items() if call.split()[0] not in {"get", "list"}})


class Namespace:
    """Objects, buckets and snapshots. Each run has new controllers: a process that remembers nothing."""

    def __init__(self, *objects, buckets=None, snapshots=(), **settings):
        self.now = NOW
        self.cluster = CountedCluster(LocalCluster.in_memory(objects, now=lambda: self.now))
        self.reads, self.fault = Counter(), lambda _operation, _bucket, _key: None
        self.stores = MemoryObjectStores(buckets or {"b": {}}, hook=self._hook)
        self.snapshots = MemorySnapshotStores(snapshots)
        self.configuration = Configuration(BackupSettings(**settings))
        self.stop = threading.Event()

    def _hook(self, operation, bucket, key):
        self.reads[operation] += 1
        self.fault(operation, bucket, key)

    @property
    def world(self):
        """The world for controllers."""
        return World(self.configuration, self.cluster, self.stores, self.snapshots, MemoryEvents())

    def build(self, *names):
        """New controllers of those names."""
        return build_controllers(self.world, names=names, stop=self.stop)

    def run(self, *names, at=NOW):
        """Run once, and tell the report."""
        return self._with(run_once, names, at)

    def plan(self, *names, at=NOW):
        """Plan once, and tell the report."""
        return self._with(plan_once, names, at)

    def _with(self, work, names, at):
        self.now = at
        self.cluster.calls.clear()
        self.reads.clear()
        built = self.build(*names)
        try:
            return work(built.reconcilers, now=at)
        finally:
            built.close()

    def names(self, kind="Backup"):
        """The names of all objects of a kind."""
        return {each.meta.name for each in self.cluster.cluster.list(ObjectKind(VELERO, kind)).items}

    def get(self, name, kind="Backup"):
        """One object; None when it is not there."""
        try:
            return self.cluster.cluster.get(ObjectRef(VELERO, kind, name, "velero"))
        except NotFoundError:
            return None

    def annotate(self, name, kind="Backup", **annotations):
        """Set annotations; None takes one off. ``reprieve.dev/`` is put before each key."""
        found = self.get(name, kind)
        values = {f"reprieve.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.cluster.cluster.patch(found.ref, {"metadata": {"annotations": values}})

    def synced(self, name="default"):
        """When a location was last synced."""
        return self.get(name, "BackupStorageLocation").section("status").get("lastSyncedTime")


def told(report):
    """What a report says: controller, object, verdict and reason."""
    return [(d.controller, d.ref.name, d.verdict.value, d.reason.value) for d in report.decisions]
