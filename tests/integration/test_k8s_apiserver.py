"""The test server against the plain official client: it must not be made to our own adapter's measure."""

import json
import urllib.error
import urllib.request

import pytest
from kubernetes import client, dynamic, watch
from kubernetes.client.exceptions import ApiException

from tests.integration.apiserver import Call

VELERO = {"group": "velero.io", "version": "v1", "namespace": "velero", "plural": "backups"}


def manifest(name="nightly", **meta):
    return {"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": name, **meta}, "spec": {"ttl": "1h"}}


@pytest.fixture
def plain(api):
    made = client.ApiClient(client.Configuration(host=api.url))
    yield made
    made.close()


@pytest.fixture
def custom(plain):
    return client.CustomObjectsApi(plain)


@pytest.fixture
def core(plain):
    return client.CoreV1Api(plain)


def refused(call, *args, **kwargs):
    """The code and the Status of a refusal."""
    with pytest.raises(ApiException) as caught:
        call(*args, **kwargs)
    return caught.value.status, json.loads(caught.value.body)


def test_custom_objects(custom):
    made = custom.create_namespaced_custom_object(**VELERO, body=manifest())
    assert made["metadata"]["namespace"] == "velero"
    assert made["metadata"]["uid"]

    patched = custom.patch_namespaced_custom_object(**VELERO, name="nightly", body={"spec": {"ttl": None, "x": 1}})
    assert patched["spec"] == {"x": 1}

    operations = [{"op": "add", "path": "/spec/y", "value": 2}]
    patched = custom.patch_namespaced_custom_object(
        **VELERO, name="nightly", body=operations, _content_type="application/json-patch+json"
    )
    assert patched["spec"] == {"x": 1, "y": 2}

    patched["spec"] = {"z": 3}
    replaced = custom.replace_namespaced_custom_object(**VELERO, name="nightly", body=patched)
    assert replaced["metadata"]["generation"] == 4

    listed = custom.list_cluster_custom_object("velero.io", "v1", "backups")
    assert (listed["kind"], [item["kind"] for item in listed["items"]]) == ("BackupList", ["Backup"])

    gone = custom.delete_namespaced_custom_object(**VELERO, name="nightly")
    assert (gone["status"], gone["details"]["uid"]) == ("Success", made["metadata"]["uid"])


def test_typed_objects(core):
    made = core.create_namespaced_config_map("velero", {"metadata": {"generateName": "c-"}, "data": {"a": "b"}})
    patched = core.patch_namespaced_config_map(made.metadata.name, "velero", {"data": {"c": "d"}})
    assert patched.data == {"a": "b", "c": "d"}

    (listed,) = core.list_config_map_for_all_namespaces().items
    assert listed.metadata.uid == made.metadata.uid

    core.delete_namespaced_config_map(made.metadata.name, "velero")
    assert core.list_namespaced_config_map("velero").items == []


def test_namespaces_are_objects_and_parts_of_paths(core):
    core.create_namespace({"metadata": {"name": "velero"}})

    assert core.read_namespace("velero").metadata.name == "velero"
    assert [item.metadata.name for item in core.list_namespace().items] == ["velero"]


def test_refusals_are_statuses(custom, api):
    custom.create_namespaced_custom_object(**VELERO, body=manifest())
    stale = custom.get_namespaced_custom_object(**VELERO, name="nightly")
    custom.patch_namespaced_custom_object(**VELERO, name="nightly", body={"spec": {"ttl": "2h"}})

    code, status = refused(custom.get_namespaced_custom_object, **VELERO, name="nope")
    assert (code, status["reason"]) == (404, "NotFound")
    assert status["details"] == {"name": "nope", "group": "velero.io", "kind": "backups"}

    code, status = refused(custom.create_namespaced_custom_object, **VELERO, body=manifest())
    assert (code, status["reason"]) == (409, "AlreadyExists")

    code, status = refused(custom.replace_namespaced_custom_object, **VELERO, name="nightly", body=stale)
    assert (code, status["reason"]) == (409, "Conflict")

    code, status = refused(
        custom.patch_namespaced_custom_object,
        **VELERO,
        name="nightly",
        body=[{"op": "test", "path": "/metadata/uid", "value": "other"}],
        _content_type="application/json-patch+json",
    )
    assert (code, status["reason"]) == (422, "Invalid")

    code, status = refused(
        custom.patch_namespaced_custom_object,
        **VELERO,
        name="nightly",
        body={},
        _content_type="application/strategic-merge-patch+json",
    )
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")

    code, status = refused(custom.create_namespaced_custom_object, **VELERO, body=manifest(namespace="other"))
    assert (code, status["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/apis/nope.example.com/v1/things", b"404 page not found\n", id="group"),
        pytest.param("/apis/velero.io/v9/backups", b"404 page not found\n", id="version"),
        pytest.param("/apis/velero.io/v1/things", b"404 page not found\n", id="custom-kind"),
        pytest.param("/api/v1/things", b'"the server could not find the requested resource"', id="built-in-kind"),
        pytest.param("/api/v1/configmaps/x", b'"the server could not find the requested resource"', id="no-namespace"),
        pytest.param("/nonsense", b"404 page not found\n", id="no-api"),
    ],
)
def test_what_is_not_served(api, path, body):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(api.url + path, timeout=5)

    with caught.value as answer:
        assert answer.code == 404
        assert body in answer.read()


