"""Codec of Velero's ``velero.io/v1``: Kubernetes JSON to core values, and core values to manifests and merge patches.

Guarantee: reading is total. Objects are written by hand and by other versions, so a wrong type counts as absent,
except where that would hide what somebody asked for (``spec.backupName``), which is kept as a fault. Patches name
only the fields that they change. Not guaranteed: any check against Velero's CRDs; the API server does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprieve.core.backups import (
    BACKUP_NAME,
    BACKUP_UID,
    DELETING,
    DELETION,
    STATE,
    Backup,
    CsiContent,
    DataMoverItem,
    DeletionRequest,
    NativeSnapshot,
    NewRequest,
    NoSecret,
    RepositorySnapshot,
    RequestPhase,
    RequestState,
    Restore,
    SecretKey,
    SnapshotLocation,
    StorageLocation,
    plain_provider,
    read_state,
    write_state,
)
from reprieve.core.durations import parse_duration
from reprieve.core.objects import ObjectKind, Resource, label_safe, mapping, strings, text
from reprieve.core.values import bounded, parse_instant

API_VERSION = "velero.io/v1"
BACKUP = ObjectKind(API_VERSION, "Backup")
REQUEST = ObjectKind(API_VERSION, "DeleteBackupRequest")
RESTORE = ObjectKind(API_VERSION, "Restore")
STORAGE_LOCATION = ObjectKind(API_VERSION, "BackupStorageLocation")
SNAPSHOT_LOCATION = ObjectKind(API_VERSION, "VolumeSnapshotLocation")
POD_VOLUME_BACKUP = ObjectKind(API_VERSION, "PodVolumeBackup")
SCHEDULE = ObjectKind(API_VERSION, "Schedule")
DATA_UPLOAD = ObjectKind("velero.io/v2alpha1", "DataUpload")
CONFIG_MAP = ObjectKind("v1", "ConfigMap")
SECRET = ObjectKind("v1", "Secret")
VOLUME_SNAPSHOT = ObjectKind("snapshot.storage.k8s.io/v1", "VolumeSnapshot")
VOLUME_SNAPSHOT_CONTENT = ObjectKind("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent")
RESTORE_NAME = "velero.io/restore-name"
DATA_MOVER_LABEL = "velero.io/data-upload-snapshot-info"


def backup(resource: Resource) -> Backup:
    """Read a Backup."""
    spec, status = resource.section("spec"), resource.section("status")
    return Backup(
        ref=resource.ref,
        meta=resource.meta,
        phase=text(status.get("phase")),
        storage_location=text(spec.get("storageLocation")),
        snapshot_locations=[name for name in _items(spec.get("volumeSnapshotLocations")) if isinstance(name, str)],
        started=parse_instant(status.get("startTimestamp")),
        completed=parse_instant(status.get("completionTimestamp")),
        expiration=parse_instant(status.get("expiration")),
        snapshots_completed=_count(status.get("volumeSnapshotsCompleted")),
        snapshots_attempted=_count(status.get("volumeSnapshotsAttempted")),
        csi_snapshots_completed=_count(status.get("csiVolumeSnapshotsCompleted")),
        csi_snapshots_attempted=_count(status.get("csiVolumeSnapshotsAttempted")),
        operations_attempted=_count(status.get("backupItemOperationsAttempted")),
        moves_data=spec.get("snapshotMoveData") is True,
        legacy_snapshots=legacy_snapshots(status.get("volumeBackups")),
    )


def legacy_snapshots(volumes: object, *, location: str = "") -> tuple[NativeSnapshot, ...]:
    """Read ``status.volumeBackups`` of an old record: a map from volume to ``{snapshotID, availabilityZone, …}``."""
    pairs = sorted(mapping(volumes).items())
    return tuple(
        NativeSnapshot(text(entry.get("snapshotID")), location, text(entry.get("availabilityZone")), str(volume))
        for volume, entry in ((name, mapping(data)) for name, data in pairs)
    )


def storage_location(resource: Resource) -> StorageLocation:
    """Read a BackupStorageLocation. Available is exactly the phase ``Available``: one never validated is not."""
    spec, status = resource.section("spec"), resource.section("status")
    storage = mapping(spec.get("objectStorage"))
    return StorageLocation(
        name=resource.meta.name,
        provider=plain_provider(text(spec.get("provider"))),
        bucket=text(storage.get("bucket")),
        prefix=text(storage.get("prefix")).strip("/"),
        config=strings(spec.get("config")),
        credential=_credential(spec),
        read_only=spec.get("accessMode") == "ReadOnly",
        available=status.get("phase") == "Available",
        default=spec.get("default") is True,
        sync_period=parse_duration(spec.get("backupSyncPeriod")),
        last_synced=parse_instant(status.get("lastSyncedTime")),
        ca_cert=text(storage.get("caCert")),
        meta=resource.meta,
    )


def snapshot_location(resource: Resource) -> SnapshotLocation:
    """Read a VolumeSnapshotLocation."""
    spec = resource.section("spec")
    provider = plain_provider(text(spec.get("provider")))
    return SnapshotLocation(resource.meta.name, provider, strings(spec.get("config")), _credential(spec))


def _credential(spec: Mapping[str, Any]) -> SecretKey | NoSecret:
    """The Secret that a location names. One that cannot be read is no reason to work with another account's rights."""
    if spec.get("credential") is None:
        return NoSecret()
    named = mapping(spec["credential"])
    return SecretKey(text(named.get("name")), text(named.get("key")))


