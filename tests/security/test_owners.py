"""Owners and strangers: who may write to an object, or make one, deletes nothing of others, and holds nobody up.

The controller runs as it does in a cluster, over a local one with its garbage collector, unless a test says otherwise.
"""

import json
import threading
from contextlib import suppress
from datetime import timedelta

import pytest
import structlog

from reprieve.adapters.local import LocalCluster, MemoryObjectStores, MemorySnapshotStores, ServedKind
from reprieve.adapters.local.kinds import guessed, known
from reprieve.core.errors import DeniedError, LockedError
from reprieve.core.holds import HOLD, HOLD_UNTIL
from reprieve.core.objects import ObjectKind
from reprieve.core.protection import HELD_DEPENDENTS, HELD_DEPENDENTS_LIMIT, PROTECT, held_dependents
from reprieve.core.steps import DELETION_REQUESTED, ORPHANED_FROM
from reprieve.entrypoints.cli.root import run
from reprieve.entrypoints.configuration import BackupsOff, Configuration, ProtectionEntry
from reprieve.entrypoints.controller import serve as serving
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.carried import CARRIED_LIMIT
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World
from tests.unit.cel import admission
from tests.unit.protected import (
    DATABASE,
    DEPLOYMENT,
    GTO,
    NOW,
    PEOPLE,
    SECRET,
    THEIRS,
    Bench,
    carrying,
    databases,
    faros,
    refer,
)

PATIENCE = 60
TOMORROW = NOW + timedelta(days=1)
HELD = {HOLD: "audit", HOLD_UNTIL: "2026-03-02T12:00:00Z"}
FLEET = ObjectKind("example.com/v1", "ClusterFleet")


class Running:
    """The controller of a bench as it runs: followers, workers, resync. It is stopped at the end."""

    def __init__(self, bench, now=NOW):
        self.bench, self.now = bench, now
        self.stop, self.changed = threading.Event(), threading.Event()
        bench.store.listeners.append(lambda _change: self.changed.set())
        configuration = Configuration(backups=BackupsOff(), protection=bench.entries)
        stores = (MemoryObjectStores({}), MemorySnapshotStores())
        world = World(configuration, bench.cluster, *stores, bench.events, local=True)
        self.built = build_controllers(world, names=(), stop=self.stop)
        self.thread = threading.Thread(target=self._serve, args=(world,))

    def _serve(self, world):
        serving.serve(self.built, world, stop=self.stop, clock=lambda: self.now)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(PATIENCE)
        self.built.close()
        assert not self.thread.is_alive()

    def until(self, truth):
        """Wait until something has become true of the world; it is asked after each write."""
        while not truth():
            assert self.changed.wait(PATIENCE), "nothing happens any more"
            self.changed.clear()

    def until_gone(self, *resources):
        self.until(lambda: not any(map(self.bench.there, resources)))


def claim_by_record(bench, owner, victim):
    bench.annotate(victim, {ORPHANED_FROM: f"{owner.meta.uid}/{victim.meta.uid}"})


def claim_by_reference(bench, owner, victim):
    bench.people.patch(victim.ref, {"metadata": {"ownerReferences": [refer(owner)]}})


def claim_by_both(bench, owner, victim):
    claim_by_record(bench, owner, victim)
    claim_by_reference(bench, owner, victim)


CLAIMS = pytest.mark.parametrize(
    "claim", [claim_by_record, claim_by_reference, claim_by_both], ids=["by-record", "by-reference", "by-both"]
)
VERBS = pytest.mark.parametrize("verbs", [("Delete", "Orphan"), ("Delete", "Delete")], ids=["asked-only", "opted-in"])


# Dependents in other namespaces


@CLAIMS
@VERBS
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not-asked"])
def test_an_object_in_another_namespace_is_not_deleted_whatever_it_claims(claim, verbs, asked):
    """Mallory may annotate, but not delete, a Secret in another namespace. It is made to say that it belonged to an
    owner that is about to go, and the controller, which may delete everything, deleted it.
    """
    bench = Bench(databases(*verbs))
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    own = bench.make(SECRET, "password", owner)
    victim = bench.make(SECRET, "ledger", namespace="vault")
    claim(bench, owner, victim)
    with Running(bench) as running:
        if asked:
            bench.ask(owner)
        bench.delete(owner)
        running.until_gone(owner)
    bench.settle()
    assert bench.there(own) is (not asked and verbs[1] == "Orphan")
    assert bench.there(victim)
    assert not bench.now(victim).meta.terminating


