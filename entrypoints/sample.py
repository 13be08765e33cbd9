"""The sample folder: a dozen backups in Velero's layout, on two providers, with requests that end each way.

Guarantee: it is made from nothing but the time, the same for the same time; each backup has a story that the demo can
tell. Not guaranteed: that the tarballs can be restored; deletion never opens them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from attrs import field, frozen

from reprieve.core.backups import DELETION, STATE, RequestState, write_state
from reprieve.core.holds import HOLD
from reprieve.core.values import format_instant

NAMESPACE = "velero"
EU, DR, ARCHIVE = "primary", "disaster-recovery", "archive"
BUCKETS = {EU: ("acme-backups-eu", ""), DR: ("acme-backups-dr", "cluster-1"), ARCHIVE: ("acme-archive", "")}
PROVIDERS = {"aws-eu": "aws", "gcp-dr": "gcp"}


@frozen
class Story:
    """One backup of the sample: what it has, who asked for its deletion, and what is to be seen.

    ``snapshots`` are ids by snapshot location; ``gone`` are recorded but not there; ``fails`` gives an id its trouble.
    ``asked`` is the name of the request, empty when nobody asked; ``deletion`` is what the Backup says of one that was
    begun.
    """

    backup: str
    tells: str
    asked: str = ""
    location: str = EU
    snapshots: Mapping[str, tuple[str, ...]] = field(factory=dict)
    gone: tuple[str, ...] = ()
    fails: Mapping[str, str] = field(factory=dict)
    phase: str = "Completed"
    hold: str = ""
    restore: str = ""
    lists: Mapping[str, bytes] = field(factory=dict)
    deletion: str = ""
    request_uid: str = ""
    record: bool = True


def stories(now: datetime) -> tuple[Story, ...]:
    """The stories of the sample, in the order in which they are told."""
    return (
        Story(
            "shop-monthly-09",
            "two disks, a finished restore and its files: everything goes, the record last",
            asked="shop-monthly-09-x7k2p",
            snapshots={"aws-eu": ("snap-09a", "snap-09b")},
            restore="Completed",
        ),
        Story(
            "shop-monthly-08",
            "somebody deleted a snapshot by hand: already gone is as good as deleted",
            asked="shop-monthly-08-m4qzd",
            snapshots={"aws-eu": ("snap-08a", "snap-08b")},
            gone=("snap-08b",),
        ),
        Story(
            "shop-two-clouds",
            "a snapshot on each provider, files in the other bucket",
            asked="shop-two-clouds-c2vvn",
            location=DR,
            snapshots={"aws-eu": ("snap-2ca",), "gcp-dr": ("dr-disk-2cb",)},
        ),
        Story(
            "shop-resumed",
            "the controller died half-way; the Backup says for which request it was at work, and it goes on",
            asked="shop-resumed-h8wlt",
            snapshots={"aws-eu": ("snap-rs1", "snap-rs2")},
            gone=("snap-rs1",),
            phase="Deleting",
            deletion=_deletion("shop-resumed", "shop-resumed-h8wlt", now),
        ),
        Story(
            "shop-golden-image",
            "a machine image still uses the snapshot: tried again later, the files stay meanwhile",
            asked="shop-golden-image-b5jrx",
            snapshots={"aws-eu": ("snap-gold",)},
            fails={"snap-gold": "InUse"},
        ),
        Story(
            "shop-no-rights",
            "the account may not delete the snapshot: it fails at once, and nothing is lost",
            asked="shop-no-rights-t9fgs",
            location=DR,
            snapshots={"gcp-dr": ("dr-disk-nr",)},
            fails={"dr-disk-nr": "Denied"},
        ),
        Story(
            "shop-legal",
            "the lawyers hold it",
            asked="shop-legal-q3nch",
            hold="case 4711",
            snapshots={"aws-eu": ("snap-legal",)},
        ),
        Story("shop-restoring", "a restore of it is running", asked="shop-restoring-d6mbv", restore="InProgress"),
        Story("shop-running", "it is still being made", asked="shop-running-k2pxw", phase="InProgress"),
        Story(
            "shop-2024",
            "its location is read-only",
            asked="shop-2024-z8rty",
            location=ARCHIVE,
            snapshots={"aws-eu": ("snap-24",)},
        ),
        Story(
            "shop-recreated",
            "the request is for an older backup of the same name",
            asked="shop-recreated-v1lku",
            snapshots={"aws-eu": ("snap-new",)},
            request_uid="6f1d2c3b-0000-4000-8000-00000000beef",
        ),
        Story(
            "shop-csi",
            "CSI snapshots, which no configured adapter can delete",
            asked="shop-csi-n7dws",
            lists={
                "csi-volumesnapshotcontents": _packed([_csi_content("snapcontent-1"), _csi_content("snapcontent-2")]),
                "volumesnapshots": _packed([]),
                "podvolumebackups": _packed([]),
            },
        ),
        Story(
            "shop-garbled",
            "its list of snapshots is cut off",
            asked="shop-garbled-y4fhe",
            lists={"volumesnapshots": _packed([{}])[:11]},
        ),
        Story("shop-mistyped", "a name that nobody has", asked="shop-mistyped-p9sja", record=False),
        Story("shop-nightly", "nobody asked: nothing happens to it", snapshots={"aws-eu": ("snap-n1", "snap-n2")}),
    )


def _deletion(backup: str, asked: str, now: datetime) -> str:
    """The note of a deletion that was begun three minutes ago."""
    bucket, prefix = BUCKETS[EU]
    worker = uid(f"DeleteBackupRequest/{asked}")
    began = now - timedelta(minutes=3)
    return write_state(
        RequestState(
            uid(backup),
            request=worker,
            location=EU,
            bucket=bucket,
            prefix=prefix,
            previous_phase="Completed",
            first_attempt=began,
        )
    )


def _csi_content(name: str) -> dict[str, Any]:
    content = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": name}}
    return {**content, "spec": {"driver": "ebs.csi.aws.com", "deletionPolicy": "Retain"}}


def uid(name: str) -> str:
    """The UID of a sample object, the same in every sample."""
    return str(uuid5(NAMESPACE_URL, f"sample:{name}"))


def write_sample(directory: Path, *, now: datetime) -> tuple[Story, ...]:
    """Write the sample into an empty folder; tells its stories."""
    told = stories(now)
    _write_yaml(directory / "cluster" / "locations.yaml", [*_storage_locations(), *_snapshot_locations()])
    for number, story in enumerate(told):
        _write_story(directory, story, now - timedelta(days=30 + number))
    _write_yaml(directory / "cluster" / "old-request.yaml", [_old_request(now)])
    _write_yaml(directory / "snapshots.yaml", [_snapshots(told, now)])
    return told


def _storage_locations() -> Iterable[dict[str, Any]]:
    for name, (bucket, prefix) in BUCKETS.items():
        storage = {"bucket": bucket, **({"prefix": prefix} if prefix else {})}
        spec: dict[str, Any] = {"provider": "gcp" if name == DR else "aws", "objectStorage": storage}
        spec |= {"default": True} if name == EU else {}
        spec |= {"accessMode": "ReadOnly"} if name == ARCHIVE else {}
        yield _object("BackupStorageLocation", name, spec=spec, status={"phase": "Available"})


def _snapshot_locations() -> Iterable[dict[str, Any]]:
    config = {"aws-eu": {"region": "eu-west-1"}, "gcp-dr": {"project": "acme-dr"}}
    for name, provider in PROVIDERS.items():
        yield _object("VolumeSnapshotLocation", name, spec={"provider": provider, "config": config[name]})


def _object(
    kind: str, name: str, *, at: datetime | None = None, metadata: Mapping[str, Any] | None = None, **parts: Any
) -> dict[str, Any]:
    head: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid(f"{kind}/{name}" if kind != "Backup" else name),
    }
    head |= {"creationTimestamp": format_instant(at)} if at else {}
    return {"apiVersion": "velero.io/v1", "kind": kind, "metadata": head | dict(metadata or {}), **parts}


def _write_story(directory: Path, story: Story, made: datetime) -> None:
    record = _record(story, made)
    objects = [record] if story.record else []
    objects += [_request(story, made)] if story.asked else []
    objects += [_restore(story, made)] if story.restore else []
    _write_yaml(directory / "cluster" / f"{story.backup}.yaml", objects)
    if story.record:
        _write_files(directory, story, record)


def _record(story: Story, made: datetime) -> dict[str, Any]:
    count = sum(len(ids) for ids in story.snapshots.values())
    csi = 2 if "csi-volumesnapshotcontents" in story.lists else 0
    garbled = 1 if "volumesnapshots" in story.lists and not csi else 0
    status = {
        "phase": story.phase,
        "startTimestamp": format_instant(made),
        "completionTimestamp": format_instant(made + timedelta(minutes=4)),
        "expiration": format_instant(made + timedelta(days=365)),
        "volumeSnapshotsCompleted": count + garbled,
        "csiVolumeSnapshotsCompleted": csi,
    }
    notes = {HOLD: story.hold, DELETION: story.deletion}
    annotations = {"annotations": {key: note for key, note in notes.items() if note}}
    labels = {"labels": {"velero.io/storage-location": story.location}}
    spec = {"storageLocation": story.location, "volumeSnapshotLocations": sorted(story.snapshots)}
    return _object("Backup", story.backup, at=made, metadata={**labels, **annotations}, spec=spec, status=status)


def _request(story: Story, made: datetime) -> dict[str, Any]:
    labels = {"velero.io/backup-name": story.backup, "velero.io/backup-uid": story.request_uid or uid(story.backup)}
    labels = labels if story.record else {}
    metadata = {"labels": labels, **({"annotations": {STATE: story.deletion}} if story.deletion else {})}
    asked = made + timedelta(days=10)
    status = {"status": {"phase": "InProgress"}} if story.deletion else {}
    return _object(
        "DeleteBackupRequest", story.asked, at=asked, metadata=metadata, spec={"backupName": story.backup}, **status
    )


def _restore(story: Story, made: datetime) -> dict[str, Any]:
    name = f"{story.backup}-back"
    status = {"phase": story.restore}
    return _object("Restore", name, at=made + timedelta(days=1), spec={"backupName": story.backup}, status=status)


def _old_request(now: datetime) -> dict[str, Any]:
    asked = now - timedelta(days=3)
    status = {"phase": "Processed", "errors": ["backup not found"]}
    return _object("DeleteBackupRequest", "long-ago-w2x9c", at=asked, spec={"backupName": "long-ago"}, status=status)


def _write_files(directory: Path, story: Story, record: Mapping[str, Any]) -> None:
    bucket, prefix = BUCKETS[story.location]
    top = directory / "buckets" / bucket / prefix
    files = top / "backups" / story.backup
    files.mkdir(parents=True, exist_ok=True)
    (files / "velero-backup.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    (files / f"{story.backup}.tar.gz").write_bytes(
        gzip.compress(b"the backed-up objects of " + story.backup.encode(), mtime=0)
    )
    (files / f"{story.backup}-logs.gz").write_bytes(gzip.compress(b"backup completed", mtime=0))
    if story.snapshots:
        (files / f"{story.backup}-volumesnapshots.json.gz").write_bytes(_packed(_snapshot_list(story)))
    for name, content in story.lists.items():
        (files / f"{story.backup}-{name}.json.gz").write_bytes(content)
    if story.restore == "Completed":
        restore = top / "restores" / f"{story.backup}-back"
        restore.mkdir(parents=True, exist_ok=True)
        (restore / f"restore-{story.backup}-back-results.gz").write_bytes(gzip.compress(b"{}", mtime=0))


def _snapshot_list(story: Story) -> list[dict[str, Any]]:
    zones = {"aws-eu": "eu-west-1a", "gcp-dr": "europe-west1-b"}
    return [
        {
            "spec": {
                "backupName": story.backup,
                "backupUID": uid(story.backup),
                "location": location,
                "persistentVolumeName": f"pv-{snapshot}",
                "volumeAZ": zones[location],
            },
            "status": {"providerSnapshotID": snapshot, "phase": "Completed"},
        }
        for location, ids in sorted(story.snapshots.items())
        for snapshot in ids
    ]


def _packed(entries: list[Any]) -> bytes:
    return gzip.compress(json.dumps(entries).encode(), mtime=0)


def _snapshots(told: Iterable[Story], now: datetime) -> list[dict[str, Any]]:
    return [
        {
            "provider": PROVIDERS[location],
            "id": snapshot,
            "tags": {"velero.io/backup": story.backup, "velero.io/pv": f"pv-{snapshot}"},
            "created": format_instant(now - timedelta(days=30)),
            **({"fails": story.fails[snapshot]} if snapshot in story.fails else {}),
        }
        for story in told
        for location, ids in sorted(story.snapshots.items())
        for snapshot in ids
        if snapshot not in story.gone
    ]


def _write_yaml(path: Path, documents: list[Any]) -> None:
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")
