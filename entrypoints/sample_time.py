"""The part of the sample that is about time: backups that expire, records that come and go, a snapshot that was lost.

Guarantee: it is added to a sample folder that is there, made from nothing but the time; each has a story that the demo
can tell. Not guaranteed: that the tarballs can be restored.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from attrs import frozen

from reprieve.core.values import format_instant
from reprieve.entrypoints.sample import BUCKETS, EU, NAMESPACE, uid

SCHEDULE = "shop-weekly"
LOST = "snap-lost"
AGE = timedelta(days=90)


@frozen
class Age:
    """One backup of this part: what is there of it, and what is to be seen."""

    backup: str
    tells: str
    schedule: str = ""
    snapshot: str = ""
    expired: bool = False
    record: bool = True
    files: bool = True


AGES = (
    Age("shop-weekly-01", "expired yesterday: it is asked for, and goes", SCHEDULE, "snap-w1", expired=True),
    Age("shop-weekly-02", "expired too, but nothing newer is there to fall back on", SCHEDULE, "snap-w2", expired=True),
    Age("shop-returned", "it lies in the bucket, its record was lost: it comes back", record=False),
    Age("shop-emptied", "its files are gone, and it points at nothing else", files=False),
    Age("shop-last-link", "its files are gone, but a snapshot is left", snapshot="snap-ll", files=False),
)


def add_time_sample(directory: Path, *, now: datetime) -> tuple[Age, ...]:
    """Add this part to a sample folder; tells its stories."""
    import yaml

    records = {age.backup: _record(age, now - AGE + timedelta(days=n), now) for n, age in enumerate(AGES)}
    kept = [records[age.backup] for age in AGES if age.record]
    (directory / "cluster" / "time.yaml").write_text(yaml.safe_dump_all(kept, sort_keys=False), encoding="utf-8")
    for age in AGES:
        if age.files:
            _write_files(directory / "buckets" / BUCKETS[EU][0], age, records[age.backup])
    _add_snapshots(directory / "snapshots.yaml", now)
    return AGES


def _record(age: Age, made: datetime, now: datetime) -> dict[str, Any]:
    labels = {"velero.io/storage-location": EU} | ({"velero.io/schedule-name": age.schedule} if age.schedule else {})
    metadata = {"name": age.backup, "namespace": NAMESPACE, "uid": uid(age.backup)}
    status = {
        "phase": "Completed",
        "startTimestamp": format_instant(made),
        "completionTimestamp": format_instant(made + timedelta(minutes=4)),
        "expiration": format_instant(now + (timedelta(days=-1) if age.expired else timedelta(days=90))),
        "volumeSnapshotsCompleted": 1 if age.snapshot else 0,
    }
    return {
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": {**metadata, "creationTimestamp": format_instant(made), "labels": labels},
        "spec": {"storageLocation": EU, "volumeSnapshotLocations": ["aws-eu"] if age.snapshot else []},
        "status": status,
    }


def _write_files(bucket: Path, age: Age, record: dict[str, Any]) -> None:
    folder = bucket / "backups" / age.backup
    folder.mkdir(parents=True)
    (folder / "velero-backup.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    (folder / f"{age.backup}.tar.gz").write_bytes(gzip.compress(b"the backed-up objects", mtime=0))
    if age.snapshot:
        spec = {"location": "aws-eu", "volumeAZ": "eu-west-1a", "persistentVolumeName": f"pv-{age.snapshot}"}
        listed = [{"spec": spec, "status": {"providerSnapshotID": age.snapshot, "phase": "Completed"}}]
        content = gzip.compress(json.dumps(listed).encode(), mtime=0)
        (folder / f"{age.backup}-volumesnapshots.json.gz").write_bytes(content)


def _add_snapshots(path: Path, now: datetime) -> None:
    import yaml

    there = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    path.write_text(yaml.safe_dump([*there, *_snapshots(now)], sort_keys=False), encoding="utf-8")


def _snapshots(now: datetime) -> Iterable[dict[str, Any]]:
    named = [(age.snapshot, age.backup) for age in AGES if age.snapshot]
    for snapshot, backup in (*named, (LOST, "shop-2023")):
        tags = {"velero.io/backup": backup, "velero.io/pv": f"pv-{snapshot}"}
        yield {"provider": "aws", "id": snapshot, "tags": tags, "created": format_instant(now - AGE)}
