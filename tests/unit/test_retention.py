"""Retention: one answer a backup. The table of reasons, the order, the limit, the pause, and the stories."""

from datetime import timedelta

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.backups import (
    BACKUP_NAME,
    BACKUP_UID,
    GC_FAILURE,
    RETENTION_FAILURES,
    SCHEDULE_NAME,
    SYNCED_AT,
    Directory,
    MetadataPresent,
    RequestPhase,
    RequestState,
)
from reprieve.core.holds import HOLD, HOLD_UNTIL, Held, hold_of
from reprieve.core.marks import MarksUnasked
from reprieve.core.objects import ObjectMeta
from reprieve.core.reasons import Reason
from reprieve.core.requests import Admitted, Deferred, DeletionFacts, Refused, admit
from reprieve.core.retention import (
    Examined,
    Failures,
    FileRequest,
    Keep,
    LocationsKnown,
    LocationsUnreadable,
    RetentionFacts,
    RetentionRules,
    candidates,
    count_failures,
    draft_request,
    next_look,
    pause_end,
    read_failures,
    retain,
    write_failures,
)
from reprieve.core.steps import ChangeMetadata, CreateRequest, merge_patch
from reprieve.core.values import format_instant
from tests.unit.builders import NOW, STARTED, a_backup, a_location, a_request, inventory

HOUR = timedelta(hours=1)
RULES = RetentionRules()
YESTERDAY = NOW - timedelta(days=1)


def expired(name="foo", *, schedule="", labels=None, deleted=None, **fields):
    """A backup that expired yesterday."""
    made = a_backup(name, **{"uid": f"uid-{name}", "expiration": YESTERDAY, **fields})
    marks = {**({SCHEDULE_NAME: schedule} if schedule else {}), **(labels or {})}
    return attrs.evolve(made, meta=attrs.evolve(made.meta, labels=marks, deleted=deleted))


def failed(name="foo-1", *, at, backup="foo", uid="uid-foo"):
    state = RequestState(uid=uid, finished_at=at)
    return a_request(
        name, backup=backup, uid=uid, phase=RequestPhase.PROCESSED, errors=["denied"], state=state, created=at
    )


def facts(*backups, admission=None, **fields):
    """A readable default location, and an admission that says yes to every backup."""
    examined = [Examined(backup.ref, admission or Admitted()) for backup in backups]
    defaults = {"locations": LocationsKnown([a_location()]), "examined": examined}
    return RetentionFacts(backups, **{**defaults, **fields})


def answers(given_facts, *, rules=RULES, now=NOW):
    return {answer.backup.name: answer for answer in retain(given_facts, rules, now=now)}


def verdict(backup, *, rules=RULES, now=NOW, **fields):
    return answers(facts(backup, **fields), rules=rules, now=now)[backup.name].verdict


def filed(given_facts, **options):
    return [name for name, answer in answers(given_facts, **options).items() if isinstance(answer.verdict, FileRequest)]


LATER = NOW + HOUR
SYNCED = NOW - timedelta(hours=23)
NO_LOCATION = LocationsKnown([])
READ_ONLY = LocationsKnown([a_location(read_only=True)])
AWAY = LocationsKnown([a_location(available=False)])
AWAY_READ_ONLY = LocationsKnown([a_location(available=False, read_only=True)])
BROKEN = LocationsUnreadable("timeout")


