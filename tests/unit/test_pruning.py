"""Pruning: which owners are marked when manifests leave the desired set, and what stands against it."""

import re
from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef, OwnerReference, Resource
from reprieve.core.plain import from_plain
from reprieve.core.protection import AbsentOwner, LiveOwner, TerminatingOwner, UnknownOwner
from reprieve.core.pruning import (
    Clear,
    CompleteSet,
    Count,
    EmptyDesiredSet,
    FarosTracker,
    Ignored,
    LimitInvalidError,
    Managed,
    NotObserved,
    NotTheTime,
    OwnerKey,
    PartialSet,
    Percentage,
    PruneLimits,
    TooManyPruned,
    UnavailableSet,
    faros_handling,
    faros_key,
    key_of,
    prune,
    read_limit,
    tracked_by,
)
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.steps import MarkOwner, UnmarkOwner
from reprieve.core.values import to_plain

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAROS = "faros.pusher.com/v1alpha1"
GIT_TRACK = ObjectKind(FAROS, "GitTrack")
GTO = ObjectKind(FAROS, "GitTrackObject")
TRACKED = OwnerReference(FAROS, "GitTrack", "shop", "t1", controller=True)
HOLD = {"reprieve.dev/hold": "audit"}
MARK = "reprieve.dev/deletion-requested"
HALF = PruneLimits(Percentage(50))


def track(**annotations):
    return LiveOwner(GIT_TRACK, ObjectMeta("shop", "faros", "t1", annotations=annotations))


def gto(index, *, owners=(TRACKED,), deleted=None, marked=False, annotations=None):
    uid = f"o{index}"
    marker = {MARK: uid} if marked else {}
    meta = ObjectMeta(
        f"deployment-{index}",
        "shop",
        uid,
        "5",
        owners=owners,
        deleted=deleted,
        annotations=(annotations or {}) | marker,
    )
    return Resource(GTO, meta)


def keys(*indexes):
    return [faros_key("Deployment", str(index), "shop") for index in indexes]


def decided(owners, desired, limits=HALF, parent=None):
    return prune(parent or track(), owners, desired, limits, now=NOW)


def marked(decision):
    return [step.ref.uid for each in decision.verdicts for step in each.steps if isinstance(step, MarkOwner)]


def unmarked(decision):
    return [step.ref.uid for each in decision.verdicts for step in each.steps if isinstance(step, UnmarkOwner)]


# One owner


@pytest.mark.parametrize(
    ("owner", "desired", "verdict", "reason", "steps"),
    [
        pytest.param(gto(1), CompleteSet(keys(1)), "KEEP", "Desired", (), id="desired"),
        pytest.param(gto(1), CompleteSet(keys(2)), "DELETE", "ManifestGone", (MarkOwner,), id="left"),
        pytest.param(gto(1, marked=True), CompleteSet(keys(2)), "DELETE", "Marked", (), id="marked-already"),
        pytest.param(gto(1, marked=True), CompleteSet(keys(1)), "KEEP", "ManifestBack", (UnmarkOwner,), id="back"),
        pytest.param(
            gto(1, marked=True), PartialSet(keys(1), ["x"]), "KEEP", "ManifestBack", (UnmarkOwner,), id="seen"
        ),
        pytest.param(gto(1), CompleteSet([]), "KEEP", "Brake", (), id="empty"),
        pytest.param(gto(1, annotations=HOLD), CompleteSet(keys(2)), "KEEP", "Held", (), id="held"),
        pytest.param(gto(1, deleted=NOW), CompleteSet(keys(2)), "KEEP", "OwnerTerminating", (), id="terminating"),
        pytest.param(
            gto(1, deleted=NOW, marked=True),
            CompleteSet(keys(1)),
            "KEEP",
            "OwnerTerminating",
            (),
            id="too-late-to-unmark",
        ),
        pytest.param(gto(1), PartialSet(keys(2), ["x"]), "KEEP", "ObservationIncomplete", (), id="partial"),
        pytest.param(gto(1), UnavailableSet("x"), "KEEP", "ObservationIncomplete", (), id="unavailable"),
        pytest.param(
            gto(1, annotations={MARK: "o9"}),
            CompleteSet(keys(2)),
            "DELETE",
            "ManifestGone",
            (MarkOwner,),
            id="copied-mark",
        ),
    ],
)
def test_one_owner(owner, desired, verdict, reason, steps):
    only = decided([owner], desired).verdicts[0]

    assert (only.verdict, only.reason, tuple(map(type, only.steps))) == (verdict, reason, steps)
    assert only.message
    assert [step.ref for step in only.steps] == [owner.ref] * len(steps)


