"""What a stage's outcomes lead to: go on, come back, or give up; and when an ended request goes."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from reprieve.core.backups import RequestPhase, RequestState
from reprieve.core.outcomes import (
    AlreadyGone,
    Conflict,
    ContainerMissing,
    Denied,
    Done,
    InUse,
    Invalid,
    Locked,
    Pending,
    Retryable,
    Unknown,
)
from reprieve.core.reasons import Reason
from reprieve.core.requests import (
    BUCKET_STAGE,
    Absent,
    Completed,
    DeletionLimits,
    DeletionPlan,
    Failed,
    Next,
    Retry,
    Stage,
    StageOutcomes,
    backoff,
    begin,
    expired,
    phase_after_refusal,
    plan,
)
from reprieve.core.requests import settle as core_settle
from reprieve.core.steps import StepResult
from tests.unit.builders import (
    LAST,
    LIMITS,
    NOW,
    SNAPSHOTS,
    a_request,
    a_restore,
    a_snapshot,
    a_snapshot_location,
    a_state,
    at_work,
    facts,
    in_progress,
    inventory,
    settle,
    settle_stage,
    stage_of,
)

COUNTED = [Retryable(message="slow down"), Conflict("changed"), InUse("an image uses it"), Unknown("what?")]
FINAL = [Denied("may not"), Invalid("malformed"), ContainerMissing("no such bucket")]
WAITED = [Pending(), Locked()]


def named(outcomes):
    return [pytest.param(outcome, id=type(outcome).__name__) for outcome in outcomes]


# Going on


@pytest.mark.parametrize("first", named([Done(), AlreadyGone()]))
@pytest.mark.parametrize("second", named([Done(), AlreadyGone()]))
def test_done_and_already_gone_let_the_next_stage_start(first, second):
    """Only Done and AlreadyGone let the next stage start; not found is success for every provider."""
    assert settle(first, second) == Next(LAST)


@pytest.mark.parametrize("outcome", named([*COUNTED, *FINAL, *WAITED]))
def test_nothing_else_does(outcome):
    assert not isinstance(settle(Done(), outcome), Next | Completed)


def test_the_last_stage_completes():
    deletion = DeletionPlan([SNAPSHOTS])
    results = [StepResult(step, Done()) for step in SNAPSHOTS.steps]

    assert core_settle(facts(), StageOutcomes(deletion, SNAPSHOTS, results), now=NOW, limits=LIMITS) == Completed()


def test_an_empty_stage_is_passed():
    deletion = DeletionPlan([Stage("empty"), LAST])

    assert core_settle(facts(), StageOutcomes(deletion, Stage("empty")), now=NOW, limits=LIMITS) == Next(LAST)


# Coming back


@pytest.mark.parametrize("outcome", named(COUNTED))
def test_retried_and_counted(outcome):
    """Retried: Retryable, Conflict, InUse, Unknown; errors go into status.errors at every retry, not just the last."""
    answer = settle(outcome, Done())

    assert isinstance(answer, Retry)
    assert answer.reason is Reason.RETRYING
    assert answer.errors == (f"error deleting snapshot snap-1: {outcome.message}",)
    assert answer.at == NOW + backoff("uid-foo-abcde", 1)
    assert (answer.state.attempts, answer.state.next_attempt, answer.state.reason) == (1, answer.at, "Retrying")


def test_one_attempt_a_pass_however_many_steps_failed():
    assert settle(InUse(), Unknown(), Conflict()).state.attempts == 1


def test_errors_come_in_one_order():
    answer = settle(InUse("b"), Unknown("a"), Done())

    assert answer.errors == ("error deleting snapshot snap-1: b", "error deleting snapshot snap-2: a")


def test_not_before_the_provider_said_so():
    """Slowed down by what the provider says."""
    assert settle(Retryable(timedelta(minutes=5)), Retryable(timedelta(minutes=2))).at == NOW + timedelta(minutes=5)


def test_pending_is_waited_for_and_not_counted():
    """Pending(after): accepted, not finished: no attempt is counted."""
    answer = settle(Pending(timedelta(seconds=40)), Pending(timedelta(seconds=7)), Done(), attempts=2)

    assert (answer.at, answer.reason, answer.errors) == (NOW + timedelta(seconds=7), Reason.PENDING, ())
    assert (answer.state.attempts, answer.state.next_attempt) == (2, answer.at)


def test_locked_is_deferred_to_its_date():
    """Deferred: something Locked until a date."""
    until = NOW + timedelta(days=3)
    answer = settle(Locked(until, "under retention"), Done(), attempts=4)

    assert (answer.at, answer.reason, answer.state.attempts) == (until, Reason.LOCKED, 4)
    assert answer.errors == ("error deleting snapshot snap-1: under retention",)


def test_the_earliest_of_several_waits_counts():
    assert settle(Locked(NOW + timedelta(days=3)), Locked(NOW + timedelta(days=1))).at == NOW + timedelta(days=1)


def test_locked_without_a_date_is_looked_at_again():
    assert settle(Locked()).at == NOW + timedelta(hours=1)


@pytest.mark.parametrize("late", [timedelta(0), timedelta(days=1)])
def test_locked_past_its_own_date_is_not_asked_without_a_pause(late):
    assert settle(Locked(NOW - late)).at == NOW + timedelta(minutes=1)


def test_a_stage_that_was_stopped_half_way_is_taken_up_at_once():
    """A step without a result was not carried out: it is never taken for done, and no attempt is counted."""
    outcomes = StageOutcomes(DeletionPlan([SNAPSHOTS, LAST]), SNAPSHOTS, [StepResult(SNAPSHOTS.steps[0], Done())])
    answer = core_settle(facts(**at_work()), outcomes, now=NOW, limits=LIMITS)

    assert (answer.at, answer.reason, answer.state.attempts) == (NOW, Reason.PENDING, 0)


def test_a_final_outcome_waits_for_the_rest_of_the_stage():
    """Final, once the rest of the stage has run."""
    denied = [StepResult(SNAPSHOTS.steps[0], Denied("no"))]
    outcomes = StageOutcomes(DeletionPlan([SNAPSHOTS, LAST]), SNAPSHOTS, denied)
    answer = core_settle(facts(**at_work()), outcomes, now=NOW, limits=LIMITS)

    assert isinstance(answer, Retry)
    assert answer.errors == ("error deleting snapshot snap-1: no",)
    assert answer.state.previous_phase == "Completed"


# Giving up


@pytest.mark.parametrize("outcome", named(FINAL))
def test_final(outcome):
    """Final: Denied, Invalid, ContainerMissing. Then Processed with what is left."""
    answer = settle(outcome, InUse("image"))

    assert isinstance(answer, Failed)
    assert answer.errors == (
        f"error deleting snapshot snap-1: {outcome.message}",
        "error deleting snapshot snap-2: image",
    )
    assert (answer.state.finished_at, answer.state.next_attempt, answer.state.reason) == (NOW, None, "Failed")


def test_a_missing_container_is_never_gone():
    """A missing container (bucket, project, resource group, zone, kind) is never "not found of the object"."""
    assert isinstance(settle(ContainerMissing("NoSuchBucket"), AlreadyGone()), Failed)


def test_a_misplaced_snapshot_ends_the_request_once_the_others_had_their_turn():
    region = facts(**at_work(), snapshot_locations=[a_snapshot_location(region="us-east-1")])
    deletion = plan(region, inventory(a_snapshot("s1", zone="eu-west-1a"), a_snapshot("s2")))
    answer = settle_stage(deletion, "snapshots", StepResult(deletion.stages[0].steps[0], Done()))

    assert isinstance(answer, Failed)
    assert len(answer.errors) == 1
    assert answer.errors[0].startswith("error deleting snapshot s1: its volume was in zone eu-west-1a")


def test_up_to_the_attempts_of_the_configuration():
    """Retry up to the attempts of the configuration; then Processed with what is left."""
    assert isinstance(settle(InUse(), attempts=3), Retry)

    answer = settle(InUse("image"), attempts=4, first_attempt=NOW - timedelta(minutes=8))

    assert isinstance(answer, Failed)
    assert answer.state.attempts == 5
    assert answer.errors == (
        "error deleting snapshot snap-1: image",
        "gave up after 5 of 5 attempts since 2024-04-04T11:52:00Z (deadline 1h): mend the cause and ask again",
    )


def test_up_to_the_deadline_counted_from_the_first_attempt():
    """… and the deadline of the configuration, counted from the first attempt."""
    assert isinstance(settle(InUse(), first_attempt=NOW - timedelta(minutes=55)), Retry)
    assert isinstance(settle(InUse(), first_attempt=NOW - timedelta(minutes=60)), Failed)


def test_a_wait_does_not_count_towards_the_deadline():
    """Waiting and deferral do not count."""
    answer = settle(InUse(), first_attempt=NOW - timedelta(days=2), reason="Pending")

    assert isinstance(answer, Retry)
    assert answer.state.first_attempt == NOW


def test_without_a_first_attempt_it_begins_now():
    assert settle(InUse(), first_attempt=None).state.first_attempt == NOW


@pytest.mark.parametrize("first", [NOW + timedelta(days=1), datetime.max.replace(tzinfo=UTC)])
def test_a_first_attempt_in_the_future_gives_no_more_time(first):
    """A hand can write the annotation; it must not buy time, and not crash the controller."""
    assert settle(InUse(), first_attempt=first).state.first_attempt == NOW


def test_attempts_that_a_hand_wrote_end_it():
    assert isinstance(settle(InUse(), attempts=10**9), Failed)


def test_limits_are_the_configurations():
    assert isinstance(settle(InUse(), limits=DeletionLimits(attempts=1)), Failed)
    assert isinstance(settle(InUse(), limits=DeletionLimits(deadline=timedelta(seconds=1))), Failed)


# Back-off


def test_backoff_doubles_to_its_end():
    """Exponential back-off, jitter from a hash of request UID and attempt."""
    longest = [timedelta(seconds=s) for s in (30, 60, 120, 240, 480, 900, 900)]

    assert all(whole * 0.8 <= backoff("u", n) <= whole for n, whole in enumerate(longest, start=1))


def test_backoff_is_spread_and_yet_the_same_at_every_look():
    assert len({backoff(f"uid-{n}", 1) for n in range(50)}) > 25
    assert backoff("uid-1", 3) == backoff("uid-1", 3)


# The backup's phase


def test_if_nothing_was_destroyed_the_phase_goes_back():
    """If nothing was destroyed yet the backup's phase goes back to what it was."""
    assert settle(Denied("no"), InUse("image")).restore_phase == "Completed"


