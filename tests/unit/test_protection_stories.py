"""What users of Faros lost, and why, told again: each story ends with its workload running.

A GitTrack (the owner's owner) tracks GitTrackObjects, each of which owns the Deployment that it carries. Faros itself
is played by ``Tracker``, as its users met it. Reported at github.com/pusher/faros.
"""

import pytest
from structlog.testing import capture_logs

from reprieve.core.ports import Propagation
from reprieve.core.protection import PROTECT, owner_of, refers_to
from reprieve.core.pruning import (
    CompleteSet,
    EmptyDesiredSet,
    NotObserved,
    NotTheTime,
    Percentage,
    PruneLimits,
    TooManyPruned,
    UnavailableSet,
    faros_key,
    prune,
)
from reprieve.core.steps import DELETION_REQUESTED, merge_patch
from reprieve.entrypoints.controller.decisions import Standing
from reprieve.entrypoints.controller.leftovers import warn_about_shield
from tests.unit.protected import (
    DATABASE,
    DEPLOYMENT,
    GTO,
    NOW,
    PROPAGATIONS,
    SECRET,
    THEIRS,
    TRACK,
    Bench,
    Unreadable,
    beside,
    carrying,
    faros,
    refer,
)

BACKGROUND, FOREGROUND, ORPHAN = PROPAGATIONS
EACH = pytest.mark.parametrize("propagation", PROPAGATIONS, ids=lambda each: each.value.lower())
NAMES = ("web", "cart", "mail")


class Tracked(Bench):
    """A GitTrack whose three manifests are applied, and protected."""

    def __init__(self, *entries, **options):
        super().__init__(*(entries or (faros(),)), **options)
        self.track = self.make(TRACK, "main")
        self.objects = {
            name: self.make(GTO, f"deployment-{name}", self.track, spec=carrying(DEPLOYMENT, name)) for name in NAMES
        }
        self.deployments = {name: self.make(DEPLOYMENT, name, owner) for name, owner in self.objects.items()}
        self.settle()

    def running(self):
        """The names of the deployments that nobody deletes."""
        return [name for name, each in self.deployments.items() if self.seen(each).startswith("live")]

    def left(self):
        """The names of the GitTrackObjects that are still there."""
        return [name for name, each in self.objects.items() if self.there(each)]

    def prune(self, *names, desired=None, limits=None):
        """Judge the desired set, and mark what left it, as ``reprieve prune`` does."""
        observed = desired or CompleteSet([faros_key("Deployment", name, "shop") for name in names])
        owners = self.cluster.list(GTO).items
        limits = limits or PruneLimits(Percentage(50))
        decision = prune(owner_of(self.now(self.track)), owners, observed, limits, now=NOW)
        for verdict in decision.verdicts:
            for step in verdict.steps:
                self.cluster.patch(step.ref, merge_patch(step), resource_version=step.resource_version)
        return decision


class Tracker:
    """Faros: whatever it sees of what it tracks gets its owner reference again, also while that is being deleted."""

    def __init__(self, bench):
        self.bench, self.writes = bench, 0
        bench.store.listeners.append(self.seen)

    def seen(self, change):
        if change.new is None or change.type not in {GTO, DEPLOYMENT} or self.writes > 30:
            return
        owner = self.owner_of(change)
        metadata = change.new["metadata"]
        listed = metadata.get("ownerReferences", [])
        if owner is not None and "deletionTimestamp" not in metadata and refer(owner) not in listed:
            self.writes += 1
            patch = {"metadata": {"ownerReferences": [*listed, refer(owner)]}}
            self.bench.store.patch(change.type, change.namespace, change.name, patch, user="faros")

    def owner_of(self, change):
        bench = self.bench
        owner = bench.track if change.type == GTO else bench.objects[change.name]
        return owner if bench.there(owner) else None


# The owner's owner is lost


@EACH
def test_a_git_track_deleted_by_accident_leaves_everything_running(propagation):
    """pusher/faros#98: deleting the GitTrack by accident deletes everything that it ever applied."""
    bench = Tracked()
    bench.delete(bench.track, propagation)
    bench.settle()
    assert bench.running() == list(NAMES)
    assert not bench.there(bench.track)
    assert bench.left() == (list(NAMES) if propagation is ORPHAN else [])
    assert all(not refers_to(bench.now(each).meta, "") for each in bench.deployments.values())


