"""How the rate of calls follows what a provider lets through.

The arithmetic, and the limiter around it. No test waits.
"""

import threading
from datetime import timedelta

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.cloud.breaker import REST
from reprieve.adapters.cloud.rate import (
    BACKOFF,
    HEADROOM,
    LONGEST_BACKOFF,
    PATIENCE,
    WINDOW,
    Bucket,
    Limiter,
    Limiters,
    Pace,
    full,
    next_rate,
    report,
    take,
)
from reprieve.core.outcomes import AlreadyGone, Denied, Done, InUse, Outcome, Pending, Retryable, Unknown

PACE = Pace(ceiling=100.0, floor=1.0, burst=10.0)


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def limiter(clock: Clock, *, pace: Pace = PACE, patience: float = 30.0, parallelism: int = 4) -> Limiter:
    wait = timedelta(seconds=patience)
    return Limiter(parallelism=parallelism, pace=pace, patience=wait, clock=clock, sleep=clock.sleep)


def bucket(*, rate: float = 50.0, passed: int = 0, refused: int = 0) -> Bucket:
    start = full(PACE, 0.0)
    return Bucket(rate, start.tokens, start.at, start.paused_until, start.window_began, passed, refused)


@pytest.mark.parametrize(
    ("passed", "refused", "expected"),
    [
        pytest.param(0, 0, 50.0, id="nothing was called: as before"),
        pytest.param(40, 0, 62.5, id="nothing was refused: a quarter more"),
        pytest.param(20, 10, 48.5, id="a third was refused: a little less"),
        pytest.param(36, 9, 45.0 + 3.5, id="a fifth was refused, within a rate that is not used up: a little less"),
        pytest.param(40, 10, 50.0, id="a fifth was refused: as before"),
        pytest.param(10, 30, 12.5, id="more than half was refused: a quarter above what was let through"),
        pytest.param(0, 40, 0.0, id="everything was refused: nothing, the floor then holds"),
        pytest.param(60, 40, 50.0, id="never faster after a refusal"),
        pytest.param(0, 3, 25.0, id="three calls are not enough to stop: half of it"),
        pytest.param(2, 6, 25.0, id="few calls, many of them refused: half of it"),
    ],
)
def test_the_rate_follows_what_was_let_through(passed, refused, expected):
    assert next_rate(bucket(passed=passed, refused=refused), 1.0) == pytest.approx(expected)


def test_a_burst_may_start_at_once_and_then_the_rate_holds():
    state, waits = full(PACE, 0.0), []
    for _ in range(13):
        state, wait = take(state, PACE, 0.0)
        waits.append(wait)

    assert waits == pytest.approx([0.0] * 10 + [0.01, 0.02, 0.03])


def test_a_pause_that_was_asked_for_holds_for_everybody():
    state = report(full(PACE, 0.0), PACE, 0.0, refused=True, after=7.0)

    assert take(state, PACE, 1.0)[1] == pytest.approx(6.0)
    assert take(state, PACE, 7.0)[1] == 0.0


def test_a_shorter_pause_does_not_cut_a_longer_one():
    state = report(full(PACE, 0.0), PACE, 0.0, refused=True, after=7.0)
    state = report(state, PACE, 0.1, refused=True, after=1.0)

    assert take(state, PACE, 2.0)[1] == pytest.approx(5.0)


def test_a_rest_is_not_taken_for_a_slow_window():
    """A refusal, then ten minutes of silence: the calls of half a second ago are not spread over ten minutes."""
    state = bucket(rate=50.0, passed=30, refused=40)

    assert take(state, PACE, 600.0)[0].rate == pytest.approx(HEADROOM * 30 / (2 * WINDOW))


def test_the_burst_is_spent_when_the_rate_drops():
    state = report(bucket(rate=50.0, refused=49), PACE, WINDOW, refused=True)

    assert state.rate == PACE.floor
    assert take(state, PACE, WINDOW)[1] == pytest.approx(1 / PACE.floor)


@st.composite
def histories(draw):
    """What happened, in order: seconds since the event before, and a call's end (or a turn being taken)."""
    return draw(
        st.lists(
            st.tuples(
                st.floats(0, 3, allow_nan=False),
                st.sampled_from(["take", "passed", "refused"]),
                st.floats(0, 5, allow_nan=False),
            ),
            max_size=60,
        )
    )


@given(histories())
def test_the_rate_stays_within_its_bounds_and_no_turn_lies_in_a_pause(history):
    state, now, paused = full(PACE, 0.0), 0.0, 0.0
    for gap, event, after in history:
        now += gap
        if event == "take":
            state, wait = take(state, PACE, now)
            assert wait >= 0
            assert now + wait >= paused - 1e-9
        else:
            state = report(state, PACE, now, refused=event == "refused", after=after)
            paused = max(paused, now + after) if event == "refused" else paused
        assert PACE.floor <= state.rate <= PACE.ceiling
        assert state.tokens <= PACE.burst


