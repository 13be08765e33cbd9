"""The decision table of protection, row by row, over hand-made facts."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import evolve

from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef, OwnerReference, Resource
from reprieve.core.plain import from_plain
from reprieve.core.protection import (
    HELD_DEPENDENTS,
    HELD_DEPENDENTS_LIMIT,
    KEEP_EVERYTHING,
    AbsentDependent,
    AbsentOwner,
    DeleteOwner,
    Guard,
    LiveOwner,
    Nothing,
    Policy,
    PolicyInvalidError,
    PresentDependent,
    ProtectionDecision,
    Release,
    RetryAfter,
    TerminatingOwner,
    UnknownDependent,
    UnknownOwner,
    Verb,
    Wait,
    concerns,
    decide,
    effective_policy,
    held_dependents,
    is_asked,
    may_own,
    owner_of,
    read_policy,
    recorded_owner,
    release_steps,
    render_table,
    table,
)
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.steps import (
    AddFinalizer,
    ChangeMetadata,
    DeleteObject,
    MarkOwner,
    RemoveFinalizer,
    RemoveOwnerReference,
)
from reprieve.core.values import to_plain

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOMORROW = NOW + timedelta(days=1)
GTO = ObjectKind("faros.pusher.com/v1alpha1", "GitTrackObject")
DEPLOYMENT = ObjectKind("apps/v1", "Deployment")
PROTECT = "reprieve.dev/protect"
ASKED = {"reprieve.dev/deletion-requested": "o1"}
HOLD = {"reprieve.dev/hold": "audit"}
HOLD_UNTIL = {"reprieve.dev/hold": "audit", "reprieve.dev/hold-until": "2026-03-02T12:00:00Z"}
RECORD = {"reprieve.dev/orphaned-from": "o1/d1"}
NAMED = {HELD_DEPENDENTS: '{"owner":"o1","dependents":["d1"]}'}
OURS = OwnerReference(GTO.api_version, GTO.kind, "deployment-web", "o1", controller=True, block_owner_deletion=True)
OTHER = OwnerReference("v1", "ConfigMap", "other", "o2")

ON_REQUEST = Policy(Verb.DELETE, Verb.ORPHAN)
ALWAYS = Policy(Verb.DELETE, Verb.DELETE)


def owner_meta(*finalizers, **annotations):
    return ObjectMeta("deployment-web", "shop", "o1", "7", finalizers=finalizers, annotations=annotations)


def live(*finalizers, **annotations):
    return LiveOwner(GTO, owner_meta(*finalizers, **annotations))


def terminating(*finalizers, **annotations):
    return TerminatingOwner(GTO, evolve(owner_meta(*finalizers, **annotations), deleted=NOW))


def absent():
    return AbsentOwner(ObjectRef(GTO.api_version, GTO.kind, "deployment-web", "shop", "o1"))


def present(*owners, name="web", namespace="shop", uid="d1", annotations=None, **facts):
    about = {key: facts.pop(key) for key in ("deleted", "finalizers") if key in facts}
    meta = ObjectMeta(name, namespace, uid, "3", owners=owners, annotations=annotations or {}, **about)
    return PresentDependent(DEPLOYMENT, meta, **facts)


REF = ObjectRef("apps/v1", "Deployment", "web", "shop")
WEB = evolve(REF, uid="d1")
OWNER = ObjectRef(GTO.api_version, GTO.kind, "deployment-web", "shop", "o1")
STRIP = RemoveOwnerReference(WEB, "3", "o1", (), "o1/d1")
STRIP_ONLY_OURS = RemoveOwnerReference(WEB, "3", "o1", (OTHER,), "o1/d1")
LET_GO = RemoveOwnerReference(WEB, "3", "o1")
DELETE = DeleteObject(WEB, "3")
RELEASE = RemoveFinalizer(OWNER, "7")

mine = present(OURS)
gone = AbsentDependent(REF)
unknown = UnknownDependent(REF, "the API server did not answer")
foreign = present()
dying = present(OURS, deleted=NOW)
held = present(OURS, annotations=HOLD)
far = present(OURS, namespace="elsewhere")
far_and_held = present(OURS, namespace="elsewhere", annotations=HOLD)
far_and_recorded = present(namespace="elsewhere", annotations=RECORD)

ROWS = [
    # owner, dependent, policy, row, verdict, reason, steps of the dependent, what happens to the owner
    pytest.param(live(), mine, ON_REQUEST, 1, "KEEP", "Protecting", (), Guard, id="1-no-finalizer"),
    pytest.param(live(**ASKED), mine, ON_REQUEST, 1, "KEEP", "Protecting", (), Guard, id="1-even-when-asked"),
    pytest.param(live("x"), unknown, ON_REQUEST, 1, "KEEP", "Protecting", (), Guard, id="1-another-finalizer"),
    pytest.param(live(PROTECT), mine, ALWAYS, 2, "KEEP", "NotAsked", (), Nothing, id="2-not-asked"),
    pytest.param(
        live(PROTECT, **{"reprieve.dev/deletion-requested": "o9"}),
        *(mine, ALWAYS, 2, "KEEP", "MarkerForeign", (), Nothing),
        id="2-marker-of-another",
    ),
    pytest.param(
        live(PROTECT, **{"reprieve.dev/deletion-requested": "true"}),
        *(mine, ALWAYS, 2, "KEEP", "MarkerForeign", (), Nothing),
        id="2-marker-true",
    ),
    pytest.param(live(PROTECT, **ASKED), held, ON_REQUEST, 3, "KEEP", "Held", (), Wait, id="3-held-dependent"),
    pytest.param(live(PROTECT, **ASKED, **HOLD), gone, ON_REQUEST, 3, "KEEP", "Held", (), Wait, id="3-held-owner"),
    pytest.param(live(PROTECT, **ASKED), unknown, ON_REQUEST, 3, "KEEP", "Unknown", (), RetryAfter, id="3-unknown"),
    pytest.param(live(PROTECT, **ASKED), held, KEEP_EVERYTHING, 3, "KEEP", "Held", (), Wait, id="3-held-orphan"),
    pytest.param(live(PROTECT, **ASKED), mine, ON_REQUEST, 4, "DELETE", "Asked", (), DeleteOwner, id="4-delete"),
    pytest.param(
        live(PROTECT, **ASKED),
        *(far_and_held, ON_REQUEST, 4, "ORPHAN", "Foreign", (), DeleteOwner),
        id="4-a-hold-in-another-namespace-holds-nobody",
    ),
    pytest.param(
        live(PROTECT, **ASKED),
        *(present(annotations=HOLD), ON_REQUEST, 4, "ORPHAN", "Foreign", (), DeleteOwner),
        id="4-a-hold-of-what-is-foreign-holds-nobody",
    ),
    pytest.param(
        live(PROTECT, **ASKED),
        *(mine, KEEP_EVERYTHING, 4, "ORPHAN", "OrphanOnRequest", (), DeleteOwner),
        id="4-orphan",
    ),
    pytest.param(live(PROTECT, **ASKED), gone, ON_REQUEST, 4, "ORPHAN", "Absent", (), DeleteOwner, id="4-absent"),
    pytest.param(live(PROTECT, **ASKED), foreign, ON_REQUEST, 4, "ORPHAN", "Foreign", (), DeleteOwner, id="4-foreign"),
    pytest.param(terminating(), gone, ALWAYS, 5, "KEEP", "OwnerTerminating", (), Nothing, id="5-absent"),
    pytest.param(terminating("x"), foreign, ALWAYS, 5, "KEEP", "OwnerTerminating", (), Nothing, id="5-foreign"),
    pytest.param(
        terminating(**ASKED),
        *(present(annotations=RECORD), ALWAYS, 5, "KEEP", "OwnerTerminating", (), Nothing),
        id="5-only-recorded",
    ),
    pytest.param(terminating(), far, ALWAYS, 5, "KEEP", "OwnerTerminating", (), Nothing, id="5-refers-from-elsewhere"),
    pytest.param(terminating(), mine, ON_REQUEST, 15, "ORPHAN", "OwnerLost", (STRIP,), Release, id="5-still-refers"),
    pytest.param(terminating(), unknown, ON_REQUEST, 6, "KEEP", "Unknown", (), RetryAfter, id="5-may-refer"),
    pytest.param(
        terminating(PROTECT, **ASKED), unknown, ALWAYS, 6, "KEEP", "Unknown", (), RetryAfter, id="6-even-asked"
    ),
    pytest.param(terminating(PROTECT), gone, ALWAYS, 7, "ORPHAN", "Absent", (), Release, id="7-absent"),
    pytest.param(terminating(PROTECT), gone, ON_REQUEST, 7, "ORPHAN", "Lost", (), Release, id="7-nobody-wanted-that"),
    pytest.param(terminating(PROTECT, **ASKED), gone, ON_REQUEST, 7, "ORPHAN", "Absent", (), Release, id="7-asked"),
    pytest.param(terminating(PROTECT, **ASKED), foreign, ALWAYS, 8, "ORPHAN", "Foreign", (), Release, id="8-no-ref"),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(OTHER), ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-another-owner-only",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(annotations={"reprieve.dev/orphaned-from": "o1/d9"}), ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-copied-record",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(OTHER, deleted=NOW), ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-foreign-and-terminating",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(annotations=RECORD), ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-only-the-dependent-says-so",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED, **NAMED),
        *(foreign, ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-only-the-owner-says-so",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED, **{HELD_DEPENDENTS: '{"owner":"o9","dependents":["d1"]}'}),
        *(present(annotations=RECORD), ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-the-record-of-another-owner",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(far, ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-refers-from-another-namespace",
    ),
    pytest.param(
        terminating(PROTECT),
        *(far, ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-opted-in-and-from-another-namespace",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(far_and_held, ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-held-in-another-namespace",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(evolve(far, meta=evolve(far.meta, deleted=NOW)), ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-terminates-in-another-namespace",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED, **NAMED),
        *(far_and_recorded, ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-recorded-on-both-and-in-another-namespace",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(OURS, namespace=""), ALWAYS, 8, "ORPHAN", "Foreign", (), Release),
        id="8-cluster-scoped-dependent-of-an-owner-in-a-namespace",
    ),
    pytest.param(terminating(PROTECT, **ASKED), dying, ON_REQUEST, 9, "DELETE", "Deleting", (), Wait, id="9-asked"),
    pytest.param(terminating(PROTECT), dying, ALWAYS, 9, "DELETE", "Deleting", (), Wait, id="9-opted-in"),
    pytest.param(terminating(PROTECT), dying, ON_REQUEST, 9, "KEEP", "Lost", (), Release, id="9-not-asked"),
    pytest.param(
        terminating(PROTECT, **ASKED), dying, KEEP_EVERYTHING, 9, "KEEP", "Lost", (), Release, id="9-asked-orphan"
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(OURS, deleted=NOW, annotations=HOLD), ON_REQUEST, 9, "KEEP", "Lost", (), Wait),
        id="9-held",
    ),
    pytest.param(
        terminating(PROTECT, "orphan", **ASKED),
        *(mine, ALWAYS, 10, "ORPHAN", "OrphanPropagation", (LET_GO,), Release),
        id="10-orphan-finalizer",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(OURS, OTHER), ALWAYS, 10, "ORPHAN", "OtherOwner", (evolve(LET_GO, remaining=(OTHER,)),), Release),
        id="10-other-owner",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        present(OURS, OTHER, annotations=RECORD),
        *(ALWAYS, 10, "ORPHAN", "OtherOwner", (evolve(LET_GO, remaining=(OTHER,), forget=True),), Release),
        id="10-forgets-our-record",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        present(OURS, OTHER, annotations={"reprieve.dev/orphaned-from": "o7/d1"}),
        *(ALWAYS, 10, "ORPHAN", "OtherOwner", (evolve(LET_GO, remaining=(OTHER,)),), Release),
        id="10-leaves-another-record",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED, **NAMED),
        present(OTHER, annotations=RECORD),
        *(ALWAYS, 10, "ORPHAN", "OtherOwner", (evolve(LET_GO, remaining=(OTHER,), forget=True),), Release),
        id="10-adopted-after-orphaning",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED), held, ON_REQUEST, 11, "ORPHAN", "Held", (STRIP,), Wait, id="11-dependent-held"
    ),
    pytest.param(
        terminating(PROTECT, **ASKED, **NAMED),
        *(held, ON_REQUEST, 11, "ORPHAN", "Held", (STRIP,), Wait),
        id="11-killed-between-the-record-and-the-patch",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED, **HOLD),
        mine,
        ON_REQUEST,
        11,
        "ORPHAN",
        "Held",
        (STRIP,),
        Wait,
        id="11-owner-held",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED, **NAMED),
        *(present(annotations=HOLD | RECORD), ON_REQUEST, 11, "ORPHAN", "Held", (), Wait),
        id="11-taken-off-already",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED), mine, ON_REQUEST, 12, "DELETE", "Asked", (DELETE,), Wait, id="12-present"
    ),
    pytest.param(
        terminating(PROTECT, "foregroundDeletion", **ASKED),
        *(mine, ON_REQUEST, 12, "DELETE", "Asked", (DELETE,), Wait),
        id="12-foreground",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED, **NAMED),
        *(present(annotations=RECORD), ON_REQUEST, 12, "DELETE", "Asked", (DELETE,), Wait),
        id="12-the-hold-lifted",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(OURS, OTHER, absent_owners={"o2"}), ON_REQUEST, 12, "DELETE", "Asked", (DELETE,), Wait),
        id="12-other-owner-absent",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(OURS, recreated=2), ON_REQUEST, 12, "DELETE", "Asked", (DELETE,), Wait),
        id="12-recreated-twice",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(present(OURS, recreated=3), ON_REQUEST, 12, "KEEP", "Recreated", (LET_GO,), Release),
        id="12-recreated-three-times",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(mine, KEEP_EVERYTHING, 13, "ORPHAN", "OrphanOnRequest", (STRIP,), Release),
        id="13-on-request-orphan",
    ),
    pytest.param(
        terminating(PROTECT, **ASKED),
        *(held, KEEP_EVERYTHING, 13, "ORPHAN", "OrphanOnRequest", (STRIP,), Release),
        id="13-held",
    ),
    pytest.param(terminating(PROTECT), mine, ALWAYS, 14, "DELETE", "OptedIn", (DELETE,), Wait, id="14-opted-in"),
    pytest.param(
        terminating(PROTECT),
        *(present(OURS, recreated=3), ALWAYS, 14, "KEEP", "Recreated", (LET_GO,), Release),
        id="14-recreated",
    ),
    pytest.param(
        terminating(PROTECT), held, ALWAYS, 15, "ORPHAN", "Held", (STRIP,), Release, id="15-opted-in-but-held"
    ),
    pytest.param(terminating(PROTECT), mine, ON_REQUEST, 15, "ORPHAN", "OwnerLost", (STRIP,), Release, id="15-lost"),
    pytest.param(
        terminating(PROTECT, **{"reprieve.dev/deletion-requested": "o9"}),
        *(mine, ON_REQUEST, 15, "ORPHAN", "OwnerLost", (STRIP,), Release),
        id="15-marker-of-another",
    ),
    pytest.param(
        terminating(PROTECT),
        present(OURS, OTHER, absent_owners={"o2"}),
        *(ON_REQUEST, 15, "ORPHAN", "OwnerLost", (STRIP_ONLY_OURS,), Release),
        id="15-only-our-reference",
    ),
    pytest.param(
        terminating(PROTECT, **NAMED),
        *(present(annotations=RECORD), ON_REQUEST, 15, "ORPHAN", "OwnerLost", (), Release),
        id="15-taken-off-already",
    ),
    pytest.param(
        terminating(PROTECT),
        *(present(OURS, annotations=RECORD), ON_REQUEST, 15, "ORPHAN", "OwnerLost", (STRIP,), Release),
        id="15-reference-added-again",
    ),
    pytest.param(absent(), mine, ALWAYS, 16, "ORPHAN", "OwnerAbsent", (STRIP,), Nothing, id="16-dangling"),
    pytest.param(absent(), dying, ALWAYS, 16, "KEEP", "Lost", (), Nothing, id="16-terminates-already"),
    pytest.param(absent(), foreign, ALWAYS, 8, "ORPHAN", "Foreign", (), Nothing, id="16-foreign"),
    pytest.param(absent(), far, ALWAYS, 8, "ORPHAN", "Foreign", (), Nothing, id="16-looked-for-elsewhere"),
    pytest.param(absent(), gone, ALWAYS, 7, "ORPHAN", "Absent", (), Nothing, id="16-absent"),
    pytest.param(absent(), unknown, ALWAYS, 6, "KEEP", "Unknown", (), RetryAfter, id="16-unknown"),
    pytest.param(
        UnknownOwner(OWNER, "timeout"), mine, ALWAYS, 6, "KEEP", "OwnerUnknown", (), RetryAfter, id="6-owner-unknown"
    ),
]


@pytest.mark.parametrize(("owner", "dependent", "policy", "row", "verdict", "reason", "steps", "action"), ROWS)
def test_the_table(owner, dependent, policy, row, verdict, reason, steps, action):
    decision = decide(owner, [dependent], policy, now=NOW)

    only = decision.dependents[0]
    assert (only.row, only.verdict, only.reason, only.steps) == (row, verdict, reason, steps)
    assert only.ref == dependent.ref
    assert only.message
    assert type(decision.owner) is action


@pytest.mark.parametrize(("owner", "dependent", "policy", "row", "verdict", "reason", "steps", "action"), ROWS)
def test_the_written_table_says_what_the_code_does(owner, dependent, policy, row, verdict, reason, steps, action):
    """Each verdict that a row gives stands in that row of the module's docstring."""
    allowed = dict.fromkeys(["4"], "KEEP ORPHAN DELETE") | {cells[0]: cells[4] for cells in table() if cells[0] != "4"}

    assert verdict in re.findall("[A-Z]{3,}", allowed[str(row)])


