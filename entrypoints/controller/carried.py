"""Which kinds of dependents the owners carry whose dependents stand in their own data (Faros).

The name of such an owner begins with its dependent's kind, so the kinds are found by comparing the names with what the
API server serves. No owner is read for it.

Guarantee: a kind that is not served costs nothing, however many owners name it, and is told once; at most
``CARRIED_LIMIT`` kinds are learned, those first whose owners are oldest, so that a flood of new owners takes no
place from them; what the cluster writes by itself all day (``TRANSIENT``) is not among them, or one owner by such a
name would fill the memory; a kind that this account may not list is told once and left out until the next start. Not
guaranteed: owners whose name was made otherwise; their kind is learned once one of them is decoded. What is not
learned is not scanned for references to owners that vanished; name it under ``dependents`` in the configuration.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime

import structlog

from reprieve.adapters.k8s import faros
from reprieve.core.errors import ReprieveError
from reprieve.core.objects import ObjectKind, Resource
from reprieve.core.ports import Cluster
from reprieve.core.values import cut
from reprieve.entrypoints.controller.leftovers import served_kinds

CARRIED_LIMIT = 100
TRANSIENT = frozenset(
    [
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("discovery.k8s.io", "EndpointSlice"),
    ]
)
"""By group and kind: what no manifest in git is about, and what there may be a hundred thousand of."""
_SHOWN = 5
_NEVER = datetime.max.replace(tzinfo=UTC)
_MEANS = "references to owners that vanished are not looked for there"
_WAY_OUT = "name the kinds that matter under dependents: in the entry of the configuration"
log = structlog.get_logger()


class CarriedKinds:
    """The kinds that were learned so far."""

    def __init__(self, cluster: Cluster) -> None:
        """Know nothing; make no call."""
        self._cluster = cluster
        self._served: dict[tuple[str, str], ObjectKind] = {}  # by group and kind, in the version that is preferred
        self._carried_by: dict[ObjectKind, set[ObjectKind]] = {}  # by kind: the kinds of its owners
        self._denied: set[ObjectKind] = set()
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def of(self, owner_kind: ObjectKind) -> tuple[ObjectKind, ...]:
        """The kinds that owners of a kind carry, as far as is known and may be listed, sorted."""
        with self._lock:
            found = [kind for kind, owners in self._carried_by.items() if owner_kind in owners]
            return tuple(sorted(set(found) - self._denied))

    def learn(self, owners: Iterable[Resource]) -> None:
        """Compare the owners' names with what is served now."""
        oldest: dict[tuple[ObjectKind, str], datetime] = {}
        for owner in owners:
            slot = (owner.type, faros.kind_prefix(owner.meta.name))
            oldest[slot] = min(oldest.get(slot, _NEVER), owner.meta.created or _NEVER)
        if not oldest:
            return
        try:
            served = [kind for kind in served_kinds(self._cluster) if (kind.group, kind.kind) not in TRANSIENT]
        except ReprieveError as fault:
            log.warning("the kinds that owners carry are not known: what is served cannot be asked", fault=str(fault))
            return
        by_name: dict[str, list[ObjectKind]] = {}
        for kind in served:
            by_name.setdefault(kind.kind.lower(), []).append(kind)
        with self._lock:
            self._served = {(kind.group, kind.kind): kind for kind in served}
            for (owner_kind, prefix), _ in sorted(oldest.items(), key=lambda item: (item[1], item[0])):
                for kind in by_name.get(prefix, ()):
                    self._add(kind, owner_kind)
            unserved = sorted({prefix for _, prefix in oldest if prefix not in by_name})
            if unserved and "unserved" not in self._told:
                self._told.add("unserved")
                such_as = [cut(prefix) for prefix in unserved[:_SHOWN]]
                log.info(
                    "owners are named after kinds that are not served, or never followed",
                    count=len(unserved),
                    such_as=such_as,
                )

    def note(self, owner: Resource) -> None:
        """Learn from an owner that was read as a whole, whatever its name is."""
        kind = faros.dependent_kind(owner)
        with self._lock:
            served = self._served.get((kind.group, kind.kind)) if isinstance(kind, ObjectKind) else None
            if served is not None:
                self._add(served, owner.type)

    def deny(self, kind: ObjectKind, fault: ReprieveError) -> None:
        """Leave a kind out that this account may not list."""
        with self._lock:
            if kind not in self._denied:
                self._denied.add(kind)
                log.warning(
                    "a kind that owners carry may not be listed", kind=str(kind), fault=str(fault), means=_MEANS
                )

    def _add(self, kind: ObjectKind, owner_kind: ObjectKind) -> None:
        if kind in self._carried_by or len(self._carried_by) < CARRIED_LIMIT:
            self._carried_by.setdefault(kind, set()).add(owner_kind)
        elif "many" not in self._told:
            self._told.add("many")
            log.warning(
                "owners carry more kinds than are followed", limit=CARRIED_LIMIT, means=_MEANS, way_out=_WAY_OUT
            )
