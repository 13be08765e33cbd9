"""What strangers write has a size that somebody bounds: a page, a body, a document, a list without an end.

An error page of 180 KB stopped the process for 12 s, 20 MB of it took 2.7 GB; a gzipped list of 189 KB took 662 MiB;
pages without an end took 2 GiB in 32 s. The deployment grants 512 MiB.
"""

import gzip
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest
from attrs import frozen
from azure.core.pipeline.policies import SansIOHTTPPolicy
from kubernetes.client import Configuration

from reprieve.adapters import sizes
from reprieve.adapters.budget import Tally, weight_of
from reprieve.adapters.cloud.aws import AwsSnapshots
from reprieve.adapters.cloud.azure import AzureSnapshots
from reprieve.adapters.cloud.buckets_errors import read_fault
from reprieve.adapters.cloud.gcp import GcpSnapshots
from reprieve.adapters.cloud.limited import LimitedSnapshotStore
from reprieve.adapters.cloud.listing import tagged
from reprieve.adapters.cloud.rate import Limiter
from reprieve.adapters.k8s.client import connect_to
from reprieve.adapters.local.kinds import guessed, known
from reprieve.adapters.local.store import ClusterStore
from reprieve.adapters.sizes import MIB
from reprieve.core.backups import SnapshotLocation
from reprieve.core.errors import ConflictError, NotFoundError, ReprieveError, TooMuchError, UnknownError
from reprieve.core.objects import ObjectKind, ObjectRef, meta_from_json
from reprieve.core.ports import SnapshotInfo
from tests.integration import azure_compute as azure
from tests.integration import cloud_http as http
from tests.integration import ec2
from tests.integration import gcp_compute as gcp
from tests.integration.apiserver import Answer, ApiServer, Lines

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONFIG = ObjectKind("v1", "ConfigMap")


# An API server


@pytest.fixture
def api():
    kind = known(CONFIG) or guessed(CONFIG, ())
    with ApiServer(ClusterStore(now=lambda: NOW, kinds=[kind])) as server:
        yield server


@pytest.fixture
def cluster(api):
    connected = connect_to(Configuration(host=api.url))
    connected.scope(CONFIG)
    yield connected
    connected.close()


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def ref(name):
    return ObjectRef("v1", "ConfigMap", name, "default", "uid")


def peak_of(work):
    """What a call raises or gives, and the most memory that Python's objects took meanwhile, in MiB."""
    tracemalloc.start()
    try:
        try:
            came_to = work()
        except ReprieveError as error:
            came_to = error
        return came_to, tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def always(answer):
    return lambda *_: answer


def a_list(items, token="", version="1"):
    head = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version, "continue": token}}
    return Answer(200, {**head, "items": items})


@pytest.mark.parametrize(
    ("body", "error"),
    [
        pytest.param(b"<html>" + b"no " * 7_000_000, UnknownError, id="a-page"),
        pytest.param(b"\xff" * 20_000_000, UnknownError, id="no-text"),
        pytest.param(
            b'{"kind":"Status","reason":"Conflict","message":"' + b"m" * 20_000_000,
            UnknownError,
            id="a-status-without-end",
        ),
        pytest.param(
            b'{"kind":"Status","reason":"Conflict","message":"' + b"m" * 200_000 + b'"}',
            ConflictError,
            id="long-message",
        ),
    ],
)
def test_a_refusal_of_20_mb_costs_what_is_read_of_it(api, cluster, body, error):
    """20 MB of error body were kept, decoded, split into words and quoted: 2.7 GB."""
    api.faults.append(always(Answer(409, body)))

    refused, peak = peak_of(lambda: cluster.patch(ref("a"), {"data": {"a": "b"}}))

    assert type(refused) is error
    assert len(str(refused)) < 2 * sizes.MESSAGE
    assert peak - len(body) / MIB < 10  # the server of this test is in the same process


def test_an_object_beyond_its_limit_is_refused_and_its_neighbours_are_served(api, cluster):
    cluster.create(config_map("honest", a="b"))
    api.faults.append(lambda _, path, __: Answer(200, config_map("huge", a="x" * 30 * MIB)) if "huge" in path else None)

    refused, peak = peak_of(lambda: cluster.get(ref("huge")))

    assert isinstance(refused, TooMuchError)
    assert f"more than {sizes.OBJECT} bytes" in str(refused)
    assert peak < 3 * 30 + 20  # the server's own copies
    assert cluster.get(ref("honest")).body["data"] == {"a": "b"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        pytest.param("[]", "values", id="many-values"),
        pytest.param("{}", "values", id="many-objects"),
        pytest.param('{"a":{"b":{}}}', "values", id="many-keys"),
    ],
)
def test_an_object_of_few_bytes_and_many_values_is_refused_before_it_is_built(api, cluster, value, told):
    """A byte of JSON can become 30 of memory."""
    body = b'{"kind":"ConfigMap","metadata":{"name":"a"},"data":[' + f"{value},".encode() * 230_000 + b"0]}"
    api.faults.append(always(Answer(200, body)))

    refused, peak = peak_of(lambda: cluster.get(ref("a")))

    assert isinstance(refused, TooMuchError)
    assert told in str(refused)
    assert peak < 4 * len(body) / MIB + 1


