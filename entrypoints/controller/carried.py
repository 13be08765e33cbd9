"""Which kinds of dependents the owners carry whose dependents stand in their own data (Faros).

The name of such an owner begins with its dependent's kind, and one whole owner a prefix is read to learn the kind's
group and version; nothing else of them is.

Guarantee: one read a kind of owner and prefix, however many owners there are. Not guaranteed: two groups with one name
of a kind; the second is learned once one of its owners is decoded. What is not learned is not scanned for references
to owners that vanished; name it under ``dependents`` in the configuration.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from reprieve.adapters.k8s import faros
from reprieve.core.errors import ReprieveError
from reprieve.core.objects import ObjectKind, Resource
from reprieve.core.ports import Cluster

TRIES = 3


class CarriedKinds:
    """The kinds that were learned so far."""

    def __init__(self, cluster: Cluster) -> None:
        """Know nothing; make no call."""
        self._cluster = cluster
        self._by_prefix: dict[tuple[ObjectKind, str], set[ObjectKind]] = {}
        self._lock = threading.Lock()

    def of(self, owner_kind: ObjectKind) -> tuple[ObjectKind, ...]:
        """The kinds that owners of a kind carry, as far as is known, sorted."""
        with self._lock:
            found = [kinds for (kind, _), kinds in self._by_prefix.items() if kind == owner_kind]
        return tuple(sorted(set().union(*found)))

    def learn(self, owners: Iterable[Resource]) -> None:
        """Read one owner of each prefix that is not known yet. What cannot be read is left for the next time."""
        tries: dict[tuple[ObjectKind, str], int] = {}
        for owner in owners:
            slot = (owner.type, faros.kind_prefix(owner.meta.name))
            if slot not in self._by_prefix and tries.get(slot, 0) < TRIES:
                tries[slot] = tries.get(slot, 0) + 1
                self._read(owner)

    def _read(self, owner: Resource) -> None:
        try:
            self.note(self._cluster.get(owner.ref))
        except ReprieveError:
            return

    def note(self, owner: Resource) -> None:
        """Learn from an owner that was read as a whole."""
        kind = faros.dependent_kind(owner)
        if isinstance(kind, ObjectKind):
            with self._lock:
                self._by_prefix.setdefault((owner.type, faros.kind_prefix(owner.meta.name)), set()).add(kind)