def test_cascade_false_beside_a_running_tracker_leaves_everything_running():
    """pusher/faros#99: ``--cascade=false`` on a GitTrack deleted all of it while Faros was running.

    The collector takes the GitTrack's reference off, Faros sees that and puts it back on, though the GitTrack is being
    deleted; once it is gone the references dangle, and the collector takes the GitTrackObjects, and with them all else.
    """
    bench = Tracked()
    tracker = Tracker(bench)
    bench.delete(bench.track, ORPHAN)
    bench.settle()
    assert tracker.writes >= len(NAMES), "Faros has added its references again"
    assert not bench.there(bench.track)
    assert bench.running() == list(NAMES)


def test_without_us_cascade_false_beside_a_running_tracker_loses_everything():
    """pusher/faros#99: the same, as it was reported; so that the story above is one."""
    bench = Tracked(shielded=False)
    for owner in bench.objects.values():
        bench.take_finalizers(owner)
    Tracker(bench)
    bench.delete(bench.track, ORPHAN)
    bench.collector.step()
    assert bench.running() == []


@pytest.mark.parametrize("propagation", [BACKGROUND, FOREGROUND, ORPHAN], ids=lambda each: each.value.lower())
def test_nothing_is_adopted_or_marked_under_a_terminating_owner(propagation):
    """pusher/faros#99: what is being deleted must not get a hold of anything again, nor decide what else goes."""
    bench = Tracked()
    bench.people.patch(bench.track.ref, {"metadata": {"finalizers": [THEIRS]}})
    before = {name: bench.now(each).meta.owners for name, each in bench.objects.items()}
    bench.delete(bench.track, propagation)
    decision = bench.prune("web")  # cart and mail left the desired set, if anybody looked now
    assert isinstance(decision.stop, NotTheTime)
    bench.settle()
    assert bench.running() == list(NAMES)
    for name in bench.left():
        meta = bench.now(bench.objects[name]).meta
        assert DELETION_REQUESTED not in meta.annotations
        assert set(meta.owners) <= set(before[name])


# The desired set is wrong


def test_a_tracker_that_deletes_what_left_its_path_deletes_no_workload():
    """pusher/faros#100: a changed ref or subPath that holds any YAML deletes everything that is not in it."""
    bench = Tracked()
    for owner in bench.objects.values():
        bench.delete(owner)  # as Faros does: a plain delete, without a word why
    bench.settle()
    assert bench.left() == []
    assert bench.running() == list(NAMES)


def test_a_wrong_path_trips_the_brake_and_marks_nothing():
    """pusher/faros#100: with the wrong subPath two of three manifests are missing."""
    bench = Tracked()
    decision = bench.prune("web")
    assert isinstance(decision.stop, TooManyPruned)
    assert "would mark 2 of 3 owners (66 %)" in decision.stop.message
    bench.settle()
    assert (bench.left(), bench.running()) == (list(NAMES), list(NAMES))


def test_loss_of_the_owner_and_leaving_the_desired_set_are_two_things():
    """pusher/faros#101: one switch for both cannot be right. What left goes; a lost GitTrack takes nothing."""
    bench = Tracked()
    decision = bench.prune("web", "cart")
    assert [verdict.ref.name for verdict in decision.verdicts if verdict.steps] == ["deployment-mail"]
    bench.settle()
    assert (bench.left(), bench.running()) == (["web", "cart"], ["web", "cart"])

    bench.delete(bench.track)
    bench.settle()
    assert (bench.left(), bench.running()) == ([], ["web", "cart"])


def test_a_manifest_that_is_back_in_time_takes_its_mark_off():
    """pusher/faros#101: a mark that is never cleared deletes, weeks later, what has long been wanted again."""
    bench = Tracked()
    bench.hold(bench.deployments["mail"])
    bench.prune("web", "cart")
    bench.settle()
    assert bench.running() == list(NAMES), "the hold has it wait"

    bench.prune(*NAMES)
    bench.let_go(bench.deployments["mail"])
    bench.settle()
    assert (bench.left(), bench.running()) == (list(NAMES), list(NAMES))
    assert all(DELETION_REQUESTED not in bench.now(each).meta.annotations for each in bench.objects.values())


