"""One backup with 1,000 snapshots at a simulated 50 ms each: the default parallelism against one at a time."""

import gzip
import json
import threading
import time
from datetime import UTC, datetime

from attrs import evolve

from reprieve.adapters.local import LocalCluster, MemoryEvents, MemoryObjectStores, MemorySnapshotStores
from reprieve.core.ports import SnapshotInfo
from reprieve.core.reasons import Reason
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.configuration import BackupSettings, Configuration, DeletionSettings
from reprieve.entrypoints.controller.build import build_controllers
from reprieve.entrypoints.controller.runtime import run_once
from reprieve.entrypoints.world import World

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SNAPSHOTS = 1_000
LATENCY = 0.05
ATLEAST = 25.0


def objects() -> list[dict[str, object]]:
    """A backup with its locations and a request, as Kubernetes JSON."""

    def made(kind: str, name: str, **parts: object) -> dict[str, object]:
        metadata = {"name": name, "namespace": "velero", "uid": f"uid-{name}"}
        return {"apiVersion": "velero.io/v1", "kind": kind, "metadata": metadata, **parts}

    storage = {"provider": "aws", "objectStorage": {"bucket": "b"}}
    status = {"phase": "Completed", "startTimestamp": "2026-02-01T00:00:00Z", "volumeSnapshotsCompleted": SNAPSHOTS}
    return [
        made("BackupStorageLocation", "default", spec=storage, status={"phase": "Available"}),
        made("VolumeSnapshotLocation", "aws", spec={"provider": "aws"}),
        made("Backup", "big", spec={"storageLocation": "default", "volumeSnapshotLocations": ["aws"]}, status=status),
        made("DeleteBackupRequest", "big-1", spec={"backupName": "big"}),
    ]


def measure(parallelism: int) -> float:
    """Delete the backup; tells the seconds that it took."""
    ids = [f"snap-{number:04}" for number in range(SNAPSHOTS)]
    listed = [{"spec": {"location": "aws"}, "status": {"providerSnapshotID": each}} for each in ids]
    files = {
        "backups/big/velero-backup.json": b'{"status": {"startTimestamp": "2026-02-01T00:00:00Z"}}',
        "backups/big/big-volumesnapshots.json.gz": gzip.compress(json.dumps(listed).encode()),
    }
    stores = MemorySnapshotStores(
        [SnapshotInfo("aws", each, {"velero.io/backup": "big"}) for each in ids],
        before=lambda _: time.sleep(LATENCY),
        providers=["aws"],
    )
    settings = BackupSettings(deletion=evolve(DeletionSettings(), snapshot_parallelism=parallelism))
    cluster = LocalCluster.in_memory(objects(), now=lambda: NOW)
    world = World(Configuration(settings), cluster, MemoryObjectStores({"b": files}), stores, MemoryEvents())
    built = build_controllers(world, names=["deletion"], stop=threading.Event())
    began = time.perf_counter()
    report = run_once(built.reconcilers, now=NOW)
    took = time.perf_counter() - began
    built.close()
    assert [decision.reason for decision in report.decisions] == [Reason.COMPLETED]
    assert stores.snapshots == []
    return took


def main() -> None:
    """Measure both, print the ratio, fail below the promised one."""
    configure_logging("error")  # a line a step would be part of what is measured
    default = DeletionSettings().snapshot_parallelism
    parallel, serial = measure(default), measure(1)
    ratio = serial / parallel
    print(
        f"{SNAPSHOTS} snapshots at {LATENCY * 1000:.0f} ms: serial {serial:.1f} s, {default} at once {parallel:.2f} s"
    )
    print(f"ratio {ratio:.1f}, promised at least {ATLEAST:.0f}")
    assert ratio >= ATLEAST


if __name__ == "__main__":
    main()