def test_every_row_is_tried():
    tried = {case.values[3] for case in ROWS}

    assert tried == {int(cells[0]) for cells in table()[1:]} == set(range(1, 17))


# What happens to the owner


def test_an_owner_without_our_finalizer_gets_it_behind_the_others():
    decision = decide(live("x"), [], ON_REQUEST, now=NOW)

    assert decision.owner.steps == (AddFinalizer(OWNER, "7", ("x", PROTECT)),)
    assert decision.steps == decision.owner.steps


def test_an_asked_owner_is_deleted_by_uid_and_version():
    decision = decide(live(PROTECT, **ASKED), [], ON_REQUEST, now=NOW)

    assert decision.owner.steps == (DeleteObject(OWNER, "7"),)


def test_the_last_step_releases_the_owner_and_leaves_other_finalizers():
    decision = decide(terminating("a", PROTECT, "b"), [mine], ON_REQUEST, now=NOW)

    assert decision.steps == (STRIP, RemoveFinalizer(OWNER, "7", ("a", "b")))


def test_without_our_finalizer_release_does_nothing():
    decision = decide(terminating(), [mine], ON_REQUEST, now=NOW)

    assert decision.owner == Release(Reason.SETTLED, "every dependent of GitTrackObject shop/deployment-web is settled")
    assert release_steps(OWNER, owner_meta("x")) == ()


