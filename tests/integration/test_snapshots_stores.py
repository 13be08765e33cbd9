"""Stores by location over all providers."""

import subprocess
import sys

import pytest

from reprieve.adapters.cloud.kept import LIMIT
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import ContainerMissingError, InvalidError
from reprieve.core.outcomes import Denied, Done, Pending
from tests.integration.contract_snapshots import AZURE_FILE, AwsColumn, AzureColumn, GcpColumn, settle


class Opener:
    """Remembers what was opened."""

    def __init__(self) -> None:
        self.opened = []

    def open(self, location, *, credential=None):
        self.opened.append((location.name, credential))
        return object()


AWS = SnapshotLocation("default", "velero.io/aws", {"region": "us-east-1"})


def stores(**openers):
    return CloudSnapshotStores(openers=openers)


def test_every_provider_is_configured_unless_told_otherwise():
    assert CloudSnapshotStores().providers == {"aws", "gcp", "azure"}
    assert CloudSnapshotStores(providers=["velero.io/aws"]).providers == {"aws"}
    assert CloudSnapshotStores(providers=[]).providers == frozenset()


def test_a_provider_without_an_adapter_cannot_be_configured():
    with pytest.raises(InvalidError, match="no adapter for provider ibm: there are aws, azure, gcp"):
        CloudSnapshotStores(providers=["aws", "ibm"])


@pytest.mark.parametrize("provider", ["openebs.io/cstor", "velero.io/azure", ""])
def test_a_provider_that_is_not_configured_is_a_missing_container(provider):
    with pytest.raises(
        ContainerMissingError, match=r"snapshot location x: provider .* is not configured, only aws, gcp"
    ):
        CloudSnapshotStores(providers=["aws", "gcp"]).open(SnapshotLocation("x", provider))


def test_the_same_location_and_credential_is_the_same_store():
    aws = Opener()
    opened = stores(aws=aws)

    assert opened.open(AWS) is opened.open(SnapshotLocation("default", "velero.io/aws", {"region": "us-east-1"}))
    assert opened.open(AWS, credential=b"a") is opened.open(AWS, credential=b"a")
    assert aws.opened == [("default", None), ("default", b"a")]


@pytest.mark.parametrize(
    ("location", "credential"),
    [
        pytest.param(AWS, b"b", id="another credential"),
        pytest.param(AWS, None, id="the default chain"),
        pytest.param(SnapshotLocation("other", "velero.io/aws", {"region": "us-east-1"}), b"a", id="another name"),
        pytest.param(SnapshotLocation("default", "velero.io/aws", {"region": "us-east-2"}), b"a", id="another region"),
    ],
)
def test_anything_else_is_another_store(location, credential):
    opened = stores(aws=Opener())

    assert opened.open(AWS, credential=b"a") is not opened.open(location, credential=credential)


def test_credentials_that_change_do_not_pile_up():
    opened = stores(aws=Opener())
    first = opened.open(AWS, credential=b"0")
    for number in range(1, LIMIT):
        opened.open(AWS, credential=str(number).encode())
    assert opened.open(AWS, credential=b"0") is first

    for number in range(LIMIT):
        opened.open(AWS, credential=f"new {number}".encode())
    assert opened.open(AWS, credential=b"0") is not first


def test_a_pending_deletion_is_followed_by_whoever_opens_the_location_next():
    column = GcpColumn()
    try:
        opened, credential = stores(gcp=Over(column)), column.cloud.credential()
        location, snapshot = SnapshotLocation("default", "velero.io/gcp"), column.add()

        assert isinstance(opened.open(location, credential=credential).delete(snapshot), Pending)
        assert opened.open(location, credential=credential).delete(snapshot) == Done()
        assert [request.method for request in column.cloud.requests] == ["DELETE", "GET"]
    finally:
        column.close()


class Over:
    """Opens a stand-in's store, whatever the location."""

    def __init__(self, column) -> None:
        self.column = column

    def open(self, location, *, credential=None):
        return self.column.store()


def test_three_clouds_at_once():
    columns = {"aws": AwsColumn(), "gcp": GcpColumn(), "azure": AzureColumn()}
    try:
        opened = CloudSnapshotStores(openers={name: Over(column) for name, column in columns.items()})
        for name, column in columns.items():
            store, snapshot = opened.open(SnapshotLocation(name, f"velero.io/{name}")), column.add()
            assert settle(store, snapshot) == Done()
            assert column.ids() == set()
    finally:
        for column in columns.values():
            column.close()


PRELUDE = """
import sys
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.core.backups import SnapshotLocation
stores = CloudSnapshotStores()
"""


@pytest.mark.parametrize(
    ("provider", "call"),
    [
        ("aws", "stores.open(SnapshotLocation('x', 'aws', {'region': 'us-east-1'}))"),
        ("gcp", "stores.open(SnapshotLocation('x', 'gcp', {'project': 'p-123456'})).get('a')"),
        (
            "azure",
            f"stores.open(SnapshotLocation('x', 'azure'), credential={AZURE_FILE!r}).get({AzureColumn.absent!r})",
        ),
    ],
)
def test_an_sdk_that_is_not_installed_is_told_with_the_extra_that_brings_it(provider, call):
    hidden = "for name in ('boto3', 'google.auth', 'azure.core', 'azure.mgmt'):\n    sys.modules[name] = None\n"
    code = (
        f"{hidden}try:\n    {call}\nexcept Exception as error:\n    print(type(error).__name__, error, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )

    assert (
        f"MissingExtraError the SDK for {provider} is not installed: it comes with the extra {provider};"
        in result.stderr
    )


def test_no_credential_is_denied_and_not_an_error_of_an_sdk(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")

    assert isinstance(CloudSnapshotStores().open(AWS).delete("snap-0123456789abcdef0"), Denied)
