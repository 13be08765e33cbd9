"""The steps of protection: what each patches, how a plan shows it."""

import pytest

from reprieve.core.objects import ObjectRef, OwnerReference
from reprieve.core.steps import (
    AddFinalizer,
    DeleteObject,
    MarkOwner,
    RemoveFinalizer,
    RemoveOwnerReference,
    UnmarkOwner,
    describe,
    merge_patch,
    step_to_json,
)

REF = ObjectRef("apps/v1", "Deployment", "web", "shop", "d1")
OTHER = OwnerReference("v1", "ConfigMap", "other", "o2", controller=True)
OTHER_JSON = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "o2", "controller": True}
RECORD, MARK = "reprieve.dev/orphaned-from", "reprieve.dev/deletion-requested"


@pytest.mark.parametrize(
    ("step", "metadata"),
    [
        pytest.param(AddFinalizer(REF, "3", ["a", "b"]), {"finalizers": ["a", "b"]}, id="add-finalizer"),
        pytest.param(RemoveFinalizer(REF, "3", ["a"]), {"finalizers": ["a"]}, id="remove-finalizer"),
        pytest.param(RemoveFinalizer(REF, "3"), {"finalizers": None}, id="remove-last-finalizer"),
        pytest.param(
            RemoveOwnerReference(REF, "3", "o1", [OTHER], "o1/d1"),
            {"ownerReferences": [OTHER_JSON], "annotations": {RECORD: "o1/d1"}},
            id="take-off-and-record",
        ),
        pytest.param(
            RemoveOwnerReference(REF, "3", "o1", forget=True),
            {"ownerReferences": None, "annotations": {RECORD: None}},
            id="take-off-and-forget",
        ),
        pytest.param(RemoveOwnerReference(REF, "3", "o1"), {"ownerReferences": None}, id="take-off"),
        pytest.param(MarkOwner(REF, "3"), {"annotations": {MARK: "d1"}}, id="mark"),
        pytest.param(UnmarkOwner(REF, "3"), {"annotations": {MARK: None}}, id="unmark"),
    ],
)
def test_a_step_is_one_merge_patch(step, metadata):
    assert merge_patch(step) == {"metadata": metadata}
    assert describe(step) == "deployment shop/web"


def test_a_plan_shows_references_as_kubernetes_writes_them():
    shown = step_to_json(RemoveOwnerReference(REF, "3", "o1", [OTHER], "o1/d1"))

    assert shown == {
        "step": "RemoveOwnerReference",
        "ref": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "d1"},
        "resourceVersion": "3",
        "ownerUid": "o1",
        "remaining": [OTHER_JSON],
        "orphanedFrom": "o1/d1",
        "forget": False,
    }


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        pytest.param("", {}, id="by-uid-alone"),
        pytest.param("3", {"resourceVersion": "3"}, id="as-it-was-decided"),
    ],
)
def test_a_deletion_shows_its_precondition_where_it_has_one(version, shown):
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "d1"}

    assert step_to_json(DeleteObject(REF, version)) == {"step": "DeleteObject", "ref": ref, **shown}
