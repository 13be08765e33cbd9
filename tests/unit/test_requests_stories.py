"""What users reported of deletion requests, retold. Each test opens with the story and where it was reported."""

from datetime import timedelta
from itertools import pairwise

import pytest

from reprieve.core.backups import (
    EVEN_IN_PROGRESS,
    Directory,
    DirectoryUnreadable,
    ListAbsent,
    MetadataAbsent,
    MetadataPresent,
)
from reprieve.core.outcomes import (
    AlreadyGone,
    Denied,
    Done,
    InUse,
    Locked,
    Pending,
    Retryable,
    Unknown,
)
from reprieve.core.reasons import Reason
from reprieve.core.requests import (
    Absent,
    Admitted,
    Deferred,
    DeletionPlan,
    Failed,
    Idle,
    Next,
    Refused,
    Retry,
    StageOutcomes,
    admit,
    backoff,
    bind,
    elect,
    expired,
    plan,
    siblings_of_one_backup,
)
from reprieve.core.requests import settle as core_settle
from reprieve.core.steps import DeleteObject, DeleteRestore, DeleteSnapshot, StepResult
from tests.unit.builders import (
    LAST,
    LIMITS,
    NOW,
    STARTED,
    UID,
    a_backup,
    a_location,
    a_request,
    a_restore,
    a_snapshot,
    at_work,
    deleting,
    facts,
    in_progress,
    inventory,
    settle,
    settle_stage,
    stage_of,
)


def test_snapshots_that_were_deleted_by_hand():
    """velero#685: snapshots deleted by hand failed each deletion, and each failure filed another request: thousands.

    Not found is success, and however many requests there are, one works and the others end with it.
    """
    flood = [a_request(f"foo-{n:04}") for n in range(1000)]
    working = elect(flood, a_backup())

    assert settle(AlreadyGone(), AlreadyGone()) == Next(LAST)
    assert len(working.waiting) == 999
    assert len(siblings_of_one_backup(facts(request=working.request, siblings=working.waiting))) == 999


def test_hammering_a_provider():
    """velero#423: an undeletable backup hammered the cloud's API, without any back-off."""
    pauses = [backoff("uid", attempt) for attempt in range(1, LIMITS.attempts)]

    assert all(later > sooner for sooner, later in pairwise(pauses))
    assert isinstance(settle(Unknown("undeletable"), attempts=LIMITS.attempts - 1), Failed)


def test_without_the_permission_to_delete_snapshots():
    """velero#6042: without that permission requests piled up InProgress and the backup stayed Deleting.

    It ends at once with the reason, and the backup, of which nothing was destroyed, is what it was.
    """
    answer = settle(Denied("ec2:DeleteSnapshot is not allowed"), Denied("ec2:DeleteSnapshot is not allowed"))

    assert isinstance(answer, Failed)
    assert answer.errors[0] == "error deleting snapshot snap-1: ec2:DeleteSnapshot is not allowed"
    assert answer.restore_phase == "Completed"


def test_one_deletion_that_hangs():
    """velero#3701: one deletion hung for ever and the requests behind it were not picked up.

    What has not finished is asked for again later, and what fails ends by attempts and deadline.
    """
    assert settle(Pending(timedelta(seconds=30))).at == NOW + timedelta(seconds=30)
    assert isinstance(settle(Retryable(), first_attempt=NOW - timedelta(hours=1)), Failed)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"location": Absent()}, id="location"),
        pytest.param({"backup": Absent()}, id="backup"),
        pytest.param(
            {"directory": Directory(MetadataPresent(NOW)), "backup": a_backup(snapshots_completed=1)}, id="directory"
        ),
    ],
)
def test_errors_before_the_real_work(given):
    """velero#7812: an error before the real work left the request New and requeued it for ever. It gets an answer."""
    answer = admit(facts(**given), inventory(), now=NOW)

    assert isinstance(answer, Refused)
    assert answer.message


def test_a_location_that_is_gone():
    """velero#6549: collection repeated for ever for backups whose location was gone. The answer is final."""
    answer = admit(facts(location=Absent()), inventory(), now=NOW)

    assert answer == Refused(Reason.LOCATION_NOT_FOUND, "backup storage location default not found")


def test_a_request_made_by_hand_without_labels():
    """velero#1546: a request created by hand, without labels, crashed the server."""
    by_hand = a_request(uid="")

    assert bind(by_hand, a_backup())
    assert isinstance(admit(facts(request=by_hand), inventory(), now=NOW), Admitted)


def test_a_failed_backup_without_snapshot_locations():
    """velero#2258: a failed backup without volumeSnapshotLocations could not be deleted: all of it was written back."""
    failed = a_backup(phase="Failed", snapshot_locations=[])

    assert isinstance(admit(facts(backup=failed, snapshot_locations=[]), inventory(), now=NOW), Admitted)


