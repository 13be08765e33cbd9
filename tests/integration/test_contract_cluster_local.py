"""The contract of the cluster port, for the local adapter: in memory and over a folder."""

from datetime import UTC, datetime

import pytest

from reprieve.adapters.local import ClusterStore, LocalCluster, LocalFolder, ServedKind
from reprieve.core.ports import Scope
from tests.integration.contract_cluster import KINDS, Bench, ClusterContract

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SERVED = [ServedKind(k.api_version, k.kind, plural, namespaced=s is Scope.NAMESPACED) for k, plural, s in KINDS]

NAMESPACE = ServedKind("v1", "Namespace", "namespaces", namespaced=False)


class TestInMemory(ClusterContract):
    @pytest.fixture
    def bench(self):
        store = ClusterStore(now=lambda: NOW, kinds=[*SERVED, NAMESPACE], require_namespaces=True)
        for name in ("one", "two"):
            store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return Bench(LocalCluster(store), expire=store.compact, checks_namespaces=True)


class TestInAFolder(ClusterContract):
    @pytest.fixture
    def bench(self, tmp_path):
        """The folder serves every kind, unless it is told: here it is."""
        with LocalFolder(tmp_path, now=lambda: NOW, collect=False, kinds=SERVED) as folder:
            yield Bench(folder.cluster, expire=folder.cluster.store.compact)
            self.opens_again_as_it_was(tmp_path, folder)

    def opens_again_as_it_was(self, path, folder):
        left = list(folder.cluster.store.all_objects())
        folder.close()
        with LocalFolder(path, read_only=True) as again:
            assert list(again.cluster.store.all_objects()) == left
