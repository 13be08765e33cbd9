"""Protection explored: the real reconciler over a local cluster with its garbage collector, state by state.

What is covered, exactly. A *world* is every object of the cluster without versions and timestamps, and whether secrets
can be read. Worlds are compared by value, and each is looked at once for each policy.

1. Starts, the full product. Owner: live, deleted with background, foreground or orphan propagation, or vanished
   (its finalizers taken off behind our back) x finalizers (ours, none, another party's, both) x marker (own UID,
   another's, none) x hold. Dependent: absent, owned, held, foreign, shared with a live owner, orphaned by us under a
   hold (as both say), saying so alone, with a copied record, terminating, saying Orphan, saying Delete, unreadable; and
   in another namespace: owned, held, terminating, orphaned by us as both say. Policy: both verbs, and for the
   dependents that say a verb also with ``allowDeleteByAnnotation``. All of that with the shield (its own CEL) and
   without.
2. From each of them, the process dies after each single effect and a new one begins, again and again, to the end.
3. One concurrent event (``EVENTS``) between any two calls of the process, reads included, so that what it read before
   is behind the world; then it ends its pass, or dies after any of its effects, and new ones go on to the end. From all
   starts without another party's finalizer, foreign markers and verb annotations (no event changes those), and from
   everything that 2. leads to from there; with the shield; policies Delete/Orphan and Orphan/Delete, which give each of
   asked and not asked both verbs. An event before a read that it does not change is left out: it is the same event
   later.

What holds in each of them, judged at every write by what was written, read and asked (``Judge``, written from the
invariants and not from the table), and by the world at rest (``check_rest``): invariants 1, 2, 3, 5, 6, 7 and 8.
A dependent may be deleted under an owner as it was read by the very call before: between those two calls there is no
transaction that could say more.
Not covered: two events, several dependents, dependents that are owners themselves, a dependent re-created three times.
"""

import itertools
import json
from functools import cache

import pytest
from attrs import evolve, field, frozen

from reprieve.adapters.local import AdmissionDenied, ClusterStore, Collector, LocalCluster, MemoryEvents
from reprieve.adapters.local.collector import USER as COLLECTOR
from reprieve.core.errors import ReprieveError, UnavailableError
from reprieve.core.holds import HOLD
from reprieve.core.objects import resource_from_json
from reprieve.core.protection import (
    HELD_DEPENDENTS,
    ON_REQUEST,
    OTHERWISE,
    PROTECT,
    Policy,
    Verb,
    effective_policy,
    is_asked,
    recorded_owner,
    refers_to,
)
from reprieve.core.steps import DELETION_REQUESTED, ORPHANED_FROM
from reprieve.entrypoints.controller.protection import ProtectionReconciler
from tests.unit.protected import DATABASE, NOW, PEOPLE, SECRET, THEIRS, US, databases, shield

BOUND = 8
"""Passes until nothing changes any more, whatever happened."""


# Worlds


@frozen
class World:
    """Every object as JSON, without what differs between runs, and whether secrets can be read."""

    objects: str
    readable: bool = True


@cache
def objects_of(world):
    common = {"resourceVersion": "1", "creationTimestamp": "2026-03-01T12:00:00Z"}
    return tuple({**each, "metadata": {**each["metadata"], **common}} for each in json.loads(world.objects))


def world_of(store, readable):
    text = json.dumps([without_versions(each) for each in store.snapshot()], sort_keys=True)
    if '"uid": "d2"' in text:  # made anew: from now on it is the dependent, and what names the old one is a copy
        text = text.replace('/d"', '/d-before"').replace('\\"d\\"', '\\"d-before\\"')
        text = text.replace('"d2"', '"d"').replace('/d2"', '/d"').replace('\\"d2\\"', '\\"d\\"')
    return World(text, readable)


VERSIONS = {"resourceVersion", "generation", "creationTimestamp", "deletionGracePeriodSeconds"}


def without_versions(document):
    return {**document, "metadata": {k: v for k, v in document["metadata"].items() if k not in VERSIONS}}