def test_a_location_pointed_at_another_bucket():
    """velero#8661: a location was pointed at another bucket; deleting the old record deleted a same-named backup there.

    The metadata in the new bucket has another start: that directory is another backup's, and only the record goes.
    """
    repointed = facts(directory=Directory(MetadataPresent(NOW)), location=a_location(bucket="new"))

    assert isinstance(admit(repointed, inventory(), now=NOW), Admitted)
    assert [stage.name for stage in plan(repointed, inventory()).stages] == ["backup", "requests"]


def test_a_location_pointed_at_another_bucket_and_the_record_has_snapshots():
    """velero#8661: … but not when the record says that it has snapshots, whose list is in the old bucket."""
    record = a_backup(snapshots_completed=4)
    repointed = facts(backup=record, directory=Directory(MetadataPresent(NOW)))

    assert admit(repointed, inventory(), now=NOW).reason is Reason.NOT_THE_OWNER


def test_a_location_pointed_at_an_empty_bucket_and_the_record_has_snapshots():
    """velero#8661: … nor when the new bucket has no such directory: the record is the last pointer to snapshots."""
    record = a_backup(snapshots_completed=4)
    repointed = facts(backup=record, directory=Directory(MetadataAbsent()))
    absent = inventory(troubles=[ListAbsent("backups/foo/foo-volumesnapshots.json.gz")])

    assert admit(repointed, absent, now=NOW).reason is Reason.LIST_MISSING


def test_a_location_pointed_at_another_bucket_while_a_deletion_runs():
    """velero#8661: … nor half way: the state says in which bucket the deletion began."""
    moved = facts(**at_work(), location=a_location(bucket="new"))

    assert admit(moved, inventory(), now=NOW).reason is Reason.LOCATION_MOVED


def test_the_last_status_patch_fails():
    """velero#10169: the last status patch failed, and the request stayed InProgress, skipped until it was dropped."""
    given = facts(**at_work(first_attempt=NOW - timedelta(hours=12)))
    stuck = given.request

    assert elect([stuck], given.backup).request == stuck
    assert not expired(stuck, now=NOW + timedelta(days=30))
    assert admit(given, inventory(), now=NOW).reason is Reason.RESUMED


def test_snapshots_that_were_never_taken():
    """velero#9429: a failed snapshot is recorded with an empty id, and DeleteSnapshot("") made a plugin panic."""
    deletion = plan(facts(), inventory(a_snapshot(""), a_snapshot("snap-1")))

    assert stage_of(deletion, "snapshots").steps == (DeleteSnapshot("aws", "snap-1", "vsl-1"),)


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(outcome, id=type(outcome).__name__)
        for outcome in (Denied(), InUse(), Retryable(), Unknown(), Pending())
    ],
)
def test_the_files_were_removed_before_the_snapshots(outcome):
    """velero#9077: the directory was removed although snapshots had failed; the retry found no list: leaked."""
    assert not isinstance(settle(Done(), outcome, Done()), Next)


def test_a_transient_error_is_not_gone():
    """velero#9693: the archive could not be fetched for a passing reason, and the deletion "succeeded"."""
    answer = admit(facts(directory=DirectoryUnreadable("connection reset")), inventory(), now=NOW)

    assert isinstance(answer, Deferred)


def test_an_unavailable_location():
    """velero#8029: an unavailable location refuses the deletion for good; it is a reason to wait, not to forget."""
    answer = admit(facts(location=a_location(available=False)), inventory(), now=NOW)

    assert (answer.reason, answer.until) == (Reason.LOCATION_UNAVAILABLE, NOW + timedelta(minutes=1))


@pytest.mark.parametrize("phase", ["", "New", "Queued", "ReadyToStart"])
def test_a_backup_that_waits_to_start(phase):
    """velero#2114: a New backup could not be deleted, and then it ran. It is refused, or deleted when that is meant."""
    queued = a_backup(phase=phase, started=None)
    meant = a_request(annotations={EVEN_IN_PROGRESS: "true"})

    assert admit(facts(backup=queued), inventory(), now=NOW).reason is Reason.BACKUP_IN_PROGRESS
    assert isinstance(admit(facts(backup=queued, request=meant, directory=Directory()), inventory(), now=NOW), Admitted)


def test_a_backup_that_waits_for_its_uploads():
    """velero#6035: a backup that waited for asynchronous operations could be deleted, which orphaned the uploads."""
    waiting = a_backup(phase="WaitingForPluginOperations")

    assert admit(facts(backup=waiting), inventory(), now=NOW).reason is Reason.BACKUP_IN_PROGRESS


def test_two_servers_process_the_same_object():
    """velero#487: two servers took up the same object. Whoever looks, in whatever order, chooses the same request."""
    requests = [a_request("b"), a_request("a"), in_progress("c")]

    for backup in (deleting("c"), Absent()):
        assert elect(requests, backup) == elect(requests[::-1], backup)
    assert elect(requests, deleting("c")).request.meta.name == "c"