@pytest.mark.parametrize("outcome", named([Done(), AlreadyGone(), Pending()]))
def test_once_something_was_it_stays_deleting(outcome):
    """Once something was, it stays Deleting; what was gone already may be a crashed run's doing."""
    assert settle(Denied("no"), outcome).restore_phase is None


def test_what_only_waits_for_its_turn_takes_nothing_away():
    """A throttled account had every call of a pass wait: its backup stayed Deleting for good, though it was whole."""
    assert settle(Denied("no"), Pending(begun=False)).restore_phase == "Completed"
    assert settle(Pending(begun=False)).state.previous_phase == "Completed"


def test_that_something_was_destroyed_is_remembered():
    """The first pass deleted one snapshot, the last pass deletes none: the phase does not come back."""
    first = settle(InUse(), Done())

    assert first.state.previous_phase is None
    assert settle(InUse(), previous_phase=first.state.previous_phase, attempts=4).restore_phase is None


def test_after_the_first_stage_something_is_gone():
    restores = plan(facts(restores=[a_restore("r1")]), inventory(a_snapshot()))
    step = stage_of(restores, "restores").steps[0]

    assert settle_stage(restores, "restores", StepResult(step, Denied(), intact=True)).restore_phase is None


FILES = plan(facts(), inventory())
FILES_STEP = stage_of(FILES, BUCKET_STAGE).steps[0]


