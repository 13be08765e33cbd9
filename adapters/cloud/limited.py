"""Stores as they are handed out: every call goes through what is shared by all workers of its provider and account.

Snapshots: deletes go through the account's ``Limiter`` (rate, parallelism, breaker), reads through its breaker.
Object storage: every call goes through a breaker alone. Its own deletes are few and large, and stop at the first answer
that speaks of the store; what it needs is that neither a hanging nor a throttled bucket is asked by one worker after
the other.

Guarantee: what a call comes to is what the store said, or that no call was made. Not guaranteed: a bound on the rate
of object storage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from reprieve.adapters.budget import account
from reprieve.adapters.cloud.breaker import Breaker, held_back
from reprieve.adapters.cloud.rate import Limiter
from reprieve.core.outcomes import Outcome, Retryable
from reprieve.core.ports import FileInfo, ObjectStore, SnapshotInfo, SnapshotStore

QUICK_FAILURES = 3
"""So many failures of a bucket in a row, however quick, are a reason to leave it alone for a moment."""


class LimitedSnapshotStore:
    """A snapshot store behind its account's limiter. Safe for threads."""

    def __init__(self, store: SnapshotStore, limiter: Limiter) -> None:
        """Keep the store, and what it shares with the others of its account."""
        self.store = store
        self._limiter = limiter

    def delete(self, snapshot_id: str) -> Outcome:
        """Delete one snapshot, in its turn.

        ``Pending`` that is not begun when its turn is too far away, ``Retryable`` when the account does not answer.
        """
        return self._limiter.call(partial(self._delete, snapshot_id), doing=f"deleting snapshot {snapshot_id}")

    def _delete(self, snapshot_id: str) -> Outcome:
        with account():
            return self.store.delete(snapshot_id)

    def get(self, snapshot_id: str) -> SnapshotInfo:
        """Read one snapshot. Raises as the store does, ``UnavailableError`` when the account does not answer."""
        with self._limiter.breaker.guard(f"reading snapshot {snapshot_id}"), account():
            return self.store.get(snapshot_id)

    def list(self, tag: str, value: str = "") -> Iterator[SnapshotInfo]:
        """List snapshots by tag. Raises as ``get`` does."""
        with self._limiter.breaker.guard(f"listing snapshots with tag {tag}"):
            yield from self.store.list(tag, value)


class GuardedObjectStore:
    """A storage location behind its account's breaker. Safe for threads."""

    def __init__(
        self, store: ObjectStore, breaker: Breaker, *, place: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Keep the store, what it shares with the others of its account, and how messages call the place."""
        self.store = store
        self._breaker = breaker
        self._place = place
        self._clock = clock

    def read(self, key: str, *, limit: int) -> bytes:
        """Read a file. Raises as the store does, ``UnavailableError`` when it is held back."""
        with self._breaker.guard(f"{self._place}: reading {key}"):
            return self.store.read(key, limit=limit)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List every key under a prefix. Raises as ``read`` does."""
        with self._breaker.guard(f"{self._place}: listing {prefix}"):
            yield from self.store.list(prefix)

    def list_directories(self, prefix: str) -> Iterator[str]:
        """List the directories right below a prefix. Raises as ``read`` does."""
        with self._breaker.guard(f"{self._place}: listing {prefix}"):
            yield from self.store.list_directories(prefix)

    def write(self, key: str, data: bytes) -> None:
        """Write a file. Raises as ``read`` does."""
        with self._breaker.guard(f"{self._place}: writing {key}"):
            self.store.write(key, data)

    def delete(self, keys: Sequence[str]) -> Mapping[str, Outcome]:
        """Delete many keys. ``Retryable`` for each of them, without a call, when the place is held back."""
        if not keys:
            return {}
        if held := self._breaker.ask():
            return dict.fromkeys(keys, Retryable(held, held_back(f"{self._place}: deleting {len(keys)} keys", held)))
        began = self._clock()
        try:
            outcomes = self.store.delete(keys)
        except BaseException:
            self._breaker.let_go()
            raise
        failed = all(isinstance(outcome, Retryable) for outcome in outcomes.values())
        self._breaker.note(began=began, failed=failed)
        return outcomes
