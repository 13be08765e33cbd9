"""Dialects: what differs between Velero and Ark, as one value, so that callers do not know which of the two they speak.

Guarantee: with either dialect the same facts reach core in the same words. Status patches and our own annotations are
the same in both, so they are not here: ``velero.progress_patch`` and its like serve both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from reprieve.adapters.k8s import ark, velero, velero_files
from reprieve.core.backups import (
    Backup,
    DeletionRequest,
    Layout,
    NewRequest,
    Restore,
    SnapshotLocation,
    StorageLocation,
)
from reprieve.core.objects import ObjectKind, Resource


@frozen
class ServedLocations:
    """Locations are objects of the cluster, of these kinds."""

    storage: ObjectKind = velero.STORAGE_LOCATION
    snapshots: ObjectKind = velero.SNAPSHOT_LOCATION


@frozen
class FixedLocations:
    """There are no location objects: the configuration names the one bucket and the one provider."""

    storage: StorageLocation
    snapshots: SnapshotLocation


@frozen
class Dialect:
    """Kinds, readers, writers and layout of one backup tool.

    ``lists`` are the names of the lists in a backup's directory; without any, a backup points at nothing but what its
    record says. ``snapshot_tag`` is the tag by which snapshots name their backup. ``to_api`` translates a manifest or a
    patch of core's words (``merge_patch``) into the tool's.
    """

    name: str
    backup_kind: ObjectKind
    request_kind: ObjectKind
    restore_kind: ObjectKind
    schedule_kind: ObjectKind
    locations: ServedLocations | FixedLocations
    layout: Layout
    backup: Callable[[Resource], Backup]
    deletion_request: Callable[[Resource], DeletionRequest]
    restore: Callable[[Resource], Restore]
    request_manifest: Callable[[NewRequest], dict[str, Any]]
    bind_patch: Callable[[DeletionRequest, str], dict[str, Any]]
    to_api: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    lists: tuple[str, ...] = ()
    without_provider: str = ""
    snapshot_tag: str = "velero.io/backup"


VELERO = Dialect(
    name="velero",
    backup_kind=velero.BACKUP,
    request_kind=velero.REQUEST,
    restore_kind=velero.RESTORE,
    schedule_kind=velero.SCHEDULE,
    locations=ServedLocations(),
    layout=Layout(),
    backup=velero.backup,
    deletion_request=velero.deletion_request,
    restore=velero.restore,
    request_manifest=velero.request_manifest,
    bind_patch=velero.bind_patch,
    lists=tuple(velero_files.LISTS),
)
"""Velero's ``velero.io/v1``."""


def ark_dialect(*, bucket: str, provider: str, namespace: str) -> Dialect:
    """Ark v0.8's ``ark.heptio.com/v1`` over the one bucket and the one provider that the configuration names."""
    return Dialect(
        name="ark",
        backup_kind=ark.BACKUP,
        request_kind=ark.REQUEST,
        restore_kind=ark.RESTORE,
        schedule_kind=ark.SCHEDULE,
        locations=FixedLocations(ark.storage_location(bucket, provider, namespace), ark.snapshot_location(provider)),
        layout=ark.LAYOUT,
        backup=ark.backup,
        deletion_request=ark.deletion_request,
        restore=ark.restore,
        request_manifest=ark.request_manifest,
        bind_patch=ark.bind_patch,
        to_api=ark.in_arks_words,
        without_provider=ark.WITHOUT_PROVIDER,
        snapshot_tag=ark.SNAPSHOT_TAG,
    )
