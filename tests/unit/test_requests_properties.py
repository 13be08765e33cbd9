"""What holds for every request, whatever the world looks like: the design's invariants on admit, plan and settle."""

import json
from collections import Counter
from datetime import timedelta

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.backups import (
    DELETION,
    EVEN_IN_PROGRESS,
    METADATA_FILE,
    STATE,
    UNFINISHED,
    CsiContent,
    DataMoverItem,
    Directory,
    DirectoryUnreadable,
    ListAbsent,
    ListCorrupt,
    MetadataAbsent,
    MetadataCorrupt,
    MetadataPresent,
    RepositorySnapshot,
    RequestPhase,
    RequestState,
    read_state,
    write_state,
)
from reprieve.core.holds import HOLD, HOLD_UNTIL
from reprieve.core.outcomes import (
    AlreadyGone,
    Conflict,
    ContainerMissing,
    Denied,
    Done,
    InUse,
    Invalid,
    Locked,
    Pending,
    Retryable,
    Unknown,
    is_gone,
)
from reprieve.core.reasons import Reason
from reprieve.core.requests import (
    BACKOFF_LAST,
    Absent,
    Admitted,
    Completed,
    Deferred,
    DeletionFacts,
    DeletionLimits,
    Failed,
    Next,
    Refused,
    Retry,
    StageOutcomes,
    admit,
    backoff,
    begin,
    elect_all,
    phase_after_refusal,
    plan,
    postpone,
    settle,
    siblings_of_one_backup,
    state_of,
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
from reprieve.core.values import to_plain
from tests.unit.builders import (
    ASKED,
    LIMITS,
    NOW,
    STARTED,
    UID,
    a_backup,
    a_location,
    a_request,
    a_restore,
    a_snapshot,
    a_snapshot_location,
    facts,
    inventory,
)
from tests.unit.strategies import INSTANTS, JSON, values

UIDS = st.sampled_from([UID, UID, UID, "", "uid-old"])
PHASES = st.sampled_from(
    ["Completed", "Completed", "Deleting", "Failed", "PartiallyFailed", "", "InProgress", "nonsense"]
)
TIMES = st.sampled_from([None, STARTED - timedelta(days=1), STARTED, ASKED, NOW])
NOTES = st.dictionaries(
    st.sampled_from([HOLD, HOLD_UNTIL, EVEN_IN_PROGRESS]),
    st.sampled_from(["true", "audit", "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z", ""]),
    max_size=2,
)
STATE_DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "uid": UIDS,
        "location": st.just("default"),
        "bucket": st.sampled_from(["bucket", "other"]),
        "prefix": st.just(""),
        "previousPhase": PHASES,
        "firstAttempt": st.sampled_from(["2024-04-04T11:59:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]),
        "attempts": st.integers(-1, 9),
        "nextAttempt": st.sampled_from(["2024-04-04T11:59:00Z", "9999-12-31T23:59:59Z"]),
        "stage": st.sampled_from(["bucketFiles", "snapshots"]),
        "reason": st.sampled_from(["Retrying", "Pending", "Locked", "Held", "x"]),
        "request": st.sampled_from(["uid-foo-a", "uid-foo-b", "uid-foo-abcde"]),
    },
)
REQUESTS = st.builds(
    lambda name, uid, created, notes, phase, document: a_request(
        name, uid=uid, created=created, annotations=notes, phase=phase, state=read_state({STATE: json.dumps(document)})
    ),
    st.sampled_from(["foo-a", "foo-b", "foo-c", "foo-d"]),
    UIDS,
    TIMES,
    NOTES,
    st.sampled_from([RequestPhase.NEW, RequestPhase.IN_PROGRESS]),
    STATE_DOCUMENTS,
)
DELETIONS = st.builds(
    lambda document, request: {DELETION: json.dumps({**document, "request": request})},
    STATE_DOCUMENTS,
    st.sampled_from(["uid-foo-a", "uid-foo-b", "uid-foo-abcde", "uid-gone", ""]),
)
BACKUPS = st.builds(
    lambda phase, started, notes, deletion, native, csi: a_backup(
        phase=phase,
        started=started,
        annotations={**notes, **deletion},
        snapshots_completed=native,
        csi_snapshots_completed=csi,
    ),
    PHASES,
    st.sampled_from([STARTED, STARTED, None]),
    NOTES,
    st.just({}) | DELETIONS,
    st.integers(0, 1),
    st.integers(0, 1),
)
LOCATIONS = st.sampled_from(
    [a_location(), a_location(), a_location(), a_location(read_only=True), a_location(available=False), Absent()]
)
METADATA = st.sampled_from(
    [MetadataPresent(STARTED), MetadataPresent(STARTED), MetadataPresent(NOW), MetadataAbsent(), MetadataCorrupt("x")]
)
DIRECTORIES = st.builds(Directory, METADATA, NOTES) | st.just(DirectoryUnreadable("no answer"))
RESTORES = st.lists(
    st.builds(
        a_restore,
        st.sampled_from(["r1", "r2", "r3"]),
        backup=st.sampled_from(["foo", "bar"]),
        phase=st.sampled_from(["Completed", "Completed", "InProgress"]),
    ),
    unique_by=lambda restore: restore.ref.name,
)
SNAPSHOTS = st.lists(
    st.builds(
        a_snapshot,
        st.sampled_from(["s1", "s2", "s3", ""]),
        location=st.sampled_from(["vsl-1", "vsl-2"]),
        zone=st.sampled_from(["", "us-east-1a", "eu-west-1a", "us-west-2a"]),
    ),
    max_size=5,
)
OTHERS = st.lists(
    st.sampled_from(
        [CsiContent("c"), RepositorySnapshot("r", "kopia"), RepositorySnapshot("", "kopia"), DataMoverItem("d")]
    ),
    max_size=1,
)
TROUBLES = st.lists(
    st.sampled_from(
        [ListCorrupt("a", "x"), ListCorrupt("a", "y"), ListCorrupt("b", "x"), ListAbsent("a"), ListAbsent("b")]
    ),
    max_size=3,
)
WELL = st.builds(lambda items: inventory(*items), SNAPSHOTS)
ILL = st.builds(
    lambda items, others, troubles: inventory(*items, *others, troubles=troubles), SNAPSHOTS, OTHERS, TROUBLES
)
INVENTORIES = st.one_of(WELL, WELL, ILL)
ODDITIES = {
    "request": REQUESTS,
    "backup": st.one_of(st.just(Absent()), BACKUPS, BACKUPS),
    "location": LOCATIONS,
    "directory": DIRECTORIES,
    "restores": RESTORES,
    "siblings": st.lists(REQUESTS, unique_by=lambda request: request.meta.name, max_size=3),
    "handlers": st.sampled_from([{"aws", "gcp"}, {"aws"}]),
}
REGIONS = [a_snapshot_location("vsl-1", region="us-east-1"), a_snapshot_location("vsl-2", provider="gcp")]
SOUND = {"snapshot_locations": REGIONS, "handlers": {"aws", "gcp"}, "restores": [a_restore("r1"), a_restore("r2")]}
WORLDS = (
    st.sets(st.sampled_from(sorted(ODDITIES)), max_size=3)
    .flatmap(lambda odd: st.fixed_dictionaries({name: ODDITIES[name] for name in sorted(odd)}))
    .map(lambda odd: facts(**{**SOUND, **odd}))
)
"""All is well but for up to three things: most worlds reach the end of admission."""
OUTCOMES = st.sampled_from(
    [
        Done(),
        AlreadyGone(),
        Pending(),
        Retryable(timedelta(seconds=40), "slow"),
        Conflict("c"),
        InUse("i"),
        Unknown("u"),
        Locked(None, "l"),
        Locked(NOW, "l"),
        Denied("d"),
        Invalid("v"),
        ContainerMissing("b"),
    ]
)


def plain_bytes(value):
    return json.dumps(to_plain(value), sort_keys=True)


def admitted(world, found):
    return isinstance(admit(world, found, now=NOW), Admitted)


def test_the_worlds_reach_every_answer():
    """The properties below would hold for worlds that are all refused at the door."""
    reached = Counter()

    @given(WORLDS, INVENTORIES)
    def look(world, found):
        reached[type(admit(world, found, now=NOW))] += 1

    look()
    assert min(reached[answer] for answer in (Admitted, Deferred, Refused)) >= 10


# Invariant 7: decisions do not depend on the order of input


@given(WORLDS, INVENTORIES, st.randoms(use_true_random=False))
def test_the_order_of_input_does_not_matter(world, found, dice):
    """The same facts give the same decision and the same bytes."""

    def shuffled(items):
        return dice.sample(items, len(items))

    other = evolve(
        world,
        restores=shuffled(world.restores),
        siblings=shuffled(world.siblings),
        snapshot_locations=shuffled(world.snapshot_locations),
    )
    mixed = evolve(found, items=shuffled(found.items), troubles=shuffled(found.troubles))

    assert plain_bytes(admit(world, found, now=NOW)) == plain_bytes(admit(other, mixed, now=NOW))
    assert plain_bytes(plan(world, found)) == plain_bytes(plan(other, mixed))
    for backup in (world.backup, Absent()):
        assert plain_bytes(elect_all(world.siblings, backup)) == plain_bytes(elect_all(other.siblings, backup))


@given(st.lists(OUTCOMES, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_results_does_not_matter(outcomes, dice):
    world = facts()
    deletion = plan(world, inventory(*(a_snapshot(f"s{n}") for n in range(len(outcomes)))))
    stage = deletion.stages[0]
    results = [StepResult(step, outcome) for step, outcome in zip(stage.steps, outcomes, strict=False)]
    answers = {
        plain_bytes(settle(world, StageOutcomes(deletion, stage, order), now=NOW, limits=LIMITS))
        for order in (results, dice.sample(results, len(results)))
    }

    assert len(answers) == 1


# Invariant 1: only under a valid, UID-bound request


@given(WORLDS, INVENTORIES)
def test_only_a_request_for_this_uid_is_admitted(world, found):
    """A snapshot is deleted only under a valid, UID-bound request."""
    if admitted(world, found) and not isinstance(world.backup, Absent):
        made, asked = world.backup.meta.created, world.request.meta.created

        assert {world.request.bound_uid, world.request.state.uid} <= {"", UID}
        assert world.request.bound_uid == UID or asked is None or asked >= made
        assert world.backup.phase not in UNFINISHED or world.request.meta.annotations[EVEN_IN_PROGRESS] == "true"


@given(WORLDS, INVENTORIES)
def test_a_plan_touches_nothing_but_what_belongs_to_the_backup(world, found):
    uids = {r.ref for r in siblings_of_one_backup(world)} | {world.request.ref}
    for step in (step for stage in plan(world, found).stages for step in stage.steps):
        match step:
            case DeleteSnapshot(id=snapshot, location=location):
                assert any((s.id, s.location) == (snapshot, location) for s in found.items if hasattr(s, "zone"))
            case DeleteRestore(ref=ref):
                assert any(r.ref == ref and r.backup == world.request.backup for r in world.restores)
            case DeleteFiles(prefix=prefix):
                assert prefix == "backups/foo/"
            case DeleteFile(key=key):
                assert key == f"backups/foo/{METADATA_FILE}"
            case DeleteObject(ref=ref):
                assert ref == world.backup.ref
            case EndRequest(ref=ref):
                assert ref in uids
            case _:
                pytest.fail(f"{step} has no business in the deletion of a backup")


# Invariant 2: no observation that failed or is partial leads to a deletion


@given(WORLDS, INVENTORIES)
def test_what_could_not_be_read_is_never_admitted(world, found):
    unread = isinstance(world.directory, DirectoryUnreadable) or isinstance(world.directory.metadata, MetadataCorrupt)
    corrupt = any(isinstance(trouble, ListCorrupt) for trouble in found.troubles)
    if unread:
        assert not admitted(world, found)
    if corrupt and admitted(world, found):
        assert isinstance(plan(world, found).stages[0].steps[0], DeleteObject | EndRequest)


@given(WORLDS, INVENTORIES)
def test_data_that_no_step_deletes_is_never_admitted(world, found):
    """Half a deletion orphans the other half."""
    if admitted(world, found) and not isinstance(world.backup, Absent):
        assert not any(isinstance(item, CsiContent | DataMoverItem) for item in found.items)
        assert not any(isinstance(item, RepositorySnapshot) and item.id for item in found.items)


# Invariant 6: a held thing is never deleted


@given(WORLDS, INVENTORIES, st.sampled_from(["", "x", "2024-04-04T12:00:01Z", "2024-04-04T12:00:00"]))
def test_held_is_never_admitted(world, found, until):
    hold = {HOLD: "audit", HOLD_UNTIL: until}
    if not isinstance(world.backup, Absent):
        held = evolve(world, backup=evolve(world.backup, meta=evolve(world.backup.meta, annotations=hold)))
        assert not admitted(held, found)
    if isinstance(world.directory, Directory):
        assert not admitted(evolve(world, directory=evolve(world.directory, hold=hold)), found)


# Invariant 4: a record goes only after everything that it points at


RANK = {DeleteSnapshot: 0, DeleteRestore: 1, DeleteFiles: 2, DeleteFile: 3, DeleteObject: 4, EndRequest: 5}


@given(WORLDS, INVENTORIES)
def test_the_pointer_outlives_the_thing_it_points_at(world, found):
    """No plan has a stage that removes a record before what it points at."""
    stages = plan(world, found).stages
    ranks = [{RANK[type(step)] for step in (*stage.steps, *(d.step for d in stage.decided))} for stage in stages]

    assert all(len(rank) == 1 for rank in ranks)
    assert ranks == sorted(ranks, key=max)
    assert stages[-1].steps == (EndRequest(world.request.ref),)


@given(WORLDS, INVENTORIES)
def test_what_a_plan_leaves_out_it_does_not_own(world, found):
    """An admitted deletion of a record takes all its snapshots and files along, unless they are another backup's."""
    if admitted(world, found) and not isinstance(world.backup, Absent):
        steps = [s for stage in plan(world, found).stages for s in (*stage.steps, *(d.step for d in stage.decided))]
        own = not (
            isinstance(world.directory.metadata, MetadataPresent)
            and world.backup.started != world.directory.metadata.started
        )
        planned = {(s.location, s.id) for s in steps if isinstance(s, DeleteSnapshot)}

        assert planned == ({(s.location, s.id) for s in found.items if hasattr(s, "zone") and s.id} if own else set())
        assert any(isinstance(s, DeleteFiles) for s in steps) is own


# Settling


@given(st.lists(OUTCOMES, min_size=1, max_size=4), st.integers(0, 4))
def test_only_what_is_gone_lets_the_next_stage_start(outcomes, tried):
    """Unknown and failed outcomes never let the next stage start, nor does a step that nobody tried."""
    world = facts()
    deletion = plan(world, inventory(*(a_snapshot(f"s{n}") for n in range(len(outcomes)))))
    stage = deletion.stages[0]
    results = [StepResult(step, outcome) for step, outcome in zip(stage.steps, outcomes, strict=True)][:tried]
    answer = settle(world, StageOutcomes(deletion, stage, results), now=NOW, limits=LIMITS)

    gone = len(results) == len(outcomes) and all(map(is_gone, outcomes))
    assert isinstance(answer, Next | Completed) == gone


def noted(world, state):
    """The world once the Backup says so of its deletion."""
    meta = evolve(world.backup.meta, annotations={DELETION: write_state(state)})
    return evolve(world, backup=evolve(world.backup, phase="Deleting", meta=meta))


@given(
    st.lists(st.tuples(OUTCOMES, st.timedeltas(timedelta(0), timedelta(minutes=9))), min_size=1, max_size=40),
    st.integers(1, 6),
    st.timedeltas(timedelta(minutes=1), timedelta(hours=2)),
)
def test_attempts_and_deadline_are_kept(passes, attempts, deadline):
    """Up to the attempts and the deadline of the configuration: never one more."""
    limits, now, tried = DeletionLimits(attempts, deadline), NOW, 0
    world = noted(facts(), begin(facts(), now=now))
    deletion = plan(world, inventory(a_snapshot()))
    for outcome, late in passes:
        world = noted(world, begin(world, now=now))
        results = [StepResult(deletion.stages[0].steps[0], outcome)]
        answer = settle(world, StageOutcomes(deletion, deletion.stages[0], results), now=now, limits=limits)
        if not isinstance(answer, Retry):
            break
        tried += isinstance(outcome, Retryable | Conflict | InUse | Unknown)
        assert answer.state.attempts == tried < attempts
        assert answer.at >= now
        if answer.reason == "Retrying":
            assert answer.at - answer.state.first_attempt <= deadline
        world = noted(world, answer.state)
        now = answer.at + late
    if isinstance(answer, Failed):
        assert answer.state.attempts <= attempts


@given(st.text(max_size=40), st.integers(1, 200))
def test_backoff_is_bounded_and_grows_up_to_its_jitter(uid, attempt):
    pause = backoff(uid, attempt)

    assert timedelta(seconds=24) <= pause <= BACKOFF_LAST
    assert backoff(uid, attempt + 1) >= pause * 0.8


# Hostile input


@given(values(DeletionFacts), INVENTORIES)
def test_no_facts_make_admission_raise(world, found):
    """Hostile names, labels, annotations, spec: an answer, never a traceback."""
    assert isinstance(admit(world, found, now=NOW), Admitted | Deferred | Refused)


@given(
    st.dictionaries(st.sampled_from([STATE, HOLD, HOLD_UNTIL, EVEN_IN_PROGRESS]), st.text(max_size=20), max_size=3),
    st.dictionaries(st.text(max_size=12), JSON) | STATE_DOCUMENTS,
    st.sampled_from(list(RequestPhase)),
    OUTCOMES,
    st.booleans(),
)
def test_no_annotation_makes_a_deletion_raise(notes, document, phase, outcome, gone):
    """A hand may write anything into both notes: reading, beginning, settling and postponing give values."""
    text = json.dumps({"request": "uid-foo-abcde", **document})
    request = a_request(annotations=notes, phase=phase, state=read_state({STATE: text}))
    backup = a_backup(phase="Deleting", annotations={**notes, DELETION: text})
    deletion = plan(facts(request=request, backup=backup), inventory(a_snapshot()))
    world = facts(request=request, backup=Absent() if gone else backup)
    results = [StepResult(deletion.stages[0].steps[0], outcome)]
    answer = settle(world, StageOutcomes(deletion, deletion.stages[0], results), now=NOW, limits=LIMITS)

    assert isinstance(answer, Next | Retry | Failed)
    assert isinstance(begin(world, now=NOW), RequestState)
    assert postpone(state_of(request, world.backup), Deferred(Reason.HELD, NOW)).reason == "Held"


@given(INSTANTS, INSTANTS)
def test_no_instant_makes_settling_raise(first, following):
    world = noted(facts(), evolve(begin(facts(), now=NOW), first_attempt=first, next_attempt=following))
    deletion = plan(world, inventory(a_snapshot()))
    results = [StepResult(deletion.stages[0].steps[0], InUse())]

    assert isinstance(
        settle(world, StageOutcomes(deletion, deletion.stages[0], results), now=NOW, limits=LIMITS), Retry | Failed
    )


# A forged state


@given(WORLDS, INVENTORIES, OUTCOMES)
def test_what_a_request_says_of_itself_decides_nothing(world, found, outcome):
    """Phase and state are its own to write: with an honest one in its place all answers are the same.

    But for the UID, by which it may ask for another backup, and so be refused.
    """
    if isinstance(world.backup, Absent) or world.request.state.uid not in {"", world.request.bound_uid}:
        return
    state = RequestState(uid=world.request.state.uid)
    honest = evolve(world, request=evolve(world.request, state=state, phase=RequestPhase.NEW))
    deletion = plan(world, found)
    outcomes = StageOutcomes(deletion, deletion.stages[0], [StepResult(s, outcome) for s in deletion.stages[0].steps])

    assert plain_bytes(admit(world, found, now=NOW)) == plain_bytes(admit(honest, found, now=NOW))
    assert plain_bytes(begin(world, now=NOW)) == plain_bytes(begin(honest, now=NOW))
    assert plain_bytes(plan(world, found)) == plain_bytes(plan(honest, found))
    assert phase_after_refusal(world) == phase_after_refusal(honest)
    assert plain_bytes(settle(world, outcomes, now=NOW, limits=LIMITS)) == plain_bytes(
        settle(honest, outcomes, now=NOW, limits=LIMITS)
    )


@given(WORLDS, INVENTORIES)
def test_with_the_record_gone_a_request_ends_at_most_itself_and_who_says_to_end_with_it(world, found):
    """No file, no snapshot, no restore and nobody else's request, whatever it says of itself."""
    gone = evolve(world, backup=Absent())
    refs = {r.ref for r in gone.siblings if r.state.request == gone.request.meta.uid} | {gone.request.ref}

    if admitted(gone, found):
        steps = [step for stage in plan(gone, found).stages for step in stage.steps]
        assert all(isinstance(step, EndRequest) and step.ref in refs for step in steps)
