"""The deletion controller: one reconcile takes one backup's requests as far as they go now.

gather -> decide -> apply -> record. The key is the backup (namespace, name), never an event. Every patch carries UID
and resource version, every delete the UID, so that a second controller or a hand in between leads to a conflict and
another read.

How far a deletion has come is written on the Backup, which decides, and then on the request, which reports.

Guarantee: killed after any effect, the next reconcile ends in the same state; a reconcile that has nothing to do
writes nothing. Not guaranteed: that one reconcile ends the deletion; waiting means coming back, never a blocked
worker.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, assert_never

import structlog
from attrs import evolve, field, frozen

from reprieve.adapters.k8s import velero
from reprieve.adapters.k8s.dialect import ServedLocations
from reprieve.core.backups import (
    BACKUP_NAME,
    BACKUP_UID,
    Backup,
    DeletionRequest,
    Directory,
    DirectoryUnreadable,
    RequestPhase,
    RequestState,
    StorageLocation,
)
from reprieve.core.durations import format_duration
from reprieve.core.errors import ConflictError, NotFoundError, ReprieveError
from reprieve.core.objects import ObjectRef, Resource, label_safe
from reprieve.core.outcomes import Pending, is_gone, message_of
from reprieve.core.ports import Cluster, EventKind, EventSink
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.requests import (
    BACKOFF_LAST,
    BUCKET_STAGE,
    LOOK_AGAIN,
    RECORD_STAGE,
    Absent,
    Admitted,
    Completed,
    Deferred,
    DeletionPlan,
    Failed,
    Next,
    Refused,
    Retry,
    Settlement,
    Stage,
    StageOutcomes,
    Working,
    begin,
    bind,
    deletion_of,
    elect_all,
    ended_at,
    expired,
    hold_stop,
    phase_after_refusal,
    plan,
    postpone,
    settle,
    siblings_of_one_backup,
    state_of,
    unnoted_siblings,
)
from reprieve.core.steps import DeleteObject, EndRequest, Step, StepResult, describe
from reprieve.core.values import bounded, format_instant, joined, later
from reprieve.entrypoints.configuration import DeletionSettings
from reprieve.entrypoints.controller.decisions import Decision, Result, Standing
from reprieve.entrypoints.controller.effects import Effects, Places, did_something
from reprieve.entrypoints.controller.gathering import BackupReader, Gathered
from reprieve.entrypoints.controller.index import Key, RequestIndex
from reprieve.entrypoints.controller.marks import MarkReader
from reprieve.entrypoints.controller.runtime import Watch

NAME = "deletion"
TRIES = 3
log = structlog.get_logger()


@frozen
class _Run:
    """One pass of one request: what was gathered, the request as it stands, the steps that were carried out."""

    request: DeletionRequest
    gathered: Gathered
    places: Places = field(factory=Places)
    results: tuple[StepResult, ...] = ()

    @property
    def backup(self) -> Backup | Absent:
        return self.gathered.facts.backup

    @property
    def state(self) -> RequestState:
        """How far the deletion has come, as it was last read or written."""
        return state_of(self.request, self.backup)

    def with_backup(self, backup: Backup | Absent) -> _Run:
        return evolve(self, gathered=evolve(self.gathered, facts=evolve(self.gathered.facts, backup=backup)))

    def with_siblings(self, siblings: Iterable[DeletionRequest]) -> _Run:
        return evolve(self, gathered=evolve(self.gathered, facts=evolve(self.gathered.facts, siblings=siblings)))


@frozen
class DeletionReconciler:
    """Works on deletion requests. ``elapsed`` counts seconds; by default time stands still within a pass."""

    marks: MarkReader
    requests: RequestIndex
    cluster: Cluster
    effects: Effects
    events: EventSink
    settings: DeletionSettings
    stop: threading.Event = field(factory=threading.Event)
    elapsed: Callable[[], float] = lambda: 0.0
    places: dict[str, Any] = field(factory=dict, eq=False)
    stored_in: dict[Key, str] = field(factory=dict, eq=False)

    name: str = NAME

    @property
    def reader(self) -> BackupReader:
        """Reads the backups."""
        return self.marks.reader

    def keys(self) -> list[Key]:
        """Every backup that a request names, processed ones included, since those expire."""
        mark = self.requests.mark()
        self.requests.replace(self.reader.requests(), since=mark)
        return self.requests.keys()

    def watches(self) -> list[Watch]:
        """Requests wake their backup's key; backups, restores and locations wake the keys that wait for them."""
        namespace, dialect = self.reader.namespace, self.reader.dialect
        locations = [dialect.locations.storage] if isinstance(dialect.locations, ServedLocations) else []
        return [
            Watch(dialect.request_kind, self._on_request, namespace),
            Watch(dialect.backup_kind, self._on_backup, namespace),
            Watch(
                dialect.restore_kind,
                lambda r, _: self._asked_for(r.meta.namespace, dialect.restore(r).backup),
                namespace,
            ),
            *(Watch(kind, self._on_location, namespace) for kind in locations),
        ]

    def _on_location(self, resource: Resource, removed: bool) -> list[Key]:  # noqa: FBT001 - the shape of a handler
        """Wake all keys when a location changed in what a deletion depends on; sync stamps it every minute."""
        place = None if removed else (resource.section("spec"), resource.section("status").get("phase"))
        known = self.places.get(resource.ref.key)
        self.places[resource.ref.key] = place
        return [] if place == known else self.requests.keys()

    def _on_backup(self, resource: Resource, removed: bool) -> list[Key]:  # noqa: FBT001 - the shape of a handler
        key = (resource.meta.namespace, resource.meta.name)
        if removed:
            self.stored_in.pop(key, None)
        else:
            self.stored_in[key] = self.reader.dialect.backup(resource).storage_location
        return self._asked_for(*key)

    def place_of(self, key: Key) -> str | None:
        """The storage location that a key's deletion has to do with, as far as it is known: it may be a tarpit."""
        return self.stored_in.get(key)

    def _on_request(self, resource: Resource, removed: bool) -> list[Key]:  # noqa: FBT001 - the shape of a handler
        request = self.reader.dialect.deletion_request(resource)
        return [self.requests.remove(request) if removed else self.requests.upsert(request)]

    def _asked_for(self, namespace: str, backup: str) -> list[Key]:
        key = (namespace, backup)
        return [key] if self.requests.of(key) else []

    def reconcile(self, key: Key, *, now: datetime, apply: bool = True) -> Result:
        """Take one backup's requests as far as they go. Raises core errors."""
        requests = self.requests.of(key)
        gone = self._expire(requests, now=now, apply=apply)
        expiring = {decision.ref for decision in gone.decisions}
        alive = [request for request in requests if request.ref not in expiring]
        if all(request.phase is RequestPhase.PROCESSED for request in alive):
            return _join(gone, Result(again=self._next_expiry(alive, now)))
        return self._answer(alive, self.reader.named(key[1]), gone, now=now, apply=apply)

    def _answer(
        self, alive: Sequence[DeletionRequest], backup: Backup | Absent, told: Result, *, now: datetime, apply: bool
    ) -> Result:
        """Work on the one that works for its backup; where the backup is gone, on each that has its own answer.

        One that cannot be answered does not keep the others from theirs. Raises its core error then.
        """
        fault = None
        noted: defaultdict[str | None, list[DeletionRequest]] = defaultdict(list)
        for each in alive:
            noted[each.state.request].append(each)
        for working in elect_all(alive, backup):
            worker = working.request
            others = alive if isinstance(backup, Backup) else noted[worker.meta.uid]
            siblings = [each for each in others if each is not worker]
            try:
                told = _join(told, self._work(working, backup, siblings, now=now, apply=apply))
            except ReprieveError as error:
                fault = error
        if fault is not None:
            raise fault
        return told

    # Requests that ended

    def _expire(self, requests: Iterable[DeletionRequest], *, now: datetime, apply: bool) -> Result:
        old = [r for r in requests if expired(r, now=now, max_age=self.settings.request_max_age)]
        decisions = [self._end_expired(request, apply=apply) for request in old]
        done = [step for each in decisions for step in each.steps if isinstance(step, StepResult)]
        left = any(not is_gone(each.outcome) for each in done)
        changed = any(did_something(each.outcome) for each in done)
        return Result(tuple(decisions), changed, again=later(now, LOOK_AGAIN) if left else None)

    def _end_expired(self, request: DeletionRequest, *, apply: bool) -> Decision:
        step = EndRequest(request.ref)
        age = format_duration(self.settings.request_max_age)
        message = f"the request ended at least {age} ago and is removed; its backup is not touched"
        if not apply:
            return _decision(request, Verdict.DELETE, Reason.EXPIRED, message, steps=(step,), changes=True)
        result = StepResult(step, self.cluster.delete(request.ref))
        standing = Standing.SETTLED
        if not is_gone(result.outcome) and not isinstance(result.outcome, Pending):
            standing = Standing.FAILED
            message = f"error deleting {describe(step)}, which expired: {message_of(result.outcome)}"
            log.warning("expired request not removed", **_fields(request), detail=message_of(result.outcome))
        return _decision(
            request, Verdict.DELETE, Reason.EXPIRED, message, steps=(result,), standing=standing, changes=True
        )

    def _next_expiry(self, requests: Iterable[DeletionRequest], now: datetime) -> datetime | None:
        ends = [ended_at(request, now=now) for request in requests]
        return min((later(end, self.settings.request_max_age) for end in ends if end is not None), default=None)

    # A request at work

    def _work(
        self,
        working: Working,
        backup: Backup | Absent,
        others: Sequence[DeletionRequest],
        *,
        now: datetime,
        apply: bool,
    ) -> Result:
        request, waiting = working.request, tuple(working.waiting)
        state = state_of(request, backup)
        pause = _pausing(state, now)
        if isinstance(backup, Absent) and pause is not None and pause - now > BACKOFF_LAST:
            pause = None  # it is only the request's own word by now, and no pause of ours is so long
        if pause is not None:
            if apply:
                for each in waiting:
                    self._bind(each, backup)
            return Result((_paused(request, state, pause), *_queued(request, waiting)), again=pause)
        run = _Run(request, self.reader.gather_for(request, backup, others))
        run, waiting = self._bind_waiting(run, waiting, apply=apply)
        gathered, admission = self.marks.judge(run.gathered, now=now)
        run = evolve(run, gathered=gathered)
        match admission:
            case Refused() as refused:
                return self._refuse(run, refused, waiting, now=now, apply=apply)
            case Deferred() as deferred:
                # An admitted request gets its labels with the patch that begins it; one that waits gets them now.
                run = self._with_request(run, self._bind(run.request, run.backup)) if apply else run
                return self._defer(run, deferred, waiting, apply=apply)
            case Admitted() as admitted:
                return self._go_on(run, admitted, waiting, now=now, apply=apply)

    def _bind_waiting(
        self, run: _Run, waiting: Sequence[DeletionRequest], *, apply: bool
    ) -> tuple[_Run, tuple[DeletionRequest, ...]]:
        """Bind the requests that wait at first sight, so that they stay bound to the backup that was meant."""
        bound = {request.ref: self._bind(request, run.backup, apply=apply) for request in waiting}
        siblings = [bound.get(each.ref, each) for each in run.gathered.facts.siblings]
        return run.with_siblings(siblings), tuple(bound.values())

    def _bind(self, request: DeletionRequest, backup: Backup | Absent, *, apply: bool = True) -> DeletionRequest:
        """Write the name and UID labels that are missing. A plan reads the request as if it had them."""
        uid = _uid_for(request, backup)
        patch = self.reader.dialect.bind_patch(request, uid) if uid else {}
        if not patch:
            return request
        return self._patch(request, patch) if apply else _as_bound(request, uid)

    def _patch(self, request: DeletionRequest, patch: Mapping[str, Any]) -> DeletionRequest:
        version = request.meta.resource_version
        return self.reader.dialect.deletion_request(self.cluster.patch(request.ref, patch, resource_version=version))

    def _patch_again(self, request: DeletionRequest, patch: Mapping[str, Any]) -> DeletionRequest:
        """Patch a request with what has been decided, whatever somebody wrote into it since it was read.

        Raises ``NotFoundError`` when it was taken away, ``ConflictError`` when it is another one, or never still.
        """
        for _ in range(TRIES):
            try:
                return self._patch(request, patch)
            except ConflictError:
                live = self.reader.dialect.deletion_request(self.cluster.get(request.ref))
                if live.meta.uid != request.meta.uid:
                    raise
                request = live
        return self._patch(request, patch)

    def _note(self, run: _Run, state: RequestState) -> _Run:
        """Write on the Backup how far its deletion has come, and that it is ``Deleting``. Nothing is written twice."""
        backup = run.backup
        if not isinstance(backup, Backup) or deletion_of(backup) == state:
            return run
        patch = velero.deletion_patch(state)
        changed = self.cluster.patch(backup.ref, patch, resource_version=backup.meta.resource_version)
        return run.with_backup(self.reader.dialect.backup(changed))

    def _note_again(self, run: _Run, state: RequestState) -> _Run:
        """Write on the Backup what a pass came to, whatever else somebody wrote there meanwhile.

        Raises ``ConflictError`` when the Backup is gone, or says something else of its deletion: the next look decides.
        """
        for _ in range(TRIES):
            try:
                return self._note(run, state)
            except ConflictError:
                run = self._read_again(run)
        return self._note(run, state)

    def _read_again(self, run: _Run) -> _Run:
        """Read the Backup of a pass live. Raises ``ConflictError`` when it is not the one, or not at that point."""
        if not isinstance(run.backup, Backup):
            return run
        live = self.reader.backup(run.backup.name)
        same = isinstance(live, Backup) and live.meta.uid == run.backup.meta.uid
        if not same or deletion_of(live) != deletion_of(run.backup):
            raise ConflictError(f"{run.backup.ref} changed while its deletion ran: it is read again")
        return run.with_backup(live)

    def _refuse(
        self, run: _Run, refused: Refused, waiting: Sequence[DeletionRequest], *, now: datetime, apply: bool
    ) -> Result:
        decision = _decision(
            run.request, Verdict.KEEP, refused.reason, refused.message, standing=Standing.WAITING, changes=True
        )
        if not apply:
            return Result((decision, *_queued(run.request, waiting)))
        uid = _uid_for(run.request, run.backup)
        self._give_phase_back(run.backup, phase_after_refusal(run.gathered.facts))
        state = _ended(run.state, uid or run.request.bound_uid, refused.reason.value, now)
        labels = self.reader.dialect.bind_patch(run.request, uid) if uid else {}
        self._patch(run.request, _with_metadata(velero.processed_patch(state, (refused.message,)), labels))
        self._record(run.request, refused.reason, refused.message, now, warning=True)
        return Result((decision,), changed=True, again=now if waiting else None)

    def _defer(
        self, run: _Run, deferred: Deferred, waiting: Sequence[DeletionRequest], *, apply: bool = True
    ) -> Result:
        noted = self._note_deferral(run, deferred) if apply else False
        decision = _decision(
            run.request, Verdict.KEEP, deferred.reason, deferred.message, standing=Standing.WAITING, steps=run.results
        )
        log.info("deletion deferred", **_fields(run.request), reason=deferred.reason.value, until=str(deferred.until))
        changed = noted or any(did_something(result.outcome) for result in run.results)
        return Result((decision, *_queued(run.request, waiting)), changed=changed, again=deferred.until)

    def _note_deferral(self, run: _Run, deferred: Deferred) -> bool:
        """Write once into a deletion at work that it waits: waiting does not count. Tells whether it was written."""
        state = postpone(run.state, deferred)
        if not run.state.uid or state == run.state:
            return False
        self._note_again(run, state)
        self._patch_again(run.request, velero.progress_patch(state))
        return True

    def _go_on(
        self, run: _Run, admitted: Admitted, waiting: Sequence[DeletionRequest], *, now: datetime, apply: bool
    ) -> Result:
        facts = run.gathered.facts
        deletion = plan(facts, run.gathered.inventory)
        if not apply:
            message, steps = _planned(admitted, deletion)
            decision = _decision(run.request, Verdict.DELETE, admitted.reason, message, steps=steps, changes=True)
            return Result((decision, *_queued(run.request, waiting)))
        log.info("deletion admitted", **_fields(run.request), reason=admitted.reason.value)
        state = begin(facts, now=now)
        # The request first: one that was taken back meanwhile is a conflict, and then the Backup is not touched. Killed
        # in between, the request is not at work yet, and is looked at as on the first day.
        run = self._note(self._mark_in_progress(run, state), state)
        return self._stages(run, deletion, waiting, now=now)

    def _mark_in_progress(self, run: _Run, state: RequestState) -> _Run:
        """Say in the request that it is at work, for whom and where; the counters follow at the end of the pass.

        What was known of the request may be old: one that has ended since, or was taken back, begins no pass. Raises
        ``ConflictError`` or ``NotFoundError`` then.
        """
        request = run.request
        labels = self.reader.dialect.bind_patch(request, state.uid) if state.uid else {}
        told = request.phase is RequestPhase.IN_PROGRESS and _whereabouts(request.state) == _whereabouts(state)
        if told and not labels:
            live = self.reader.dialect.deletion_request(self.cluster.get(request.ref))
            same = (live.meta.uid, live.backup) == (request.meta.uid, request.backup)
            if not same or live.phase is RequestPhase.PROCESSED:
                raise ConflictError(f"{request.ref} has ended meanwhile: it is read again")
            return self._with_request(run, live)
        return self._with_request(run, self._patch(request, _with_metadata(velero.progress_patch(state), labels)))

    @staticmethod
    def _with_request(run: _Run, request: DeletionRequest) -> _Run:
        facts = evolve(run.gathered.facts, request=request)
        return evolve(run, request=request, gathered=evolve(run.gathered, facts=facts))

    # Stages

    def _stages(
        self, run: _Run, deletion: DeletionPlan, waiting: Sequence[DeletionRequest], *, now: datetime
    ) -> Result:
        run, began = evolve(run, places=_places(run.gathered)), self.elapsed()
        for stage in deletion.stages:
            if self.stop.is_set():
                return self._stopped(run, waiting, now)
            run, halt = self._ask_hold_again(run, stage, now)
            if isinstance(halt, Deferred):
                return self._defer(run, halt, waiting)
            run = self._enter(run, stage)
            results = self.effects.run(stage, run.places, scope=run.state.uid)
            run = evolve(run, results=(*run.results, *stage.decided, *results))
            # A pause counts from now, and not from when a stage began that may have waited for a slow cloud.
            settled_at = later(now, timedelta(seconds=self.elapsed() - began))
            settlement = self._settle(run, deletion, stage, results, settled_at)
            if not isinstance(settlement, Next):
                return self._end(run, settlement, waiting, now=now)
            run = run.with_backup(Absent()) if stage.name == RECORD_STAGE else run
        raise AssertionError("the last stage of a plan settles as something else than Next")

    def _ask_hold_again(self, run: _Run, stage: Stage, now: datetime) -> tuple[_Run, Deferred | None]:
        """Ask the hold, live, while there is something that it could hold.

        Raises ``ConflictError`` when the record is not there any more, is another one, or says something else of its
        deletion: the next look decides. A bucket that cannot be read stops as well, since the hold may be mirrored
        there.
        """
        location = run.gathered.facts.location
        if not isinstance(run.backup, Backup) or not isinstance(location, StorageLocation):
            return run, None
        if all(isinstance(step, EndRequest) for step in stage.steps):
            return run, None
        run = self._read_again(run)
        directory = self.reader.directory(location, run.request.backup)
        return run, _unreadable(location, directory, now) or hold_stop(run.backup, directory, now=now)

    def _enter(self, run: _Run, stage: Stage) -> _Run:
        """Note what a stage must find noted if it is cut off.

        Before the bucket's files go: from now on an absent list is this deletion's own doing. Before the record goes:
        which requests end with it. One that somebody takes away or edits at that very moment gets an answer of its own.
        """
        if stage.name == BUCKET_STAGE:
            return self._note(run, evolve(run.state, stage=BUCKET_STAGE))
        if stage.name != RECORD_STAGE:
            return run
        noted: dict[ObjectRef, DeletionRequest] = {}
        for sibling, state in unnoted_siblings(run.gathered.facts):
            with contextlib.suppress(ConflictError, NotFoundError):
                noted[sibling.ref] = self._patch(sibling, velero.report_patch(state))
        return run.with_siblings(noted.get(each.ref, each) for each in run.gathered.facts.siblings)

    def _settle(
        self, run: _Run, deletion: DeletionPlan, stage: Stage, results: tuple[StepResult, ...], now: datetime
    ) -> Settlement:
        for result in results:
            log.info("step carried out", **_fields(run.request), **_step_fields(result))
        outcomes = StageOutcomes(deletion, stage, results)
        return settle(run.gathered.facts, outcomes, now=now, limits=self.settings.limits)

    def _stopped(self, run: _Run, waiting: Sequence[DeletionRequest], now: datetime) -> Result:
        message = "stopped between two effects; the deletion is resumed at the next start"
        decision = _decision(
            run.request, Verdict.DELETE, Reason.PENDING, message, steps=run.results, standing=Standing.WAITING
        )
        return Result((decision, *_queued(run.request, waiting)), again=now)

    def _end(
        self, run: _Run, settlement: Completed | Retry | Failed, waiting: Sequence[DeletionRequest], *, now: datetime
    ) -> Result:
        match settlement:
            case Completed():
                return self._completed(run, waiting, now)
            case Retry():
                return self._retry(run, settlement, waiting)
            case Failed():
                return self._failed(run, settlement, waiting, now)
            case _:
                assert_never(settlement)

    def _completed(self, run: _Run, waiting: Sequence[DeletionRequest], now: datetime) -> Result:
        message = f"backup {run.request.backup} and all that it points at are gone ({len(run.results)} steps)"
        if not any(isinstance(result.step, DeleteObject) for result in run.results):
            where = run.request.state.location
            message = f"neither the record of backup {run.request.backup} is there nor its metadata in {where}"
        self._record(run.request, Reason.COMPLETED, message, now)
        ended = {result.step.ref for result in run.results if isinstance(result.step, EndRequest)}
        for request in (run.request, *run.gathered.facts.siblings):
            if request.ref in ended:
                self.requests.remove(request)  # the watch will tell too, but later than our own next look
        decision = _decision(run.request, Verdict.DELETE, Reason.COMPLETED, message, steps=run.results, changes=True)
        others = [
            _decision(r, Verdict.DELETE, Reason.COMPLETED, f"ended together with {run.request.meta.name}", changes=True)
            for r in waiting
            if r.ref in ended
        ]
        left = any(r.ref not in ended for r in waiting)
        return Result((decision, *others), changed=True, again=now if left else None)

    def _retry(self, run: _Run, retry: Retry, waiting: Sequence[DeletionRequest]) -> Result:
        state, errors = retry.state, retry.errors
        known = run.state
        # A wait is noted once: to note each look again would wake the controller by its own writing.
        repeated = retry.reason is Reason.PENDING and known.reason == state.reason and run.request.errors == errors
        if not repeated:
            run = self._note_again(run, state)
            patch = velero.progress_patch(state, errors=errors)
            run = self._with_request(run, self._patch_again(run.request, patch))
        message = _retry_message(retry, run.results)
        decision = _decision(
            run.request,
            _verdict(retry.reason),
            retry.reason,
            message,
            steps=run.results,
            standing=Standing.WAITING,
            changes=True,
        )
        log.info("deletion comes back later", **_fields(run.request), reason=retry.reason.value, at=str(retry.at))
        changed = any(did_something(result.outcome) for result in run.results)
        return Result((decision, *_queued(run.request, waiting)), changed=changed or not repeated, again=retry.at)

    def _failed(self, run: _Run, failed: Failed, waiting: Sequence[DeletionRequest], now: datetime) -> Result:
        """Say so on the Backup first: killed in between, the request is looked at again and fails in the same way."""
        if failed.restore_phase is None:
            self._note_again(run, failed.left)
        self._give_phase_back(run.backup, failed.restore_phase)
        ending = [r for r in siblings_of_one_backup(run.gathered.facts) if r.phase is not RequestPhase.PROCESSED]
        for sibling in ending:
            state = _ended(RequestState(), failed.state.uid or sibling.bound_uid, Reason.FAILED.value, now)
            with contextlib.suppress(NotFoundError):
                self._patch_again(sibling, velero.processed_patch(state, failed.errors))
        self._patch_again(run.request, velero.processed_patch(failed.state, failed.errors))
        message = f"deletion of backup {run.request.backup} failed: {joined(failed.errors, by='; ')}"
        self._record(run.request, Reason.FAILED, message, now, warning=True)
        decision = _decision(
            run.request,
            Verdict.DELETE,
            Reason.FAILED,
            message,
            steps=run.results,
            standing=Standing.FAILED,
            changes=True,
        )
        others = [
            _decision(r, Verdict.KEEP, Reason.FAILED, f"ended together with {run.request.meta.name}", changes=True)
            for r in ending
        ]
        left = len(others) < len(waiting)
        return Result((decision, *others), changed=True, again=now if left else None)

    def _give_phase_back(self, backup: Backup | Absent, phase: str | None) -> None:
        """Undo ``Deleting``, and our note with it, on a record that still says the same of its deletion."""
        if phase is None or not isinstance(backup, Backup):
            return
        live = self.reader.backup(backup.name)
        if isinstance(live, Backup) and live.meta.uid == backup.meta.uid and deletion_of(live) == deletion_of(backup):
            version = live.meta.resource_version
            self.cluster.patch(live.ref, velero.undeleted_patch(phase), resource_version=version)

    def _record(
        self, request: DeletionRequest, reason: Reason, message: str, now: datetime, *, warning: bool = False
    ) -> None:
        kind = EventKind.WARNING if warning else EventKind.NORMAL
        log.info("deletion request ended", **_fields(request), reason=reason.value, message=message)
        self.events.record(request.ref, kind=kind, reason=reason.value, message=message, now=now)


