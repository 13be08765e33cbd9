"""A work queue as controllers use it.

A key is queued once, worked on by one worker at a time, and comes back later if asked.

Guarantee: a key that is added while it is worked on is worked on once more afterwards; the same key is never in two
hands. Not guaranteed: order between keys.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_DELAY = 0.5
LAST_DELAY = 300.0


class WorkQueue(Generic[K]):
    """De-duplicating queue with delays in seconds; the clock is monotonic and can be replaced."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start empty and open."""
        self._clock = clock
        self._ready: deque[K] = deque()
        self._queued: set[K] = set()
        self._in_hand: set[K] = set()
        self._again: set[K] = set()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._open = True

    def add(self, key: K) -> None:
        """Queue a key now."""
        with self._changed:
            self._enqueue(key)
            self._changed.notify()

    def add_after(self, key: K, delay: float) -> None:
        """Queue a key after that many seconds; the earliest of several delays counts."""
        if delay <= 0:
            self.add(key)
            return
        with self._changed:
            due = self._clock() + delay
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._later, (due, next(self._order), key))
            self._changed.notify()

    def retry(self, key: K) -> float:
        """Queue a key that failed, after a pause that doubles with each failure in a row; tells the seconds."""
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = float(min(FIRST_DELAY * 2 ** min(failures - 1, 20), LAST_DELAY))
        self.add_after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """Forget the failures of a key that went well."""
        with self._changed:
            self._failures.pop(key, None)

    def get(self, *, timeout: float | None = None) -> K | None:
        """Take a key in hand; None when the queue was closed, or after ``timeout`` seconds without one."""
        end = None if timeout is None else self._clock() + timeout
        with self._changed:
            while self._open:
                self._promote()
                if self._ready:
                    return self._take()
                wait = self._wait(end)
                if wait is not None and wait <= 0 and end is not None and self._clock() >= end:
                    return None
                self._changed.wait(wait)
            return None

    def done(self, key: K) -> None:
        """Lay a key out of hand; it is queued again when it was added meanwhile."""
        with self._changed:
            self._in_hand.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._enqueue(key)
            self._changed.notify_all()

    def close(self) -> None:
        """Wake all waiters; nothing more is handed out."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._queued) + len(self._in_hand)

    def _enqueue(self, key: K) -> None:
        if key in self._in_hand:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)

    def _take(self) -> K:
        key = self._ready.popleft()
        self._queued.discard(key)
        self._in_hand.add(key)
        return key

    def _promote(self) -> None:
        """Move what is due from later to ready. An entry whose key was given an earlier time since is stale."""
        while self._later and self._later[0][0] <= self._clock():
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self._enqueue(key)

    def _wait(self, end: float | None) -> float | None:
        limits = [limit for limit in (end, self._later[0][0] if self._later else None) if limit is not None]
        return max(min(limits) - self._clock(), 0.0) if limits else None
