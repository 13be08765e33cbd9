"""The API server on loopback, as the integration tests have it, and Secrets of strangers in it."""

import os

import pytest

from tests.integration.blob_server import Blobs
from tests.integration.cloud_http import closing
from tests.integration.conftest import api, cluster, store
from tests.security.strangers import Scene

__all__ = ["api", "cluster", "store", "strangers"]


@pytest.fixture
def strangers(store, cluster, monkeypatch, tmp_path):
    """Controllers over an API server, with nothing of this machine's: neither its variables nor its files."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with closing(Blobs()) as files:
        yield Scene(store, cluster, files)
