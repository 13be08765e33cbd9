"""The contract of object stores, over every provider: real clients over HTTP on loopback, a folder, memory."""

from datetime import UTC, datetime

import obstore
import pytest
from obstore.store import LocalStore

from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.adapters.local.buckets import FolderObjectStores, MemoryObjectStores
from reprieve.core.backups import StorageLocation
from tests.integration.blob_server import Blobs
from tests.integration.buckets_table import PAGE, SITUATIONS, render
from tests.integration.cloud_http import closing
from tests.integration.contract_buckets import BucketContract, RemoteContract, StrictKeysContract
from tests.integration.gcs_server import Gcs
from tests.integration.s3 import S3


class Folder:
    """A folder, through obstore."""

    def __init__(self, root) -> None:
        self.root = root
        (root / "backups").mkdir()
        self._raw = LocalStore(root / "backups")

    def open(self, bucket="backups", *, prefix=""):
        location = StorageLocation("default", provider="local", bucket=bucket, prefix=prefix)
        return CloudObjectStores(folder=self.root).open(location)

    def put(self, key, data=b"x"):
        obstore.put(self._raw, key, data)

    def keys(self):
        files = (p for p in (self.root / "backups").rglob("*") if p.is_file())
        return {p.relative_to(self.root / "backups").as_posix() for p in files}


class Memory:
    """Memory, through obstore."""

    def __init__(self) -> None:
        self._stores = CloudObjectStores(memory=["backups"])

    def open(self, bucket="backups", *, prefix=""):
        return self._stores.open(StorageLocation("default", provider="memory", bucket=bucket, prefix=prefix))

    def put(self, key, data=b"x"):
        self.open().write(key, data)

    def keys(self):
        return {info.key for info in self.open().list("")}


class LocalFolder(Folder):
    """A folder, through our own adapter."""

    def open(self, bucket="backups", *, prefix=""):
        return FolderObjectStores(self.root).open(StorageLocation("default", bucket=bucket, prefix=prefix))


class LocalMemory:
    """Memory, through our own adapter."""

    def __init__(self) -> None:
        self._stores = MemoryObjectStores({"backups": {}}, now=lambda: datetime(2026, 11, 30, tzinfo=UTC))

    def open(self, bucket="backups", *, prefix=""):
        return self._stores.open(StorageLocation("default", bucket=bucket, prefix=prefix))

    def put(self, key, data=b"x"):
        self._stores.buckets["backups"][key] = data

    def keys(self):
        return set(self._stores.buckets["backups"])


@pytest.fixture(params=["s3", "gcs", "azure"])
def remote(request):
    with closing({"s3": S3, "gcs": Gcs, "azure": Blobs}[request.param]()) as made:
        yield made


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_a_situation_comes_to_the_same_over_a_network(situation, remote):
    assert situation.seen(remote) == situation.expected


@pytest.mark.parametrize("situation", [each for each in SITUATIONS if not each.remote], ids=lambda each: each.name)
@pytest.mark.parametrize("place", ["folder", "memory"])
def test_a_situation_comes_to_the_same_here(situation, place, tmp_path):
    assert situation.seen(LocalFolder(tmp_path) if place == "folder" else LocalMemory()) == situation.expected


def test_the_page_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert page == render(page), "write it anew: python -m tests.integration.buckets_table"


class TestRemote(BucketContract, StrictKeysContract, RemoteContract):
    @pytest.fixture
    def cloud(self, remote):
        return remote


class TestHere(BucketContract, StrictKeysContract):
    @pytest.fixture(params=["folder", "memory"])
    def cloud(self, request, tmp_path):
        return Folder(tmp_path) if request.param == "folder" else Memory()


class TestLocal(BucketContract, StrictKeysContract):
    @pytest.fixture(params=["folder", "memory"])
    def cloud(self, request, tmp_path):
        return LocalFolder(tmp_path) if request.param == "folder" else LocalMemory()
