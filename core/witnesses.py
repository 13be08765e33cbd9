"""What a backup points at: the claims of every witness, put together to one inventory, or why it cannot be told.

Witnesses are the lists in the backup's directory, live objects of the cluster that carry its label, and the counts of
its record. The inventory is the union of what they name; what two of them name counts once.

::

    volumeinfo is there (Velero 1.13 and later)     the lists of native snapshots and of pod volume backups must be
    the list of CSI contents is there (to 1.16)     the same
    neither                                         the list of native snapshots, where the record counts some
    a count above all that is named                 it cannot be told

Guarantee: a list that such a backup must have and that is absent, one that cannot be read, objects that could not be
listed, and a count that nothing explains, are troubles in the inventory; none of them looks like "nothing there". A
list that was never written is none: Velero writes no list of CSI contents since 1.17.
Not guaranteed: that what a witness names exists, or is the backup's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import evolve, field, frozen

from reprieve.core.backups import (
    Backup,
    CsiContent,
    DataMoverItem,
    Inventory,
    Item,
    ListAbsent,
    ListCorrupt,
    NativeSnapshot,
    RepositorySnapshot,
    Trouble,
    Unlisted,
    Unnamed,
)
from reprieve.core.values import as_tuple

NATIVE_LIST = "volumesnapshots"
REPOSITORY_LIST = "podvolumebackups"
CSI_LIST = "csi-volumesnapshotcontents"
OPERATIONS = "itemoperations"
VOLUME_INFO = "volumeinfo"

WHOLE = frozenset({"Completed", "PartiallyFailed"})
"""Phases of a backup whose directory was written to its end."""


@frozen
class ListRead:
    """A list of the directory, and what its entries name."""

    key: str
    items: tuple[Item, ...] = field(default=(), converter=as_tuple)


ListContent = ListRead | ListCorrupt | ListAbsent


@frozen
class Live:
    """What objects of the cluster name by the backup's label, and the kinds that could not be listed."""

    items: tuple[Item, ...] = field(default=(), converter=as_tuple)
    unlisted: tuple[Unlisted, ...] = field(default=(), converter=as_tuple)


def assemble(backup: Backup, lists: Mapping[str, ListContent], live: Live) -> Inventory:
    """Put together what all witnesses name. ``lists`` are the lists that the dialect knows, by name, as they were read.

    The order of the lists and of the live items does not matter.
    """
    read = [(name, content) for name, content in sorted(lists.items()) if isinstance(content, ListRead)]
    told = [item for name, content in read if name != VOLUME_INFO for item in content.items]
    volumes = [item for name, content in read if name == VOLUME_INFO for item in content.items]
    items = _union([*backup.legacy_snapshots, *told, *sorted(live.items, key=repr)], volumes, backup)
    counted = [*_counted(backup, lists, items), *(Unnamed(why) for why in unnamed_csi(backup, Inventory(items)))]
    corrupt = [content for content in lists.values() if isinstance(content, ListCorrupt)]
    return Inventory(items, sorted([*corrupt, *_missing(backup, lists), *counted, *live.unlisted], key=repr))


def _missing(backup: Backup, lists: Mapping[str, ListContent]) -> list[ListAbsent]:
    """The lists that must be in the directory and are not: Velero writes them in one go, if it writes any."""
    there = [content.key for name in (VOLUME_INFO, CSI_LIST) if not isinstance(content := _of(lists, name), ListAbsent)]
    expected = (NATIVE_LIST, REPOSITORY_LIST) if there else (NATIVE_LIST,) if backup.native_claim else ()
    found = [lists[name] for name in expected if name in lists]
    return [ListAbsent(content.key, there[0] if there else "") for content in found if isinstance(content, ListAbsent)]


def _of(lists: Mapping[str, ListContent], name: str) -> ListContent:
    """A list, absent also where the dialect knows none of that name."""
    return lists.get(name, ListAbsent(""))


# What the record counts


def _counted(backup: Backup, lists: Mapping[str, ListContent], items: tuple[Item, ...]) -> list[Trouble]:
    """What the record counts or claims, and nothing names: it would be leaked."""
    troubles: list[Trouble] = []
    native = _of(lists, NATIVE_LIST)
    if isinstance(native, ListRead):
        taken = len({(item.id, item.location) for item in items if isinstance(item, NativeSnapshot) and item.id})
        failed = sum(isinstance(item, NativeSnapshot) and not item.id for item in native.items)
        troubles += [ListCorrupt(native.key, why) for why in _shrunk(backup, taken, taken + failed)]
    made = any(isinstance(item, CsiContent | DataMoverItem) for item in items)
    if not (made or backup.csi_claim) and all(
        isinstance(_of(lists, name), ListAbsent) for name in (OPERATIONS, VOLUME_INFO)
    ):
        troubles += [Unnamed(why) for why in _unnamed_operations(backup)]
    return troubles