def test_a_bulk_deletion_that_failed_took_some_unless_it_says_otherwise():
    """A bucket that denies half of the keys leaves a backup that is not whole."""
    answer = settle_stage(FILES, BUCKET_STAGE, StepResult(FILES_STEP, Denied("no")))

    assert answer.restore_phase is None
    assert answer.state.stage == BUCKET_STAGE


def test_a_bulk_deletion_that_changed_nothing_gives_the_phase_back():
    """A bucket that denies every key: the backup is whole, and its lists are still needed."""
    answer = settle_stage(FILES, BUCKET_STAGE, StepResult(FILES_STEP, Denied("no"), intact=True))

    assert answer.restore_phase == "Completed"
    assert answer.state.stage is None


def test_the_bucket_stage_is_remembered_when_the_lists_may_be_gone():
    """A pass that was cut off among the files: the next one has no snapshots to list, and the mark must stay."""
    state = begin(facts(**at_work(stage=BUCKET_STAGE)), now=NOW)
    answer = settle_stage(
        FILES, BUCKET_STAGE, StepResult(FILES_STEP, Denied(), intact=True), previous_phase=state.previous_phase
    )

    assert (answer.restore_phase, answer.state.stage) == (None, BUCKET_STAGE)


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        pytest.param(at_work(reason="Retrying"), "Completed", id="between-two-passes"),
        pytest.param(at_work(reason="Locked"), "Completed", id="while-it-waits-for-a-lock"),
        pytest.param(at_work(reason="Held"), "Completed", id="while-it-is-held"),
        pytest.param(at_work(reason="Retrying", previous_phase=""), "", id="nobody-had-looked-at-it"),
        pytest.param(at_work(reason="Retrying", previous_phase=None), None, id="something-was-destroyed"),
        pytest.param(at_work(reason="Retrying", previous_phase="New"), None, id="velero-would-run-it-again"),
        pytest.param(at_work(reason="Retrying", previous_phase="x"), None, id="no-phase-of-an-end"),
        pytest.param(at_work(), None, id="a-pass-was-cut-off"),
        pytest.param(at_work(reason="Pending"), None, id="something-is-going"),
        pytest.param({"request": a_request()}, None, id="not-begun"),
        pytest.param({"request": in_progress(reason="Retrying")}, None, id="only-the-request-says-so"),
        pytest.param(at_work("other", reason="Retrying") | {"request": a_request()}, None, id="another-is-at-work"),
        pytest.param(at_work(reason="Retrying") | {"backup": Absent()}, None, id="the-record-is-gone"),
    ],
)
def test_the_phase_after_a_refusal(given, phase):
    """A backup that may not be whole must not look whole."""
    assert phase_after_refusal(facts(**given)) == phase


