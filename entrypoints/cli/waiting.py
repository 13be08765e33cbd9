"""Waiting for objects to end, by watch: no polling loop."""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.adapters.k8s import velero
from reprieve.core.backups import RequestPhase
from reprieve.core.errors import ExpiredError, UnavailableError
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.ports import Bookmark, Cluster, Removed, Upserted


def wait_for_end(cluster: Cluster, kind: ObjectKind, refs: Sequence[ObjectRef]) -> None:
    """Return when each of the requests is processed or gone. Raises core errors when the cluster cannot be read."""
    waiting = {ref.uid for ref in refs}
    namespace = refs[0].namespace if refs else ""
    while waiting:
        listing = cluster.list(kind, namespace=namespace)
        waiting &= {each.meta.uid for each in listing.items if not _ended(Upserted(each))}
        if waiting:
            waiting = _follow(cluster, kind, namespace, listing.resource_version, waiting)


def _follow(cluster: Cluster, kind: ObjectKind, namespace: str, version: str, waiting: set[str]) -> set[str]:
    """Follow changes until nothing is waited for, or the watch ends; then the caller lists again."""
    left = set(waiting)
    try:
        for event in cluster.watch(kind, namespace=namespace, resource_version=version):
            left -= {event.resource.meta.uid} if not isinstance(event, Bookmark) and _ended(event) else set()
            if not left:
                break
    except (ExpiredError, UnavailableError):
        pass
    return left


def _ended(event: Upserted | Removed) -> bool:
    return isinstance(event, Removed) or velero.deletion_request(event.resource).phase is RequestPhase.PROCESSED
