"""Retention: which expired backups get a deletion request, and why the others do not.

::

    terminating? never expires? not due? held? running? request pending? location? last good? just synced? paused?
        └── the first that holds: Keep(reason, until)           none holds: a candidate, oldest expiry first
    candidate ── beyond maxRequests, or a request would be refused or deferred ──> Keep(reason, until)
        └── admitted ──> FileRequest

A candidate's admission costs a look into its bucket, so the caller brings it along: ask ``candidates`` first, then
``admit`` about each one's ``draft_request``, oldest expiry first, until ``max_requests`` are admitted, then ``retain``.

Guarantee: nothing that is held, running, pending, the last of its schedule, in its pause, or of unknown admission gets
a request; after a pass that was applied, the next one over the same world writes nothing. Not guaranteed: that a
request which is filed succeeds; admission asks everything again, live.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import assert_never

from attrs import field, frozen

from reprieve.core.backups import (
    GC_FAILURE,
    RETENTION_FAILURES,
    SYNCED_AT,
    UNFINISHED,
    Backup,
    DeletionRequest,
    NewRequest,
    RequestPhase,
    StorageLocation,
    request_for,
)
from reprieve.core.durations import format_duration
from reprieve.core.holds import Held, hold_of
from reprieve.core.objects import ObjectMeta, ObjectRef, mapping
from reprieve.core.reasons import Reason
from reprieve.core.requests import Admission, Admitted, Deferred, Refused, bind, ended_at
from reprieve.core.steps import ChangeMetadata, CreateRequest, Step
from reprieve.core.values import as_tuple, format_instant, joined, later, parse_instant

NOT_FOUND, CANNOT_GET, UNAVAILABLE, READ_ONLY = "BSLNotFound", "BSLCannotGet", "BSLUnavailable", "BSLReadOnly"
GC_FAILURES = frozenset({NOT_FOUND, CANNOT_GET, UNAVAILABLE, READ_ONLY})
"""The values of the label ``velero.io/gc-failure`` (source: Velero's garbage-collection controller)."""

PAUSE_FIRST = timedelta(hours=1)
PAUSE_LAST = timedelta(hours=24)


@frozen
class RetentionRules:
    """The configuration of retention. ``keep_last`` 0 and ``grace_after_sync`` 0 switch the two off."""

    keep_last: int = 1
    grace_after_sync: timedelta = timedelta(hours=24)
    max_requests: int = 50


@frozen
class LocationsKnown:
    """All storage locations of the namespace."""

    locations: tuple[StorageLocation, ...] = field(default=(), converter=as_tuple)


@frozen
class LocationsUnreadable:
    """The storage locations could not be listed."""

    why: str


@frozen
class Examined:
    """What admission says to a request for that backup."""

    ref: ObjectRef
    admission: Admission


@frozen
class RetentionFacts:
    """All that a pass rests on: every backup, request and location of one namespace, and what was examined so far.

    ``filed`` is how many requests were filed at this very instant already: where the clock stands still, several looks
    are one pass.
    """

    backups: tuple[Backup, ...] = field(default=(), converter=as_tuple)
    requests: tuple[DeletionRequest, ...] = field(default=(), converter=as_tuple)
    locations: LocationsKnown | LocationsUnreadable = field(factory=LocationsKnown)
    examined: tuple[Examined, ...] = field(default=(), converter=as_tuple)
    filed: int = 0


@frozen
class FileRequest:
    """File this request."""

    request: NewRequest
    message: str
    reason: Reason = Reason.EXPIRED


@frozen
class Keep:
    """No request now. ``until`` is when to look again; None: when something changes, or at the next scan."""

    reason: Reason
    message: str
    until: datetime | None = None


@frozen
class RetentionAnswer:
    """The answer for one backup, and the steps that follow from it: at most one patch, then at most one request."""

    backup: Backup
    verdict: FileRequest | Keep
    steps: tuple[Step, ...] = field(default=(), converter=as_tuple)


@frozen
class Failures:
    """The annotation ``reprieve.dev/retention-failures``: how many requests failed, and when the last one did."""

    count: int = 0
    last: datetime | None = None


# The pass


def retain(facts: RetentionFacts, rules: RetentionRules, *, now: datetime) -> tuple[RetentionAnswer, ...]:
    """Answer for every backup, oldest expiry first. The order of the facts does not matter."""
    index = _RetentionIndex(facts, rules, now)
    answers: list[RetentionAnswer] = []
    filed = facts.filed
    for backup in _by_expiry(facts.backups):
        verdict = _keep(backup, index, now) or _examine(backup, index, filed, now)
        filed += isinstance(verdict, FileRequest)
        answers.append(_answer(backup, verdict, index, now))
    return tuple(answers)


def candidates(facts: RetentionFacts, rules: RetentionRules, *, now: datetime) -> tuple[Backup, ...]:
    """The backups whose admission decides, oldest expiry first: those that nothing else keeps."""
    index = _RetentionIndex(facts, rules, now)
    return tuple(backup for backup in _by_expiry(facts.backups) if _keep(backup, index, now) is None)


def draft_request(backup: Backup) -> DeletionRequest:
    """The request that retention would file, as if it existed, to ask ``admit`` about it."""
    asked = request_for(backup)
    ref = ObjectRef(backup.ref.api_version, "DeleteBackupRequest", asked.generate_name, asked.namespace)
    return DeletionRequest(ref, ObjectMeta(ref.name, ref.namespace, labels=asked.labels), asked.backup)


def next_look(answers: Iterable[RetentionAnswer]) -> datetime | None:
    """When the first of the answers changes with time; None when none of them does. The scan stays as the net."""
    times = [answer.verdict.until for answer in answers if isinstance(answer.verdict, Keep)]
    return min((time for time in times if time is not None), default=None)


def _by_expiry(backups: Iterable[Backup]) -> list[Backup]:
    return sorted(backups, key=_expiry_key)


def _expiry_key(backup: Backup) -> tuple[bool, float, ObjectRef]:
    expiration = backup.expiration
    return (expiration is None, expiration.timestamp() if expiration else 0.0, backup.ref)


def _answer(backup: Backup, verdict: FileRequest | Keep, index: _RetentionIndex, now: datetime) -> RetentionAnswer:
    filed = [CreateRequest(verdict.request)] if isinstance(verdict, FileRequest) else []
    return RetentionAnswer(backup, verdict, [*_changes(backup, index, now), *filed])


def _changes(backup: Backup, index: _RetentionIndex, now: datetime) -> list[Step]:
    """The label and the annotation in one patch, and none when both are right already."""
    if backup.meta.terminating:
        return []
    wanted, there = index.gc_failure(backup) if is_due(backup, now=now) else "", backup.meta.labels.get(GC_FAILURE)
    stale = there is not None and not wanted and (there in GC_FAILURES or is_due(backup, now=now))
    failures = index.failures(backup)
    step = ChangeMetadata(
        backup.ref,
        backup.meta.resource_version,
        labels={GC_FAILURE: wanted} if wanted and wanted != there else {},
        without_labels=[GC_FAILURE] if stale else [],
        annotations={}
        if failures == read_failures(backup.meta.annotations, now=now)
        else {RETENTION_FAILURES: write_failures(failures)},
    )
    return [step] if step.labels or step.without_labels or step.annotations else []


# What keeps a backup


def is_due(backup: Backup, *, now: datetime) -> bool:
    """Whether a backup has expired. Expiry exactly now is due; a backup without an expiration never is."""
    return backup.expiration is not None and backup.expiration <= now


def _keep(backup: Backup, index: _RetentionIndex, now: datetime) -> Keep | None:
    """The first reason that keeps a backup; None for a candidate."""
    checks: tuple[Callable[[], Keep | None], ...] = (
        lambda: _check_terminating(backup),
        lambda: _check_due(backup, now),
        lambda: _check_hold(backup, now),
        lambda: _check_running(backup),
        lambda: _check_pending(backup, index),
        lambda: _check_location(backup, index),
        lambda: _check_last_good(backup, index),
        lambda: _check_grace(backup, index.rules, now),
        lambda: _check_pause(backup, index, now),
    )
    found = (check() for check in checks)
    return next((keep for keep in found if keep is not None), None)


def _check_terminating(backup: Backup) -> Keep | None:
    return Keep(Reason.DELETING, "the record is being deleted already") if backup.meta.terminating else None


def _check_due(backup: Backup, now: datetime) -> Keep | None:
    if backup.expiration is None:
        return Keep(Reason.NEVER_EXPIRES, "it has no expiration")
    if not is_due(backup, now=now):
        return Keep(Reason.NOT_DUE, f"it expires at {format_instant(backup.expiration)}", backup.expiration)
    return None


def _check_hold(backup: Backup, now: datetime) -> Keep | None:
    hold = hold_of(backup.meta.annotations, now=now)
    return Keep(Reason.HELD, f"backup is {hold.sentence()}", hold.until) if isinstance(hold, Held) else None


def _check_running(backup: Backup) -> Keep | None:
    if backup.phase not in UNFINISHED:
        return None
    return Keep(Reason.BACKUP_IN_PROGRESS, f"backup is still in progress (phase {backup.phase or 'New'})")


def _check_pending(backup: Backup, index: _RetentionIndex) -> Keep | None:
    pending = index.pending(backup)
    if not pending:
        return None
    names = joined(sorted(request.meta.name for request in pending))
    return Keep(Reason.REQUEST_PENDING, f"its deletion is asked for already, by {names}")


_LOCATION_KEEPS: Mapping[str, tuple[Reason, str]] = {
    NOT_FOUND: (Reason.LOCATION_NOT_FOUND, "its backup storage location {name} does not exist"),
    CANNOT_GET: (Reason.UNREADABLE, "its backup storage location {name} could not be read"),
    UNAVAILABLE: (Reason.LOCATION_UNAVAILABLE, "its backup storage location {name} is not available"),
    READ_ONLY: (Reason.LOCATION_READ_ONLY, "its backup storage location {name} is read-only"),
}


def _check_location(backup: Backup, index: _RetentionIndex) -> Keep | None:
    failure = index.gc_failure(backup)
    if not failure:
        return None
    reason, sentence = _LOCATION_KEEPS[failure]
    return Keep(reason, sentence.format(name=backup.storage_location))


def _check_last_good(backup: Backup, index: _RetentionIndex) -> Keep | None:
    if backup.ref not in index.last_good:
        return None
    kept = index.rules.keep_last
    newest = "the newest Completed backup" if kept == 1 else f"one of the {kept} newest Completed backups"
    here = "" if index.last_good[backup.ref] else ", of those that did not come from the bucket"
    return Keep(Reason.LAST_GOOD, f"it is {newest} of schedule {backup.schedule}{here} (keepLast {kept})")


def _check_grace(backup: Backup, rules: RetentionRules, now: datetime) -> Keep | None:
    synced = parse_instant(backup.meta.annotations.get(SYNCED_AT))
    if synced is None or now - synced >= rules.grace_after_sync:
        return None
    span = format_duration(rules.grace_after_sync)
    why = f"it came back from the bucket at {format_instant(synced)} and is left alone for {span} (graceAfterSync)"
    return Keep(Reason.GRACE_AFTER_SYNC, why, later(synced, rules.grace_after_sync))


def _check_pause(backup: Backup, index: _RetentionIndex, now: datetime) -> Keep | None:
    failures = index.failures(backup)
    end = pause_end(failures)
    if end is None or failures.last is None or now >= end:
        return None
    times = "1 deletion request" if failures.count == 1 else f"{failures.count} deletion requests"
    last = format_instant(failures.last)
    return Keep(Reason.PAUSED, f"{times} failed, the last at {last}; the next is filed at {format_instant(end)}", end)


def _examine(backup: Backup, index: _RetentionIndex, filed: int, now: datetime) -> FileRequest | Keep:
    limit = index.rules.max_requests
    if filed >= limit:
        so_far = "1 request" if filed == 1 else f"{filed} requests"
        return Keep(Reason.MAX_REQUESTS, f"its turn comes later: {so_far} in this pass (maxRequests {limit})")
    match index.examined.get(backup.ref):
        case None:
            return Keep(Reason.NOT_EXAMINED, "it is not known yet whether a request for it would be refused")
        case Refused(reason, message):
            return Keep(reason, f"a request for it would be refused: {message}")
        case Deferred(reason, until, message):
            return Keep(reason, f"a request for it would have to wait: {message}", until)
        case Admitted():
            return FileRequest(request_for(backup), _overdue(backup, now))
        case other:
            assert_never(other)


def _overdue(backup: Backup, now: datetime) -> str:
    expired = backup.expiration or now
    return f"it expired at {format_instant(expired)}, {format_duration(now - expired)} ago"


# What the checks look up


class _RetentionIndex:
    """The facts by backup, so that thousands of backups and requests cost one pass over each."""

    def __init__(self, facts: RetentionFacts, rules: RetentionRules, now: datetime) -> None:
        self.rules, self.now = rules, now
        self.requests: defaultdict[tuple[str, str], list[DeletionRequest]] = defaultdict(list)
        for request in facts.requests:
            self.requests[request.meta.namespace, request.backup].append(request)
        self.locations = _locations(facts.locations)
        self.examined = {each.ref: each.admission for each in facts.examined}
        self.last_good = _last_good(facts.backups, self)

    def pending(self, backup: Backup) -> list[DeletionRequest]:
        """The unfinished requests for exactly this backup. One that is bound to another UID is for another backup."""
        return [
            request
            for request in self.requests.get((backup.meta.namespace, backup.name), ())
            if request.phase is not RequestPhase.PROCESSED
            and (request.bound_uid == backup.meta.uid or bind(request, backup))
        ]

    def failures(self, backup: Backup) -> Failures:
        """What the annotation says, and the failed requests that it does not count yet."""
        requests = self.requests.get((backup.meta.namespace, backup.name), ())
        mine = [request for request in requests if request.bound_uid == backup.meta.uid]
        return count_failures(read_failures(backup.meta.annotations, now=self.now), mine, now=self.now)

    def gc_failure(self, backup: Backup) -> str:
        """What stands in the way of the backup's location; empty when nothing does."""
        if isinstance(self.locations, LocationsUnreadable):
            return CANNOT_GET
        location = self.locations.get(backup.storage_location)
        if location is None:
            return NOT_FOUND
        if not location.available:  # asked first, as Velero's own collector does; admission asks the other way round
            return UNAVAILABLE
        return READ_ONLY if location.read_only else ""


def _locations(
    facts: LocationsKnown | LocationsUnreadable,
) -> Mapping[str, StorageLocation] | LocationsUnreadable:
    match facts:
        case LocationsKnown(locations):
            return {location.name: location for location in locations}
        case LocationsUnreadable():
            return facts
        case _:
            assert_never(facts)


def _last_good(backups: Iterable[Backup], index: _RetentionIndex) -> Mapping[ObjectRef, bool]:
    """The newest ``keep_last`` Completed backups of each schedule that will still be there tomorrow.

    One that is being deleted, or whose deletion is asked for, is no backup to fall back on, so it counts for nothing.
    Those that were made here are counted once more by themselves: whoever may write to a bucket can make up newer ones,
    and so have the last good one expire. The value tells whether a record is among the newest of all.
    """
    good: dict[tuple[str, str], list[Backup]] = defaultdict(list)
    for backup in backups:
        doomed = backup.meta.terminating or index.pending(backup)
        if backup.phase == "Completed" and backup.schedule and not doomed:
            good[backup.meta.namespace, backup.schedule].append(backup)
    last: dict[ObjectRef, bool] = {}
    for each in good.values():
        newest = sorted(each, key=lambda backup: _age_key(backup, index.now))
        made_here = [backup for backup in newest if SYNCED_AT not in backup.meta.annotations]
        last |= {backup.ref: False for backup in made_here[: index.rules.keep_last]}
        last |= {backup.ref: True for backup in newest[: index.rules.keep_last]}
    return last


def _age_key(backup: Backup, now: datetime) -> tuple[float, ObjectRef]:
    """Newest completion first; one that does not say when it completed, or says what is still to come, comes last."""
    told = backup.completed is not None and backup.completed <= now
    return (-backup.completed.timestamp() if backup.completed and told else float("inf"), backup.ref)


# Failures, and the pause after them


def count_failures(failures: Failures, requests: Iterable[DeletionRequest], *, now: datetime) -> Failures:
    """Add the requests that ended with errors after the last one that was counted: the annotation's next value.

    A request is dated by when it finished, or by its creation where another ended it. Every request that is bound to
    the backup counts, whoever filed it: what failed for one fails for the next.
    """
    ended = [ended_at(r, now=now) for r in requests if r.phase is RequestPhase.PROCESSED and r.errors]
    fresh = sorted({time for time in ended if time is not None and (failures.last is None or time > failures.last)})
    return Failures(failures.count + len(fresh), fresh[-1]) if fresh else failures


def pause_end(failures: Failures) -> datetime | None:
    """When the pause after failures ends: 1 h, 2 h, 4 h … at most 24 h after the last one. None without a failure."""
    if failures.last is None:
        return None
    pause: timedelta = min(PAUSE_FIRST * 2 ** min(failures.count - 1, 10), PAUSE_LAST)
    return later(failures.last, pause)


def read_failures(annotations: Mapping[str, str], *, now: datetime) -> Failures:
    """Read the annotation. Anything malformed counts as no failure, since hands can write it.

    So does a last failure that has not happened yet: no pass of ours wrote it, and it would never be over.
    """
    try:
        document = mapping(json.loads(annotations.get(RETENTION_FAILURES, "{}")))
    except (ValueError, RecursionError):
        return Failures()
    count, last = document.get("count"), parse_instant(document.get("last"))
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or last is None or last > now:
        return Failures()
    return Failures(count, last)


def write_failures(failures: Failures) -> str:
    """Write the annotation: compact JSON with sorted keys."""
    last = format_instant(failures.last) if failures.last else ""
    return json.dumps({"count": failures.count, "last": last}, sort_keys=True, separators=(",", ":"))
