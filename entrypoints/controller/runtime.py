"""The runtime of the controllers: once, or on and on.

Once goes through every key until nothing changes; on and on lives by watches, timed requeues and a resync.

Guarantee: a key is never worked on by two workers of one controller; a reconcile that fails comes back with growing
pauses and takes nothing else along; a stop lets the effect at hand finish and begins no other. A missed event is
caught by the resync. Not guaranteed: that two processes do not work on the same object; a lease sees to that, and
preconditions on every effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

import structlog
from attrs import field, frozen

from reprieve.core.errors import ConflictError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, Resource
from reprieve.entrypoints.controller.decisions import Decision, Result, Standing, latest
from reprieve.entrypoints.controller.queue import WorkQueue

log = structlog.get_logger()

PASSES = 100
RESYNC = timedelta(minutes=10)


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
        except Exception as fault:
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
    """A controller with its queue, the number of its workers, and its own resync (None: the runtime's)."""

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
Observer = Callable[[str, Result | Exception], None]


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

    def start(self) -> None:
        """Begin: followers, workers, and the first look at every key."""
        for lane in self._lanes:
            for watch in lane.reconciler.watches():
                self._spawn(self._source(watch, _waker(lane, watch)).run, f"watch-{watch.kind.kind}")
            for number in range(lane.workers):
                self._threads.append(self._spawn(partial(self._work, lane), f"{lane.reconciler.name}-{number}"))
            self._spawn(partial(self._keep_resyncing, lane), f"resync-{lane.reconciler.name}")

    def wait(self) -> None:
        """Wait for a stop, and then for every worker to lay down what it has in hand.

        Followers are not waited for: they only read, and may sit in a watch for minutes.
        """
        self._stop.wait()
        for lane in self._lanes:
            lane.queue.close()
        for thread in self._threads:
            thread.join()

    @staticmethod
    def _spawn(work: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def _keep_resyncing(self, lane: Lane) -> None:
        while not self._stop.is_set():
            self._resync_once(lane)
            self._stop.wait((lane.resync or self._resync).total_seconds())

    def _resync_once(self, lane: Lane) -> None:
        try:
            keys = lane.reconciler.keys()
        except ReprieveError as fault:
            log.warning("resync failed", controller=lane.reconciler.name, fault=str(fault))
            self._observe(lane.reconciler.name, fault)
            return
        for key in keys:
            lane.queue.add(key)

    def _work(self, lane: Lane) -> None:
        while (key := lane.queue.get()) is not None:
            try:
                self._reconcile(lane, key)
            finally:
                lane.queue.done(key)

    def _reconcile(self, lane: Lane, key: Any) -> None:
        name, now = lane.reconciler.name, self._clock()
        try:
            result = lane.reconciler.reconcile(key, now=now)
        except Exception as fault:  # noqa: BLE001 - one key's fault must not end the worker
            pause = lane.queue.retry(key)
            quiet = isinstance(fault, ConflictError | NotFoundError)
            level = log.debug if quiet else log.warning if isinstance(fault, ReprieveError) else log.exception
            level("reconcile failed", controller=name, key=str(key), fault=str(fault), retry_in_seconds=pause)
            self._observe(name, fault)
            return
        lane.queue.forget(key)
        self._observe(name, result)
        if result.again is not None:
            lane.queue.add_after(key, (result.again - now).total_seconds())


def _waker(lane: Lane, watch: Watch) -> Waker:
    def wake(resource: Resource, *, removed: bool) -> None:
        for key in watch.keys_of(resource, removed):
            lane.queue.add(key)

    return wake