def test_an_owner_without_dependents_is_released():
    assert decide(terminating(PROTECT), [], ON_REQUEST, now=NOW).steps == (RELEASE,)


another = present(OURS, name="zeta", uid="d2")


@pytest.mark.parametrize(
    ("dependents", "action"),
    [
        pytest.param([mine, another], Release, id="all-settled"),
        pytest.param([unknown, another], RetryAfter, id="unknown-before-release"),
        pytest.param([held, another], Release, id="held-is-orphaned-when-nobody-asked"),
    ],
)
def test_the_most_cautious_answer_wins(dependents, action):
    decision = decide(terminating(PROTECT), dependents, ON_REQUEST, now=NOW)

    assert type(decision.owner) is action


def test_a_wait_looks_again_in_time_for_what_is_unknown():
    decision = decide(terminating(PROTECT, **ASKED), [unknown, another], ON_REQUEST, now=NOW)

    assert isinstance(decision.owner, Wait)
    assert NOW < decision.owner.until <= NOW + timedelta(seconds=30)
    assert decision.owner.message.endswith("(and 1 more)")


def test_a_wait_ends_with_the_first_hold():
    later = present(
        OURS,
        name="zeta",
        uid="d2",
        annotations={"reprieve.dev/hold": "x", "reprieve.dev/hold-until": "2026-03-05T00:00:00Z"},
    )
    sooner = present(OURS, annotations=HOLD_UNTIL)

    decision = decide(live(PROTECT, **ASKED), [later, sooner], ON_REQUEST, now=NOW)

    assert decision.owner.until == TOMORROW
    assert "Deployment shop/web is held until 2026-03-02T12:00:00Z: audit" in decision.owner.message


