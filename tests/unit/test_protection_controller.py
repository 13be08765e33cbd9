"""The protection controller over a local cluster with its garbage collector: the state of the world at the end."""

import base64
import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from reprieve.adapters.local import ClusterStore, Collector, LocalCluster, MemoryEvents, ServedKind, denial
from reprieve.adapters.local.collector import USER as COLLECTOR
from reprieve.adapters.local.kinds import known
from reprieve.core.errors import ConflictError, NotFoundError, UnavailableError
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.outcomes import Denied, Invalid, Locked, Retryable, Unknown
from reprieve.core.ports import Propagation
from reprieve.core.protection import PROTECT, owner_of
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.steps import DELETION_REQUESTED, ORPHANED_FROM
from reprieve.entrypoints.configuration import ProtectionEntry
from reprieve.entrypoints.controller.decisions import Standing
from reprieve.entrypoints.controller.owners import Key
from reprieve.entrypoints.controller.protection import ProtectionReconciler
from reprieve.entrypoints.controller.runtime import plan_once, run_once

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DATABASE = ObjectKind("example.com/v1", "Database")
SECRET = ObjectKind("v1", "Secret")
CLAIM = ObjectKind("v1", "PersistentVolumeClaim")
GTO = ObjectKind("faros.pusher.com/v1alpha1", "GitTrackObject")
DEPLOYMENT = ObjectKind("apps/v1", "Deployment")
ALL = [Propagation.BACKGROUND, Propagation.FOREGROUND, Propagation.ORPHAN]


def generic(**fields):
    """The entry of a generic owner kind: what was asked for goes along, everything else stays."""
    defaults = {"on_request": "Delete", "otherwise": "Orphan", "dependents": (SECRET, CLAIM)}
    return ProtectionEntry(DATABASE, **{**defaults, **fields})


def faros(**fields):
    return ProtectionEntry(GTO, **{"on_request": "Delete", "otherwise": "Orphan", "dialect": "faros", **fields})


class Bench:
    """A cluster in memory with its collector, a reconciler over it, and short words to set up and look."""

    def __init__(self, *entries, shielded=False, kinds=None):
        self.store = ClusterStore(now=lambda: NOW, kinds=kinds)
        self.cluster = LocalCluster(self.store, collector=Collector(self.store))
        if shielded:
            self.store.admission.append(shield)
        self.entries = entries or (generic(),)
        self.events = MemoryEvents()
        self.restart()

    def restart(self):
        """A process that remembers nothing."""
        self.reconciler = ProtectionReconciler(
            self.cluster, self.entries, events=self.events, stop=threading.Event(), clock=lambda: 0.0
        )

    def make(self, kind, name, *owners, namespace="shop", finalizers=(), annotations=None, **parts):
        references = [
            {**reference, "controller": False, "blockOwnerDeletion": True}
            for reference in (each if isinstance(each, dict) else refer(each) for each in owners)
        ]
        metadata = {"name": name, "namespace": namespace, "finalizers": list(finalizers)}
        metadata |= {"ownerReferences": references, "annotations": annotations or {}}
        if not namespace:
            metadata.pop("namespace")
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return self.cluster.create({**head, "metadata": metadata, **parts})

    def owner(self, name="orders", kind=DATABASE, **fields):
        return self.make(kind, name, **fields)

    def guarded(self, name="orders", kind=DATABASE, **fields):
        """An owner that has our finalizer already."""
        return self.owner(name, kind, finalizers=[PROTECT], **fields)

    def annotate(self, resource, **annotations):
        patch = {
            "metadata": {"annotations": {key.replace("__", "/").replace("_", "-"): v for key, v in annotations.items()}}
        }
        return self.cluster.patch(self.now(resource).ref, patch)

    def ask(self, resource):
        return self.cluster.patch(resource.ref, {"metadata": {"annotations": {DELETION_REQUESTED: resource.meta.uid}}})

    def now(self, resource):
        return self.cluster.get(resource.ref)

    def there(self, resource):
        found = self.store.by_uid(resource.meta.uid)
        return found is not None

    def owners_of(self, resource):
        return [each.uid for each in self.now(resource).meta.owners]

    def run(self, now=NOW):
        return run_once([self.reconciler], now=now)

    def told(self, resource):
        return [event.reason for event in self.events.events if event.ref.uid == resource.meta.uid]


def refer(owner):
    return {
        "apiVersion": owner.type.api_version,
        "kind": owner.type.kind,
        "name": owner.meta.name,
        "uid": owner.meta.uid,
    }


