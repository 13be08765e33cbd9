"""Faros' objects: which dependent an owner carries, and every way in which that cannot be said."""

import base64
import json
from itertools import pairwise

import hypothesis
import pytest
from hypothesis import strategies as st

from reprieve.adapters.k8s import faros
from reprieve.core.errors import ContainerMissingError
from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef, Resource
from reprieve.core.ports import Scope

MANIFEST = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:reader"}}


def scope_of(kind):
    if kind.kind == "Unserved":
        raise ContainerMissingError(f"the API server does not serve {kind}")
    return Scope.CLUSTER if kind.kind.startswith("Cluster") else Scope.NAMESPACED


def encoded(content):
    return base64.b64encode(content if isinstance(content, bytes) else content.encode()).decode()


def owner(data, *, namespace="shop", **spec):
    kind = faros.GIT_TRACK_OBJECT if namespace else faros.CLUSTER_GIT_TRACK_OBJECT
    meta = ObjectMeta("deployment-web", namespace, "owner-uid")
    return Resource(kind, meta, {"spec": {"kind": "Deployment", "name": "web", "data": data, **spec}})


def read(data, *, namespace="shop"):
    return faros.dependent_of(owner(data, namespace=namespace), scope_of)


def changed(manifest=MANIFEST, **fields):
    metadata = {**manifest["metadata"], **fields.pop("metadata", {})}
    return encoded(json.dumps({**manifest, "metadata": metadata, **fields}))


@pytest.mark.parametrize(
    "data",
    [
        encoded(json.dumps(MANIFEST)),
        encoded("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n"),
        encoded("---\n# a comment\n" + json.dumps(MANIFEST)),
        "\n".join([encoded(json.dumps(MANIFEST))[:20], encoded(json.dumps(MANIFEST))[20:]]),
    ],
    ids=["json", "yaml", "yaml-with-marker", "broken-lines"],
)
def test_the_dependent_is_what_the_data_says(data):
    assert read(data) == ObjectRef("apps/v1", "Deployment", "web", "shop")


READER = ObjectRef(ROLE["apiVersion"], "ClusterRole", "system:reader")
WEB = ObjectRef("apps/v1", "Deployment", "web", "shop")


@pytest.mark.parametrize(
    ("data", "ref"),
    [
        pytest.param(encoded(json.dumps(ROLE)), READER, id="a-cluster-scoped-dependent"),
        pytest.param(encoded(json.dumps(MANIFEST)), WEB, id="a-dependent-in-a-namespace"),
        pytest.param(changed(ROLE, metadata={"namespace": "x"}), READER, id="a-namespace-too-many"),
    ],
)
def test_cluster_scoped_owners_may_own_anywhere(data, ref):
    assert read(data, namespace="") == ref


LAYERS = [f"{name}: &{name} [*{below},*{below},*{below}]" for below, name in pairwise("abcdefghi")]
BOMB = "\n".join(["a: &a [x,x,x,x,x,x,x,x,x]", *LAYERS])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(None, "spec.data is missing", id="absent"),
        pytest.param("", "spec.data is missing", id="empty"),
        pytest.param({"a": 1}, "not a string", id="a-mapping"),
        pytest.param("%%%", "not UTF-8 text in base64", id="no-base64"),
        pytest.param(encoded(b"\xff\xfe"), "not UTF-8 text in base64", id="no-text"),
        pytest.param("A" * (faros.DATA_LIMIT + 4), "more than 4194304 are not read", id="huge"),
        pytest.param(encoded("a: [b"), "neither JSON nor YAML", id="no-yaml"),
        pytest.param(encoded("a: 1\n---\nb: 2"), "neither JSON nor YAML", id="two-documents"),
        pytest.param(encoded("!!python/object:os.system {}"), "neither JSON nor YAML", id="a-tag"),
        pytest.param(encoded(BOMB), "aliases", id="a-bomb"),
        pytest.param(encoded("[" * 500), "nested more than 100 deep", id="nested"),
        pytest.param(encoded('{"a":' * 100_000), "spec.data", id="nested-json"),
        pytest.param(encoded("[1, 2]"), "a list, not an object", id="a-list"),
        pytest.param(encoded("text"), "a str, not an object", id="a-text"),
        pytest.param(encoded("{}"), "no metadata", id="no-metadata"),
        pytest.param(changed(kind=None), "kind is missing", id="no-kind"),
        pytest.param(changed(kind=7), "kind is a int", id="a-number-for-a-kind"),
        pytest.param(changed(apiVersion=""), "apiVersion is missing", id="no-version"),
        pytest.param(changed(apiVersion="a/b/c"), "is not a kind", id="an-odd-version"),
        pytest.param(changed(metadata={"name": ""}), "metadata.name is missing", id="no-name"),
        pytest.param(changed(metadata={"name": "../secrets"}), "no object can be called", id="a-path"),
        pytest.param(changed(metadata={"namespace": 1}), "namespace is a int", id="a-number-for-a-namespace"),
        pytest.param(changed(metadata={"namespace": "A B"}), "no object can be called", id="no-namespace-can-be"),
        pytest.param(
            changed(metadata={"namespace": "prod"}), "another namespace than its owner", id="another-namespace"
        ),
        pytest.param(changed(metadata={"namespace": ""}), "names no namespace", id="no-namespace"),
        pytest.param(changed(kind="Unserved"), "does not serve", id="not-served"),
        pytest.param(encoded(json.dumps(ROLE)), "cluster-scoped", id="cluster-scoped-in-a-namespace"),
    ],
)
def test_what_cannot_be_said_is_undecodable_with_the_reason(data, why):
    found = read(data)
    assert isinstance(found, faros.Undecodable)
    assert why in found.why
    assert "GitTrackObject shop/deployment-web" in found.why
    assert found.ref == ObjectRef("", "Deployment", "web", "shop")


def test_a_cluster_scoped_owner_of_a_namespaced_kind_without_a_namespace_says_nothing():
    found = read(changed(metadata={"namespace": None}), namespace="")
    assert isinstance(found, faros.Undecodable)
    assert "names no namespace" in found.why


def test_the_kind_alone_is_read_without_the_cluster():
    assert faros.dependent_kind(owner(encoded(json.dumps(ROLE)))) == ObjectKind(ROLE["apiVersion"], "ClusterRole")
    assert isinstance(faros.dependent_kind(owner("%")), faros.Undecodable)


def test_an_owners_name_begins_with_its_dependents_kind():
    assert faros.kind_prefix("clusterrole-system-reader") == "clusterrole"


@pytest.mark.parametrize(
    ("kind", "carries"),
    [
        ("faros.pusher.com/v1alpha1/GitTrackObject", True),
        ("faros.pusher.com/v1/ClusterGitTrackObject", True),
        ("faros.pusher.com/v1alpha1/GitTrack", False),
        ("example.com/v1/GitTrackObject", False),
    ],
)
def test_which_kinds_carry_a_manifest(kind, carries):
    assert faros.is_faros_owner(ObjectKind.parse(kind)) is carries


@hypothesis.given(st.one_of(st.none(), st.integers(), st.text(), st.binary().map(encoded), st.text().map(encoded)))
def test_no_data_makes_it_raise(data):
    assert isinstance(read(data), faros.Undecodable | ObjectRef)


@hypothesis.given(
    st.recursive(st.none() | st.booleans() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c))
)
def test_no_metadata_makes_it_raise(metadata):
    assert isinstance(read(encoded(json.dumps({**MANIFEST, "metadata": metadata}))), faros.Undecodable | ObjectRef)
