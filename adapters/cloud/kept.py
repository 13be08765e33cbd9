"""What was opened is kept, so that the same place is opened once: its connections are shared, its operations followed.

Guarantee: the same key gives the same value to every thread, until so many newer ones were asked for that it is let go.
Not guaranteed: that a value is closed when it is let go; whoever still holds it goes on with it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LIMIT = 64


class Kept(Generic[K, V]):
    """The values that were used last, by key."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Keep at most ``limit`` values."""
        self._limit = limit
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Give the value of a key, made where it is not kept. What ``make`` raises passes, and nothing is kept."""
        with self._lock:
            value = self._values.pop(key) if key in self._values else make()
            self._values[key] = value
            while len(self._values) > self._limit:
                self._values.popitem(last=False)
            return value


def fingerprint(credential: bytes | None) -> str:
    """Tell credentials apart without keeping them."""
    return "" if credential is None else hashlib.sha256(credential).hexdigest()
