"""The API server on loopback, as the integration tests have it."""

from tests.integration.conftest import api, cluster, store

__all__ = ["api", "cluster", "store"]