@pytest.mark.parametrize(
    ("backup", "fields", "reason", "until"),
    [
        pytest.param(expired(deleted=NOW), {}, Reason.DELETING, None, id="terminating"),
        pytest.param(expired(expiration=None), {}, Reason.NEVER_EXPIRES, None, id="no-expiration-is-never"),
        pytest.param(expired(expiration=LATER), {}, Reason.NOT_DUE, LATER, id="not-due"),
        pytest.param(expired(annotations={HOLD: "audit"}), {}, Reason.HELD, None, id="held"),
        pytest.param(
            expired(annotations={HOLD: "x", HOLD_UNTIL: format_instant(LATER)}), {}, Reason.HELD, LATER, id="held-until"
        ),
        pytest.param(
            expired(annotations={HOLD: "x", HOLD_UNTIL: "soon"}), {}, Reason.HELD, None, id="an-unreadable-date-holds"
        ),
        pytest.param(expired(phase=""), {}, Reason.BACKUP_IN_PROGRESS, None, id="nobody-looked-at-it"),
        pytest.param(expired(phase="InProgress"), {}, Reason.BACKUP_IN_PROGRESS, None, id="running"),
        pytest.param(expired(phase="FinalizingPartiallyFailed"), {}, Reason.BACKUP_IN_PROGRESS, None, id="finalizing"),
        pytest.param(
            expired(), {"requests": [a_request(uid="uid-foo")]}, Reason.REQUEST_PENDING, None, id="request-pending"
        ),
        pytest.param(
            expired(),
            {"requests": [a_request(uid="uid-foo", phase=RequestPhase.IN_PROGRESS)]},
            Reason.REQUEST_PENDING,
            None,
            id="request-at-work",
        ),
        pytest.param(
            expired(), {"requests": [a_request(uid="")]}, Reason.REQUEST_PENDING, None, id="unbound-request-pending"
        ),
        pytest.param(expired(), {"locations": NO_LOCATION}, Reason.LOCATION_NOT_FOUND, None, id="location-not-found"),
        pytest.param(expired(), {"locations": BROKEN}, Reason.UNREADABLE, None, id="locations-unreadable"),
        pytest.param(expired(), {"locations": AWAY}, Reason.LOCATION_UNAVAILABLE, None, id="location-unavailable"),
        pytest.param(expired(), {"locations": READ_ONLY}, Reason.LOCATION_READ_ONLY, None, id="location-read-only"),
        pytest.param(
            expired(), {"locations": AWAY_READ_ONLY}, Reason.LOCATION_UNAVAILABLE, None, id="unavailable-comes-first"
        ),
        pytest.param(expired(schedule="nightly"), {}, Reason.LAST_GOOD, None, id="last-good-of-its-schedule"),
        pytest.param(
            expired(annotations={SYNCED_AT: format_instant(SYNCED)}), {}, Reason.GRACE_AFTER_SYNC, LATER, id="grace"
        ),
        pytest.param(
            expired(annotations={RETENTION_FAILURES: write_failures(Failures(2, NOW - HOUR))}),
            {},
            Reason.PAUSED,
            LATER,
            id="in-its-pause",
        ),
        pytest.param(expired(), {"examined": []}, Reason.NOT_EXAMINED, None, id="admission-not-known"),
        pytest.param(
            expired(), {"admission": Refused(Reason.NO_ADAPTER, "why")}, Reason.NO_ADAPTER, None, id="would-be-refused"
        ),
        pytest.param(
            expired(),
            {"admission": Deferred(Reason.RESTORE_RUNNING, LATER)},
            Reason.RESTORE_RUNNING,
            LATER,
            id="would-wait",
        ),
    ],
)
def test_what_keeps_a_backup(backup, fields, reason, until):
    found = verdict(backup, **fields)

    assert isinstance(found, Keep)
    assert (found.reason, found.until) == (reason, until)
    assert found.message