# The laboratory: one store, put into a world again and again


class Lab:
    """Puts a world up, runs a pass of a new process over it, and tells what came of it."""

    def __init__(self):
        self.store = ClusterStore(now=lambda: NOW, uid_source=lambda: self.next_uid)
        self.next_uid = ""
        self.shield = shield(DATABASE)
        self.judge = None
        self.store.admission.append(self.admit)

    def admit(self, request):
        if request.user == COLLECTOR:
            self.ask_the_shield(request)
        if self.judge is not None:
            self.judge.asked(request)

    def ask_the_shield(self, request):
        try:
            self.shield(request)
        except AdmissionDenied:
            self.denied = True
            if self.shielded:
                raise

    def enter(self, world, *, shielded):
        self.judge, self.denied, self.shielded, self.readable = None, False, shielded, world.readable
        self.store.listeners.clear()
        self.store.restore(objects_of(world))
        self.collector = Collector(self.store)
        self.people = LocalCluster(self.store, collector=self.collector, user=PEOPLE)

    def world(self):
        return world_of(self.store, self.readable)

    def one(self, kind):
        """The owner, or the dependent, as it stands; None when it is not there."""
        name = "orders" if kind == DATABASE else "password"
        found = [
            each for each in self.store.snapshot() if (each["kind"], each["metadata"]["name"]) == (kind.kind, name)
        ]
        return resource_from_json(found[0]) if found else None


class Process:
    """Our process' view of the cluster: it counts calls, lets one event happen before one of them, and is watched."""

    def __init__(self, lab, policy, *, before=-1, event=None, backwards=False):
        self.lab, self.before, self.event, self.backwards = lab, before, event, backwards
        self.cluster = LocalCluster(lab.store, collector=lab.collector, user=US)
        self.calls, self.worlds, self.happened = [], [], False
        lab.judge = self.judge = Judge(lab, policy)

    def __getattr__(self, name):
        return getattr(self.cluster, name)

    def _called(self, kind, *, write=False):
        if len(self.calls) == self.before:
            self.judge.paused = self.happened = True
            self.event(self.lab)
            self.judge.paused, self.judge.disturbed = False, True
        self.calls.append((kind, write))
        if kind == SECRET and not write and not self.lab.readable:
            raise UnavailableError("secrets are not answered for")

    def list(self, kind, **options):
        self._called(kind)
        found = self.cluster.list(kind, **options)
        return evolve(found, items=found.items[::-1]) if self.backwards else found

    def get(self, ref, **options):
        self._called(ref.type)
        found = self.cluster.get(ref, **options)
        if ref.type == DATABASE and ref.name == "orders":
            self.judge.owner, self.judge.read_at = found.meta, len(self.calls)
        return found

    def patch(self, ref, *args, **options):
        self._called(ref.type, write=True)
        try:
            return self.cluster.patch(ref, *args, **options)
        finally:
            self.worlds.append(self.lab.world())

    def delete(self, ref, **options):
        self._called(ref.type, write=True)
        assert ref.type == DATABASE or self.judge.read_at == len(self.calls) - 1, "something came after the last look"
        outcome = self.cluster.delete(ref, **options)
        self.worlds.append(self.lab.world())
        return outcome