def test_a_mark_carries_uid_and_version():
    decision = decided([gto(1), gto(2)], CompleteSet(keys(2)))

    ref = ObjectRef(FAROS, "GitTrackObject", "deployment-1", "shop", "o1")
    assert decision.verdicts[0].steps == (MarkOwner(ref, "5"),)
    assert decision.stop == Clear()


def test_a_hold_on_the_owners_owner_holds_what_it_tracks():
    decision = decided([gto(1)], CompleteSet(keys(2)), parent=track(**HOLD))

    assert decision.verdicts[0].reason is Reason.HELD


def test_only_what_the_controller_reference_tracks_is_judged():
    """faros: a GitTrackObject that is merely owned, or that another GitTrack controls, is somebody else's."""
    merely_owned = gto(1, owners=[evolve(TRACKED, controller=False)])
    of_another = gto(2, owners=[evolve(TRACKED, uid="t2")])
    of_nobody = gto(3, owners=[OwnerReference(FAROS, "GitTrack", "shop", "", controller=True)])
    everything = [merely_owned, of_another, of_nobody, gto(4)]

    assert [each.ref.uid for each in decided(everything, CompleteSet(keys(9))).verdicts] == ["o4"]
    assert tracked_by("", everything) == ()


# What stands against marking


@pytest.mark.parametrize(
    ("parent", "reason"),
    [
        pytest.param(TerminatingOwner(GIT_TRACK, track().meta), Reason.OWNER_TERMINATING, id="faros-99-terminating"),
        pytest.param(AbsentOwner(track().ref), Reason.OWNER_ABSENT, id="faros-143-absent"),
        pytest.param(UnknownOwner(track().ref, "timeout"), Reason.OWNER_UNKNOWN, id="unknown"),
        pytest.param(track(**{MARK: "t1"}), Reason.ASKED, id="asked-for-as-a-whole"),
    ],
)
def test_nothing_is_written_under_an_owners_owner_that_is_not_simply_live(parent, reason):
    """faros#99: a GitTrack that was being deleted went on to reconcile, and took everything along."""
    decision = decided([gto(1), gto(2, marked=True)], CompleteSet(keys(2)), parent=parent)

    assert isinstance(decision.stop, NotTheTime)
    assert decision.stop.reason is reason
    assert [(each.verdict, each.reason, each.steps) for each in decision.verdicts] == [(Verdict.KEEP, reason, ())] * 2


@pytest.mark.parametrize(
    ("desired", "says"),
    [
        pytest.param(PartialSet(keys(1), ["a.yaml: line 3"]), "incomplete: a.yaml: line 3; mend that", id="partial"),
        pytest.param(
            PartialSet(keys(1), ["a.yaml", "b.yaml", "c"]), "a.yaml (and 2 more); mend", id="several-troubles"
        ),
        pytest.param(PartialSet(keys(1), []), "no reason given; mend", id="no-trouble-named"),
        pytest.param(UnavailableSet("no such directory"), "could not be read: no such directory", id="unavailable"),
    ],
)
def test_a_broken_manifest_never_deletes(desired, says):
    """faros: a YAML file that does not parse once deleted everything that was in it."""
    decision = decided([gto(1), gto(2)], desired)

    assert isinstance(decision.stop, NotObserved)
    assert says in decision.stop.message
    assert marked(decision) == []


def test_an_empty_desired_set_trips_the_brake():
    """faros#100, #102: an empty YAML file was enough to delete everything."""
    decision = decided([gto(1), gto(2)], CompleteSet([]), PruneLimits(Percentage(100)))

    assert decision.stop == EmptyDesiredSet(2, decision.stop.message)
    assert "GitTrack faros/shop tracks 2" in decision.stop.message
    assert "reprieve request-deletion GitTrack/shop --cascade" in decision.stop.message
    assert marked(decision) == []


def test_an_empty_desired_set_with_nothing_to_mark_is_no_error():
    assert decided([gto(1, marked=True), gto(2, deleted=NOW)], CompleteSet([])).stop == Clear()
    assert decided([], CompleteSet([])).stop == Clear()


def test_too_many_at_once_trip_the_brake():
    """faros#100: a wrong subPath made everything else look removed."""
    decision = decided([gto(index) for index in range(10)], CompleteSet(keys(0, 1, 2, 3)))

    assert isinstance(decision.stop, TooManyPruned)
    assert (decision.stop.leaving, decision.stop.tracked, decision.stop.allowed) == (6, 10, 5)
    assert "would mark 6 of 10 owners (60 %), limit 50 % (5)" in decision.stop.message
    assert "raise maxPruned" in decision.stop.message
    assert marked(decision) == []