def test_the_namespace_is_deleted():
    """velero#375: deleting the namespace emptied the bucket. Without a request nothing works, so nothing is planned."""
    assert elect([], a_backup()) == Idle()


def test_a_backup_that_was_made_again():
    """A stale request names a backup that was deleted and made again since: the new one is not what was asked for."""
    again = a_backup(uid="uid-new", created=NOW)

    assert admit(facts(backup=again), inventory(), now=NOW).reason is Reason.BACKUP_RECREATED
    assert admit(facts(backup=again, request=a_request(uid="")), inventory(), now=NOW).reason is Reason.BACKUP_RECREATED


def test_the_backup_went_before_its_restores():
    """velero#6576: the Backup was removed before its restores' finalizers had run. The record waits for them."""
    deletion = plan(facts(restores=[a_restore("r1")]), inventory())
    restores = stage_of(deletion, "restores")
    held_up = settle_stage(deletion, "restores", StepResult(restores.steps[0], Pending(message="a finalizer holds it")))

    assert isinstance(restores.steps[0], DeleteRestore)
    assert isinstance(held_up, Retry)
    assert held_up.state.attempts == 0
    assert isinstance(deletion.after(restores)[-2].steps[0], DeleteObject)


def test_everything_was_gone_already():
    """velero#2980: a missing archive blocked the deletion. Already gone counts as done at every stage."""
    deletion = plan(facts(restores=[a_restore("r1")]), inventory(a_snapshot()))
    answers = [
        settle_stage(deletion, stage.name, *(StepResult(step, AlreadyGone()) for step in stage.steps))
        for stage in deletion.stages[:-1]
    ]

    assert answers == [Next(stage) for stage in deletion.stages[1:]]


def test_an_empty_backup():
    """velero#4551: an empty backup could not be deleted and stayed Deleting for ever."""
    empty = facts(directory=Directory(MetadataAbsent()), snapshot_locations=[])

    assert isinstance(admit(empty, inventory(), now=NOW), Admitted)
    assert [s.name for s in plan(empty, inventory()).stages][-2:] == ["backup", "requests"]


def test_an_object_under_retention():
    """velero#8691: with object lock a deletion failed again and again. It is deferred to the end of the retention."""
    until = NOW + timedelta(days=90)
    deletion = plan(facts(), inventory())
    files = stage_of(deletion, "bucketFiles").steps[0]
    answer = settle_stage(deletion, "bucketFiles", StepResult(files, Locked(until, "retention")), attempts=4)

    assert (answer.at, answer.reason, answer.state.attempts) == (until, Reason.LOCKED, 4)


def test_a_read_only_location_tells_at_once():
    """velero#4203: a deletion in a read-only location was accepted, and only the request's status told."""
    answer = admit(facts(location=a_location(read_only=True), backup=a_backup(phase="Failed")), inventory(), now=NOW)

    assert answer.reason is Reason.LOCATION_READ_ONLY


def test_a_backup_left_deleting_by_an_earlier_failure():
    """velero#4245: how to get rid of a backup that is stuck in Deleting? Ask again; it goes on with what is left."""
    stuck = facts(backup=a_backup(phase="Deleting"), request=a_request("second"))

    assert admit(stuck, inventory(), now=NOW).reason is Reason.ADMITTED


def test_rate_limits_do_not_end_a_deletion_at_once():
    """velero#1135: throttling by the provider was not retried. Other snapshots go on; this one is asked for later."""
    answer = settle(Retryable(timedelta(minutes=2), "RequestLimitExceeded"), Done(), Done())

    assert isinstance(answer, Retry)
    assert answer.at >= NOW + timedelta(minutes=2)


def test_the_record_is_the_last_pointer():
    """velero#9480: the record went while its snapshots stayed, without any sign in the logs.

    A plan without the snapshots of a list that cannot be read does not come about; see also the stages' order.
    """
    assert isinstance(
        admit(
            facts(backup=a_backup(snapshots_completed=1), directory=Directory(MetadataPresent(STARTED))),
            inventory(troubles=[ListAbsent("backups/foo/foo-volumesnapshots.json.gz")]),
            now=NOW,
        ),
        Refused,
    )


def test_requests_of_another_uid_are_left_alone():
    """A stale request for an older backup of the name is no business of this deletion: it gets its own answer."""
    stale, own = a_request("stale", uid="uid-old"), a_request("own", uid=UID)
    deletion = plan(facts(siblings=[stale, own]), inventory())

    assert [step.ref for step in stage_of(deletion, "siblings").steps] == [own.ref]


def test_a_stage_nobody_ran_is_not_done():
    """A stop between planning and doing: a stage without any result does not let the next one start."""
    stage = plan(facts(), inventory(a_snapshot())).stages[0]
    outcomes = StageOutcomes(DeletionPlan([stage, LAST]), stage)

    assert isinstance(core_settle(facts(**at_work()), outcomes, now=NOW, limits=LIMITS), Retry)
