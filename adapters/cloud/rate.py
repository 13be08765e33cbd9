"""How fast a provider may be called: a token bucket for each provider and account, which slows down and recovers.

All workers share one ``Limiter`` an account. It bounds how many calls run at once and how many start a second. The rate
follows what the provider lets through, one window after the other:

====================================  ==============================================
share of refused calls in a window    rate of the next one
====================================  ==============================================
none                                  a quarter more, up to the ceiling
up to a third                         3 % less: near the provider's own limit
more                                  a fifth above what was let through
more, but of fewer than ten calls     that, and at least half of what it was
====================================  ==============================================

A pause that the provider asks for (``Retry-After``) holds for the whole account.

Guarantee: no call starts within such a pause or above the rate. Who would wait longer than ``patience`` for a turn is
told when to come back instead (``Pending``: nothing failed, no attempt is counted), so a provider that is stuck keeps a
worker no longer than its calls' time-out and the patience, and never one that works for another account. Nothing waits
by looking at a clock again and again.
Not guaranteed: fairness between callers, nor an account's limit over several
processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

from attrs import evolve, field, frozen

from reprieve.core.outcomes import Outcome, Pending, Retryable

PARALLELISM = 32
PATIENCE = timedelta(seconds=30)
TRIES = 8
WINDOW = 0.5  # seconds
TOLERATED = 1 / 3  # share of refused calls up to which the rate is about right
HEADROOM = 1.2
FASTER, SLOWER = 1.25, 0.97
FEW = 10
BACKOFF, LONGEST_BACKOFF = 0.05, 0.2  # seconds before the third try, doubled for each further one
HASTY = 2.0  # seconds; a call that took longer than that to fail was no throttling, and is the core's to repeat


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
    earned = max(HEADROOM * bucket.passed / seconds, bucket.rate / 2 if calls < FEW else 0.0)
    return min(bucket.rate * SLOWER, bucket.rate if tolerable else earned)


class Limiter:
    """What all workers of one provider and account share.

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
        self.parallelism = parallelism
        self._pace = pace or Pace()
        self._patience = patience.total_seconds()
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(parallelism)
        self._bucket = full(self._pace, clock())

    @property
    def rate(self) -> float:
        """The calls a second that are allowed now, for metrics."""
        with self._lock:
            return self._bucket.rate

    @contextmanager
    def slot(self) -> Iterator[timedelta]:
        """Hold one of the parallel calls, and wait for its turn. Raises nothing.

        Gives zero when the call may be made. Gives the time until a turn when that is longer than the patience: then no
        turn was taken and nothing may be called.
        """
        with self._turns:
            wait = self._take()
            if 0 < wait <= self._patience:
                self._sleep(wait)
            yield timedelta(seconds=wait if wait > self._patience else 0)

    def _take(self) -> float:
        with self._lock:
            taken, wait = take(self._bucket, self._pace, self._clock())
            if wait <= self._patience:
                self._bucket = taken
            return wait

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

    def call(self, effect: Callable[[], Outcome], *, tries: int = TRIES) -> Outcome:
        """Carry out one effect in its turn, and again after a quick ``Retryable``, up to ``tries`` calls.

        The last outcome comes back, and is the core's to judge: these are the short repeats within one attempt.
        ``Pending``, without a call, when a turn is further away than the patience.
        """
        result: Outcome = Pending()
        for tried in range(tries):
            if tried > 1:
                self._sleep(min(LONGEST_BACKOFF, BACKOFF * 2 ** (tried - 2)))
            with self.slot() as wait:
                if wait:
                    return result if tried else Pending(wait, f"calls are held back for {wait.total_seconds():.0f} s")
                began = self._clock()
                result = effect()
                self.report(result)
            if not isinstance(result, Retryable) or self._clock() - began > HASTY:
                break
        return result


Account = tuple[str, str]


@frozen
class Job:
    """An effect and the account that it calls: provider, and whatever tells its accounts apart (a location's name)."""

    account: Account
    effect: Callable[[], Outcome] = field(repr=False)


class Limiters:
    """One limiter for each provider and account, made when first asked for and shared from then on."""

    def __init__(self, make: Callable[[], Limiter] = Limiter) -> None:
        """Take how a limiter is made."""
        self._make = make
        self._lock = threading.Lock()
        self._made: dict[Account, Limiter] = {}

    def of(self, account: Account) -> Limiter:
        """The limiter of an account."""
        with self._lock:
            return self._made.setdefault(account, self._made.get(account) or self._make())

    def run(self, jobs: Iterable[Job], *, tries: int = TRIES) -> list[Outcome]:
        """Carry out jobs, each account's in threads of its own, so that none waits for another's.

        Outcomes in the order of the jobs.
        """
        ordered = list(jobs)
        accounts = {job.account: 0 for job in ordered}
        for job in ordered:
            accounts[job.account] += 1
        pools = {
            account: ThreadPoolExecutor(min(size, self.of(account).parallelism), thread_name_prefix=account[0])
            for account, size in accounts.items()
        }
        try:
            begun = [pools[job.account].submit(self.of(job.account).call, job.effect, tries=tries) for job in ordered]
            return [future.result() for future in begun]
        finally:
            for pool in pools.values():
                pool.shutdown(cancel_futures=True)
