"""The garbage collector of the local cluster, row by row as the real one was measured."""

from datetime import UTC, datetime

import pytest

from reprieve.adapters.local import ClusterStore, Collector, ServedKind, StatusError, denial
from reprieve.adapters.local.collector import USER
from reprieve.core.objects import ObjectKind

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CM = ObjectKind("v1", "ConfigMap")
OURS = "reprieve.dev/protect"


@pytest.fixture
def store():
    return ClusterStore(now=lambda: NOW)


def make(store, name, *, owners=(), namespace="n", **meta):
    references = [reference(owner) if isinstance(owner, dict) and "metadata" in owner else owner for owner in owners]
    full = {"name": name, "namespace": namespace, "ownerReferences": references, **meta}
    return store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": full})


def reference(owner, *, block=False, **other):
    base = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    base |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {**base, **({"blockOwnerDeletion": True} if block else {}), **other}


def names(store):
    return [obj["metadata"]["name"] for obj in store.list(CM).items]


def meta(store, name, namespace="n"):
    return store.get(CM, namespace, name)["metadata"]


@pytest.mark.parametrize("block", [True, False], ids=["blockOwnerDeletion", "no-blockOwnerDeletion"])
def test_foreground_deletes_dependents_at_once_whatever_finalizers_the_owner_carries(store, block):
    owner = make(store, "owner", finalizers=[OURS])
    make(store, "dependent", owners=[reference(owner, block=block)])
    collector = Collector(store)
    store.delete(CM, "n", "owner", propagation="Foreground")
    collector.step()
    assert names(store) == ["owner"]
    assert meta(store, "owner")["finalizers"] == [OURS]


def test_foreground_deletes_what_blocks_nothing_also_when_the_owner_is_seen_first(store):
    """As measured: blockOwnerDeletion says when the owner may go, never whether the dependent may stay."""
    owner = make(store, "owner", finalizers=[OURS])
    make(store, "z-dependent", owners=[owner])
    collector = Collector(store)
    collector.step()
    store.delete(CM, "n", "owner", propagation="Foreground")
    collector.step()
    assert names(store) == ["owner"]


def test_foreground_owner_waits_for_a_dependent_that_blocks_it_and_is_held_by_its_own_finalizer(store):
    owner = make(store, "owner")
    make(store, "dependent", owners=[reference(owner, block=True)], finalizers=["example.com/busy"])
    collector = Collector(store)
    store.delete(CM, "n", "owner", propagation="Foreground")
    collector.step()
    assert meta(store, "owner")["finalizers"] == ["foregroundDeletion"]
    assert meta(store, "dependent")["deletionTimestamp"]
    store.patch(CM, "n", "dependent", {"metadata": {"finalizers": None}})
    collector.step()
    assert names(store) == []


def test_foreground_owner_does_not_wait_for_a_dependent_that_does_not_block_it(store):
    owner = make(store, "owner")
    make(store, "dependent", owners=[owner], finalizers=["example.com/busy"])
    collector = Collector(store)
    store.delete(CM, "n", "owner", propagation="Foreground")
    collector.step()
    assert names(store) == ["dependent"]


def test_background_waits_until_the_owner_is_really_gone(store):
    owner = make(store, "owner", finalizers=[OURS])
    make(store, "dependent", owners=[owner])
    collector = Collector(store)
    store.delete(CM, "n", "owner", propagation="Background")
    collector.step()
    assert meta(store, "dependent")["ownerReferences"] == [reference(owner)]
    store.patch(CM, "n", "owner", {"metadata": {"finalizers": None}})
    collector.step()
    assert names(store) == []


def test_orphan_takes_the_reference_and_its_own_finalizer_off_and_leaves_ours(store):
    owner = make(store, "owner", finalizers=[OURS])
    make(store, "dependent", owners=[owner])
    collector = Collector(store)
    store.delete(CM, "n", "owner", propagation="Orphan")
    collector.step()
    assert "ownerReferences" not in meta(store, "dependent")
    assert meta(store, "owner")["finalizers"] == [OURS]


def test_orphan_of_an_owner_without_finalizers_ends_with_the_owner_gone(store):
    owner = make(store, "owner")
    make(store, "dependent", owners=[owner])
    collector = Collector(store)
    store.delete(CM, "n", "owner", propagation="Orphan")
    collector.step()
    assert names(store) == ["dependent"]


ABSENT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "u-ghost"}


@pytest.mark.parametrize(
    ("collect_absent", "left"), [(True, []), (False, ["dependent"])], ids=["counts", "a-partial-dump"]
)
def test_an_owner_that_was_absent_from_the_start(store, collect_absent, left):
    make(store, "dependent", owners=[ABSENT])
    Collector(store, collect_absent=collect_absent).step()
    assert names(store) == left


def test_in_a_partial_dump_an_owner_that_goes_later_still_counts(store):
    owner = make(store, "owner")
    make(store, "dependent", owners=[owner])
    make(store, "stray", owners=[ABSENT])
    collector = Collector(store, collect_absent=False)
    collector.step()
    store.delete(CM, "n", "owner")
    collector.step()
    assert names(store) == ["stray"]


def test_another_uid_under_the_owners_name_counts_as_absent(store):
    owner = make(store, "owner")
    make(store, "dependent", owners=[owner])
    collector = Collector(store)
    collector.step()
    store.delete(CM, "n", "owner")
    make(store, "owner")
    collector.step()
    assert names(store) == ["owner"]


