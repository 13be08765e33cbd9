"""A protected cluster for tests: a local cluster with its garbage collector, the shield's own CEL, and a reconciler."""

import base64
import json
import threading
from datetime import UTC, datetime
from functools import cache

import celpy

from reprieve.adapters.local import ClusterStore, Collector, LocalCluster, MemoryEvents, denial
from reprieve.core.errors import UnavailableError
from reprieve.core.holds import HOLD
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import Propagation
from reprieve.core.protection import PROTECT, owner_of, recorded_owner
from reprieve.core.shield import ShieldedKind, shield_manifests
from reprieve.core.steps import DELETION_REQUESTED
from reprieve.entrypoints.configuration import ProtectionEntry
from reprieve.entrypoints.controller.protection import ProtectionReconciler
from reprieve.entrypoints.controller.runtime import run_once

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DATABASE = ObjectKind("example.com/v1", "Database")
SECRET = ObjectKind("v1", "Secret")
CLAIM = ObjectKind("v1", "PersistentVolumeClaim")
TRACK = ObjectKind("faros.pusher.com/v1alpha1", "GitTrack")
GTO = ObjectKind("faros.pusher.com/v1alpha1", "GitTrackObject")
DEPLOYMENT = ObjectKind("apps/v1", "Deployment")
THEIRS = "example.com/theirs"
US, PEOPLE = "system:serviceaccount:reprieve:reprieve", "somebody"
PROPAGATIONS = [
    Propagation.BACKGROUND,
    Propagation.FOREGROUND,
    Propagation.ORPHAN,
]
CEL = celpy.Environment()


def databases(on_request="Delete", otherwise="Orphan", *, allow=False):
    kinds = (SECRET, CLAIM)
    return ProtectionEntry(DATABASE, on_request, otherwise, dependents=kinds, allow_delete_by_annotation=allow)


def faros(on_request="Delete", otherwise="Orphan", **fields):
    return ProtectionEntry(GTO, on_request, otherwise, dialect="faros", **fields)


# The shield, by its CEL


@cache
def program(expression):
    return CEL.program(CEL.compile(expression))


@cache
def evaluate(expression, context):
    """A pure function of two texts, so that a long exploration asks each question once."""
    return program(expression).evaluate({name: celpy.json_to_cel(value) for name, value in json.loads(context).items()})


def admission(manifests):
    """The admission hook that an API server makes of the policy and its binding."""
    policy, binding = manifests
    spec = policy["spec"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]

    def hook(request):
        if request.operation not in spec["matchConstraints"]["resourceRules"][0]["operations"]:
            return
        context = json.dumps({"request": asked(request), "object": request.object, "oldObject": stable(request.old)})
        if not all(evaluate(each["expression"], context) for each in spec["matchConditions"]):
            return
        for each in spec["validations"]:
            if not evaluate(each["expression"], context):
                said = str(evaluate(each["messageExpression"], context))
                raise denial(
                    request,
                    said,
                    policy=policy["metadata"]["name"],
                    binding=binding["metadata"]["name"],
                    reason=each["reason"],
                )

    return hook


def asked(request):
    kind = {"group": request.kind.type.group, "version": request.kind.type.version, "kind": request.kind.kind}
    return {"userInfo": {"username": request.user}, "operation": request.operation, "kind": kind}


def stable(document):
    """An object without what changes at every write."""
    return {**document, "metadata": {**document["metadata"], "resourceVersion": "1"}}


def shield(*kinds):
    return admission(shield_manifests([ShieldedKind(kind) for kind in kinds]))


# The cluster


