"""Backups and what they point at, as core values: records, locations, restores, deletion requests, and the inventory.

An ``Inventory`` is all the data outside the record: native snapshots, CSI snapshot contents, repository snapshots,
data-mover items. Each item names its *handler* (``aws``, ``CSI``, ``kopia`` …); what no configured adapter handles is
refused as a whole, since half a deletion orphans the other half. A new kind of data needs one step, one port and one
adapter.

Guarantee: reading is total, whatever people wrote by hand arrives as values. Not guaranteed: that a record tells the
truth.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from attrs import field, frozen

from reprieve.core.holds import HOLD_FILE
from reprieve.core.objects import ObjectMeta, ObjectRef, label_safe, mapping, text
from reprieve.core.values import FrozenMap, as_tuple, format_instant, parse_instant, string_map

BACKUP_NAME = "velero.io/backup-name"
BACKUP_UID = "velero.io/backup-uid"
STORAGE_LOCATION = "velero.io/storage-location"
SCHEDULE_NAME = "velero.io/schedule-name"
STATE = "reprieve.dev/state"
DELETION = "reprieve.dev/deletion"
EVEN_IN_PROGRESS = "reprieve.dev/even-in-progress"
GC_FAILURE = "velero.io/gc-failure"
SYNCED_AT = "reprieve.dev/synced-at"
SYNC_INCOMPLETE = "reprieve.dev/sync-incomplete"
HOLD_MIRRORED = "reprieve.dev/hold-mirrored"
METADATA_MISSING = "reprieve.dev/metadata-missing"
RETENTION_FAILURES = "reprieve.dev/retention-failures"
METADATA_FILE = "velero-backup.json"

UNFINISHED = frozenset(
    {
        "",
        "New",
        "Queued",
        "ReadyToStart",
        "InProgress",
        "WaitingForPluginOperations",
        "WaitingForPluginOperationsPartiallyFailed",
        "Finalizing",
        "FinalizingPartiallyFailed",
    }
)
"""Phases of a backup that is still at work (source: Velero's phase enum; ``FailedValidation``, ``Failed`` are ends)."""

ENDED = frozenset({"Completed", "PartiallyFailed", "Failed", "FailedValidation"})
"""Phases of a backup that has ended. Velero leaves a backup in one of them alone; in ``New`` it would run it again."""

DELETING = "Deleting"
"""The phase of a backup while its deletion is under way, and after one that took something away and failed."""

RESTORE_UNFINISHED = frozenset(
    {
        "",
        "New",
        "InProgress",
        "WaitingForPluginOperations",
        "WaitingForPluginOperationsPartiallyFailed",
        "Finalizing",
        "FinalizingPartiallyFailed",
    }
)
"""Phases of a restore that is still at work."""


class RequestPhase(enum.StrEnum):
    """The phases of a deletion request that Velero's CRD allows. Anything else a hand wrote counts as ``New``."""

    NEW = "New"
    IN_PROGRESS = "InProgress"
    PROCESSED = "Processed"


@frozen
class Backup:
    """A backup record. ``ref`` is its object; ``phase`` is Velero's word, empty where nobody has looked at it."""

    ref: ObjectRef
    meta: ObjectMeta
    phase: str = ""
    storage_location: str = ""
    snapshot_locations: tuple[str, ...] = field(default=(), converter=as_tuple)
    started: datetime | None = None
    completed: datetime | None = None
    expiration: datetime | None = None
    snapshots_completed: int = 0
    snapshots_attempted: int = 0
    csi_snapshots_completed: int = 0
    csi_snapshots_attempted: int = 0
    operations_attempted: int = 0
    moves_data: bool = False
    legacy_snapshots: tuple[NativeSnapshot, ...] = field(default=(), converter=as_tuple)

    @property
    def name(self) -> str:
        """The record's name."""
        return self.meta.name

    @property
    def native_claim(self) -> int:
        """How many native snapshots may exist: Velero counts as completed only what it saw to its end."""
        return max(self.snapshots_completed, self.snapshots_attempted)

    @property
    def csi_claim(self) -> int:
        """How many CSI snapshots may exist; one whose operation failed or timed out is attempted, and may be there."""
        return max(self.csi_snapshots_completed, self.csi_snapshots_attempted)

    @property
    def schedule(self) -> str:
        """The schedule that made it, empty for a plain backup."""
        return self.meta.labels.get(SCHEDULE_NAME, "")


@frozen
class SecretKey:
    """A key of a Secret that holds a cloud credential."""

    name: str
    key: str


@frozen
class NoSecret:
    """No Secret is named: the SDK's default chain applies."""


@frozen
class StorageLocation:
    """Where backups' files live. ``prefix`` has no slash at either end; ``available``: Velero's phase ``Available``."""

    name: str
    provider: str = ""
    bucket: str = ""
    prefix: str = ""
    config: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    credential: SecretKey | NoSecret = field(factory=NoSecret)
    read_only: bool = False
    available: bool = True
    default: bool = False
    sync_period: timedelta | None = None
    last_synced: datetime | None = None
    ca_cert: str = ""
    meta: ObjectMeta = field(factory=lambda: ObjectMeta(""))

    @property
    def place(self) -> str:
        """Bucket and prefix, for messages."""
        return f"{self.bucket}/{self.prefix}" if self.prefix else self.bucket


@frozen
class SnapshotLocation:
    """Where a cloud's snapshots live, and who may delete them."""

    name: str
    provider: str = ""
    config: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    credential: SecretKey | NoSecret = field(factory=NoSecret)

    @property
    def region(self) -> str:
        """The region that the configuration names, empty when the SDK's default applies."""
        return self.config.get("region", "")


@frozen
class Restore:
    """A restore that was made from a backup."""

    ref: ObjectRef
    backup: str
    phase: str = ""


@frozen
class NativeSnapshot:
    """A disk snapshot in a cloud: its id, the snapshot location's name, the zone of its volume, the volume."""

    id: str
    location: str
    zone: str = ""
    volume: str = ""


@frozen
class CsiContent:
    """A CSI snapshot: its content's name (``namespace/name`` of the snapshot where that is all), driver and handle."""

    name: str
    driver: str = ""
    handle: str = ""


@frozen
class RepositorySnapshot:
    """A file-level backup of a volume in a kopia or restic repository."""

    id: str
    uploader: str


@frozen
class DataMoverItem:
    """A volume that a data mover uploaded."""

    name: str


Item = NativeSnapshot | CsiContent | RepositorySnapshot | DataMoverItem


@frozen
class ListCorrupt:
    """A list in the bucket that cannot be read: what it names cannot be known."""

    key: str
    why: str


@frozen
class ListAbsent:
    """A list that is not in the bucket though it may have to be.

    ``beside`` is the key of one that is there, and without which Velero does not write it; empty where none is.
    """

    key: str
    beside: str = ""


@frozen
class Unnamed:
    """The record says of more data than anything names. ``why`` is a sentence with the numbers."""

    why: str


@frozen
class Unlisted:
    """Objects of the cluster that may name data, and that could not be listed."""

    what: str
    why: str


Trouble = ListCorrupt | ListAbsent | Unnamed | Unlisted
"""Why it cannot be told what a backup points at."""


@frozen
class Inventory:
    """All that a backup points at outside its own record and directory, and what keeps that from being told."""

    items: tuple[Item, ...] = field(default=(), converter=as_tuple)
    troubles: tuple[Trouble, ...] = field(default=(), converter=as_tuple)


@frozen
class MetadataPresent:
    """The metadata file is there; ``started`` is its ``status.startTimestamp``."""

    started: datetime | None


@frozen
class MetadataAbsent:
    """The directory has no metadata file (or there is no directory at all)."""


@frozen
class MetadataCorrupt:
    """The metadata file is there but cannot be read."""

    why: str


Metadata = MetadataPresent | MetadataAbsent | MetadataCorrupt


@frozen
class Directory:
    """What the bucket says about a backup: its metadata and the hold that is mirrored there (as annotations).

    ``hold_sha256`` is the hex digest of the hold file's bytes, empty when there is none. ``hold_of`` is the UID of the
    record that it was written for, empty when nobody says.
    """

    metadata: Metadata = field(factory=MetadataAbsent)
    hold: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)
    hold_sha256: str = ""
    hold_of: str = ""


