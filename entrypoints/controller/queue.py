"""A work queue as controllers use it.

A key is queued once, worked on by one worker at a time, and comes back later if asked. Keys may lie at a *place* (a
storage location, which may be anybody's): a place that was never seen to answer in time has one key in hand at most,
and one that only held workers up rests for a while.

Guarantee: a key that is added while it is worked on is worked on once more afterwards; the same key is never in two
hands; no wait is longer than an hour, whatever date a stranger wrote; events about a key that fails do not end its
pause, and events about any key wake it once a second at most, after a burst. Not guaranteed: order between keys.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_DELAY = 0.5
LAST_DELAY = 300.0
LONGEST_WAIT = 3600.0
"""Seconds: a key that is to come back in a hundred years is looked at every hour; no thread can wait so long."""
HEARD_AGAIN = 30.0
"""Seconds: events about a key that fails shorten its pause to this, and no further."""
BURST, EVERY = 20, 1.0
"""So many looks at a key that events may bring at once; after that one every so many seconds."""
SLOW = 20.0
"""Seconds: a look that changed nothing and took longer held a worker up; calls to a bucket time out after 30."""
FIRST_REST, LAST_REST = 30.0, 300.0
"""Seconds that a place rests after it held a worker up; doubled with each time in a row."""


class WorkQueue(Generic[K]):
    """De-duplicating queue with delays in seconds; the clock is monotonic and can be replaced.

    ``place_of`` tells where a key lies; None: nowhere in particular.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, place_of: Callable[[K], Hashable | None] = lambda _: None
    ) -> None:
        """Start empty and open."""
        self._clock, self._asked = clock, place_of
        self._ready: deque[K] = deque()
        self._queued: set[K] = set()
        self._in_hand: dict[K, Hashable | None] = {}
        self._again: set[K] = set()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._looks: dict[K, tuple[float, float]] = {}  # what is left of the burst, and when that was
        self._busy: Counter[Hashable] = Counter()
        self._proven: set[Hashable] = set()
        self._rests: dict[Hashable, tuple[int, float]] = {}  # how often in a row, and until when
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._open = True

    def add(self, key: K) -> None:
        """Queue a key now; one that fails, or that was brought up too often, a little later."""
        with self._changed:
            self._bring_up(key)
            self._changed.notify()

    def add_after(self, key: K, delay: float) -> None:
        """Queue a key after that many seconds, an hour at most; the earliest of several delays counts."""
        if delay <= 0:
            self.add(key)
            return
        with self._changed:
            self._push(key, delay)
            self._changed.notify()

    def retry(self, key: K) -> float:
        """Queue a key that failed, after a pause that doubles with each failure in a row; tells the seconds."""
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = float(min(FIRST_DELAY * 2 ** min(failures - 1, 20), LAST_DELAY))
            self._push(key, pause)
            self._changed.notify()
        return pause

    def forget(self, key: K) -> None:
        """Forget the failures of a key that went well."""
        with self._changed:
            self._failures.pop(key, None)

    def judge(self, key: K, *, seconds: float, progress: bool) -> None:
        """Learn of the place of a key in hand by how long a look took, and whether it changed anything."""
        with self._changed:
            place = self._in_hand.get(key)
            if place is None:
                return
            if seconds > SLOW and not progress:
                times = self._rests.get(place, (0, 0.0))[0] + 1
                rest = min(FIRST_REST * 2 ** min(times - 1, 20), LAST_REST)
                self._rests[place] = (times, self._clock() + rest)
                self._proven.discard(place)
            else:
                self._rests.pop(place, None)
                self._proven.add(place)

    def get(self, *, timeout: float | None = None) -> K | None:
        """Take a key in hand; None when the queue was closed, or after ``timeout`` seconds without one."""
        end = None if timeout is None else self._clock() + timeout
        with self._changed:
            while self._open:
                self._promote()
                for _ in range(len(self._ready)):
                    key = self._ready.popleft()
                    if self._may_be_taken(key):
                        return self._take(key)
                wait = self._wait(end)
                if wait <= 0 and end is not None and self._clock() >= end:
                    return None
                self._changed.wait(wait)
            return None

    def done(self, key: K) -> None:
        """Lay a key out of hand; it is queued again when it was added meanwhile."""
        with self._changed:
            place = self._in_hand.pop(key, None)
            self._busy[place] -= 1
            if self._busy[place] <= 0:
                del self._busy[place]
            if key in self._again:
                self._again.discard(key)
                self._bring_up(key)
            self._changed.notify_all()

    def close(self) -> None:
        """Wake all waiters; nothing more is handed out."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    @property
    def waiting(self) -> bool:
        """Whether a key could be handed out now, were there a worker to take it."""
        with self._changed:
            self._promote()
            return self._open and any(self._has_room(self._place_of(key)) for key in self._ready)

    def __len__(self) -> int:
        with self._changed:
            return len(self._queued) + len(self._in_hand)

    def _bring_up(self, key: K) -> None:
        if key in self._in_hand:  # whether it fails is known when it is laid down
            self._again.add(key)
            return
        pause = HEARD_AGAIN if key in self._failures else self._too_often(key)
        if pause > 0:
            self._push(key, pause)
        else:
            self._enqueue(key)

    def _place_of(self, key: K) -> Hashable | None:
        """Where a key lies; nowhere in particular where that cannot be told, so that no key is lost for it."""
        try:
            return self._asked(key)
        except Exception:  # noqa: BLE001 - it may rest on what a stranger wrote
            return None

    def _too_often(self, key: K) -> float:
        """The seconds to wait before a key that events bring up is looked at; counts the look where there are none."""
        now = self._clock()
        left, at = self._looks.get(key, (float(BURST), now))
        left = min(float(BURST), left + (now - at) / EVERY)
        if left < 1:
            return (1 - left) * EVERY
        if key not in self._queued:
            self._looks[key] = (left - 1, now)
        if len(self._looks) > 10 * BURST + 2 * len(self._due) + 2 * len(self._queued):
            full = [k for k, (had, since) in self._looks.items() if had + (now - since) / EVERY >= BURST]
            for each in full:
                del self._looks[each]
        return 0.0

    def _push(self, key: K, delay: float) -> None:
        due = self._clock() + (min(LONGEST_WAIT, delay))  # what is no number waits longest
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._later, (due, next(self._order), key))

    def _enqueue(self, key: K) -> None:
        if key in self._in_hand:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)

    def _may_be_taken(self, key: K) -> bool:
        """Whether the key's place has room for it; if not, it goes behind the others, or waits until the rest ends."""
        place = self._place_of(key)
        if self._has_room(place):
            return True
        _, until = self._rests.get(place, (0, 0.0))
        if until > self._clock():
            self._queued.discard(key)
            self._push(key, until - self._clock())
        else:
            self._ready.append(key)
        return False

    def _has_room(self, place: Hashable | None) -> bool:
        if place is None or place in self._proven:
            return True
        _, until = self._rests.get(place, (0, 0.0))
        return not self._busy[place] and until <= self._clock()

    def _take(self, key: K) -> K:
        self._queued.discard(key)
        place = self._place_of(key)
        self._in_hand[key] = place
        self._busy[place] += 1
        return key

    def _promote(self) -> None:
        """Move what is due from later to ready. An entry whose key was given an earlier time since is stale."""
        while self._later and self._later[0][0] <= self._clock():
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self._enqueue(key)

    def _wait(self, end: float | None) -> float:
        limits = [limit for limit in (end, self._later[0][0] if self._later else None) if limit is not None]
        return min(max(min(limits) - self._clock(), 0.0), LONGEST_WAIT) if limits else LONGEST_WAIT
