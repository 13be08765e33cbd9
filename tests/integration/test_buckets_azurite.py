"""The contract over Azurite, Microsoft's emulator, where it is installed: our stand-in must not be the only witness.

Found on the PATH, or in this tree after ``npm install azurite`` (some 360 MB; the folder is ignored by git).
"""

import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import obstore
import pytest
from obstore.store import AzureStore

from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.core.backups import StorageLocation
from tests.integration.cloud_http import stand_ins
from tests.integration.contract_buckets import BucketContract, StrictKeysContract

ACCOUNT, KEY = "devstoreaccount", "a2V5LW9mLWEtc3RhbmQtaW4="
LOCAL = Path(__file__).parents[2] / "node_modules" / ".bin" / "azurite-blob"
AZURITE = shutil.which("azurite-blob") or (str(LOCAL) if LOCAL.exists() else "")

if not AZURITE:
    pytest.skip("azurite-blob is not installed: npm install azurite", allow_module_level=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, process) -> None:
    """Until it answers; any answer will do."""
    while process.poll() is None:
        try:
            urlopen(url, timeout=1)
        except URLError as error:
            if getattr(error, "code", None):
                return
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"azurite ended with {process.returncode}")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    port = free_port()
    command = [AZURITE, "--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    folder = tmp_path_factory.mktemp("azurite")
    environment = {
        "PATH": f"{Path(AZURITE).parent}:/usr/bin:/bin:/usr/local/bin",
        "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}",
    }
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}/", process)
            yield f"http://127.0.0.1:{port}/{ACCOUNT}"
        finally:
            process.terminate()


class Azurite:
    """A container of its own for each test."""

    count = 0
    refused = "\\"  # taken for a slash

    def __init__(self, url: str) -> None:
        Azurite.count += 1
        self.url, self.container = url, f"backups{Azurite.count}"
        config = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": url}
        self._raw = AzureStore(self.container, config=config, client_options={"allow_http": True})
        create_container(url, self.container)

    def open(self, bucket="backups", *, prefix=""):
        config = {"storageAccount": ACCOUNT, "storageAccountURI": self.url, "storageAccountKeyEnvVar": "KEY"}
        bucket = self.container if bucket == "backups" else bucket
        location = StorageLocation("default", provider="azure", bucket=bucket, prefix=prefix, config=config)
        return CloudObjectStores(policy=stand_ins(self.url)).open(location, credential=f"KEY={KEY}".encode())

    def put(self, key, data=b"x"):
        obstore.put(self._raw, key, data)

    def keys(self):
        return {meta["path"] for page in obstore.list(self._raw) for meta in page}


def create_container(url: str, container: str) -> None:
    """obstore makes no containers; Shared Key is three lines of HMAC."""
    import base64
    import hashlib
    import hmac
    from email.utils import formatdate
    from urllib.request import Request

    date = formatdate(usegmt=True)
    resource = f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    text = "PUT\n\n\n\n\n\n\n\n\n\n\n\n" + f"x-ms-date:{date}\nx-ms-version:2023-11-03\n" + resource
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2023-11-03",
        "Authorization": f"SharedKey {ACCOUNT}:{signature}",
    }
    urlopen(Request(f"{url}/{container}?restype=container", method="PUT", headers=headers), timeout=10).close()


class TestAzurite(BucketContract, StrictKeysContract):
    @pytest.fixture
    def cloud(self, url):
        return Azurite(url)