def test_as_many_as_the_limit_allows_are_marked():
    decision = decided([gto(index) for index in range(10)], CompleteSet(keys(0, 1, 2, 3, 4)))

    assert marked(decision) == ["o5", "o6", "o7", "o8", "o9"]


def test_the_brake_cannot_be_crept_past():
    """Marks that are there already count, so that five runs in a row do not do what one may not."""
    owners = [gto(index, marked=index > 4) for index in range(10)]

    assert isinstance(decided(owners, CompleteSet(keys(0, 1, 2, 3))).stop, TooManyPruned)
    assert decided(owners, CompleteSet(keys(0, 1, 2, 3, 4))).stop == Clear()


def test_owners_that_are_held_or_on_their_way_do_not_count():
    held = [gto(index, annotations=HOLD) for index in range(3)]
    going = [gto(index, deleted=NOW) for index in range(3, 6)]

    assert marked(decided([*held, *going, gto(6)], CompleteSet(keys(9)))) == ["o6"]


def test_a_mark_is_taken_off_even_when_the_brake_trips():
    owners = [gto(1, marked=True), gto(2), gto(3), gto(4)]

    decision = decided(owners, CompleteSet(keys(1)))

    assert isinstance(decision.stop, TooManyPruned)
    assert (unmarked(decision), marked(decision)) == (["o1"], [])


# The limit


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        pytest.param("20%", Percentage(20), id="percentage"),
        pytest.param("100%", Percentage(100), id="all"),
        pytest.param("0%", Percentage(0), id="none"),
        pytest.param(7, Count(7), id="number"),
        pytest.param(0, Count(0), id="zero"),
    ],
)
def test_a_limit_is_read(value, limit):
    assert read_limit(value, where="x") == limit


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("101%", id="more-than-all"),
        pytest.param("20", id="text-without-percent"),
        pytest.param("-1%", id="negative-percentage"),
        pytest.param(-1, id="negative"),
        pytest.param(True, id="true"),
        pytest.param(0.2, id="fraction"),
        pytest.param(None, id="null"),
        pytest.param("20%\n", id="newline"),
    ],
)
def test_a_limit_that_is_none_says_where(value):
    with pytest.raises(LimitInvalidError, match=re.escape(f"protection[0].maxPruned is {value!r}: write")):
        read_limit(value, where="protection[0].maxPruned")


@pytest.mark.parametrize(
    ("limit", "tracked", "allowed"),
    [
        pytest.param(Percentage(20), 10, 2, id="share"),
        pytest.param(Percentage(20), 14, 2, id="rounded-down"),
        pytest.param(Percentage(20), 3, 1, id="at-least-one"),
        pytest.param(Count(3), 100, 3, id="number"),
        pytest.param(Count(0), 100, 1, id="zero-is-one"),
    ],
)
def test_the_limit_is_at_least_one(limit, tracked, allowed):
    assert PruneLimits(limit).allowed(tracked) == allowed


def test_a_limit_prints_as_it_is_written():
    assert [str(PruneLimits()), str(PruneLimits(Count(3)))] == ["20 %", "3"]


# Faros' rules


@pytest.mark.parametrize(
    ("manifest", "key"),
    [
        pytest.param(("Deployment", "Web", "shop"), ("GitTrackObject", "shop", "deployment-web"), id="lower"),
        pytest.param(
            ("ClusterRole", "system:web", ""),
            ("ClusterGitTrackObject", "", "clusterrole-system-web"),
            id="cluster-colon",
        ),
        pytest.param(("ConfigMap", "a.b", "x"), ("GitTrackObject", "x", "configmap-a.b"), id="dots-stay"),
    ],
)
def test_faros_names_owners_after_manifests(manifest, key):
    assert faros_key(*manifest) == OwnerKey("faros.pusher.com", *key)


def test_a_key_prints_with_its_namespace():
    assert [str(faros_key("A", "b", "c")), str(faros_key("A", "b", ""))] == [
        "GitTrackObject c/a-b",
        "ClusterGitTrackObject a-b",
    ]


def test_the_version_of_an_object_is_no_part_of_its_key():
    ref = ObjectRef("faros.pusher.com/v9", "GitTrackObject", "deployment-1", "shop", "o1")

    assert key_of(ref) == keys(1)[0]


SHOP = FarosTracker(namespace="shop")
CLUSTER = FarosTracker()


