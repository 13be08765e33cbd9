"""A small world in which deletions run, are cut off after any single effect, and run again.

Invariant 3: kill the process after any single effect, start again: the end state is the same and nothing leaks. The
world is a few sets; it stands for the cloud, the bucket and the cluster, and only ``reprieve.core`` decides in it.
"""

from datetime import timedelta

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.backups import (
    DELETION,
    Directory,
    ListAbsent,
    MetadataAbsent,
    MetadataPresent,
    RequestPhase,
    write_state,
)
from reprieve.core.outcomes import (
    AlreadyGone,
    Denied,
    Done,
    InUse,
    Invalid,
    Pending,
    Retryable,
    Unknown,
    combined,
    is_gone,
)
from reprieve.core.requests import (
    BUCKET_STAGE,
    RECORD_STAGE,
    Absent,
    Admitted,
    Completed,
    Deferred,
    Failed,
    Next,
    Refused,
    Retry,
    StageOutcomes,
    Working,
    admit,
    begin,
    deletion_of,
    elect,
    phase_after_refusal,
    plan,
    settle,
    siblings_of_one_backup,
    unnoted_siblings,
)
from reprieve.core.steps import (
    DeleteFile,
    DeleteFiles,
    DeleteObject,
    DeleteRestore,
    DeleteSnapshot,
    EndRequest,
    StepResult,
)
from tests.unit.builders import (
    LIMITS,
    METADATA_KEY,
    NOW,
    STARTED,
    a_backup,
    a_location,
    a_request,
    a_restore,
    a_snapshot,
    a_snapshot_location,
    facts,
    inventory,
)

LIST_KEY = "backups/foo/foo-volumesnapshots.json.gz"
ARCHIVE = "backups/foo/foo.tar.gz"
NAMES = ("snap-1", "snap-2", "snap-3")


class KilledError(Exception):
    """The process is gone."""


class World:
    """Snapshots, files, restores, the record, its requests; ``script`` says what goes wrong with a thing, in order."""

    def __init__(self, script=None, *, kill_after=None):
        self.snapshots = set(NAMES)
        self.files = {METADATA_KEY, LIST_KEY, ARCHIVE, "restores/r1/log", "backups/bar/velero-backup.json"}
        self.restores = {"r1"}
        self.record = a_backup(snapshots_completed=len(NAMES))
        self.requests = {name: a_request(name) for name in ("foo-a", "foo-b")}
        self.requests["stale"] = a_request("stale", uid="uid-old", phase=RequestPhase.PROCESSED)
        self.script = {thing: list(outcomes) for thing, outcomes in (script or {}).items()}
        self.kill_after = kill_after
        self.effects = 0

    # Effects: each is one step of the process, after which it may be killed

    def effect(self):
        self.effects += 1
        self.check()
        if self.effects == self.kill_after:
            raise KilledError

    def check(self):
        """What must hold at every moment: the pointer outlives the thing it points at."""
        assert not self.snapshots or LIST_KEY in self.files, "a live snapshot whose list is gone"
        own = {key for key in self.files if key.startswith("backups/foo/")}
        assert not own or METADATA_KEY in own, "files whose metadata is gone"
        assert not (own or self.restores or self.snapshots) or self.record, "things whose record is gone"
        assert not self.record or {"foo-a", "foo-b"} & set(self.requests), "a record whose requests are gone"
        assert "backups/bar/velero-backup.json" in self.files, "another backup's file is gone"

    def remove(self, things, thing):
        """Delete one thing, unless the script says otherwise; an outcome that repeats is scripted as a tuple."""
        scripted = self.script.get(thing, [])
        if scripted:
            return scripted[0] if len(scripted) == 1 and scripted[0] in FOR_EVER else scripted.pop(0)
        if thing not in things:
            return AlreadyGone()
        things.remove(thing)
        self.effect()
        return Done()

    def remove_files(self, prefix, spare=""):
        keys = sorted(key for key in self.files if key.startswith(prefix) and key != spare)
        parts = {key: self.remove(self.files, key) for key in keys}
        return combined(parts), not any(is_gone(outcome) for outcome in parts.values())

    def apply(self, step):
        match step:
            case DeleteSnapshot(id=snapshot):
                return StepResult(step, self.remove(self.snapshots, snapshot))
            case DeleteRestore(ref=ref, prefix=prefix):
                files, intact = self.remove_files(prefix)
                outcome = self.remove(self.restores, ref.name) if is_gone(files) else files
                return StepResult(step, outcome, intact)
            case DeleteFiles(prefix=prefix, spare=spare):
                return StepResult(step, *self.remove_files(prefix, spare))
            case DeleteFile(key=key):
                return StepResult(step, self.remove(self.files, key))
            case DeleteObject():
                self.record = None
                self.effect()
                return StepResult(step, Done())
            case EndRequest(ref=ref):
                del self.requests[ref.name]
                self.effect()
                return StepResult(step, Done())

    def write(self, request, **changes):
        """Write a request, if that changes it."""
        changed = evolve(request, **changes)
        if changed != self.requests[request.meta.name]:
            self.requests[request.meta.name] = changed
            self.effect()
        return changed

    def note(self, state):
        """Say on the record how far its deletion has come, and that it is Deleting, in one write."""
        if self.record and deletion_of(self.record) != state:
            self._write_record("Deleting", {DELETION: write_state(state)})

    def give_back(self, phase):
        """Give the record its phase back, and take the note off, in one write."""
        if self.record and phase is not None and deletion_of(self.record).uid:
            self._write_record(phase, {})

    def _write_record(self, phase, notes):
        self.record = evolve(self.record, phase=phase, meta=evolve(self.record.meta, annotations=notes))
        self.effect()

    # What can be seen of the world

    def gather(self, request):
        has_list = LIST_KEY in self.files
        seen = facts(
            request=request,
            backup=self.record or Absent(),
            location=a_location(),
            directory=Directory(MetadataPresent(STARTED) if METADATA_KEY in self.files else MetadataAbsent()),
            snapshot_locations=[a_snapshot_location()],
            restores=[a_restore(name) for name in self.restores],
            siblings=[r for r in self.requests.values() if r.meta.name != request.meta.name],
        )
        found = [a_snapshot(name) for name in NAMES] if has_list else []
        return seen, inventory(*found, troubles=[] if has_list else [ListAbsent(LIST_KEY)])

    def state(self):
        """The end state, but for the counters of how often it was tried."""
        requests = {name: (request.phase.value, request.errors) for name, request in self.requests.items()}
        return (self.snapshots, self.files, self.restores, self.record and self.record.phase, requests)


