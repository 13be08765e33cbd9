"""An API server on loopback, and a cluster adapter that talks to it with the official client."""

from datetime import UTC, datetime

import pytest
from kubernetes.client import Configuration

from reprieve.adapters.k8s.client import connect_to
from reprieve.adapters.local.kinds import guessed, known
from reprieve.adapters.local.store import ClusterStore
from reprieve.core.objects import ObjectKind
from tests.integration.apiserver import ApiServer

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KINDS = (
    "v1/ConfigMap",
    "v1/Event",
    "v1/Namespace",
    "v1/PersistentVolume",
    "v1/PersistentVolumeClaim",
    "v1/Secret",
    "apiextensions.k8s.io/v1/CustomResourceDefinition",
    "coordination.k8s.io/v1/Lease",
    "faros.pusher.com/v1alpha1/ClusterGitTrackObject",
    "faros.pusher.com/v1alpha1/GitTrackObject",
    "velero.io/v1/Backup",
    "velero.io/v1/BackupStorageLocation",
    "velero.io/v1/DeleteBackupRequest",
    "velero.io/v1/PodVolumeBackup",
    "velero.io/v1/Restore",
    "velero.io/v1/Schedule",
    "velero.io/v1/VolumeSnapshotLocation",
)


def served(text):
    kind = ObjectKind.parse(text)
    return known(kind) or guessed(kind, ())


@pytest.fixture
def store():
    return ClusterStore(now=lambda: NOW, kinds=[served(kind) for kind in KINDS])


@pytest.fixture
def api(store):
    with ApiServer(store) as server:
        yield server


@pytest.fixture
def cluster(api):
    connected = connect_to(Configuration(host=api.url))
    yield connected
    connected.close()