def shield(request):
    """What the admission policy denies: the collector, on whatever refers to an owner of a protected kind."""
    owners = (request.old or {}).get("metadata", {}).get("ownerReferences", [])
    kinds = {"Database", "GitTrackObject"}
    if request.operation == "DELETE" and request.user == COLLECTOR and any(each["kind"] in kinds for each in owners):
        raise denial(request, "reprieve's shield", reason="Forbidden")


def the(report):
    """The one decision of a report."""
    (decision,) = report.decisions
    return decision


def carrying(kind, name, *, namespace="shop", **fields):
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, "namespace": namespace}}
    manifest["metadata"] |= fields
    return {"name": name, "kind": kind.kind, "data": base64.b64encode(json.dumps(manifest).encode()).decode()}


# Rows 1 and 2


def test_an_owner_gets_our_finalizer_before_anything_else():
    bench = Bench()
    owner = bench.owner(finalizers=["example.com/theirs"])
    report = bench.run()
    assert bench.now(owner).meta.finalizers == ("example.com/theirs", PROTECT)
    assert report.standing is Standing.SETTLED


def test_a_settled_owner_costs_no_write():
    bench = Bench()
    bench.make(SECRET, "password", bench.guarded())
    before = bench.store.resource_version
    report = bench.run()
    assert (the(report).verdict, the(report).reason) == (Verdict.KEEP, Reason.NOT_ASKED)
    assert bench.store.resource_version == before
    assert bench.events.events == ()


def test_a_settled_owner_is_not_read_one_by_one():
    bench = Bench()
    owner = bench.guarded()
    bench.reconciler.keys()
    bench.store.delete(DATABASE, "shop", "orders")  # behind the reconciler's back: a read would tell
    result = bench.reconciler.reconcile(Key(DATABASE, "shop", owner.meta.name), now=NOW)
    assert result.decisions[0].reason is Reason.NOT_ASKED


# Accidents


@pytest.mark.parametrize("propagation", ALL)
def test_dependents_survive_the_loss_of_their_owner(propagation):
    bench = Bench(shielded=True)
    owner = bench.guarded()
    secret, claim = bench.make(SECRET, "password", owner), bench.make(CLAIM, "data", owner)
    bench.cluster.delete(owner.ref, propagation=propagation)
    report = bench.run()
    assert not bench.there(owner)
    assert bench.owners_of(secret) == bench.owners_of(claim) == []
    assert the(report).verdict is Verdict.ORPHAN if propagation is not Propagation.ORPHAN else True
    assert report.standing is Standing.SETTLED


def test_an_orphaned_dependent_records_whom_it_was_orphaned_from_and_both_are_told():
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.cluster.delete(owner.ref)
    report = bench.run()
    recorded = bench.now(secret).meta.annotations[ORPHANED_FROM]
    assert recorded == f"{owner.meta.uid}/{secret.meta.uid}"
    assert bench.told(owner) == bench.told(secret) == ["Orphaned"]
    assert [type(result.step).__name__ for result in the(report).steps] == ["RemoveOwnerReference", "RemoveFinalizer"]


def test_without_the_shield_a_foreground_deletion_can_lose_a_dependent_and_the_event_says_so():
    """The honest one: a dependent is lost when its owner is deleted in the foreground; a finalizer only shows it."""
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner, finalizers=["example.com/theirs"])
    bench.cluster.delete(owner.ref, propagation=Propagation.FOREGROUND)
    report = bench.run()
    assert bench.now(secret).meta.terminating
    assert (the(report).verdict, the(report).reason) == (Verdict.KEEP, Reason.LOST)
    assert "the shield prevents that" in the(report).message
    assert bench.told(secret) == bench.told(owner) == ["Lost"]


def test_what_a_foreground_deletion_took_altogether_is_told_on_the_owner_that_carried_it():
    """The honest one for Faros: nothing is left of the dependent to tell about, yet its owner knows what it carried."""
    bench = Bench(faros())
    owner = bench.guarded("deployment-web", GTO, spec=carrying(DEPLOYMENT, "web"))
    web = bench.make(DEPLOYMENT, "web", owner)
    bench.cluster.delete(owner.ref, propagation=Propagation.FOREGROUND)
    assert not bench.there(web)
    report = bench.run()
    assert the(report).reason is Reason.LOST
    assert "Deployment shop/web is not there, and nobody asked" in the(report).message
    assert bench.told(owner) == ["Lost"]
    assert not bench.there(owner)


