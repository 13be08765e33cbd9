"""Snapshots in a file (``snapshots.yaml``) and in memory.

Guarantee: a deletion is on the disk before it is told; the other entries of the file keep their bytes. What an
entry's ``fails`` names is what deleting it comes to.
Not guaranteed: accounts and regions; a provider's locations share its snapshots.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import field, frozen

from reprieve.adapters.local.disk import Disk, FolderError, read
from reprieve.adapters.local.yamltext import SyntaxFault, read_yaml, write_item
from reprieve.core import errors
from reprieve.core.backups import SnapshotLocation
from reprieve.core.outcomes import AlreadyGone, Denied, Done, InUse, Locked, Outcome, Retryable, outcome_of
from reprieve.core.ports import SnapshotInfo, SnapshotStore
from reprieve.core.values import as_tuple, parse_instant

PROVIDERS = frozenset({"aws", "gcp", "azure"})
_PREFIX = "velero.io/"
_FIELDS = frozenset({"provider", "id", "tags", "created", "size", "fails"})
_WAIT = timedelta(seconds=1)
_FAILURES: Mapping[str, Callable[[str], Outcome]] = {
    "InUse": lambda name: InUse(f"{name} is in use"),
    "Denied": lambda name: Denied(f"{name}: the credentials may not delete it"),
    "Throttled": lambda name: Retryable(_WAIT, f"{name}: too many requests"),
    "Locked": lambda name: Locked(None, f"{name} is locked"),
    "Unavailable": lambda name: Retryable(_WAIT, f"{name}: the service is not available"),
}
_ALLOWED = ", ".join(_FAILURES)


def plain_provider(name: str) -> str:
    """A provider's name without Velero's prefix."""
    return name.removeprefix(_PREFIX)


@frozen
class Entry:
    """An entry of the file: a snapshot, what deleting it comes to (empty: it goes), and its text."""

    info: SnapshotInfo
    fails: str = ""
    text: str = ""
    after: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Provider and id."""
        return self.info.provider, self.info.id


@frozen
class SnapshotFile:
    """The file: what stands before its entries, the entries, what stands after."""

    head: str = ""
    entries: tuple[Entry, ...] = field(default=(), converter=as_tuple)
    tail: str = ""

    @property
    def data(self) -> bytes:
        """The file's bytes; a file without entries is an empty list."""
        body = "".join(entry.text + entry.after for entry in self.entries) if self.entries else "[]\n"
        return (self.head + body + self.tail).encode()


def parse_snapshots(path: Path, data: bytes) -> SnapshotFile:
    """Read the file. Raises ``FolderError`` with the path of the field that is wrong."""
    try:
        content = data.decode()
        found = [each for each in read_yaml(content) if each.data is not None]
    except SyntaxFault as error:
        raise FolderError(path, str(error), way_out="correct it", line=error.line) from error
    except UnicodeDecodeError as error:
        raise FolderError(path, "this is no UTF-8 text", way_out="save it as UTF-8") from error
    if not found:
        return SnapshotFile(content)
    if len(found) > 1 or not isinstance(found[0].data, list):
        way_out = "write one list of {provider, id, tags, created, fails}"
        raise FolderError(path, "this is not one list", way_out=way_out, line=found[0].line)
    return _laid_out(content, [_entry(path, index, item) for index, item in enumerate(found[0].data)], found[0].data)