FOR_EVER = (Denied("may not"), Invalid("malformed"), InUse("an image uses it"))


def one_pass(world, now):
    """gather -> decide -> apply -> record; gives the time to come back at, or None when all requests have ended."""
    match elect(world.requests.values(), world.record or Absent()):
        case Working(request):
            seen, found = world.gather(request)
            match admit(seen, found, now=now):
                case Refused(message=message):
                    world.give_back(phase_after_refusal(seen))
                    world.write(request, phase=RequestPhase.PROCESSED, errors=(message,))
                    return now
                case Deferred(until=until):
                    return until
                case Admitted():
                    return carry_out(world, seen, found, now)
    return None


def enter(world, seen, stage):
    """What a stage must find noted if it is cut off."""
    if stage.name == BUCKET_STAGE:
        world.note(evolve(deletion_of(seen.backup), stage=BUCKET_STAGE))
    if stage.name == RECORD_STAGE:
        for sibling, noted in unnoted_siblings(seen):
            world.write(sibling, state=noted)


def carry_out(world, seen, found, now):
    state = begin(seen, now=now)
    request = world.write(seen.request, phase=RequestPhase.IN_PROGRESS, state=state)
    world.note(state)
    deletion = plan(seen, found)
    for stage in deletion.stages:
        seen = evolve(seen, request=request, backup=world.record or Absent())
        enter(world, seen, stage)
        results = [world.apply(step) for step in stage.steps]
        outcomes = StageOutcomes(deletion, stage, results)
        seen = evolve(seen, backup=seen.backup if world.record is None else world.record)
        match settle(seen, outcomes, now=now, limits=LIMITS):
            case Next():
                continue
            case Completed():
                return now
            case Retry(at, errors, state):
                world.note(state)
                world.write(request, errors=errors, state=state)
                return at
            case Failed(errors, state, phase, left):
                world.give_back(phase)
                if phase is None:
                    world.note(left)
                for other in siblings_of_one_backup(seen):
                    world.write(other, phase=RequestPhase.PROCESSED, errors=errors)
                world.write(request, phase=RequestPhase.PROCESSED, errors=errors, state=state)
                return now
    raise AssertionError("the last stage came to nothing")


def run(world):
    """Run until every request has ended; a killed process starts again."""
    now = NOW
    for _ in range(100):
        try:
            again = one_pass(world, now)
        except KilledError:
            continue
        if again is None:
            return world
        now = max(now, again)
    raise AssertionError("it never ends")


ENDED = (set(), {"backups/bar/velero-backup.json"}, set(), None, {"stale": ("Processed", ())})