@pytest.mark.parametrize(
    ("backup", "fields"),
    [
        pytest.param(expired(), {}, id="expired"),
        pytest.param(expired(expiration=NOW), {}, id="expiry-exactly-now-is-due"),
        pytest.param(expired(phase="Failed"), {}, id="failed"),
        pytest.param(expired(phase="PartiallyFailed", schedule="nightly"), {}, id="only-completed-ones-are-last-good"),
        pytest.param(expired(phase="Deleting"), {}, id="a-deletion-that-failed-is-asked-for-again"),
        pytest.param(expired(annotations={HOLD: "x", HOLD_UNTIL: format_instant(NOW)}), {}, id="hold-ends-now"),
        pytest.param(expired(), {"requests": [a_request(uid="another")]}, id="request-for-another-uid"),
        pytest.param(
            expired(), {"requests": [a_request(uid="", created=STARTED - HOUR)]}, id="unbound-request-older-than-it"
        ),
        pytest.param(
            expired(), {"requests": [a_request(uid="uid-foo", phase=RequestPhase.PROCESSED)]}, id="request-processed"
        ),
        pytest.param(expired(annotations={SYNCED_AT: "yesterday"}), {}, id="unreadable-synced-at-has-no-grace"),
        pytest.param(
            expired(annotations={SYNCED_AT: format_instant(NOW - timedelta(hours=24))}), {}, id="grace-is-over"
        ),
        pytest.param(
            expired(annotations={RETENTION_FAILURES: write_failures(Failures(1, NOW - HOUR))}), {}, id="pause-ends-now"
        ),
    ],
)
def test_what_gets_a_request(backup, fields):
    found = verdict(backup, **fields)

    assert isinstance(found, FileRequest)
    assert found.request.backup == "foo"
    assert dict(found.request.labels) == {BACKUP_NAME: "foo", BACKUP_UID: "uid-foo"}
    assert found.message.startswith("it expired at ")


def test_a_request_is_due_at_the_moment_of_expiry():
    """velero#2277: backups outlive their TTL by up to an hour, as only a scan looks (D-38). The expiry is a time."""
    soon, later = expired("soon", expiration=NOW + HOUR), expired("later", expiration=NOW + 2 * HOUR)
    waiting = retain(facts(later, soon), RULES, now=NOW)

    at = next_look(waiting)

    assert at == NOW + HOUR
    assert filed(facts(later, soon), now=at - timedelta(microseconds=1)) == []
    assert filed(facts(later, soon), now=at) == ["soon"]


def test_without_anything_that_changes_with_time_there_is_no_next_look():
    assert next_look(retain(facts(expired("a"), expired("b", expiration=None)), RULES, now=NOW)) is None


# keepLast


def nightly(day, **fields):
    made = NOW - timedelta(days=30 - day)
    return expired(f"nightly-{day:02}", **{"schedule": "nightly", "completed": made, **fields})


@pytest.mark.parametrize(
    ("backups", "keep_last", "gone"),
    [
        pytest.param([nightly(1), nightly(2), nightly(3)], 1, {"nightly-01", "nightly-02"}, id="the-newest-stays"),
        pytest.param([nightly(1), nightly(2), nightly(3)], 2, {"nightly-01"}, id="the-two-newest-stay"),
        pytest.param([nightly(1), nightly(2)], 0, {"nightly-01", "nightly-02"}, id="off"),
        pytest.param([nightly(1), nightly(2)], 9, set(), id="fewer-than-are-kept"),
        pytest.param(
            [nightly(1), nightly(2, phase="PartiallyFailed"), nightly(3, phase="Failed")],
            1,
            {"nightly-02", "nightly-03"},
            id="completed-ones-only",
        ),
        pytest.param(
            [nightly(1), nightly(2, expiration=NOW + HOUR)], 1, {"nightly-01"}, id="a-newer-one-that-is-not-due-counts"
        ),
        pytest.param([nightly(1, completed=None), nightly(2)], 1, {"nightly-01"}, id="no-completion-is-oldest"),
        pytest.param([nightly(1), nightly(2, deleted=NOW)], 1, set(), id="one-that-is-going-does-not-count"),
        pytest.param([nightly(1), expired("plain")], 1, {"plain"}, id="plain-backups-expire-as-asked"),
        pytest.param(
            [nightly(1), expired("w", schedule="weekly", completed=NOW)], 1, set(), id="each-schedule-its-own"
        ),
    ],
)
def test_keep_last(backups, keep_last, gone):
    """velero#9061: keep at least N good backups of each schedule (D-41)."""
    assert set(filed(facts(*backups), rules=RetentionRules(keep_last=keep_last))) == gone


