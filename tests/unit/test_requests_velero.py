"""Velero's own cases for its deletion controller, as far as they are decisions. Each id is Velero's name for the case.

Where reprieve answers otherwise on purpose, the row says why. The cases about calls to a plugin or to the API server
belong to the adapters.
"""

from datetime import UTC, datetime, timedelta

import pytest

from reprieve.core.backups import (
    DataMoverItem,
    Directory,
    DirectoryUnreadable,
    MetadataAbsent,
    RepositorySnapshot,
    RequestPhase,
    request_for,
)
from reprieve.core.outcomes import Done
from reprieve.core.requests import (
    Absent,
    Admitted,
    Deferred,
    DeletionLimits,
    Next,
    Refused,
    StageOutcomes,
    Working,
    admit,
    elect,
    expired,
    plan,
    settle,
)
from reprieve.core.steps import DeleteFile, DeleteFiles, DeleteRestore, DeleteSnapshot, StepResult, describe
from tests.unit.builders import (
    NOW,
    a_backup,
    a_location,
    a_request,
    a_restore,
    a_snapshot,
    a_snapshot_location,
    facts,
    inventory,
)

LONG = "the-really-long-backup-name-that-is-much-more-than-63-characters"


@pytest.mark.parametrize(
    ("given", "items", "answer", "message"),
    [
        pytest.param(
            {"directory": DirectoryUnreadable("error getting the backup store")},
            (),
            Deferred,  # not Processed: what cannot be reached now may be reached later, and the ask still stands
            "backup storage location default cannot be read: error getting the backup store",
            id="failed to get backup store",
        ),
        pytest.param(
            {"request": a_request(backup="")}, (), Refused, "spec.backupName is required", id="missing spec.backupName"
        ),
        pytest.param(
            # by the backup's phase, not by the memory of one server: it holds for every replica and after a restart
            {"backup": a_backup(phase="InProgress")},
            (),
            Refused,
            "backup is still in progress",
            id="deleting an in progress backup isn't allowed",
        ),
        pytest.param({"backup": Absent()}, (), Refused, "backup not found", id="unable to find backup"),
        pytest.param(
            {"location": Absent()},
            (),
            Refused,
            "backup storage location default not found",
            id="unable to find backup storage location",
        ),
        pytest.param(
            {"location": a_location(read_only=True)},
            (),
            Refused,
            "cannot delete backup because backup storage location default is currently in read-only mode",
            id="backup storage location is in read-only mode",
        ),
        pytest.param(
            {"location": a_location(available=False)},
            (),
            Deferred,  # not Processed: unavailable passes
            "cannot delete backup because backup storage location default is currently in Unavailable state",
            id="backup storage location is in unavailable state",
        ),
        pytest.param(
            {"handlers": ()},
            (a_snapshot(), a_snapshot("snap-2")),
            Refused,
            "2 native snapshots (aws)",  # named by kind and provider, where Velero names a PersistentVolumeProvider
            id="no snapshot service, backup has snapshots",
        ),
        pytest.param(
            {"handlers": (), "without_provider": "the dialect's own words"},
            (a_snapshot(),),
            Refused,
            "the dialect's own words",
            id="no snapshot service, backup has snapshots, in the words of an older dialect",
        ),
        pytest.param(
            {},
            (DataMoverItem("du-1"),),
            Refused,  # Velero without a repository manager skips moved snapshots without a word, and leaks them
            "1 data-mover items (data mover)",
            id="TestDeleteMovedSnapshots: no repository manager",
        ),
    ],
)
def test_velero_answers(given, items, answer, message):
    """Velero's cases that end before any work, with Velero's messages where it has one."""
    decided = admit(facts(**given), inventory(*items), now=NOW)

    assert isinstance(decided, answer)
    assert message in decided.message


@pytest.mark.parametrize(
    "name", [pytest.param("foo", id="full delete, no errors"), pytest.param(LONG, id="greater than 63 chars")]
)
def test_full_delete(name):
    """Full delete: snapshot, r1 and r2, files, record and request go; r3 of another backup stays."""
    given = facts(
        request=a_request(backup=name, uid=""),
        backup=a_backup(name),
        restores=[a_restore("r1", backup=name), a_restore("r2", backup=name), a_restore("r3", backup="other")],
    )
    assert isinstance(admit(given, inventory(a_snapshot()), now=NOW), Admitted)

    deletion = plan(given, inventory(a_snapshot()))
    order = []
    for stage in deletion.stages:
        order += [describe(step) for step in stage.steps]
        outcomes = StageOutcomes(deletion, stage, [StepResult(step, Done()) for step in stage.steps])
        answer = settle(given, outcomes, now=NOW, limits=DeletionLimits())
        assert isinstance(answer, Next) == (stage is not deletion.stages[-1])

    assert order == [
        "snapshot snap-1",
        "restore velero/r1",
        "restore velero/r2",
        f"backup files under backups/{name}/",
        f"backup file backups/{name}/velero-backup.json",
        f"backup velero/{name}",
        "deletebackuprequest velero/foo-abcde",
    ]


