"""Gathering: everything that a decision about one backup rests on, read through the ports.

Guarantee: what could not be read is said so as a fact, or raises; it never looks like "nothing there". A kind that
the cluster does not serve has no objects (a cluster without the data mover's kind has no data-mover items in it); the
lists in the bucket still tell. Not guaranteed: one consistent instant; every effect carries its own precondition for
that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import assert_never

from attrs import evolve, field, frozen

from reprieve.adapters.k8s import velero, velero_files, velero_sync
from reprieve.adapters.k8s.dialect import VELERO, Dialect, FixedLocations, ServedLocations
from reprieve.core.backups import (
    BACKUP_NAME,
    Backup,
    DeletionRequest,
    Directory,
    DirectoryUnreadable,
    Inventory,
    Item,
    ListAbsent,
    ListCorrupt,
    Metadata,
    MetadataAbsent,
    MetadataCorrupt,
    NativeSnapshot,
    Restore,
    SnapshotLocation,
    StorageLocation,
)
from reprieve.core.errors import ContainerMissingError, InvalidError, NotFoundError, ReprieveError
from reprieve.core.holds import hold_from_document
from reprieve.core.objects import ObjectKind, ObjectRef, Resource, is_object_name, label_safe
from reprieve.core.ports import Cluster, ObjectStore, ObjectStores
from reprieve.core.requests import Absent, DeletionFacts
from reprieve.core.values import FrozenMap
from reprieve.entrypoints.controller.secrets import Secrets

HOLD_LIMIT = 64 * 1024


@frozen
class Gathered:
    """The facts about a request, and the inventory of its backup."""

    facts: DeletionFacts
    inventory: Inventory = field(factory=Inventory)


@frozen
class BackupReader:
    """Reads backups and what belongs to them, from the cluster and from the bucket."""

    cluster: Cluster
    object_stores: ObjectStores
    secrets: Secrets
    namespace: str
    handlers: frozenset[str]
    dialect: Dialect = VELERO

    def requests(self) -> tuple[DeletionRequest, ...]:
        """All deletion requests of the namespace."""
        return tuple(self.dialect.deletion_request(r) for r in self._served(self.dialect.request_kind))

    def backup(self, name: str) -> Backup | Absent:
        """One backup, live."""
        found = self._get(self.dialect.backup_kind, name)
        return self.dialect.backup(found) if isinstance(found, Resource) else found

    def backups(self, *, metadata_only: bool = False) -> tuple[Backup, ...]:
        """All backups of the namespace, live. With ``metadata_only`` they know no spec and no status."""
        found = self._served(self.dialect.backup_kind, metadata_only=metadata_only)
        return tuple(self.dialect.backup(r) for r in found)

    def schedules(self) -> frozenset[ObjectRef]:
        """All schedules of the namespace, with their UIDs."""
        return frozenset(r.ref for r in self._all(self.dialect.schedule_kind, metadata_only=True))

    def volume_names(self) -> frozenset[str]:
        """The names of all pod volume backups of the namespace."""
        return frozenset(r.meta.name for r in self._all(velero.POD_VOLUME_BACKUP, metadata_only=True))

    def storage_locations(self) -> tuple[StorageLocation, ...]:
        """All storage locations of the namespace."""
        match self.dialect.locations:
            case FixedLocations(storage):
                return (storage,)
            case ServedLocations(kind):
                return tuple(velero.storage_location(r) for r in self._all(kind))
            case _:
                assert_never(self.dialect.locations)

    def location(self, name: str) -> StorageLocation | Absent:
        """One storage location, live."""
        match self.dialect.locations:
            case FixedLocations(storage):
                return storage if storage.name == name else Absent()
            case ServedLocations(kind):
                found = self._get(kind, name)
                return velero.storage_location(found) if isinstance(found, Resource) else found
            case _:
                assert_never(self.dialect.locations)

    def restores(self) -> tuple[Restore, ...]:
        """All restores of the namespace."""
        return tuple(self.dialect.restore(r) for r in self._all(self.dialect.restore_kind))

    def snapshot_locations(self) -> tuple[SnapshotLocation, ...]:
        """All snapshot locations of the namespace."""
        match self.dialect.locations:
            case FixedLocations(snapshots=snapshots):
                return (snapshots,)
            case ServedLocations(snapshots=kind):
                return tuple(velero.snapshot_location(r) for r in self._all(kind))
            case _:
                assert_never(self.dialect.locations)

    def store(self, location: StorageLocation) -> ObjectStore:
        """Open a location with the credential that it names. Raises core errors."""
        return self.object_stores.open(location, credential=self.secrets.read(location.credential))

    def gather(self, request: DeletionRequest, siblings: Iterable[DeletionRequest]) -> Gathered:
        """Read all that admission and the plan need. Raises core errors when the cluster cannot be read."""
        backup = self.backup(request.backup) if is_object_name(request.backup) else Absent()
        named = backup.storage_location if isinstance(backup, Backup) else request.state.location or ""
        location = self.location(named) if named else Absent()
        facts = DeletionFacts(
            request=request,
            backup=backup,
            location=location,
            directory=self._directory(location, request.backup),
            handlers=self.handlers,
            siblings=tuple(siblings),
            layout=self.dialect.layout,
            without_provider=self.dialect.without_provider,
        )
        return self._with_contents(facts)

    def _with_contents(self, facts: DeletionFacts) -> Gathered:
        """Read restores and inventory too, where there is a record and a bucket to read them for."""
        if isinstance(facts.directory, DirectoryUnreadable) or not isinstance(facts.backup, Backup):
            return Gathered(facts)
        if not isinstance(facts.location, StorageLocation):
            return Gathered(facts)
        try:
            inventory = self.inventory(facts.backup, facts.location)
        except _BucketUnreadable as fault:
            return Gathered(evolve(facts, directory=DirectoryUnreadable(str(fault))))
        locations, restores = self.snapshot_locations(), self.restores()
        return Gathered(evolve(facts, snapshot_locations=locations, restores=restores), inventory)

    # The bucket

    def directory(self, location: StorageLocation, backup: str) -> Directory | DirectoryUnreadable:
        """What the bucket says of a backup now: its metadata and its hold."""
        return self._directory(location, backup)

    def _directory(self, location: StorageLocation | Absent, backup: str) -> Directory | DirectoryUnreadable:
        if not isinstance(location, StorageLocation) or not is_object_name(backup):
            return Directory()
        if not location.available:
            return DirectoryUnreadable("it is not available")
        try:
            return self._read_directory(self.store(location), backup)
        except ReprieveError as fault:
            return DirectoryUnreadable(str(fault))

    def _read_directory(self, store: ObjectStore, backup: str) -> Directory:
        layout = self.dialect.layout
        hold = read_file(store, layout.hold_key(backup), limit=HOLD_LIMIT)
        metadata = read_file(store, layout.metadata_key(backup), limit=velero_files.FILE_LIMIT)
        return Directory(
            velero_files.read_metadata(metadata) if isinstance(metadata, bytes) else _unread_metadata(metadata),
            velero_files.read_hold(hold) if isinstance(hold, bytes) else _unread_hold(hold),
            velero_sync.hold_digest(hold) if isinstance(hold, bytes) else _unread_digest(hold),
        )

    def inventory(self, backup: Backup, location: StorageLocation) -> Inventory:
        """All that a backup points at, from the lists in its directory and from the cluster."""
        found = [*self._cluster_items(backup.name), *backup.legacy_snapshots]
        troubles: list[ListCorrupt | ListAbsent] = []
        try:
            store = self.store(location)
            for name in self.dialect.lists:
                _sort(_whole(_read_list(store, backup.name, name), name, backup), found, troubles)
        except ReprieveError as fault:
            raise _BucketUnreadable(str(fault)) from fault
        return Inventory(tuple(dict.fromkeys(found)), tuple(_that_matter(troubles, backup)))

    def listed_inventory(self, backup: Backup, store: ObjectStore, keys: Collection[str]) -> Inventory:
        """What the lists in a backup's directory name, of those that are among its keys. Raises core errors."""
        found: list[Item] = [*backup.legacy_snapshots]
        troubles: list[ListCorrupt | ListAbsent] = []
        for name in self.dialect.lists:
            key = velero_files.list_key(backup.name, name)
            _sort(_read_list(store, backup.name, name) if key in keys else ListAbsent(key), found, troubles)
        return Inventory(tuple(dict.fromkeys(found)), tuple(_that_matter(troubles, backup)))

    def _cluster_items(self, backup: str) -> list[Item]:
        if not self.dialect.lists:
            return []  # a tool that writes no list has nothing in the cluster that a list would name
        return self._labelled_items(f"{BACKUP_NAME}={label_safe(backup)}")[label_safe(backup)]

    def cluster_items(self, backups: Collection[str]) -> Mapping[str, tuple[Item, ...]]:
        """What the cluster says that each of them points at: three lists, for one backup as for thousands."""
        if not backups or not self.dialect.lists:
            return {}
        by_label = self._labelled_items(BACKUP_NAME)
        return {backup: tuple(by_label[label_safe(backup)]) for backup in backups}

    def _labelled_items(self, selector: str) -> defaultdict[str, list[Item]]:
        """Repository snapshots and data-mover items in the cluster, by the label that names their backup."""
        found: defaultdict[str, list[Item]] = defaultdict(list)
        for each in self._all(velero.POD_VOLUME_BACKUP, everywhere=True, selector=selector):
            found[each.meta.labels.get(BACKUP_NAME, "")] += velero.repository_snapshots(each)
        uploads = self._all(velero.DATA_UPLOAD, everywhere=True, selector=selector)
        moved = self._all(velero.CONFIG_MAP, selector=f"{selector},{velero.DATA_MOVER_LABEL}=true")
        for each in (*uploads, *moved):
            found[each.meta.labels.get(BACKUP_NAME, "")].append(velero.data_mover_item(each))
        return found

    # The cluster

    def _get(self, kind: ObjectKind, name: str) -> Resource | Absent:
        try:
            return self.cluster.get(ObjectRef(kind.api_version, kind.kind, name, self.namespace))
        except NotFoundError:
            return Absent()

    def _served(self, kind: ObjectKind, *, metadata_only: bool = False) -> tuple[Resource, ...]:
        """All objects of a kind that must be there. Raises ``ContainerMissingError`` that names the way out."""
        try:
            return self.cluster.list(kind, namespace=self.namespace, metadata_only=metadata_only).items
        except ContainerMissingError as fault:
            raise ContainerMissingError(
                f"{fault}: is Velero installed in this cluster? Without it, write backups: false"
            ) from fault

    def _all(
        self, kind: ObjectKind, *, selector: str = "", everywhere: bool = False, metadata_only: bool = False
    ) -> tuple[Resource, ...]:
        namespace = "" if everywhere else self.namespace
        try:
            return self.cluster.list(kind, namespace=namespace, selector=selector, metadata_only=metadata_only).items
        except ContainerMissingError:
            return ()


