"""A bucket with 10,000 directories: what a first pass costs, and what every pass after it costs.

Counts are asserted, times are only shown: a settled location costs one listing and one list of records, and not one
file, however many backups there are.
"""

import json
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from reprieve.adapters.local import LocalCluster, MemoryEvents, MemoryObjectStores, MemorySnapshotStores
from reprieve.core.objects import ObjectKind, ObjectRef
from reprieve.core.ports import Listing
from reprieve.core.values import format_instant
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.configuration import Configuration
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DIRECTORIES = 10_000
READS_A_DIRECTORY = 3  # metadata, hold, pod volume backups
LOCATION = {
    "apiVersion": "velero.io/v1",
    "kind": "BackupStorageLocation",
    "metadata": {"name": "default", "namespace": "velero"},
    "spec": {"provider": "aws", "objectStorage": {"bucket": "b"}},
    "status": {"phase": "Available"},
}


class Counted(LocalCluster):
    """A cluster in memory that counts calls."""

    calls: Counter[str]

    def get(self, ref: ObjectRef, *, metadata_only: bool = False) -> Any:
        """Count, and read."""
        self.calls[f"get {ref.kind}"] += 1
        return super().get(ref, metadata_only=metadata_only)

    def list(
        self, kind: ObjectKind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """Count, and list."""
        self.calls[f"list {kind.kind}"] += 1
        return super().list(kind, namespace=namespace, selector=selector, metadata_only=metadata_only)

    def create(self, manifest: Any) -> Any:
        """Count, and create."""
        self.calls[f"create {manifest['kind']}"] += 1
        return super().create(manifest)

    def patch(self, ref: ObjectRef, patch: Any, *, resource_version: str = "") -> Any:
        """Count, and patch."""
        self.calls[f"patch {ref.kind}"] += 1
        return super().patch(ref, patch, resource_version=resource_version)


def directories() -> dict[str, bytes]:
    """The metadata files of the bucket."""
    status = {"phase": "Completed", "startTimestamp": "2026-02-01T00:00:00Z"}
    status |= {"expiration": format_instant(NOW + timedelta(days=300))}
    names = [f"backup-{number:05}" for number in range(DIRECTORIES)]
    return {
        f"backups/{name}/velero-backup.json": json.dumps({"metadata": {"name": name}, "status": status}).encode()
        for name in names
    }


def measure(cluster: Counted, stores: MemoryObjectStores, reads: Counter[str], *, at: datetime) -> float:
    """Run sync once; tells the seconds, and leaves the counts of this run behind."""
    world = World(Configuration(), cluster, stores, MemorySnapshotStores(), MemoryEvents())
    built = build_controllers(world, names=["sync"], stop=threading.Event())
    cluster.calls.clear()
    reads.clear()
    began = time.perf_counter()
    (reconciler,) = built.reconcilers
    run_once([reconciler], now=at)
    took = time.perf_counter() - began
    built.close()
    return took


def show(name: str, took: float, reads: Counter[str], calls: Counter[str]) -> None:
    """Print what a pass cost."""
    print(f"{name}: {took:.2f} s; bucket: {dict(reads)}; cluster: {dict(calls)}")


def main() -> None:
    """Take a first pass and a second one; fail when either asks for more than it has to."""
    configure_logging("error")
    reads: Counter[str] = Counter()
    stores = MemoryObjectStores({"b": directories()}, hook=lambda operation, _bucket, _key: reads.update([operation]))
    inner = LocalCluster.in_memory([LOCATION], now=lambda: NOW)
    cluster = Counted(inner.store)
    cluster.calls = Counter()

    first = measure(cluster, stores, reads, at=NOW)
    show(f"first pass, {DIRECTORIES} directories without a record", first, reads, cluster.calls)
    assert reads == Counter({"list": 1, "read": READS_A_DIRECTORY * DIRECTORIES})
    assert cluster.calls["create Backup"] == DIRECTORIES
    assert cluster.calls["list Backup"] == 1

    second = measure(cluster, stores, reads, at=NOW + timedelta(minutes=1))
    show("second pass, all of them have a record", second, reads, cluster.calls)
    assert reads == Counter({"list": 1}), "no file is downloaded for a record that is there"
    assert cluster.calls["list Backup"] == 1
    writes = {call: count for call, count in cluster.calls.items() if call.split()[0] in {"create", "patch"}}
    assert writes == {"patch BackupStorageLocation": 1}
    print(f"ratio {first / second:.0f}: calls of a settled pass do not grow with the number of backups")


if __name__ == "__main__":
    main()