def test_an_endless_hold_says_who_holds_and_why():
    decision = decide(live(PROTECT, **ASKED), [held], ON_REQUEST, now=NOW)

    assert decision.owner == Wait(
        Reason.HELD, "Deployment shop/web is held until the hold is taken off: audit", until=None
    )


def test_a_hold_ends_exactly_at_its_instant():
    dependent = present(OURS, annotations=HOLD_UNTIL)
    owner = terminating(PROTECT, **ASKED)

    before = decide(owner, [dependent], ON_REQUEST, now=TOMORROW - timedelta(microseconds=1))
    after = decide(owner, [dependent], ON_REQUEST, now=TOMORROW)

    assert (before.dependents[0].verdict, after.dependents[0].verdict) == (Verdict.ORPHAN, Verdict.DELETE)


def test_retries_back_off():
    first, later = (
        decide(terminating(PROTECT), [UnknownDependent(REF, "x", attempts)], ON_REQUEST, now=NOW).owner.delta
        for attempts in (1, 4)
    )

    assert timedelta(seconds=24) <= first <= timedelta(seconds=30)
    assert later > 4 * first


def test_the_shortest_retry_counts():
    slow = UnknownDependent(evolve(REF, name="a"), "x", 6)

    for owner in (terminating(PROTECT), absent()):
        decision = decide(owner, [slow, unknown], ON_REQUEST, now=NOW)
        assert decision.owner.delta <= timedelta(seconds=30)