class Judge:
    """Judges each write that reaches the API server, by the invariants."""

    def __init__(self, lab, policy):
        self.lab, self.policy = lab, policy
        self.owner, self.read_at = None, 0  # as our process last read it by its name, and when
        self.paused = self.disturbed = False

    def asked(self, request):
        if request.user == PEOPLE or self.paused:
            return
        thing = (request.operation, request.kind.type)
        old, new = (resource_from_json(each).meta if each else None for each in (request.old, request.object))
        if request.user == COLLECTOR:
            if thing == ("DELETE", SECRET):
                self.collected(old)
            return
        assert request.name != "other" or request.operation == "UPDATE"
        {
            ("DELETE", SECRET): self.dependent_deleted,
            ("DELETE", DATABASE): self.owner_deleted,
            ("UPDATE", SECRET): self.dependent_written,
            ("UPDATE", DATABASE): self.owner_written,
        }[thing](old, new)

    def collected(self, dependent):
        """Only without the shield, and only what a finalizer cannot hold: foreground, or an owner that is absent."""
        assert not self.lab.shielded, f"the collector took {dependent}"
        owner = self.lab.one(DATABASE)
        absent = owner is None or not refers_to(dependent, owner.meta.uid)
        absent = absent or owner.meta.namespace != dependent.namespace
        assert absent or "foregroundDeletion" in owner.meta.finalizers

    def dependent_deleted(self, dependent, _new):
        """Invariants 1, 2 and 6: the dependent as it is now, the owner as it was read right before."""
        owner, readable = self.owner, self.lab.readable or self.disturbed
        assert owner is not None, "deleted though the owner was not read"
        assert readable, "deleted though it could not be read"
        verbs = effective_policy(self.policy, {}, owner.annotations, dependent.annotations)
        wanted = verbs.on_request if is_asked(owner) else verbs.otherwise
        assert owner.terminating
        assert wanted is Verb.DELETE, f"deleted without a request: {dependent}"
        assert HOLD not in {*owner.annotations, *dependent.annotations}, f"deleted though held: {dependent}"
        agreed = recorded_owner(dependent) == owner.uid and dependent.uid in named_on(owner)
        assert refers_to(dependent, owner.uid) or agreed, "deleted though foreign"
        assert dependent.namespace == owner.namespace, "deleted in another namespace"
        assert all(self.lab.store.by_uid(each.uid) is None for each in dependent.owners if each.uid != owner.uid)
        assert "orphan" not in owner.finalizers

    def owner_deleted(self, owner, _new):
        assert is_asked(owner), f"an owner was deleted without a request: {owner}"
        assert HOLD not in owner.annotations
        assert PROTECT in owner.finalizers

    def dependent_written(self, old, new):
        """Only references of an owner that terminates or is gone are taken off; nothing of anybody else changes."""
        taken = {each.uid for each in old.owners} - {each.uid for each in new.owners}
        assert set(new.owners) <= set(old.owners), "a reference was written"
        assert new.finalizers == old.finalizers, "a finalizer on a dependent"
        for uid in taken:
            found = self.lab.store.by_uid(uid)
            assert found is None or resource_from_json(found).meta.terminating, "the reference to a live owner is off"
        changed = {k for k in {*old.annotations, *new.annotations} if old.annotations.get(k) != new.annotations.get(k)}
        assert changed <= {ORPHANED_FROM}
        assert taken or recorded_owner(old), "a foreign dependent was written to"

    def owner_written(self, old, new):
        dependent = self.lab.one(SECRET)
        assert old.owners == new.owners
        if old.annotations != new.annotations:
            self.owner_annotated(old, new, dependent)
            return
        assert set(old.finalizers) ^ set(new.finalizers) == {PROTECT}, "only our finalizer comes and goes"
        if PROTECT not in new.finalizers and not self.disturbed and dependent is not None:
            assert old.terminating
            assert self.lab.readable, "released though its dependent is unknown"
            elsewhere = dependent.meta.namespace != old.namespace
            free = elsewhere or not refers_to(dependent.meta, old.uid)
            assert dependent.meta.terminating or free, "released too early"

    def owner_annotated(self, old, new, dependent):
        """An owner remembers whom it orphans under a hold: what is its own, and as long as that refers to it."""
        changed = {k for k in {*old.annotations, *new.annotations} if old.annotations.get(k) != new.annotations.get(k)}
        assert (changed, old.finalizers) == ({HELD_DEPENDENTS}, new.finalizers)
        assert old.terminating
        assert is_asked(old)
        assert named_on(new)[: len(named_on(old))] == named_on(old)
        if not self.disturbed:
            assert named_on(new)[len(named_on(old)) :] == [dependent.meta.uid]
            assert refers_to(dependent.meta, old.uid), "recorded though foreign"
            assert dependent.meta.namespace == old.namespace, "recorded in another namespace"


