"""What docs/clouds.md and docs/buckets.md list is what the adapters do."""

import inspect
import re
from pathlib import Path

import pytest

from reprieve.adapters.cloud import (
    aws,
    aws_sessions,
    azure,
    breaker,
    buckets_backends,
    buckets_credentials,
    buckets_locations,
    gcp,
    rate,
    secret_aws,
    secret_azure,
    secret_gcp,
    stores,
)
from reprieve.adapters.cloud.limited import QUICK_FAILURES
from reprieve.entrypoints.configuration import DeletionSettings

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "clouds.md").read_text(encoding="utf-8")
NAME = re.compile(r"`([\w./:-]+)`")


def section(title, page=PAGE):
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title, page=PAGE):
    """The cells of a section's tables, without their heads."""
    lines = [line for line in section(title, page).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def listed(title, provider, column, page=PAGE):
    return {name for row in rows(title, page) if row[0] == provider for name in NAME.findall(row[column])}


def honoured(provider):
    """The keys of which something is done."""
    found = [row for row in rows("Configuration") if row[0] == provider and not row[2].startswith("nothing")]
    return {name for row in found for name in NAME.findall(row[1])}


def source(*modules):
    return "".join(inspect.getsource(module) for module in modules)


CONFIG_KEY = re.compile(r'config\.get\(\s*"(\w+)"')
FLAG = re.compile(r'flag\(location, "(\w+)"')


@pytest.mark.parametrize("module", [aws, gcp, azure], ids=["aws", "gcp", "azure"])
def test_every_key_that_is_read_is_listed_and_every_listed_one_is_read(module):
    read = set(CONFIG_KEY.findall(source(module)))
    by_property = {"region"} if "location.region" in source(module) else set()

    assert honoured(module.PROVIDER) == read | by_property


def test_what_tells_accounts_apart_is_a_key_that_is_listed():
    for provider, keys in stores.ACCOUNT_KEYS.items():
        assert set(keys) <= honoured(provider)
        assert all(f"`{key}`" in section("How fast a cloud is called") for key in keys)
    assert set(stores.ACCOUNT_KEYS) == set(stores.PROVIDERS)


def test_every_key_of_a_storage_location_that_is_read_is_listed():
    read = source(buckets_locations, buckets_backends, buckets_credentials)
    keys = set(CONFIG_KEY.findall(read)) | set(FLAG.findall(read))
    page = (DOCS / "buckets.md").read_text(encoding="utf-8")
    known = {name for row in rows("Configuration", page) for name in NAME.findall(row[1])}

    assert keys - known == set()


def secrets_table(start):
    """What counts and what does not in the row of a kind of Secret, as the page lists it."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {start}"))
    return [set(re.findall(r"`([^`]+)`", cell)) for cell in row.split("|")[2:4]]


@pytest.mark.parametrize(
    ("start", "keys"),
    [
        ("aws: ", {*secret_aws.VALUES}),
        ("gcp: `service_account`", {*secret_gcp.SERVICE_ACCOUNT}),
        ("gcp: `external_account`", {*secret_gcp.FEDERATION, *secret_gcp.SOURCE}),
        ("gcp: `authorized_user`", {*secret_gcp.USER}),
        ("azure: ", {*secret_azure.KEYS}),
    ],
)
def test_the_keys_of_a_secret_are_listed(start, keys):
    counts, _ = secrets_table(start)

    assert keys - counts == set()


@pytest.mark.parametrize("module", [secret_aws, secret_azure], ids=["aws", "azure"])
def test_the_keys_that_are_refused_by_name_are_listed(module):
    _, refused = secrets_table(f"{module.__name__.rpartition('_')[2]}: ")

    assert {*module.REFUSED} - refused == set()


def camel(action):
    return "".join(part.capitalize() for part in action.split("_"))


def test_every_call_to_ec2_has_its_permission():
    calls = re.findall(r'\.((?:delete|describe)_\w+)\(|get_paginator\("(\w+)"\)', source(aws))

    assert listed("Permissions", "aws", 1) == {f"ec2:{camel(one or other)}" for one, other in calls}


def test_every_call_to_compute_engine_has_its_permission():
    calls = re.findall(r"clients\.(snapshots|operations)\.(\w+)\(", source(gcp))
    kinds = {"snapshots": "snapshots", "operations": "globalOperations"}
    wanted = {f"compute.{kinds[kind]}.{verb.removesuffix('_unary')}" for kind, verb in calls}

    assert listed("Permissions", "gcp", 1) == wanted


def test_every_call_to_arm_has_its_permission():
    verbs = {"begin_delete": "snapshots/delete", "get": "snapshots/read", "list": "snapshots/read"}
    calls = set(re.findall(r"client\.snapshots\.(\w+)\(", source(azure))) - {"list_by_resource_group"}
    wanted = {f"Microsoft.Compute/{verbs[call]}" for call in calls}

    assert listed("Permissions", "azure", 1) == wanted | {"Microsoft.Compute/locations/diskOperations/read"}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(f"`backups.deletion.snapshotParallelism`, {rate.PARALLELISM} without", id="parallelism"),
        pytest.param(f"{rate.Pace().ceiling:.0f} at first", id="ceiling"),
        pytest.param(f"{rate.PATIENCE.seconds} s at most, then the snapshot is `Pending`", id="patience"),
        pytest.param(f"up to {rate.TRIES} times within those {rate.PATIENCE.seconds} s", id="tries"),
        pytest.param(
            f"{gcp.TIMEOUT.seconds} s at most, {aws_sessions.CONNECT_TIMEOUT.seconds} s for a connection", id="call"
        ),
        pytest.param(f"{breaker.REST.seconds} s without any call to the account", id="rest"),
        pytest.param(f"{breaker.SHORT_REST.seconds} s after quick refusals", id="short-rest"),
        pytest.param(f"within {gcp.DEADLINE.seconds // 60} minutes (Google Cloud)", id="deadline"),
        pytest.param(f"a failed attempt; `{azure.API_TIMEOUT}` without", id="api-timeout"),
    ],
)
def test_the_numbers_are_those_of_the_code(said):
    assert said in PAGE


def test_numbers_that_two_places_hold_are_the_same():
    assert DeletionSettings().snapshot_parallelism == rate.PARALLELISM
    assert aws.TIMEOUT == gcp.TIMEOUT == azure.TIMEOUT == buckets_backends.ANSWER
    assert aws_sessions.CONNECT_TIMEOUT == azure.CONNECT_TIMEOUT
    assert QUICK_FAILURES == 3
