"""Serving: the controllers for as long as they live, with a lease, followers, probes and metrics.

Guarantee: in a cluster only the holder of the lease works; one that loses it exits at once, and another takes over.
Nothing is begun, and nothing is ready, before the API server was reached and serves the kinds of the backups.
Not guaranteed: that the last effect before the loss is seen by the next holder; every effect can be repeated.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

import structlog
from attrs import frozen

from reprieve.adapters.k8s.lease import LEASE, Elector, Terms, identity
from reprieve.core.errors import ContainerMissingError, ExpiredError, ReprieveError
from reprieve.core.objects import ObjectKind
from reprieve.entrypoints.controller.build import Controllers, dialect_of
from reprieve.entrypoints.controller.leftovers import check_at_start
from reprieve.entrypoints.controller.metrics import Metrics
from reprieve.entrypoints.controller.places import warn_about_places
from reprieve.entrypoints.controller.probes import Probes
from reprieve.entrypoints.controller.reflector import Reflector, Subject
from reprieve.entrypoints.controller.runtime import Runtime, Source, Waker, Watch
from reprieve.entrypoints.controller.telling import NAME as PROTECTION
from reprieve.entrypoints.leases import LEASE_NAME, lease_namespace
from reprieve.entrypoints.world import World

log = structlog.get_logger()

EXIT_LOST = 1


def _exit_at_once() -> None:
    """Leave without another effect: whoever holds the lease now may be at work already."""
    os._exit(EXIT_LOST)


def serve(
    built: Controllers,
    world: World,
    *,
    stop: threading.Event,
    clock: Callable[[], datetime],
    port: int = 0,
    address: str = "",
    terms: Terms | None = None,
    exit_at_once: Callable[[], None] = _exit_at_once,
) -> None:
    """Run until a stop. ``port`` is where probes and metrics are served, 0 serves none; at ``address``, empty for all.

    A local folder is locked by itself; in a cluster the lease decides who works, and ``exit_at_once`` is called when it
    is lost. Raises core errors when the start is in vain: no API server, no credentials, no Velero.
    """
    metrics = Metrics()
    probes = Probes(metrics, port, host=address)
    runtime = Runtime(built.lanes, source=_followers(world, stop), clock=clock, stop=stop, observe=metrics.observe)
    probes.watch_over(runtime.ended)
    with probes.serving():
        _check_served(built, world)
        _check_at_start(world, clock)
        probes.ready()
        if world.local:
            _work(runtime, built)
            runtime.wait()
        else:
            with _campaign(world, clock, terms or Terms(), lambda: _work(runtime, built), exit_at_once):
                runtime.wait()
        log.info("controllers stopped")


def _check_served(built: Controllers, world: World) -> None:
    """Raise core errors when the API server cannot be asked, or does not serve what the controllers live by.

    Whoever waits without a word for a cluster that is not there, or for one without Velero, waits for ever.
    """
    if world.local:
        return
    world.cluster.scope(LEASE)
    if all(each.name == PROTECTION for each in built.reconcilers):
        return
    dialect = dialect_of(world.backups)
    try:
        for kind in (dialect.request_kind, dialect.backup_kind):
            world.cluster.scope(kind)
    except ContainerMissingError as fault:
        way_out = f"is {dialect.name} installed in this cluster? --controllers protection goes without it"
        raise ContainerMissingError(f"{fault}: {way_out}") from fault


def _check_at_start(world: World, clock: Callable[[], datetime]) -> None:
    """Look for what somebody should know, beside the work: it may take as long as it takes."""

    def check() -> None:
        warn_about_places(world, now=clock())
        check_at_start(world.cluster, world.configuration.protection, local=world.local)

    threading.Thread(target=check, name="check-at-start", daemon=True).start()


def _work(runtime: Runtime, built: Controllers) -> None:
    log.info("controllers started", controllers=[each.name for each in built.reconcilers])
    runtime.start()


@contextmanager
def _campaign(
    world: World,
    clock: Callable[[], datetime],
    terms: Terms,
    work: Callable[[], None],
    exit_at_once: Callable[[], None],
) -> Iterator[None]:
    """Ask for the lease in a thread, which starts the work once it is held; let go of it after the work has ended."""
    namespace, ended = lease_namespace(world.configuration), threading.Event()
    elector = Elector(world.cluster, namespace=namespace, name=LEASE_NAME, identity=identity(), terms=terms, now=clock)

    def lost(why: str) -> None:
        log.error("lease lost", lease=f"{namespace}/{LEASE_NAME}", fault=why)
        exit_at_once()

    def waiting(why: str) -> None:
        log.info("waiting for the lease", lease=f"{namespace}/{LEASE_NAME}", why=why)

    def campaign() -> None:
        try:
            elector.run(stopped=ended.is_set, wait=ended.wait, on_started=work, on_lost=lost, on_waiting=waiting)
        except BaseException as fault:  # noqa: BLE001 - whoever does not renew the lease any more may not work either
            lost(f"{type(fault).__name__}: {fault}")

    thread = threading.Thread(target=campaign, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _followers(world: World, stop: threading.Event) -> Callable[[Watch, Waker], Source]:
    def follow(watch: Watch, wake: Waker) -> Source:
        return _Follower(
            Reflector(
                world.cluster,
                Subject(watch.kind, watch.namespace, watch.metadata_only),
                stop=stop,
                on_upsert=lambda resource: wake(resource, removed=False),
                on_remove=lambda resource: wake(resource, removed=True),
                on_trouble=partial(_interrupted, watch.kind),
            )
        )

    return follow


@frozen
class _Follower:
    """Follows a kind in the very thread that the runtime gives it and does not wait for: one a kind, no second."""

    reflector: Reflector

    def run(self) -> None:
        """Follow until stopped; ends when the watch at hand does."""
        self.reflector.follow()


def _interrupted(kind: ObjectKind, error: ReprieveError) -> None:
    """Tell of a broken watch. One that is too far back is everyday: everything is listed again."""
    level = log.info if isinstance(error, ExpiredError) else log.warning
    level("watch interrupted", kind=str(kind), fault=str(error))
