"""Audit: what records and lists name, against what the providers have.

::

    a snapshot that a list names      its provider's listing has it not  ─> missing
    a tarball or list that must be    the bucket has it not              ─> missing
    a snapshot that carries the tag   no list names it, and no backup that could is unread or at work ─> orphaned
    whatever could not be read, and the snapshots that it could have explained ─> unknown

Guarantee: nothing is blamed on the strength of something that was not read; the audit reports and never deletes.
Not guaranteed: that an orphan is ours to delete. Another cluster that backs up into another bucket with the same cloud
account tags its snapshots in the same way, and its records are not in the locations that were read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, assert_never

from attrs import field, frozen

from reprieve.core.backups import (
    UNFINISHED,
    Inventory,
    ListAbsent,
    ListCorrupt,
    NativeSnapshot,
    SnapshotLocation,
    Unlisted,
    Unnamed,
)
from reprieve.core.marks import identity, tagged_backup
from reprieve.core.ports import SnapshotInfo
from reprieve.core.values import as_tuple, format_instant


@frozen
class SnapshotsListed:
    """Every snapshot of a snapshot location's provider, in its account and region."""

    location: SnapshotLocation
    snapshots: tuple[SnapshotInfo, ...] = field(default=(), converter=as_tuple)


@frozen
class SnapshotsUnreadable:
    """The provider of a snapshot location could not be asked."""

    location: SnapshotLocation
    why: str


@frozen
class AuditedBackup:
    """A backup that the cluster or a bucket knows, with what its lists name.

    ``location`` names its storage location. ``absent`` are the keys of files that must be there and are not.
    """

    name: str
    location: str
    phase: str = ""
    inventory: Inventory = field(factory=Inventory)
    absent: tuple[str, ...] = field(default=(), converter=as_tuple)


@frozen
class PlaceUnreadable:
    """A place where records could be (the cluster, a storage location, one backup's directory) that could not be read.

    ``backup`` is the one that it concerns, empty when it is all of the place.
    """

    what: str
    why: str
    backup: str = ""


@frozen
class AuditFacts:
    """Every backup of every location, every provider's listing, and whatever could not be read."""

    backups: tuple[AuditedBackup, ...] = field(default=(), converter=as_tuple)
    listings: tuple[SnapshotsListed | SnapshotsUnreadable, ...] = field(default=(), converter=as_tuple)
    unreadable: tuple[PlaceUnreadable, ...] = field(default=(), converter=as_tuple)


@frozen(order=True)
class MissingPart:
    """Something that a backup points at, or that belongs to it, is not there.

    For a file, ``provider`` is empty and ``id`` is its key; ``location`` is the snapshot or storage location's name.
    """

    backup: str
    provider: str
    id: str
    location: str = ""


@frozen
class OrphanedSnapshot:
    """A snapshot that carries a backup's tag and that no record anywhere names. ``age`` is by the provider's clock."""

    snapshot: SnapshotInfo
    backup: str
    age: timedelta | None = None


@frozen(order=True)
class UnknownPart:
    """Something that cannot be told, and why."""

    what: str
    why: str


@frozen
class AuditReport:
    """The findings, each list in a fixed order."""

    missing: tuple[MissingPart, ...] = field(default=(), converter=as_tuple)
    orphaned: tuple[OrphanedSnapshot, ...] = field(default=(), converter=as_tuple)
    unknown: tuple[UnknownPart, ...] = field(default=(), converter=as_tuple)

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.missing or self.orphaned or self.unknown)


def audit(facts: AuditFacts, *, now: datetime) -> AuditReport:
    """Compare every record's lists with every provider's snapshots. The order of the facts does not matter."""
    missing = {*_missing_snapshots(facts), *_missing_files(facts)}
    orphaned, unexplained = _tagged(facts, now)
    unknown = {*_unread(facts), *_unanswered(facts), *unexplained}
    return AuditReport(sorted(missing), orphaned, sorted(unknown))


# Missing


def _native(backup: AuditedBackup) -> list[NativeSnapshot]:
    """The snapshots of a backup that were taken: one recorded with an empty id never was."""
    return [item for item in backup.inventory.items if isinstance(item, NativeSnapshot) and item.id]


def _settled(facts: AuditFacts) -> list[AuditedBackup]:
    """The backups of which everything must be there: not one at work, nor one whose deletion has begun."""
    return [backup for backup in facts.backups if backup.phase != "Deleting" and backup.phase not in UNFINISHED]


def _missing_snapshots(facts: AuditFacts) -> Iterable[MissingPart]:
    listed = {each.location.name: each for each in facts.listings if isinstance(each, SnapshotsListed)}
    there = {name: {identity(s.provider, s.id) for s in each.snapshots} for name, each in listed.items()}
    for backup in _settled(facts):
        for snapshot in _native(backup):
            if snapshot.location in listed:
                provider = listed[snapshot.location].location.provider
                if identity(provider, snapshot.id) not in there[snapshot.location]:
                    yield MissingPart(backup.name, provider, snapshot.id, snapshot.location)


def _missing_files(facts: AuditFacts) -> Iterable[MissingPart]:
    for backup in _settled(facts):
        lists = [trouble.key for trouble in backup.inventory.troubles if isinstance(trouble, ListAbsent)]
        yield from (MissingPart(backup.name, "", key, backup.location) for key in {*backup.absent, *lists})


# Orphaned