def test_an_answer_that_unpacks_to_a_hundred_times_its_size_is_read_up_to_the_limit(api, cluster):
    packed = gzip.compress(b"[" * 200 * MIB, 1)
    api.faults.append(always(Answer(200, packed, {"Content-Encoding": "gzip"})))

    refused, peak = peak_of(lambda: cluster.get(ref("a")))

    assert isinstance(refused, TooMuchError)
    assert peak < 30


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
def test_pages_without_an_end_end(api, cluster, metadata_only, monkeypatch):
    """Each page has another token, so that no page is ever the same again: 2 GiB in 32 s."""
    monkeypatch.setattr("reprieve.adapters.k8s.cluster.Tally", partial(Tally, kept_at_most=16 * MIB))
    pages = []

    def endless(*_):
        pages.append(1)
        notes = {f"note-{number}": "n" * 1000 for number in range(20)}
        items = [config_map(f"c-{len(pages)}-{number}") for number in range(500)]
        for item in items:
            item["metadata"]["annotations"] = notes
        return a_list(items, token=f"t{len(pages)}")

    api.faults.append(endless)
    refused, peak = peak_of(lambda: cluster.list(CONFIG, metadata_only=metadata_only))

    assert isinstance(refused, TooMuchError)
    assert "16 MiB of them in memory" in str(refused)
    assert peak < 100  # with the server's part


def test_empty_pages_without_an_end_end(api, cluster, monkeypatch):
    monkeypatch.setattr("reprieve.adapters.k8s.cluster.Tally", partial(Tally, pages_at_most=20))
    pages = []

    def endless(*_):
        pages.append(1)
        return a_list([], token=f"t{len(pages)}")

    api.faults.append(endless)
    with pytest.raises(TooMuchError, match=r"list configmaps: it goes on after 20 pages"):
        cluster.list(CONFIG)
    assert len(pages) == 21


def test_a_page_that_is_too_large_is_read_in_smaller_ones(api, cluster):
    """A namespace of large objects is no attack: all of it is listed, in more calls."""
    for number in range(40):
        api.store.create(config_map(f"c-{number}", a="x" * MIB))
    api.calls.clear()

    listing = cluster.list(CONFIG)

    assert len(listing.items) == 40
    assert 2 < len(api.calls) < 10


def test_a_list_of_a_hundred_thousand_owners_is_no_attack():
    """The limits lie above what protection is measured with."""
    owner = {"apiVersion": "example.com/v1", "kind": "Database", "name": "database-000001", "uid": "u" * 36}
    metadata = {"name": "database-000001", "namespace": "shop", "uid": "u" * 36, "ownerReferences": [owner]}

    assert 100_000 * weight_of(meta_from_json(metadata)) < sizes.KEPT
    assert sizes.OBJECTS > 100_000


def test_a_line_of_a_watch_has_an_end(api, cluster):
    line = b'{"type":"ADDED","object":' + msgspec.json.encode(config_map("a", a="x" * 30 * MIB)) + b"}"
    api.faults.append(always(Lines((line,))))

    refused, peak = peak_of(lambda: list(cluster.watch(CONFIG, resource_version="1")))

    assert isinstance(refused, TooMuchError)
    assert peak < 75  # the server's two copies


# The clouds' APIs


def aws_page(names, token):
    items = "".join(
        f"<item><snapshotId>{name}</snapshotId><volumeSize>8</volumeSize>"
        "<tagSet><item><key>velero.io/backup</key><value>nightly</value></item></tagSet></item>"
        for name in names
    )
    more = f"<nextToken>{token}</nextToken>" if token else ""
    head = f'<DescribeSnapshotsResponse xmlns="{ec2.NAMESPACE}"><requestId>1</requestId>'
    return http.Answer(200, f"{head}<snapshotSet>{items}</snapshotSet>{more}</DescribeSnapshotsResponse>".encode())


def gcp_page(names, token):
    items = [{"name": name, "labels": {"velero.io/backup": "nightly"}} for name in names]
    return http.Answer.of_json({"items": items} | ({"nextPageToken": token} if token else {}))


def azure_page(url, names, token):
    items = [{"id": f"{azure.PREFIX}/{name}", "name": name, "tags": {"velero.io-backup": "nightly"}} for name in names]
    more = {"nextLink": f"{url}/subscriptions/next?page={token}"} if token else {}
    return http.Answer.of_json({"value": items} | more)


@frozen
class Cloud:
    """A provider's API on loopback that answers as a test says, and a store that asks it."""

    server: http.Server
    store: object
    snapshot: str
    page: object


