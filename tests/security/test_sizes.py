"""What strangers write has a size that somebody bounds: a page, a body, a document, a list without an end.

An error page of 180 KB stopped the process for 12 s, 20 MB of it took 2.7 GB; a gzipped list of 189 KB took 662 MiB;
pages without an end took 2 GiB in 32 s. The deployment grants 512 MiB.
"""

import gzip
import tracemalloc
from datetime import UTC, datetime

import msgspec
import pytest
from kubernetes.client import Configuration

from reprieve.adapters import sizes
from reprieve.adapters.budget import Tally
from reprieve.adapters.k8s.client import connect_to
from reprieve.adapters.local.kinds import guessed, known
from reprieve.adapters.local.store import ClusterStore
from reprieve.adapters.sizes import MIB
from reprieve.core.errors import ConflictError, ReprieveError, TooMuchError, UnknownError
from reprieve.core.objects import ObjectKind, ObjectRef
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
def test_pages_without_an_end_end(api, cluster, metadata_only):
    """Each page has another token, so that no page is ever the same again: 2 GiB in 32 s."""
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
    assert "112 MiB of them in memory" in str(refused)
    assert peak < 250  # with the server's part


def test_empty_pages_without_an_end_end(api, cluster, monkeypatch):
    monkeypatch.setattr("reprieve.adapters.k8s.cluster.Tally", sizes_tally)
    pages = []

    def endless(*_):
        pages.append(1)
        return a_list([], token=f"t{len(pages)}")

    api.faults.append(endless)
    with pytest.raises(TooMuchError, match=r"list configmaps: it goes on after 20 pages"):
        cluster.list(CONFIG)
    assert len(pages) == 21


def sizes_tally(what):
    return Tally(what, pages_at_most=20)


def test_a_page_that_is_too_large_is_read_in_smaller_ones(api, cluster):
    """A namespace of large objects is no attack: all of it is listed, in more calls."""
    for number in range(40):
        api.store.create(config_map(f"c-{number}", a="x" * MIB))
    api.calls.clear()

    listing = cluster.list(CONFIG)

    assert len(listing.items) == 40
    assert 2 < len(api.calls) < 10


def test_a_list_of_two_hundred_thousand_names_is_no_attack(api, cluster):
    """The limits are above what protection is measured with: 100,000 owners."""
    wanted = 120_000
    size = 5_000

    def page(_, __, query):
        start = int(query.get("continue") or 0)
        items = [
            {"metadata": {"name": f"c-{n}", "namespace": "default", "uid": f"u{n}", "labels": {"app": f"a{n}"}}}
            for n in range(start, start + size)
        ]
        return a_list(items, token=str(start + size) if start + size < wanted else "")

    api.faults.append(page)

    assert len(cluster.list(CONFIG, metadata_only=True).items) == wanted


def test_a_line_of_a_watch_has_an_end(api, cluster):
    line = b'{"type":"ADDED","object":' + msgspec.json.encode(config_map("a", a="x" * 30 * MIB)) + b"}"
    api.faults.append(always(Lines((line,))))

    refused, peak = peak_of(lambda: list(cluster.watch(CONFIG, resource_version="1")))

    assert isinstance(refused, TooMuchError)
    assert peak < 75  # the server's two copies