@CLAIMS
def test_a_cluster_scoped_object_is_no_dependent_of_an_owner_in_a_namespace(claim):
    """Whoever may annotate a PersistentVolume names an owner of his own namespace in it, and asks for that owner."""
    volume = ObjectKind("v1", "PersistentVolume")
    bench = Bench(ProtectionEntry(DATABASE, "Delete", "Delete", dependents=(volume,)))
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    victim = bench.people.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "ledger"}})
    claim(bench, owner, victim)
    with Running(bench) as running:
        bench.ask(owner)
        running.until_gone(owner)
    assert bench.there(victim)


@CLAIMS
@pytest.mark.parametrize("obstacle", ["held", "terminating"])
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted-and-asked", "asked"])
def test_an_object_in_another_namespace_holds_no_owner(claim, obstacle, deleted):
    """Mallory makes an object of his own that names somebody's owner, and holds it, or lets a finalizer of his hold it:
    the owner, whose deletion was asked for, waited for it for ever.
    """
    bench = Bench()
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    own = bench.make(SECRET, "password", owner)
    bait = bench.make(SECRET, "bait", namespace="mallory", annotations={HOLD: "ha"}, finalizers=[THEIRS])
    claim(bench, owner, bait)
    if obstacle == "terminating":
        bench.delete(bait)
    with Running(bench) as running:
        bench.ask(owner)
        if deleted:
            bench.delete(owner)
        running.until_gone(owner, own)
    assert bench.there(bait)


def test_an_object_in_another_namespace_makes_nothing_of_an_owner_unknown():
    """What cannot be read keeps an owner; an object that names the owner from a namespace that the controller may not
    read is no reason to look there.
    """
    bench = Bench()
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    bait = bench.make(SECRET, "bait", owner, namespace="mallory")
    get = bench.cluster.get

    def refusing(ref, **options):
        if ref.kind == "Namespace" and ref.name == "mallory":
            raise DeniedError("namespaces mallory is forbidden")
        return get(ref, **options)

    bench.cluster.get = refusing
    with Running(bench) as running:
        bench.ask(owner)
        running.until_gone(owner)
    assert bench.there(bait)


def test_a_cluster_scoped_owner_has_its_dependents_anywhere():
    """The honest neighbour: an owner of the whole cluster takes along what it owns, wherever that is."""
    bench = Bench(ProtectionEntry(FLEET, "Delete", "Orphan", dependents=(SECRET,)))
    owner = bench.people.create(
        {"apiVersion": FLEET.api_version, "kind": FLEET.kind, "metadata": {"name": "fleet", "finalizers": [PROTECT]}}
    )
    own = [bench.make(SECRET, "password", owner, namespace=place) for place in ("shop", "vault")]
    with Running(bench) as running:
        bench.ask(owner)
        running.until_gone(owner, *own)


@pytest.mark.parametrize("otherwise", ["Orphan", "Delete"])
def test_what_a_gittrackobject_carries_from_another_namespace_is_not_deleted_for_it(otherwise):
    """Whoever may make GitTrackObjects in his namespace carries another namespace's Deployment in one, which was made
    to refer to it, and asks for its deletion. Faros itself makes no such object.
    """
    bench = Bench(faros("Delete", otherwise))
    carried = carrying(DEPLOYMENT, "ledger", namespace="vault")
    owner = bench.make(GTO, "deployment-ledger", namespace="mallory", finalizers=[PROTECT], spec=carried)
    honest = bench.make(GTO, "deployment-web", finalizers=[PROTECT], spec=carrying(DEPLOYMENT, "web"))
    web = bench.make(DEPLOYMENT, "web", honest)
    victim = bench.make(DEPLOYMENT, "ledger", owner, namespace="vault")
    claim_by_both(bench, owner, victim)
    with Running(bench) as running:
        bench.ask(owner)
        bench.delete(owner)
        bench.ask(honest)
        running.until_gone(honest, web)
    bench.settle()
    assert bench.there(victim)
    assert not bench.now(victim).meta.terminating


# What only the dependent says