@pytest.fixture(params=["aws", "gcp", "azure"])
def cloud(request):
    server = http.Server(lambda _: http.Answer(404))
    location = SnapshotLocation("default", request.param, {"region": "us-east-1"} if request.param == "aws" else {})
    match request.param:
        case "aws":
            opener, page, snapshot = AwsSnapshots(endpoint=server.url), aws_page, "snap-00000001"
            secret = b"[default]\naws_access_key_id = AKID\naws_secret_access_key = secret\n"
        case "gcp":
            opener, page, snapshot = GcpSnapshots(endpoint=server.url), gcp_page, "disk-1"
            secret = gcp.GcpCompute.credential(SimpleNamespace(url=server.url))
        case _:
            opener = AzureSnapshots(endpoint=server.url, authentication_policy=SansIOHTTPPolicy())
            page, snapshot = partial(azure_page, server.url), f"{azure.PREFIX}/disk-1"
            secret = (
                f"AZURE_SUBSCRIPTION_ID={azure.SUBSCRIPTION}\nAZURE_TENANT_ID=t\n"
                "AZURE_CLIENT_ID=c\nAZURE_CLIENT_SECRET=s\n"
            ).encode()
    store = LimitedSnapshotStore(opener.open(location, credential=secret), Limiter())
    yield Cloud(server, store, snapshot, page)
    server.close()


@pytest.mark.parametrize("body", [b"\xff" * 20_000_000, b"<a>" * 7_000_000], ids=["bytes", "tags"])
def test_an_error_page_of_a_cloud_costs_what_is_read_of_it(cloud, body):
    """boto3, Google's and Azure's SDKs read what is sent, decode it, and put it into their exceptions."""
    with suppress(ReprieveError):
        cloud.store.get(cloud.snapshot)  # the SDK is loaded
    cloud.server.faults.next(http.Answer(403, body), times=9)

    refused, peak = peak_of(lambda: cloud.store.get(cloud.snapshot))

    assert isinstance(refused, ReprieveError)
    assert not isinstance(refused, NotFoundError)
    assert len(str(refused)) < 2 * sizes.MESSAGE
    assert peak < 10


@pytest.mark.parametrize("unit", [b"[],", b"<a/>"], ids=["json", "xml"])
def test_an_answer_of_a_cloud_without_an_end_is_no_answer(cloud, unit):
    with suppress(ReprieveError):
        cloud.store.get(cloud.snapshot)
    body = b"[" + unit * (40 * MIB // len(unit))
    cloud.server.faults.next(http.Answer(200, body, {"Content-Type": "application/json"}), times=9)

    refused, peak = peak_of(lambda: cloud.store.get(cloud.snapshot))

    assert isinstance(refused, TooMuchError)
    assert peak < 40


def test_pages_of_a_cloud_without_an_end_end(cloud, monkeypatch):
    """Each with a token of its own and with snapshots: the listing is an error, and is never half a listing."""
    monkeypatch.setattr("reprieve.adapters.cloud.listing.Tally", partial(Tally, kept_at_most=MIB // 2))
    seen = []

    def endless(_):
        seen.append(1)
        return cloud.page([f"snap-{len(seen):04x}{number:04x}" for number in range(500)], f"t{len(seen)}")

    cloud.server._answer = endless
    refused, peak = peak_of(lambda: list(cloud.store.list("velero.io/backup")))

    assert isinstance(refused, TooMuchError)
    assert "it goes on after 0 MiB of them in memory" in str(refused)
    assert peak < 150  # with the SDK itself, where this is its first use


def test_the_same_page_of_a_cloud_for_ever_ends(cloud):
    cloud.server._answer = lambda _: cloud.page(["snap-00000001"], "t")

    with pytest.raises(UnknownError):
        list(cloud.store.list("velero.io/backup"))
    assert len(cloud.server.requests) < 5


def test_thirty_thousand_snapshots_are_no_attack():
    """Of which every other one is ours, with ten tags each."""
    tags = {f"velero.io/tag-{number}": "v" * 30 for number in range(10)}
    pages = (
        ([SnapshotInfo("aws", f"snap-{page}-{n}", tags if n % 2 else {}) for n in range(500)], f"t{page}")
        for page in range(60)
    )

    assert len(tagged(pages, "velero.io/tag-0", what="listing")) == 15_000


# Buckets


def test_an_error_page_of_a_bucket_is_cut_before_any_pattern():
    """An error page of 180 KB stopped the whole process for 12 s: its text went through quadratic patterns whole."""
    body = "\\n \\n <Message> https://" * 100_000
    some = f'Some(\n            "{body}",\n        )'
    source = f"    source: Status {{\n        status: 403,\n        body: {some},\n    }},\n"
    debug = f"Generic {{\n{source}}}"
    page = Exception(f"Generic S3 error: 403: {body}\n\nDebug source:\n{debug}")

    fault, peak = peak_of(lambda: read_fault(page))

    assert (fault.status, fault.foreign, fault.message) == (403, True, "")
    assert peak < 20
