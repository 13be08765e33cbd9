"""Reading a bucket's directories of backups: which there are, and what sync and the audit need of each.

Guarantee: a read that failed is a fact with its reason; it never looks like an empty bucket or an absent file.
Not guaranteed: that a directory stays as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from attrs import frozen

from reprieve.adapters import sizes
from reprieve.adapters.budget import account
from reprieve.adapters.k8s import velero_files, velero_sync
from reprieve.adapters.k8s.dialect import Dialect
from reprieve.core.backups import DirectoryUnreadable, ListAbsent, ListCorrupt, MetadataAbsent, MetadataCorrupt
from reprieve.core.errors import ReprieveError
from reprieve.core.ports import ObjectStore
from reprieve.core.sync import (
    BucketListing,
    CompleteListing,
    PartialListing,
    StoredBackup,
    StoredFault,
    UnavailableListing,
    Volumes,
    VolumesRead,
)
from reprieve.entrypoints.controller.gathering import MissingFile, OversizedFile, read_file

AT_ONCE = 16
T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Do the same with many things, a bounded number at once; the answers come in the order of the things."""
    asked = list(items)
    if len(asked) < 2:  # noqa: PLR2004 - one needs no thread
        return [work(each) for each in asked]
    with ThreadPoolExecutor(min(AT_ONCE, len(asked)), thread_name_prefix="shelves") as pool:
        return list(pool.map(work, asked))


@frozen
class Shelves:
    """The directories of backups in one location."""

    store: ObjectStore
    dialect: Dialect

    def listing(self) -> BucketListing:
        """The names of all directories, or as many as came before the listing broke off."""
        names: list[str] = []
        try:
            names.extend(self.store.list_directories(self.dialect.layout.backups))
        except ReprieveError as fault:
            return PartialListing(names, str(fault)) if names else UnavailableListing(str(fault))
        return CompleteListing(names)

    def stored(self, name: str) -> StoredBackup | StoredFault:
        """What a directory says of its backup: metadata, hold and pod volume backups. Three reads at most."""
        try:
            with account():
                return self._stored(name)
        except ReprieveError as fault:
            return StoredFault(name, DirectoryUnreadable(str(fault)))

    def _stored(self, name: str) -> StoredBackup | StoredFault:
        key = self.dialect.layout.metadata_key(name)
        match read_file(self.store, key, limit=sizes.METADATA):
            case MissingFile():
                return StoredFault(name, MetadataAbsent())
            case OversizedFile(why):
                return StoredFault(name, MetadataCorrupt(why))
            case bytes() as data:
                hold, volumes = self._hold(name), self.volumes(name)
                return velero_sync.stored_backup(name, data, hold=hold, volumes=volumes, read=self.dialect.backup)

    def _hold(self, name: str) -> bytes | None:
        """The hold file; an oversized one counts as one that says nothing, and that holds."""
        match read_file(self.store, self.dialect.layout.hold_key(name), limit=sizes.HOLD):
            case MissingFile():
                return None
            case OversizedFile():
                return b""
            case bytes() as data:
                return data

    def volumes(self, name: str) -> Volumes:
        """The pod volume backups that came with a backup."""
        if velero_sync.VOLUMES_LIST not in self.dialect.lists:
            return VolumesRead()
        key = velero_files.list_key(name, velero_sync.VOLUMES_LIST)
        try:
            with account():
                return self._volumes(key)
        except ReprieveError as fault:
            return DirectoryUnreadable(str(fault))

    def _volumes(self, key: str) -> Volumes:
        match read_file(self.store, key, limit=sizes.PACKED):
            case MissingFile():
                return ListAbsent(key)
            case OversizedFile(why):
                return ListCorrupt(key, why)
            case bytes() as data:
                return velero_sync.stored_volumes(key, data)