def test_an_annotation_alone_makes_no_dependent():
    """In the owner's own namespace, too: whoever may annotate a Secret, but not delete it, lets it say that it was
    orphaned from an owner that is asked for; it went with that owner.
    """
    bench = Bench(databases("Delete", "Delete"))
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    own, victim = bench.make(SECRET, "password", owner), bench.make(SECRET, "ledger")
    claim_by_record(bench, owner, victim)
    with Running(bench) as running:
        bench.ask(owner)
        running.until_gone(owner, own)
    assert bench.there(victim)


def test_a_record_copied_from_another_owner_names_nobody():
    """An owner that was made from a template, or copied, carries another owner's record: it is bound to a UID."""
    bench = Bench()
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    victim = bench.make(SECRET, "ledger")
    claim_by_record(bench, owner, victim)
    bench.annotate(owner, {HELD_DEPENDENTS: f'{{"owner":"another","dependents":["{victim.meta.uid}"]}}'})
    with Running(bench) as running:
        bench.ask(owner)
        running.until_gone(owner)
    assert bench.there(victim)


@pytest.mark.parametrize("writes", range(1, 7))
def test_a_held_dependent_goes_when_its_hold_lifts_whichever_write_the_process_dies_after(writes):
    """The honest neighbour: the owner remembers whom it orphaned under a hold before the reference goes, so that a
    crash in between forgets nothing, and deletes nothing early.
    """
    bench = Bench()
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    held = [bench.make(SECRET, name, owner, annotations=HELD) for name in ("password", "token")]
    bench.ask(owner)
    bench.delete(owner)
    left, patch = [writes], bench.cluster.patch

    def dying(*args, **options):
        result = patch(*args, **options)
        left[0] -= 1
        if left[0] <= 0:
            dead.set()
            raise SystemExit  # the process is gone: nothing that it wanted to do next is done
        return result

    dead = threading.Event()
    bench.cluster.patch = dying
    with suppress(SystemExit):
        run_once([bench.reconciler], now=NOW)
    bench.cluster.patch = patch
    assert dead.is_set() is (writes <= 3), "one record, and two references"
    for each in held:
        assert bench.there(each)
        named = each.meta.uid in held_dependents(bench.now(owner).meta)
        assert named or bench.now(each).meta.owners, "neither refers to the owner nor is remembered by it"

    bench.restart()
    with Running(bench) as running:
        running.until(lambda: not any(bench.now(each).meta.owners for each in held))
    assert set(held_dependents(bench.now(owner).meta)) == {each.meta.uid for each in held}
    with Running(bench, now=TOMORROW) as running:
        running.until_gone(owner, *held)


def test_more_held_dependents_than_an_owner_can_remember_are_let_go_and_told():
    """An annotation has an end. Whoever may make objects in the owner's namespace fills it up; what finds no room is
    kept for good, and the owner is not stuck with it.
    """
    bench = Bench()
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    held = [bench.make(SECRET, f"s{n:04}", owner, annotations=HELD) for n in range(HELD_DEPENDENTS_LIMIT + 20)]
    bench.ask(owner)
    bench.delete(owner)
    beyond = held[HELD_DEPENDENTS_LIMIT:]
    with Running(bench) as running:
        running.until(lambda: not bench.store.dependents(owner.meta.uid))
    assert len(held_dependents(bench.now(owner).meta)) == HELD_DEPENDENTS_LIMIT
    assert {tuple(bench.told(each)) for each in beyond} == {("Orphaned",)}
    with Running(bench, now=TOMORROW) as running:
        running.until_gone(owner)
    assert [bench.there(each) for each in held] == [False] * HELD_DEPENDENTS_LIMIT + [True] * len(beyond)


# Made-up kinds


def served(*kinds):
    return [known(kind) or guessed(kind, ()) for kind in kinds]


HONEST = served(
    GTO, DEPLOYMENT, SECRET, DATABASE, ObjectKind("v1", "PersistentVolumeClaim"), ObjectKind("v1", "Namespace")
)


def honest_and_lost(bench):
    """A GitTrackObject with what it carries, and a Deployment whose GitTrackObject vanished."""
    honest = bench.make(GTO, "deployment-web", finalizers=[PROTECT], spec=carrying(DEPLOYMENT, "web"))
    web = bench.make(DEPLOYMENT, "web", honest)
    vanished = bench.make(GTO, "deployment-mail", spec=carrying(DEPLOYMENT, "mail"))
    mail = bench.make(DEPLOYMENT, "mail", vanished)
    bench.delete(vanished)
    return honest, web, mail