def named_on(owner):
    """Whom an owner records as orphaned under a hold; nobody where the record is a copy."""
    record = json.loads(owner.annotations.get(HELD_DEPENDENTS, '{"owner": "", "dependents": []}'))
    return record["dependents"] if record["owner"] == owner.uid else []


# What somebody may do at any moment; an event that changes nothing is no event


def on(kind, change):
    """Patch the owner or the dependent, if it is there."""

    def event(lab):
        found = lab.one(kind)
        patch = change(found, lab) if found is not None else None
        if patch is not None:
            lab.people.patch(found.ref, patch)

    return event


def note(key, value):
    return lambda _found, _lab: {"metadata": {"annotations": {key: value}}}


def reference(name, uid):
    flags = {"controller": name == "orders", "blockOwnerDeletion": True}
    return {"apiVersion": "example.com/v1", "kind": "Database", "name": name, "uid": uid, **flags}


def referring(name, uid):
    """Add a reference, beside those that are there."""

    def change(found, lab):
        if refers_to(found.meta, uid) or found.meta.terminating:
            return None
        if uid == "p" and lab.store.by_uid("p") is None:
            make(lab, DATABASE, "other", "p", finalizers=[PROTECT])
        kept = lab.store.by_uid(found.meta.uid)["metadata"].get("ownerReferences", [])
        return {"metadata": {"ownerReferences": [*kept, reference(name, uid)]}}

    return change


def deleted(kind, propagation):
    def event(lab):
        found = lab.one(kind)
        if found is not None:
            meta = found.meta
            lab.store.delete(kind, meta.namespace, meta.name, propagation=propagation, user=PEOPLE)
            lab.collector.step()

    return event


def vanished(kind):
    """Gone at once, whatever finalizers there were: etcd lost it, or somebody forced it."""

    def event(lab):
        found = lab.one(kind)
        if found is not None:
            place = (kind, found.meta.namespace, found.meta.name)
            with lab.store.transaction():
                lab.store.patch(*place, {"metadata": {"finalizers": None}}, user=PEOPLE)
                if lab.one(kind) is not None:
                    lab.store.delete(*place, user=PEOPLE)
            lab.collector.step()

    return event


def owner_anew(lab):
    found = lab.one(DATABASE)
    if found is None or found.meta.uid == "o":
        vanished(DATABASE)(lab)
        make(lab, DATABASE, "orders", "o2")


def dependent_anew(lab):
    found = lab.one(SECRET)
    if found is None or found.meta.uid == "d":
        vanished(SECRET)(lab)
        make(lab, SECRET, "password", "d2" if found else "d", ownerReferences=[reference("orders", "o")])


def both_made(lab):
    """An owner comes with its dependent, after we looked for the one and before we look for the other."""
    if lab.one(DATABASE) is None and lab.one(SECRET) is None:
        make(lab, DATABASE, "orders", "o")
        make(lab, SECRET, "password", "d", ownerReferences=[reference("orders", "o")])


def answering(readable):
    def event(lab):
        lab.readable = readable

    return event


def make(lab, kind, name, uid, **metadata):
    lab.next_uid = uid
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    lab.people.create({**head, "metadata": {"name": name, "namespace": "shop", **metadata}})


