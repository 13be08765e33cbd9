"""The manifests: every right that the controller needs is granted, and none that it does not use."""

import gzip
import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from reprieve.adapters.k8s.events import KubernetesEvents
from reprieve.adapters.k8s.lease import Elector
from reprieve.adapters.local import MemoryObjectStores, MemorySnapshotStores, ServedKind
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import EventKind, SnapshotInfo
from reprieve.core.reasons import Reason
from reprieve.entrypoints.configuration import Configuration
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.leases import LEASE_NAME
from reprieve.entrypoints.world import World

DEPLOY = Path(__file__).parents[2] / "deploy"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def manifests():
    return [
        each for path in sorted(DEPLOY.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text("utf-8")) if each
    ]


def grants():
    """(namespace or empty, group, resource, verb, names) of every line of every role."""
    return [
        (role["metadata"].get("namespace", ""), group, resource, verb, tuple(rule.get("resourceNames", ())))
        for role in manifests()
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


class Authorizer:
    """Kubernetes' RBAC over the manifests; remembers what was used and what was refused."""

    def __init__(self):
        self.grants, self.used, self.refused = grants(), set(), []

    def __call__(self, access):
        fitting = {grant for grant in self.grants if self._fits(grant, access)}
        self.used |= fitting
        if not fitting:
            self.refused.append(access)
        return bool(fitting)

    def _fits(self, grant, access):
        namespace, group, resource, verb, names = grant
        return (
            namespace in ("", access.namespace)
            and (group, resource, verb) == (access.group, access.resource, access.verb)
            and (not names or access.name in names)
        )


@pytest.fixture
def authorizer(api):
    made = Authorizer()
    api.authorize = made
    return made


def velero(kind, name, *, spec, version="v1", **rest):
    meta = {"name": name, "namespace": "velero", **rest.pop("metadata", {})}
    return {"apiVersion": f"velero.io/{version}", "kind": kind, "metadata": meta, "spec": spec, **rest}


@pytest.fixture
def world(api, store, cluster):
    """One backup with a snapshot and a restore, on locations with a credential of their own; and a request for it.

    Beside it a backup that expired, and one that only the bucket has, with a volume.
    """
    store.register(ServedKind("velero.io/v2alpha1", "DataUpload", "datauploads"))
    store.register(ServedKind("snapshot.storage.k8s.io/v1", "VolumeSnapshot", "volumesnapshots"))
    contents = "volumesnapshotcontents"
    store.register(ServedKind("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent", contents, namespaced=False))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cloud", "namespace": "velero"}}
    store.create({**secret, "data": {"key": "c2VjcmV0"}})
    credential = {"name": "cloud", "key": "key"}
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
    volume = velero("PodVolumeBackup", "only-1", spec={}, status={"phase": "Completed"})
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
    snapshots = MemorySnapshotStores([SnapshotInfo("aws", "snap-1")])
    return World(Configuration(), cluster, MemoryObjectStores({"acme": files}), snapshots, events)


def follow(world, reconcilers):
    """A list and the first event of a watch of each kind that a controller follows."""
    for watch in (watch for each in reconcilers for watch in each.watches()):
        world.cluster.list(watch.kind, namespace=watch.namespace)
        next(world.cluster.watch(watch.kind, namespace=watch.namespace, resource_version="1"))


def test_the_manifests_grant_what_the_controller_does_and_nothing_else(api, store, cluster, authorizer, world):
    built = build_controllers(world, names=[], stop=threading.Event())
    follow(world, built.reconcilers)
    report = run_once(built.reconcilers, now=NOW)
    built.close()
    for _ in range(3):
        elector = Elector(cluster, namespace="velero", name=LEASE_NAME, identity="pod")
        elector.step()
        world.events.flush()
        for decision in report.decisions:
            world.events.record(decision.ref, kind=EventKind.NORMAL, reason="Completed", message="again", now=NOW)

    assert authorizer.refused == []
    ended = [each.subject for each in report.decisions if each.reason is Reason.COMPLETED]
    assert sorted(ended) == ["nightly", "old"]
    assert [each["metadata"]["name"] for each in store.list(ObjectKind("velero.io/v1", "Backup")).items] == ["only"]
    assert sorted(set(authorizer.grants) - authorizer.used) == [], "rights that nothing needs"


def test_nothing_is_named_by_a_wildcard():
    assert [grant for grant in grants() if "*" in grant] == []


def test_everything_is_in_one_namespace_and_of_one_account():
    scoped = [each for each in manifests() if not each["kind"].startswith(("Cluster", "Kustomization"))]
    subjects = [each["subjects"] for each in manifests() if each["kind"].endswith("Binding")]

    assert {each["metadata"]["namespace"] for each in scoped} == {"velero"}
    assert all(each == [{"kind": "ServiceAccount", "name": "reprieve", "namespace": "velero"}] for each in subjects)


def test_the_configuration_of_the_manifests_is_one(tmp_path):
    from reprieve.entrypoints.configuration import load_configuration

    (config,) = (each for each in manifests() if each["kind"] == "ConfigMap")
    path = tmp_path / "reprieve.yaml"
    path.write_text(config["data"]["reprieve.yaml"], "utf-8")

    assert load_configuration(path).backups.namespace == "velero"


def test_the_deployment_is_probed_where_it_serves():
    (deployment,) = (each for each in manifests() if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert container["image"] == "reprieve:VERSION"
    assert container["args"][-1] == str(container["ports"][0]["containerPort"])
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert probes == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