def unnamed_csi(backup: Backup, inventory: Inventory) -> list[str]:
    """Why the CSI snapshots that the record counts are not all told: nobody names as many."""
    csi = sum(isinstance(item, CsiContent) for item in inventory.items)
    moved = sum(isinstance(item, DataMoverItem) for item in inventory.items)
    if backup.csi_claim <= csi + moved:
        return []
    how = "completed" if backup.csi_claim == backup.csi_snapshots_completed else "attempted"
    named = f"only {csi + moved} of them are named anywhere" if csi + moved else "no list names them"
    return [f"the record says that {backup.csi_claim} CSI snapshots were {how}, but {named}"]


def _shrunk(backup: Backup, taken: int, entries: int) -> list[str]:
    """Why a list that names fewer snapshots than were made has lost some."""
    if taken < backup.snapshots_completed:
        return [f"it names {taken} snapshots, and the record says that {backup.snapshots_completed} were completed"]
    if entries < backup.snapshots_attempted:
        return [f"it has {entries} snapshots, and the record says that {backup.snapshots_attempted} were attempted"]
    return []


def _unnamed_operations(backup: Backup) -> list[str]:
    """What a record says of data that a snapshot driver or the data mover made, when no file tells of it."""
    if backup.operations_attempted:
        return [f"the record says that {backup.operations_attempted} operations were attempted, but no list names them"]
    if backup.moves_data and backup.phase in WHOLE:
        return ["the record says that its snapshots were moved (spec.snapshotMoveData), but no list names what was"]
    return []


# The union


def _union(found: Iterable[Item], volumes: Iterable[Item], backup: Backup) -> tuple[Item, ...]:
    """Each thing once, however many witnesses name it. ``volumes`` is what volumeinfo names."""
    told, seen = list(found), list(volumes)
    native = [item for item in told if isinstance(item, NativeSnapshot)]
    ids = {snapshot.id for snapshot in native}
    native += [_placed(item, backup) for item in seen if isinstance(item, NativeSnapshot) and item.id not in ids]
    csi = [item for item in (*told, *seen) if isinstance(item, CsiContent)]
    repository = {item.id: item for item in (*seen, *told) if isinstance(item, RepositorySnapshot)}
    moved = [item for item in (*told, *seen) if isinstance(item, DataMoverItem)]
    return (*dict.fromkeys(native), *_csi_once(csi), *repository.values(), *dict.fromkeys(moved))


def _placed(snapshot: NativeSnapshot, backup: Backup) -> NativeSnapshot:
    """Volumeinfo names no snapshot location: it is the only one that the record names. Of several nobody can tell."""
    return evolve(snapshot, location=backup.snapshot_locations[0] if len(backup.snapshot_locations) == 1 else "")


def _csi_once(found: Iterable[CsiContent]) -> tuple[CsiContent, ...]:
    """CSI snapshots by the name of their content, or by their handle, each with all that any witness knows of it."""
    known: list[CsiContent] = []
    places: dict[tuple[str, ...], int] = {}
    for content in found:
        at = next((places[key] for key in _keys(content) if key in places), len(known))
        if at < len(known) and _agree(known[at], content):
            known[at] = _joined(known[at], content)
        else:
            at = len(known)
            known.append(content)
        places |= dict.fromkeys(_keys(known[at]), at)
    return tuple(known)


def _keys(content: CsiContent) -> list[tuple[str, ...]]:
    by_name = [("name", content.name)] if content.name else []
    return [*by_name, ("handle", content.driver, content.handle)] if content.handle else [*by_name]


def _agree(one: CsiContent, other: CsiContent) -> bool:
    """Whether two claims may be of one snapshot: two contents of a name with two handles are two snapshots."""
    handles, drivers = {one.handle, other.handle} - {""}, {one.driver, other.driver} - {""}
    return len(handles) < 2 and len(drivers) < 2  # noqa: PLR2004 - one of a kind


def _joined(one: CsiContent, other: CsiContent) -> CsiContent:
    return CsiContent(one.name or other.name, one.driver or other.driver, one.handle or other.handle)
