"""No SDK is imported before it is used, and only the one that is used: what a fresh interpreter loads, by command.

Loading all of them takes seconds and hundreds of megabytes; a cluster on one cloud pays for one.
"""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from reprieve.entrypoints.sample import write_sample
from tests.integration.contract_snapshots import AZURE_FILE

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SDKS = {
    "aws": ("boto3", "botocore", "s3transfer"),
    "gcp": ("google.api_core", "google.auth", "google.cloud", "google.oauth2", "grpc"),
    "azure": ("azure", "msal", "msrest"),
    "kubernetes": ("kubernetes",),
    "obstore": ("obstore",),
}
COMMAND = "import sys; sys.argv[0] = 'reprieve'; from reprieve.entrypoints.cli import main; sys.exit(main())"
IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s*(\S+)$", re.MULTILINE)
GOOGLE = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}
SUBSCRIPTION = "0b1f6471-1bf0-4dda-aec3-111122223333"
AZURE_ID = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Compute/snapshots/a"
AWS_FILE = b"[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
PRELUDE = """
from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.core.backups import SnapshotLocation, StorageLocation
snapshots, files = CloudSnapshotStores(), CloudObjectStores()
"""


def loaded(code, *arguments, ok=(0,)):
    """The SDKs that a fresh interpreter has imported after that code; nothing answers, nowhere."""
    environment = {
        "PATH": os.defpath,
        "HOME": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "NO_GCE_CHECK": "true",
    }
    command = [sys.executable, "-X", "importtime", "-c", code, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode in ok, ran.stderr[-2000:] + ran.stdout[-2000:]
    modules = IMPORTED.findall(ran.stderr)
    assert any(is_of(module, ("reprieve",)) for module in modules), "the report was not understood"
    return {name for name, sdk in SDKS.items() if any(is_of(module, sdk) for module in modules)}


def is_of(module, sdk):
    return any(module == name or module.startswith(f"{name}.") for name in sdk)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The sample: backups on AWS and Google Cloud, with requests."""
    made = tmp_path_factory.mktemp("sample")
    write_sample(made, now=NOW)
    return made


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--help"], id="help"),
        pytest.param(["plan", "--help"], id="help of a command"),
        pytest.param(["run", "--help"], id="help of another"),
    ],
)
def test_help_loads_none(arguments):
    assert loaded(COMMAND, *arguments) == set()


def test_a_plan_over_a_local_folder_loads_none(folder):
    assert loaded(
        COMMAND, "plan", "--local", str(folder), "--now", "2026-03-01T12:00:00Z", "-o", "json", ok=(2, 3)
    ) == (set())


def test_a_run_over_a_local_folder_loads_none(tmp_path):
    write_sample(tmp_path, now=NOW)
    arguments = ["run", "--once", "--local", str(tmp_path), "--now", "2026-03-01T12:00:00Z", "-o", "json"]

    assert loaded(COMMAND, *arguments, ok=(0, 1, 2, 3)) == set()


def test_stores_that_nobody_opened_load_none():
    assert loaded(PRELUDE) == set()


def test_opening_loads_none_but_what_aws_needs_to_know_a_region():
    opened = f"""
snapshots.open(SnapshotLocation('x', 'gcp', {{'project': 'p-123456'}}))
snapshots.open(SnapshotLocation('x', 'azure'), credential={AZURE_FILE!r})
"""

    assert loaded(PRELUDE + opened) == set()
    assert loaded(PRELUDE + "snapshots.open(SnapshotLocation('x', 'aws', {'region': 'eu-west-1'}))") == {"aws"}


SNAPSHOTS = {
    "aws": f"snapshots.open(SnapshotLocation('x', 'aws', {{'region': 'eu-west-1'}}), credential={AWS_FILE!r})"
    ".delete('snap-0123456789abcdef0')",
    "gcp": f"snapshots.open(SnapshotLocation('x', 'gcp', {{'project': 'p-123456'}}), "
    f"credential={json.dumps(GOOGLE).encode()!r}).store._clients('x')",
    "azure": f"snapshots.open(SnapshotLocation('x', 'azure'), credential={AZURE_FILE!r})"
    f".store._client({SUBSCRIPTION!r}, 'x')",
}


@pytest.mark.parametrize("provider", SNAPSHOTS)
def test_snapshots_load_the_sdk_of_their_provider_and_no_other(provider):
    assert loaded(PRELUDE + SNAPSHOTS[provider]) == {provider}


AZURE_PLACE = "StorageLocation('x', 'azure', 'b', config={'storageAccount': 'abc', 'storageAccountKeyEnvVar': 'K'})"
FILES = {
    "aws": (f"files.open(StorageLocation('x', 'aws', 'b'), credential={AWS_FILE!r})", set()),
    "gcp": (f"files.open(StorageLocation('x', 'gcp', 'b'), credential={json.dumps(GOOGLE).encode()!r})", {"gcp"}),
    "azure": (f"files.open({AZURE_PLACE}, credential=b'K=a2V5')", set()),
}


@pytest.mark.parametrize("provider", FILES)
def test_files_load_obstore_and_at_most_what_makes_their_credential(provider):
    code, credentials = FILES[provider]

    assert loaded(PRELUDE + code) == {"obstore"} | credentials
