"""Holds: the one question that every path asks. When in doubt, held."""

from datetime import timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.holds import (
    HOLD,
    HOLD_UNTIL,
    Free,
    Held,
    any_hold,
    hold_document,
    hold_from_document,
    hold_of,
)
from reprieve.core.objects import meta_from_json
from reprieve.core.requests import hold_stop
from tests.unit.builders import NOW, a_backup, facts

NOON = "2024-04-04T12:00:00Z"
LATER = "2024-04-04T12:00:01Z"


@pytest.mark.parametrize(
    ("annotations", "state"),
    [
        pytest.param({}, Free(), id="nothing"),
        pytest.param({"other": "x"}, Free(), id="other-annotations"),
        pytest.param({HOLD: "audit"}, Held("audit"), id="for-ever"),
        pytest.param({HOLD: ""}, Held("no reason given"), id="empty-reason"),
        pytest.param({HOLD: "audit", HOLD_UNTIL: LATER}, Held("audit", NOW + timedelta(seconds=1)), id="until-later"),
        pytest.param({HOLD: "audit", HOLD_UNTIL: NOON}, Free(), id="ends-exactly-at-hold-until"),
        pytest.param(
            {HOLD: "audit", HOLD_UNTIL: "2024-04-04T14:00:01+02:00"},
            Held("audit", NOW + timedelta(seconds=1)),
            id="offset",
        ),
        pytest.param({HOLD_UNTIL: LATER}, Held("no reason given", NOW + timedelta(seconds=1)), id="only-a-date"),
        pytest.param({HOLD_UNTIL: NOON}, Free(), id="only-a-date-that-passed"),
    ],
)
def test_a_hold(annotations, state):
    """`reprieve.dev/hold` and optional `reprieve.dev/hold-until`. It ends exactly at hold-until."""
    assert hold_of(annotations, now=NOW) == state


@pytest.mark.parametrize("date", ["", "tomorrow", "2024-04-04", "2024-04-04T12:00:00", "2024-13-01T00:00:00Z", "2000"])
def test_an_unreadable_date_holds(date):
    """An unreadable date holds, and says what is wrong with it; a date without an offset is one."""
    held = hold_of({HOLD: "audit", HOLD_UNTIL: date}, now=NOW)

    assert held == Held(f"audit (reprieve.dev/hold-until {date!r} is not an RFC 3339 date with an offset, so it holds)")


@pytest.mark.parametrize(
    ("holders", "state"),
    [
        pytest.param([{}, {}], Free(), id="none"),
        pytest.param([{}, {HOLD: "a"}], Held("a"), id="one"),
        pytest.param([{HOLD: "b", HOLD_UNTIL: LATER}, {HOLD: "z"}], Held("z"), id="an-endless-one-before-all"),
        pytest.param([{HOLD: "z"}, {HOLD: "a"}, {HOLD: "m"}], Held("a"), id="endless-ones-by-reason"),
        pytest.param(
            [
                {HOLD: "a", HOLD_UNTIL: LATER},
                {HOLD: "b", HOLD_UNTIL: "2024-04-05T00:00:00Z"},
                {HOLD: "c", HOLD_UNTIL: NOON},
            ],
            Held("b", NOW + timedelta(hours=12)),
            id="the-longest",
        ),
        pytest.param(
            [{HOLD: "b", HOLD_UNTIL: LATER}, {HOLD: "a", HOLD_UNTIL: LATER}],
            Held("b", NOW + timedelta(seconds=1)),
            id="equal-dates",
        ),
    ],
)
def test_several_holders(holders, state):
    """A dependent is held when it or its owner carries a hold; the order of the holders does not matter."""
    assert {any_hold(order, now=NOW) for order in permutations(holders)} == {state}


def test_a_hold_is_mirrored():
    """A backup's hold is mirrored to reprieve-hold.json: what is read back is what was written."""
    annotations = {HOLD: "audit", HOLD_UNTIL: LATER, "other": "x"}

    assert hold_from_document(hold_document(annotations)) == {HOLD: "audit", HOLD_UNTIL: LATER}
    assert hold_document({"other": "x"}) == {}


@pytest.mark.parametrize("document", [None, [], "x", 7, {}, {"reason": "x"}, {HOLD: 7}])
def test_a_document_of_another_shape_holds(document):
    assert isinstance(hold_of(hold_from_document(document), now=NOW), Held)


@pytest.mark.parametrize("until", [NOON, LATER])
def test_a_document_whose_reason_is_no_text_still_has_its_date(until):
    assert isinstance(
        hold_of(hold_from_document({HOLD: 7, HOLD_UNTIL: until}), now=NOW), Free if until == NOON else Held
    )


def test_the_record_and_the_bucket_are_asked_alike():
    """One function is asked by all paths; a record that comes back is held again by the document."""
    assert hold_stop(a_backup(), facts().directory, now=NOW) is None


def test_the_sentence():
    assert Held("audit", NOW).sentence() == "held until 2024-04-04T12:00:00Z: audit"
    assert Held("audit").sentence() == "held until the hold is taken off: audit"


@given(st.text(), st.text())
def test_whatever_people_write(reason, until):
    """A hold never raises, and only a date that passed sets free."""
    state = hold_of({HOLD: reason, HOLD_UNTIL: until}, now=NOW)

    assert isinstance(state, Held)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        pytest.param(4711, "4711", id="a-number"),
        pytest.param(True, "true", id="yes-or-no"),
        pytest.param(None, "no reason given", id="nothing-after-the-colon"),
        pytest.param(["legal"], '["legal"]', id="a-list"),
    ],
)
def test_a_hold_that_is_no_text_still_holds(written, reason):
    """``reprieve.dev/hold: 4711``, unquoted, was dropped while reading, and the backup was deleted under its hold."""
    meta = meta_from_json({"name": "b", "annotations": {HOLD: written}})
    held = hold_of(meta.annotations, now=NOW)
    assert isinstance(held, Held)
    assert held.reason == reason


def test_a_uid_label_that_is_no_text_is_still_a_label():
    """``velero.io/backup-uid: 5`` counted as unlabelled, and the request as one for whatever backup has the name."""
    assert meta_from_json({"name": "r", "labels": {"velero.io/backup-uid": 5}}).labels["velero.io/backup-uid"] == "5"