def followers_of(bench, honest, web, mail):
    """The followers of the controller, by name, once it has served its honest owners; it has few other threads."""
    before = set(threading.enumerate())
    with Running(bench) as running:
        bench.ask(honest)
        running.until_gone(honest, web)
        running.until(lambda: bench.seen(mail) == "live, orphaned")
        running.until(lambda: all(PROTECT in each.meta.finalizers for each in bench.cluster.list(GTO).items))
        names = sorted(thread.name for thread in set(threading.enumerate()) - before)
    followers = [name for name in names if name.startswith(("watch-", "follow-"))]
    assert len(names) - len(followers) < 10
    return followers


def test_made_up_kinds_cost_no_thread_and_no_read():
    """Whoever may make GitTrackObjects makes 1,500 that carry kinds which nobody serves: the controller followed each
    of them with two threads (3,002), and asked for each again and again.
    """
    quiet = Bench(faros(), kinds=HONEST)
    usual = followers_of(quiet, *honest_and_lost(quiet))

    bench = Bench(faros(), kinds=HONEST)
    for number in range(1_500):
        kind = ObjectKind("mallory.example/v1", f"Madeup{number}")
        bench.make(GTO, f"madeup{number}-x", namespace="mallory", spec=carrying(kind, "x", namespace="mallory"))
    # And one whose name says Deployment, so that the honest ones' kind would be taken for its made-up one.
    kind = ObjectKind("mallory.example/v1", "Deployment")
    bench.make(GTO, "deployment-a", namespace="mallory", spec=carrying(kind, "a", namespace="mallory"))
    whole, get = [], bench.cluster.get

    def counting(ref, *, metadata_only=False):
        whole.extend([ref] if ref.type == GTO and not metadata_only else [])
        return get(ref, metadata_only=metadata_only)

    bench.cluster.get = counting
    with structlog.testing.capture_logs() as logs:
        assert followers_of(bench, *honest_and_lost(bench)) == usual
    assert {ref.namespace for ref in whole} == {"shop"}, "only what somebody asked for is read as a whole"
    told = [
        each for each in logs if each["event"] == "owners are named after kinds that are not served, or never followed"
    ]
    assert [each["count"] for each in told] == [1_500]


def test_many_real_kinds_are_followed_up_to_a_bound_the_oldest_first():
    """The same with kinds that are served: a cluster may have hundreds, and each would cost a thread and a list."""
    made = [ServedKind("crowd.example/v1", f"Aa{number}", f"aa{number}s") for number in range(300)]
    bench = Bench(faros(), kinds=[*HONEST, *made])
    owners = honest_and_lost(bench)
    bench.time = TOMORROW
    for kind in made:
        bench.make(GTO, f"{kind.kind.lower()}-x", namespace="mallory", finalizers=[PROTECT])
    with structlog.testing.capture_logs() as logs:
        names = followers_of(bench, *owners)
    assert len(names) == CARRIED_LIMIT + 1, "and the kind of the owners themselves"
    assert "watch-Deployment" in names
    assert [each["limit"] for each in logs if each["event"] == "owners carry more kinds than are followed"] == [100]


def test_what_a_cluster_writes_all_day_is_not_followed_for_an_owner_by_its_name():
    """One GitTrackObject by the name of an Event, made by Mallory, and the controller kept the metadata of every Event
    of the cluster in memory.
    """
    event, lease = ObjectKind("v1", "Event"), ObjectKind("coordination.k8s.io/v1", "Lease")
    bench = Bench(faros(), kinds=[*HONEST, *served(event, lease)])
    owners = honest_and_lost(bench)
    for kind in (event, lease):
        name, spec = f"{kind.kind.lower()}-x", carrying(kind, "x", namespace="mallory")
        bench.ask(bench.make(GTO, name, namespace="mallory", finalizers=[PROTECT], spec=spec))
    assert followers_of(bench, *owners) == ["watch-Deployment", "watch-GitTrackObject"]


