"""Stored records: the manifest of a Backup or of a pod volume backup from a bucket, made fit to live in this cluster.

Guarantee: what belonged to the cluster that wrote it (UID, resource version, owners that do not live here, bookkeeping
of ours) is left behind, and so is the finalizer of old Ark releases; labels, annotations, other finalizers, spec and
status stay as stored.
Not guaranteed: that the document means what it says; the caller has checked its name.

Source: the sync controllers of Velero and of Ark v0.8, and what they lacked (owner references taken over blindly).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from reprieve.core.backups import (
    BACKUP_NAME,
    BACKUP_UID,
    DELETION,
    HOLD_MIRRORED,
    METADATA_MISSING,
    RETENTION_FAILURES,
    STORAGE_LOCATION,
    SYNC_INCOMPLETE,
    SYNCED_AT,
    Backup,
    Layout,
)
from reprieve.core.holds import HOLD, HOLD_UNTIL
from reprieve.core.objects import ObjectKind, ObjectRef, label_safe, mapping, text, texts
from reprieve.core.steps import CreateRecord
from reprieve.core.values import as_set

OLD_FINALIZER = "gc.ark.heptio.com"


@frozen
class RecordHome:
    """Where stored records come to live: the Backup kind of the dialect, the namespace, and the schedules in it.

    ``location`` is the storage location's name, empty in a dialect without locations.
    """

    kind: ObjectKind
    namespace: str
    location: str = ""
    layout: Layout = field(factory=Layout)
    schedules: frozenset[ObjectRef] = field(default=frozenset(), converter=as_set)

    def ref(self, name: str) -> ObjectRef:
        """The reference of a record that is not there yet."""
        return ObjectRef(self.kind.api_version, self.kind.kind, name, self.namespace)


def backup_record(
    document: Mapping[str, Any],
    home: RecordHome,
    *,
    annotations: Mapping[str, str],
    hold: Mapping[str, str],
    phase: str = "",
) -> CreateRecord:
    """The step that creates a stored Backup here.

    ``annotations`` are added. ``hold`` is the mirrored hold; where it is not empty, it takes the place of one in the
    document, as ``phase`` does of the stored phase.
    """
    meta = mapping(document.get("metadata"))
    left = _BOOKKEEPING | (_HOLD if hold else set())
    stored = {key: value for key, value in texts(meta.get("annotations")).items() if key not in left}
    labels = {key: value for key, value in texts(meta.get("labels")).items() if key not in _BOOKKEEPING}
    manifest = _manifest(document, home, home.kind.kind)
    manifest["metadata"] |= _present(
        labels=labels | ({STORAGE_LOCATION: label_safe(home.location)} if home.layout.located else {}),
        annotations=stored | dict(hold) | dict(annotations),
        ownerReferences=[each for each in _entries(meta.get("ownerReferences")) if _is_schedule(each, home)],
    )
    if home.layout.located:
        manifest["spec"] = {**mapping(document.get("spec")), "storageLocation": home.location}
    if phase:
        manifest["status"] = {**mapping(document.get("status")), "phase": phase}
    return CreateRecord(home.ref(manifest["metadata"]["name"]), manifest)


_HOLD = frozenset({HOLD, HOLD_UNTIL})
_BOOKKEEPING = frozenset({DELETION, SYNCED_AT, SYNC_INCOMPLETE, HOLD_MIRRORED, METADATA_MISSING, RETENTION_FAILURES})


def _is_schedule(reference: Mapping[str, Any], home: RecordHome) -> bool:
    """Whether an owner reference names a schedule that lives here under that very UID."""
    named = (text(reference.get("kind")), text(reference.get("name")), text(reference.get("uid")))
    group = text(reference.get("apiVersion")).rpartition("/")[0]
    living = {(ref.kind, ref.name, ref.uid) for ref in home.schedules if ref.uid}
    return group == home.kind.group and named[0] == "Schedule" and named in living


def volume_record(document: Mapping[str, Any], home: RecordHome, owner: Backup) -> CreateRecord:
    """The step that creates a stored pod volume backup here, owned by the record that it came with."""
    meta = mapping(document.get("metadata"))
    labels = texts(meta.get("labels"))
    owners = [each for each in _entries(meta.get("ownerReferences")) if _is_owner(each, owner)]
    manifest = _manifest(document, home, "PodVolumeBackup")
    manifest["metadata"] |= _present(
        labels=labels | ({BACKUP_UID: owner.meta.uid} if BACKUP_UID in labels else {}),
        annotations=texts(meta.get("annotations")),
        ownerReferences=[{**each, "uid": owner.meta.uid} for each in owners],
    )
    manifest["spec"] = {**mapping(document.get("spec")), "backupStorageLocation": home.location}
    ref = ObjectRef(home.kind.api_version, "PodVolumeBackup", manifest["metadata"]["name"], home.namespace)
    return CreateRecord(ref, manifest)


def belongs_to(document: Mapping[str, Any], backup: Backup) -> bool:
    """Whether a stored pod volume backup says that it is this backup's: by its label, where it has one."""
    labels = texts(mapping(document.get("metadata")).get("labels"))
    return labels.get(BACKUP_NAME, label_safe(backup.name)) == label_safe(backup.name)


def document_name(document: Mapping[str, Any]) -> str:
    """The name that a stored document gives itself; empty when it gives none."""
    return text(mapping(document.get("metadata")).get("name"))


def _is_owner(reference: Mapping[str, Any], owner: Backup) -> bool:
    return (reference.get("kind"), reference.get("name")) == (owner.ref.kind, owner.name)


def _manifest(document: Mapping[str, Any], home: RecordHome, kind: str) -> dict[str, Any]:
    """The document without what belonged to its old cluster. Of its metadata, name and foreign finalizers are left."""
    body = {key: value for key, value in document.items() if key not in {"apiVersion", "kind", "metadata"}}
    stored = mapping(document.get("metadata")).get("finalizers")
    finalizers = [each for each in (stored if isinstance(stored, list) else []) if isinstance(each, str)]
    metadata = {
        "name": document_name(document),
        "namespace": home.namespace,
        **_present(finalizers=[each for each in finalizers if each != OLD_FINALIZER]),
    }
    return {"apiVersion": home.kind.api_version, "kind": kind, "metadata": metadata, **body}


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _entries(data: object) -> list[Mapping[str, Any]]:
    return [each for each in data if isinstance(each, Mapping)] if isinstance(data, list) else []
