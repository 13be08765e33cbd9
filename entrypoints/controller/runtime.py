"""The runtime of the controllers: once, or on and on.

Once goes through every key until nothing changes; on and on lives by watches, timed requeues and a resync.

Guarantee: a key is never worked on by two workers of one controller; a reconcile that fails, in whatever way, comes
back with growing pauses and takes nothing else along, neither its worker nor other keys; workers that a slow place
holds up are stood in for, up to a bound; a stop lets the effect at hand finish and begins no other. A missed event is
caught by the resync, and a thread that ended all the same is told by ``ended``. Not guaranteed: that two processes do
not work on the same object; a lease sees to that, and preconditions on every effect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

import structlog
from attrs import field, frozen

from reprieve.core.errors import ConflictError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, Resource
from reprieve.entrypoints.controller.decisions import Decision, Result, Standing, latest
from reprieve.entrypoints.controller.queue import LONGEST_WAIT, WorkQueue

log = structlog.get_logger()

PASSES = 100
RESYNC = timedelta(minutes=10)
STUCK = 2.0
"""Seconds: a worker that is longer in one reconcile does not count as one of the controller's workers."""
STAND_INS = 32
"""So many workers more than configured may stand in for those that are stuck."""
LOOK = 0.5
"""Seconds between two looks at how the workers do."""


@frozen
class Watch:
    """A kind to watch, and which keys an event about one of its objects wakes; the flag tells that it is gone."""

    kind: ObjectKind
    keys_of: Callable[[Resource, bool], Iterable[Any]]
    namespace: str = ""
    metadata_only: bool = False


class Reconciler(Protocol):
    """What the runtime runs."""

    @property
    def name(self) -> str:
        """The controller's name, as decisions and logs show it."""
        ...

    def keys(self) -> Sequence[Any]:
        """Every key that there is, read afresh, in a stable order."""
        ...

    def watches(self) -> Sequence[Watch]:
        """The kinds whose events wake keys."""
        ...

    def reconcile(self, key: Any, *, now: datetime, apply: bool = True) -> Result:
        """Take one key as far as it goes now; with ``apply`` off, only decide. Raises core errors."""
        ...


@frozen
class Failure:
    """A controller that could not do its work for a key."""

    controller: str
    key: Hashable
    message: str


@frozen
class Report:
    """What a single run came to: the last decision of each object, and the failures of its last pass."""

    decisions: tuple[Decision, ...] = ()
    failures: tuple[Failure, ...] = ()
    passes: int = 0

    @property
    def standing(self) -> Standing:
        """The worst that any object or controller came to."""
        worst = max((decision.standing for decision in self.decisions), default=Standing.SETTLED)
        return Standing.FAILED if self.failures else worst


def plan_once(reconcilers: Iterable[Reconciler], *, now: datetime) -> Report:
    """Ask every controller once what it would do; nothing is applied."""
    one_pass = _Pass(now=now, apply=False)
    for reconciler in reconcilers:
        one_pass.run(reconciler)
    return Report(tuple(latest(one_pass.decisions)), tuple(one_pass.failures), 1)


def run_once(
    reconcilers: Iterable[Reconciler],
    *,
    now: datetime,
    stop: threading.Event | None = None,
    progress: Callable[[Decision], None] = lambda _: None,
) -> Report:
    """Run every controller over every key until a pass changes nothing. The clock stands still at ``now``."""
    decisions: list[Decision] = []
    failures: list[Failure] = []
    controllers, number = list(reconcilers), 0
    while number < PASSES:
        number += 1
        one_pass = _Pass(now=now, stop=stop or threading.Event(), progress=progress)
        for reconciler in controllers:
            one_pass.run(reconciler)
        decisions += one_pass.decisions
        failures = one_pass.failures
        if not one_pass.changed or one_pass.stop.is_set():
            break
    else:
        failures = [Failure("run", "", f"still changing after {PASSES} passes: something undoes what is done")]
    return Report(tuple(latest(decisions)), tuple(failures), number)


