"""Locations whose Secrets strangers wrote, in a cluster over HTTP, and an honest neighbour among them."""

import base64
import gzip
import json
import threading
from datetime import UTC, datetime

from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.adapters.local import MemoryEvents
from reprieve.core.objects import ObjectKind
from reprieve.entrypoints.configuration import Configuration
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World
from tests.integration.cloud_http import stand_ins
from tests.unit.overtime import CountedCluster

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ENDED = {"phase": "Completed", "startTimestamp": "2026-02-01T03:00:00Z", "volumeSnapshotsCompleted": 1}
HONEST = "honest"
SNAPSHOTS = {"aws": "snap-0123456789abcdef0", "gcp": "disk-00001"}
AZURE_SNAPSHOT = (
    "/subscriptions/0b1f6471-1bf0-4dda-aec3-111122223333/resourceGroups/g/providers/Microsoft.Compute/snapshots/a"
)


class Scene:
    """Controllers over an API server; the files of every backup are in one container, its snapshot at its own location.

    For each Secret of a stranger two backups: its snapshot, or its files, are asked for with that Secret. And an honest
    one.
    """

    now = NOW

    def __init__(self, store, cluster, files):
        self.cluster, self.store, self.files = CountedCluster(cluster), store, files
        self.stop, self.names, self.asked = threading.Event(), [], False
        self.object_stores, self.snapshot_stores = CloudObjectStores(policy=stand_ins(files.url)), CloudSnapshotStores()
        self.events = MemoryEvents()
        self.secret("files", files.credential)
        self.place("default", files.provider, files.config(), "files")

    def served(self):
        """Whether an honest backup, that was asked for after all others, is gone."""
        if not self.asked:
            self.asked = True
            self.backup(HONEST, location="")
        return HONEST not in self.listed("Backup")

    @property
    def world(self):
        stores = (self.object_stores, self.snapshot_stores)
        return World(Configuration(), self.cluster, *stores, self.events, local=True)

    def build(self, *names):
        return build_controllers(self.world, names=names, stop=self.stop)

    def create(self, version, kind, name, **parts):
        metadata = {"name": name, "namespace": "velero"}
        self.store.create({"apiVersion": version, "kind": kind, "metadata": metadata, **parts})

    def secret(self, name, text):
        data = text.encode() if isinstance(text, str) else text
        self.create("v1", "Secret", name, data={"cloud": base64.b64encode(data).decode()})

    def place(self, name, provider, config, secret):
        credential = {"credential": {"name": secret, "key": "cloud"}} if secret else {}
        spec = {"provider": provider, "objectStorage": {"bucket": "backups"}, "config": config, **credential}
        self.create("velero.io/v1", "BackupStorageLocation", name, spec=spec, status={"phase": "Available"})

    def backup(self, name, *, location, snapshot="", storage="default"):
        listed = [{"spec": {"location": location}, "status": {"providerSnapshotID": snapshot, "phase": "Completed"}}]
        status = {**ENDED, "volumeSnapshotsCompleted": int(bool(location))}
        spec = {"storageLocation": storage, "volumeSnapshotLocations": [location] if location else []}
        self.create("velero.io/v1", "Backup", name, spec=spec, status=status)
        self.create("velero.io/v1", "DeleteBackupRequest", name, spec={"backupName": name})
        self.files.put(f"backups/{name}/velero-backup.json", json.dumps({"status": status}).encode())
        data = gzip.compress(json.dumps(listed if location else []).encode())
        self.files.put(f"backups/{name}/{name}-volumesnapshots.json.gz", data)

    def attack(self, provider, secret, config=None, *, credential=True):
        """Both kinds of locations of a provider with a Secret, and a backup at each of them."""
        name = f"{provider}-{len(self.names)}"
        if credential:
            self.secret(name, secret)
        said = (
            {"region": "us-east-1"} if provider == "aws" else {"storageAccount": "abc"} if provider == "azure" else {}
        )
        reference = {"credential": {"name": name, "key": "cloud"}} if credential else {}
        spec = {"provider": provider, "config": {**said, **(config or {})}, **reference}
        self.create("velero.io/v1", "VolumeSnapshotLocation", name, spec=spec)
        self.place(name, provider, {**said, **(config or {})}, name if credential else "")
        self.backup(f"{name}-snapshot", location=name, snapshot=SNAPSHOTS.get(provider, AZURE_SNAPSHOT))
        self.backup(f"{name}-files", location="", storage=name)
        self.names += [f"{name}-snapshot", f"{name}-files"]

    def listed(self, kind):
        found = self.store.list(ObjectKind("velero.io/v1", kind)).items
        return {each["metadata"]["name"]: each for each in found}

    def run(self):
        """What one more run says of each stranger's backup, by name."""
        report = self.report()
        assert report.failures == ()
        return {each.ref.name: each.message for each in report.decisions}

    def report(self, work=run_once):
        """Run, or plan, the deletions once more."""
        built = self.build("deletion")
        try:
            return work(built.reconcilers, now=NOW)
        finally:
            built.close()