def restore(resource: Resource) -> Restore:
    """Read a Restore; ``spec.backupName`` is its only link to a backup."""
    name = text(resource.section("spec").get("backupName"))
    return Restore(resource.ref, name, text(resource.section("status").get("phase")))


def deletion_request(resource: Resource) -> DeletionRequest:
    """Read a DeleteBackupRequest, whatever it says."""
    status = resource.section("status")
    asked = mapping(resource.body.get("spec")).get("backupName", "")
    phase = text(status.get("phase"))
    return DeletionRequest(
        ref=resource.ref,
        meta=resource.meta,
        backup=text(asked),
        name_fault=_name_fault(resource.body.get("spec"), asked),
        phase=RequestPhase(phase) if phase in set(RequestPhase) else RequestPhase.NEW,
        errors=[error for error in _items(status.get("errors")) if isinstance(error, str)],
        state=read_state(resource.meta.annotations),
    )


def _name_fault(spec: object, asked: object) -> str:
    if spec is not None and not isinstance(spec, Mapping):
        return f"spec must be an object with backupName, it is {type(spec).__name__}"
    if asked is not None and not isinstance(asked, str):
        return f"spec.backupName must be a text, it is {type(asked).__name__}"
    return ""


def repository_snapshots(resource: Resource) -> tuple[RepositorySnapshot, ...]:
    """Read what a PodVolumeBackup points at: nothing while it has no snapshot id. An empty uploader is restic's."""
    snapshot = text(resource.section("status").get("snapshotID"))
    uploader = text(resource.section("spec").get("uploaderType")) or "restic"
    return (RepositorySnapshot(snapshot, uploader),) if snapshot else ()


def data_mover_item(resource: Resource) -> DataMoverItem:
    """Read a DataUpload, or the ConfigMap that stands for one."""
    return DataMoverItem(resource.meta.name)


def csi_contents(resource: Resource) -> tuple[CsiContent, ...]:
    """Read a VolumeSnapshot or a VolumeSnapshotContent: nothing where a restore made it, which labels it the same."""
    if RESTORE_NAME in resource.meta.labels:
        return ()
    spec, status = resource.section("spec"), resource.section("status")
    if resource.type == VOLUME_SNAPSHOT:
        own = f"{resource.meta.namespace}/{resource.meta.name}"
        source = text(mapping(spec.get("source")).get("volumeSnapshotContentName"))
        return (CsiContent(text(status.get("boundVolumeSnapshotContentName")) or source or own),)
    return (CsiContent(resource.meta.name, text(spec.get("driver")), csi_handle(spec, status)),)


def csi_handle(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The handle of a content: what its driver made, or what it was made for."""
    return text(status.get("snapshotHandle")) or text(mapping(spec.get("source")).get("snapshotHandle"))


# Writing


def request_manifest(request: NewRequest) -> dict[str, Any]:
    """Write a request to create. Its name is generated by the API server."""
    metadata: dict[str, Any] = {
        "generateName": request.generate_name,
        "namespace": request.namespace,
        "labels": dict(request.labels),
    }
    noted = {"annotations": dict(request.annotations)} if request.annotations else {}
    return {
        "apiVersion": API_VERSION,
        "kind": REQUEST.kind,
        "metadata": metadata | noted,
        "spec": {"backupName": request.backup},
    }


def bind_patch(request: DeletionRequest, backup_uid: str) -> dict[str, Any]:
    """The labels that bind a request to its backup. A label that is there is left alone; empty when both are there."""
    wanted = {BACKUP_NAME: label_safe(request.backup)} | ({BACKUP_UID: backup_uid} if backup_uid else {})
    missing = {key: value for key, value in wanted.items() if not request.meta.labels.get(key)}
    return {"metadata": {"labels": missing}} if missing else {}


def progress_patch(state: RequestState, *, errors: tuple[str, ...] | None = None) -> dict[str, Any]:
    """The patch of a request at work: phase, state, and its errors where they changed."""
    return _status_patch(state, RequestPhase.IN_PROGRESS, errors)


def processed_patch(state: RequestState, errors: tuple[str, ...]) -> dict[str, Any]:
    """The patch that ends a request with what is left."""
    return _status_patch(state, RequestPhase.PROCESSED, errors)


def report_patch(state: RequestState) -> dict[str, Any]:
    """The patch of a request that notes a report, and nothing else."""
    return {"metadata": {"annotations": {STATE: write_state(state)}}}


def _status_patch(state: RequestState, phase: RequestPhase, errors: tuple[str, ...] | None) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase.value}
    if errors is not None:
        status["errors"] = list(bounded(errors))
    return {**report_patch(state), "status": status}


def deletion_patch(state: RequestState) -> dict[str, Any]:
    """The patch of a backup whose deletion is under way: its phase, and how far the deletion has come, in one."""
    return {"metadata": {"annotations": {DELETION: write_state(state)}}, "status": {"phase": DELETING}}


def undeleted_patch(phase: str) -> dict[str, Any]:
    """The patch of a backup of which nothing was taken away: its phase of before, in one with the end of our note.

    An empty phase is no value that the CRD takes; the field goes.
    """
    return {"metadata": {"annotations": {DELETION: None}}, "status": {"phase": phase or None}}


def _items(data: object) -> list[Any]:
    return data if isinstance(data, list) else []


def _count(data: object) -> int:
    return data if isinstance(data, int) and not isinstance(data, bool) and data > 0 else 0
