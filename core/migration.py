"""Migration at start: live Backups lose the finalizer of old Ark releases, ``gc.ark.heptio.com``, and no other.

Nobody serves that finalizer any more, so a Backup that carries it could never go away. One that is terminating loses it
as well: its files stay in the bucket, and sync brings its record back.

Guarantee: no step when there is nothing to do; each patch names the resource version that the list was read from, so a
finalizer that somebody adds in between is not lost (conflict: read again). Not guaranteed: that nothing adds it again;
sync strips it from what it creates.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.core.backups import Backup
from reprieve.core.records import OLD_FINALIZER
from reprieve.core.steps import RemoveFinalizer


def migrate(backups: Iterable[Backup]) -> tuple[RemoveFinalizer, ...]:
    """The patches that take the old finalizer off, by namespace and name (source: Ark v0.8's start)."""
    carriers = (backup for backup in backups if OLD_FINALIZER in backup.meta.finalizers)
    return tuple(_strip(backup) for backup in sorted(carriers, key=lambda backup: (backup.ref.namespace, backup.ref)))


def _strip(backup: Backup) -> RemoveFinalizer:
    others = [finalizer for finalizer in backup.meta.finalizers if finalizer != OLD_FINALIZER]
    return RemoveFinalizer(backup.ref, backup.meta.resource_version, others)
