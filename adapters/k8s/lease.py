"""Leader election by a Lease (coordination.k8s.io/v1): of several controllers one works.

Guarantee: every claim is made on the version of the Lease that was read, so that two candidates never both get it;
``leading`` turns false by itself when no renewal came through within the deadline, which ends before anybody else may
take over. A foreign Lease counts as dead only when this process saw it unchanged for its whole duration: clocks of
other machines decide nothing. Not guaranteed: that work begun while leading has ended when leadership is lost; the
process should exit at once, and effects carry preconditions.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import frozen

from reprieve.core.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectKind, ObjectRef, Resource, text
from reprieve.core.ports import Cluster
from reprieve.core.values import later, parse_instant

LEASE = ObjectKind("coordination.k8s.io/v1", "Lease")
SKEW = timedelta(seconds=15)  # how far the clocks of two machines may be apart when one asks for the other's lease


@frozen
class Terms:
    """How long a Lease lasts, until when a leader has to have renewed it, and how often that is tried."""

    duration: timedelta = timedelta(seconds=15)
    deadline: timedelta = timedelta(seconds=10)
    retry: timedelta = timedelta(seconds=2)

    @property
    def call(self) -> timedelta:
        """How long one call may take: a claim makes two, and its end must be seen before anybody else may take over."""
        return (self.duration - self.deadline) / 2

    def __attrs_post_init__(self) -> None:
        if not timedelta(0) < self.retry < self.deadline < self.duration or self.duration < timedelta(seconds=1):
            raise InvalidError(
                f"a lease needs retry < deadline < duration, and a second at least: "
                f"retry {self.retry}, deadline {self.deadline}, duration {self.duration}"
            )


@frozen
class Leading:
    """This process holds the Lease."""


@frozen
class Following:
    """Somebody else holds it, or nobody could be asked; ``why`` says which."""

    why: str


Standing = Leading | Following


@frozen
class Held:
    """A live Lease: by whom, and when it ends unless it is renewed (None: its times cannot be read)."""

    holder: str
    until: datetime | None


@frozen
class Free:
    """No controller holds the Lease."""


class Elector:
    """One candidate for one Lease, for one thread. Where the cluster allows it, calls last ``terms.call`` at most."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        terms: Terms = Terms(),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``now`` stamps the Lease; ``clock`` (monotonic seconds) decides. ``identity`` must be this process' own."""
        self._cluster, self._identity, self._terms = _within(cluster, terms.call), identity, terms
        self._ref = ObjectRef(LEASE.api_version, LEASE.kind, name, namespace)
        self._now, self._clock = now, clock
        self._renewed: float | None = None
        self._seen: tuple[str, str] = ("", "")
        self._seen_at = 0.0

    @property
    def leading(self) -> bool:
        """Whether this process may act: the last renewal began less than the deadline ago. Safe from any thread."""
        renewed = self._renewed
        return renewed is not None and self._clock() - renewed < self._terms.deadline.total_seconds()

    def step(self) -> Standing:
        """Try to take or renew the Lease once. Raises nothing; what went wrong stands in ``Following.why``."""
        started = self._clock()
        try:
            standing = self._claim()
        except ReprieveError as error:
            return Leading() if self.leading else Following(f"the lease {self._ref.key} cannot be renewed: {error}")
        self._renewed = started if isinstance(standing, Leading) else None
        return standing

    def run(
        self,
        *,
        stopped: Callable[[], bool],
        wait: Callable[[float], object],
        on_started: Callable[[], None],
        on_lost: Callable[[str], None],
        on_waiting: Callable[[str], None] = lambda _why: None,
    ) -> None:
        """Campaign until stopped, then let go of the Lease; ends after ``on_lost`` when leadership is lost.

        ``wait`` pauses for seconds (``threading.Event.wait`` of the stop event is one). ``on_waiting`` is told why the
        work does not begin yet, once for each reason in a row.
        """
        started, told = False, ""
        while not stopped():
            standing = self.step()
            if started and not self.leading:
                on_lost(standing.why if isinstance(standing, Following) else "the lease was not renewed in time")
                return
            if not started and self.leading:
                started = True
                on_started()
            if not started and isinstance(standing, Following) and standing.why != told:
                told = standing.why
                on_waiting(told)
            wait(self._terms.retry.total_seconds())
        self.release()

    def release(self) -> None:
        """Let go of the Lease, so that the next candidate need not wait; nothing happens when it cannot be reached."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            found = self._cluster.get(self._ref)
            if text(found.section("spec").get("holderIdentity")) == self._identity:
                spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro(self._now())}
                self._cluster.patch(found.ref, {"spec": spec}, resource_version=found.meta.resource_version)
        except ReprieveError:
            return  # it ends by itself

    def _claim(self) -> Standing:
        try:
            found = self._cluster.get(self._ref)
        except NotFoundError:
            return self._create()
        holder = text(found.section("spec").get("holderIdentity"))
        if holder not in ("", self._identity) and not self._dead(found):
            return Following(f"{holder} holds the lease {self._ref.key}")
        try:
            self._cluster.patch(found.ref, self._patch(found, holder), resource_version=found.meta.resource_version)
        except (ConflictError, NotFoundError):
            return Following(f"somebody else was quicker to the lease {self._ref.key}")
        return Leading()

    def _create(self) -> Standing:
        meta = {"name": self._ref.name, "namespace": self._ref.namespace}
        head = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": meta}
        try:
            self._cluster.create({**head, "spec": {**self._spec(), "acquireTime": _micro(self._now())}})
        except AlreadyExistsError:
            return Following(f"somebody else was quicker to the lease {self._ref.key}")
        return Leading()

    def _patch(self, found: Resource, holder: str) -> Mapping[str, Any]:
        if holder == self._identity:
            return {"spec": self._spec()}
        before = found.section("spec").get("leaseTransitions")
        transitions = before + 1 if isinstance(before, int) else 1
        return {"spec": {**self._spec(), "acquireTime": _micro(self._now()), "leaseTransitions": transitions}}

    def _spec(self) -> dict[str, Any]:
        seconds = int(self._terms.duration.total_seconds())
        return {"holderIdentity": self._identity, "leaseDurationSeconds": seconds, "renewTime": _micro(self._now())}

    def _dead(self, found: Resource) -> bool:
        """Whether a foreign Lease stood still for its whole duration, by this process' own clock."""
        version = (found.meta.uid, found.meta.resource_version)
        if version != self._seen:
            self._seen, self._seen_at = version, self._clock()
        lasts = max(_duration(found), self._terms.duration)
        return self._clock() - self._seen_at >= lasts.total_seconds()