# The owner's record of whom it orphaned under a hold


def record(*uids, owner="o1"):
    return {HELD_DEPENDENTS: json.dumps({"owner": owner, "dependents": list(uids)}, separators=(",", ":"))}


def recording(*uids, version="7"):
    return ChangeMetadata(OWNER, version, annotations=record(*uids))


def held_number(number):
    return present(OURS, name=f"web-{number:04}", uid=f"u{number:04}", annotations=HOLD)


def test_the_owner_records_whom_it_orphans_under_a_hold_before_any_reference_goes():
    decision = decide(terminating(PROTECT, **ASKED), [held, another], ON_REQUEST, now=NOW)

    assert decision.before == (recording("d1"),)
    assert decision.steps == (recording("d1"), STRIP, *decision.dependents[1].steps)
    assert isinstance(decision.owner, Wait)


def test_the_record_is_written_once_and_grows():
    owner = terminating(PROTECT, **ASKED, **NAMED)

    assert decide(owner, [held], ON_REQUEST, now=NOW).before == ()
    assert decide(owner, [held, held_number(2)], ON_REQUEST, now=NOW).before == (recording("d1", "u0002"),)


@pytest.mark.parametrize(
    ("owner", "dependent", "policy"),
    [
        pytest.param(terminating(PROTECT, **ASKED), mine, ON_REQUEST, id="not-held"),
        pytest.param(terminating(PROTECT), held, ALWAYS, id="not-asked"),
        pytest.param(terminating(PROTECT, **ASKED), held, KEEP_EVERYTHING, id="not-to-be-deleted"),
        pytest.param(terminating(PROTECT, **ASKED), far_and_held, ON_REQUEST, id="in-another-namespace"),
        pytest.param(live(PROTECT, **ASKED), held, ON_REQUEST, id="a-live-owner"),
    ],
)
def test_nobody_else_is_recorded(owner, dependent, policy):
    assert decide(owner, [dependent], policy, now=NOW).before == ()