@pytest.mark.parametrize(
    ("desired", "stop"),
    [
        pytest.param(CompleteSet([]), EmptyDesiredSet, id="emptied"),
        pytest.param(UnavailableSet("no files for subpath 'apps'"), NotObserved, id="not-read"),
    ],
)
def test_an_emptied_path_deletes_nothing_and_says_why(desired, stop):
    """pusher/faros#102: an emptied subPath is an error, an empty file in it deletes everything. Neither may."""
    bench = Tracked()
    decision = bench.prune(desired=desired)
    assert isinstance(decision.stop, stop)
    assert "nothing is marked" in decision.stop.message
    bench.settle()
    assert (bench.left(), bench.running()) == (list(NAMES), list(NAMES))


# The control plane forgets


def test_an_owner_that_etcd_lost_leaves_its_workload_running():
    """pusher/faros#143: the etcd leader went, the collector's graph was built anew, and all dependents were deleted."""
    bench = Tracked()
    bench.delete(bench.track)
    for owner in bench.objects.values():
        bench.delete(owner)
        bench.take_finalizers(owner) if bench.there(owner) else None
    assert bench.left() == []
    bench.settle()
    assert bench.running() == list(NAMES)
    assert all(not bench.now(each).meta.owners for each in bench.deployments.values())


def test_a_reference_across_namespaces_is_no_reason_to_delete():
    """pusher/faros#143: one GitTrack in faros-system, dependents in many namespaces: the collector finds no owner."""
    bench = Bench()
    owner = bench.make(DATABASE, "orders", namespace="faros-system")
    secret = bench.make(SECRET, "password", owner)
    bench.settle()
    assert bench.seen(secret) == "live, owned by orders", "the collector takes its owner for absent, and is denied"

    bench.delete(owner)
    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == ("gone", "live, orphaned")


# The finalizer's own story


@EACH
def test_no_finalizer_is_ever_put_on_a_child(propagation):
    """pusher/faros#144: a finalizer on the children left them terminating, with nobody to take it off."""
    bench = Tracked()
    assert all(not bench.now(each).meta.finalizers for each in bench.deployments.values())
    bench.delete(bench.deployments["web"])
    assert not bench.there(bench.deployments["web"]), "deleted by name, it goes at once"

    bench.delete(bench.track, propagation)
    bench.settle()
    assert all(not bench.now(bench.deployments[name]).meta.finalizers for name in ("cart", "mail"))


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "not-marked"])
def test_the_loop_that_nobody_ended_ends(marked):
    """pusher/faros#144: a marked object whose child was gone already was sent to create it, and waited on for ever.

    Every owner that terminates goes once its dependent is settled, and an absent one is; nothing is created.
    """
    bench = Tracked()
    for name in NAMES:
        if marked:
            bench.ask(bench.objects[name])
        bench.delete(bench.deployments[name])
        bench.delete(bench.objects[name])
    report = bench.settle()
    assert report.standing is Standing.SETTLED
    assert bench.left() == []
    assert bench.cluster.list(DEPLOYMENT).items == ()


def test_a_whole_track_leaves_nothing_of_ours_behind():
    """pusher/faros#144: when the whole GitTrack went, nobody took the finalizers off. Ours end with their owners."""
    bench = Tracked()
    bench.delete(bench.track, FOREGROUND)
    bench.settle()
    found = [each for kind in (TRACK, GTO, DEPLOYMENT) for each in bench.cluster.list(kind).items]
    assert [each.ref.key for each in found if PROTECT in each.meta.finalizers or each.meta.terminating] == []


# A tracker that keeps adding its reference


@EACH
def test_with_the_shield_a_tracker_that_adds_its_reference_again_and_again_loses_nothing(propagation):
    """pusher/faros#99: Faros repairs the child of an object that is being deleted; the shield stands against it."""
    bench = Tracked()
    tracker = Tracker(bench)
    for owner in bench.objects.values():
        bench.delete(owner, propagation)
    bench.settle()
    assert tracker.writes >= len(NAMES)
    assert bench.left() == []
    assert bench.running() == list(NAMES)
    assert all(not bench.now(each).meta.owners for each in bench.deployments.values())


def test_without_the_shield_that_tracker_loses_them():
    """pusher/faros#99: honestly. It adds its reference between our taking it off and the owner's end."""
    bench = Tracked(shielded=False)
    Tracker(bench)
    for owner in bench.objects.values():
        bench.delete(owner)
    bench.settle()
    assert bench.running() == []