@given(st.lists(st.floats(0, 0.5, allow_nan=False), min_size=1, max_size=80))
def test_never_more_calls_start_than_the_ceiling_allows(gaps):
    state, now, starts = full(PACE, 0.0), 0.0, []
    for gap in gaps:
        now += gap
        state, wait = take(state, PACE, now)
        starts.append(now + wait)

    for begin in starts:
        within = [start for start in starts if begin <= start < begin + 0.1]
        assert len(within) <= PACE.burst + PACE.ceiling * 0.1 + 1


@given(st.floats(1, 100), st.integers(0, 100), st.integers(1, 100), st.floats(0.5, 1.0))
def test_a_refusal_never_makes_it_faster(rate, passed, refused, seconds):
    assert next_rate(bucket(rate=rate, passed=passed, refused=refused), seconds) <= rate


@given(st.floats(10, 100), st.integers(1, 10))
def test_a_constant_share_of_refusals_does_not_slow_down_for_ever(rate, windows):
    """A fifth of the answers is a refusal, whatever the rate."""
    state = bucket(rate=rate)
    for _ in range(windows):
        state = bucket(rate=next_rate(evolve(state, passed=round(0.8 * rate), refused=round(0.2 * rate)), 1.0))

    assert state.rate >= rate * 0.9


def test_it_recovers_to_the_ceiling():
    state, now, windows = report(bucket(refused=50), PACE, WINDOW, refused=True), WINDOW, 0
    assert state.rate == PACE.floor
    while state.rate < PACE.ceiling:
        now, windows = now + WINDOW, windows + 1
        state = report(state, PACE, now, refused=False)

    assert windows == 21  # 1.25 ** 21 > 100


def test_a_provider_with_a_limit_is_called_at_about_that_limit():
    """Half a minute against a provider that lets 20 calls a second through.

    No window collapses, few calls are refused in the end.
    """
    clock, counted = Clock(), {"passed": 0, "refused": 0}
    state = full(PACE, 0.0)
    allowance, last, late_refused, late = 20.0, 0.0, 0, 0
    while clock.now < 30:
        state, wait = take(state, PACE, clock.now)
        clock.now += wait or 0.001
        allowance = min(20.0, allowance + (clock.now - last) * 20)
        last = clock.now
        refused = allowance < 1
        allowance -= 0 if refused else 1
        counted["refused" if refused else "passed"] += 1
        late, late_refused = (late + 1, late_refused + refused) if clock.now > 10 else (late, late_refused)
        state = report(state, PACE, clock.now, refused=refused)

    assert counted["passed"] > 0.8 * 20 * 30
    assert late_refused < 0.3 * late


@pytest.mark.parametrize("outcome", [Done(), AlreadyGone(), Pending(), InUse(), Denied(), Unknown()])
def test_only_retryable_is_tried_again(outcome):
    clock, calls = Clock(), []

    def effect() -> Outcome:
        calls.append(1)
        return outcome

    assert limiter(clock).call(effect) == outcome
    assert len(calls) == 1
    assert clock.slept == []


def test_a_throttled_call_is_tried_again_in_its_turn():
    clock, answers = Clock(), [Retryable(), Retryable(), Done()]

    assert limiter(clock).call(lambda: answers.pop(0)) == Done()
    assert clock.slept == pytest.approx([BACKOFF])


def test_the_last_refusal_comes_back_when_the_tries_are_used_up():
    clock, calls = Clock(), []

    def effect() -> Outcome:
        calls.append(1)
        return Retryable(message=f"refusal {len(calls)}")

    assert limiter(clock).call(effect, tries=3) == Retryable(message="refusal 3")


def hung(clock: Clock, calls: list[int], *, seconds: float = 30.0) -> Outcome:
    calls.append(1)
    clock.sleep(seconds)
    return Retryable(message="timed out")


def test_a_call_that_hung_is_not_tried_again_at_once():
    """A time-out is no throttling: eight of them in a row would keep a worker for minutes."""
    clock, calls = Clock(), []

    assert limiter(clock).call(lambda: hung(clock, calls)) == Retryable(message="timed out")
    assert len(calls) == 1


def test_after_a_call_that_hung_the_next_ones_are_not_made():
    """velero#3701: one deletion hangs for ever and later ones are not picked up."""
    clock, calls = Clock(), []
    shared = limiter(clock)
    shared.call(lambda: hung(clock, calls))
    begun = clock.now
    outcomes = [shared.call(lambda: hung(clock, calls), doing="deleting snapshot a") for _ in range(100)]

    assert clock.now == begun
    assert len(calls) == 1
    assert set(outcomes) == {
        Retryable(REST, "deleting snapshot a: not asked, since calls before it got no answer; held back for 30 s")
    }


def test_one_call_tries_after_the_rest_and_an_answer_opens_the_way_again():
    clock, calls = Clock(), []
    shared = limiter(clock)
    shared.call(lambda: hung(clock, calls))
    clock.now += REST.total_seconds()
    shared.call(lambda: hung(clock, calls))
    held = shared.call(Done)
    clock.now += REST.total_seconds()

    assert len(calls) == 2
    assert isinstance(held, Retryable)
    assert [shared.call(Done) for _ in range(3)] == [Done()] * 3