def test_what_was_asked_for_and_is_gone_is_not_told_as_lost():
    bench = Bench(faros())
    owner = bench.guarded("deployment-web", GTO, spec=carrying(DEPLOYMENT, "web"))
    bench.ask(owner)
    bench.run()
    assert bench.told(owner) == []
    assert not bench.there(owner)


def test_many_owners_are_served_by_one_list_a_kind():
    bench = Bench()
    owners = [bench.guarded(f"db-{number}") for number in range(20)]
    for owner in owners:
        bench.make(SECRET, f"secret-{owner.meta.name}", owner)
        bench.cluster.delete(owner.ref)
    lists = []
    before = bench.cluster.list
    bench.cluster.list = lambda kind, **options: lists.append(kind) or before(kind, **options)
    report = bench.run()
    assert all(not bench.there(owner) for owner in owners)
    assert report.passes == 2
    assert lists.count(SECRET) == 2, "one a pass"


# Requests


@pytest.mark.parametrize("propagation", [None, *ALL])
def test_an_owner_that_was_asked_for_takes_its_dependents_along(propagation):
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.ask(owner)
    if propagation is not None:
        bench.cluster.delete(owner.ref, propagation=propagation)
    report = bench.run()
    assert not bench.there(owner)
    assert bench.there(secret) == (propagation is Propagation.ORPHAN)
    assert report.standing is Standing.SETTLED


def test_the_record_of_an_asked_owner_says_delete_at_its_end():
    bench = Bench()
    owner = bench.owner()
    secret = bench.make(SECRET, "password", owner)
    bench.ask(owner)
    report = bench.run()
    assert not bench.there(owner)
    assert not bench.there(secret)
    assert (the(report).verdict, the(report).reason) == (Verdict.DELETE, Reason.ASKED)
    assert bench.told(owner) == bench.told(secret) == ["Deleted"]


def test_the_plan_of_an_asked_owner_writes_nothing_and_says_what_would_go():
    bench = Bench()
    owner = bench.guarded()
    bench.make(SECRET, "password", owner)
    bench.ask(owner)
    before = bench.store.resource_version
    report = plan_once([bench.reconciler], now=NOW)
    decision = the(report)
    assert (decision.verdict, decision.changes) == (Verdict.DELETE, True)
    assert [type(step).__name__ for step in decision.steps] == ["DeleteObject"]
    assert bench.store.resource_version == before


@pytest.mark.parametrize("marker", ["true", "another-uid", ""], ids=["templated", "copied", "empty"])
def test_a_foreign_marker_is_no_request_and_the_owner_is_told(marker):
    bench = Bench()
    owner = bench.guarded(annotations={DELETION_REQUESTED: marker})
    report = bench.run()
    assert bench.there(owner)
    assert (the(report).reason, report.standing) == (Reason.MARKER_FOREIGN, Standing.SETTLED)


def test_a_held_dependent_keeps_its_asked_owner_waiting_and_goes_on_by_itself():
    bench = Bench()
    owner = bench.guarded()
    held = {"reprieve.dev/hold": "audit", "reprieve.dev/hold-until": "2026-03-02T12:00:00Z"}
    secret = bench.make(SECRET, "password", owner, annotations=held)
    claim = bench.make(CLAIM, "data", owner)
    bench.ask(owner)
    waiting = bench.run()
    assert (the(waiting).reason, waiting.standing) == (Reason.HELD, Standing.WAITING)
    assert bench.there(owner)
    assert bench.told(owner) == ["Held"]
    assert bench.told(claim) == ["Kept"]
    assert bench.run(NOW + timedelta(days=1)).standing is Standing.SETTLED
    assert not any(map(bench.there, (owner, secret, claim)))


def test_a_held_dependent_of_a_terminating_owner_is_orphaned_now_and_deleted_when_its_hold_lifts():
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner, annotations={"reprieve.dev/hold": "audit"})
    bench.ask(owner)
    bench.cluster.delete(owner.ref)
    assert bench.run().standing is Standing.WAITING
    assert (bench.owners_of(secret), bench.there(owner)) == ([], True)
    assert bench.told(secret) == ["Held"]
    bench.restart()
    bench.cluster.patch(secret.ref, {"metadata": {"annotations": {"reprieve.dev/hold": None}}})
    assert bench.run().standing is Standing.SETTLED
    assert not bench.there(owner)
    assert not bench.there(secret)