OWNER, DEPENDENT, BOTH = {DATABASE}, {SECRET}, {DATABASE, SECRET}
EVENTS = {  # what happens, and the kinds whose reads it may change
    "owner asked for": (on(DATABASE, note(DELETION_REQUESTED, "o")), OWNER),
    "owner not asked for any more": (on(DATABASE, note(DELETION_REQUESTED, None)), OWNER),
    "owner held": (on(DATABASE, note(HOLD, "audit")), OWNER),
    "owner's hold lifted": (on(DATABASE, note(HOLD, None)), OWNER),
    "owner deleted in the background": (deleted(DATABASE, "Background"), BOTH),
    "owner deleted in the foreground": (deleted(DATABASE, "Foreground"), BOTH),
    "owner deleted, dependents orphaned": (deleted(DATABASE, "Orphan"), BOTH),
    "owner vanished": (vanished(DATABASE), BOTH),
    "owner made anew": (owner_anew, BOTH),
    "owner and dependent made": (both_made, BOTH),
    "dependent edited": (on(SECRET, note("example.com/edited", "yes")), DEPENDENT),
    "dependent says that it was orphaned": (on(SECRET, note(ORPHANED_FROM, "o/d")), DEPENDENT),
    "dependent held": (on(SECRET, note(HOLD, "audit")), DEPENDENT),
    "dependent's hold lifted": (on(SECRET, note(HOLD, None)), DEPENDENT),
    "dependent deleted by hand": (deleted(SECRET, "Background"), DEPENDENT),
    "dependent made anew": (dependent_anew, DEPENDENT),
    "reference added again": (on(SECRET, referring("orders", "o")), DEPENDENT),
    "second owner added": (on(SECRET, referring("other", "p")), BOTH),
    "secrets not readable": (answering(readable=False), DEPENDENT),
    "secrets readable again": (answering(readable=True), DEPENDENT),
}


# Starts


OURS, OTHER = reference("orders", "o"), reference("other", "p")
ELSEWHERE = {"namespace": "attic"}
GOING = {"ownerReferences": [OURS], "finalizers": [THEIRS], "deletionTimestamp": "2026-03-01T12:00:00Z"}
NAMED = {HELD_DEPENDENTS: '{"owner":"o","dependents":["d"]}'}
DEPENDENTS = {
    "absent": None,
    "owned": {"ownerReferences": [OURS]},
    "held": {"ownerReferences": [OURS], "annotations": {HOLD: "audit"}},
    "foreign": {"ownerReferences": [OTHER]},
    "shared": {"ownerReferences": [OURS, {**OTHER, "controller": False}]},
    "orphaned under a hold": {"annotations": {ORPHANED_FROM: "o/d"}},
    "says that it was orphaned": {"annotations": {ORPHANED_FROM: "o/d"}},
    "copied record": {"annotations": {ORPHANED_FROM: "o/d-before"}},
    "terminating": GOING,
    "says Orphan": {"ownerReferences": [OURS], "annotations": {ON_REQUEST: "Orphan", OTHERWISE: "Orphan"}},
    "says Delete": {"ownerReferences": [OURS], "annotations": {ON_REQUEST: "Delete", OTHERWISE: "Delete"}},
    "unreadable": {"ownerReferences": [OURS]},
    "elsewhere": {**ELSEWHERE, "ownerReferences": [OURS]},
    "elsewhere, held": {**ELSEWHERE, "ownerReferences": [OURS], "annotations": {HOLD: "audit"}},
    "elsewhere, terminating": {**ELSEWHERE, **GOING},
    "elsewhere, orphaned under a hold": {**ELSEWHERE, "annotations": {ORPHANED_FROM: "o/d"}},
}
LIFE = {
    "live": lambda _lab: None,
    **{each: deleted(DATABASE, each) for each in ("Background", "Foreground", "Orphan")},
    "vanished": vanished(DATABASE),
}
MARKERS = {"own": {DELETION_REQUESTED: "o"}, "foreign": {DELETION_REQUESTED: "o9"}, "none": {}}
FINALIZERS = {"ours": [PROTECT], "none": [], "theirs": [THEIRS], "both": [THEIRS, PROTECT]}


@frozen
class Start:
    """A start by its names in the tables above."""

    life: str
    finalizers: str
    marker: str
    held: bool
    dependent: str

    @property
    def disturbed(self):
        """Whether events happen from here: nothing of what they cannot change is in it."""
        reached = {"says that it was orphaned", "elsewhere, held", "elsewhere, terminating"}  # by an event
        plain = self.dependent not in {"copied record", "says Orphan", "says Delete", *reached}
        return plain and self.finalizers in {"ours", "none"} and self.marker != "foreign"