def test_a_kind_that_may_not_be_listed_is_told_once_and_left_out():
    """The controller's account may list Deployments, and not Secrets. Mallory makes GitTrackObjects that carry Secrets:
    a follower was refused for ever, and the search for lost owners with it.
    """
    bench = Bench(faros(), kinds=HONEST)
    owners = honest_and_lost(bench)
    for number in range(10):
        spec = carrying(SECRET, f"s{number}", namespace="mallory")
        bench.make(GTO, f"secret-s{number}", namespace="mallory", finalizers=[PROTECT], spec=spec)
    asked, listed = [], bench.cluster.list

    def refusing(kind, **options):
        if kind == SECRET:
            asked.append(kind)
            raise DeniedError("secrets is forbidden")
        return listed(kind, **options)

    bench.cluster.list = refusing
    with structlog.testing.capture_logs() as logs:
        names = followers_of(bench, *owners)
    assert "watch-Secret" not in names
    assert "watch-Deployment" in names
    assert len(asked) <= 2, "once, and once in the search for left-over finalizers at the start"
    assert [each["kind"] for each in logs if each["event"] == "a kind that owners carry may not be listed"] == [
        "v1/Secret"
    ]
    assert not [each for each in logs if each["event"] == "reconcile failed"]


# Patch is not delete


POLICIES = f"""apiVersion: reprieve.dev/v1alpha1
kind: Configuration
protection:
- owner: {DATABASE}
  dependents: [{SECRET}, v1/PersistentVolumeClaim]
  onRequest: Delete
  otherwise: Orphan
- owner: {GTO}
  dialect: faros
  onRequest: Delete
  otherwise: Orphan
"""


@pytest.fixture
def printed(tmp_path, capsys):
    """The policies as the command prints them."""

    def policies(*words):
        (tmp_path / "reprieve.yaml").write_text(POLICIES, encoding="utf-8")
        assert run(["shield", *words, "-o", "json", "--config", str(tmp_path / "reprieve.yaml")]) == 0
        return json.loads(capsys.readouterr().out)["items"]

    return policies


def may_delete(user, *, verb, **_thing):
    """Mallory may patch everything, and delete nothing; everybody else may do both. Reprieve is let through by name."""
    assert verb == "delete"
    return user == PEOPLE


class Guarded(Bench):
    """A bench whose API server has a policy, and somebody who may only patch."""

    def __init__(self, *entries, policies=()):
        super().__init__(*entries)
        self.cluster = LocalCluster(self.store, collector=self.collector, user="system:serviceaccount:velero:reprieve")
        self.mallory = LocalCluster(self.store, collector=self.collector, user="mallory")
        if policies:
            self.store.admission.append(admission(policies, may=may_delete))
        self.restart()


def marks(_bench, owner, _held):
    return owner, {"annotations": {DELETION_REQUESTED: owner.meta.uid}}


def lifts_the_hold(_bench, _owner, held):
    return held, {"annotations": {HOLD: None}}


def gives_the_hold_an_end(_bench, _owner, held):
    return held, {"annotations": {HOLD_UNTIL: "2020-01-01T00:00:00Z"}}


def replaces_all_annotations(_bench, _owner, held):
    return held, {"annotations": None}


ATTACKS = pytest.mark.parametrize(
    "attack", [marks, lifts_the_hold, gives_the_hold_an_end, replaces_all_annotations], ids=lambda each: each.__name__
)


def attacked(bench, attack, *, kind=SECRET):
    """An owner with a held dependent; it is asked for, unless the attack is to ask for it; then Mallory writes."""
    if kind == DEPLOYMENT:
        owner = bench.make(GTO, "deployment-ledger", finalizers=[PROTECT], spec=carrying(DEPLOYMENT, "ledger"))
    else:
        owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    held = bench.make(kind, "ledger", owner, annotations={} if attack is marks else {HOLD: "audit"})
    if attack is not marks:
        bench.ask(owner)
        bench.delete(owner)  # so that the held one is orphaned: nothing but its hold keeps it
        bench.settle()
    thing, metadata = attack(bench, owner, held)
    bench.mallory.patch(thing.ref, {"metadata": metadata})
    return owner, held


@pytest.mark.parametrize("attack", [marks, lifts_the_hold, gives_the_hold_an_end], ids=lambda each: each.__name__)
def test_without_the_policy_whoever_may_patch_can_delete(attack):
    """What the policy is for: an annotation is all it takes, since the controller deletes for whoever wrote it."""
    bench = Guarded(databases())
    owner, held = attacked(bench, attack)
    with Running(bench) as running:
        running.until_gone(owner, held)