class Bench:
    """A cluster in memory with its collector, a reconciler over it, and short words to set up and look."""

    def __init__(self, *entries, shielded=True, kinds=None):
        self.entries, self.time = entries or (databases(),), NOW
        self.store = ClusterStore(now=lambda: self.time, kinds=kinds)
        self.collector = Collector(self.store)
        self.people = LocalCluster(self.store, collector=self.collector, user=PEOPLE)
        self.cluster = LocalCluster(self.store, collector=self.collector, user=US)
        self.events = MemoryEvents()
        if shielded:
            self.store.admission.append(shield(*(entry.owner for entry in self.entries)))
        self.restart()

    def restart(self):
        """A process that remembers nothing."""
        self.reconciler = ProtectionReconciler(
            self.cluster, self.entries, events=self.events, stop=threading.Event(), clock=lambda: 0.0
        )

    def make(self, kind, name, *owners, namespace="shop", finalizers=(), annotations=None, **parts):
        metadata = {"name": name, "namespace": namespace, "finalizers": list(finalizers)}
        metadata |= {"ownerReferences": list(map(refer, owners)), "annotations": annotations or {}}
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return self.people.create({**head, "metadata": metadata, **parts})

    def annotate(self, resource, annotations):
        return self.people.patch(resource.ref, {"metadata": {"annotations": annotations}})

    def ask(self, resource):
        return self.annotate(resource, {DELETION_REQUESTED: resource.meta.uid})

    def hold(self, resource):
        return self.annotate(resource, {HOLD: "audit"})

    def let_go(self, resource):
        return self.annotate(resource, {HOLD: None})

    def take_finalizers(self, resource):
        return self.people.patch(resource.ref, {"metadata": {"finalizers": None}})

    def delete(self, resource, propagation=Propagation.BACKGROUND):
        return self.people.delete(resource.ref, propagation=propagation)

    def settle(self, now=NOW):
        """Run until nothing changes; a second run of another process writes nothing."""
        report = run_once([self.reconciler], now=now)
        before = self.store.resource_version
        self.restart()
        run_once([self.reconciler], now=now)
        assert self.store.resource_version == before, "a settled world is written to"
        return report

    def judge(self, resource):
        """What is decided about an owner right now."""
        self.reconciler.keys()
        return self.reconciler.judge(owner_of(self.now(resource)), now=NOW)

    # What the world looks like

    def now(self, resource):
        return self.cluster.get(resource.ref)

    def there(self, resource):
        return self.store.by_uid(resource.meta.uid) is not None

    def seen(self, resource):
        """One object in words: whether it is there, to whom it refers, what of ours and of others is on it."""
        if not self.there(resource):
            return "gone"
        meta = self.now(resource).meta
        words = ["terminating" if meta.terminating else "live"]
        words += sorted(meta.finalizers)
        words += [f"owned by {owner.name}" for owner in meta.owners]
        words += ["orphaned"] * bool(recorded_owner(meta)) + ["held"] * (HOLD in meta.annotations)
        return ", ".join("protected" if word == PROTECT else word.replace(THEIRS, "theirs") for word in words)

    def told(self, resource):
        return [event.reason for event in self.events.events if event.ref.uid == resource.meta.uid]


class Unreadable:
    """A cluster whose lists and reads of some kinds fail, as long as it is not mended."""

    def __init__(self, cluster, *kinds):
        self.cluster, self.kinds = cluster, kinds

    def __getattr__(self, name):
        return getattr(self.cluster, name)

    def list(self, kind, **options):
        if kind in self.kinds:
            raise UnavailableError(f"{kind} is not answered for")
        return self.cluster.list(kind, **options)

    def get(self, ref, **options):
        if ref.type in self.kinds:
            raise UnavailableError(f"{ref.type} is not answered for")
        return self.cluster.get(ref, **options)


def refer(owner):
    """A controller's reference, as trackers write it; a mapping stands as it is."""
    if isinstance(owner, dict):
        return owner
    head = {"apiVersion": owner.type.api_version, "kind": owner.type.kind}
    flags = {"controller": True, "blockOwnerDeletion": True}
    return {**head, "name": owner.meta.name, "uid": owner.meta.uid, **flags}


def beside(owner):
    """A reference beside the controller's."""
    return {**refer(owner), "controller": False}


def carrying(kind, name, namespace="shop"):
    """The spec of a GitTrackObject that carries a manifest."""
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, "namespace": namespace}}
    return {"name": name, "kind": kind.kind, "data": base64.b64encode(json.dumps(manifest).encode()).decode()}