def every_start():
    return [Start(*each) for each in itertools.product(LIFE, FINALIZERS, MARKERS, [False, True], DEPENDENTS)]


def begin(lab, start, *, shielded):
    """Put a start up: the objects, then what becomes of the owner, collector included."""
    annotations = MARKERS[start.marker] | ({HOLD: "audit"} if start.held else {})
    annotations |= NAMED if "orphaned under a hold" in start.dependent else {}
    owner = {"annotations": annotations, "finalizers": FINALIZERS[start.finalizers]}
    things = [("Database", "orders", "o", owner)]
    dependent = DEPENDENTS[start.dependent]
    things += [("Secret", "password", "d", dependent)] if dependent is not None else []
    things += [("Database", "other", "p", {"finalizers": [PROTECT]})] if OTHER["uid"] in str(dependent) else []
    objects = [
        {
            "apiVersion": "v1" if kind == "Secret" else "example.com/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "shop", "uid": uid, **{k: v for k, v in parts.items() if v}},
        }
        for kind, name, uid, parts in things
    ]
    lab.enter(World(json.dumps(objects), start.dependent != "unreadable"), shielded=shielded)
    LIFE[start.life](lab)
    return lab.world()


# The search


@frozen
class Passed:
    """What one pass of one process came to: the world after each write, the last one, and what it called."""

    worlds: tuple[World, ...]
    end: World
    calls: tuple[tuple[object, bool], ...] = field(repr=False)
    denied: bool = False
    happened: bool = True


class Search:
    """All worlds that were reached, each looked at once for each policy."""

    def __init__(self):
        self.lab = Lab()
        self.passes = 0
        self.known = {}
        self.ends = {}

    def run(self, world, policy, *, shielded, **circumstances):
        """One pass of a new process, under the circumstances of a ``Process``."""
        self.passes += 1
        self.lab.enter(world, shielded=shielded)
        process = Process(self.lab, policy, **circumstances)
        entry = databases(policy.on_request.value, policy.otherwise.value, allow=policy.allow_delete_by_annotation)
        reconciler = ProtectionReconciler(process, [entry], events=MemoryEvents(), clock=lambda: 0.0)
        keys = reconciler.keys()
        for key in keys:
            try:
                reconciler.reconcile(key, now=NOW)
            except ReprieveError:
                continue  # it comes back: so does the next pass
        worlds = tuple(process.worlds)
        return Passed(worlds, self.lab.world(), tuple(process.calls), self.lab.denied, process.happened)

    def passed(self, world, policy, *, shielded):
        """One pass without an event, run once. Where nothing was denied, the shield makes no difference."""
        key = (world, policy, shielded)
        if key not in self.known:
            found = self.known[key] = self.run(world, policy, shielded=shielded)
            if shielded and not found.denied:
                self.known[world, policy, False] = found
        return self.known[key]

    def end(self, world, policy, *, shielded):
        """The world at rest, reached by whole passes; it is the same, whichever effect the process dies after."""
        key = (world, policy, shielded)
        if key in self.ends:
            return self.ends[key]
        way = [world]
        while len(way) <= BOUND:
            passed = self.passed(way[-1], policy, shielded=shielded)
            if passed.end == way[-1]:
                break
            way.append(passed.end)
        else:
            raise AssertionError(f"it does not settle: {way}")
        check_rest(self.lab, way[-1], policy, shielded=shielded)
        assert not self.passed(way[-1], policy, shielded=shielded).worlds, "a settled world is written to"
        self.ends.update({(each, policy, shielded): way[-1] for each in way})
        for each in way:
            for crashed in self.passed(each, policy, shielded=shielded).worlds:
                ended = self.end(crashed, policy, shielded=shielded)
                assert ended == way[-1], f"a crash makes a difference: {crashed} ends as {ended}, not {way[-1]}"
        return way[-1]

    def reached(self, world, policy):
        """All worlds on the way of processes that die after each effect, this one included."""
        found, todo = set(), [world]
        while todo:
            each = todo.pop()
            if each not in found:
                found.add(each)
                passed = self.passed(each, policy, shielded=True)
                todo += [*passed.worlds, passed.end]
        return found

    def disturb(self, world, policy):
        """Let each event happen before each call that it makes a difference to; everything settles."""
        calls = self.passed(world, policy, shielded=True).calls
        for event, touched in EVENTS.values():
            if not self.changes(world, event):
                continue
            for number, (kind, write) in enumerate(calls):
                if write or kind in touched:
                    passed = self.run(world, policy, shielded=True, before=number, event=event)
                    for each in {*passed.worlds, passed.end}:
                        self.end(each, policy, shielded=True)

    def changes(self, world, event):
        self.lab.enter(world, shielded=True)
        event(self.lab)
        return self.lab.world() != world


