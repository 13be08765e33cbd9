"""``LocalFolder``: a cluster, its buckets and its snapshots in one directory (``docs/local.md``).

Guarantee: one run at a time, by a lock on the folder itself (no lock file); readers share it. Read-only writes
nothing at all.
Not guaranteed: the lock on network file systems that have none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from reprieve.adapters.local.buckets import FolderObjectStores
from reprieve.adapters.local.disk import Disk, FolderError, refuse_link, reported, sweep
from reprieve.adapters.local.foldercluster import FolderCluster
from reprieve.adapters.local.snapshots import FolderSnapshotStores
from reprieve.adapters.local.status import ServedKind
from reprieve.core.objects import ObjectKind, mapping, text

_LOCATIONS = (
    ObjectKind("velero.io/v1", "VolumeSnapshotLocation"),
    ObjectKind("ark.heptio.com/v1", "VolumeSnapshotLocation"),
)
_WAY_OUT = "wait for it to end, or use a copy of the folder"


class LocalFolder:
    """A folder, open. Use it as a context manager, or ``close`` it.

    Raises ``FolderError`` for whatever is wrong with it.

    ``cluster``, ``object_stores`` and ``snapshot_stores`` are the ports over it. ``providers``: the snapshot
    providers that are configured; None: all. ``collect`` and ``collect_absent``: see ``FolderCluster``. ``now`` is
    the cluster's clock.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        read_only: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        collect: bool = True,
        collect_absent: bool = False,
        providers: Iterable[str] | None = None,
        kinds: Iterable[ServedKind] | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.path = Path(path)
        self.read_only = read_only
        disk = disk or Disk()
        self._lock = _locked(self.path, shared=read_only)
        try:
            refuse_link(self.path / "buckets")
            if not read_only:
                self._sweep()
            self.cluster = FolderCluster(
                self.path / "cluster",
                now=now,
                read_only=read_only,
                collect=collect,
                collect_absent=collect_absent,
                kinds=kinds,
                disk=disk,
            )
            self.object_stores = FolderObjectStores(self.path / "buckets", disk=disk, read_only=read_only)
            self.snapshot_stores = FolderSnapshotStores(
                self.path / "snapshots.yaml",
                providers=providers,
                more=self._location_providers,
                disk=disk,
                read_only=read_only,
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder. May be called twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _sweep(self) -> None:
        """Remove what a killed run left beside the files that it was writing."""
        sweep(self.path / "buckets")
        for leftover in (*self.path.glob(".reprieve-*.tmp"), self.path / "snapshots.yaml.tmp"):
            with reported(leftover, "cannot be removed"):
                leftover.unlink(missing_ok=True)

    def _location_providers(self) -> list[str]:
        """The providers that the cluster's snapshot locations name."""
        found = [obj for kind in _LOCATIONS for obj in self.cluster.store.list(kind).items]
        return [text(mapping(obj.get("spec")).get("provider")) for obj in found]


def _locked(path: Path, *, shared: bool) -> int:
    """Open and lock a folder; the lock ends with the process, however it ends. Gives the descriptor that holds it."""
    if not path.is_dir():
        what = "this is no folder" if path.exists() else "this folder is not there"
        raise FolderError(path, what, way_out="name a folder with cluster/, buckets/ and snapshots.yaml")
    with reported(path, "cannot be opened"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        busy = "another reprieve is at work in this folder" if isinstance(error, BlockingIOError) else str(error)
        raise FolderError(path, busy, way_out=_WAY_OUT) from error
    return descriptor