def test_a_dependent_that_a_finalizer_holds_is_waited_for():
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner, finalizers=["example.com/theirs"])
    bench.ask(owner)
    report = bench.run()
    assert (the(report).reason, the(report).verdict) == (Reason.DELETING, Verdict.DELETE)
    assert report.standing is Standing.WAITING
    bench.cluster.patch(secret.ref, {"metadata": {"finalizers": None}})
    report = bench.run()
    assert (bench.there(owner), report.standing, the(report).verdict) == (False, Standing.SETTLED, Verdict.DELETE)


@pytest.mark.parametrize("kind", [DATABASE, GTO], ids=["listed", "carried"])
def test_a_dependent_that_comes_back_three_times_is_kept(kind):
    bench = Bench(generic(), faros())
    owner = bench.guarded("secret-password", kind, spec=carrying(SECRET, "password"))
    bench.make(SECRET, "password", owner)
    bench.ask(owner)
    deletions = []
    before = bench.cluster.delete

    def delete(ref, **options):
        outcome = before(ref, **options)
        if ref.kind == "Secret":
            deletions.append(ref.uid)
            bench.make(SECRET, "password", owner)  # somebody brings it back at once
        return outcome

    bench.cluster.delete = delete
    report = bench.run()
    assert len(set(deletions)) == 3
    assert not bench.there(owner)
    assert bench.cluster.get(ObjectRef("v1", "Secret", "password", "shop")).meta.owners == ()
    assert (the(report).verdict, the(report).reason) == (Verdict.KEEP, Reason.RECREATED)
    assert "Kept" in bench.told(owner)


def test_other_owners_keep_a_dependent_and_their_references():
    bench = Bench()
    owner, other = bench.guarded(), bench.guarded("other")
    secret = bench.make(SECRET, "password", owner, other)
    bench.ask(owner)
    bench.run()
    assert not bench.there(owner)
    assert bench.owners_of(secret) == [other.meta.uid]
    assert ORPHANED_FROM not in bench.now(secret).meta.annotations


def test_an_other_owner_that_a_live_read_confirms_absent_does_not_keep_a_dependent():
    bench = Bench()
    owner = bench.guarded()
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone-uid"}
    secret = bench.make(SECRET, "password", owner, gone)
    bench.ask(owner)
    bench.run()
    assert not bench.there(owner)
    assert not bench.there(secret)


def test_a_reference_from_another_namespace_is_taken_off_too():
    """pusher/faros#143: references across namespaces, which the collector takes for references to absent owners."""
    bench = Bench(shielded=True)
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner, namespace="elsewhere")
    bench.cluster.delete(owner.ref)
    bench.run()
    assert not bench.there(owner)
    assert bench.owners_of(secret) == []


def test_the_namespaces_word_counts():
    bench = Bench()
    bench.make(ObjectKind("v1", "Namespace"), "shop", namespace="", annotations={"reprieve.dev/on-request": "Orphan"})
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.ask(owner)
    report = bench.run()
    assert (bench.there(owner), bench.there(secret)) == (False, True)
    assert the(report).reason is Reason.ORPHAN_ON_REQUEST


# Unknown


def served(*kinds):
    return [known(kind) or ServedKind(kind.api_version, kind.kind, f"{kind.kind.lower()}s") for kind in kinds]


def test_a_kind_of_dependents_that_is_not_served_is_unknown_and_never_none():
    bench = Bench(kinds=served(DATABASE, SECRET, ObjectKind("v1", "Namespace")))
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.ask(owner)
    bench.cluster.delete(owner.ref)
    report = bench.run()
    assert (the(report).reason, report.standing) == (Reason.UNKNOWN, Standing.WAITING)
    assert bench.there(owner)
    assert not bench.there(secret), "what is known is settled meanwhile"
    assert bench.told(owner)[-1] == "Unknown" or "Unknown" in bench.told(owner)


def test_a_namespace_that_cannot_be_read_makes_its_dependents_unknown():
    bench = Bench(kinds=served(DATABASE, SECRET, CLAIM))
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.ask(owner)
    assert bench.run().standing is Standing.WAITING
    assert bench.there(owner)
    assert bench.there(secret)


