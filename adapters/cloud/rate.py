"""How fast a provider may be called: a token bucket for each provider and account, which slows down and recovers.

All workers share one ``Limiter`` an account. It bounds how many calls run at once and how many start a second. The rate
follows what the provider lets through, one window after the other:

====================================  ==============================================
share of refused calls in a window    rate of the next one
====================================  ==============================================
none                                  a quarter more, up to the ceiling
more than half                        a quarter above what was let through
more, but of fewer than ten calls     that, and at least half of what it was
up to half                            that, and at most 3 % less than it was
====================================  ==============================================

A pause that the provider asks for (``Retry-After``) holds for the whole account. At the floor, when nothing at all was
let through for a window, nobody waits for a turn: a provider that is down keeps no worker either.

Guarantee: no call starts within such a pause or above the rate. Who would wait longer than ``patience`` for a turn is
told when to come back instead (``Pending``, not begun: nothing failed, no attempt is counted). A provider that does not
answer at all keeps a caller for one time-out of its call; after that calls come back at once (``Retryable``, see
``breaker``). Nothing waits by looking at a clock again and again.
Not guaranteed: fairness between callers, nor an account's limit over several processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from attrs import evolve, frozen

from reprieve.adapters.cloud.breaker import Breaker, held_back
from reprieve.adapters.cloud.kept import Kept
from reprieve.core.outcomes import Outcome, Pending, Retryable

PARALLELISM = 32
PATIENCE = timedelta(seconds=10)
TRIES = 12
WINDOW = 0.5  # seconds
TOLERATED = 0.5  # share of refused calls up to which the rate is about right
HEADROOM = 1.25  # calls at a fifth of refused ones: a constant share of them must not slow down for ever
FASTER, SLOWER = 1.25, 0.97
FEW = 10
BACKOFF, LONGEST_BACKOFF = 0.05, 0.2  # seconds before the third try, doubled for each further one


@frozen
class Pace:
    """The bounds of a rate, in calls a second, and how many calls may start at once after a rest."""

    ceiling: float = 2000.0
    floor: float = 1.0
    burst: float = 32.0


@frozen
class Bucket:
    """The state of a token bucket at ``at`` (seconds of a clock that only grows).

    ``tokens`` below zero are turns given ahead of time.
    """

    rate: float
    tokens: float
    at: float
    paused_until: float
    window_began: float
    passed: int = 0
    refused: int = 0


def full(pace: Pace, now: float) -> Bucket:
    """A bucket that nothing was taken from."""
    return Bucket(rate=pace.ceiling, tokens=pace.burst, at=now, paused_until=now, window_began=now)


def take(bucket: Bucket, pace: Pace, now: float) -> tuple[Bucket, float]:
    """Take the next turn: the bucket after it, and how many seconds from now it is."""
    filled = _fill(_turned(bucket, pace, now), pace, now)
    taken = evolve(filled, tokens=filled.tokens - 1)
    ahead = max(0.0, -taken.tokens) / taken.rate
    return taken, ahead + max(0.0, bucket.paused_until - now)


def report(bucket: Bucket, pace: Pace, now: float, *, refused: bool, after: float = 0.0) -> Bucket:
    """Note what a call came to.

    ``after``: the seconds that the provider wants to be left alone for. Ends a window that is over.
    """
    counted = evolve(
        _fill(bucket, pace, now),
        passed=bucket.passed + (not refused),
        refused=bucket.refused + refused,
        paused_until=max(bucket.paused_until, now + after) if refused else bucket.paused_until,
    )
    return _turned(counted, pace, now)


def _fill(bucket: Bucket, pace: Pace, now: float) -> Bucket:
    """Add what has come in since; a clock that stands still or goes back adds nothing."""
    gained = max(0.0, now - bucket.at) * bucket.rate
    return evolve(bucket, tokens=min(pace.burst, bucket.tokens + gained), at=max(bucket.at, now))


def _turned(bucket: Bucket, pace: Pace, now: float) -> Bucket:
    """Begin the next window once this one is over, at the rate that it earned; without calls it earned nothing."""
    seconds = now - bucket.window_began
    if seconds < WINDOW:
        return bucket
    rate = min(pace.ceiling, max(pace.floor, next_rate(bucket, min(seconds, 2 * WINDOW))))
    tokens = min(bucket.tokens, 0.0) if rate < bucket.rate else bucket.tokens
    return evolve(bucket, rate=rate, tokens=tokens, window_began=now, passed=0, refused=0)


def next_rate(bucket: Bucket, seconds: float) -> float:
    """The rate after a window of that length, before the bounds; a window with refusals never makes it faster."""
    calls = bucket.passed + bucket.refused
    if bucket.refused == 0:
        return bucket.rate * (FASTER if calls else 1.0)
    tolerable = bucket.refused <= TOLERATED * calls
    least = bucket.rate * SLOWER if tolerable else bucket.rate / 2 if calls < FEW else 0.0
    return min(bucket.rate, max(HEADROOM * bucket.passed / seconds, least))


class Limiter:
    """What all workers of one provider and account share: the rate, the bound on parallel calls, and the breaker.

    ``clock`` gives seconds that only grow, ``sleep`` waits for some.
    """

    def __init__(
        self,
        *,
        parallelism: int = PARALLELISM,
        pace: Pace | None = None,
        patience: timedelta = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begin with a full bucket."""
        self.breaker = Breaker(clock=clock)
        self._pace = pace or Pace()
        self._patience = patience.total_seconds()
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(parallelism)
        self._bucket = full(self._pace, clock())

    @property
    def rate(self) -> float:
        """The calls a second that are allowed now, for metrics."""
        with self._lock:
            return self._bucket.rate

    def call(self, effect: Callable[[], Outcome], *, doing: str = "call", tries: int = TRIES) -> Outcome:
        """Carry out one effect in its turn, and again after a quick ``Retryable``, up to ``tries`` calls.

        The last outcome comes back, and is the core's to judge: these are the short repeats within one attempt. Without
        a call: ``Pending`` when a turn is further away than the patience, ``Retryable`` when calls are held back.
        """
        ends = self._clock() + self._patience
        result = self._once(effect, doing, ends)
        for tried in range(1, tries):
            if not isinstance(result, _Refused):
                break
            if tried > 1:
                self._sleep(min(LONGEST_BACKOFF, BACKOFF * 2 ** (tried - 2)))
            again = self._once(effect, doing, ends)
            if isinstance(again, _NotCalled):
                break
            result = again
        return result.outcome

    def _once(self, effect: Callable[[], Outcome], doing: str, ends: float) -> _Called | _Refused | _NotCalled:
        if held := self.breaker.held():
            return _held_back(doing, held)
        if not self._places.acquire(timeout=max(0.0, ends - self._clock())):
            return _NotCalled(Pending(PATIENCE, f"{doing}: not asked yet, all parallel calls are taken", begun=False))
        try:
            return self._in_turn(effect, doing, ends)
        finally:
            self._places.release()

    def _in_turn(self, effect: Callable[[], Outcome], doing: str, ends: float) -> _Called | _Refused | _NotCalled:
        if held := self.breaker.held():
            return _held_back(doing, held)
        wait, taken = self._take(ends)
        if not taken:
            told = f"{doing}: not asked yet, the next turn is in {wait:.0f} s"
            return _NotCalled(Pending(timedelta(seconds=wait), told, begun=False))
        if wait:
            self._sleep(wait)
        if held := self.breaker.ask():
            return _held_back(doing, held)
        return self._made(effect)

    def _made(self, effect: Callable[[], Outcome]) -> _Called | _Refused:
        began = self._clock()
        try:
            outcome = effect()
        except BaseException:
            self.breaker.let_go()
            raise
        failed = isinstance(outcome, Retryable)
        quickly = not self.breaker.is_long(began)
        self.breaker.note(began=began, failed=failed)
        self.report(outcome)
        return _Refused(outcome) if failed and quickly else _Called(outcome)

    def _take(self, ends: float) -> tuple[float, bool]:
        """Seconds until the next turn, and whether it was taken: only if it comes in time.

        At the floor nothing was let through for a whole window, and nobody waits.
        """
        with self._lock:
            now = self._clock()
            after, wait = take(self._bucket, self._pace, now)
            taken = wait <= (0.0 if after.rate <= self._pace.floor else max(0.0, ends - now))
            self._bucket = after if taken else self._bucket
            return wait, taken

    def report(self, outcome: Outcome) -> None:
        """Note what a call came to.

        ``Retryable`` counts as refused: a provider that is down is as little in need of calls.
        """
        match outcome:
            case Retryable(after=after):
                self._note(refused=True, after=after.total_seconds())
            case _:
                self._note(refused=False, after=0.0)

    def _note(self, *, refused: bool, after: float) -> None:
        with self._lock:
            self._bucket = report(self._bucket, self._pace, self._clock(), refused=refused, after=after)


@frozen
class _Called:
    """A call that was made, and is not to be repeated here."""

    outcome: Outcome


@frozen
class _Refused:
    """A call that was refused quickly: worth another try."""

    outcome: Outcome


@frozen
class _NotCalled:
    """No call was made."""

    outcome: Outcome


def _held_back(doing: str, held: timedelta) -> _NotCalled:
    return _NotCalled(Retryable(held, held_back(doing, held)))


Account = tuple[str, ...]
"""A provider, and whatever tells its accounts apart."""


class Limiters:
    """One limiter for each provider and account, made when first asked for and shared from then on."""

    def __init__(self, make: Callable[[], Limiter] = Limiter) -> None:
        """Take how a limiter is made."""
        self._make = make
        self._kept: Kept[Account, Limiter] = Kept()

    def of(self, account: Account) -> Limiter:
        """The limiter of an account."""
        return self._kept.get(account, self._make)
