"""Codec of the documents in Velero's bucket layout: the metadata file and the gzipped lists beside it.

Guarantee: a document is either read whole or reported as a fault with its reason; it is never half believed: an entry
whose id is no text is a fault, not an entry without an id. What unpacks to more than the limit, or to more values, is a
fault as well, so that a crafted file cannot fill the memory; of a list only what its entries name is held.
Not guaranteed: that a list is complete; Velero writes it before the metadata file is final.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import astuple

from reprieve.adapters.budget import AN_ITEM, Tally, size_of, width
from reprieve.adapters.documents import DocumentError, read_entries, read_json
from reprieve.adapters.sizes import LARGEST
from reprieve.core.backups import (
    METADATA_FILE,
    CsiContent,
    DataMoverItem,
    Item,
    ListCorrupt,
    Metadata,
    MetadataCorrupt,
    MetadataPresent,
    NativeSnapshot,
    RepositorySnapshot,
    backup_directory,
)
from reprieve.core.errors import TooMuchError
from reprieve.core.holds import hold_from_document, holder_of_document
from reprieve.core.objects import mapping
from reprieve.core.values import FrozenMap, cut, parse_instant
from reprieve.core.witnesses import CSI_LIST, NATIVE_LIST, OPERATIONS, REPOSITORY_LIST, VOLUME_INFO

NAMED_LIMIT = 80
SNAPSHOT_GROUP = "snapshot.storage.k8s.io"
VOLUME_SNAPSHOTS = "volumesnapshots"
SNAPSHOT_CONTENTS = "volumesnapshotcontents"


def metadata_key(backup: str) -> str:
    """The key of the metadata file."""
    return backup_directory(backup) + METADATA_FILE


def read_metadata(data: bytes) -> Metadata:
    """Read a metadata file (``velero-backup.json``, ``ark-backup.json``): only what tells whose directory it is."""
    document = read_document(data)
    if isinstance(document, MetadataCorrupt):
        return document
    return MetadataPresent(parse_instant(mapping(document.get("status")).get("startTimestamp")))


def read_document(data: bytes) -> Mapping[str, Any] | MetadataCorrupt:
    """Read a metadata file whole."""
    try:
        return _slim(_mapping_of(read_json(data)))
    except DocumentError as fault:
        return MetadataCorrupt(str(fault))


def read_documents(key: str, data: bytes) -> tuple[Mapping[str, Any], ...] | ListCorrupt:
    """Read a gzipped list as the documents in it."""
    tally, documents = Tally(key, kept_at_most=LARGEST), []
    try:
        for entry in read_entries(data):
            documents.append(_slim(_mapping_of(entry)))
            tally.keep(size_of(documents[-1]))
    except (DocumentError, TooMuchError) as fault:
        return ListCorrupt(key, str(fault))
    return tuple(documents)


def _slim(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document without what no record takes over and is most of it: who managed which field where it lived."""
    metadata = mapping(document.get("metadata"))
    if "managedFields" not in metadata:
        return document
    return {**document, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def read_hold(data: bytes) -> FrozenMap[str, str]:
    """Read ``reprieve-hold.json`` as annotations; one that cannot be read holds."""
    return FrozenMap(hold_from_document(_hold_document(data)))


def read_holder(data: bytes) -> str:
    """The UID of the record that a hold file was written for; empty when it does not say, or cannot be read."""
    return holder_of_document(_hold_document(data))


def _hold_document(data: bytes) -> Any:
    """A hold file's document; None when it cannot be read, or says a thing twice: nobody knows which of them holds."""
    try:
        return read_json(data, pairs=_once)
    except DocumentError:
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise DocumentError("it has a key twice")
    return dict(pairs)


def _native(entry: Mapping[str, Any]) -> list[Item]:
    spec, status = _part(entry, "spec"), _part(entry, "status")
    snapshot, location = _text(status, "providerSnapshotID"), _text(spec, "location")
    return [NativeSnapshot(snapshot, location, _text(spec, "volumeAZ"), _text(spec, "persistentVolumeName"))]


def _repository(entry: Mapping[str, Any]) -> list[Item]:
    snapshot = _text(_part(entry, "status"), "snapshotID")
    uploader = _text(_part(entry, "spec"), "uploaderType") or "restic"
    return [RepositorySnapshot(snapshot, uploader)] if snapshot else []


def _csi(entry: Mapping[str, Any]) -> list[Item]:
    spec, status = _part(entry, "spec"), _part(entry, "status")
    handle = _text(status, "snapshotHandle") or _text(_part(spec, "source"), "snapshotHandle")
    return [CsiContent(_text(_part(entry, "metadata"), "name"), _text(spec, "driver"), handle)]


def _operation(entry: Mapping[str, Any]) -> list[Item]:
    """An operation of the data mover, or one on a CSI snapshot: however it ended, what it made may be there."""
    spec = _part(entry, "spec")
    identifier, what = _text(spec, "operationID"), _part(spec, "resourceIdentifier")
    if identifier.startswith("du-"):
        return [DataMoverItem(identifier)]
    if _text(what, "Group") != SNAPSHOT_GROUP or _text(what, "Resource") not in {VOLUME_SNAPSHOTS, SNAPSHOT_CONTENTS}:
        return []
    parts = [what, *map(_mapping_of, _list_of(spec.get("postOperationItems")))]
    contents = [_text(part, "Name") for part in parts if _text(part, "Resource") == SNAPSHOT_CONTENTS]
    return [CsiContent(name) for name in contents] or [CsiContent(f"{_text(what, 'Namespace')}/{_text(what, 'Name')}")]


def _volume(entry: Mapping[str, Any]) -> list[Item]:
    """A volume, by the way it was backed up: moved, as a CSI or a native snapshot, into a repository, or not at all.

    A way that is not known is a fault: it may have left data that nobody here deletes.
    """
    method = _text(entry, "backupMethod")
    if _flag(entry, "snapshotDataMoved"):
        info = _part(entry, "snapshotDataMovementInfo")
        moved = DataMoverItem(_text(info, "operationID") or _text(entry, "pvName"))
        return [moved, *(_csi_volume(entry) if _flag(entry, "preserveLocalSnapshot") else [])]
    if _flag(entry, "skipped"):
        return []
    if method not in {"CSISnapshot", "NativeSnapshot", "PodVolumeBackup", ""}:
        raise DocumentError(f"its backupMethod is {cut(method, limit=NAMED_LIMIT)!r}, which is not known here")
    csi = method == "CSISnapshot" or _text(_part(entry, "csiSnapshotInfo"), "snapshotHandle")
    return [*(_csi_volume(entry) if csi else []), *_native_volume(entry), *_pod_volume(entry)]


def _csi_volume(entry: Mapping[str, Any]) -> list[Item]:
    """A CSI snapshot; one whose operation failed may be there under a handle that nobody wrote down."""
    info = _part(entry, "csiSnapshotInfo")
    name, driver, handle = (_known(_text(info, key)) for key in ("vscName", "driver", "snapshotHandle"))
    return [CsiContent(name or (f"of volume {_text(entry, 'pvName')}" if not handle else ""), driver, handle)]


def _known(word: str) -> str:
    """Velero writes ``unknown`` where it knows nothing."""
    return "" if word == "unknown" else word


def _native_volume(entry: Mapping[str, Any]) -> list[Item]:
    info = _part(entry, "nativeSnapshotInfo")
    handle = _text(info, "snapshotHandle")
    return [NativeSnapshot(handle, "", _text(info, "volumeAZ"), _text(entry, "pvName"))] if handle else []


def _pod_volume(entry: Mapping[str, Any]) -> list[Item]:
    info = _part(entry, "pvbInfo")
    handle = _text(info, "snapshotHandle")
    return [RepositorySnapshot(handle, _text(info, "uploaderType") or "restic")] if handle else []


def _flag(entry: Mapping[str, Any], name: str) -> bool:
    """A yes or no of an entry; an absent one is no. Raises ``DocumentError`` for anything but true and false."""
    found = entry.get(name)
    if found is not None and not isinstance(found, bool):
        raise DocumentError(f"its {name} is a {type(found).__name__}, not true or false")
    return found is True


def _part(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of an entry; an absent one is empty. Raises ``DocumentError`` for anything but an object."""
    part = entry.get(name)
    if part is not None and not isinstance(part, Mapping):
        raise DocumentError(f"its {name} is a {type(part).__name__}, not an object")
    return part or {}


def _text(part: Mapping[str, Any], name: str) -> str:
    """A text of an entry; an absent one is empty. Raises ``DocumentError`` for anything but a text."""
    found = part.get(name)
    if found is not None and not isinstance(found, str):
        raise DocumentError(f"its {name} is a {type(found).__name__}, not a text")
    return found or ""


LISTS: Mapping[str, Callable[[Mapping[str, Any]], list[Item]]] = {
    NATIVE_LIST: _native,
    REPOSITORY_LIST: _repository,
    CSI_LIST: _csi,
    OPERATIONS: _operation,
    VOLUME_INFO: _volume,
}
"""The lists that name data outside the directory, and how an entry of each is read."""


def list_key(backup: str, name: str) -> str:
    """The key of one of a backup's lists."""
    return f"{backup_directory(backup)}{backup}-{name}.json.gz"


def read_list(backup: str, name: str, data: bytes) -> tuple[Item, ...] | ListCorrupt:
    """Read one of ``LISTS`` by its name."""
    return _read_entries(list_key(backup, name), data, LISTS[name])


def _read_entries(
    key: str, data: bytes, entry_items: Callable[[Mapping[str, Any]], list[Item]]
) -> tuple[Item, ...] | ListCorrupt:
    tally, items = Tally(key, kept_at_most=LARGEST), []
    try:
        for number, entry in enumerate(read_entries(data)):
            found = _items_of(number, entry, entry_items)
            items += found
            tally.keep(sum(map(_weight, found)))
    except (DocumentError, TooMuchError) as fault:
        return ListCorrupt(key, str(fault))
    return tuple(items)


def _weight(item: Item) -> int:
    """What an item takes in memory."""
    return AN_ITEM + sum(width(value) for value in astuple(item, recurse=False) if isinstance(value, str))


def _items_of(number: int, entry: Any, entry_items: Callable[[Mapping[str, Any]], list[Item]]) -> list[Item]:
    """What an entry names. Raises ``DocumentError`` that says which entry is wrong, counted from 0."""
    try:
        return entry_items(_mapping_of(entry))
    except DocumentError as fault:
        raise DocumentError(f"entry [{number}] is not what it must be: {fault}") from fault


def _list_of(document: Any) -> list[Any]:
    if document is None:
        return []  # Go writes an empty slice as null
    if not isinstance(document, list):
        raise DocumentError(f"it is a {type(document).__name__}, not a list")
    return document


def _mapping_of(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise DocumentError(f"it has a {type(entry).__name__} where an object must be")
    return entry
