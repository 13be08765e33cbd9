"""``FolderCluster``: the cluster port over the object files of a folder, as a dump of a cluster has them.

Every change is on the disk before it is seen. With the collector, what a delete entails is written before the owner's
file goes, so that a killed run finds the owner again and comes to the same end.

Guarantee: a file keeps its other objects byte for byte; a killed process leaves a valid folder; a file that somebody
else has changed meanwhile is not overwritten.
Not guaranteed: that an edit by hand is seen before the next start.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from reprieve.adapters.local.cluster import LocalCluster, translate
from reprieve.adapters.local.collector import Collector
from reprieve.adapters.local.disk import Disk, FolderError, read, refuse_link, sweep, walk
from reprieve.adapters.local.manifests import (
    SUFFIXES,
    Key,
    ManifestFile,
    new_file,
    parse_file,
    removed,
    replaced,
)
from reprieve.adapters.local.status import Json, ServedKind, StatusError
from reprieve.adapters.local.store import Change, ClusterStore

_PLAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_STEM_LIMIT = 200
_CLUSTER_SCOPED = "_cluster"


class FolderCluster(LocalCluster):
    """The objects of ``root`` (``DIR/cluster``; it may be missing) as a cluster.

    Raises ``FolderError`` for what cannot be read.

    ``collect``: with the garbage collector, which acts on what goes in this run; ``collect_absent``: also on owners
    that are absent at the start. ``read_only``: nothing is ever written, a write is refused.
    """

    def __init__(
        self,
        root: Path,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        read_only: bool = False,
        collect: bool = True,
        collect_absent: bool = False,
        kinds: Iterable[ServedKind] | None = None,
        disk: Disk | None = None,
    ) -> None:
        if not read_only:
            sweep(root, *(f"*{suffix}.tmp" for suffix in SUFFIXES))
        self.files = FolderFiles(root, disk=disk or Disk(), read_only=read_only)
        store = ClusterStore(now=now, kinds=kinds, journal=self.files.record)
        objects = self.files.load()
        try:
            store.load(objects)
        except StatusError as error:
            raise translate(error) from error
        collector = Collector(store, collect_absent=collect_absent) if collect and not read_only else None
        super().__init__(store, collector=collector)


class FolderFiles:
    """The object files below a folder: which object stands where, and how a change of one is written."""

    def __init__(self, root: Path, *, disk: Disk, read_only: bool = False) -> None:
        self._root, self._disk, self._read_only = root, disk, read_only
        self._files: dict[Path, ManifestFile] = {}
        self._bytes: dict[Path, bytes] = {}
        self._places: dict[Key, Path] = {}
        self._names: set[str] = set()

    def load(self) -> list[Json]:
        """Read every file. Raises ``FolderError``, also for an object that stands in two places."""
        refuse_link(self._root)
        for path in walk(self._root, links=False):
            if path.suffix in SUFFIXES:
                self._load_file(path)
        return [part.obj for _, file in sorted(self._files.items()) for part in file.parts]

    def record(self, change: Change) -> None:
        """Write a change: the store's journal.

        Raises ``FolderError``, then nothing has changed, and 403 where nothing may be written.
        """
        if self._read_only:
            why = f"{self._root} is open for reading only: nothing is written"
            raise StatusError("Forbidden", why, details={"name": change.name})
        key = (change.type, change.namespace, change.name)
        if change.new is None:
            self._remove(key)
        elif key in self._places:
            self._replace(key, change.new)
        else:
            self._create(key, change.new)

    def _load_file(self, path: Path) -> None:
        data = read(path)
        file = parse_file(path, data)
        self._names.add(str(path).lower())
        for key in (part.key for part in file.parts):
            if key in self._places:
                what = f"{key[0].kind} {key[2]} is in {self._places[key]} already"
                raise FolderError(path, what, way_out="keep one of the two")
            self._places[key] = path
        self._keep(file, data)

    def _keep(self, file: ManifestFile, data: bytes) -> None:
        self._files[file.path], self._bytes[file.path] = file, data

    def _remove(self, key: Key) -> None:
        path = self._places[key]
        file = removed(self._unchanged(path), key)
        if file.parts:
            self._write(file)
        else:
            self._disk.remove(path)
            del self._files[path], self._bytes[path]
            self._names.discard(str(path).lower())
        del self._places[key]

    def _replace(self, key: Key, new: Json) -> None:
        self._write(replaced(self._unchanged(self._places[key]), key, new))

    def _create(self, key: Key, new: Json) -> None:
        path = self._free(key)
        self._write(new_file(path, new))
        self._places[key] = path
        self._names.add(str(path).lower())

    def _write(self, file: ManifestFile) -> None:
        data = file.data
        self._disk.write(file.path, data)
        self._keep(file, data)

    def _unchanged(self, path: Path) -> ManifestFile:
        """The file, when it still is what was read or written last. Raises ``FolderError``."""
        if not path.exists() or read(path) != self._bytes[path]:
            raise FolderError(path, "somebody else has changed this file since it was read", way_out="run again")
        return self._files[path]

    def _free(self, key: Key) -> Path:
        """A file name for a new object, which no other object has, whatever the file system thinks of case."""
        kind, namespace, name = key
        folder = _safe(namespace) if namespace else _CLUSTER_SCOPED
        stem = _safe(f"{kind.kind.lower()}-{name}")
        path = self._root / folder / f"{stem}.yaml"
        if str(path).lower() in self._names or path.exists():
            path = path.with_name(f"{stem[:_STEM_LIMIT]}-{_digest('/'.join((str(kind), namespace, name)))}.yaml")
        return path


def _safe(name: str) -> str:
    """A file name for any string.

    It is the string itself when it is a plain DNS name of moderate length, else cut down and made unique by a digest.
    """
    if _PLAIN.fullmatch(name) and len(name) <= _STEM_LIMIT and ".." not in name:
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_STEM_LIMIT].strip("-")
    return f"{plain or 'x'}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:10]