def _unreadable(
    location: StorageLocation, directory: Directory | DirectoryUnreadable, now: datetime
) -> Deferred | None:
    if isinstance(directory, Directory):
        return None
    why = f"backup storage location {location.name} cannot be read: {directory.why}"
    return Deferred(Reason.LOCATION_UNAVAILABLE, later(now, LOOK_AGAIN), why)


def _places(gathered: Gathered) -> Places:
    facts = gathered.facts
    location = facts.location
    return Places(
        {location.name: location} if isinstance(location, StorageLocation) else {},
        {each.name: each for each in facts.snapshot_locations},
    )


def _uid_for(request: DeletionRequest, backup: Backup | Absent) -> str:
    """The UID of the backup, where the request is for it or may be bound to it; empty where it is for another one."""
    if not isinstance(backup, Backup):
        return ""
    return backup.meta.uid if request.bound_uid == backup.meta.uid or bind(request, backup) else ""


def _as_bound(request: DeletionRequest, uid: str) -> DeletionRequest:
    labels = {BACKUP_NAME: label_safe(request.backup), BACKUP_UID: uid, **request.meta.labels}
    return evolve(request, meta=evolve(request.meta, labels=labels))


def _with_metadata(patch: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    return {**patch, "metadata": {**patch["metadata"], **more.get("metadata", {})}}


def _whereabouts(state: RequestState) -> tuple[str | None, ...]:
    """What a request must say to be ended should the record be gone before it: whose and where it was at work."""
    return (state.uid, state.request, state.location, state.bucket, state.prefix)


def _ended(state: RequestState, uid: str, reason: str, now: datetime) -> RequestState:
    """The last report of a request that ends; ``state`` is how far it had come, empty where it was not at work."""
    return evolve(state, uid=uid, finished_at=now, next_attempt=None, reason=reason)


def _pausing(state: RequestState, now: datetime) -> datetime | None:
    """The instant before which a deletion is not looked at; a wait for an end is looked at on any event."""
    pauses = state.reason != Reason.PENDING.value and state.next_attempt is not None and now < state.next_attempt
    return state.next_attempt if pauses else None


def _paused(request: DeletionRequest, state: RequestState, until: datetime) -> Decision:
    errors = joined(request.errors, by="; ")
    reason = Reason.LOCKED if state.reason == Reason.LOCKED.value else Reason.RETRYING
    message = f"attempt {state.attempts} did not end it ({errors}); the next is at {format_instant(until)}"
    if reason is Reason.LOCKED:
        message = f"waits for a lock to end ({errors}); it is asked again at {format_instant(until)}"
    return _decision(request, _verdict(reason), reason, message, standing=Standing.WAITING)


def _verdict(reason: Reason) -> Verdict:
    """What is at work is deleted; what is locked is deferred, and stays."""
    return Verdict.KEEP if reason is Reason.LOCKED else Verdict.DELETE


def _queued(worker: DeletionRequest, waiting: Iterable[DeletionRequest]) -> tuple[Decision, ...]:
    message = f"waits for {worker.meta.name}, which works on the same backup"
    return tuple(_decision(r, Verdict.KEEP, Reason.QUEUED, message, standing=Standing.WAITING) for r in waiting)


def _retry_message(retry: Retry, results: Iterable[StepResult]) -> str:
    waits = [message_of(r.outcome) for r in results if message_of(r.outcome)]
    why = joined(retry.errors or sorted(set(waits)), by="; ")
    return f"comes back at {format_instant(retry.at)} after {retry.state.attempts} counted attempts: {why}"


def _planned(admitted: Admitted, deletion: DeletionPlan) -> tuple[str, tuple[Step, ...]]:
    """The sentence and the steps of a plan; those whose outcome is known already are told in the sentence."""
    known = [result for stage in deletion.stages for result in stage.decided]
    steps = (*(result.step for result in known), *(step for stage in deletion.stages for step in stage.steps))
    wrong = [result for result in known if not is_gone(result.outcome)]
    faults = [f"error deleting {describe(result.step)}: {message_of(result.outcome)}" for result in wrong]
    return "; ".join([admitted.message, *bounded(faults)]), steps


def _decision(
    request: DeletionRequest,
    verdict: Verdict,
    reason: Reason,
    message: str,
    *,
    steps: Sequence[Step | StepResult] = (),
    standing: Standing = Standing.SETTLED,
    changes: bool = False,
) -> Decision:
    return Decision(
        NAME, request.ref, verdict, reason, message, tuple(steps), standing, subject=request.backup, changes=changes
    )


def _join(first: Result, second: Result) -> Result:
    again = min((each.again for each in (first, second) if each.again is not None), default=None)
    return Result((*first.decisions, *second.decisions), first.changed or second.changed, again)


def _fields(request: DeletionRequest) -> dict[str, str]:
    return {"controller": NAME, "backup": request.backup, "request": request.ref.key}


def _step_fields(result: StepResult) -> dict[str, str]:
    return {
        "step": type(result.step).__name__,
        "outcome": type(result.outcome).__name__,
        "detail": message_of(result.outcome),
    }