class _BucketUnreadable(ReprieveError):
    """The bucket failed while its lists were read."""


@frozen
class MissingFile:
    """No such file."""


@frozen
class OversizedFile:
    """A file that is larger than may be read."""

    why: str


def read_file(store: ObjectStore, key: str, *, limit: int) -> bytes | MissingFile | OversizedFile:
    """Read a file. Raises core errors, but for a file that is not there or too large."""
    try:
        return store.read(key, limit=limit)
    except NotFoundError:
        return MissingFile()
    except InvalidError as fault:
        return OversizedFile(str(fault))


def _unread_metadata(fault: MissingFile | OversizedFile) -> Metadata:
    return MetadataAbsent() if isinstance(fault, MissingFile) else MetadataCorrupt(fault.why)


def _unread_digest(fault: MissingFile | OversizedFile) -> str:
    """An oversized file is there, and is nobody's that we know."""
    return "" if isinstance(fault, MissingFile) else "oversized"


def _unread_hold(fault: MissingFile | OversizedFile) -> FrozenMap[str, str]:
    return FrozenMap() if isinstance(fault, MissingFile) else FrozenMap(hold_from_document(None))


def _read_list(store: ObjectStore, backup: str, name: str) -> tuple[Item, ...] | ListCorrupt | ListAbsent:
    key = velero_files.list_key(backup, name)
    match read_file(store, key, limit=velero_files.FILE_LIMIT):
        case bytes() as data:
            return velero_files.read_list(backup, name, data)
        case MissingFile():
            return ListAbsent(key)
        case OversizedFile(why):
            return ListCorrupt(key, why)


