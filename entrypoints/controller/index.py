"""Deletion requests by the backup that they name, so that thousands of them cost one list and not one list each.

Guarantee: safe for use by many threads. Not guaranteed: freshness; a stale entry ends in a conflict at the first
patch.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable

from reprieve.core.backups import DeletionRequest

Key = tuple[str, str]
Name = tuple[str, str]


def _name(request: DeletionRequest) -> Name:
    return (request.meta.namespace, request.meta.name)


def key_of(request: DeletionRequest) -> Key:
    """The queue key of a request: its namespace and the backup that it names."""
    return (request.meta.namespace, request.backup)


class RequestIndex:
    """The requests that are known, by key."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_key: dict[Key, dict[str, DeletionRequest]] = defaultdict(dict)
        self._keys: dict[Name, Key] = {}
        self._changed: dict[Name, int] = {}
        self._clock = 0
        self._lock = threading.Lock()

    def mark(self) -> int:
        """Take the mark to give to ``replace``, before the list is read."""
        with self._lock:
            self._changed.clear()
            return self._clock

    def replace(self, requests: Iterable[DeletionRequest], *, since: int) -> None:
        """Know these, as the list had them; what an event has changed since the mark is newer and stays."""
        listed = {_name(request): request for request in requests}
        with self._lock:
            newer = {name for name, when in self._changed.items() if when > since}
            for name in [name for name in self._keys if name not in listed and name not in newer]:
                self._drop(name)
            for name in listed.keys() - newer:
                self._put(listed[name])

    def upsert(self, request: DeletionRequest) -> Key:
        """Know a request as it now stands; tells its key. A ``spec.backupName`` that a hand changed moves it."""
        with self._lock:
            self._touch(request)
            self._put(request)
        return key_of(request)

    def remove(self, request: DeletionRequest) -> Key:
        """Forget a request; tells its key."""
        with self._lock:
            self._touch(request)
            self._drop(_name(request))
        return key_of(request)

    def _touch(self, request: DeletionRequest) -> None:
        self._clock += 1
        self._changed[_name(request)] = self._clock

    def _put(self, request: DeletionRequest) -> None:
        self._drop(_name(request))
        self._keys[_name(request)] = key_of(request)
        self._by_key[key_of(request)][request.meta.name] = request

    def _drop(self, name: Name) -> None:
        key = self._keys.pop(name, None)
        if key is None:
            return
        del self._by_key[key][name[1]]
        if not self._by_key[key]:
            del self._by_key[key]

    def of(self, key: Key) -> list[DeletionRequest]:
        """The requests of one backup."""
        with self._lock:
            return list(self._by_key.get(key, {}).values())

    def keys(self) -> list[Key]:
        """Every backup that a request names, sorted."""
        with self._lock:
            return sorted(self._by_key)