BROUGHT = {SYNCED_AT: format_instant(NOW - timedelta(days=9))}


@pytest.mark.parametrize(
    ("backups", "keep_last", "gone"),
    [
        pytest.param([nightly(1), nightly(2, annotations=BROUGHT)], 1, set(), id="a-newer-one-from-the-bucket"),
        pytest.param(
            [nightly(1), nightly(2), *(nightly(day, annotations=BROUGHT) for day in (3, 4, 5))],
            1,
            {"nightly-01", "nightly-03", "nightly-04"},
            id="three-newer-ones-from-the-bucket",
        ),
        pytest.param([nightly(1, annotations=BROUGHT), nightly(2)], 1, {"nightly-01"}, id="an-older-one-from-it"),
        pytest.param(
            [nightly(day, annotations=BROUGHT) for day in (1, 2)], 1, {"nightly-01"}, id="all-of-them-from-the-bucket"
        ),
        pytest.param(
            [nightly(1), nightly(2, completed=NOW + HOUR)], 1, {"nightly-02"}, id="a-completion-that-is-still-to-come"
        ),
        pytest.param([nightly(1), nightly(2, completed=NOW)], 1, {"nightly-01"}, id="completed-just-now"),
        pytest.param([nightly(2, completed=NOW + HOUR)], 1, set(), id="the-only-one-though-it-is-still-to-come"),
        pytest.param([nightly(1), nightly(2, annotations=BROUGHT)], 0, {"nightly-01", "nightly-02"}, id="off"),
    ],
)
def test_whoever_writes_to_the_bucket_pushes_nothing_out_of_keep_last(backups, keep_last, gone):
    """Ten made-up backups that were newer than all had every real one expire, the newest too."""
    assert set(filed(facts(*backups), rules=RetentionRules(keep_last=keep_last))) == gone


def test_the_message_says_where_it_was_counted():
    kept = answers(facts(nightly(1), nightly(2, annotations=BROUGHT)))

    assert kept["nightly-01"].verdict.message == (
        "it is the newest Completed backup of schedule nightly, of those that did not come from the bucket (keepLast 1)"
    )
    assert "bucket" not in kept["nightly-02"].verdict.message


def test_the_last_good_one_stays_while_a_newer_one_is_asked_away():
    """Else the two of them would go, one after the other, and nothing good were left."""
    asked = a_request("nightly-02-x", backup="nightly-02", uid="uid-nightly-02")

    assert filed(facts(nightly(1), nightly(2), requests=[asked])) == []


def test_the_message_of_the_last_good_has_the_number():
    kept = answers(facts(nightly(1), nightly(2)), rules=RetentionRules(keep_last=2))

    assert kept["nightly-01"].verdict.message == (
        "it is one of the 2 newest Completed backups of schedule nightly (keepLast 2)"
    )
    assert verdict(nightly(1)).message == "it is the newest Completed backup of schedule nightly (keepLast 1)"


# maxRequests and order


def test_at_most_max_requests_a_pass_oldest_expiry_first():
    backups = [expired(f"b{n}", expiration=YESTERDAY + n * HOUR) for n in range(5)]
    found = answers(facts(*reversed(backups)), rules=RetentionRules(max_requests=2))

    assert list(found) == ["b0", "b1", "b2", "b3", "b4"]
    assert [name for name, answer in found.items() if isinstance(answer.verdict, FileRequest)] == ["b0", "b1"]
    assert {answer.verdict.reason for name, answer in found.items() if name > "b1"} == {Reason.MAX_REQUESTS}
    assert found["b4"].verdict.message == "its turn comes later: 2 requests in this pass (maxRequests 2)"


