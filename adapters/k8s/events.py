"""Events about objects, as ``kubectl describe`` shows them (core/v1), written beside the work.

Guarantee: recording only remembers, and never raises or waits; a thread of its own writes. The name is made of what
is said about whom, so that repeats (also those of another run) are folded into one Event's count. What cannot be
written is dropped and reported to ``on_trouble``. Not guaranteed: that an Event is written at all; nothing may rest
on one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from attrs import evolve, frozen

from reprieve.core.errors import AlreadyExistsError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectRef, is_object_name
from reprieve.core.ports import Cluster, EventKind
from reprieve.core.values import format_instant

WAITING_LIMIT = 1000
MESSAGE_LIMIT = 1024  # the API server refuses longer ones
_NAME_PART = 200
_CLUSTER_NAMESPACE = "default"  # where the API wants events about cluster-scoped objects


@frozen
class _Note:
    """An event that waits to be written; ``count`` repeats of it so far."""

    ref: ObjectRef
    kind: EventKind
    reason: str
    message: str
    first: datetime
    last: datetime
    count: int = 1

    @property
    def namespace(self) -> str:
        return self.ref.namespace or _CLUSTER_NAMESPACE

    @property
    def name(self) -> str:
        ref = self.ref
        said = "\0".join((ref.uid, str(ref.type), ref.key, self.kind, self.reason, self.message))
        start = ref.name[:_NAME_PART].rstrip("-.") if is_object_name(ref.name) else "object"
        return f"{start}.{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:16]}"


class KubernetesEvents:
    """``reprieve.core.ports.EventSink`` over a cluster. ``close`` it, so that what waits is still written."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        component: str = "reprieve",
        on_trouble: Callable[[ReprieveError], None] = lambda _error: None,
        threaded: bool = True,
    ) -> None:
        """Start no thread before the first event; with ``threaded`` off, only ``flush`` writes."""
        self._cluster, self._component, self._on_trouble = cluster, component, on_trouble
        self._threaded = threaded
        self._changed = threading.Condition()
        self._waiting: dict[str, _Note] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        self.dropped = 0

    def record(self, ref: ObjectRef, *, kind: EventKind, reason: str, message: str, now: datetime) -> None:
        """Remember one event; see the port. Dropped when too many wait already, and after ``close``."""
        note = _Note(ref, kind, reason, _cut(message), now, now)
        with self._changed:
            before = self._waiting.get(note.name)
            if self._closed or (before is None and len(self._waiting) >= WAITING_LIMIT):
                self.dropped += 1
                return
            self._waiting[note.name] = evolve(before, last=now, count=before.count + 1) if before else note
            self._start()
            self._changed.notify()

    def flush(self) -> None:
        """Write what waits, in this thread."""
        while (note := self._next()) is not None:
            self._write(note)

    def close(self, *, seconds: float = 5.0) -> None:
        """Write what waits, for at most that long; what is recorded later is dropped."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join(seconds)

    def _start(self) -> None:
        if self._thread is None and self._threaded and not self._closed:
            self._thread = threading.Thread(target=self._work, name="events", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while self._wait_for_some():
            self.flush()

    def _wait_for_some(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return bool(self._waiting)

    def _next(self) -> _Note | None:
        with self._changed:
            name = next(iter(self._waiting), None)
            return self._waiting.pop(name) if name is not None else None

    def _write(self, note: _Note) -> None:
        try:
            self._create_or_count(note)
        except ReprieveError as error:
            self.dropped += 1
            self._on_trouble(error)

    def _create_or_count(self, note: _Note) -> None:
        try:
            self._cluster.create(self._manifest(note))
        except AlreadyExistsError:
            self._count(note)

    def _count(self, note: _Note) -> None:
        try:
            found = self._cluster.get(ObjectRef("v1", "Event", note.name, note.namespace))
            before = found.body.get("count")
            count = (before if isinstance(before, int) else 1) + note.count
            self._cluster.patch(found.ref, {"count": count, "lastTimestamp": _second(note.last)})
        except NotFoundError:  # it lived its hour out in between
            self._cluster.create(self._manifest(note))

    def _manifest(self, note: _Note) -> dict[str, Any]:
        ref = note.ref
        about = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": ref.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": note.name, "namespace": note.namespace},
            "involvedObject": {key: value for key, value in about.items() if value},
            "type": note.kind.value,
            "reason": note.reason,
            "message": note.message,
            "count": note.count,
            "firstTimestamp": _second(note.first),
            "lastTimestamp": _second(note.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
        }


def _cut(message: str) -> str:
    """A message of at most as many bytes as the API server takes."""
    return message.encode("utf-8", "replace")[:MESSAGE_LIMIT].decode("utf-8", "ignore")


def _second(instant: datetime) -> str:
    return format_instant(instant.replace(microsecond=0))