def test_a_failure_leaves_on_the_backup_what_the_next_request_must_know():
    """Something is gone: no phase to give back any more. The attempts stay as they were, should the end be cut off."""
    left = settle(Denied("no"), Done(), attempts=2).left

    assert left == a_state(attempts=2, previous_phase=None)


# The end


OLD = NOW - timedelta(hours=24)


@pytest.mark.parametrize(
    ("created", "phase", "finished", "goes"),
    [
        pytest.param(OLD, "Processed", None, True, id="exactly-24-hours"),
        pytest.param(OLD + timedelta(seconds=1), "Processed", None, False, id="a-second-less"),
        pytest.param(OLD - timedelta(days=9), "Processed", None, True, id="older"),
        pytest.param(None, "Processed", None, False, id="no-creation-time"),
        pytest.param(
            OLD - timedelta(days=9), "Processed", OLD + timedelta(seconds=1), False, id="ours-since-it-finished"
        ),
        pytest.param(OLD - timedelta(days=9), "Processed", OLD, True, id="ours-exactly-24-hours-since-it-finished"),
        pytest.param(OLD, "Processed", NOW + timedelta(days=9), True, id="an-end-that-is-still-to-come"),
        pytest.param(None, "Processed", NOW + timedelta(days=9), False, id="that-and-no-creation-time"),
        pytest.param(OLD, "New", None, False, id="new"),
        pytest.param(OLD, "InProgress", None, False, id="in-progress"),
        pytest.param(OLD, "InProgress", OLD, False, id="in-progress-whatever-its-state-says"),
    ],
)
def test_expired(created, phase, finished, goes):
    """Processed and at least 24 h since creation (boundary included; for ours, since finishedAt)."""
    request = a_request(created=created, phase=RequestPhase(phase), state=RequestState(finished_at=finished))

    assert expired(request, now=NOW) is goes


def test_the_age_is_the_configurations():
    request = a_request(created=OLD, phase=RequestPhase.PROCESSED)

    assert expired(request, now=NOW, max_age=timedelta(hours=25)) is False


def test_a_request_never_outlives_its_answer():
    """What settle writes when it gives up is what expiry counts from."""
    failed = settle(Denied())
    ended = evolve(in_progress(), phase=RequestPhase.PROCESSED, state=failed.state)

    assert not expired(ended, now=NOW + timedelta(hours=23, minutes=59))
    assert expired(ended, now=NOW + timedelta(hours=24))
