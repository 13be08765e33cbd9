"""Stored records: the manifest of a Backup or of a pod volume backup from a bucket, made fit to live in this cluster.

Guarantee: what belonged to the cluster that wrote it (UID, resource version, owners that do not live here, finalizers,
bookkeeping of ours, marks of tools that would prune it) is left behind, and so are hooks, which Velero could run; other
labels and annotations, spec and status stay as stored. A hold that the document carries stays.
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
    STORAGE_LOCATION,
    Backup,
    Layout,
)
from reprieve.core.holds import HOLD, HOLD_UNTIL
from reprieve.core.objects import ObjectKind, ObjectRef, label_safe, mapping, text, texts
from reprieve.core.steps import CreateRecord
from reprieve.core.values import as_set

OLD_FINALIZER = "gc.ark.heptio.com"
VOLUME_ENDED = frozenset({"Completed", "Failed", "Canceled"})
"""Phases in which nobody works on a pod volume backup any more."""


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
    held = {} if hold else {key: value for key, value in texts(meta.get("annotations")).items() if key in _HOLD}
    manifest = _manifest(document, home, home.kind.kind)
    manifest["metadata"] |= _present(
        labels=_kept(meta.get("labels"))
        | ({STORAGE_LOCATION: label_safe(home.location)} if home.layout.located else {}),
        annotations=_kept(meta.get("annotations")) | held | dict(hold) | dict(annotations),
        ownerReferences=[each for each in _entries(meta.get("ownerReferences")) if _is_schedule(each, home)],
    )
    spec = {key: value for key, value in mapping(document.get("spec")).items() if key != "hooks"}
    manifest["spec"] = spec | ({"storageLocation": home.location} if home.layout.located else {})
    if phase:
        manifest["status"] = {**mapping(document.get("status")), "phase": phase}
    return CreateRecord(home.ref(manifest["metadata"]["name"]), manifest)


_HOLD = frozenset({HOLD, HOLD_UNTIL})
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OURS = "reprieve.dev"
TRACKERS = frozenset(
    {
        "applyset.kubernetes.io",
        "argocd.argoproj.io",
        "config.k8s.io",
        "configmanagement.gke.io",
        "configsync.gke.io",
        "faros.pusher.com",
        "fleet.cattle.io",
        "helm.toolkit.fluxcd.io",
        "kapp.k14s.io",
        "kustomize.toolkit.fluxcd.io",
        "objectset.rio.cattle.io",
    }
)
"""Domains under which tools mark what they applied: what carries such a mark and is not in their source they prune."""


def _kept(stored: object) -> dict[str, str]:
    """The labels or annotations that come back: users select by them, but marks of tools and of ours mean others.

    A tracker would prune a record that it never applied, and sync would create it again, for ever.
    """
    return {key: value for key, value in texts(stored).items() if key != LAST_APPLIED and not _is_mark(key)}


def _is_mark(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in (OURS, *TRACKERS))


def _is_schedule(reference: Mapping[str, Any], home: RecordHome) -> bool:
    """Whether an owner reference names a schedule that lives here under that very UID."""
    named = (text(reference.get("kind")), text(reference.get("name")), text(reference.get("uid")))
    group = text(reference.get("apiVersion")).rpartition("/")[0]
    living = {(ref.kind, ref.name, ref.uid) for ref in home.schedules if ref.uid}
    return group == home.kind.group and named[0] == "Schedule" and named in living


def volume_record(document: Mapping[str, Any], home: RecordHome, owner: Backup) -> CreateRecord:
    """The step that creates a stored pod volume backup here, owned by the record that it came with."""
    meta = mapping(document.get("metadata"))
    labels = _kept(meta.get("labels"))
    owners = [each for each in _entries(meta.get("ownerReferences")) if _is_owner(each, owner)]
    manifest = _manifest(document, home, "PodVolumeBackup")
    manifest["metadata"] |= _present(
        labels=labels | ({BACKUP_UID: owner.meta.uid} if BACKUP_UID in labels else {}),
        annotations=_kept(meta.get("annotations")),
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


def is_ended_volume(document: Mapping[str, Any]) -> bool:
    """Whether a stored pod volume backup has ended and points at data. Velero would go on with any other."""
    status = mapping(document.get("status"))
    return text(status.get("phase")) in VOLUME_ENDED and bool(text(status.get("snapshotID")))


def _manifest(document: Mapping[str, Any], home: RecordHome, kind: str) -> dict[str, Any]:
    """The document without what belonged to its old cluster: of its metadata only the name is left here."""
    body = {key: mapping(document.get(key)) for key in ("spec", "status") if mapping(document.get(key))}
    metadata = {"name": document_name(document), "namespace": home.namespace}
    return {"apiVersion": home.kind.api_version, "kind": kind, "metadata": metadata, **body}


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _entries(data: object) -> list[Mapping[str, Any]]:
    return [each for each in data if isinstance(each, Mapping)] if isinstance(data, list) else []