@pytest.mark.parametrize("applied", [True, False], ids=["shield-there", "shield-missing"])
def test_a_start_beside_a_tracker_without_the_shield_warns(applied):
    """pusher/faros#99: whoever runs beside Faros is told, before anything is lost."""
    bench = Bench(faros())
    if applied:
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
            head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}
            bench.people.create({**head, "metadata": {"name": "reprieve-shield"}})
    with capture_logs() as logs:
        warn_about_shield(bench.cluster, bench.entries)
    warned = [line for line in logs if line["log_level"] == "warning"]
    assert bool(warned) is not applied
    assert all(line["way_out"] == "reprieve shield | kubectl apply -f -" for line in warned)


# What belongs to others


@EACH
@pytest.mark.parametrize("marker", ["", "own"], ids=["not-asked", "asked"])
def test_a_dependent_with_several_owners_keeps_the_references_of_the_others(propagation, marker):
    """pusher/faros#143, its rule turned around: one owner's end says nothing about what others own."""
    bench = Bench()
    owner, other = (bench.make(DATABASE, name, finalizers=[PROTECT]) for name in ("orders", "other"))
    secret = bench.make(SECRET, "password", owner, beside(other))
    if marker:
        bench.ask(owner)
    bench.delete(owner, propagation)
    bench.settle()
    assert not bench.there(owner)
    assert [each.uid for each in bench.now(secret).meta.owners] == [other.meta.uid]
    assert bench.now(secret).meta.annotations == {}


@EACH
@pytest.mark.parametrize("marker", ["", "own"], ids=["not-asked", "asked"])
def test_a_foreign_controllers_dependent_is_never_touched(propagation, marker):
    """pusher/faros#98, its other side: Faros deletes and takes over what another controller made under that name."""
    bench = Bench(faros())
    owner = bench.make(GTO, "deployment-web", finalizers=[PROTECT], spec=carrying(DEPLOYMENT, "web"))
    stranger = bench.make(DATABASE, "stranger", finalizers=[THEIRS])
    deployment = bench.make(DEPLOYMENT, "web", stranger, finalizers=[THEIRS])
    if marker:
        bench.ask(owner)
    bench.delete(owner, propagation)
    bench.settle()
    assert not bench.there(owner)
    assert bench.now(deployment) == deployment


@EACH
def test_the_finalizers_of_others_stay_on_owner_and_dependent(propagation):
    """pusher/faros#144: a finalizer belongs to who put it there; ours comes and goes alone."""
    bench = Bench(faros())
    owner = bench.make(GTO, "deployment-web", finalizers=[THEIRS], spec=carrying(DEPLOYMENT, "web"))
    deployment = bench.make(DEPLOYMENT, "web", owner, finalizers=[THEIRS])
    bench.settle()
    bench.ask(owner)
    bench.delete(owner, propagation)
    bench.settle()
    kept = propagation is Propagation.ORPHAN
    assert bench.seen(deployment) == ("live, theirs" if kept else "terminating, theirs, owned by deployment-web")
    assert THEIRS in bench.now(owner).meta.finalizers

    if not kept:
        bench.take_finalizers(deployment)
        bench.settle()
    assert bench.now(owner).meta.finalizers == (THEIRS,)


def test_what_is_listed_before_the_owner_was_seen_terminating_does_not_count():
    """pusher/faros#99 in small: a dependent that came just before its owner went is not overlooked."""
    bench = Bench(shielded=False)
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    bench.reconciler.keys()
    watch = next(watch for watch in bench.reconciler.watches() if watch.kind == DATABASE)
    bench.reconciler.keys()
    secret = bench.make(SECRET, "password", owner)
    bench.delete(owner)
    (key,) = watch.keys_of(bench.now(owner), False)
    bench.reconciler.reconcile(key, now=NOW)
    assert (bench.seen(owner), bench.seen(secret)) == ("gone", "live, orphaned")


def test_an_owner_that_is_made_while_we_look_keeps_its_dependents_references():
    """pusher/faros#143: a reference across namespaces leads to no owner; others do."""
    bench = Bench()
    made = []

    class Moving(Unreadable):
        def list(self, kind, **options):
            found = super().list(kind, **options)
            if kind == DATABASE and not made:
                owner = bench.make(DATABASE, "orders")
                made.extend(bench.make(SECRET, "password", owner, namespace=place) for place in ("far-away", "shop"))
            return found

    bench.cluster = Moving(bench.cluster)
    bench.restart()
    bench.settle()
    far_away, near = made
    assert bench.seen(near) == "live, owned by orders"
    assert bench.seen(far_away) in {"live, owned by orders", "live, orphaned"}
