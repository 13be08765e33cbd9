"""Events in memory: for tests, and for a folder, where events would be objects that nobody asked for.

Guarantee: events are kept in the order in which they were recorded. Not guaranteed: that repeats are folded.
"""

from __future__ import annotations

import threading
from datetime import datetime

from attrs import frozen

from reprieve.core.objects import ObjectRef
from reprieve.core.ports import EventKind


@frozen
class RecordedEvent:
    """One event as it was recorded."""

    ref: ObjectRef
    kind: EventKind
    reason: str
    message: str
    at: datetime


class MemoryEvents:
    """An event sink that keeps what it is told."""

    def __init__(self) -> None:
        """Start empty."""
        self._events: list[RecordedEvent] = []
        self._lock = threading.Lock()

    def record(self, ref: ObjectRef, *, kind: EventKind, reason: str, message: str, now: datetime) -> None:
        """Keep one event."""
        with self._lock:
            self._events.append(RecordedEvent(ref, kind, reason, message, now))

    @property
    def events(self) -> tuple[RecordedEvent, ...]:
        """All events so far."""
        with self._lock:
            return tuple(self._events)