@ATTACKS
@pytest.mark.parametrize("kind", [SECRET, DEPLOYMENT], ids=["listed", "carried"])
def test_whoever_may_only_patch_deletes_nothing_by_an_annotation(attack, kind, printed):
    """Mallory may patch an owner and its dependents, and delete neither. He asks for the owner, or lifts the hold that
    keeps a dependent: the API server refuses, by the policy that the command prints, and all goes on for the others.
    """
    bench = Guarded(databases(), faros(), policies=printed("--markers"))
    with pytest.raises(LockedError, match="mallory may not delete this"):
        attacked(bench, attack, kind=kind)
    (owner,) = bench.cluster.list(GTO if kind == DEPLOYMENT else DATABASE).items
    (held,) = bench.cluster.list(kind).items
    bench.mallory.patch(held.ref, {"metadata": {"labels": {"team": "mallory"}}})
    bench.settle()
    assert bench.there(owner)
    assert bench.there(held)

    bench.ask(owner) if attack is marks else bench.let_go(held)
    with Running(bench) as running:
        running.until_gone(owner, held)


def test_the_controller_does_all_of_its_work_under_the_policy(printed):
    """The honest neighbour: finalizers, markers of owners' owners, records, orphans, releases; no write is refused."""
    fleet = ProtectionEntry(FLEET, "Delete", "Orphan", dependents=(DATABASE,))
    bench = Guarded(fleet, databases(), faros(), policies=printed("--markers", "--requests"))
    parent = bench.people.create({"apiVersion": FLEET.api_version, "kind": FLEET.kind, "metadata": {"name": "fleet"}})
    owner = bench.make(DATABASE, "orders", parent)
    secret, held = bench.make(SECRET, "password", owner), bench.make(SECRET, "ledger", owner, annotations=HELD)
    lost = bench.make(GTO, "deployment-web", spec=carrying(DEPLOYMENT, "web"))
    web = bench.make(DEPLOYMENT, "web", lost)
    with Running(bench) as running:
        running.until(lambda: PROTECT in bench.now(lost).meta.finalizers)
        bench.delete(lost)
        bench.ask(owner)
        bench.delete(owner)
        running.until_gone(secret, lost)
        running.until(lambda: "orphaned" in bench.seen(held))
    with Running(bench, now=TOMORROW) as running:
        bench.ask(parent)
        running.until_gone(parent, owner, held)
    assert bench.seen(web) == "live, orphaned"


@pytest.mark.parametrize(
    ("kind", "key"),
    [("Backup", HOLD), ("Backup", "reprieve.dev/hold-mirrored"), ("DeleteBackupRequest", "reprieve.dev/state")],
)
def test_backups_and_requests_are_guarded_as_well(kind, key, printed):
    """A hold on a backup keeps its snapshots; a request's state is what the controller goes on from."""
    bench = Guarded(databases(), policies=printed("--markers"))
    thing = ObjectKind("velero.io/v1", kind)
    made = bench.make(thing, "nightly", namespace="velero", annotations={key: "audit"})
    for value in (None, "forged"):
        if (key, value) != (HOLD, "forged"):  # another reason is no weaker hold
            with pytest.raises(LockedError, match="mallory may not delete this"):
                bench.mallory.patch(made.ref, {"metadata": {"annotations": {key: value}}})
    bench.mallory.patch(made.ref, {"metadata": {"annotations": {"example.com/seen": "yes"}}})
    bench.annotate(made, {key: None})


def test_a_deletion_request_is_filed_by_whoever_may_delete_the_backup(printed):
    """``create`` on deletion requests is a right to delete every backup, whatever is granted on backups; an operator
    who wants the two to agree prints this policy as well.
    """
    bench = Guarded(databases(), policies=printed("--markers", "--requests"))
    filed = {"apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "spec": {"backupName": "nightly"}}
    filed["metadata"] = {"name": "ask", "namespace": "velero"}
    with pytest.raises(LockedError, match="backup nightly: mallory may not delete it"):
        bench.mallory.create(filed)
    assert bench.people.create(filed).meta.name == "ask"
    retention = {**filed, "metadata": {"name": "expired", "namespace": "velero"}}
    assert bench.cluster.create(retention).meta.name == "expired"