@pytest.mark.parametrize(
    ("tracker", "resource", "namespace", "handling"),
    [
        pytest.param(SHOP, "deployments.apps/v1", "shop", Managed(), id="own-namespace"),
        pytest.param(CLUSTER, "deployments.apps/v1", "shop", Managed(), id="cluster-tracker"),
        pytest.param(CLUSTER, "clusterroles.rbac/v1", "", Managed(), id="cluster-scoped"),
        pytest.param(
            FarosTracker(only_namespace="shop"),
            *("deployments.apps/v1", "bank", Ignored("namespace `bank` is not managed by this Faros")),
            id="flag-namespace",
        ),
        pytest.param(FarosTracker(only_namespace="shop"), "x.y/v1", "shop", Managed(), id="flag-namespace-itself"),
        pytest.param(FarosTracker(only_namespace="shop"), "x.y/v1", "", Managed(), id="flag-namespace-cluster-scoped"),
        pytest.param(
            FarosTracker(ignored_resources={"jobs.batch/v1"}),
            *("jobs.batch/v1", "shop", Ignored("resource `jobs.batch/v1` ignored globally by flag")),
            id="flag-resource",
        ),
        pytest.param(
            SHOP,
            *("deployments.apps/v1", "bank", Ignored("namespace `bank` is not managed by this GitTrack")),
            id="another-namespace",
        ),
        pytest.param(
            FarosTracker(exclude_namespaced=True),
            *("x.y/v1", "shop", Ignored("namespaced resources cannot be managed by ClusterGitTrack")),
            id="exclude-namespaced",
        ),
        pytest.param(FarosTracker(exclude_namespaced=True), "x.y/v1", "", Managed(), id="exclude-keeps-cluster-scoped"),
        pytest.param(
            SHOP,
            *("clusterroles.rbac/v1", "", Ignored("a GitTrack cannot manage a cluster-scoped resource")),
            id="cluster-scoped-in-a-namespace",
        ),
    ],
)
def test_faros_ignores_by_its_own_rules(tracker, resource, namespace, handling):
    assert faros_handling(tracker, resource, namespace) == handling


# Invariants

owners = st.lists(
    st.builds(
        gto,
        st.integers(0, 12),
        owners=st.sampled_from([(TRACKED,), ()]),
        deleted=st.sampled_from([None, NOW]),
        marked=st.booleans(),
        annotations=st.sampled_from([{}, HOLD]),
    ),
    unique_by=lambda each: each.ref,
)
desired_keys = st.frozensets(st.integers(0, 12)).map(lambda indexes: keys(*indexes))
desired_sets = st.one_of(
    st.builds(CompleteSet, desired_keys),
    st.builds(PartialSet, desired_keys, st.just(["x"])),
    st.just(UnavailableSet("x")),
)
parents = st.sampled_from(
    [
        track(),
        track(**HOLD),
        track(**{MARK: "t1"}),
        TerminatingOwner(GIT_TRACK, track().meta),
        AbsentOwner(track().ref),
        UnknownOwner(track().ref, "x"),
    ]
)


@given(parents, owners, desired_sets)
def test_marks_rest_on_a_complete_observation_under_a_live_owner(parent, owners, desired):
    decision = prune(parent, owners, desired, HALF, now=NOW)

    if marked(decision):
        assert isinstance(parent, LiveOwner)
        assert isinstance(desired, CompleteSet)
        assert desired.keys
        assert decision.stop == Clear()
        live = [each for each in tracked_by("t1", owners) if not each.meta.terminating]
        assert len(marked(decision)) <= HALF.allowed(len(live))


@given(parents, owners, desired_sets, st.randoms(use_true_random=False))
def test_order_does_not_matter(parent, owners, desired, random):
    shuffled = random.sample(owners, len(owners))

    assert prune(parent, shuffled, desired, HALF, now=NOW) == prune(parent, owners, desired, HALF, now=NOW)


@given(parents, owners, desired_sets)
def test_a_second_run_writes_nothing(parent, owners, desired):
    decision = prune(parent, owners, desired, HALF, now=NOW)
    on, off = marked(decision), unmarked(decision)
    after = [
        evolve(each, meta=evolve(each.meta, annotations={**each.meta.annotations, MARK: each.meta.uid}))
        if each.meta.uid in on
        else evolve(each, meta=evolve(each.meta, annotations={}))
        if each.meta.uid in off
        else each
        for each in owners
    ]

    again = prune(parent, after, desired, HALF, now=NOW)

    assert marked(again) == unmarked(again) == []


@given(parents, owners, desired_sets)
def test_a_decision_goes_through_plain_data(parent, owners, desired):
    decision = prune(parent, owners, desired, HALF, now=NOW)

    assert from_plain(to_plain(decision)) == decision
    assert from_plain(to_plain(desired)) == desired