def test_what_finds_no_room_in_the_record_is_let_go_for_good_and_told():
    """An annotation has an end: beyond it a held dependent is kept, rather than forgotten in silence."""
    many = [held_number(number) for number in range(HELD_DEPENDENTS_LIMIT + 2)]

    decision = decide(terminating(PROTECT, **ASKED), many, ON_REQUEST, now=NOW)

    *named, first, second = decision.dependents
    assert {each.row for each in named} == {11}
    assert decision.before == (recording(*[each.ref.uid for each in named]),)
    assert [(each.row, each.verdict, each.reason) for each in (first, second)] == [(10, "ORPHAN", "TooManyHeld")] * 2
    assert first.steps == (RemoveOwnerReference(first.ref, "3", "o1"),)
    assert "records 500 dependents already" in first.message
    assert len(decision.before[0].annotations[HELD_DEPENDENTS]) < 64 * 1024


def test_a_record_that_somebody_filled_up_leaves_no_room():
    full = record(*(f"x{number}" for number in range(2 * HELD_DEPENDENTS_LIMIT)))

    decision = decide(terminating(PROTECT, **ASKED, **full), [held], ON_REQUEST, now=NOW)

    assert (decision.dependents[0].reason, decision.before) == (Reason.TOO_MANY_HELD, ())
    assert type(decision.owner) is Release


@pytest.mark.parametrize(
    ("value", "uids"),
    [
        pytest.param('{"owner":"o1","dependents":["d1","d2"]}', ("d1", "d2"), id="ours"),
        pytest.param(
            '{"owner":"o1","dependents":["d1","d1",7,"",null]}', ("d1",), id="what-is-no-uid-counts-for-nothing"
        ),
        pytest.param('{"owner":"o9","dependents":["d1"]}', (), id="of-another-owner"),
        pytest.param('{"dependents":["d1"]}', (), id="of-nobody"),
        pytest.param('{"owner":"o1","dependents":"d1"}', (), id="no-list"),
        pytest.param('{"owner":["o1"],"dependents":["d1"]}', (), id="an-owner-that-is-no-text"),
        pytest.param('["o1","d1"]', (), id="no-object"),
        pytest.param("o1/d1", (), id="no-json"),
        pytest.param("", (), id="empty"),
        pytest.param("[" * 100_000, (), id="nested"),
    ],
)
def test_a_record_counts_for_the_owner_that_it_names_and_is_read_whatever_it_says(value, uids):
    assert held_dependents(owner_meta(**{HELD_DEPENDENTS: value})) == uids


