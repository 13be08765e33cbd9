"""Asking the clouds whose the snapshots are that a backup's list names, before a deletion of it is admitted.

Each place is asked once what carries the backup's tag, and then by its id for each snapshot that the list names beyond
that. Only what would be admitted otherwise is asked for: a backup that is held costs no call.

Guarantee: a place that could not be asked in full is a fact with its reason; it never looks like an empty one.
Not guaranteed: that a tag stays as it was read; a listing may be a minute old.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from attrs import evolve, field, frozen

from reprieve.core.backups import UNFINISHED, Backup, NativeSnapshot, StorageLocation
from reprieve.core.errors import InvalidError, NotFoundError, ReprieveError, TooMuchError
from reprieve.core.holds import Held, hold_of
from reprieve.core.marks import (
    Claim,
    ClaimsRead,
    ClaimsUnread,
    MarksAsked,
    SnapshotsSeen,
    SnapshotsUnseen,
    identity,
    tagged_backup,
)
from reprieve.core.ports import SnapshotInfo, SnapshotStore, SnapshotStores
from reprieve.core.requests import Admission, PlaceQuestion, admit, claims_wanted, place_questions
from reprieve.core.steps import DeleteSnapshot
from reprieve.entrypoints.controller.effects import Confirmed
from reprieve.entrypoints.controller.gathering import BackupReader, Gathered
from reprieve.entrypoints.controller.shelves import AT_ONCE, in_parallel

FRESH = timedelta(seconds=60)
CHUNK = 200
CLAIMS = 200_000
ENOUGH = 20
"""So many snapshots of others are enough to refuse a list, and to name them: the rest of it is not asked for."""

Answer = SnapshotInfo | NotFoundError | InvalidError


class OtherLists:
    """The native snapshots that all records' lists name, read once for all who ask within ``FRESH``.

    ``elapsed`` gives seconds that only grow; where it stands still, as in a single run, they are read once. Safe for
    threads.
    """

    def __init__(self, elapsed: Callable[[], float] = lambda: 0.0) -> None:
        """Know of none."""
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._read: tuple[float, list[tuple[str, Claim]]] | None = None

    def besides(self, backup: Backup, read: Callable[[], list[tuple[str, Claim]]]) -> tuple[Claim, ...]:
        """The claims of all records but this one. ``read`` gives all, with their records' UIDs; raises what it does."""
        with self._lock:
            now = self._elapsed()
            if self._read is None or now - self._read[0] >= FRESH.total_seconds():
                self._read = (now, read())
            return tuple(claim for uid, claim in self._read[1] if uid != backup.meta.uid)


