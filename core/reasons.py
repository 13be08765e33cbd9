"""The verdicts, and the reason code of every decision, in one place, so that a code means the same on every path."""

from __future__ import annotations

import enum


class Verdict(enum.StrEnum):
    """What is to happen to a thing."""

    KEEP = "KEEP"
    ORPHAN = "ORPHAN"
    DELETE = "DELETE"


class Reason(enum.StrEnum):
    """Why. Stable codes for machines; the sentence beside each carries the numbers."""

    # deletion requests: admitted
    ADMITTED = "Admitted"
    RESUMED = "Resumed"
    COMPLETED = "Completed"
    EXPIRED = "Expired"
    # deletion requests: refused
    NAME_MISSING = "NameMissing"
    NAME_INVALID = "NameInvalid"
    BACKUP_NOT_FOUND = "BackupNotFound"
    BACKUP_RECREATED = "BackupRecreated"
    BACKUP_IN_PROGRESS = "BackupInProgress"
    LOCATION_NOT_FOUND = "LocationNotFound"
    LOCATION_READ_ONLY = "LocationReadOnly"
    LOCATION_MOVED = "LocationMoved"
    SNAPSHOT_LOCATION_NOT_FOUND = "SnapshotLocationNotFound"
    NO_ADAPTER = "NoAdapter"
    LIST_CORRUPT = "ListCorrupt"
    LIST_MISSING = "ListMissing"
    KEY_INVALID = "KeyInvalid"
    METADATA_CORRUPT = "MetadataCorrupt"
    RECORD_VANISHED = "RecordVanished"
    NOT_THE_OWNER = "NotTheOwner"
    # deletion requests: deferred, waiting, failed
    LOCATION_UNAVAILABLE = "LocationUnavailable"
    HELD = "Held"
    RESTORE_RUNNING = "RestoreRunning"
    LOCKED = "Locked"
    PENDING = "Pending"
    RETRYING = "Retrying"
    QUEUED = "Queued"
    FAILED = "Failed"
    PROCESSED = "Processed"
    UNREADABLE = "Unreadable"
    # protection: owners and their dependents
    PROTECTING = "Protecting"
    NOT_ASKED = "NotAsked"
    MARKER_FOREIGN = "MarkerForeign"
    ASKED = "Asked"
    OPTED_IN = "OptedIn"
    ORPHAN_ON_REQUEST = "OrphanOnRequest"
    ORPHAN_PROPAGATION = "OrphanPropagation"
    OTHER_OWNER = "OtherOwner"
    TOO_MANY_HELD = "TooManyHeld"
    OWNER_LOST = "OwnerLost"
    OWNER_ABSENT = "OwnerAbsent"
    OWNER_UNKNOWN = "OwnerUnknown"
    OWNER_TERMINATING = "OwnerTerminating"
    ABSENT = "Absent"
    FOREIGN = "Foreign"
    DELETING = "Deleting"
    LOST = "Lost"
    RECREATED = "Recreated"
    SETTLED = "Settled"
    UNKNOWN = "Unknown"
    # pruning: owners that left the desired set
    DESIRED = "Desired"
    MANIFEST_GONE = "ManifestGone"
    MANIFEST_BACK = "ManifestBack"
    MARKED = "Marked"
    OBSERVATION_INCOMPLETE = "ObservationIncomplete"
    BRAKE = "Brake"
    # retention: why an expired backup gets no request now (and the reasons of refusals and deferrals above)
    NEVER_EXPIRES = "NeverExpires"
    NOT_DUE = "NotDue"
    REQUEST_PENDING = "RequestPending"
    LAST_GOOD = "LastGood"
    GRACE_AFTER_SYNC = "GraceAfterSync"
    PAUSED = "Paused"
    NOT_EXAMINED = "NotExamined"
    MAX_REQUESTS = "MaxRequests"
    # sync: records that follow the bucket
    IN_BUCKET = "InBucket"
    RECORDED = "Recorded"
    NO_METADATA = "NoMetadata"
    NAME_MISMATCH = "NameMismatch"
    OTHER_LOCATION = "OtherLocation"
    SYNC_INCOMPLETE = "SyncIncomplete"
    NOT_IN_BUCKET = "NotInBucket"
    METADATA_MISSING = "MetadataMissing"
    PHASE_NOT_DROPPED = "PhaseNotDropped"
    LISTING_EMPTY = "ListingEmpty"
    LISTED_AFTER_ALL = "ListedAfterAll"
    HOLD_FILE_FOREIGN = "HoldFileForeign"
    # migration
    OLD_FINALIZER = "OldFinalizer"