def test_an_owner_kind_that_cannot_be_listed_takes_no_other_along():
    bench = Bench(generic(), faros())
    owner = bench.owner()
    before = bench.cluster.list

    def refusing(kind, **options):
        if kind == GTO:
            raise UnavailableError("the API server is away")
        return before(kind, **options)

    bench.cluster.list = refusing
    report = bench.run()
    assert PROTECT in bench.now(owner).meta.finalizers
    assert [failure.message for failure in report.failures] == ["the API server is away"]
    assert report.standing is Standing.FAILED


# Row 16


def test_a_dangling_reference_is_taken_off():
    """Owner loss: etcd forgot the owner, nothing was ever seen terminating, and the collector is on its way."""
    bench = Bench(shielded=True)
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.cluster.delete(owner.ref)
    bench.cluster.patch(owner.ref, {"metadata": {"finalizers": None}})  # behind our back
    assert bench.there(secret)
    report = bench.run()
    assert bench.owners_of(secret) == []
    assert the(report).reason is Reason.OWNER_ABSENT
    assert the(report).ref.uid == owner.meta.uid
    assert bench.told(secret) == ["Orphaned"]
    assert bench.told(owner) == []


def test_each_namespace_that_refers_to_a_vanished_owner_has_a_record_of_its_own_steps():
    """pusher/faros#143: one UID that is referred to from several namespaces is looked for in each of them."""
    bench = Bench(shielded=True)
    reference = {"apiVersion": "example.com/v1", "kind": "Database", "name": "orders", "uid": "lost"}
    for namespace in ("elsewhere", "shop"):
        bench.make(SECRET, "password", reference, namespace=namespace)
    decisions = bench.run().decisions
    assert [each.ref.namespace for each in decisions] == ["elsewhere", "shop"]
    for each in decisions:
        assert [result.step.ref.namespace for result in each.steps] == [each.ref.namespace]


def test_an_owner_that_was_made_anew_under_the_name_is_another():
    bench = Bench(shielded=True)
    owner = bench.owner()
    secret = bench.make(SECRET, "password", owner)
    bench.cluster.delete(owner.ref)
    new = bench.owner()
    bench.run()
    assert bench.owners_of(secret) == []
    assert bench.there(new)


def test_a_reference_to_an_owner_kind_that_is_not_served_proves_nothing():
    bench = Bench(kinds=served(SECRET, CLAIM))
    lost = {"apiVersion": "example.com/v1", "kind": "Database", "name": "orders", "uid": "lost"}
    secret = bench.make(SECRET, "password", lost)
    report = bench.run()
    assert bench.owners_of(secret) == ["lost"]
    assert report.decisions == ()


# Faros


def test_a_carried_dependent_goes_the_same_ways():
    bench = Bench(faros())
    asked = bench.owner("deployment-old", GTO, spec=carrying(DEPLOYMENT, "old"))
    lost = bench.owner("deployment-web", GTO, spec=carrying(DEPLOYMENT, "web"))
    old, web = bench.make(DEPLOYMENT, "old", asked), bench.make(DEPLOYMENT, "web", lost)
    bench.run()
    bench.ask(asked)
    bench.cluster.delete(lost.ref)
    report = bench.run()
    assert [bench.there(each) for each in (asked, lost, old, web)] == [False, False, False, True]
    assert {d.ref.name: d.verdict for d in report.decisions} == {
        "deployment-old": Verdict.DELETE,
        "deployment-web": Verdict.ORPHAN,
    }


@pytest.mark.parametrize(
    "data",
    ["", "%%%", base64.b64encode(b"[1]").decode(), carrying(DEPLOYMENT, "web", namespace="elsewhere")["data"]],
    ids=["none", "no-base64", "no-object", "another-namespace"],
)
def test_what_a_terminating_owner_carries_and_nobody_can_tell_keeps_it(data):
    bench = Bench(faros())
    owner = bench.guarded("deployment-web", GTO, spec={"kind": "Deployment", "name": "web", "data": data})
    web = bench.make(DEPLOYMENT, "web", owner)
    bench.ask(owner)
    bench.cluster.delete(owner.ref)
    report = bench.run()
    assert (the(report).reason, report.standing) == (Reason.UNKNOWN, Standing.WAITING)
    assert bench.there(owner)
    assert bench.there(web)


def test_the_kinds_that_owners_carry_are_scanned_for_references_to_owners_that_vanished():
    bench = Bench(faros(), shielded=True)
    bench.guarded("deployment-other", GTO, spec=carrying(DEPLOYMENT, "other"))
    lost = bench.owner("deployment-web", GTO, spec=carrying(DEPLOYMENT, "web"))
    web = bench.make(DEPLOYMENT, "web", lost)
    bench.cluster.delete(lost.ref)
    assert bench.there(web)
    bench.run()
    assert bench.owners_of(web) == []