def _whole(
    content: tuple[Item, ...] | ListCorrupt | ListAbsent, name: str, backup: Backup
) -> tuple[Item, ...] | ListCorrupt | ListAbsent:
    """A list that names fewer snapshots than the record says were completed has lost some: they would be orphaned."""
    if not isinstance(content, tuple) or name != velero_files.NATIVE_LIST:
        return content
    named = sum(1 for item in content if isinstance(item, NativeSnapshot) and item.id)
    if named >= backup.snapshots_completed:
        return content
    why = f"it names {named} snapshots, and the record says that {backup.snapshots_completed} were completed"
    return ListCorrupt(velero_files.list_key(backup.name, name), why)


def _sort(
    content: tuple[Item, ...] | ListCorrupt | ListAbsent, found: list[Item], troubles: list[ListCorrupt | ListAbsent]
) -> None:
    match content:
        case tuple():
            found.extend(content)
        case ListCorrupt() | ListAbsent():
            troubles.append(content)


def _that_matter(troubles: Iterable[ListCorrupt | ListAbsent], backup: Backup) -> list[ListCorrupt | ListAbsent]:
    """An absent list matters only where the record says that it has what the list would name."""
    claims: Mapping[str, Callable[[], int]] = {
        velero_files.list_key(backup.name, velero_files.NATIVE_LIST): lambda: backup.snapshots_completed,
        velero_files.list_key(backup.name, velero_files.CSI_LIST): lambda: backup.csi_snapshots_completed,
    }
    return [t for t in troubles if isinstance(t, ListCorrupt) or claims.get(t.key, lambda: 0)() > 0]