def test_a_record_without_a_uid_is_nobodys():
    assert held_dependents(ObjectMeta("x", annotations=record("d1", owner=""))) == ()


@pytest.mark.parametrize(
    ("owner", "dependent", "may"),
    [("shop", "shop", True), ("shop", "elsewhere", False), ("shop", "", False), ("", "shop", True), ("", "", True)],
)
def test_an_owner_in_a_namespace_owns_within_it(owner, dependent, may):
    assert may_own(owner, dependent) is may
    meta = evolve(owner_meta(), namespace=owner)
    assert concerns(meta, present(OURS, namespace=dependent).meta) is may


# Stories


def test_a_lost_dependent_of_a_foreground_deletion_says_so():
    """Kubernetes: a foreground deletion takes dependents at once, whatever finalizers the owner carries."""
    decision = decide(terminating(PROTECT, "foregroundDeletion"), [dying], ON_REQUEST, now=NOW)

    assert "foreground" in decision.dependents[0].message
    assert "shield" in decision.dependents[0].message
    assert type(decision.owner) is Release


def test_a_protected_owner_gets_finalizer_and_marker_before_it_is_deleted():
    """faros#101: a request for a tracker must not be taken for an accident by what it tracks."""
    parent = terminating(PROTECT, **ASKED)
    bare = present(OURS, protected=True)
    guarded = present(OURS, protected=True, finalizers=(PROTECT,))
    marked = evolve(guarded, meta=evolve(guarded.meta, annotations={"reprieve.dev/deletion-requested": "d1"}))

    steps = [decide(parent, [each], ON_REQUEST, now=NOW).dependents[0].steps for each in (bare, guarded, marked)]

    assert steps == [(AddFinalizer(WEB, "3", (PROTECT,)),), (MarkOwner(WEB, "3"),), (DELETE,)]


def test_an_owner_without_a_uid_asks_for_nothing_and_owns_nothing():
    """An empty UID in a hand-written object must not match another empty one."""
    nameless = TerminatingOwner(GTO, ObjectMeta("x", finalizers=(PROTECT,), annotations=dict.fromkeys(ASKED, "")))
    dependent = present(OwnerReference("v1", "X", "x", ""), annotations={"reprieve.dev/orphaned-from": "/d1"})

    decision = decide(nameless, [dependent], ALWAYS, now=NOW)

    assert decision.dependents[0].reason is Reason.FOREIGN


def test_a_foreign_controllers_dependent_keeps_its_controller():
    """faros: a second owner's reference was replaced wholesale, which stole the object."""
    controller = evolve(OTHER, controller=True)

    decision = decide(terminating(PROTECT, **ASKED), [present(controller, OURS)], ALWAYS, now=NOW)

    assert decision.dependents[0].steps == (RemoveOwnerReference(WEB, "3", "o1", (controller,)),)


# The policy


@pytest.mark.parametrize(
    ("config", "namespace", "owner", "dependent", "on_request"),
    [
        pytest.param(("Delete", False), "", "", "", "Delete", id="configuration"),
        pytest.param(("Delete", False), "Orphan", "", "", "Orphan", id="namespace-safer"),
        pytest.param(("Delete", False), "", "Orphan", "", "Orphan", id="owner-safer"),
        pytest.param(("Delete", False), "", "", "Orphan", "Orphan", id="dependent-safer"),
        pytest.param(("Orphan", False), "Delete", "Delete", "Delete", "Orphan", id="delete-not-allowed"),
        pytest.param(("Delete", False), "Orphan", "Delete", "Delete", "Orphan", id="delete-not-allowed-over-safer"),
        pytest.param(("Orphan", True), "", "", "Delete", "Delete", id="delete-allowed"),
        pytest.param(("Orphan", True), "Delete", "", "", "Delete", id="delete-allowed-for-a-namespace"),
        pytest.param(("Delete", True), "Delete", "Delete", "Orphan", "Orphan", id="dependent-before-owner"),
        pytest.param(("Orphan", True), "Orphan", "Delete", "", "Delete", id="owner-before-namespace"),
        pytest.param(("Delete", True), "", "", "delete", "Orphan", id="unreadable-is-safer"),
        pytest.param(("Delete", True), "", "Keep", "", "Orphan", id="unknown-word-is-safer"),
    ],
)
def test_annotations_come_before_the_configuration(config, namespace, owner, dependent, on_request):
    layers = [{"reprieve.dev/on-request": each} if each else {} for each in (namespace, owner, dependent)]

    policy = effective_policy(Policy(Verb(config[0]), Verb.DELETE, config[1]), *layers)

    assert policy == Policy(Verb(on_request), Verb.DELETE, config[1])