# Protected owners among the dependents


def test_a_dependent_that_is_a_protected_owner_itself_is_marked_and_goes_with_its_own():
    parent = ObjectKind("example.com/v1", "Fleet")
    bench = Bench(ProtectionEntry(parent, "Delete", "Orphan", dependents=(DATABASE,)), generic())
    fleet = bench.make(parent, "fleet")
    owner = bench.owner()
    owner = bench.cluster.patch(owner.ref, {"metadata": {"ownerReferences": [refer(fleet)]}})
    secret = bench.make(SECRET, "password", owner)
    bench.ask(fleet)
    report = bench.run()
    assert not any(map(bench.there, (fleet, owner, secret)))
    assert report.standing is Standing.SETTLED


# Concurrency and crashes


class Dying:
    """A cluster that dies before its n-th write."""

    def __init__(self, cluster, left):
        self._cluster, self.left = cluster, left

    def __getattr__(self, name):
        return getattr(self._cluster, name)

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def patch(self, *args, **options):
        self._count()
        return self._cluster.patch(*args, **options)

    def delete(self, *args, **options):
        self._count()
        return self._cluster.delete(*args, **options)


@pytest.mark.parametrize("left", range(9))
@pytest.mark.parametrize("asked", [True, False])
def test_a_run_that_dies_before_any_write_ends_the_same(left, asked):
    bench = Bench(shielded=True)
    owner = bench.owner()
    dependents = [bench.make(SECRET, "password", owner), bench.make(CLAIM, "data", owner)]
    if asked:
        bench.ask(owner)
    else:
        bench.run()
        bench.cluster.delete(owner.ref, propagation=Propagation.FOREGROUND)
    dying = Dying(bench.cluster, left)
    reconciler = ProtectionReconciler(dying, bench.entries, events=bench.events, clock=lambda: 0.0)
    try:
        run_once([reconciler], now=NOW)
    except KeyboardInterrupt:
        bench.restart()
        bench.run()
    assert not bench.there(owner)
    assert [bench.there(each) for each in dependents] == [not asked, not asked]
    settled = bench.store.resource_version
    bench.run()
    assert bench.store.resource_version == settled


def test_a_hold_that_comes_between_the_decision_and_the_deletion_is_seen():
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.ask(owner)
    bench.cluster.delete(owner.ref)
    before = bench.cluster.get
    reads = []

    def get(ref, **options):
        if ref.kind == "Database":
            reads.append(ref)
            if len(reads) == 2:  # the look right before the deletion
                bench.store.patch(
                    DATABASE, "shop", "orders", {"metadata": {"annotations": {"reprieve.dev/hold": "stop"}}}
                )
        return before(ref, **options)

    bench.cluster.get = get
    report = bench.run()
    assert bench.there(secret)
    assert (the(report).reason, report.standing) == (Reason.HELD, Standing.WAITING)


def test_a_dependent_that_changes_all_the_time_ends_in_a_conflict_and_not_in_a_loop():
    bench = Bench()
    owner = bench.guarded()
    bench.make(SECRET, "password", owner)
    bench.cluster.delete(owner.ref)
    before = bench.cluster.patch

    def patch(ref, change, **options):
        if ref.kind == "Secret":
            bench.store.patch(SECRET, "shop", "password", {"data": {"a": str(bench.store.resource_version)}})
        return before(ref, change, **options)

    bench.cluster.patch = patch
    bench.reconciler.keys()
    with pytest.raises(ConflictError):
        bench.reconciler.reconcile(Key(DATABASE, "shop", "orders"), now=NOW)
    assert bench.there(owner)


def test_a_stop_leaves_the_rest_for_the_next_run():
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.cluster.delete(owner.ref)
    stop = threading.Event()
    stop.set()
    reconciler = ProtectionReconciler(bench.cluster, bench.entries, events=bench.events, stop=stop, clock=lambda: 0.0)
    reconciler.keys()
    result = reconciler.reconcile(Key(DATABASE, "shop", "orders"), now=NOW)
    assert (result.changed, result.again, result.decisions[0].standing) == (False, NOW, Standing.WAITING)
    assert bench.owners_of(secret) == [owner.meta.uid]


# What goes wrong on the way