def test_what_was_filed_at_this_instant_counts():
    """Where the clock stands still, several looks are one pass."""
    backups = [expired(f"b{n}", expiration=YESTERDAY + n * HOUR) for n in range(3)]
    found = answers(facts(*backups, filed=1), rules=RetentionRules(max_requests=2))

    assert [name for name, answer in found.items() if isinstance(answer.verdict, FileRequest)] == ["b0"]
    assert found["b1"].verdict.message == "its turn comes later: 2 requests in this pass (maxRequests 2)"


def test_what_would_be_refused_takes_no_place():
    """Else fifty backups that can never go would keep all others for ever."""
    stuck, free = expired("a"), expired("b", expiration=YESTERDAY + HOUR)
    examined = [Examined(stuck.ref, Refused(Reason.NO_ADAPTER, "why")), Examined(free.ref, Admitted())]

    assert filed(facts(stuck, free, examined=examined), rules=RetentionRules(max_requests=1)) == ["b"]


def test_candidates_are_those_whose_admission_decides_oldest_first():
    backups = [expired("new"), expired("old", expiration=YESTERDAY - HOUR), expired("held", annotations={HOLD: "x"})]

    assert [b.name for b in candidates(facts(*backups, examined=[]), RULES, now=NOW)] == ["old", "new"]


def test_the_draft_is_admitted_as_the_request_would_be():
    backup = expired()
    known = DeletionFacts(
        request=draft_request(backup),
        backup=backup,
        location=a_location(),
        directory=Directory(MetadataPresent(STARTED)),
        marks=MarksUnasked(),
    )

    assert isinstance(admit(known, inventory(), now=NOW), Admitted)


# The label velero.io/gc-failure


@pytest.mark.parametrize(
    ("locations", "label"),
    [
        pytest.param(NO_LOCATION, "BSLNotFound", id="not-found"),
        pytest.param(BROKEN, "BSLCannotGet", id="cannot-get"),
        pytest.param(AWAY, "BSLUnavailable", id="unavailable"),
        pytest.param(READ_ONLY, "BSLReadOnly", id="read-only"),
    ],
)
def test_the_gc_failure_label_is_set_once(locations, label):
    """velero#4728: failing ones can be selected (D-42); Velero never sets it for an unavailable location."""
    fresh, labelled = expired(), expired(labels={GC_FAILURE: label})

    (step,) = answers(facts(fresh, locations=locations))["foo"].steps

    assert merge_patch(step) == {"metadata": {"labels": {GC_FAILURE: label}}}
    assert (step.ref, step.resource_version) == (fresh.ref, "1")
    assert answers(facts(labelled, locations=locations))["foo"].steps == ()


@pytest.mark.parametrize(
    ("backup", "locations", "patch"),
    [
        pytest.param(expired(labels={GC_FAILURE: "BSLReadOnly"}), None, {GC_FAILURE: None}, id="back-to-normal"),
        pytest.param(
            expired(labels={GC_FAILURE: "BSLReadOnly"}), AWAY, {GC_FAILURE: "BSLUnavailable"}, id="another-failure"
        ),
        pytest.param(
            expired(expiration=LATER, labels={GC_FAILURE: "BSLReadOnly"}), READ_ONLY, {GC_FAILURE: None}, id="extended"
        ),
        pytest.param(expired(labels={GC_FAILURE: "other"}), None, {GC_FAILURE: None}, id="a-foreign-value-when-due"),
    ],
)
def test_the_gc_failure_label_follows_the_location(backup, locations, patch):
    steps = answers(facts(backup, **({"locations": locations} if locations else {})))["foo"].steps

    assert merge_patch(steps[0]) == {"metadata": {"labels": patch}}


@pytest.mark.parametrize(
    "backup",
    [
        pytest.param(expired(expiration=LATER), id="not-due"),
        pytest.param(expired(expiration=LATER, labels={GC_FAILURE: "other"}), id="a-foreign-value-while-not-due"),
        pytest.param(expired(deleted=NOW, labels={GC_FAILURE: "BSLNotFound"}), id="terminating"),
    ],
)
def test_the_label_of_what_is_not_due_is_let_alone(backup):
    assert answers(facts(backup, locations=READ_ONLY))["foo"].steps == ()