def _laid_out(content: str, entries: list[Entry], items: list[Any]) -> SnapshotFile:
    """Give every entry its own text: the lines that it has in a plain list, else new ones."""
    lines = content.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.startswith("- ")]
    head = "".join(lines[: starts[0]]) if starts else ""
    ends = [*starts[1:], len(lines)][: len(starts)]
    chunks = ["".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
    if len(chunks) != len(entries) or not all(_is(chunk, item) for chunk, item in zip(chunks, items, strict=True)):
        head, chunks = "", [write_item(item, 0) for item in items]
    placed = [Entry(entry.info, entry.fails, chunk) for entry, chunk in zip(entries, chunks, strict=True)]
    return SnapshotFile(head, placed)


def _is(chunk: str, item: Any) -> bool:
    try:
        found = read_yaml(chunk)
    except SyntaxFault:
        return False
    return len(found) == 1 and found[0].data == [item]


def _entry(path: Path, index: int, item: Any) -> Entry:
    if not isinstance(item, Mapping):
        raise _wrong(path, f"[{index}]", "this is no mapping", "write {provider, id, tags, created, fails}")
    unknown = sorted(set(item) - _FIELDS)
    if unknown:
        raise _wrong(
            path, f"[{index}].{unknown[0]}", "this is no field of a snapshot", f"use {', '.join(sorted(_FIELDS))}"
        )
    for name in ("provider", "id"):
        if not isinstance(item.get(name), str) or not item[name]:
            raise _wrong(
                path, f"[{index}].{name}", f"{item.get(name)!r} is no name", "write a string, in quotes if need be"
            )
    info = SnapshotInfo(plain_provider(item["provider"]), item["id"], **_details(path, index, item))
    return Entry(info, _fails(path, index, item))


def _details(path: Path, index: int, item: Mapping[str, Any]) -> dict[str, Any]:
    """The optional fields of an entry."""
    tags, created, size = item.get("tags") or {}, item.get("created"), item.get("size")
    if not isinstance(tags, Mapping) or not all(isinstance(value, str) for value in tags.values()):
        raise _wrong(
            path, f"[{index}].tags", f"{json.dumps(tags)} has values that are no strings", "put them in quotes"
        )
    if created is not None and parse_instant(created) is None:
        raise _wrong(path, f"[{index}].created", f"{created!r} is no instant", "write it like 2026-01-31T12:00:00Z")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise _wrong(path, f"[{index}].size", f"{size!r} is no number of bytes", "write a number, or leave it out")
    return {"tags": tags, "created": parse_instant(created), "size": size}


def _fails(path: Path, index: int, item: Mapping[str, Any]) -> str:
    fails = item.get("fails") or ""
    if fails and fails not in _FAILURES:
        raise _wrong(path, f"[{index}].fails", f"{fails!r} is not known", f"use one of {_ALLOWED}, or leave it out")
    return str(fails)


def _wrong(path: Path, where: str, what: str, way_out: str) -> FolderError:
    return FolderError(path, what, way_out=way_out, field=where)


class FolderSnapshotStores:
    """The snapshots of a file (it may be missing), by provider.

    ``providers``: those that are configured; None: every provider that the file names, that ``more`` names, and
    Velero's own three.
    """

    def __init__(
        self,
        path: Path,
        *,
        providers: Iterable[str] | None = None,
        more: Callable[[], Iterable[str]] = lambda: (),
        disk: Disk | None = None,
        read_only: bool = False,
    ) -> None:
        self._path, self._disk, self._read_only, self._more = path, disk or Disk(), read_only, more
        self._configured = None if providers is None else frozenset(map(plain_provider, providers))
        self._file = parse_snapshots(path, read(path)) if os.path.lexists(path) else SnapshotFile()
        self._lock = threading.Lock()
        self._check_twice()

    @property
    def providers(self) -> frozenset[str]:
        """The providers that are configured, without Velero's prefix."""
        if self._configured is not None:
            return self._configured
        named = {entry.info.provider for entry in self._file.entries}
        return PROVIDERS | named | {plain_provider(name) for name in self._more() if name}

    def open(self, location: SnapshotLocation, *, credential: bytes | None = None) -> SnapshotStore:
        """Open a snapshot location; see the port. Without a list of providers, every provider opens."""
        provider = plain_provider(location.provider)
        if self._configured is not None and provider not in self._configured:
            raise _no_provider(location, self._configured)
        return _FolderSnapshots(self, provider)

    def entries(self) -> tuple[Entry, ...]:
        """Every entry that is left."""
        return self._file.entries

    def delete(self, provider: str, snapshot_id: str) -> Outcome:
        """Delete a snapshot from the file."""
        with self._lock:
            entry = next((each for each in self._file.entries if each.key == (provider, snapshot_id)), None)
            if entry is None:
                return AlreadyGone()
            if self._read_only:
                return Denied(f"{self._path} is open for reading only: nothing is written")
            if entry.fails:
                return _FAILURES[entry.fails](snapshot_id)
            return self._take(entry)

    def _take(self, entry: Entry) -> Outcome:
        kept = [each for each in self._file.entries if each is not entry]
        file = SnapshotFile(self._file.head, kept, self._file.tail)
        try:
            self._disk.write(self._path, file.data)
        except FolderError as error:
            return outcome_of(error)
        self._file = file
        return Done()

    def _check_twice(self) -> None:
        seen: dict[tuple[str, str], int] = {}
        for index, entry in enumerate(self._file.entries):
            first = seen.setdefault(entry.key, index)
            if first != index:
                what = f"{entry.info.provider} {entry.info.id} is there already, as [{first}]"
                raise _wrong(self._path, f"[{index}]", what, "keep one of the two")


class _FolderSnapshots:
    """The snapshots of one provider in the file."""

    def __init__(self, stores: FolderSnapshotStores, provider: str) -> None:
        self._stores, self._provider = stores, provider

    def delete(self, snapshot_id: str) -> Outcome:
        """Delete one snapshot; see the port."""
        return self._stores.delete(self._provider, snapshot_id)

    def get(self, snapshot_id: str) -> SnapshotInfo:
        """Read one snapshot; see the port."""
        for entry in self._stores.entries():
            if entry.key == (self._provider, snapshot_id):
                return entry.info
        raise errors.NotFoundError(f"{self._provider}: the snapshot {snapshot_id} is not there")

    def list(self, tag: str, value: str = "") -> Iterator[SnapshotInfo]:
        """List the snapshots that carry a tag; see the port."""
        return _tagged((e.info for e in self._stores.entries() if e.info.provider == self._provider), tag, value)


def _tagged(snapshots: Iterable[SnapshotInfo], tag: str, value: str) -> Iterator[SnapshotInfo]:
    found = (info for info in snapshots if tag in info.tags and value in {"", info.tags[tag]})
    yield from sorted(found, key=lambda info: info.id)


def _no_provider(location: SnapshotLocation, configured: frozenset[str]) -> errors.ContainerMissingError:
    listed = ", ".join(sorted(configured)) or "none"
    what = f"the provider {location.provider!r} is not configured (configured: {listed})"
    return errors.ContainerMissingError(f"snapshot location {location.name!r}: {what}")


class MemorySnapshotStores:
    """Snapshots in memory. ``snapshots`` is a list that a test may read and change.

    ``outcomes`` gives, by id, what deleting comes to: one after the other, after that the deletion goes through.
    ``before`` is called with the id before each deletion: the place for latency, for counting, and for raising a core
    error.
    """

    def __init__(
        self,
        snapshots: Iterable[SnapshotInfo] = (),
        *,
        providers: Iterable[str] = PROVIDERS,
        outcomes: Mapping[str, Iterable[Outcome]] | None = None,
        before: Callable[[str], None] = lambda _id: None,
    ) -> None:
        self.snapshots: list[SnapshotInfo] = list(snapshots)
        self.outcomes: dict[str, list[Outcome]] = {key: list(each) for key, each in (outcomes or {}).items()}
        self.before = before
        self._providers = frozenset(map(plain_provider, providers))
        self._lock = threading.Lock()

    @property
    def providers(self) -> frozenset[str]:
        """The providers that are configured, without Velero's prefix."""
        return self._providers

    def open(self, location: SnapshotLocation, *, credential: bytes | None = None) -> SnapshotStore:
        """Open a snapshot location; see the port."""
        provider = plain_provider(location.provider)
        if provider not in self._providers:
            raise _no_provider(location, self._providers)
        return _MemorySnapshots(self, provider)

    def take(self, provider: str, snapshot_id: str) -> Outcome:
        """Delete a snapshot, or do with it what was asked for."""
        with self._lock:
            if self.outcomes.get(snapshot_id):
                return self.outcomes[snapshot_id].pop(0)
            left = [each for each in self.snapshots if (each.provider, each.id) != (provider, snapshot_id)]
            gone = len(left) < len(self.snapshots)
            self.snapshots[:] = left
        return Done() if gone else AlreadyGone()


class _MemorySnapshots:
    """The snapshots of one provider in memory."""

    def __init__(self, stores: MemorySnapshotStores, provider: str) -> None:
        self._stores, self._provider = stores, provider

    def delete(self, snapshot_id: str) -> Outcome:
        """Delete one snapshot; see the port."""
        try:
            self._stores.before(snapshot_id)
        except errors.ReprieveError as error:
            return outcome_of(error)
        return self._stores.take(self._provider, snapshot_id)

    def get(self, snapshot_id: str) -> SnapshotInfo:
        """Read one snapshot; see the port."""
        for info in list(self._stores.snapshots):  # others may delete meanwhile
            if (info.provider, info.id) == (self._provider, snapshot_id):
                return info
        raise errors.NotFoundError(f"{self._provider}: the snapshot {snapshot_id} is not there")

    def list(self, tag: str, value: str = "") -> Iterator[SnapshotInfo]:
        """List the snapshots that carry a tag; see the port."""
        return _tagged((info for info in list(self._stores.snapshots) if info.provider == self._provider), tag, value)
