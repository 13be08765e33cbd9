"""The retention controller: one reconcile looks at every backup of the namespace, and asks for those that expired.

There is one key, so that a pass costs three lists and not three a backup. A pass comes every ``interval``, and at the
very moment at which the next backup expires, or a hold or a pause ends. What would be refused or would have to wait is
looked at again at the next scan, as the look costs a few calls. All looks at one instant count as one pass: a single
run, whose clock stands still, files ``maxRequests`` at most.

Guarantee: label and failure count are written in one patch before the request is filed, so that a pass that is killed
in between is mended by the next one; a pass that has nothing new to do writes nothing. Not guaranteed: that the
deletion follows at once; the deletion controller works on the request as on any other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime, timedelta

import structlog
from attrs import evolve, field, frozen

from reprieve.core.backups import Backup
from reprieve.core.errors import ReprieveError
from reprieve.core.objects import Resource
from reprieve.core.outcomes import Conflict, Done, message_of
from reprieve.core.reasons import Reason, Verdict
from reprieve.core.requests import Admitted, Deferred, Stage
from reprieve.core.retention import (
    Examined,
    FileRequest,
    LocationsKnown,
    LocationsUnreadable,
    RetentionAnswer,
    RetentionFacts,
    RetentionRules,
    candidates,
    draft_request,
    is_due,
    next_look,
    retain,
)
from reprieve.core.steps import CreateRequest, Step, StepResult
from reprieve.core.values import later
from reprieve.entrypoints.configuration import RetentionSettings
from reprieve.entrypoints.controller.decisions import Decision, Result, Standing
from reprieve.entrypoints.controller.effects import Effects, Places
from reprieve.entrypoints.controller.gathering import BackupReader
from reprieve.entrypoints.controller.marks import MarkReader
from reprieve.entrypoints.controller.runtime import Watch

NAME = "retention"
NAME_TRIES = 5
AFTER_CONFLICT = timedelta(seconds=10)
log = structlog.get_logger()


def rules_of(settings: RetentionSettings) -> RetentionRules:
    """The rules that the configuration sets."""
    return RetentionRules(settings.keep_last, settings.grace_after_sync, settings.max_requests)


class Expirations:
    """When each backup expires, as it was last heard: an event that does not change it wakes nobody."""

    def __init__(self) -> None:
        """Know of none."""
        self._known: dict[str, datetime | None] = {}

    def replace(self, backups: Iterable[Backup]) -> None:
        """Know these."""
        self._known = {backup.meta.uid: backup.expiration for backup in backups}

    def is_news(self, backup: Backup) -> bool:
        """Whether a backup expires at another time than was known; it is known from then on."""
        known, uid = self._known, backup.meta.uid
        news = uid not in known or known[uid] != backup.expiration
        known[uid] = backup.expiration
        return news and backup.expiration is not None


class FiledNow:
    """How many requests were filed at the instant of the last pass: a run whose clock stands still is one pass."""

    def __init__(self) -> None:
        """Know of none."""
        self._at: datetime | None = None
        self._count = 0

    def at(self, now: datetime) -> int:
        """How many were filed at that very instant."""
        return self._count if self._at == now else 0

    def note(self, now: datetime, results: Iterable[StepResult]) -> None:
        """Count the requests among what was done at that instant."""
        done = sum(isinstance(r.step, CreateRequest) and isinstance(r.outcome, Done) for r in results)
        self._count, self._at = self.at(now) + done, now


def gather(reader: BackupReader) -> RetentionFacts:
    """Every backup, request and location of the namespace: three lists. Raises core errors, but for locations."""
    locations: LocationsKnown | LocationsUnreadable
    try:
        locations = LocationsKnown(reader.storage_locations())
    except ReprieveError as fault:
        locations = LocationsUnreadable(str(fault))
    return RetentionFacts(reader.backups(), reader.requests(), locations)


def examine(marks: MarkReader, backup: Backup, *, now: datetime) -> Examined:
    """Ask what would become of a request for that backup. Raises core errors."""
    _, admission = marks.judge(marks.reader.gather(draft_request(backup), []), now=now)
    return Examined(backup.ref, admission)


def answer_for(marks: MarkReader, rules: RetentionRules, backup: Backup, *, now: datetime) -> RetentionAnswer:
    """What retention says of one backup, among all the others. Raises core errors."""
    facts = gather(marks.reader)
    candidate = any(each.ref == backup.ref for each in candidates(facts, rules, now=now))
    examined = [examine(marks, backup, now=now)] if candidate else []
    answers = retain(evolve(facts, examined=examined), rules, now=now)
    return next(each for each in answers if each.backup.ref == backup.ref)


@frozen
class RetentionReconciler:
    """Files requests for expired backups. The one key is the namespace."""

    marks: MarkReader
    effects: Effects
    rules: RetentionRules
    stop: threading.Event = field(factory=threading.Event)
    expirations: Expirations = field(factory=Expirations)
    filed: FiledNow = field(factory=FiledNow)

    name: str = NAME

    @property
    def reader(self) -> BackupReader:
        """Reads the backups."""
        return self.marks.reader

    def keys(self) -> list[str]:
        """The namespace, whose backups are all looked at together."""
        return [self.reader.namespace]

    def watches(self) -> list[Watch]:
        """A backup that expires at another time than was known: its moment may come before the next scan."""
        return [Watch(self.reader.dialect.backup_kind, self._on_backup, self.reader.namespace)]

    def _on_backup(self, resource: Resource, removed: bool) -> list[str]:  # noqa: FBT001 - the shape of a handler
        news = not removed and self.expirations.is_news(self.reader.dialect.backup(resource))
        return [self.reader.namespace] if news else []

    def reconcile(self, key: str, *, now: datetime, apply: bool = True) -> Result:  # noqa: ARG002 - there is one
        """Take one pass over all backups. Raises core errors."""
        facts = evolve(gather(self.reader), filed=self.filed.at(now))
        self.expirations.replace(facts.backups)
        examined = self._examine(candidates(facts, self.rules, now=now), facts.filed, now)
        answers = retain(evolve(facts, examined=examined), self.rules, now=now)
        results = {each.backup.ref: self._carry_out(each) for each in answers if apply and each.steps}
        self.filed.note(now, [result for done in results.values() for result in done])
        decisions = [_told(each, results.get(each.backup.ref)) for each in answers if _is_news(each, now)]
        outcomes = [result.outcome for done in results.values() for result in done]
        looks = next_look(a for a in answers if a.backup.ref not in {e.ref for e in examined})
        conflict = later(now, AFTER_CONFLICT) if any(isinstance(o, Conflict) for o in outcomes) else None
        again = min((time for time in (looks, conflict) if time is not None), default=None)
        return Result(tuple(decisions), any(isinstance(o, Done | Conflict) for o in outcomes), again)

    def _examine(self, asked: Iterable[Backup], filed: int, now: datetime) -> list[Examined]:
        """Look at candidates, oldest expiry first, until as many as may be filed in one pass are admitted."""
        found: list[Examined] = []
        admitted, silent = filed, set[str]()
        for backup in asked:
            if admitted >= self.rules.max_requests or self.stop.is_set():
                break
            if backup.storage_location in silent:
                continue  # it did not answer for another backup in this pass: asked once, it holds up nobody else
            try:
                found.append(examine(self.marks, backup, now=now))
            except ReprieveError as fault:  # not examined, so it is kept; the others go on
                log.warning("backup not examined", controller=NAME, backup=backup.name, fault=str(fault))
                continue
            match found[-1].admission:
                case Admitted():
                    admitted += 1
                case Deferred(reason=Reason.LOCATION_UNAVAILABLE):
                    silent.add(backup.storage_location)
                case _:
                    pass
        return found

    def _carry_out(self, answer: RetentionAnswer) -> tuple[StepResult, ...]:
        """Carry out the steps in their order, until one is not done or a stop comes."""
        results: list[StepResult] = []
        for step in answer.steps:
            done = self._step(step)
            results += done
            if not done or not isinstance(done[-1].outcome, Done):
                break
        for result in results:
            outcome = {"outcome": type(result.outcome).__name__, "detail": message_of(result.outcome)}
            log.info("step carried out", controller=NAME, backup=answer.backup.name, **outcome)
        return tuple(results)

    def _step(self, step: Step) -> tuple[StepResult, ...]:
        """Carry out one step. A generated name that is taken is generated anew."""
        done: tuple[StepResult, ...] = ()
        for _ in range(NAME_TRIES if isinstance(step, CreateRequest) else 1):
            done = self.effects.run(Stage(NAME, [step]), Places())
            if not done or not isinstance(done[0].outcome, Conflict):
                break
        return done


def _is_news(answer: RetentionAnswer, now: datetime) -> bool:
    """Whether there is something to say: of ten thousand backups that are not due there is not."""
    return bool(answer.steps) or is_due(answer.backup, now=now)


def _told(answer: RetentionAnswer, results: tuple[StepResult, ...] | None) -> Decision:
    verdict = Verdict.DELETE if isinstance(answer.verdict, FileRequest) else Verdict.KEEP
    failed = any(not isinstance(result.outcome, Done | Conflict) for result in results or ())
    return Decision(
        NAME,
        answer.backup.ref,
        verdict,
        answer.verdict.reason,
        answer.verdict.message,
        answer.steps if results is None else results,
        Standing.FAILED if failed else Standing.SETTLED,
        subject=answer.backup.name,
        changes=bool(answer.steps),
    )
