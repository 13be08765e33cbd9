"""Kubernetes objects as values: kinds, names, and JSON that may be anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.objects import (
    ObjectKind,
    ObjectMeta,
    ObjectRef,
    OwnerReference,
    Resource,
    is_object_name,
    label_safe,
    resource_from_json,
    resource_to_json,
)
from tests.unit.builders import NOW

MANIFEST = {
    "apiVersion": "velero.io/v1",
    "kind": "Backup",
    "metadata": {
        "name": "foo",
        "namespace": "velero",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2024-04-04T12:00:00Z",
        "deletionTimestamp": "2024-04-04T12:00:00Z",
        "finalizers": ["f"],
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "o", "controller": True, "blockOwnerDeletion": True},
            {"apiVersion": "v1", "kind": "K", "name": "m", "uid": "p"},
        ],
    },
    "spec": {"storageLocation": "default"},
    "status": {"phase": "Completed"},
}


@pytest.mark.parametrize(
    ("text", "group", "version", "kind"),
    [
        ("velero.io/v1/Backup", "velero.io", "v1", "Backup"),
        ("v1/Secret", "", "v1", "Secret"),
    ],
)
def test_a_kind(text, group, version, kind):
    parsed = ObjectKind.parse(text)

    assert (parsed.group, parsed.version, parsed.kind, str(parsed)) == (group, version, kind, text)


@pytest.mark.parametrize(
    "text", ["", "Backup", "/Backup", "v1/", "/v1/Backup", "a//Kind", "a/b/c/Kind", " v1/Kind", "v1/Ki nd"]
)
def test_no_kind(text):
    with pytest.raises(ValueError, match="is not a kind: write group/version/Kind, or version/Kind for the core group"):
        ObjectKind.parse(text)


def test_a_reference():
    named = ObjectRef("velero.io/v1", "Backup", "foo", "velero", "u")

    assert (str(named), named.key, named.type) == (
        "Backup velero/foo",
        "velero/foo",
        ObjectKind("velero.io/v1", "Backup"),
    )
    assert ObjectRef("v1", "Namespace", "foo").key == "foo"
    assert OwnerReference("v1", "Secret", "n", "u").type == ObjectKind("v1", "Secret")


def test_an_object_there_and_back():
    resource = resource_from_json(MANIFEST)

    assert resource_to_json(resource) == MANIFEST
    assert resource.ref == ObjectRef("velero.io/v1", "Backup", "foo", "velero", "u")
    assert (resource.meta.created, resource.meta.terminating) == (NOW, True)
    assert resource.section("status") == {"phase": "Completed"}


def test_empty_metadata_is_left_out():
    assert resource_to_json(Resource(ObjectKind("v1", "Secret"), ObjectMeta("x"))) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "x"},
    }
    assert not ObjectMeta("x").terminating


@pytest.mark.parametrize(
    ("metadata", "read"),
    [
        pytest.param(None, ObjectMeta(""), id="none"),
        pytest.param(["x"], ObjectMeta(""), id="a-list"),
        pytest.param({"name": 7, "uid": None}, ObjectMeta(""), id="name-is-a-number"),
        pytest.param({"name": "x", "labels": ["a"]}, ObjectMeta("x"), id="labels-are-a-list"),
        pytest.param(
            {"name": "x", "labels": {"a": 1, 2: "b", "c": "d"}},
            ObjectMeta("x", labels={"a": "1", "c": "d"}),
            id="labels-of-yaml",
        ),
        pytest.param({"name": "x", "finalizers": "f"}, ObjectMeta("x"), id="finalizers-are-a-text"),
        pytest.param(
            {"name": "x", "finalizers": ["f", 7]}, ObjectMeta("x", finalizers=["f"]), id="a-finalizer-is-a-number"
        ),
        pytest.param({"name": "x", "ownerReferences": {"uid": "u"}}, ObjectMeta("x"), id="owners-are-a-mapping"),
        pytest.param(
            {"name": "x", "ownerReferences": ["o", {"uid": "u", "controller": "yes"}]},
            ObjectMeta("x", owners=[OwnerReference("", "", "", "u")]),
            id="an-owner-is-a-text",
        ),
        pytest.param(
            {"name": "x", "generation": "2", "creationTimestamp": "then"}, ObjectMeta("x"), id="other-wrong-types"
        ),
    ],
)
def test_malformed_metadata_becomes_empty(metadata, read):
    """Objects are made by hand."""
    assert resource_from_json({"apiVersion": 1, "metadata": metadata}).meta == read


def test_a_section_that_is_no_mapping():
    assert resource_from_json({"spec": "x"}).section("spec") == {}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
FIELDS = [
    "name",
    "namespace",
    "uid",
    "generation",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "creationTimestamp",
]


@given(
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING), st.dictionaries(st.sampled_from(["spec", "status"]), ANYTHING)
)
def test_reading_an_object_never_raises(metadata, body):
    resource = resource_from_json({"metadata": metadata, **body})

    assert resource_from_json(resource_to_json(resource)) == resource
    assert isinstance(resource.section("spec"), dict)


# Names


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        pytest.param("short", "short", id="short"),
        pytest.param("x" * 63, "x" * 63, id="63"),
        pytest.param(
            "the-really-long-backup-name-that-is-much-more-than-63-characters",
            "the-really-long-backup-name-that-is-much-more-than-63-cha6ca4bc",
            id="velero-backup",
        ),
        pytest.param(
            "the-really-long-location-name-that-is-much-more-than-63-characters",
            "the-really-long-location-name-that-is-much-more-than-63-c69e779",
            id="velero-location",
        ),
    ],
)
def test_label_safe(name, safe):
    """Velero's label-safe names."""
    assert label_safe(name) == safe


@given(st.text(st.characters(), max_size=300))
def test_label_safe_is_never_too_long(name):
    """… nor does it raise, a lone surrogate of broken JSON included."""
    assert len(label_safe(name)) <= 63


@pytest.mark.parametrize("name", ["a", "foo", "foo-1.bar", "0", "x" * 253, "xn--s-eka.example"])
def test_an_object_name(name):
    assert is_object_name(name)


@pytest.mark.parametrize(
    "name", ["", "x" * 254, "Foo", "a_b", "-a", "a-", "a..b", ".", "..", "../a", "a/b", "süß", "a\n", "a b", "\ud800"]
)
def test_no_object_name(name):
    assert not is_object_name(name)
