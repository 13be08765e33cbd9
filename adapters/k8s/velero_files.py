"""Codec of the documents in Velero's bucket layout: the metadata file and the gzipped lists beside it.

Guarantee: a document is either read whole or reported as a fault with its reason; it is never half believed: an entry
whose id is no text is a fault, not an entry without an id. What unpacks to more than the limit, or to more values, is a
fault as well, so that a crafted file cannot fill the memory.
Not guaranteed: that a list is complete; Velero writes it before the metadata file is final.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

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
from reprieve.core.holds import hold_from_document
from reprieve.core.objects import mapping
from reprieve.core.values import FrozenMap, parse_instant

FILE_LIMIT = 32 * 1024 * 1024
UNPACKED_LIMIT = 64 * 1024 * 1024
VALUES_LIMIT = 4_000_000
GZIP = 16 + zlib.MAX_WBITS


class DocumentError(Exception):
    """Why a document cannot be read; stays inside this module."""


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
        return _mapping_of(_json(data))
    except DocumentError as fault:
        return MetadataCorrupt(str(fault))


def read_documents(key: str, data: bytes) -> tuple[Mapping[str, Any], ...] | ListCorrupt:
    """Read a gzipped list as the documents in it."""
    try:
        return tuple(_mapping_of(entry) for entry in _list_of(_json(_gunzip(data))))
    except DocumentError as fault:
        return ListCorrupt(key, str(fault))


def read_hold(data: bytes) -> FrozenMap[str, str]:
    """Read ``reprieve-hold.json`` as annotations; one that cannot be read holds."""
    try:
        return FrozenMap(hold_from_document(_json(data)))
    except DocumentError:
        return FrozenMap(hold_from_document(None))


def _native(entry: Mapping[str, Any]) -> list[Item]:
    spec, status = _part(entry, "spec"), _part(entry, "status")
    snapshot, location = _text(status, "providerSnapshotID"), _text(spec, "location")
    return [NativeSnapshot(snapshot, location, _text(spec, "volumeAZ"), _text(spec, "persistentVolumeName"))]


def _repository(entry: Mapping[str, Any]) -> list[Item]:
    snapshot = _text(_part(entry, "status"), "snapshotID")
    uploader = _text(_part(entry, "spec"), "uploaderType") or "restic"
    return [RepositorySnapshot(snapshot, uploader)] if snapshot else []


def _csi(entry: Mapping[str, Any]) -> list[Item]:
    return [CsiContent(_text(_part(entry, "metadata"), "name"), _text(_part(entry, "spec"), "driver"))]


def _operation(entry: Mapping[str, Any]) -> list[Item]:
    identifier = _text(_part(entry, "spec"), "operationID")
    return [DataMoverItem(identifier)] if identifier.startswith("du-") else []


def _volume(entry: Mapping[str, Any]) -> list[Item]:
    moved = entry.get("snapshotDataMoved")
    if moved not in (None, True, False):
        raise DocumentError(f"its snapshotDataMoved is a {type(moved).__name__}, not true or false")
    info = _part(entry, "snapshotDataMovementInfo")
    return [DataMoverItem(_text(info, "operationID") or _text(entry, "pvName"))] if moved else []


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
    "volumesnapshots": _native,
    "podvolumebackups": _repository,
    "csi-volumesnapshotcontents": _csi,
    "itemoperations": _operation,
    "volumeinfo": _volume,
}
"""The lists that name data outside the directory, and how an entry of each is read."""

NATIVE_LIST = "volumesnapshots"
CSI_LIST = "csi-volumesnapshotcontents"


def list_key(backup: str, name: str) -> str:
    """The key of one of a backup's lists."""
    return f"{backup_directory(backup)}{backup}-{name}.json.gz"


def read_list(backup: str, name: str, data: bytes) -> tuple[Item, ...] | ListCorrupt:
    """Read one of ``LISTS`` by its name."""
    return _read_entries(list_key(backup, name), data, LISTS[name])


def _read_entries(
    key: str, data: bytes, entry_items: Callable[[Mapping[str, Any]], list[Item]]
) -> tuple[Item, ...] | ListCorrupt:
    try:
        entries = _list_of(_json(_gunzip(data)))
        return tuple(item for number, entry in enumerate(entries) for item in _items_of(number, entry, entry_items))
    except DocumentError as fault:
        return ListCorrupt(key, str(fault))


def _items_of(number: int, entry: Any, entry_items: Callable[[Mapping[str, Any]], list[Item]]) -> list[Item]:
    """What an entry names. Raises ``DocumentError`` that says which entry is wrong, counted from 0."""
    try:
        return entry_items(_mapping_of(entry))
    except DocumentError as fault:
        raise DocumentError(f"entry [{number}] is not what it must be: {fault}") from fault


def _gunzip(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=GZIP)
    try:
        plain = unpacker.decompress(data, UNPACKED_LIMIT + 1)
    except zlib.error as fault:
        raise DocumentError(f"it is not gzip ({fault})") from fault
    if len(plain) > UNPACKED_LIMIT:
        raise DocumentError(f"it unpacks to more than {UNPACKED_LIMIT // 1024 // 1024} MiB")
    if not unpacker.eof:
        raise DocumentError(f"it is truncated after {len(data)} bytes")
    if unpacker.unused_data:
        raise DocumentError(f"{len(unpacker.unused_data)} bytes follow after its end")
    return plain


def _json(data: bytes) -> Any:
    values = sum(data.count(mark) for mark in (b",", b"[", b"{"))
    if values > VALUES_LIMIT:
        raise DocumentError(f"it has more than {VALUES_LIMIT} values")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise DocumentError(f"it is not JSON ({fault})") from fault


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