def identity() -> str:
    """A name for this process that no other has: the host's (in Kubernetes: the pod's) and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def lease_holder(cluster: Cluster, *, namespace: str, name: str, now: datetime) -> Held | Free:
    """Say whether a controller holds a live Lease, by its own times and ``SKEW``; unreadable times count as live.

    Raises core errors: what cannot be read is not free.
    """
    try:
        found = cluster.get(ObjectRef(LEASE.api_version, LEASE.kind, name, namespace))
    except NotFoundError:
        return Free()
    spec = found.section("spec")
    holder, renewed = text(spec.get("holderIdentity")), parse_instant(spec.get("renewTime"))
    if not holder:
        return Free()
    if renewed is None:
        return Held(holder, None)
    until = later(renewed, _duration(found))
    return Held(holder, until) if now < later(until, SKEW) else Free()


def _within(cluster: Cluster, timeout: timedelta) -> Cluster:
    """The same cluster with another time-out a call, where it can be set: the port knows none."""
    within: Callable[[timedelta], Cluster] | None = getattr(cluster, "within", None)
    return within(timeout) if within is not None else cluster


def _duration(found: Resource) -> timedelta:
    """How long a Lease says that it lasts; the usual time when it says nothing that can be."""
    seconds = found.section("spec").get("leaseDurationSeconds")
    if isinstance(seconds, int) and 0 < seconds <= timedelta(days=1).total_seconds():
        return timedelta(seconds=seconds)
    return Terms().duration


def _micro(instant: datetime) -> str:
    """Kubernetes' MicroTime: always six digits."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
