"""The contract of the cluster port, for the Kubernetes adapter: over HTTP, with the official client."""

from datetime import timedelta

import pytest
from kubernetes.client import Configuration

from reprieve.adapters.k8s.client import connect_to
from reprieve.adapters.local.store import ClusterStore
from tests.integration.apiserver import ApiServer
from tests.integration.conftest import KINDS, NOW, served
from tests.integration.contract_cluster import Bench, ClusterContract


class OverHttp(ClusterContract):
    """A page holds fewer objects than the suite makes; a watch cannot be shorter than a second."""

    expired_as = "event"

    @pytest.fixture
    def bench(self):
        store = ClusterStore(now=lambda: NOW, kinds=[served(kind) for kind in KINDS], require_namespaces=True)
        for name in ("one", "two"):
            store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with ApiServer(store, expired_as=self.expired_as) as api:
            cluster = connect_to(Configuration(host=api.url), page=3)
            yield Bench(cluster, expire=store.compact, shortest_watch=timedelta(seconds=1), checks_namespaces=True)
            cluster.close()


class TestOverHttp(OverHttp):
    """As the API server tells an expired version in the stream."""


class TestOverHttpWithExpiredAsStatus(OverHttp):
    """As the API server tells it by the status of the answer."""

    expired_as = "http"