@pytest.mark.parametrize(
    ("outcome", "standing"),
    [
        (Denied("not allowed"), Standing.FAILED),
        (Invalid("malformed"), Standing.FAILED),
        (Retryable(timedelta(hours=2), "throttled"), Standing.WAITING),
        (Locked(None, "a policy refuses"), Standing.WAITING),
        (Unknown("what?"), Standing.WAITING),
    ],
    ids=["denied", "invalid", "throttled", "locked", "unknown"],
)
def test_a_deletion_that_does_not_come_to_its_end_keeps_the_owner_and_comes_back(outcome, standing):
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.ask(owner)
    bench.cluster.delete(owner.ref)
    before = bench.cluster.delete
    bench.cluster.delete = lambda ref, **options: outcome if ref.kind == "Secret" else before(ref, **options)
    bench.reconciler.keys()
    results = [bench.reconciler.reconcile(Key(DATABASE, "shop", "orders"), now=NOW) for _ in range(3)]
    assert {result.decisions[0].standing for result in results} == {standing}
    assert bench.there(owner)
    assert bench.there(secret)
    pauses = [result.again - NOW for result in results]
    assert pauses == sorted(pauses)
    if isinstance(outcome, Retryable):
        assert pauses[0] > timedelta(0)
    else:
        assert pauses[0] < pauses[2]


@pytest.mark.parametrize("fault", [NotFoundError("gone"), ConflictError("changed")], ids=["gone", "changed"])
def test_a_dependent_that_changes_or_goes_while_it_is_let_go_is_read_again(fault):
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.cluster.delete(owner.ref)
    before, left = bench.cluster.patch, [fault]

    def patch(ref, change, **options):
        if ref.kind == "Secret" and left:
            if isinstance(left[0], NotFoundError):
                bench.store.delete(SECRET, "shop", "password")
            raise left.pop()
        return before(ref, change, **options)

    bench.cluster.patch = patch
    assert bench.run().standing is Standing.SETTLED
    assert not bench.there(owner)
    assert bench.there(secret) == isinstance(fault, ConflictError)


@pytest.mark.parametrize(
    ("kind", "namespace"),
    [(ObjectKind("gone.example.com/v1", "Thing"), "shop"), (ObjectKind("v1", "ConfigMap"), "")],
    ids=["not-served", "nowhere-to-look"],
)
def test_an_other_owner_that_cannot_be_looked_up_keeps_a_dependent(kind, namespace):
    volume = ObjectKind("v1", "PersistentVolume")
    dependents = SECRET if namespace else volume
    fleet = ObjectKind("example.com/v1", "ClusterFleet")
    kinds = served(SECRET, volume, ObjectKind("v1", "ConfigMap"), ObjectKind("v1", "Namespace"))
    cluster_scoped = ServedKind(fleet.api_version, fleet.kind, "clusterfleets", namespaced=False)
    bench = Bench(ProtectionEntry(fleet, "Delete", "Orphan", dependents=(dependents,)), kinds=[*kinds, cluster_scoped])
    bench.cluster.collector = None  # it would judge the other owner in its own way
    owner = bench.guarded("fleet", fleet, namespace="")
    other = {"apiVersion": kind.api_version, "kind": kind.kind, "name": "other", "uid": "other"}
    mine = bench.make(dependents, "mine", owner, other, namespace=namespace)
    bench.ask(owner)
    bench.run()
    assert not bench.there(owner)
    assert bench.owners_of(mine) == ["other"]


def test_a_whole_read_that_fails_at_a_dependent_is_unknown_and_is_looked_at_again_with_growing_pauses():
    bench = Bench(faros())
    owner = bench.guarded("deployment-web", GTO, spec=carrying(DEPLOYMENT, "web"))
    bench.make(DEPLOYMENT, "web", owner)
    bench.cluster.delete(owner.ref)
    before = bench.cluster.get

    def get(ref, **options):
        if ref.kind == "Deployment":
            raise UnavailableError("away")
        return before(ref, **options)

    bench.cluster.get = get
    results = [bench.reconciler.reconcile(Key(GTO, "shop", "deployment-web"), now=NOW) for _ in range(4)]
    pauses = [result.again - NOW for result in results]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[3]
    bench.cluster.get = before
    assert bench.run().standing is Standing.SETTLED