def _tagged(facts: AuditFacts, now: datetime) -> tuple[list[OrphanedSnapshot], list[UnknownPart]]:
    """Sort the snapshots that carry a backup's tag and that no list names: orphans, and what may yet be explained."""
    named, by_name = _named(facts), _by_name(facts)
    orphaned: list[OrphanedSnapshot] = []
    unknown: list[UnknownPart] = []
    for snapshot in _all_snapshots(facts):
        backup = tagged_backup(snapshot)
        if not backup or identity(snapshot.provider, snapshot.id) in named or _is_at_work(by_name[backup]):
            continue
        doubts = _doubts(backup, by_name[backup], facts)
        if doubts:
            what = f"{snapshot.provider} snapshot {snapshot.id} of backup {backup}"
            unknown.append(UnknownPart(what, f"no list that was read names it, but {'; '.join(doubts)}"))
        else:
            orphaned.append(OrphanedSnapshot(snapshot, backup, now - snapshot.created if snapshot.created else None))
    return orphaned, unknown


def _all_snapshots(facts: AuditFacts) -> list[SnapshotInfo]:
    """Every snapshot once: two locations may look into one account and region."""
    listed = [s for each in facts.listings if isinstance(each, SnapshotsListed) for s in each.snapshots]
    found = {identity(s.provider, s.id): s for s in sorted(listed, key=repr)}
    return [found[key] for key in sorted(found)]


def _named(facts: AuditFacts) -> set[tuple[str, str]]:
    """Every snapshot that some list names, under every provider that its location may have."""
    providers = {each.location.name: each.location.provider for each in facts.listings}
    native = [snapshot for backup in facts.backups for snapshot in _native(backup)]
    every = {*providers.values()}
    return {
        identity(provider, snapshot.id)
        for snapshot in native
        for provider in ({providers[snapshot.location]} if snapshot.location in providers else every)
    }


def _by_name(facts: AuditFacts) -> defaultdict[str, list[AuditedBackup]]:
    found: defaultdict[str, list[AuditedBackup]] = defaultdict(list)
    for backup in facts.backups:
        found[backup.name].append(backup)
    return found


def _is_at_work(backups: Iterable[AuditedBackup]) -> bool:
    """Whether one of the backups of a name is at work: it writes its list at its end."""
    return any(each.phase in UNFINISHED for each in backups)


def _doubts(backup: str, known: Iterable[AuditedBackup], facts: AuditFacts) -> list[str]:
    """What was not read and could name a snapshot of that backup."""
    places = [p for p in facts.unreadable if p.backup in {"", backup}]
    troubles = [trouble for each in known for trouble in each.inventory.troubles]
    lists = [trouble for trouble in troubles if isinstance(trouble, ListCorrupt | ListAbsent)]
    return sorted({f"{place.what} could not be read" for place in places} | {_trouble(trouble) for trouble in lists})


def _trouble(trouble: ListCorrupt | ListAbsent) -> str:
    match trouble:
        case ListCorrupt(key, why):
            return f"{key} cannot be read: {why}"
        case ListAbsent(key):
            return f"{key} is not there"
        case _:
            assert_never(trouble)


# Unknown


def _unread(facts: AuditFacts) -> Iterable[UnknownPart]:
    yield from (UnknownPart(place.what, place.why) for place in facts.unreadable)
    for backup in facts.backups:
        corrupt = [trouble for trouble in backup.inventory.troubles if isinstance(trouble, ListCorrupt)]
        yield from (UnknownPart(f"{backup.location}: {t.key}", t.why) for t in corrupt)
    for backup in _settled(facts):
        unnamed = [trouble for trouble in backup.inventory.troubles if isinstance(trouble, Unnamed)]
        yield from (UnknownPart(f"{backup.location}: backup {backup.name}", t.why) for t in unnamed)
    unlisted = {t for backup in facts.backups for t in backup.inventory.troubles if isinstance(t, Unlisted)}
    yield from (UnknownPart(f"live objects: {t.what}", t.why) for t in unlisted)
    for listing in facts.listings:
        if isinstance(listing, SnapshotsUnreadable):
            location = listing.location
            yield UnknownPart(f"{location.provider} snapshots of location {location.name}", listing.why)


def _unanswered(facts: AuditFacts) -> Iterable[UnknownPart]:
    """Snapshots whose location no configured provider answers for."""
    known = {each.location.name for each in facts.listings}
    for backup in _settled(facts):
        for snapshot in _native(backup):
            if snapshot.location not in known:
                where = f"snapshot location {snapshot.location or '(none named)'}"
                why = f"{where} does not exist, or its provider is not configured"
                yield UnknownPart(f"snapshot {snapshot.id} of backup {backup.name}", why)


# For machines and for people


def report_to_json(report: AuditReport) -> dict[str, Any]:
    """Write a report as ``audit -o json`` prints it: ``missing``, ``orphaned``, ``unknown``."""
    return {
        "missing": [{"backup": part.backup, "provider": part.provider, "id": part.id} for part in report.missing],
        "orphaned": [_orphan_to_json(orphan) for orphan in report.orphaned],
        "unknown": [{"what": part.what, "why": part.why} for part in report.unknown],
    }


def _orphan_to_json(orphan: OrphanedSnapshot) -> dict[str, Any]:
    snapshot = orphan.snapshot
    shown: dict[str, Any] = {
        "provider": snapshot.provider,
        "id": snapshot.id,
        "tags": dict(snapshot.tags),
        "created": format_instant(snapshot.created) if snapshot.created else None,
    }
    return shown if snapshot.size is None else {**shown, "size": snapshot.size}