STORIES = {
    "all-is-well": {},
    "passing-trouble": {"snap-2": [Retryable(message="slow"), Unknown("?")], ARCHIVE: [InUse("x"), Pending()]},
    "slow-cloud": {"snap-1": [Pending(timedelta(seconds=9))] * 7, "r1": [Pending(), Pending()]},
    "may-not-delete-one-snapshot": {"snap-2": [Denied("may not")]},
    "may-not-delete-any-snapshot": {name: [Denied("may not")] for name in NAMES},
    "one-snapshot-in-use-for-ever": {"snap-3": [InUse("an image uses it")]},
    "may-not-delete-a-restores-file": {"restores/r1/log": [Denied("may not")]},
    "may-not-delete-any-file": {ARCHIVE: [Denied("may not")], LIST_KEY: [Denied("may not")]},
    "may-not-delete-one-file": {ARCHIVE: [Denied("may not")]},
    "may-not-delete-the-metadata": {METADATA_KEY: [Denied("may not")]},
}


def transient(story):
    return all(outcome not in FOR_EVER for outcomes in STORIES[story].values() for outcome in outcomes if outcomes)


@pytest.mark.parametrize("story", ["all-is-well", "gone-already", "slow-cloud"])
def test_a_deletion_ends_with_nothing_left(story):
    """Done: nothing is left of the backup, another backup and another UID's request are as they were."""
    world = World({} if story == "gone-already" else STORIES[story])
    if story == "gone-already":
        world.snapshots.remove("snap-1")

    assert run(world).state() == ENDED


def test_passing_trouble_passes():
    assert (
        run(World({"snap-2": [Retryable(message="slow"), Unknown("?")], ARCHIVE: [Pending(), InUse("x")]})).state()
        == ENDED
    )


@pytest.mark.parametrize("story", [pytest.param(story, id=story) for story in STORIES if story != "gone-already"])
def test_killed_after_any_effect_it_ends_in_the_same_state(story):
    """Kill the process after any single effect, start again: the end state is the same and nothing leaks."""
    whole = run(World(STORIES[story]))
    assert whole.effects >= 5

    for moment in range(1, whole.effects + 1):
        killed = run(World(STORIES[story], kill_after=moment))

        assert killed.state() == whole.state(), f"killed after effect {moment} of {whole.effects}"


@pytest.mark.parametrize(
    ("story", "phase", "snapshots", "left"),
    [
        pytest.param("may-not-delete-any-snapshot", "Completed", 3, True, id="nothing-destroyed"),
        pytest.param("one-snapshot-in-use-for-ever", "Deleting", 1, True, id="two-snapshots-destroyed"),
        pytest.param("may-not-delete-a-restores-file", "Deleting", 0, True, id="snapshots-destroyed"),
        pytest.param("may-not-delete-the-metadata", "Deleting", 0, True, id="files-destroyed"),
    ],
)
def test_what_is_left_of_a_failed_deletion(story, phase, snapshots, left):
    """Then Processed with what is left; every request of that UID ends, the record and its lists stay."""
    world = run(World(STORIES[story]))

    assert (world.record.phase, len(world.snapshots), METADATA_KEY in world.files) == (phase, snapshots, left)
    assert {r.phase for r in world.requests.values()} == {RequestPhase.PROCESSED}
    assert world.requests["foo-b"].errors == world.requests["foo-a"].errors != ()


def test_asked_again_it_takes_what_was_left():
    """After the cause is mended a new request deletes the rest, from whatever the failed one left."""
    for script in STORIES.values():
        world = run(World(script))
        world.script = {}
        world.requests["foo-c"] = a_request("foo-c")
        if world.record:
            run(world)
            assert (world.snapshots, world.record) == (set(), None)


OUTCOMES = st.lists(st.sampled_from([Retryable(), Pending(), Unknown("?"), InUse("x")]), max_size=2)
THINGS = [*NAMES, ARCHIVE, LIST_KEY, METADATA_KEY, "restores/r1/log", "r1"]


@given(st.dictionaries(st.sampled_from(THINGS), OUTCOMES), st.integers(1, 30))
def test_whatever_goes_wrong_for_a_while_and_whenever_it_is_killed(script, moment):
    """Any mix of passing trouble, killed once at any moment: either all is gone, or the requests say what is left."""
    world = run(World(script, kill_after=moment))

    if world.record is None:
        assert world.state() == ENDED
    else:
        assert {r.phase for r in world.requests.values()} == {RequestPhase.PROCESSED}
        assert all(request.errors for name, request in world.requests.items() if name != "stale")