def test_a_carrying_owner_that_is_made_anew_meanwhile_is_read_again():
    bench = Bench(faros())
    owner = bench.guarded("deployment-web", GTO, spec=carrying(DEPLOYMENT, "web"))
    bench.cluster.delete(owner.ref)
    before, left = bench.cluster.get, [1]

    def get(ref, *, metadata_only=False):
        if ref.kind == "GitTrackObject" and not metadata_only and left:
            left.pop()
            bench.store.patch(GTO, "shop", "deployment-web", {"metadata": {"finalizers": None}})
            bench.guarded("deployment-web", GTO, spec=carrying(DEPLOYMENT, "web"))
        return before(ref, metadata_only=metadata_only)

    bench.cluster.get = get
    report = bench.run()
    assert (report.failures, report.standing) == ((), Standing.SETTLED)
    assert not bench.there(owner)


def test_a_list_does_not_undo_what_was_heard_while_it_was_made():
    bench = Bench()
    owner = bench.guarded()
    before = bench.cluster.list

    def slow(kind, **options):
        listing = before(kind, **options)
        if kind == DATABASE:
            bench.cluster.delete(owner.ref)
            watch.keys_of(bench.now(owner), False)  # the watch is faster than the list
        return listing

    watch = next(watch for watch in bench.reconciler.watches() if watch.kind == DATABASE)
    bench.cluster.list = slow
    bench.reconciler.keys()
    bench.cluster.list = before
    bench.reconciler.reconcile(Key(DATABASE, "shop", "orders"), now=NOW)
    assert not bench.there(owner)


def test_a_list_is_dropped_when_a_watch_tells_otherwise():
    bench = Bench()
    owner = bench.guarded()
    secret = bench.make(SECRET, "password", owner)
    bench.cluster.delete(owner.ref)
    watches = {watch.kind: watch for watch in bench.reconciler.watches()}
    bench.reconciler.keys()
    lists = []
    before = bench.cluster.list
    bench.cluster.list = lambda kind, **options: lists.append(kind) or before(kind, **options)
    watches[SECRET].keys_of(secret, False)  # nothing new
    watches[SECRET].keys_of(bench.make(SECRET, "unrelated"), False)  # nothing that matters
    bench.reconciler.judge(owner_of(bench.now(owner)), now=NOW)
    assert lists == []
    watches[SECRET].keys_of(bench.annotate(secret, a__b="c"), False)
    bench.reconciler.judge(owner_of(bench.now(owner)), now=NOW)
    assert lists == [SECRET]


# Watches


def test_what_a_dependent_tells_wakes_the_owners_that_wait_for_it_and_no_settled_one():
    bench = Bench()
    settled, asked = bench.guarded("settled"), bench.guarded("asked")
    bench.ask(asked)
    first, second = bench.make(SECRET, "first", settled), bench.make(SECRET, "second", asked)
    watches = {watch.kind: watch for watch in bench.reconciler.watches()}
    assert set(watches) == {DATABASE, SECRET, CLAIM}
    assert all(watch.metadata_only for watch in watches.values())
    wake = watches[SECRET].keys_of
    assert wake(first, False) == []
    assert wake(second, True) == [Key(DATABASE, "shop", "asked")]


def test_a_dependent_of_an_unknown_owner_wakes_the_search_for_it():
    bench = Bench(shielded=True)
    owner = bench.owner()
    secret = bench.make(SECRET, "password", owner)
    bench.cluster.delete(owner.ref)
    watches = {watch.kind: watch for watch in bench.reconciler.watches()}
    (key,) = watches[SECRET].keys_of(secret, False)
    assert key == Key(DATABASE, "shop", "orders", owner.meta.uid)
    bench.reconciler.reconcile(key, now=NOW)
    assert bench.owners_of(secret) == []


def test_an_owner_that_goes_wakes_the_search_for_what_it_left():
    bench = Bench()
    owner = bench.guarded()
    watch = next(watch for watch in bench.reconciler.watches() if watch.kind == DATABASE)
    assert watch.keys_of(owner, True) == [
        Key(DATABASE, "shop", "orders"),
        Key(DATABASE, "shop", "orders", owner.meta.uid),
    ]
    assert bench.reconciler.reconcile(Key(DATABASE, "shop", "gone"), now=NOW).decisions == ()


def test_a_gone_owner_is_nothing_to_do():
    bench = Bench()
    assert bench.reconciler.reconcile(Key(DATABASE, "shop", "never"), now=NOW).decisions == ()
    assert str(Key(DATABASE, "shop", "never")) == "Database shop/never"
    assert str(Key(DATABASE)) == "example.com/v1/Database"
    assert Key(DATABASE, "", "x").ref == ObjectRef("example.com/v1", "Database", "x")