def test_preconditions_and_finalizers_of_a_delete(custom):
    made = custom.create_namespaced_custom_object(**VELERO, body=manifest(finalizers=["example.com/wait"]))

    code, status = refused(
        custom.delete_namespaced_custom_object, **VELERO, name="nightly", body={"preconditions": {"uid": "other"}}
    )
    assert (code, status["reason"]) == (409, "Conflict")

    code, _ = refused(custom.delete_namespaced_custom_object, **VELERO, name="nightly", propagation_policy="Sideways")
    assert code == 422

    held = custom.delete_namespaced_custom_object(
        **VELERO, name="nightly", body={"preconditions": {"uid": made["metadata"]["uid"]}}
    )
    assert held["metadata"]["deletionTimestamp"]

    custom.patch_namespaced_custom_object(**VELERO, name="nightly", body={"metadata": {"finalizers": None}})
    assert refused(custom.get_namespaced_custom_object, **VELERO, name="nightly")[0] == 404


def test_pages_and_selectors(custom, api, store):
    for number in range(5):
        body = manifest(f"b{number}", namespace="velero", labels={"odd": str(number % 2)})
        store.create(body)

    page = custom.list_namespaced_custom_object(**VELERO, limit=2)
    assert page["metadata"]["remainingItemCount"] == 3
    store.create(manifest("b9", namespace="velero"))
    rest = custom.list_namespaced_custom_object(**VELERO, limit=9, _continue=page["metadata"]["continue"])
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b2", "b3", "b4"], "one snapshot"

    odd = custom.list_namespaced_custom_object(**VELERO, label_selector="odd=1")
    assert [item["metadata"]["name"] for item in odd["items"]] == ["b1", "b3"]
    one = custom.list_namespaced_custom_object(**VELERO, field_selector="metadata.name=b2")
    assert [item["metadata"]["name"] for item in one["items"]] == ["b2"]
    assert refused(custom.list_namespaced_custom_object, **VELERO, label_selector="a=b=c")[0] == 400

    store.compact()
    code, status = refused(
        custom.list_namespaced_custom_object, **VELERO, limit=2, _continue=page["metadata"]["continue"]
    )
    assert (code, status["reason"]) == (410, "Expired")

    custom.delete_collection_namespaced_custom_object(**VELERO, label_selector="odd=1")
    left = custom.list_namespaced_custom_object(**VELERO)
    assert [item["metadata"]["name"] for item in left["items"]] == ["b0", "b2", "b4", "b9"]


def test_a_watch_by_the_clients_own_watcher(custom, store):
    store.create(manifest("a", namespace="velero"))
    since = custom.list_namespaced_custom_object(**VELERO)["metadata"]["resourceVersion"]
    store.create(manifest("b", namespace="velero"))
    store.delete(store.kind_by_plural("velero.io/v1", "backups").type, "velero", "a")

    stream = watch.Watch().stream(
        custom.list_namespaced_custom_object, **VELERO, resource_version=since, timeout_seconds=1
    )
    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in stream]

    assert seen == [("ADDED", "b"), ("DELETED", "a")]


def test_the_dynamic_client_discovers(plain):
    found = dynamic.DynamicClient(plain).resources.get(api_version="velero.io/v1", kind="Backup")
    found.create(body=manifest(), namespace="velero")

    assert found.get(name="nightly", namespace="velero").spec.ttl == "1h"


def test_metadata_only_by_what_is_accepted(api, custom):
    custom.create_namespaced_custom_object(**VELERO, body=manifest())
    base = f"{api.url}/apis/velero.io/v1/namespaces/velero/backups"

    def fetch(path, kind):
        accept = f"application/json;as={kind};g=meta.k8s.io;v=v1"
        request = urllib.request.Request(base + path, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read())

    listed = fetch("", "PartialObjectMetadataList")
    assert listed["kind"] == "PartialObjectMetadataList"
    assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}
    assert set(fetch("/nightly", "PartialObjectMetadata")) == {"kind", "apiVersion", "metadata"}
    for path, kind in (("", "PartialObjectMetadata"), ("/nightly", "PartialObjectMetadataList"), ("", "Table")):
        with pytest.raises(urllib.error.HTTPError, match="406"):
            fetch(path, kind)


def test_tokens_rights_and_the_counters(api, custom, store):
    custom.create_namespaced_custom_object(**VELERO, body=manifest())
    custom.list_namespaced_custom_object(**VELERO)
    api.authorize = lambda access: access.verb != "delete"

    code, status = refused(custom.delete_namespaced_custom_object, **VELERO, name="nightly")

    assert (code, status["reason"]) == (403, "Forbidden")
    assert 'User "admin" cannot delete resource "backups" in API group "velero.io"' in status["message"]
    path = "/apis/velero.io/v1/namespaces/velero/backups"
    assert api.writes() == [Call("create", path), Call("delete", f"{path}/nightly")]
    assert api.counts() == {"create": 1, "list": 1, "delete": 1}

    api.tokens = {"secret": "somebody"}
    assert refused(custom.list_namespaced_custom_object, **VELERO)[0] == 401


def test_health_and_version(api, plain):
    assert client.VersionApi(plain).get_code().major == "1"
    with urllib.request.urlopen(f"{api.url}/readyz", timeout=5) as answer:
        assert answer.read() == b"ok"