class _Pass:
    """One look at every key."""

    def __init__(
        self,
        *,
        now: datetime,
        apply: bool = True,
        stop: threading.Event | None = None,
        progress: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self.now, self.apply, self.progress = now, apply, progress
        self.stop = stop or threading.Event()
        self.decisions: list[Decision] = []
        self.failures: list[Failure] = []
        self.changed = False

    def run(self, reconciler: Reconciler) -> None:
        for key in self._keys(reconciler):
            if not self.stop.is_set():
                self._one(reconciler, key)

    def _keys(self, reconciler: Reconciler) -> Sequence[Any]:
        try:
            return reconciler.keys()
        except ReprieveError as fault:
            self.failures.append(Failure(reconciler.name, "", str(fault)))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:
            log.debug("keys not listed", controller=reconciler.name, exc_info=fault)
            self.failures.append(Failure(reconciler.name, "", f"internal error: {type(fault).__name__}: {fault}"))
        return ()

    def _one(self, reconciler: Reconciler, key: Any) -> None:
        try:
            result = reconciler.reconcile(key, now=self.now, apply=self.apply)
        except (ConflictError, NotFoundError) as fault:
            # The world moved under the reconcile: one more pass reads it again. It ends by the bound on passes.
            log.debug("read again", controller=reconciler.name, key=str(key), fault=str(fault))
            self.changed = True
        except ReprieveError as fault:
            self.failures.append(Failure(reconciler.name, key, str(fault)))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:
            log.debug("reconcile failed", controller=reconciler.name, key=str(key), exc_info=fault)
            self.failures.append(Failure(reconciler.name, key, f"internal error: {type(fault).__name__}: {fault}"))
        else:
            self._take(result)

    def _take(self, result: Result) -> None:
        self.decisions += result.decisions
        self.changed = self.changed or result.changed
        for decision in result.decisions:
            self.progress(decision)


@frozen
class Lane:
    """A controller with its queue, the number of its workers, and its own resync (None: the runtime's).

    The queue knows the place of a key where the controller does; see ``WorkQueue``.
    """

    reconciler: Reconciler
    queue: WorkQueue[Any] = field(factory=WorkQueue)
    workers: int = 1
    resync: timedelta | None = None


class Source(Protocol):
    """Something that follows a kind and calls back on every change, until it is told to stop."""

    def run(self) -> None:
        """Follow until stopped."""
        ...


class Waker(Protocol):
    """Wakes the keys that an object concerns."""

    def __call__(self, resource: Resource, *, removed: bool) -> None:
        """Tell of a change; ``removed`` when the object is gone."""
        ...


SourceFactory = Callable[[Watch, Waker], Source]
Observer = Callable[[str, Result | BaseException], None]


class Runtime:
    """Runs controllers until it is stopped."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        *,
        source: SourceFactory,
        clock: Callable[[], datetime],
        stop: threading.Event,
        resync: timedelta = RESYNC,
        observe: Observer = lambda _name, _result: None,
    ) -> None:
        """``source`` makes a follower of a kind; ``observe`` sees every result, for metrics."""
        self._lanes, self._source, self._clock = lanes, source, clock
        self._stop, self._resync, self._observe = stop, resync, observe
        self._threads: list[threading.Thread] = []
        self._workers: dict[str, _Workers] = {}

    def start(self) -> None:
        """Begin: followers, workers, and the first look at every key."""
        for lane in self._lanes:
            name = lane.reconciler.name
            for watch in lane.reconciler.watches():
                self._spawn(self._source(watch, _waker(lane, watch)).run, f"watch-{watch.kind.kind}")
            workers = self._workers[name] = _Workers(lane, self._stop, partial(self._reconcile, lane))
            workers.start()
            self._spawn(workers.keep_enough, f"workers-{name}")
            self._spawn(partial(self._keep_resyncing, lane), f"resync-{name}")

    def wait(self) -> None:
        """Wait for a stop, and then for every worker to lay down what it has in hand.

        Followers are not waited for: they only read, and may sit in a watch for minutes.
        """
        self._stop.wait()
        for lane in self._lanes:
            lane.queue.close()
        for workers in self._workers.values():
            workers.join()

    def ended(self) -> list[str]:
        """The threads that ended though nobody has stopped them: from then on something is not done any more."""
        if self._stop.is_set():
            return []
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        return sorted([*dead, *(name for workers in self._workers.values() for name in workers.ended())])

    def _spawn(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _keep_resyncing(self, lane: Lane) -> None:
        while not self._stop.is_set():
            self._resync_once(lane)
            left = (lane.resync or self._resync).total_seconds()
            while left > 0 and not self._stop.wait(min(left, LONGEST_WAIT)):
                left -= LONGEST_WAIT

    def _resync_once(self, lane: Lane) -> None:
        try:
            keys = lane.reconciler.keys()
        except BaseException as fault:  # noqa: BLE001 - whatever it was, the next resync is to come
            _say("resync failed", fault, controller=lane.reconciler.name)
            self._tell(lane, fault)
            return
        for key in keys:
            lane.queue.add(key)

    def _reconcile(self, lane: Lane, key: Any) -> None:
        name, now, began = lane.reconciler.name, self._clock(), time.monotonic()
        try:
            result = lane.reconciler.reconcile(key, now=now)
        except BaseException as fault:  # noqa: BLE001 - one key's fault must not end the worker, nor a native panic
            lane.queue.judge(key, seconds=time.monotonic() - began, progress=False)
            pause = lane.queue.retry(key)
            _say("reconcile failed", fault, controller=name, key=str(key), retry_in_seconds=pause)
            self._tell(lane, fault)
            return
        lane.queue.judge(key, seconds=time.monotonic() - began, progress=result.changed)
        lane.queue.forget(key)
        if result.again is not None:
            lane.queue.add_after(key, (result.again - now).total_seconds())
        self._tell(lane, result)

    def _tell(self, lane: Lane, result: Result | BaseException) -> None:
        try:
            self._observe(lane.reconciler.name, result)
        except BaseException as fault:  # noqa: BLE001 - what is counted or not must not stop the work
            _say("not observed", fault, controller=lane.reconciler.name)


class _Workers:
    """The workers of a lane: as many as configured, and stand-ins for those that are stuck."""

    def __init__(self, lane: Lane, stop: threading.Event, reconcile: Callable[[Any], None]) -> None:
        self._lane, self._stop, self._reconcile = lane, stop, reconcile
        self._threads: list[threading.Thread] = []
        self._since: dict[int, float] = {}  # by thread: when it took what it has in hand
        self._leaving: set[int] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start as many as configured."""
        for _ in range(self._lane.workers):
            self._add()

    def join(self) -> None:
        """Wait until all have laid down what they have in hand."""
        for thread in list(self._threads):
            thread.join()

    def ended(self) -> list[str]:
        """Those that ended by themselves."""
        with self._lock:
            return [t.name for t in self._threads if not t.is_alive() and t.ident not in self._leaving]

    def keep_enough(self) -> None:
        """Until a stop: stand in for workers that are stuck, while keys wait that could be worked on."""
        while not self._stop.wait(LOOK):
            with suppress(RuntimeError):  # no thread is to be had now
                for _ in range(self._lacking() if self._lane.queue.waiting else 0):
                    self._add()

    def _add(self) -> None:
        with self._lock:
            name = f"{self._lane.reconciler.name}-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _lacking(self) -> int:
        """How many workers are stuck and may be stood in for; forgets those that have left."""
        now = time.monotonic()
        with self._lock:
            self._threads = [t for t in self._threads if t.is_alive() or t.ident not in self._leaving]
            self._leaving &= {t.ident for t in self._threads if t.ident is not None}
            stuck = sum(now - since > STUCK for since in self._since.values())
            alive = len(self._threads) - len(self._leaving)
            return max(0, min(self._lane.workers + stuck, self._lane.workers + STAND_INS) - alive)

    def _may_leave(self) -> bool:
        """Whether there are enough workers that are not stuck without this one, which has nothing in hand."""
        now, me = time.monotonic(), threading.get_ident()
        with self._lock:
            stuck = sum(now - since > STUCK for since in self._since.values())
            free = len(self._threads) - len(self._leaving) - stuck
            if free <= self._lane.workers:
                return False
            self._leaving.add(me)
            return True

    def _work(self) -> None:
        queue, me = self._lane.queue, threading.get_ident()
        while (key := queue.get()) is not None:
            with self._lock:
                self._since[me] = time.monotonic()
            try:
                self._reconcile(key)
            finally:
                with self._lock:
                    del self._since[me]
                queue.done(key)
            if self._may_leave():
                return


def _say(what: str, fault: BaseException, **fields: object) -> None:
    """Log what failed: a world that moved quietly, an error of ours plainly, anything else with its traceback."""
    quiet = isinstance(fault, ConflictError | NotFoundError)
    level = log.debug if quiet else log.warning if isinstance(fault, ReprieveError) else log.error
    with suppress(Exception):  # a log that cannot be written is no reason to stop
        level(what, **fields, fault=str(fault), exc_info=None if isinstance(fault, ReprieveError) else fault)


def _waker(lane: Lane, watch: Watch) -> Waker:
    def wake(resource: Resource, *, removed: bool) -> None:
        for key in watch.keys_of(resource, removed):
            lane.queue.add(key)

    return wake
