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

from reprieve.adapters import sizes
from reprieve.adapters.budget import account
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
    Unlisted,
)
from reprieve.core.errors import ContainerMissingError, DeniedError, InvalidError, NotFoundError, ReprieveError
from reprieve.core.holds import hold_from_document
from reprieve.core.keys import check_key
from reprieve.core.marks import MarksUnasked
from reprieve.core.objects import ObjectKind, ObjectRef, Resource, is_object_name, label_safe
from reprieve.core.ports import Cluster, ObjectStore, ObjectStores
from reprieve.core.requests import BUCKET_STAGE, Absent, DeletionFacts, deletion_of, is_resumed, owns_directory
from reprieve.core.values import FrozenMap
from reprieve.core.witnesses import NATIVE_LIST, VOLUME_INFO, ListContent, ListRead, Live, assemble
from reprieve.entrypoints.controller.secrets import Secrets


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
        return self.gather_for(request, self.named(request.backup), siblings)

    def named(self, backup: str) -> Backup | Absent:
        """The backup of a name that somebody wrote, live; absent where no backup can have that name."""
        return self.backup(backup) if is_object_name(backup) else Absent()

    def gather_for(
        self, request: DeletionRequest, backup: Backup | Absent, siblings: Iterable[DeletionRequest]
    ) -> Gathered:
        """Read the rest, for a backup that was just read. Raises core errors when the cluster cannot be read."""
        named = backup.storage_location if isinstance(backup, Backup) else request.state.location or ""
        location = self.location(named) if named else Absent()
        facts = DeletionFacts(
            request=request,
            backup=backup,
            location=location,
            directory=self._directory(location, request.backup),
            marks=MarksUnasked(),
            handlers=self.handlers,
            siblings=tuple(siblings),
            layout=self.dialect.layout,
            without_provider=self.dialect.without_provider,
        )
        return self._with_contents(facts)

    def _with_contents(self, facts: DeletionFacts) -> Gathered:
        """Read restores and inventory too, where there is a record and a bucket to read them for."""
        backup, location = facts.backup, facts.location
        if isinstance(facts.directory, DirectoryUnreadable) or not isinstance(backup, Backup):
            return Gathered(facts)
        if not isinstance(location, StorageLocation):
            return Gathered(facts)
        live = self.live([backup.name])[backup.name]
        facts = evolve(facts, snapshot_locations=self.snapshot_locations(), restores=self.restores())
        if not owns_directory(facts):  # the lists and the files of another one say nothing of it
            return Gathered(facts, assemble(backup, {}, live))
        try:
            store = self.store(location)
            inventory = self.inventory(backup, store, live)
            return Gathered(evolve(facts, unnameable=self._unnameable(facts, backup, store)), inventory)
        except ReprieveError as fault:
            return Gathered(evolve(facts, directory=DirectoryUnreadable(str(fault))))

    # The bucket

    def _unnameable(self, facts: DeletionFacts, backup: Backup, store: ObjectStore) -> tuple[str, ...]:
        """What cannot be named among the files that a deletion takes away, in each directory the first.

        Not asked once the deletion has begun: its own steps tell by then. Raises core errors, but for such a name.
        """
        if is_resumed(facts):
            return ()
        layout = self.dialect.layout
        own = sorted(restore.ref.name for restore in facts.restores if restore.backup == backup.name)
        # Where restores' files lie in the backup's directory, its listing has them.
        below = [layout.restore_prefix(backup.name, name) for name in own] if layout.restores else []
        found = [unnameable_key(store, prefix) for prefix in (layout.directory(backup.name), *below)]
        return tuple(filter(None, found))

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
        with account():
            hold = read_file(store, layout.hold_key(backup), limit=sizes.HOLD)
            metadata = read_file(store, layout.metadata_key(backup), limit=sizes.METADATA)
            return Directory(
                velero_files.read_metadata(metadata) if isinstance(metadata, bytes) else _unread_metadata(metadata),
                velero_files.read_hold(hold) if isinstance(hold, bytes) else _unread_hold(hold),
                velero_sync.hold_digest(hold) if isinstance(hold, bytes) else _unread_digest(hold),
                velero_files.read_holder(hold) if isinstance(hold, bytes) else "",
            )

    def inventory(
        self, backup: Backup, store: ObjectStore, live: Live, *, keys: Collection[str] | None = None
    ) -> Inventory:
        """All that a backup points at, by every witness: what is live, and the lists in its directory.

        With ``keys``, the keys of the directory, only those lists are asked for. Raises core errors.
        """
        return assemble(backup, self._read_lists(backup, store, self.dialect.lists, keys), live)

    @staticmethod
    def _read_lists(
        backup: Backup, store: ObjectStore, names: Iterable[str], keys: Collection[str] | None = None
    ) -> dict[str, ListContent]:
        lists: dict[str, ListContent] = {}
        for name in names:
            key = velero_files.list_key(backup.name, name)
            with account():
                lists[name] = _read_list(store, backup.name, name) if keys is None or key in keys else ListAbsent(key)
            if sum(len(each.items) for each in lists.values() if isinstance(each, ListRead)) > sizes.ITEMS:
                why = (
                    f"it and the lists before it name more than {sizes.ITEMS} items, the most that is read of a backup"
                )
                lists[name] = ListCorrupt(key, why)
        return lists

    def native_snapshots(self, backup: Backup, store: ObjectStore) -> tuple[NativeSnapshot, ...]:
        """The native snapshots that a backup's own record and lists name.

        Raises core errors, ``InvalidError`` too when a list is damaged, or lost though the record counts snapshots.
        """
        names = [name for name in (NATIVE_LIST, VOLUME_INFO) if name in self.dialect.lists]
        found = assemble(backup, self._read_lists(backup, store, names), Live())
        lost = [each for each in found.troubles if isinstance(each, ListCorrupt | ListAbsent)]
        if lost and deletion_of(backup).stage != BUCKET_STAGE:
            why = lost[0].why if isinstance(lost[0], ListCorrupt) else "it is not there"
            raise InvalidError(f"{lost[0].key} of backup {backup.name} cannot be read: {why}")
        return tuple(item for item in found.items if isinstance(item, NativeSnapshot) and item.id)

    def live(self, backups: Collection[str]) -> Mapping[str, Live]:
        """What live objects name for each of these backups: five lists, for one backup as for thousands.

        A kind that may not be listed is told; other faults are raised, as core errors.
        """
        if not backups or not self.dialect.lists:
            return {backup: Live() for backup in backups}  # a tool that writes no list keeps nothing in the cluster
        labels = {backup: label_safe(backup) for backup in backups}
        selector = f"{BACKUP_NAME}={next(iter(labels.values()))}" if len(labels) == 1 else BACKUP_NAME
        found: defaultdict[str, list[Item]] = defaultdict(list)
        unlisted: list[Unlisted] = []
        for kind, everywhere, more, read in _LIVE:
            try:
                objects = self._all(kind, everywhere=everywhere, selector=f"{selector}{more}")
            except DeniedError as fault:
                unlisted.append(Unlisted(str(kind), str(fault)))
                continue
            for each in objects:
                found[each.meta.labels.get(BACKUP_NAME, "")] += read(each)
        return {backup: Live(found[label], unlisted) for backup, label in labels.items()}

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