def check_rest(lab, world, policy, *, shielded):
    """Invariant 5: nothing of ours is left where nothing is to be done, or it is left for a reason."""
    lab.enter(world, shielded=shielded)
    owner, dependent = lab.one(DATABASE), lab.one(SECRET)
    meta = dependent.meta if dependent is not None and world.readable else None
    going = dependent is not None and dependent.meta.terminating
    near = dependent is not None and (owner is None or dependent.meta.namespace == owner.meta.namespace)
    held = any(HOLD in each.meta.annotations for each in ([owner] * (owner is not None)) + [dependent] * near)
    gone = owner is None or (owner.meta.terminating and PROTECT not in owner.meta.finalizers)
    if meta is not None and not going:
        referred = [each.uid for each in meta.owners if lab.store.by_uid(each.uid) is None]
        assert not referred, f"a reference to an owner that is gone stays: {meta}"
        released = gone and owner and near
        assert not (released and refers_to(meta, owner.meta.uid)), "an owner that we released is referred to"
    if owner is not None and PROTECT in owner.meta.finalizers and owner.meta.terminating:
        assert not world.readable or (going and near) or held, f"an owner waits for nothing: {owner.meta}"
    if owner is not None and not owner.meta.terminating:
        assert PROTECT in owner.meta.finalizers
        assert not is_asked(owner.meta) or not world.readable or held, f"an asked owner waits for nothing: {owner.meta}"


POLICIES = [Policy(*verbs) for verbs in itertools.product(Verb, Verb)]
ALLOWING = [Policy(*verbs, allow_delete_by_annotation=True) for verbs in itertools.product(Verb, Verb)]
DISTURBED = [Policy(Verb.DELETE, Verb.ORPHAN), Policy(Verb.ORPHAN, Verb.DELETE)]


@pytest.fixture(scope="module")
def search():
    return Search()


@pytest.mark.parametrize("shielded", [True, False], ids=["with-the-shield", "without-the-shield"])
def test_every_start_comes_to_its_end_whichever_effect_the_process_dies_after(search, shielded, tell):
    starts = every_start()
    for start in starts:
        world = begin(search.lab, start, shielded=shielded)
        for policy in POLICIES + (ALLOWING if start.dependent.startswith("says") else []):
            search.end(world, policy, shielded=shielded)

    tell(f"{len(starts)} starts: {counted(search)}")
    assert len(search.ends) > len(starts)


def test_one_event_between_any_two_calls_changes_nothing_of_that(search, tell):
    worlds = {
        (world, policy)
        for start in every_start()
        if start.disturbed
        for policy in DISTURBED
        for world in search.reached(begin(search.lab, start, shielded=True), policy)
    }
    for world, policy in sorted(worlds, key=str):
        search.disturb(world, policy)
        backwards = search.run(world, policy, shielded=True, backwards=True)
        assert backwards == search.passed(world, policy, shielded=True), "the order of a list makes a difference"

    tell(f"{len(worlds)} worlds disturbed by {len(EVENTS)} events: {counted(search)}")
    assert len(search.ends) > len(worlds)


def counted(search):
    worlds = {world for world, _, _ in search.ends}
    return f"{search.passes} runs of a process, {len(search.ends)} states, {len(worlds)} worlds"
