"""Whoever may create a DeleteBackupRequest writes its phase and its state too: nothing of that is believed."""

import json

import pytest

from reprieve.core.backups import ENDED
from reprieve.core.outcomes import Denied, InUse
from tests.security.at_work import running
from tests.unit.overtime import DAY, HOUR, NOW, files_of, location
from tests.unit.test_deletion_controller import (
    LIST,
    METADATA,
    REQUEST,
    STATE,
    Scene,
    a_record,
    ask,
    deleting,
    untouched,
)

NEVER = "9999-12-31T23:59:59Z"
CLAIMS = STATE | {"firstAttempt": "0001-01-01T00:00:00Z", "nextAttempt": NEVER, "attempts": 4, "previousPhase": "New"}


def forged(name="forged", **state):
    """A request that says of itself that it is at work, as its maker likes."""
    claims = CLAIMS | {"request": f"uid-of-{name}"} | state
    return ask(name, phase="InProgress", state=claims, at=NOW - HOUR / 2)


def ends(scene):
    """How each request ended, by the events about it."""
    return {event.ref.name: event.reason for event in scene.events.events}


@pytest.mark.parametrize("reason", ["Retrying", "Locked", "Held", "Pending", "x"])
def test_a_forged_in_progress_neither_goes_first_nor_holds_others_up(reason):
    """A request that its maker had marked as at work went before all others, and paused until the year 9999."""
    scene = Scene(ask("honest", at=NOW - 2 * HOUR), forged(reason=reason))
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: not scene.names(REQUEST))
    assert ends(scene) == {"honest": "Completed"}
    assert (scene.names(), scene.left(), scene.files()) == (set(), set(), set())


@pytest.mark.parametrize("phase", ["New", "InProgress", "Processed"])
def test_a_forged_stage_does_not_leak_the_snapshots(phase):
    """The list is lost, so nobody knows the snapshots: a ``stage`` that a hand had written let the files go.

    Then the record went too, and with it the last word of two snapshots that are paid for ever after.
    """
    lie = ask("lie", phase=phase, state=STATE | {"request": "uid-of-lie", "stage": "bucketFiles"}, at=NOW - 2 * HOUR)
    scene = Scene(lie, ask("honest"))
    del scene.stores.buckets["b"][LIST]
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: scene.request("honest")[0] == "Processed")
    assert ends(scene)["honest"] == "ListMissing"
    assert (scene.left(), scene.phase(), METADATA in scene.files()) == ({"snap-1", "snap-2"}, "Completed", True)


@pytest.mark.parametrize("lie", ["New", "InProgress", "", "FailedValidation", "no such phase"])
@pytest.mark.parametrize("phase", ["Deleting", "Completed"])
def test_a_forged_phase_is_not_given_to_the_backup(phase, lie):
    """A refused deletion gave back the phase that the request named, ``New``, and Velero ran the old backup again."""
    places = [location(read_only=True)]
    scene = Scene(
        forged(previousPhase=lie, reason="Retrying", nextAttempt=None), backup=a_record(phase=phase), places=places
    )
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: scene.request("forged")[0] == "Processed")
    assert scene.phase() == phase


def test_what_nothing_was_taken_from_gets_back_what_it_was_and_nothing_that_is_no_end():
    """A deletion that may not delete gives the phase back; that of a backup at work is not one to go back to."""
    for phase, after in [*((ended, ended) for ended in sorted(ENDED)), ("New", "Deleting"), ("InProgress", "Deleting")]:
        even = ask("ask", annotations={"reprieve.dev/even-in-progress": "true"}, state=CLAIMS)
        scene = Scene(even, backup=a_record(phase=phase, snapshots=("snap-1", "snap-2")))
        scene.snapshots.outcomes = {each: [Denied("no")] for each in ("snap-1", "snap-2")}
        with running(scene, "deletion") as cluster:
            assert cluster.until(lambda scene=scene: scene.request()[0] == "Processed")
        assert (scene.phase(), scene.left()) == (after, {"snap-1", "snap-2"})


