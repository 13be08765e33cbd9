"""The manifests as the controller meets them: their rights over the API server, and a cluster that needs each one."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import yaml

from reprieve.adapters.k8s.events import KubernetesEvents
from reprieve.adapters.local import MemoryObjectStores, MemorySnapshotStores, ServedKind
from reprieve.core.ports import SnapshotInfo
from reprieve.entrypoints.configuration import Configuration
from reprieve.entrypoints.world import World

DEPLOY = Path(__file__).parents[2] / "deploy"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def manifests():
    return [
        each for path in sorted(DEPLOY.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text("utf-8")) if each
    ]


def grants(documents):
    """(namespace or empty, group, resource, verb, names) of every line of every role."""
    return [
        (role["metadata"].get("namespace", ""), group, resource, verb, tuple(rule.get("resourceNames", ())))
        for role in documents
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


class Authorizer:
    """Kubernetes' RBAC over manifests, by default those of ``deploy/``; remembers what was used and what was refused.

    Whether it may list everything, the controller only asks.
    """

    def __init__(self, documents=None):
        self.grants, self.used, self.refused = grants(documents or manifests()), set(), []

    @property
    def unused(self):
        return sorted(set(self.grants) - self.used)

    def __call__(self, access):
        fitting = {grant for grant in self.grants if self._fits(grant, access)}
        self.used |= fitting
        if not fitting and access.resource != "*":
            self.refused.append(access)
        return bool(fitting)

    def _fits(self, grant, access):
        namespace, group, resource, verb, names = grant
        return (
            namespace in ("", access.namespace)
            and (group, resource, verb) == (access.group, access.resource, access.verb)
            and (not names or access.name in names)
        )


def velero(kind, name, *, spec, version="v1", **rest):
    meta = {"name": name, "namespace": "velero", **rest.pop("metadata", {})}
    return {"apiVersion": f"velero.io/{version}", "kind": kind, "metadata": meta, "spec": spec, **rest}


def make_world(store, cluster):
    """One backup with a snapshot and a restore, on locations with a credential of their own; and a request for it.

    Beside it a backup that expired, and one that only the bucket has, with a volume.
    """
    store.register(ServedKind("velero.io/v2alpha1", "DataUpload", "datauploads"))
    store.register(ServedKind("snapshot.storage.k8s.io/v1", "VolumeSnapshot", "volumesnapshots"))
    contents = "volumesnapshotcontents"
    store.register(ServedKind("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent", contents, namespaced=False))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cloud-credentials", "namespace": "velero"}}
    store.create({**secret, "data": {"key": "c2VjcmV0"}})
    credential = {"name": "cloud-credentials", "key": "key"}
    location = {"provider": "aws", "objectStorage": {"bucket": "acme"}, "credential": credential}
    store.create(velero("BackupStorageLocation", "default", spec=location, status={"phase": "Available"}))
    store.create(velero("VolumeSnapshotLocation", "aws", spec={"provider": "aws", "config": {"region": "eu-west-1"}}))
    status = {"phase": "Completed", "startTimestamp": "2026-02-01T03:00:00Z", "volumeSnapshotsCompleted": 1}
    spec = {"storageLocation": "default", "volumeSnapshotLocations": ["aws"]}
    record = store.create(velero("Backup", "nightly", spec=spec, status=status))
    store.create(velero("Restore", "nightly-r1", spec={"backupName": "nightly"}, status={"phase": "Completed"}))
    labels = {"velero.io/backup-name": "nightly", "velero.io/backup-uid": record["metadata"]["uid"]}
    store.create(velero("DeleteBackupRequest", "ask", spec={"backupName": "nightly"}, metadata={"labels": labels}))
    status = {"phase": "Completed", "startTimestamp": "2026-01-01T03:00:00Z", "expiration": "2026-02-01T03:00:00Z"}
    old = store.create(velero("Backup", "old", spec={"storageLocation": "default"}, status=status))
    only = velero("Backup", "only", spec={"storageLocation": "default"}, status={**status, "expiration": None})
    volume = velero("PodVolumeBackup", "only-1", spec={}, status={"phase": "Completed", "snapshotID": "k1"})
    volume["metadata"]["labels"] = {"velero.io/backup-name": "only"}
    snapshot = {
        "spec": {"location": "aws", "volumeAZ": "eu-west-1a"},
        "status": {"providerSnapshotID": "snap-1", "phase": "Completed"},
    }
    files = {
        "backups/nightly/velero-backup.json": json.dumps(record).encode(),
        "backups/nightly/nightly-volumesnapshots.json.gz": gzip.compress(json.dumps([snapshot]).encode()),
        "backups/old/velero-backup.json": json.dumps(old).encode(),
        "backups/only/velero-backup.json": json.dumps(only).encode(),
        "backups/only/only-podvolumebackups.json.gz": gzip.compress(json.dumps([volume]).encode()),
    }
    events = KubernetesEvents(cluster, threaded=False)
    snapshots = MemorySnapshotStores([SnapshotInfo("aws", "snap-1", {"velero.io/backup": "nightly"})])
    return World(Configuration(), cluster, MemoryObjectStores({"acme": files}), snapshots, events)