def test_the_label_goes_before_the_request_is_filed():
    steps = answers(facts(expired(labels={GC_FAILURE: "BSLReadOnly"})))["foo"].steps

    assert [type(step) for step in steps] == [ChangeMetadata, CreateRequest]


# Failures, and the pause after them


@pytest.mark.parametrize(
    ("count", "hours"),
    [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 24), (7, 24), (10_000, 24)],
)
def test_the_pause_doubles_up_to_a_day(count, hours):
    assert pause_end(Failures(count, NOW)) == NOW + timedelta(hours=hours)


def test_without_a_failure_there_is_no_pause():
    assert pause_end(Failures()) is None


@pytest.mark.parametrize(
    ("known", "requests", "counted"),
    [
        pytest.param(Failures(), [], Failures(), id="none"),
        pytest.param(Failures(), [failed(at=NOW)], Failures(1, NOW), id="the-first"),
        pytest.param(Failures(1, NOW), [failed(at=NOW)], Failures(1, NOW), id="counted-already"),
        pytest.param(Failures(3, NOW), [failed(at=NOW - HOUR)], Failures(3, NOW), id="older-than-the-last"),
        pytest.param(
            Failures(1, NOW - HOUR),
            [failed("b", at=NOW), failed("a", at=NOW - timedelta(minutes=1))],
            Failures(3, NOW),
            id="two-new-ones",
        ),
        pytest.param(
            Failures(),
            [attrs.evolve(failed(at=NOW + timedelta(days=2)), meta=ObjectMeta("x", created=NOW - HOUR))],
            Failures(1, NOW - HOUR),
            id="an-end-that-is-still-to-come",
        ),
        pytest.param(Failures(), [a_request(phase=RequestPhase.PROCESSED)], Failures(), id="no-errors"),
        pytest.param(Failures(), [a_request(errors=["so far"])], Failures(), id="still-at-work"),
        pytest.param(
            Failures(),
            [a_request(phase=RequestPhase.PROCESSED, errors=["x"], created=NOW)],
            Failures(1, NOW),
            id="ended-by-another-dated-by-creation",
        ),
        pytest.param(
            Failures(),
            [a_request(phase=RequestPhase.PROCESSED, errors=["x"], created=None)],
            Failures(),
            id="without-any-date",
        ),
    ],
)
def test_failures_are_counted_once(known, requests, counted):
    assert count_failures(known, requests, now=NOW) == counted


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="no-json"),
        pytest.param("[]", id="a-list"),
        pytest.param("null", id="null"),
        pytest.param('{"count":0,"last":"2024-01-01T00:00:00Z"}', id="none"),
        pytest.param('{"count":true,"last":"2024-01-01T00:00:00Z"}', id="true"),
        pytest.param('{"count":"1","last":"2024-01-01T00:00:00Z"}', id="a-text"),
        pytest.param('{"count":1}', id="no-date"),
        pytest.param('{"count":1,"last":"today"}', id="no-real-date"),
        pytest.param("[" * 100_000, id="too-deep"),
        pytest.param('{"count":1,"last":"9999-12-31T00:00:00Z"}', id="a-failure-that-has-not-happened-yet"),
    ],
)
def test_a_malformed_annotation_counts_as_no_failure(written):
    assert read_failures({RETENTION_FAILURES: written}, now=NOW) == Failures()


def test_the_annotation_round_trips():
    failures = Failures(4, NOW)

    assert write_failures(failures) == '{"count":4,"last":"2024-04-04T12:00:00Z"}'
    assert read_failures({RETENTION_FAILURES: write_failures(failures)}, now=NOW) == failures
    assert write_failures(Failures()) == '{"count":0,"last":""}'


