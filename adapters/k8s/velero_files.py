"""Codec of the documents in Velero's bucket layout: the metadata file and the gzipped lists beside it.

Guarantee: a document is either read whole or reported as a fault with its reason; it is never half believed. What
unpacks to more than the limit is a fault as well, so that a crafted file cannot fill the memory.
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
from reprieve.core.objects import mapping, resource_from_json, text
from reprieve.core.values import FrozenMap, parse_instant

FILE_LIMIT = 32 * 1024 * 1024
UNPACKED_LIMIT = 64 * 1024 * 1024
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
    spec, status = mapping(entry.get("spec")), mapping(entry.get("status"))
    snapshot, location = text(status.get("providerSnapshotID")), text(spec.get("location"))
    return [NativeSnapshot(snapshot, location, text(spec.get("volumeAZ")), text(spec.get("persistentVolumeName")))]


def _repository(entry: Mapping[str, Any]) -> list[Item]:
    record = resource_from_json(entry)
    snapshot = text(record.section("status").get("snapshotID"))
    return (
        [RepositorySnapshot(snapshot, text(record.section("spec").get("uploaderType")) or "restic")] if snapshot else []
    )


def _csi(entry: Mapping[str, Any]) -> list[Item]:
    record = resource_from_json(entry)
    return [CsiContent(record.meta.name, text(record.section("spec").get("driver")))]


def _operation(entry: Mapping[str, Any]) -> list[Item]:
    identifier = text(mapping(entry.get("spec")).get("operationID"))
    return [DataMoverItem(identifier)] if identifier.startswith("du-") else []


def _volume(entry: Mapping[str, Any]) -> list[Item]:
    moved = mapping(entry.get("snapshotDataMovementInfo"))
    if entry.get("snapshotDataMoved") is not True:
        return []
    return [DataMoverItem(text(moved.get("operationID")) or text(entry.get("pvName")))]


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
        return tuple(item for entry in entries for item in entry_items(_mapping_of(entry)))
    except DocumentError as fault:
        return ListCorrupt(key, str(fault))


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
    return plain


def _json(data: bytes) -> Any:
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
