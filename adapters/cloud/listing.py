"""Listings of snapshots, page by page, each reduced to what is used of it as soon as it is there.

Guarantee: a listing is whole or raises: one that repeats a page, or goes on beyond its limits, is ``TooMuchError``.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.adapters.budget import A_PAIR, AN_OBJECT, Tally, account, width
from reprieve.adapters.sizes import SNAPSHOTS_SEEN, TOKEN
from reprieve.core.errors import UnknownError
from reprieve.core.ports import SnapshotInfo

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