_LIVE: tuple[tuple[ObjectKind, bool, str, Callable[[Resource], Iterable[Item]]], ...] = (
    (velero.POD_VOLUME_BACKUP, True, "", velero.repository_snapshots),
    (velero.DATA_UPLOAD, True, "", lambda upload: [velero.data_mover_item(upload)]),
    (velero.CONFIG_MAP, False, f",{velero.DATA_MOVER_LABEL}=true", lambda moved: [velero.data_mover_item(moved)]),
    (velero.VOLUME_SNAPSHOT, True, "", velero.csi_contents),
    (velero.VOLUME_SNAPSHOT_CONTENT, True, "", velero.csi_contents),
)
"""The kinds whose objects name a backup's data by its label: whether in all namespaces, the rest of the selector."""


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


def unnameable_key(store: ObjectStore, prefix: str) -> str:
    """Why a file below a prefix can be neither read nor deleted: the first one's; empty when each can.

    Raises core errors. A directory's marker is no file.
    """
    try:
        for info in store.list(prefix):
            check_key(info.key)
    except InvalidError as fault:
        return str(fault)
    return ""


def _unread_metadata(fault: MissingFile | OversizedFile) -> Metadata:
    return MetadataAbsent() if isinstance(fault, MissingFile) else MetadataCorrupt(fault.why)


def _unread_digest(fault: MissingFile | OversizedFile) -> str:
    """An oversized file is there, and is nobody's that we know."""
    return "" if isinstance(fault, MissingFile) else "oversized"


def _unread_hold(fault: MissingFile | OversizedFile) -> FrozenMap[str, str]:
    return FrozenMap() if isinstance(fault, MissingFile) else FrozenMap(hold_from_document(None))


def _read_list(store: ObjectStore, backup: str, name: str) -> ListContent:
    key = velero_files.list_key(backup, name)
    match read_file(store, key, limit=sizes.PACKED):
        case bytes() as data:
            items = velero_files.read_list(backup, name, data)
            return items if isinstance(items, ListCorrupt) else ListRead(key, items)
        case MissingFile():
            return ListAbsent(key)
        case OversizedFile(why):
            return ListCorrupt(key, why)