def test_existing_deletion_requests_for_the_backup_are_deleted():
    """Velero deletes the other requests at once and forgets what they said; here they wait, and end with this one."""
    request, bar, bar2 = a_request(), a_request("bar"), a_request("bar-2", uid="uid-of-some-other-backup")
    given = facts(request=request, siblings=[bar, bar2])

    assert elect([bar, request], a_backup()) == Working(bar, [request])
    assert [step.ref for step in plan(given, inventory()).stages[-2].steps] == [bar.ref]


def test_backup_is_not_downloaded_when_there_are_no_deleteitemaction_plugins():
    """There are no plugins here: nothing of a plan reads the archive; the lists beside it tell what there is."""
    steps = [step for stage in plan(facts(), inventory(a_snapshot())).stages[:-2] for step in stage.steps]

    assert {type(step) for step in steps} <= {DeleteSnapshot, DeleteRestore, DeleteFiles, DeleteFile}


def test_backup_is_still_deleted_if_downloading_tarball_returns_a_not_found_error():
    """A directory that lost its files, the metadata among them, is no reason to keep the rest."""
    assert isinstance(admit(facts(directory=Directory(MetadataAbsent())), inventory(), now=NOW), Admitted)


def test_backup_deletion_fails_with_error_when_downloading_tarball_fails():
    """A bucket that cannot be read now is no "not found": Velero ends the request, here it waits; nothing goes."""
    assert isinstance(admit(facts(directory=DirectoryUnreadable("reset")), inventory(), now=NOW), Deferred)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        pytest.param([], "", id="no pod volume backups"),
        pytest.param(
            [
                RepositorySnapshot("snap-3", "kopia"),
                RepositorySnapshot("snap-4", "kopia"),
                RepositorySnapshot("", "kopia"),
            ],
            "2 repository snapshots (kopia)",
            id="completed and incomplete pod volume backups",
        ),
    ],
)
def test_get_snapshots_in_backup(items, message):
    """TestGetSnapshotsInBackup: a volume backup without a snapshot id has nothing to delete."""
    decided = admit(facts(), inventory(*items), now=NOW)

    assert isinstance(decided, Refused if message else Admitted)
    assert message in decided.message


@pytest.mark.parametrize("phase", [RequestPhase.NEW, RequestPhase.IN_PROGRESS])
def test_process_queue_item_handles(phase):
    """ProcessQueueItem: phase New and InProgress are handled (Velero of today skips InProgress; v0.8.0 did not)."""
    assert elect([a_request(phase=phase)], a_backup()) == Working(a_request(phase=phase))


def test_process_queue_item_skips():
    """ProcessQueueItem: Processed is not handled."""
    assert not isinstance(elect([a_request(phase=RequestPhase.PROCESSED)], a_backup()), Working)


EXPIRY = datetime(2018, 4, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("created", "phase", "goes"),
    [
        pytest.param("03T12:00:00", "New", False, id="unprocessed request is not deleted"),
        pytest.param("03T12:00:00", "InProgress", False, id="in-progress request is not deleted"),
        pytest.param("04T11:00:00", "Processed", False, id="processed an hour ago"),
        pytest.param("03T12:00:01", "Processed", False, id="processed, a second under the age"),
        pytest.param("03T12:00:00", "Processed", True, id="processed, exactly the age"),
        pytest.param("03T02:00:00", "Processed", True, id="processed, over the age"),
    ],
)
def test_expired_requests(created, phase, goes):
    """The expiry table. An InProgress request never expires here: it is resumed (Velero deletes it after 24 h)."""
    at = datetime.fromisoformat(f"2018-04-{created}+00:00")

    assert expired(a_request(created=at, phase=RequestPhase(phase)), now=EXPIRY) is goes


def test_expired_request_will_not_be_deleted_if_the_status_is_not_processed():
    """Expired in age, phase New, no backup: it gets its answer first."""
    old = a_request(created=EXPIRY - timedelta(days=1))

    assert not expired(old, now=EXPIRY)
    assert admit(facts(request=old, backup=Absent()), inventory(), now=EXPIRY).message == "backup not found"


def test_new_delete_backup_request():
    """The helper that makes a request sets both labels, the name shortened, and leaves the ending to the API server."""
    request = request_for(a_backup(LONG, uid="uid"))

    assert (request.generate_name, request.backup, request.namespace) == (f"{LONG}-", LONG, "velero")
    assert dict(request.labels) == {
        "velero.io/backup-name": "the-really-long-backup-name-that-is-much-more-than-63-cha6ca4bc",
        "velero.io/backup-uid": "uid",
    }


def test_several_snapshot_locations():
    """Each snapshot is deleted by the snapshotter of its own location."""
    locations = [a_snapshot_location("vsl-1"), a_snapshot_location("vsl-2", provider="gcp")]
    given = facts(snapshot_locations=locations, handlers={"aws", "gcp"})
    stage = plan(given, inventory(a_snapshot("a"), a_snapshot("b", location="vsl-2"))).stages[0]

    assert [(step.provider, step.id) for step in stage.steps] == [("aws", "a"), ("gcp", "b")]