def test_an_empty_phase_that_is_given_back_is_one_that_an_api_server_takes():
    """``phase: ""`` is no value of the CRD: the patch was refused, and the deletion begun again, for ever."""
    even = ask("ask", annotations={"reprieve.dev/even-in-progress": "true"})
    scene = Scene(even, backup=a_record(phase="", snapshots=("snap-1",)), snapshots=("snap-1",))
    scene.snapshots.outcomes = {"snap-1": [Denied("no")]}
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: scene.request()[0] == "Processed")
    assert "phase" not in scene.get("nightly").section("status")
    assert scene.noted() is None


def test_a_forged_time_postpones_nothing():
    """``nextAttempt`` in the year 9999 kept a deletion waiting; ``attempts`` and ``firstAttempt`` ended it at once."""
    scene = Scene(forged(reason="Retrying"))
    scene.snapshots.outcomes = {"snap-1": [InUse("an image uses it")]}
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: scene.request("forged")[1])
        assert (scene.noted()["attempts"], scene.request("forged")[0]) == (1, "InProgress")
        scene.change("forged", {"metadata": {"annotations": {"reprieve.dev/state": json.dumps(CLAIMS)}}}, REQUEST)
        scene.now = NOW + DAY
        scene.annotate("nightly", touched="yes")
        assert cluster.until(lambda: not scene.names(REQUEST))
    assert (scene.names(), scene.left()) == (set(), set())


def test_with_the_record_gone_a_forged_request_ends_only_itself():
    """The record was lost and its data is there. A request that named an empty location "completed" the deletion.

    It took the honest requests along, which nobody had answered; one that named a location that is down held them up.
    """
    scene = Scene(
        forged("elsewhere", location="empty", bucket="nothing"),
        forged("down", location="down", bucket="b"),
        forged("here"),
        forged("moved", location="default", bucket="nothing"),
        forged("nowhere", location="no such"),
        ask("honest"),
        ask("honest-too", state={"uid": "uid-of-nightly", "request": "uid-of-down"}),
        places=[location(), location("empty", bucket="nothing"), location("down", available=False)],
    )
    scene.stores.buckets["nothing"] = {}
    scene.vanish("nightly")
    before = scene.files()
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: len(ends(scene)) == 5)
    assert ends(scene) == {
        "elsewhere": "Completed",
        "here": "RecordVanished",
        "moved": "LocationMoved",
        "nowhere": "LocationNotFound",
        "honest": "BackupNotFound",
    }
    assert scene.request("honest")[1] == ["backup not found"]
    assert (scene.files(), scene.left(), scene.names("Restore")) == (before, {"snap-1", "snap-2"}, {"r1"})


@pytest.mark.parametrize("phase", ["Deleting", "Completed"])
def test_a_note_that_was_copied_counts_for_nothing(phase):
    """A Backup that was made again from a copy carries the note of the old one's deletion, among its files by then."""
    note = STATE | {"uid": "uid-of-the-old", "stage": "bucketFiles", "nextAttempt": NEVER, "reason": "Retrying"}
    copy = a_record(
        phase=phase, snapshots=("snap-1", "snap-2"), annotations={"reprieve.dev/deletion": json.dumps(note)}
    )
    scene = Scene(forged("ask"), backup=copy)
    del scene.stores.buckets["b"][LIST]
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: scene.request()[0] == "Processed")
    assert ends(scene) == {"ask": "ListMissing"}
    assert (scene.left(), scene.phase()) == ({"snap-1", "snap-2"}, phase)


def test_a_note_in_a_bucket_does_not_come_back_with_the_record():
    """Whoever may write to the bucket writes a Backup that says that it is being deleted, by whom he likes."""
    scene = Scene()
    scene.vanish("nightly")
    scene.stores.buckets["b"] |= files_of(deleting(stage="bucketFiles"), snapshots=("snap-1", "snap-2"))
    with running(scene, "sync") as cluster:
        assert cluster.until(lambda: "nightly" in scene.names())
    assert scene.noted() is None


def test_an_honest_deletion_is_still_one():
    """The same request with the same words, for a backup of which the Backup itself says so, goes on where it was."""
    scene = Scene(ask("ask", phase="InProgress", state=STATE), backup=deleting(previousPhase="Completed"))
    with running(scene, "deletion") as cluster:
        assert cluster.until(lambda: not scene.names(REQUEST))
    assert (scene.names(), scene.left(), untouched(Scene())) == (set(), set(), True)