@frozen
class DirectoryUnreadable:
    """The bucket could not be asked, for that reason."""

    why: str


@frozen
class RequestState:
    """How far a deletion has come. Every key but ``uid`` (the Backup's) may be absent.

    On the Backup, as ``reprieve.dev/deletion``, it decides; on a request, as ``reprieve.dev/state``, it is a report, as
    whoever may create requests may write there. ``request`` is the UID of the request that works; a request that waits
    carries the UID of the one that it ends with.
    """

    uid: str = ""
    request: str | None = None
    location: str | None = None
    bucket: str | None = None
    prefix: str | None = None
    previous_phase: str | None = None
    first_attempt: datetime | None = None
    attempts: int = 0
    next_attempt: datetime | None = None
    finished_at: datetime | None = None
    stage: str | None = None
    reason: str | None = None


@frozen
class DeletionRequest:
    """A ``DeleteBackupRequest``. ``backup`` is what ``spec.backupName`` says; where that is no text, ``name_fault``."""

    ref: ObjectRef
    meta: ObjectMeta
    backup: str = ""
    name_fault: str = ""
    phase: RequestPhase = RequestPhase.NEW
    errors: tuple[str, ...] = field(default=(), converter=as_tuple)
    state: RequestState = field(factory=RequestState)

    @property
    def bound_uid(self) -> str:
        """The UID of the backup that it is bound to, empty while it is bound to none."""
        return self.meta.labels.get(BACKUP_UID, "") or self.state.uid


