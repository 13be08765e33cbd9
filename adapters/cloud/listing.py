"""Listings of snapshots, page by page, each reduced to what is used of it as soon as it is there.

Guarantee: a listing is whole or raises: one that repeats a page, or goes on beyond its limits, is ``TooMuchError``.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from reprieve.adapters.budget import A_PAIR, AN_OBJECT, Tally, account, width
from reprieve.adapters.sizes import SNAPSHOTS_SEEN, TOKEN
from reprieve.core.errors import UnknownError
from reprieve.core.ports import SnapshotInfo

SHARED = timedelta(seconds=60)
"""How long one listing of a place serves all who ask what carries a tag of some value."""

Page = tuple[Iterable[SnapshotInfo], str]
"""The snapshots of a page, and the token of the page after it: empty on the last one."""


def tagged(pages: Iterable[Page], tag: str, *, what: str) -> list[SnapshotInfo]:
    """Read all pages: the snapshots with a tag of that name, in order of id. Raises ``TooMuchError``."""
    tally = Tally(what, entries_at_most=SNAPSHOTS_SEEN)
    kept: list[SnapshotInfo] = []
    tokens: set[str] = set()
    with account() as ours:
        before = ours.held
        for snapshots, token in pages:
            seen, so_far = 0, len(kept)
            for snapshot in snapshots:
                seen += 1
                if tag in snapshot.tags:
                    kept.append(snapshot)
            ours.settle(before + tally.kept)  # of the page itself nothing is left
            tally.page(seen)
            tally.keep(sum(map(_weight, kept[so_far:])) + len(token))
            if token and (token in tokens or len(token) > TOKEN):
                raise UnknownError(
                    f"{what}: the same page comes for ever, or with no token that could be one: "
                    "nothing is concluded from it"
                )
            tokens.add(token)
    return sorted(kept, key=lambda snapshot: snapshot.id)


def _weight(snapshot: SnapshotInfo) -> int:
    return AN_OBJECT + sum(A_PAIR + width(key) + width(value) for key, value in snapshot.tags.items())


class Shared:
    """One listing of a place for all who ask within ``SHARED``, reduced to the ids by the tag's value.

    For providers whose listing has no filter by tag: a hundred deletions would list a whole project a hundred times.
    Safe for threads: one lists, the others wait for it. What failed is not kept. ``clock``: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Know of no listing."""
        self._clock = clock
        self._lock = threading.Lock()
        self._tag = ""
        self._at = 0.0
        self._ids: Mapping[str, list[str]] = {}

    def ids(self, tag: str, value: str, listing: Callable[[], Iterable[SnapshotInfo]]) -> list[str]:
        """The ids whose tag has that value; ``listing`` gives all with a tag of that name. Raises what it raises."""
        with self._lock:
            if tag != self._tag or self._clock() - self._at >= SHARED.total_seconds():
                found: defaultdict[str, list[str]] = defaultdict(list)
                began = self._clock()
                for snapshot in listing():
                    found[snapshot.tags[tag]].append(snapshot.id)
                self._tag, self._at, self._ids = tag, began, dict(found)
            return list(self._ids.get(value, ()))