@frozen
class MarkReader:
    """Asks whose the snapshots are. ``untagged`` are the providers whose snapshots need no tag.

    ``confirmed`` are the snapshots that this process has seen gone: they are not asked for again.
    """

    reader: BackupReader
    snapshot_stores: SnapshotStores
    untagged: frozenset[str] = frozenset()
    confirmed: Confirmed = field(factory=Confirmed)
    others: OtherLists = field(factory=OtherLists)

    def judge(self, gathered: Gathered, *, now: datetime) -> tuple[Gathered, Admission]:
        """Admit, with all that the clouds have to say of it. Raises core errors when the cluster cannot be read."""
        facts, inventory = gathered.facts, gathered.inventory
        questions = place_questions(facts, inventory, now=now)
        if questions and isinstance(facts.backup, Backup):
            facts = evolve(facts, marks=self._ask(facts.backup, questions, now))
        return Gathered(facts, inventory), admit(facts, inventory, now=now)

    def _ask(self, backup: Backup, questions: Sequence[PlaceQuestion], now: datetime) -> MarksAsked:
        marks = MarksAsked(in_parallel(partial(self._place, backup), questions), self.untagged)
        return evolve(marks, claims=self._claims(backup, now)) if claims_wanted(marks) else marks

    def _place(self, backup: Backup, question: PlaceQuestion) -> SnapshotsSeen | SnapshotsUnseen:
        location = question.location
        try:
            credential = self.reader.secrets.read(location.credential)
            store = self.snapshot_stores.open(location, credential=credential)
            listed = store.list(self.reader.dialect.snapshot_tag, backup.name)
            tagged = {identity(location.provider, each.id) for each in listed}
            return self._singly(backup, question, store, tagged)
        except ReprieveError as fault:
            return SnapshotsUnseen(location.name, str(fault))

    def _singly(
        self, backup: Backup, question: PlaceQuestion, store: SnapshotStore, tagged: set[tuple[str, str]]
    ) -> SnapshotsSeen:
        """Ask for what the listing by tag has not. Raises core errors, but for one that is not there or cannot be."""
        provider, place = question.location.provider, question.location.name
        steps = {each: DeleteSnapshot(provider, each, place) for each in question.ids}
        own = {each for each in question.ids if identity(provider, each) in tagged}
        gone = {each for each, step in steps.items() if each not in own and (backup.meta.uid, step) in self.confirmed}
        left = [each for each in question.ids if each not in own | gone]
        found: dict[str, Answer] = {}
        while left and sum(self._is_foreign(backup, answer) for answer in found.values()) < ENOUGH:
            found |= dict(in_parallel(partial(_get, store), left[:CHUNK]))
            left = left[CHUNK:]
        gone |= {each for each, answer in found.items() if isinstance(answer, NotFoundError)}
        self.confirmed.add((backup.meta.uid, steps[each]) for each in sorted(gone))
        return SnapshotsSeen(
            place,
            own,
            [answer for answer in found.values() if isinstance(answer, SnapshotInfo)],
            gone,
            {each: str(answer) for each, answer in found.items() if isinstance(answer, InvalidError)},
        )

    def _is_foreign(self, backup: Backup, answer: Answer) -> bool:
        """Whether an answer is sure to be a reason to refuse."""
        if not isinstance(answer, SnapshotInfo):
            return isinstance(answer, InvalidError)
        free = {backup.name, ""} if answer.provider in self.untagged else {backup.name}
        return tagged_backup(answer) not in free

    # What other records name

    def _claims(self, backup: Backup, now: datetime) -> ClaimsRead | ClaimsUnread:
        try:
            return ClaimsRead(self.others.besides(backup, partial(self._all_claims, now)))
        except ReprieveError as fault:
            return ClaimsUnread(str(fault))

    def _all_claims(self, now: datetime) -> list[tuple[str, Claim]]:
        """Every native snapshot that any record's list names. Raises core errors when one of them cannot be read."""
        providers = {each.name: each.provider for each in self.reader.snapshot_locations()}
        locations = {each.name: each for each in self.reader.storage_locations()}
        records = [record for record in self.reader.backups() if record.phase not in UNFINISHED]
        found: list[tuple[str, Claim]] = []
        for some in (records[start : start + AT_ONCE] for start in range(0, len(records), AT_ONCE)):
            named = in_parallel(lambda record: self._named_by(record, locations.get(record.storage_location)), some)
            found += [
                (record.meta.uid, Claim(provider, snapshot.id, record.name, _hold(record, now)))
                for record, snapshots in zip(some, named, strict=True)
                for snapshot in snapshots
                for provider in sorted(_providers_of(snapshot, providers) or self.untagged)
            ]
            if len(found) > CLAIMS:
                raise TooMuchError(
                    f"the lists of other records name more than {CLAIMS} snapshots, the most that is read"
                )
        return found

    def _named_by(self, record: Backup, location: StorageLocation | None) -> tuple[NativeSnapshot, ...]:
        if location is None or not location.available:
            where = record.storage_location or "(none named)"
            raise InvalidError(f"storage location {where} of backup {record.name} cannot be read")
        return self.reader.native_snapshots(record, self.reader.store(location))


def _providers_of(snapshot: NativeSnapshot, providers: Mapping[str, str]) -> set[str]:
    return {providers[snapshot.location]} if snapshot.location in providers else set()


def _get(store: SnapshotStore, snapshot: str) -> tuple[str, Answer]:
    try:
        return snapshot, store.get(snapshot)
    except (NotFoundError, InvalidError) as fault:
        return snapshot, fault


def _hold(record: Backup, now: datetime) -> str:
    hold = hold_of(record.meta.annotations, now=now)
    return hold.sentence() if isinstance(hold, Held) else ""
