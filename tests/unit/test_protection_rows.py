"""Each row of the decision table under each propagation policy, in a cluster whose garbage collector is running.

The shield is in the cluster; what happens without it is told in ``test_protection_shield``. A row is named by what
``decide`` itself says of that world, and shown by the state of the world once the controller has settled it.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from attrs import field, frozen

from reprieve.core.holds import HOLD, HOLD_UNTIL
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import Propagation
from reprieve.core.protection import HELD_DEPENDENTS, PROTECT, DeleteOwner, Guard, Nothing, record_of_held
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.steps import DELETION_REQUESTED, ORPHANED_FROM
from reprieve.entrypoints.configuration import ProtectionEntry
from reprieve.entrypoints.controller.runtime import run_once
from tests.unit.protected import (
    CLAIM,
    DATABASE,
    DEPLOYMENT,
    GTO,
    NOW,
    PROPAGATIONS,
    SECRET,
    THEIRS,
    Bench,
    Unreadable,
    beside,
    carrying,
    databases,
    faros,
)

BACKGROUND, FOREGROUND, ORPHAN = PROPAGATIONS
EACH = pytest.mark.parametrize("propagation", PROPAGATIONS, ids=lambda each: each.value.lower())
HELD_TILL_TOMORROW = {HOLD: "audit", HOLD_UNTIL: "2026-03-02T12:00:00Z"}


def one_owner(bench, *, finalizers=(PROTECT,), marker="", owner=None, dependent=None, theirs=()):
    """An owner (asked for by its own UID with ``marker="own"``) and one secret that it owns."""
    database = bench.make(DATABASE, "orders", finalizers=finalizers, annotations=owner)
    secret = bench.make(SECRET, "password", database, annotations=dependent, finalizers=theirs)
    if marker:
        uid = database.meta.uid if marker == "own" else marker
        bench.annotate(database, {DELETION_REQUESTED: uid})
    return database, secret


# Rows 1 to 4: the owner is live. First at rest, then under each propagation policy once somebody deletes it after all.


@frozen
class Live:
    """A row of a live owner: what the world looks like at rest, and after the owner was deleted."""

    row: int
    at_rest: tuple[str, str]
    deleted: tuple[str, str]
    orphaned: tuple[str, str]
    setting: dict[str, object] = field(factory=dict)
    verbs: tuple[str, str] = ("Delete", "Orphan")

    def after(self, propagation):
        return self.orphaned if propagation is Propagation.ORPHAN else self.deleted


KEPT = ("gone", "live, orphaned")
"""We took our reference off, and recorded it."""
FREE = ("gone", "live")
"""The collector took the reference off, as orphan propagation asks it to."""
RESTING = ("live, protected", "live, owned by orders")

LIVE_ROWS = [
    pytest.param(Live(1, RESTING, KEPT, FREE, {"finalizers": ()}), id="1-without-our-finalizer"),
    pytest.param(
        Live(1, ("live, theirs, protected", RESTING[1]), *[("terminating, theirs", end[1]) for end in (KEPT, FREE)],
             {"finalizers": (THEIRS,)}),
        id="1-beside-the-finalizer-of-others",
    ),
    pytest.param(Live(2, RESTING, KEPT, FREE), id="2-not-asked"),
    pytest.param(Live(2, RESTING, KEPT, FREE, {"marker": "true"}), id="2-templated-marker"),
    pytest.param(Live(2, RESTING, KEPT, FREE, {"marker": "uid-of-another"}), id="2-copied-marker"),
    pytest.param(
        Live(2, ("live, protected, held", RESTING[1]), KEPT, FREE, {"owner": {HOLD: "audit"}}), id="2-held-not-asked"
    ),
    pytest.param(
        Live(3, (RESTING[0], "live, owned by orders, held"), ("terminating, protected", "live, orphaned, held"),
             ("gone", "live, held"), {"marker": "own", "dependent": {HOLD: "audit"}}),
        id="3-a-held-dependent",
    ),
    pytest.param(
        Live(3, ("live, protected, held", RESTING[1]), ("terminating, protected, held", "live, orphaned"), FREE,
             {"marker": "own", "owner": {HOLD: "audit"}}),
        id="3-a-held-owner",
    ),
]  # fmt: skip


@EACH
@pytest.mark.parametrize("case", LIVE_ROWS)
def test_a_live_owner_and_its_deletion_after_all(case, propagation):
    bench = Bench(databases(*case.verbs))
    owner, secret = one_owner(bench, **case.setting)
    action = bench.judge(owner).owner
    assert {1: isinstance(action, Guard), 2: isinstance(action, Nothing), 3: action.reason is Reason.HELD}[case.row]

    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == case.at_rest

    bench.delete(owner, propagation)
    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == case.after(propagation)


@EACH
def test_row_3_an_unknown_dependent_keeps_an_asked_owner_live(propagation):
    bench = Bench()
    owner, secret = one_owner(bench, marker="own")
    answering, bench.cluster = bench.cluster, Unreadable(bench.cluster, CLAIM)
    bench.restart()

    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == RESTING

    bench.cluster = answering
    bench.restart()
    bench.delete(owner, propagation)
    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == (FREE if propagation is Propagation.ORPHAN else ("gone", "gone"))


@EACH
def test_row_3_goes_on_by_itself_when_the_hold_ends(propagation):
    bench = Bench()
    owner, secret = one_owner(bench, marker="own", dependent=HELD_TILL_TOMORROW)
    bench.settle(NOW + timedelta(hours=23, minutes=59))
    assert bench.seen(owner) == RESTING[0]

    bench.settle(NOW + timedelta(days=1))
    assert (bench.seen(owner), bench.seen(secret)) == ("gone", "gone")


@pytest.mark.parametrize(
    ("verbs", "end"),
    [
        pytest.param(("Delete", "Orphan"), ("gone", "gone"), id="on-request-delete"),
        pytest.param(("Orphan", "Orphan"), KEPT, id="on-request-orphan"),
        pytest.param(("Orphan", "Delete"), KEPT, id="otherwise-does-not-matter"),
    ],
)
@pytest.mark.parametrize("propagation", [None, *PROPAGATIONS], ids=str)
def test_row_4_an_asked_owner_is_deleted_by_us_or_by_somebody_at_the_same_time(verbs, end, propagation):
    bench = Bench(databases(*verbs))
    owner, secret = one_owner(bench, marker="own")
    decision = bench.judge(owner)
    assert isinstance(decision.owner, DeleteOwner)
    assert [each.row for each in decision.dependents] == [4]

    if propagation:
        bench.delete(owner, propagation)
    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == (FREE if propagation is Propagation.ORPHAN else end)


# Rows 5 to 16: the owner terminates, or is gone, when the controller first sees it


@frozen
class Ending:
    """A row of a terminating owner: the setting, and the world at its end.

    ``orphaned`` is what orphan propagation makes of it: the collector takes the reference off before anybody looks, so
    that no row finds the dependent (``orphan_rows``). ``foreground`` is said where the collector, denied or not, leaves
    something else than under background propagation.
    """

    rows: tuple[int, ...]
    end: tuple[str, str]
    orphaned: tuple[str, str] = FREE
    setting: dict[str, object] = field(factory=dict)
    verbs: tuple[str, str] = ("Delete", "Orphan")
    orphan_rows: tuple[int, ...] = ()
    foreground: tuple[str, str] | None = None
    foreground_rows: tuple[int, ...] | None = None
    before: Callable[..., object] = lambda _bench, _owner, _secret: None

    def expected(self, propagation):
        """The rows that are decided by, and the world at the end."""
        if propagation is Propagation.ORPHAN:
            return self.orphan_rows, self.orphaned
        if propagation is Propagation.FOREGROUND:
            rows = self.rows if self.foreground_rows is None else self.foreground_rows
            return rows, self.foreground or self.end
        return self.rows, self.end


def other_owner(bench, owner, secret):
    """A second owner that is live."""
    other = bench.make(DATABASE, "other", finalizers=(PROTECT,))
    owners = [{**_reference(bench, owner)}, beside(other)]
    bench.people.patch(secret.ref, {"metadata": {"ownerReferences": owners}})


def _reference(bench, owner):
    return beside(bench.now(owner))


def deleted_by_hand(bench, _owner, secret):
    bench.delete(secret)


def orphaned_before(bench, owner, secret):
    """The secret lost its reference, and remembers whom it belonged to."""
    record = {ORPHANED_FROM: f"{owner.meta.uid}/{secret.meta.uid}"}
    bench.people.patch(secret.ref, {"metadata": {"ownerReferences": None, "annotations": record}})


def orphaned_under_a_hold(bench, owner, secret):
    """A hold has lifted; both say that we orphaned the secret as long as it stood."""
    orphaned_before(bench, owner, secret)
    record = record_of_held(owner.ref, owner.meta, [secret.meta.uid]).annotations
    assert set(record) == {HELD_DEPENDENTS}
    bench.annotate(owner, dict(record))


ASKED = {"marker": "own"}
ENDINGS = [
    pytest.param(
        Ending((15,), ("terminating, theirs", "live, orphaned"), ("terminating, theirs", "live"),
               {"finalizers": (THEIRS,)}),
        id="5-without-our-finalizer-yet-referred-to",
    ),
    pytest.param(
        Ending((9,), ("terminating, protected", "terminating, theirs, owned by orders"),
               ("gone", "terminating, theirs"), {**ASKED, "theirs": (THEIRS,)},
               foreground=("terminating, foregroundDeletion, protected", "terminating, theirs, owned by orders"),
               before=deleted_by_hand),
        id="9-asked-and-terminating-already",
    ),
    pytest.param(
        Ending((9,), ("gone", "terminating, theirs, owned by orders"), ("gone", "terminating, theirs"),
               {"theirs": (THEIRS,)},
               foreground=("terminating, foregroundDeletion", "terminating, theirs, owned by orders"),
               before=deleted_by_hand),
        id="9-lost-settles-at-once",
    ),
    pytest.param(
        Ending((10,), ("gone", "live, owned by other"), ("gone", "live, owned by other"), ASKED, foreground_rows=(),
               before=other_owner),
        id="10-asked-and-another-owner",
    ),
    pytest.param(
        Ending((10,), ("gone", "live, owned by other"), ("gone", "live, owned by other"), verbs=("Delete", "Delete"),
               foreground_rows=(), before=other_owner),
        id="10-opted-in-and-another-owner",
    ),
    pytest.param(
        Ending((11,), ("terminating, protected", "live, orphaned, held"), ("gone", "live, held"),
               {**ASKED, "dependent": {HOLD: "audit"}}),
        id="11-held-dependent",
    ),
    pytest.param(
        Ending((11,), ("terminating, protected, held", "live, orphaned"), FREE, {**ASKED, "owner": {HOLD: "audit"}}),
        id="11-held-owner",
    ),
    pytest.param(
        Ending((11,), ("terminating, protected", "live, orphaned, held"), ("gone", "live, held"),
               {**ASKED, "dependent": {HOLD_UNTIL: "tomorrow", HOLD: ""}}),
        id="11-a-date-that-nobody-can-read-holds",
    ),
    pytest.param(Ending((12,), ("gone", "gone"), setting=ASKED), id="12-asked"),
    pytest.param(
        Ending((12,), ("gone", "gone"), ("gone", "gone"), ASKED, before=orphaned_under_a_hold, orphan_rows=(12,)),
        id="12-asked-and-orphaned-under-a-hold",
    ),
    pytest.param(
        Ending((), KEPT, KEPT, ASKED, before=orphaned_before),
        id="8-only-the-dependent-says-that-it-was-ours",
    ),
    pytest.param(Ending((13,), KEPT, setting=ASKED, verbs=("Orphan", "Delete")), id="13-asked-but-on-request-orphan"),
    pytest.param(
        Ending((13,), KEPT, setting={**ASKED, "dependent": {"reprieve.dev/on-request": "Orphan"}}),
        id="13-the-dependent-says-orphan",
    ),
    pytest.param(
        Ending((13,), KEPT, setting={**ASKED, "owner": {"reprieve.dev/on-request": "Orphan"}}),
        id="13-the-owner-says-orphan",
    ),
    pytest.param(Ending((14,), ("gone", "gone"), verbs=("Orphan", "Delete")), id="14-opted-in"),
    pytest.param(
        Ending((15,), ("gone", "live, orphaned, held"), ("gone", "live, held"), {"dependent": {HOLD: "audit"}},
               verbs=("Delete", "Delete")),
        id="14-opted-in-but-held",
    ),
    pytest.param(Ending((15,), KEPT), id="15-not-asked"),
    pytest.param(Ending((15,), KEPT, setting={"marker": "true"}), id="15-templated-marker"),
    pytest.param(
        Ending((15,), KEPT, setting={"dependent": {"reprieve.dev/otherwise": "Delete"}}),
        id="15-delete-by-annotation-counts-only-where-allowed",
    ),
    pytest.param(
        Ending((15,), ("terminating, theirs", "live, orphaned"), ("terminating, theirs", "live"),
               {"finalizers": (THEIRS, PROTECT)}),
        id="15-the-finalizers-of-others-stay",
    ),
]  # fmt: skip


@EACH
@pytest.mark.parametrize("case", ENDINGS)
def test_a_terminating_owner(case, propagation):
    bench = Bench(databases(*case.verbs))
    owner, secret = one_owner(bench, **case.setting)
    case.before(bench, owner, secret)
    bench.delete(owner, propagation)
    rows, end = case.expected(propagation)
    if bench.there(owner):
        assert tuple(each.row for each in bench.judge(owner).dependents) == rows

    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == end


@EACH
def test_row_5_nothing_refers_to_an_owner_that_others_hold(propagation):
    bench = Bench()
    owner = bench.make(DATABASE, "orders", finalizers=(THEIRS,))
    bench.delete(owner, propagation)
    assert bench.judge(owner).owner.reason is Reason.OWNER_TERMINATING

    before = bench.now(owner)
    bench.settle()
    assert bench.now(owner) == before
    assert bench.seen(owner) == "terminating, theirs"


@EACH
def test_row_6_unknown_keeps_the_finalizer_until_it_can_be_read(propagation):
    bench = Bench()
    owner, secret = one_owner(bench)
    claim = bench.make(CLAIM, "data", owner)
    answering, bench.cluster = bench.cluster, Unreadable(bench.cluster, CLAIM)
    bench.restart()
    bench.delete(owner, propagation)
    unknown = [each for each in bench.judge(owner).dependents if each.row == 6]
    assert [(each.verdict, each.reason) for each in unknown] == [(Verdict.KEEP, Reason.UNKNOWN)]

    bench.settle()
    assert bench.seen(owner).startswith("terminating")
    assert "protected" in bench.seen(owner)
    assert "Unknown" in bench.told(owner)

    bench.cluster = answering
    bench.restart()
    bench.settle()
    free = "live" if propagation is Propagation.ORPHAN else "live, orphaned"
    assert [bench.seen(each) for each in (owner, secret, claim)] == ["gone", free, free]


@EACH
@pytest.mark.parametrize("marker", ["", "own"], ids=["not-asked", "asked"])
def test_rows_7_and_8_absent_and_foreign_settle_untouched(propagation, marker):
    bench = Bench(faros())
    absent = bench.make(GTO, "deployment-absent", finalizers=(PROTECT,), spec=carrying(DEPLOYMENT, "absent"))
    foreign = bench.make(GTO, "deployment-foreign", finalizers=(PROTECT,), spec=carrying(DEPLOYMENT, "foreign"))
    stranger = bench.make(DATABASE, "stranger")
    deployment = bench.make(DEPLOYMENT, "foreign", stranger, annotations={ORPHANED_FROM: f"{foreign.meta.uid}/copied"})
    for owner in (absent, foreign):
        if marker:
            bench.ask(owner)
        bench.delete(owner, propagation)
    assert [[each.row for each in bench.judge(owner).dependents] for owner in (absent, foreign)] == [[7], [8]]

    before = bench.now(deployment)
    bench.settle()
    assert not bench.there(absent)
    assert not bench.there(foreign)
    assert bench.now(deployment) == before


def test_row_9_an_asked_owner_goes_once_its_dependent_is_gone():
    bench = Bench()
    owner, secret = one_owner(bench, marker="own", theirs=(THEIRS,))
    bench.settle()
    assert bench.seen(secret) == "terminating, theirs, owned by orders"

    bench.take_finalizers(secret)
    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == ("gone", "gone")


@pytest.mark.parametrize("verbs", [("Delete", "Orphan"), ("Delete", "Delete")], ids=["otherwise-orphan", "opted-in"])
@pytest.mark.parametrize("marker", ["", "own"], ids=["not-asked", "asked"])
def test_row_10_orphan_propagation_wins_before_the_collector_has_worked(verbs, marker):
    bench = Bench(databases(*verbs))
    owner, secret = one_owner(bench, marker=marker)
    bench.people.collector = bench.cluster.collector = None
    bench.delete(owner, Propagation.ORPHAN)
    assert [each.row for each in bench.judge(owner).dependents] == [10]

    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == ("terminating, orphan", "live")

    bench.collector.step()
    assert (bench.seen(owner), bench.seen(secret)) == ("gone", "live")


FLEET = ObjectKind("example.com/v1", "Fleet")


class Dying:
    """A cluster whose caller dies right after its n-th write."""

    def __init__(self, cluster, writes):
        self.cluster, self.left = cluster, writes

    def __getattr__(self, name):
        return getattr(self.cluster, name)

    def patch(self, *args, **options):
        return self.counted(self.cluster.patch(*args, **options))

    def delete(self, *args, **options):
        return self.counted(self.cluster.delete(*args, **options))

    def counted(self, result):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("writes", range(1, 8))
@pytest.mark.parametrize("propagation", [None, BACKGROUND, FOREGROUND], ids=str)
def test_row_12_a_dependent_that_is_a_protected_owner_gets_its_own_marker_first(propagation, writes):
    """Whichever write the process dies after, all three go, the innermost first; a held one keeps what it must."""
    bench = Bench(ProtectionEntry(FLEET, "Delete", "Orphan", dependents=(DATABASE,)), databases())
    fleet = bench.make(FLEET, "fleet", finalizers=(PROTECT,))
    owner = bench.make(DATABASE, "orders", fleet)
    secret = bench.make(SECRET, "password", owner, annotations={HOLD: "audit"})
    bench.ask(fleet)
    if propagation:
        bench.delete(fleet, propagation)
    alive, bench.cluster = bench.cluster, Dying(bench.cluster, writes)
    bench.restart()
    with suppress(KeyboardInterrupt):
        run_once([bench.reconciler], now=NOW)
    bench.cluster = alive
    bench.restart()
    bench.settle()
    foreground = "foregroundDeletion, " * (propagation is FOREGROUND)
    assert bench.seen(fleet) == f"terminating, {foreground}protected"
    assert bench.seen(owner) == "terminating, protected, owned by fleet"
    assert bench.seen(secret) == "live, orphaned, held"

    bench.let_go(secret)
    bench.settle()
    assert [bench.seen(each) for each in (fleet, owner, secret)] == ["gone"] * 3


@pytest.mark.parametrize("marker", ["", "own"], ids=["not-asked", "asked"])
def test_row_12_another_owner_that_a_live_read_does_not_find_keeps_nothing(marker):
    bench = Bench()
    owner, secret = one_owner(bench, marker=marker)
    bench.people.collector = bench.cluster.collector = None  # it would take the dangling reference off first
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "uid-of-nothing"}
    bench.people.patch(secret.ref, {"metadata": {"ownerReferences": [beside(owner), gone]}})
    bench.delete(owner)
    assert [each.row for each in bench.judge(owner).dependents] == [12 if marker else 15]

    bench.settle()
    kept = "live, owned by gone, orphaned"
    assert (bench.seen(owner), bench.seen(secret)) == ("gone", "gone" if marker else kept)


@pytest.mark.parametrize("propagation", [BACKGROUND, FOREGROUND], ids=lambda each: each.value.lower())
def test_row_11_the_held_dependent_goes_when_its_hold_lifts(propagation):
    bench = Bench()
    owner, secret = one_owner(bench, marker="own", dependent=HELD_TILL_TOMORROW)
    bench.delete(owner, propagation)
    bench.settle()
    assert bench.seen(secret) == "live, orphaned, held"

    bench.settle(NOW + timedelta(days=1))
    assert (bench.seen(owner), bench.seen(secret)) == ("gone", "gone")


@pytest.mark.parametrize("propagation", [BACKGROUND, FOREGROUND], ids=lambda each: each.value.lower())
def test_row_14_delete_by_annotation_where_the_entry_allows_it(propagation):
    bench = Bench(databases(allow=True))
    owner, secret = one_owner(bench, dependent={"reprieve.dev/otherwise": "Delete"})
    bench.delete(owner, propagation)
    assert [each.row for each in bench.judge(owner).dependents] == [14]

    bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == ("gone", "gone")


# Row 16: the owner has no finalizer of ours, so nothing holds it


@pytest.mark.parametrize(
    ("propagation", "end"),
    [
        pytest.param(BACKGROUND, KEPT, id="background"),
        pytest.param(FOREGROUND, KEPT, id="foreground"),
        pytest.param(ORPHAN, FREE, id="orphan"),
    ],
)
def test_row_16_an_owner_that_vanished_leaves_its_dependents(propagation, end):
    bench = Bench()
    owner, secret = one_owner(bench, finalizers=())
    bench.delete(owner, propagation)

    report = bench.settle()
    assert (bench.seen(owner), bench.seen(secret)) == end
    reasons = {decision.reason for decision in report.decisions}
    assert reasons == {BACKGROUND: {Reason.OWNER_ABSENT}, FOREGROUND: {Reason.OWNER_LOST}, ORPHAN: set()}[propagation]


@pytest.mark.parametrize("verbs", [("Delete", "Delete"), ("Orphan", "Orphan")], ids=["delete-all", "keep-all"])
def test_row_16_another_uid_under_the_name_is_an_absent_owner(verbs):
    bench = Bench(databases(*verbs))
    owner, secret = one_owner(bench, finalizers=())
    bench.delete(owner)
    anew = bench.make(DATABASE, "orders")

    bench.settle()
    assert (bench.seen(owner), bench.seen(secret), bench.seen(anew)) == ("gone", "live, orphaned", "live, protected")


def test_row_16_what_terminates_already_is_lost_and_told_so():
    bench = Bench()
    owner, secret = one_owner(bench, finalizers=(), theirs=(THEIRS,))
    bench.delete(secret)
    bench.delete(owner)

    bench.settle()
    assert bench.seen(secret) == "terminating, theirs, owned by orders"
    assert set(bench.told(secret)) == {"Lost"}
