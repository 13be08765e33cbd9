"""A cache of one kind, kept up to date by a list and then watches: what changed is told to two handlers.

Guarantee: a watch is resumed where it ended; when that is too far back, or what arrived could not be understood,
everything is listed again and compared, so that no change is missed, removals among them. What could not be read is
never taken for removed. Trouble in a row is answered with growing pauses, also where a watch only ends at once: there
is no busy loop, and no pause of more than an hour, whatever an answer asks for. Handlers are called from one thread,
and a handler that fails is reported and survived, as is whatever else goes wrong. Not guaranteed: that bodies are kept
(an object that went without an event is told by its metadata and the names in its spec), that every state in between is
seen, or that a handler which failed is called again for the same state.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import assert_never

from attrs import frozen

from reprieve.core.errors import DeniedError, ReprieveError, ThrottledError, UnavailableError, UnknownError
from reprieve.core.objects import NAME_LIMIT, ObjectKind, Resource
from reprieve.core.ports import Bookmark, Cluster, Removed, Upserted, WatchEvent
from reprieve.entrypoints.controller.queue import LONGEST_WAIT

ALIVE = 5.0  # seconds between two looks at whether the following thread still lives
HEALTHY = 1.0  # seconds: a watch that brought nothing and lasted less is no progress
_ON_THE_WAY = UnavailableError | ThrottledError | DeniedError  # nothing was read, so nothing was missed
Slot = tuple[str, str]
Handler = Callable[[Resource], None]


@frozen
class Backoff:
    """Pauses in seconds that double with each failure in a row; at least half of each is kept, the rest is jitter."""

    first: float = 0.5
    ceiling: float = 60.0

    def pause(self, failures: int, jitter: float) -> float:
        """The pause after that many failures in a row (1 or more); ``jitter`` lies between 0 and 1."""
        whole = min(self.ceiling, self.first * 2.0 ** min(failures - 1, 30))
        return whole * (0.5 + 0.5 * jitter)


@frozen
class Subject:
    """What to follow: a kind, in one namespace or (empty) in all, with its bodies or only its metadata."""

    kind: ObjectKind
    namespace: str = ""
    metadata_only: bool = False


@frozen
class Pace:
    """How a reflector tells the time: monotonic seconds, jitter of 0 to 1, the pauses, the length of a watch."""

    backoff: Backoff = Backoff()
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    watch: timedelta = timedelta(minutes=5)


class Reflector:
    """Follows a subject; ``run`` blocks until ``stop`` is set.

    ``wait`` pauses for seconds; by default it is the stop event's own, so that a stop ends a pause.
    """

    def __init__(
        self,
        cluster: Cluster,
        subject: Subject,
        *,
        stop: threading.Event,
        on_upsert: Handler = lambda _resource: None,
        on_remove: Handler = lambda _resource: None,
        on_trouble: Callable[[ReprieveError], None] = lambda _error: None,
        wait: Callable[[float], object] | None = None,
        pace: Pace = Pace(),
    ) -> None:
        """Know nothing yet; make no call."""
        self._cluster, self._subject, self._stop = cluster, subject, stop
        self._on_upsert, self._on_remove, self._on_trouble = on_upsert, on_remove, on_trouble
        self._wait, self._pace = wait or stop.wait, pace
        self._lock = threading.Lock()
        self._synced = threading.Event()
        self._known: dict[Slot, Resource] = {}
        self._version = ""  # empty: list before watching
        self._failures = 0
        self._changed = False
        self._watching_since: float | None = None

    @property
    def has_synced(self) -> bool:
        """Whether everything was listed once, so that the cache is an observation."""
        return self._synced.is_set()

    def wait_synced(self, seconds: float) -> bool:
        """Wait for the first list; tells whether it came."""
        return self._synced.wait(seconds)

    def get(self, namespace: str, name: str) -> Resource | None:
        """What is remembered of an object as it was last seen; None when it was not there."""
        with self._lock:
            return self._known.get((namespace, name))

    def items(self) -> tuple[Resource, ...]:
        """What is remembered of all objects, in order of namespace and name."""
        with self._lock:
            return tuple(resource for _, resource in sorted(self._known.items(), key=lambda item: item[0]))

    def run(self) -> None:
        """Follow until stopped, and return at once then: a watch that waits is left to a thread that tells nobody.

        Returns before a stop only when that thread has ended, so that whoever looks after this one sees it.
        """
        thread = threading.Thread(target=self.follow, name=f"follow-{self._subject.kind.kind}", daemon=True)
        thread.start()
        while thread.is_alive() and not self._stop.wait(ALIVE):
            pass

    def follow(self) -> None:
        """Follow in this thread; ends when the watch at hand ends after a stop."""
        while not self._stop.is_set():
            pause = self.step()
            if pause and not self._stop.is_set():
                self._wait(pause)

    def step(self) -> float:
        """List where that is needed, watch until the watch ends; gives the pause in seconds that should follow."""
        self._changed, self._watching_since = False, None
        trouble = self._attempt()
        progress = self._watched_long_enough() or (self._changed and bool(self._version))
        if trouble is None and progress:
            self._failures = 0
            return 0.0
        self._failures = 1 if progress else self._failures + 1
        return max(_asked_pause(trouble), self._pace.backoff.pause(self._failures, self._pace.jitter()))

    def _attempt(self) -> ReprieveError | None:
        try:
            if not self._version:
                self._relist()
            if not self._stop.is_set():
                self._follow()
        except ReprieveError as error:
            return self._took_trouble(error)
        except BaseException as error:  # noqa: BLE001 - an object that cannot be decoded, a native panic: list again
            return self._took_trouble(UnknownError(f"{self._subject.kind} could not be followed: {error!r}"))
        return None

    def _took_trouble(self, error: ReprieveError) -> ReprieveError:
        if not self._stop.is_set():  # a stop breaks the watch: no trouble
            self._on_trouble(error)
        if not isinstance(error, _ON_THE_WAY):
            self._version = ""  # something may have been missed: list again
        return error

    def _watched_long_enough(self) -> bool:
        since = self._watching_since
        return since is not None and self._pace.clock() - since >= HEALTHY

    def _relist(self) -> None:
        subject = self._subject
        listing = self._cluster.list(subject.kind, namespace=subject.namespace, metadata_only=subject.metadata_only)
        found = {_slot(resource): resource for resource in listing.items}
        with self._lock:
            before, self._known = self._known, {slot: _remembered(new) for slot, new in found.items()}
        self._version = listing.resource_version
        for slot, old in before.items():
            if slot not in found or found[slot].meta.uid != old.meta.uid:
                self._tell(self._on_remove, old)
        for slot, new in found.items():
            if slot not in before or _differs(before[slot], new):
                self._tell(self._on_upsert, new)
        self._synced.set()

    def _follow(self) -> None:
        self._watching_since = self._pace.clock()
        with _closing(self._watch()) as events:
            for event in events:
                if self._stop.is_set():
                    break
                self._take(event)

    def _watch(self) -> Iterator[WatchEvent]:
        return self._cluster.watch(
            self._subject.kind,
            resource_version=self._version,
            namespace=self._subject.namespace,
            metadata_only=self._subject.metadata_only,
            timeout=self._pace.watch,
        )

    def _take(self, event: WatchEvent) -> None:
        match event:
            case Bookmark(version):
                self._version = version
            case Upserted(resource):
                self._upsert(resource)
                self._version, self._changed = resource.meta.resource_version, True
            case Removed(resource):
                self._remove(resource)
                self._version, self._changed = resource.meta.resource_version, True
            case _:
                assert_never(event)

    def _upsert(self, new: Resource) -> None:
        with self._lock:
            old = self._known.get(_slot(new))
            self._known[_slot(new)] = _remembered(new)
        if old is not None and old.meta.uid != new.meta.uid:
            self._tell(self._on_remove, old)
        if old is None or _differs(old, new):
            self._tell(self._on_upsert, new)

    def _remove(self, last: Resource) -> None:
        with self._lock:
            self._known.pop(_slot(last), None)
        self._tell(self._on_remove, last)

    def _tell(self, handler: Handler, resource: Resource) -> None:
        try:
            handler(resource)
        except BaseException as error:  # noqa: BLE001 - one object that cannot be handled must not stop the others
            self._on_trouble(UnknownError(f"an event about {resource.ref} could not be handled: {error!r}"))


@contextlib.contextmanager
def _closing(events: Iterator[WatchEvent]) -> Iterator[Iterator[WatchEvent]]:
    """End a watch that is left before its end; only generators can be."""
    try:
        yield events
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()


def _asked_pause(trouble: ReprieveError | None) -> float:
    asked = trouble.after.total_seconds() if isinstance(trouble, UnavailableError | ThrottledError) else 0.0
    return min(asked, LONGEST_WAIT)


def _slot(resource: Resource) -> Slot:
    return (resource.meta.namespace, resource.meta.name)


def _remembered(resource: Resource) -> Resource:
    """What a removal has to tell of an object: its metadata, and whom its spec names. Bodies are not kept."""
    names = {
        key: value
        for key, value in resource.section("spec").items()
        if isinstance(value, str) and len(value) <= NAME_LIMIT
    }
    return Resource(resource.type, resource.meta, {"spec": names} if names else {})


def _differs(old: Resource, new: Resource) -> bool:
    return (old.meta.uid, old.meta.resource_version) != (new.meta.uid, new.meta.resource_version)