def test_a_failure_is_written_down_with_its_pause():
    (answer,) = retain(facts(expired(), requests=[failed(at=NOW)]), RULES, now=NOW)

    assert answer.verdict == Keep(
        Reason.PAUSED,
        "1 deletion request failed, the last at 2024-04-04T12:00:00Z; the next is filed at 2024-04-04T13:00:00Z",
        NOW + HOUR,
    )
    assert merge_patch(answer.steps[0]) == {
        "metadata": {"annotations": {RETENTION_FAILURES: '{"count":1,"last":"2024-04-04T12:00:00Z"}'}}
    }


def test_failures_of_another_uid_do_not_count():
    assert isinstance(verdict(expired(), requests=[failed(at=NOW, uid="before")]), FileRequest)


# A small world that applies the answers: passes in a row


@attrs.define
class World:
    """Backups and requests. Applying an answer changes them as an API server would."""

    backups: dict
    requests: list = attrs.field(factory=list)
    now: object = NOW
    writes: int = 0
    tried: int = 0
    admissions: dict = attrs.field(factory=dict)
    locations: object = LocationsKnown([a_location()])

    def facts(self):
        backups = self.backups.values()
        examined = [Examined(backup.ref, self.admissions.get(backup.name, Admitted())) for backup in backups]
        return RetentionFacts(backups, self.requests, self.locations, examined)

    def pass_(self, rules=RULES):
        """One pass; gives the number of writes."""
        before = self.writes
        for answer in retain(self.facts(), rules, now=self.now):
            for step in answer.steps:
                self.apply(step, answer.backup)
        return self.writes - before

    def apply(self, step, backup):
        self.writes += 1
        match step:
            case ChangeMetadata():
                live = self.backups[backup.name]
                assert step.resource_version == live.meta.resource_version
                kept = {k: v for k, v in live.meta.labels.items() if k not in step.without_labels}
                meta = attrs.evolve(
                    live.meta,
                    labels={**kept, **step.labels},
                    annotations={**live.meta.annotations, **step.annotations},
                    resource_version=str(int(live.meta.resource_version) + 1),
                )
                self.backups[backup.name] = attrs.evolve(live, meta=meta)
            case CreateRequest(request=asked):
                name = f"{asked.generate_name}{len(self.requests)}"
                meta = ObjectMeta(name, asked.namespace, f"uid-{name}", "1", created=self.now, labels=asked.labels)
                blank = a_request(name, backup=asked.backup)
                self.requests.append(attrs.evolve(blank, meta=meta))

    def fail(self):
        """End every request at work with an error, as a deletion that can never succeed does."""
        for number, request in enumerate(self.requests):
            if request.phase is not RequestPhase.PROCESSED:
                self.tried += 1
                state = RequestState(uid=request.bound_uid, finished_at=self.now)
                ended = {"phase": RequestPhase.PROCESSED, "errors": ["snapshot is gone"], "state": state}
                self.requests[number] = attrs.evolve(request, **ended)


def test_one_pending_request_a_backup():
    """velero#685: thousands of requests, as each event about a backup filed another one (D-15)."""
    world = World({"foo": expired()})

    for _ in range(1000):
        world.pass_()

    assert len(world.requests) == 1


def test_an_undeletable_backup_is_left_in_peace():
    """velero#423, velero#6549: the collector hammers the cloud for one backup that can never go (D-16, D-17).

    Six passes an hour for ten days: not 1,440 attempts, but one after 0, 1, 3, 7, 15, 31 h, and then one a day.
    """
    world = World({"foo": expired()})

    for minutes in range(0, 10 * 24 * 60, 10):
        world.now = NOW + timedelta(minutes=minutes)
        world.pass_()
        world.fail()

    assert world.tried == 6 + 8
    assert world.writes == 2 * world.tried