def test_an_owner_in_another_namespace_counts_as_absent(store):
    owner = make(store, "owner", namespace="elsewhere")
    make(store, "dependent", owners=[owner])
    Collector(store).step()
    assert names(store) == ["owner"]


def test_a_cluster_scoped_owner_is_found(store):
    owner = store.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "owner"}})
    make(store, "dependent", owners=[owner])
    Collector(store).step()
    assert names(store) == ["dependent"]


def test_an_owner_of_a_kind_that_is_not_served_keeps_its_dependent():
    store = ClusterStore(now=lambda: NOW, kinds=[ServedKind("v1", "ConfigMap", "configmaps")])
    unknown = {"apiVersion": "example.com/v1", "kind": "Database", "name": "db", "uid": "u-db"}
    make(store, "dependent", owners=[unknown])
    Collector(store).step()
    assert names(store) == ["dependent"]


def test_a_solid_owner_keeps_the_dependent_and_the_dangling_reference_is_taken_off(store):
    solid = make(store, "solid")
    make(store, "dependent", owners=[ABSENT, solid])
    Collector(store).step()
    assert meta(store, "dependent")["ownerReferences"] == [reference(solid)]


def test_with_a_solid_owner_the_reference_to_a_waiting_one_is_taken_off_too(store):
    solid, waiting = make(store, "solid"), make(store, "waiting")
    make(store, "dependent", owners=[reference(waiting, block=True), solid])
    collector = Collector(store)
    store.delete(CM, "n", "waiting", propagation="Foreground")
    collector.step()
    assert names(store) == ["dependent", "solid"]
    assert meta(store, "dependent")["ownerReferences"] == [reference(solid)]


def test_all_owners_absent_or_waiting_ends_with_the_dependent_deleted(store):
    waiting = make(store, "waiting", finalizers=[OURS])
    make(store, "dependent", owners=[ABSENT, waiting])
    collector = Collector(store)
    store.delete(CM, "n", "waiting", propagation="Foreground")
    collector.step()
    assert names(store) == ["waiting"]


def test_two_that_wait_for_each_other_both_go(store):
    first = make(store, "first")
    second = make(store, "second", owners=[reference(first, block=True)])
    store.patch(CM, "n", "first", {"metadata": {"ownerReferences": [reference(second, block=True)]}})
    collector = Collector(store)
    store.delete(CM, "n", "first", propagation="Foreground")
    collector.step()
    assert names(store) == []


def test_a_whole_tree_goes(store):
    root = make(store, "root")
    for branch in range(3):
        owner = make(store, f"branch-{branch}", owners=[root])
        for leaf in range(3):
            make(store, f"leaf-{branch}-{leaf}", owners=[owner])
    collector = Collector(store)
    store.delete(CM, "n", "root")
    sweep = collector.step()
    assert names(store) == []
    assert sweep.writes == 12
    assert collector.step().writes == 0


def shield(request):
    if (
        request.operation == "DELETE"
        and request.user == USER
        and (request.old or {})["metadata"].get("ownerReferences")
    ):
        raise denial(request, "reprieve protects what it owns", policy="reprieve")


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
def test_what_an_admission_policy_denies_stays_and_is_tried_again_later(store, propagation):
    owner = make(store, "owner")
    make(store, "dependent", owners=[reference(owner, block=True)])
    collector = Collector(store)
    store.admission.append(shield)
    store.delete(CM, "n", "owner", propagation=propagation)
    (refusal,) = collector.step().refused
    assert (refusal.name, "reprieve protects" in refusal.message) == ("dependent", True)
    assert "dependent" in names(store)
    assert [each.name for each in collector.step().refused] == ["dependent"]
    store.admission.clear()
    assert collector.step().refused == ()
    assert names(store) == []


def test_a_foreground_owner_goes_once_the_reference_of_a_protected_dependent_is_off(store):
    owner = make(store, "owner")
    make(store, "dependent", owners=[reference(owner, block=True)])
    collector = Collector(store)
    store.admission.append(shield)
    store.delete(CM, "n", "owner", propagation="Foreground")
    collector.step()
    assert names(store) == ["dependent", "owner"]
    store.patch(CM, "n", "dependent", {"metadata": {"ownerReferences": None}})
    collector.step()
    assert names(store) == ["dependent"]


def test_people_may_delete_what_the_policy_keeps_from_the_collector(store):
    owner = make(store, "owner")
    make(store, "dependent", owners=[owner])
    store.admission.append(shield)
    assert store.delete(CM, "n", "dependent", user="alice").gone
    with pytest.raises(StatusError, match="not found"):
        store.get(CM, "n", "dependent")


def test_the_collector_asks_with_its_own_name_a_uid_and_background(store):
    asked = []
    owner = make(store, "owner")
    dependent = make(store, "dependent", owners=[owner])
    collector = Collector(store)
    store.delete(CM, "n", "owner")
    store.admission.append(asked.append)
    collector.step()
    (request,) = asked
    assert request.user == "system:serviceaccount:kube-system:generic-garbage-collector"
    expected = {"propagationPolicy": "Background", "preconditions": {"uid": dependent["metadata"]["uid"]}}
    assert request.options == expected


def test_a_dependent_with_the_orphan_finalizer_hands_its_own_dependents_on(store):
    owner = make(store, "owner")
    middle = make(store, "middle", owners=[owner], finalizers=["orphan"])
    make(store, "leaf", owners=[middle])
    collector = Collector(store)
    store.delete(CM, "n", "owner")
    collector.step()
    assert names(store) == ["leaf"]
    assert "ownerReferences" not in meta(store, "leaf")