@frozen
class NewRequest:
    """A deletion request to create: what the command and retention send. ``generate_name`` is the head of its name."""

    generate_name: str
    namespace: str
    backup: str
    labels: FrozenMap[str, str] = field(converter=string_map)
    annotations: FrozenMap[str, str] = field(factory=FrozenMap, converter=string_map)


def request_for(backup: Backup, *, even_in_progress: bool = False) -> NewRequest:
    """Ask for the deletion of exactly this backup: bound to its name and its UID by both labels."""
    return NewRequest(
        generate_name=f"{backup.name}-",
        namespace=backup.meta.namespace,
        backup=backup.name,
        labels={BACKUP_NAME: label_safe(backup.name), BACKUP_UID: backup.meta.uid},
        annotations={EVEN_IN_PROGRESS: "true"} if even_in_progress else {},
    )


_STATE_KEYS = {
    "uid": "uid",
    "request": "request",
    "location": "location",
    "bucket": "bucket",
    "prefix": "prefix",
    "previousPhase": "previous_phase",
    "firstAttempt": "first_attempt",
    "attempts": "attempts",
    "nextAttempt": "next_attempt",
    "finishedAt": "finished_at",
    "stage": "stage",
    "reason": "reason",
}


def read_state(annotations: Mapping[str, str], key: str = STATE) -> RequestState:
    """Read a state annotation. Anything malformed in it counts as absent, since hands can write it."""
    try:
        document = mapping(json.loads(annotations.get(key, "{}")))
    except (ValueError, RecursionError):
        return RequestState()
    return RequestState(
        uid=text(document.get("uid")),
        request=_text_or_none(document, "request"),
        location=_text_or_none(document, "location"),
        bucket=_text_or_none(document, "bucket"),
        prefix=_text_or_none(document, "prefix"),
        previous_phase=_text_or_none(document, "previousPhase"),
        first_attempt=parse_instant(document.get("firstAttempt")),
        attempts=_count(document.get("attempts")),
        next_attempt=parse_instant(document.get("nextAttempt")),
        finished_at=parse_instant(document.get("finishedAt")),
        stage=_text_or_none(document, "stage"),
        reason=_text_or_none(document, "reason"),
    )


def _text_or_none(document: Mapping[str, Any], key: str) -> str | None:
    found = document.get(key)
    return found if isinstance(found, str) else None


def _count(raw: object) -> int:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and raw > 0 else 0


def write_state(state: RequestState) -> str:
    """Write a state annotation: compact JSON, sorted keys, absent parts left out: equal states give equal bytes."""
    values = {key: getattr(state, attribute) for key, attribute in _STATE_KEYS.items()}
    present = {key: value for key, value in values.items() if value is not None and value != 0}
    shown = {key: format_instant(v) if isinstance(v, datetime) else v for key, v in present.items()}
    return json.dumps({"uid": state.uid, **shown}, sort_keys=True, separators=(",", ":"))


def plain_provider(provider: str) -> str:
    """Drop the prefix that Velero puts before its own providers: ``velero.io/aws`` and ``aws`` are one."""
    return text(provider).removeprefix("velero.io/")


def backup_directory(name: str) -> str:
    """The prefix of a backup's files, with its closing slash, below the location's own prefix."""
    return f"backups/{name}/"


def restore_directory(name: str) -> str:
    """The prefix of a restore's files, with its closing slash, below the location's own prefix."""
    return f"restores/{name}/"


@frozen
class Layout:
    """How backups lie in a bucket: the prefix of their directories, of restores' files, and the metadata file's name.

    ``restores`` is empty where restores' files lie in the directory of their backup. ``located`` says whether a record
    names its storage location. The default is Velero's layout.
    """

    backups: str = "backups/"
    restores: str = "restores/"
    metadata_file: str = METADATA_FILE
    located: bool = True

    def directory(self, backup: str) -> str:
        """The prefix of a backup's files, with its closing slash, below the location's own prefix."""
        return f"{self.backups}{backup}/"

    def metadata_key(self, backup: str) -> str:
        """The key of a backup's metadata file: its existence is that of the backup."""
        return self.directory(backup) + self.metadata_file

    def hold_key(self, backup: str) -> str:
        """The key of the file that mirrors a backup's hold."""
        return self.directory(backup) + HOLD_FILE

    def restore_prefix(self, backup: str, restore: str) -> str:
        """The prefix of a restore's files. In a backup's directory they begin with the restore's name."""
        return f"{self.restores}{restore}/" if self.restores else f"{self.directory(backup)}restore-{restore}-"
