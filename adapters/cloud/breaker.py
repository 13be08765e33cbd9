"""A circuit breaker for each account: after a call that got no answer, further ones come back at once, for a while.

====================================================  =======================================================
what was seen                                         what follows
====================================================  =======================================================
a call hung, and none was answered since it began     calls are held back for ``REST``
several quick failures in a row (where that counts)   calls are held back for ``SHORT_REST``
the rest is over                                      one call is let through to try; the others are held back
any answer                                            calls pass again
====================================================  =======================================================

Guarantee: once a call has timed out, an account that stays stuck keeps no caller but the one that tries; nobody waits
here. Not guaranteed: that the first callers are spared: whoever called before the first time-out waits for its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from reprieve.core.errors import ThrottledError, UnavailableError

HUNG = timedelta(seconds=2)
"""A call that took longer than this to fail was no quick refusal: nobody answered."""

REST = timedelta(seconds=30)
SHORT_REST = timedelta(seconds=5)
NEVER = 0


class Breaker:
    """Whether an account may be called. Safe for threads.

    ``quick``: how many quick failures in a row open it, ``NEVER`` where something else slows down for those. ``clock``
    gives seconds that only grow.
    """

    def __init__(
        self, *, quick: int = NEVER, hung: timedelta = HUNG, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin closed: calls pass."""
        self._quick = quick
        self._hung = hung.total_seconds()
        self._clock = clock
        self._lock = threading.Lock()
        self._until = 0.0
        self._open = False
        self._trying = False
        self._answered = clock()
        self._row = 0

    def ask(self) -> timedelta:
        """How long calls are held back, zero when this one may be made; ``note`` or ``let_go`` must follow then."""
        with self._lock:
            held = self._held()
            self._trying = self._trying or (self._open and not held)
            return held

    def held(self) -> timedelta:
        """As ``ask``, of a call that is not made yet."""
        with self._lock:
            return self._held()

    def _held(self) -> timedelta:
        if not self._open:
            return timedelta(0)
        left = max(0.0, self._until - self._clock())
        return timedelta(seconds=left) if left or not self._trying else SHORT_REST

    def is_long(self, began: float) -> bool:
        """Whether a call that fails now, and began then, hung."""
        return self._clock() - began > self._hung

    def note(self, *, began: float, failed: bool) -> None:
        """Note what a call came to that began at that time of the clock."""
        with self._lock:
            now = self._clock()
            self._trying = False
            self._row = self._row + 1 if failed else 0
            if not failed or not (self._quick or self.is_long(began)):
                self._answered, self._open = now, False
            elif self.is_long(began) and began >= self._answered:
                self._rest(now, REST)
            elif self._open or 0 < self._quick <= self._row:
                self._rest(now, SHORT_REST)

    def let_go(self) -> None:
        """Note that a call that was let through tells nothing."""
        with self._lock:
            self._trying = False

    def _rest(self, now: float, rest: timedelta) -> None:
        self._open, self._until = True, max(self._until, now + rest.total_seconds())

    @contextmanager
    def guard(self, doing: str) -> Iterator[None]:
        """Make a read that raises the core's errors. Raises ``UnavailableError`` at once when it is held back."""
        if held := self.ask():
            raise UnavailableError(held_back(doing, held), held)
        began = self._clock()
        try:
            yield
        except (ThrottledError, UnavailableError):
            self.note(began=began, failed=True)
            raise
        except GeneratorExit:
            self.let_go()
            raise
        except BaseException:
            self.note(began=began, failed=False)
            raise
        self.note(began=began, failed=False)


def held_back(doing: str, held: timedelta) -> str:
    """What is said of a call that is not made."""
    return f"{doing}: not asked, since calls before it got no answer; held back for {held.total_seconds():.0f} s"