def test_otherwise_has_an_annotation_of_its_own():
    dependent = present(OURS, annotations={"reprieve.dev/otherwise": "Orphan"})

    decision = decide(terminating(PROTECT), [dependent], ALWAYS, now=NOW)

    assert decision.dependents[0].verdict is Verdict.ORPHAN


def test_the_annotation_of_the_namespace_counts():
    dependent = present(OURS, namespace_annotations={"reprieve.dev/on-request": "Orphan"})

    decision = decide(terminating(PROTECT, **ASKED), [dependent], ALWAYS, now=NOW)

    assert decision.dependents[0].row == 13


def test_a_policy_is_read_from_the_configuration():
    entry = {"onRequest": "Delete", "otherwise": "Orphan", "allowDeleteByAnnotation": True}

    assert read_policy(entry, where="protection[0]") == Policy(
        Verb.DELETE, Verb.ORPHAN, allow_delete_by_annotation=True
    )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        pytest.param({}, "protection[2].onRequest is missing: write Delete or Orphan, it has no default", id="neither"),
        pytest.param({"onRequest": "Delete"}, "protection[2].otherwise is missing", id="one-alone"),
        pytest.param({"onRequest": "delete", "otherwise": "Orphan"}, "is 'delete': write Delete or Orphan", id="case"),
        pytest.param({"onRequest": None, "otherwise": "Orphan"}, "is None: write Delete or Orphan", id="null"),
        pytest.param({"onRequest": ["Delete"], "otherwise": "Orphan"}, "write Delete or Orphan", id="a-list"),
        pytest.param(
            {"onRequest": "Delete", "otherwise": "Orphan", "allowDeleteByAnnotation": "yes"},
            "protection[2].allowDeleteByAnnotation is 'yes': write true or false",
            id="allow-is-text",
        ),
    ],
)
def test_a_policy_without_both_verbs_is_an_error(entry, says):
    with pytest.raises(PolicyInvalidError, match=re.escape(says)):
        read_policy(entry, where="protection[2]")


def test_a_policy_made_in_code_takes_verbs_only():
    with pytest.raises(PolicyInvalidError, match=re.escape("otherwise is 'Delete'")):
        Policy(Verb.ORPHAN, "Delete")


# Reading


def test_an_owner_is_live_until_it_has_a_deletion_timestamp():
    meta = owner_meta(PROTECT)

    assert owner_of(Resource(GTO, meta)) == LiveOwner(GTO, meta)
    assert owner_of(Resource(GTO, evolve(meta, deleted=NOW))) == terminating(PROTECT)


@pytest.mark.parametrize(
    ("value", "owner_uid"),
    [
        pytest.param("o1/d1", "o1", id="valid"),
        pytest.param("o1/d9", "", id="copied"),
        pytest.param("o1", "", id="no-second-part"),
        pytest.param("", "", id="empty"),
    ],
)
def test_a_record_counts_only_on_the_object_it_was_written_for(value, owner_uid):
    assert recorded_owner(ObjectMeta("x", uid="d1", annotations={"reprieve.dev/orphaned-from": value})) == owner_uid


def test_a_marker_is_bound_to_the_uid():
    assert is_asked(owner_meta(**ASKED))
    assert not is_asked(ObjectMeta("x", annotations=dict.fromkeys(ASKED, "")))


@pytest.mark.parametrize(("owner", "dependent", "policy", "row", "verdict", "reason", "steps", "action"), ROWS)
def test_a_decision_goes_through_plain_data(owner, dependent, policy, row, verdict, reason, steps, action):
    decision = decide(owner, [dependent], policy, now=NOW)

    assert from_plain(to_plain(decision)) == decision
    assert isinstance(decision, ProtectionDecision)
    assert from_plain(to_plain(owner)) == owner
    assert from_plain(to_plain(dependent)) == dependent


# The page


def test_the_page_shows_the_table_of_the_code():
    """On a change of the table: paste what ``render_table()`` gives between the two marks of the page."""
    page = (Path(__file__).parents[2] / "docs" / "protection.md").read_text(encoding="utf-8")

    assert f"<!-- table: begin -->\n{render_table()}\n<!-- table: end -->" in page
