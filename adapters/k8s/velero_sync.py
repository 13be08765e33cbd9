"""Codec of what sync reads in a backup's directory: the metadata document, the pod volume backups, the hold file.

Guarantee: reading is total: a document of any other shape is a fault with its reason. Not guaranteed: that the API
server accepts a record that is made of a document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from reprieve.adapters.k8s import velero_files
from reprieve.core.backups import Backup, ListCorrupt, MetadataCorrupt
from reprieve.core.objects import Resource, resource_from_json, text
from reprieve.core.sync import StoredBackup, StoredFault, Volumes, VolumesRead
from reprieve.core.values import FrozenMap

VOLUMES_LIST = "podvolumebackups"


def hold_digest(data: bytes) -> str:
    """The digest of a hold file's bytes, as ``reprieve.dev/hold-mirrored`` has it."""
    return hashlib.sha256(data).hexdigest()


def stored_backup(
    name: str, metadata: bytes, *, hold: bytes | None, volumes: Volumes, read: Callable[[Resource], Backup]
) -> StoredBackup | StoredFault:
    """Read a directory: its metadata file, its hold file (None: there is none), and its volumes as they were read.

    ``read`` is the dialect's reader of a Backup.
    """
    document = velero_files.read_document(metadata)
    if isinstance(document, MetadataCorrupt):
        return StoredFault(name, document)
    if text(document.get("kind")) not in {"", "Backup"}:
        return StoredFault(name, MetadataCorrupt(f"it is a {text(document.get('kind'))}, not a Backup"))
    held = FrozenMap() if hold is None else velero_files.read_hold(hold)
    digest = "" if hold is None else hold_digest(hold)
    holder = "" if hold is None else velero_files.read_holder(hold)
    return StoredBackup(name, read(resource_from_json(document)), document, held, digest, volumes, holder)


def stored_volumes(key: str, data: bytes) -> VolumesRead | ListCorrupt:
    """Read the list of pod volume backups, as documents."""
    documents = velero_files.read_documents(key, data)
    return documents if isinstance(documents, ListCorrupt) else VolumesRead(documents)
