"""The survey: all that the audit rests on, read from the cluster, every bucket and every provider.

Guarantee: it only reads; whatever could not be read is in the facts with its reason, so that nothing is blamed for it.
A snapshot that a list names and that the provider's listing by tag lacks is asked for by its id before it counts as
missing, as tags can be edited. Not guaranteed: one instant for all of it; what is made or deleted meanwhile may show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from attrs import evolve, frozen

from reprieve.adapters import sizes
from reprieve.adapters.budget import account
from reprieve.adapters.k8s import velero_files
from reprieve.core.audit import (
    AuditedBackup,
    AuditFacts,
    PlaceUnreadable,
    SnapshotsListed,
    SnapshotsUnreadable,
)
from reprieve.core.backups import (
    Backup,
    Inventory,
    MetadataCorrupt,
    NativeSnapshot,
    SnapshotLocation,
    StorageLocation,
    plain_provider,
)
from reprieve.core.errors import InvalidError, NotFoundError, ReprieveError
from reprieve.core.marks import identity
from reprieve.core.objects import is_object_name, resource_from_json
from reprieve.core.ports import ObjectStore, SnapshotInfo, SnapshotStore, SnapshotStores
from reprieve.core.sync import PartialListing, UnavailableListing
from reprieve.core.witnesses import WHOLE, Live
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.controller.shelves import Shelves, in_parallel

Found = AuditedBackup | PlaceUnreadable


@frozen
class Survey:
    """Reads the facts."""

    reader: BackupReader
    snapshot_stores: SnapshotStores

    def facts(self) -> AuditFacts:
        """Everything that could be read, and what could not."""
        found = list(self._everything())
        backups = [each for each in found if isinstance(each, AuditedBackup)]
        listings, doubts = self._listings(backups)
        places = [each for each in found if isinstance(each, PlaceUnreadable)]
        return AuditFacts(backups, listings, [*places, *doubts])

    # Records and directories

    def _everything(self) -> Iterator[Found]:
        records: tuple[Backup, ...] = ()
        try:
            records = self.reader.backups()
            locations = self.reader.storage_locations()
        except ReprieveError as fault:
            yield PlaceUnreadable(f"namespace {self.reader.namespace} of the cluster", str(fault))
            yield from map(_from_record, records)
            return
        names = {location.name for location in locations}
        for record in records:
            if record.storage_location not in names:
                yield from self._lost(record, "it does not exist")
        for location in locations:
            yield from self._location(location, [r for r in records if r.storage_location == location.name])

    @staticmethod
    def _lost(record: Backup, why: str) -> Iterator[Found]:
        """A record whose location cannot be asked: what it says itself is all that is known of it."""
        named = record.storage_location or "(none named)"
        yield PlaceUnreadable(f"storage location {named} of backup {record.name}", why, record.name)
        yield _from_record(record)

    def _location(self, location: StorageLocation, records: Collection[Backup]) -> Iterator[Found]:
        try:
            if not location.available:
                raise InvalidError("it is not available")
            yield from self._shelves(Shelves(self.reader.store(location), self.reader.dialect), location, records)
        except ReprieveError as fault:
            yield PlaceUnreadable(f"storage location {location.name}", str(fault))
            yield from map(_from_record, records)

    def _shelves(self, shelves: Shelves, location: StorageLocation, records: Collection[Backup]) -> Iterator[Found]:
        listing = shelves.listing()
        if isinstance(listing, UnavailableListing):
            yield PlaceUnreadable(f"storage location {location.name}", listing.why)
            yield from map(_from_record, records)
            return
        if isinstance(listing, PartialListing):
            yield PlaceUnreadable(f"storage location {location.name}", f"its listing broke off: {listing.why}")
        known = {record.name: record for record in records}
        wanted = sorted({*known, *filter(is_object_name, listing.names)})
        live = self.reader.live(wanted)
        looked = in_parallel(
            lambda name: self._directory(shelves.store, location, name, known.get(name), live[name]), wanted
        )
        yield from (found for each in looked for found in each)

    def _directory(
        self, store: ObjectStore, location: StorageLocation, name: str, record: Backup | None, live: Live
    ) -> list[Found]:
        """One listing, and the lists that are there. A directory without metadata and record is no backup."""
        layout = self.reader.dialect.layout
        try:
            keys = {info.key for info in store.list(layout.directory(name))}
            backup = record or self._stored(store, name, keys)
            if backup is None:
                return []
            inventory = self.reader.inventory(backup, store, live, keys=keys)
        except ReprieveError as fault:
            unread = PlaceUnreadable(f"{location.name}: {layout.directory(name)}", str(fault), name)
            return [unread, *([_from_record(record)] if record else [])]
        must = [layout.metadata_key(name), f"{layout.directory(name)}{name}.tar.gz"] if backup.phase in WHOLE else []
        return [AuditedBackup(name, location.name, backup.phase, inventory, [key for key in must if key not in keys])]

    def _stored(self, store: ObjectStore, name: str, keys: Collection[str]) -> Backup | None:
        """The backup that a directory's metadata describes. Raises core errors."""
        key = self.reader.dialect.layout.metadata_key(name)
        if key not in keys:
            return None
        with account():
            document = velero_files.read_document(store.read(key, limit=sizes.METADATA))
        if isinstance(document, MetadataCorrupt):
            raise InvalidError(f"{key} cannot be read: {document.why}")
        read = self.reader.dialect.backup(resource_from_json(document))
        return evolve(read, meta=evolve(read.meta, name=name))  # the lists carry the directory's name

    # Providers

    def _listings(
        self, backups: Collection[AuditedBackup]
    ) -> tuple[list[SnapshotsListed | SnapshotsUnreadable], list[PlaceUnreadable]]:
        try:
            locations = self.reader.snapshot_locations()
        except ReprieveError as fault:
            return [], [PlaceUnreadable("snapshot locations", str(fault))]
        configured = [each for each in locations if plain_provider(each.provider) in self.snapshot_stores.providers]
        asked = in_parallel(lambda location: self._listed(location, _named(backups, location)), configured)
        return [listing for listing, _ in asked], [doubt for _, doubts in asked for doubt in doubts]

    def _listed(
        self, location: SnapshotLocation, named: Mapping[str, str]
    ) -> tuple[SnapshotsListed | SnapshotsUnreadable, list[PlaceUnreadable]]:
        """A provider's listing by tag, and what of the rest it has under its id."""
        try:
            credential = self.reader.secrets.read(location.credential)
            store = self.snapshot_stores.open(location, credential=credential)
            listed = list(store.list(self.reader.dialect.snapshot_tag))
        except ReprieveError as fault:
            return SnapshotsUnreadable(location, str(fault)), []
        there = {identity(location.provider, each.id) for each in listed}
        rest = sorted(each for each in named if identity(location.provider, each) not in there)
        asked = in_parallel(lambda snapshot: _ask(store, location, snapshot, named[snapshot]), rest)
        untagged = [each for each, _ in asked if each is not None]
        return SnapshotsListed(location, [*listed, *untagged]), [doubt for _, doubt in asked if doubt is not None]


def _from_record(record: Backup) -> AuditedBackup:
    return AuditedBackup(record.name, record.storage_location, record.phase, Inventory(record.legacy_snapshots))


def _named(backups: Iterable[AuditedBackup], location: SnapshotLocation) -> dict[str, str]:
    """The ids that lists name in a snapshot location, and the backup of each."""
    pairs = [(each.name, item) for each in backups for item in each.inventory.items]
    native = [(name, item) for name, item in pairs if isinstance(item, NativeSnapshot) and item.id]
    return {item.id: name for name, item in native if item.location == location.name}


def _ask(
    store: SnapshotStore, location: SnapshotLocation, snapshot: str, backup: str
) -> tuple[SnapshotInfo | None, PlaceUnreadable | None]:
    """One snapshot by its id. One that cannot be asked for counts as there, since nothing says that it is missing."""
    try:
        return store.get(snapshot), None
    except NotFoundError:
        return None, None
    except ReprieveError as fault:
        what = f"{location.provider} snapshot {snapshot} of location {location.name}"
        return SnapshotInfo(location.provider, snapshot), PlaceUnreadable(what, str(fault), backup)