PHASES = ["Completed", "PartiallyFailed", "Failed", "Deleting", "InProgress", "New", ""]
INSTANTS = st.sampled_from([None, YESTERDAY, NOW, NOW - 40 * HOUR, LATER])
ANNOTATIONS = st.sampled_from(
    [
        {},
        {HOLD: "x"},
        {HOLD: "x", HOLD_UNTIL: format_instant(NOW)},
        {SYNCED_AT: format_instant(SYNCED)},
        {RETENTION_FAILURES: write_failures(Failures(1, NOW))},
    ]
)
LOCATIONS = st.sampled_from([LocationsKnown([a_location()]), NO_LOCATION, BROKEN, AWAY, READ_ONLY])
ADMISSIONS = st.sampled_from([Admitted(), Refused(Reason.NO_ADAPTER, "why"), Deferred(Reason.HELD, LATER, "why")])


@st.composite
def worlds(draw):
    names = [f"b{n}" for n in range(draw(st.integers(0, 7)))]
    backups = [
        expired(
            name,
            schedule=draw(st.sampled_from(["", "nightly"])),
            phase=draw(st.sampled_from(PHASES)),
            expiration=draw(INSTANTS),
            completed=draw(INSTANTS),
            annotations=draw(ANNOTATIONS),
            labels=draw(st.sampled_from([{}, {GC_FAILURE: "BSLReadOnly"}])),
            deleted=draw(st.sampled_from([None, None, None, NOW])),
        )
        for name in names
    ]
    asked = [
        a_request(f"r-{name}", backup=name, uid=draw(st.sampled_from(["", f"uid-{name}", "other"])), phase=phase)
        for name in names
        if (phase := draw(st.sampled_from([None, None, *RequestPhase]))) is not None
    ]
    ended = [
        failed(f"f-{name}", at=NOW - HOUR, backup=name, uid=f"uid-{name}") for name in names if draw(st.booleans())
    ]
    examined = [Examined(backup.ref, draw(ADMISSIONS)) for backup in backups]
    return facts(*backups, requests=[*asked, *ended], examined=examined, locations=draw(LOCATIONS))


@given(worlds(), st.integers(0, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(world, keep_last, max_requests, shuffler):
    rules = RetentionRules(keep_last=keep_last, max_requests=max_requests)
    shuffled = [list(each) for each in (world.backups, world.requests, world.examined)]
    for each in shuffled:
        shuffler.shuffle(each)
    backups, requests, examined = shuffled
    mixed = attrs.evolve(world, backups=backups, requests=requests, examined=examined)

    assert retain(mixed, rules, now=NOW) == retain(world, rules, now=NOW)


@given(worlds(), st.integers(0, 3), st.integers(1, 3))
def test_nothing_held_running_pending_or_last_good_gets_a_request(world, keep_last, max_requests):
    rules = RetentionRules(keep_last=keep_last, max_requests=max_requests)
    found = retain(world, rules, now=NOW)
    asked = [answer.backup for answer in found if isinstance(answer.verdict, FileRequest)]
    pending = {r.bound_uid for r in world.requests if r.phase is not RequestPhase.PROCESSED}

    assert len(asked) <= max_requests
    assert sorted(answer.backup.name for answer in found) == sorted(backup.name for backup in world.backups)
    for backup in asked:
        assert backup.expiration is not None
        assert backup.expiration <= NOW
        assert not isinstance(hold_of(backup.meta.annotations, now=NOW), Held)
        assert backup.phase in {"Completed", "PartiallyFailed", "Failed", "Deleting"}
        assert backup.meta.uid not in pending
    open_ = {r.backup for r in world.requests if r.phase is not RequestPhase.PROCESSED}
    good = [b for b in world.backups if b.phase == "Completed" and b.schedule and not b.meta.terminating]
    staying = [backup for backup in good if backup.name not in open_]
    assert len([b for b in staying if b not in asked]) >= min(keep_last, len(staying))


@given(worlds())
def test_the_second_pass_writes_nothing(world):
    admissions = {each.ref.name: each.admission for each in world.examined}
    backups = {backup.name: backup for backup in world.backups}
    model = World(backups, list(world.requests), admissions=admissions, locations=world.locations)
    model.pass_()

    assert model.pass_() == 0