def test_a_call_that_hung_while_others_were_answered_stops_nobody():
    """One broken connection among many is no provider that is stuck."""
    clock, calls = Clock(), []
    shared = limiter(clock)

    def hangs_alone() -> Outcome:
        clock.sleep(20)
        assert shared.call(Done) == Done()
        return hung(clock, calls, seconds=10)

    assert shared.call(hangs_alone) == Retryable(message="timed out")
    assert shared.call(Done) == Done()


def test_throttling_never_holds_back_for_a_rest():
    clock = Clock()
    shared = limiter(clock)
    for _ in range(50):
        shared.call(lambda: Retryable(message="throttled"), tries=1)
        clock.now += 1

    assert shared.call(Done) == Done()


def test_a_fault_of_ours_does_not_leave_the_account_held_back():
    clock, calls = Clock(), []
    shared = limiter(clock)
    shared.call(lambda: hung(clock, calls))
    clock.now += REST.total_seconds()

    def broken() -> Outcome:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shared.call(broken)
    assert shared.call(Done) == Done()


def test_a_pause_beyond_the_patience_keeps_nobody():
    """A provider asks for a minute.

    The call that was refused says so, the next ones are not made and cost no attempt.
    """
    clock = Clock()
    shared, calls = limiter(clock), []

    def refused() -> Outcome:
        calls.append(1)
        return Retryable(timedelta(minutes=1), "slow down")

    assert shared.call(refused) == Retryable(timedelta(minutes=1), "slow down")
    held = shared.call(refused)

    assert isinstance(held, Pending)
    assert not held.begun
    assert timedelta(seconds=58) < held.after <= timedelta(seconds=60)
    assert len(calls) == 1
    assert sum(clock.slept) < 1


def test_the_patience_is_for_all_tries_together():
    """A provider that refuses everything keeps a worker no longer than one that asks for a pause."""
    clock, shared_pace = Clock(), Pace(ceiling=100.0, floor=0.25, burst=4.0)
    shared = limiter(clock, pace=shared_pace, patience=10.0)
    outcomes = []
    for _ in range(30):
        begun = clock.now
        outcomes.append(shared.call(lambda: Retryable(message="no"), tries=1000))
        assert clock.now - begun <= 10 + LONGEST_BACKOFF

    assert {type(outcome) for outcome in outcomes} <= {Retryable, Pending}


def test_nobody_waits_for_a_provider_that_lets_nothing_through():
    """A provider that is down refuses quickly: a thousand calls must not wait for a turn each."""
    clock, calls = Clock(), []
    shared = limiter(clock, pace=Pace())

    def refused() -> Outcome:
        calls.append(1)
        clock.now += 0.01
        return Retryable(message="connection refused")

    outcomes = [shared.call(refused) for _ in range(1_000)]

    assert clock.now < 10
    assert len(calls) < 100
    assert {type(outcome) for outcome in outcomes} == {Retryable, Pending}
    clock.now += 60
    assert [shared.call(Done) for _ in range(10)] == [Done()] * 10


def test_a_pause_within_the_patience_is_waited_for():
    clock, answers = Clock(), [Retryable(timedelta(seconds=3)), Done()]

    assert limiter(clock).call(lambda: answers.pop(0)) == Done()
    assert clock.now >= 3.0


def test_who_finds_all_parallel_calls_taken_is_told_so_after_the_patience():
    shared, gate, entered = Limiter(parallelism=1, patience=timedelta(0)), threading.Event(), threading.Event()

    def effect() -> Outcome:
        entered.set()
        gate.wait()
        return Done()

    thread = threading.Thread(target=shared.call, args=(effect,))
    thread.start()
    entered.wait()
    outcome = shared.call(Done, doing="deleting snapshot a")
    gate.set()
    thread.join()

    assert outcome == Pending(PATIENCE, "deleting snapshot a: not asked yet, all parallel calls are taken", begun=False)


def test_parallel_calls_are_bounded():
    shared, running, seen, gate = Limiter(parallelism=3), [], [], threading.Semaphore(0)
    lock, entered = threading.Lock(), threading.Semaphore(0)

    def effect() -> Outcome:
        with lock:
            running.append(1)
            seen.append(len(running))
        entered.release()
        gate.acquire()
        with lock:
            running.pop()
        return Done()

    threads = [threading.Thread(target=shared.call, args=(effect,)) for _ in range(9)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        entered.acquire()
    gate.release(9)
    for thread in threads:
        thread.join()

    assert len(seen) == 9
    assert max(seen) <= 3


def test_an_account_has_one_limiter():
    limiters = Limiters()

    assert limiters.of(("aws", "a")) is limiters.of(("aws", "a"))
    assert limiters.of(("aws", "a")) is not limiters.of(("aws", "b"))


def test_no_call_is_lost_when_every_fifth_is_throttled():
    clock, numbers, gone = Clock(), iter(range(10_000)), []
    shared = limiter(clock, pace=Pace(ceiling=1000.0))

    def effect(name: int) -> Outcome:
        if next(numbers) % 5 == 0:
            return Retryable(message="throttled")
        gone.append(name)
        return Done()

    assert [shared.call(lambda name=name: effect(name)) for name in range(500)] == [Done()] * 500
    assert gone == list(range(500))
