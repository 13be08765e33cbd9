"""Who works, who is bound to what, and what admission says: each sentence of the design as a row."""

from datetime import timedelta

import pytest
from attrs import evolve

from reprieve.core.backups import (
    BACKUP_UID,
    DELETION,
    ENDED,
    EVEN_IN_PROGRESS,
    RESTORE_UNFINISHED,
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
    Unlisted,
    Unnamed,
)
from reprieve.core.holds import HOLD, HOLD_UNTIL
from reprieve.core.reasons import Reason
from reprieve.core.requests import (
    BUCKET_STAGE,
    Absent,
    Admitted,
    Deferred,
    Idle,
    Refused,
    Working,
    admit,
    begin,
    bind,
    elect,
    elect_all,
    owns_directory,
    postpone,
)
from tests.unit.builders import (
    ASKED,
    NOW,
    STARTED,
    UID,
    a_backup,
    a_location,
    a_request,
    a_restore,
    a_snapshot,
    a_snapshot_location,
    a_state,
    at_work,
    deleting,
    facts,
    in_progress,
    inventory,
)

ATTEMPTED = {EVEN_IN_PROGRESS: "true"}
SOON = NOW + timedelta(minutes=1)


# Who works


def chosen(requests, backup=None):
    """The names of who works and of who waits behind it."""
    working = elect(requests, backup or a_backup())
    return working.request.meta.name, [each.meta.name for each in working.waiting]


def test_nobody_works_when_every_request_has_ended():
    assert elect([a_request(phase=RequestPhase.PROCESSED)], a_backup()) == Idle()
    assert elect([], a_backup()) == Idle()
    assert elect([], Absent()) == Idle()


def test_of_several_the_one_that_the_backup_names_works():
    """Of several requests for one backup the one at work goes on, the others wait."""
    old, running = a_request("a", created=ASKED - timedelta(days=1)), in_progress("z")

    assert elect([old, running], deleting("z")) == Working(running, [old])


@pytest.mark.parametrize(
    "backup",
    [
        pytest.param(a_backup(), id="nothing-on-the-backup"),
        pytest.param(a_backup(phase="Deleting"), id="only-the-phase-on-the-backup"),
        pytest.param(deleting("z", of={"phase": "Completed"}), id="the-note-without-the-phase"),
        pytest.param(deleting("z", uid="uid-of-another"), id="a-note-that-was-copied"),
        pytest.param(deleting("gone"), id="another-request-is-named"),
        pytest.param(deleting("z", request=""), id="nobody-is-named"),
        pytest.param(a_backup(phase="Deleting", annotations={DELETION: "{"}), id="a-note-that-cannot-be-read"),
    ],
)
def test_one_that_only_says_so_itself_waits_its_turn(backup):
    """Whoever may create a request writes its phase and its state: that makes nobody go first."""
    forged, honest = in_progress("z"), a_request("a", created=ASKED - timedelta(days=1))

    assert chosen([forged, honest], backup) == ("a", ["z"])


def test_one_that_is_named_works_whatever_its_own_phase_says():
    """Somebody wrote New into the request at work: the Backup still knows better."""
    assert chosen([a_request("a"), a_request("z")], deleting("z")) == ("z", ["a"])


def test_else_the_oldest_works():
    """… else the oldest; the others wait, oldest first."""
    first, second = a_request("z", created=ASKED - timedelta(seconds=2)), a_request("m", created=ASKED)
    ended = a_request("a", created=STARTED, phase=RequestPhase.PROCESSED)

    assert elect([second, ended, first], a_backup()) == Working(first, [second])


def test_of_equally_old_requests_the_first_name_works():
    assert chosen([a_request("b"), a_request("a")]) == ("a", ["b"])


def test_a_request_without_a_creation_time_counts_as_the_newest():
    assert chosen([a_request("a", created=None), a_request("b")]) == ("b", ["a"])


def test_with_the_record_gone_each_that_says_to_be_at_work_has_an_answer_of_its_own():
    """Only what was noted to end with it waits for it. Whoever says nothing of himself waits in one row."""
    worker, new = in_progress("worker"), a_request("new")
    led = a_request("led", state=RequestState(uid=UID, request="uid-worker"))
    lost = a_request("lost", state=RequestState(uid=UID, request="uid-gone"))
    forged = in_progress("forged", request=None)
    after = a_request("after", state=RequestState(uid=UID, request="uid-forged"))

    answers = {
        working.request.meta.name: [each.meta.name for each in working.waiting]
        for working in elect_all([worker, new, led, lost, forged, after], Absent())
    }

    assert answers == {"worker": ["led"], "forged": [], "after": ["lost", "new"]}


def test_two_that_say_to_end_with_each_other_are_both_answered():
    """Each waited for the other, for ever."""
    pair = [
        a_request(name, phase=RequestPhase.IN_PROGRESS, state=RequestState(uid=UID, request=f"uid-{other}"))
        for name, other in (("a", "b"), ("b", "a"))
    ]

    assert len(elect_all(pair, Absent())) == 2


# Binding


@pytest.mark.parametrize(
    ("request_", "may"),
    [
        pytest.param(a_request(uid=""), True, id="unlabelled-and-younger"),
        pytest.param(a_request(uid="", created=STARTED), True, id="as-old-as-the-backup"),
        pytest.param(a_request(uid="", created=STARTED - timedelta(seconds=1)), False, id="older-than-the-backup"),
        pytest.param(a_request(uid="", created=None), True, id="without-a-creation-time"),
        pytest.param(a_request(uid=UID), False, id="bound-already"),
        pytest.param(a_request(uid="other"), False, id="bound-to-another"),
    ],
)
def test_name_and_uid_labels_are_written_at_first_sight(request_, may):
    """Name and UID labels are written at first sight, so that a waiting request stays bound."""
    assert bind(request_, a_backup()) is may


# Refusals


def gzip_key(name):
    return f"backups/foo/foo-{name}.json.gz"


REFUSED = [
    pytest.param(
        {"request": a_request(backup="", uid="")}, (), "NameMissing", "spec.backupName is required", id="no-name"
    ),
    pytest.param(
        {"request": a_request(name_fault="spec.backupName must be a text, it is int")},
        (),
        "NameInvalid",
        "spec.backupName must be a text, it is int",
        id="name-is-no-text",
    ),
    pytest.param(
        {"request": a_request(backup="../foo")}, (), "NameInvalid", "'../foo' is not a name", id="path-like-name"
    ),
    pytest.param({"request": a_request(backup="süß")}, (), "NameInvalid", "'süß' is not a name", id="non-ascii-name"),
    pytest.param({"request": a_request(backup="x" * 300)}, (), "NameInvalid", "(300 characters)", id="300-characters"),
    pytest.param({"backup": Absent()}, (), "BackupNotFound", "backup not found", id="backup-not-found"),
    pytest.param(
        {"request": a_request(uid="uid-old")},
        (),
        "BackupRecreated",
        "backup was re-created since: the request is for UID uid-old, the backup has UID uid-foo; ask again",
        id="uid-label-of-another-backup",
    ),
    pytest.param(
        {"request": a_request(uid="", created=STARTED - timedelta(seconds=1))},
        (),
        "BackupRecreated",
        "backup was re-created since: the request is older than the backup",
        id="unlabelled-and-older-than-the-backup",
    ),
    *(
        pytest.param(
            {"backup": a_backup(phase=phase)},
            (),
            "BackupInProgress",
            "backup is still in progress",
            id=f"backup-in-progress-{phase or 'no-phase'}",
        )
        for phase in sorted(UNFINISHED)
    ),
    pytest.param(
        {"location": Absent()},
        (),
        "LocationNotFound",
        "backup storage location default not found",
        id="location-not-found",
    ),
    pytest.param(
        {"location": Absent(), "backup": a_backup(storage_location="")},
        (),
        "LocationNotFound",
        "backup storage location (none named) not found",
        id="location-not-named",
    ),
    pytest.param(
        {"location": a_location(read_only=True)},
        (),
        "LocationReadOnly",
        "cannot delete backup because backup storage location default is currently in read-only mode",
        id="location-read-only",
    ),
    pytest.param(
        {},
        (a_snapshot(location="vsl-9"), a_snapshot("snap-2", location="vsl-8"), a_snapshot("snap-3")),
        "SnapshotLocationNotFound",
        "volume snapshot location vsl-8, vsl-9 not found",
        id="snapshot-location-missing-by-name",
    ),
    pytest.param(
        {},
        (a_snapshot(location=""),),
        "SnapshotLocationNotFound",
        "volume snapshot location (none named) not found",
        id="snapshot-location-not-named",
    ),
    pytest.param(
        {"snapshot_locations": [a_snapshot_location(provider="gcp")]},
        (a_snapshot("snap-1"), a_snapshot("snap-2")),
        "NoAdapter",
        "2 native snapshots (gcp)",
        id="provider-not-configured",
    ),
    pytest.param(
        {"snapshot_locations": [a_snapshot_location(provider="")]},
        (a_snapshot("snap-1"),),
        "NoAdapter",
        "1 native snapshots (no provider)",
        id="snapshot-location-without-a-provider",
    ),
    pytest.param({}, (CsiContent("c1"), CsiContent("c2")), "NoAdapter", "2 CSI snapshots (CSI)", id="csi-snapshots"),
    pytest.param(
        {},
        (RepositorySnapshot("a", "kopia"), RepositorySnapshot("b", "restic"), RepositorySnapshot("c", "")),
        "NoAdapter",
        "1 repository snapshots (kopia), 2 repository snapshots (restic)",
        id="repository-data",
    ),
    pytest.param({}, (DataMoverItem("du-1"),), "NoAdapter", "1 data-mover items (data mover)", id="data-mover-items"),
    pytest.param(
        {"handlers": {"aws", "CSI", "kopia", "data mover"}},
        (CsiContent("c1"), RepositorySnapshot("a", "kopia"), DataMoverItem("du-1")),
        "NoAdapter",
        "1 CSI snapshots (CSI), 1 data-mover items (data mover), 1 repository snapshots (kopia)",
        id="what-no-step-deletes-whatever-the-handlers-say",
    ),
    pytest.param(
        {},
        inventory(troubles=[ListCorrupt(gzip_key("z"), "late"), ListCorrupt(gzip_key("volumesnapshots"), "not gzip")]),
        "ListCorrupt",
        "error getting backup's volume snapshots: backups/foo/foo-volumesnapshots.json.gz cannot be read: not gzip; ",
        id="snapshot-list-corrupt",
    ),
    pytest.param(
        {"backup": a_backup(snapshots_completed=2)},
        inventory(troubles=[ListAbsent(gzip_key("volumesnapshots"))]),
        "ListMissing",
        "the record says that 2 native and 0 CSI snapshots were completed, but backups/foo/foo-volumesnapshots.json.gz",
        id="snapshot-list-absent-though-snapshots-were-completed",
    ),
    pytest.param(
        {"backup": a_backup(csi_snapshots_completed=1)},
        inventory(troubles=[ListAbsent(gzip_key("csi-volumesnapshotcontents"))]),
        "ListMissing",
        "0 native and 1 CSI snapshots were completed",
        id="csi-list-absent-though-snapshots-were-completed",
    ),
    pytest.param(
        {"backup": a_backup(csi_snapshots_completed=2)},
        (),
        "ListMissing",
        "the record says that 2 CSI snapshots were completed, but no list names them: they would be leaked",
        id="csi-list-empty-though-snapshots-were-completed",
    ),
    pytest.param(
        {},
        inventory(troubles=[ListAbsent(gzip_key("volumesnapshots"), gzip_key("volumeinfo"))]),
        "ListMissing",
        "backups/foo/foo-volumeinfo.json.gz is in the bucket, but backups/foo/foo-volumesnapshots.json.gz, which",
        id="list-absent-beside-one-that-velero-writes-with-it",
    ),
    pytest.param(
        {"backup": a_backup(snapshots_attempted=2)},
        inventory(troubles=[ListAbsent(gzip_key("volumesnapshots"))]),
        "ListMissing",
        "the record says that 2 native and 0 CSI snapshots were attempted, but backups/foo/foo-volumesnapshots.json.gz",
        id="snapshot-list-absent-though-snapshots-were-attempted",
    ),
    pytest.param(
        {},
        inventory(troubles=[Unnamed("the record says that 3 operations were attempted, but no list names them")]),
        "ListMissing",
        "the record says that 3 operations were attempted, but no list names them: they would be leaked",
        id="operations-that-no-list-names",
    ),
    pytest.param(
        {},
        (CsiContent("c", "ebs.csi.aws.com", "snap-1"), CsiContent("app/v"), CsiContent("")),
        "NoAdapter",
        "3 CSI snapshots (CSI) (CSI snapshots: (without a name), app/v, ebs.csi.aws.com snap-1); nothing was deleted",
        id="csi-snapshots-by-driver-and-handle",
    ),
    pytest.param(
        {},
        tuple(CsiContent("", "d", f"{n:02d}" * 200) for n in range(12)),
        "NoAdapter",
        " and 2 more); nothing",
        id="many-csi-snapshots-with-long-handles",
    ),
    pytest.param(
        {"directory": Directory(MetadataPresent(NOW))},
        inventory(troubles=[Unnamed("the record says that 1 operations were attempted, but no list names them")]),
        "NotTheOwner",
        "belong to another backup of that name",
        id="directory-of-another-backup-and-the-record-had-operations",
    ),
    pytest.param(
        {"unnameable": ["bucket b: key 'backups/foo//x' cannot be used: it has two slashes in a row"]},
        (a_snapshot(),),
        "KeyInvalid",
        "files of the backup cannot be deleted: bucket b: key 'backups/foo//x' cannot be used: it has",
        id="a-file-that-cannot-be-named",
    ),
    pytest.param(
        {"directory": Directory(MetadataCorrupt("it is not JSON"))},
        (),
        "MetadataCorrupt",
        "cannot tell whether backups/foo/ belongs to this backup: it is not JSON; repair or remove velero-backup.json",
        id="metadata-corrupt",
    ),
    pytest.param(
        {"directory": Directory(MetadataPresent(NOW)), "backup": a_backup(snapshots_completed=3)},
        (a_snapshot(),),
        "NotTheOwner",
        "belong to another backup of that name, and this record says that it has 3 snapshots and 0 other items",
        id="directory-of-another-backup-and-the-record-has-snapshots",
    ),
    pytest.param(
        {"directory": Directory(MetadataPresent(NOW)), "backup": a_backup(legacy_snapshots=[a_snapshot()])},
        (),
        "NotTheOwner",
        "1 snapshots and 0 other items",
        id="directory-of-another-backup-and-the-record-has-legacy-snapshots",
    ),
    pytest.param(
        {"directory": Directory(MetadataPresent(NOW))},
        (RepositorySnapshot("a", "kopia"),),
        "NotTheOwner",
        "0 snapshots and 1 other items",
        id="directory-of-another-backup-and-repository-data-in-the-cluster",
    ),
]


@pytest.mark.parametrize(("given", "items", "reason", "message"), REFUSED)
def test_refused(given, items, reason, message):
    """Refused: ends Processed with the error, nothing touched."""
    listed = inventory(*items) if isinstance(items, tuple) else items

    answer = admit(facts(**given), listed, now=NOW)

    assert isinstance(answer, Refused)
    assert answer.reason == reason
    assert message in answer.message


def test_a_refusal_comes_before_a_deferral():
    """Whoever asked learns at once what waiting will not mend: a held backup in a read-only location is refused."""
    held = a_backup(annotations={HOLD: "audit"})

    assert isinstance(admit(facts(backup=held, location=a_location(read_only=True)), inventory(), now=NOW), Refused)


def test_a_rewritten_label_does_not_turn_a_running_deletion_to_another_backup():
    """A request touches only the backup of its UID: the label and the report must both name it."""
    running = in_progress(uid="uid-old")
    turned = evolve(running, meta=evolve(running.meta, labels={BACKUP_UID: UID}))

    answer = admit(facts(request=turned), inventory(), now=NOW)

    assert answer == Refused(
        Reason.BACKUP_RECREATED,
        "backup was re-created since: the request is for UID uid-old, the backup has UID uid-foo; ask again",
    )


# Deferrals


DEFERRED = [
    pytest.param(
        {"location": a_location(available=False)}, "LocationUnavailable", SOON, "in Unavailable state", id="unavailable"
    ),
    pytest.param(
        {"directory": DirectoryUnreadable("timed out")},
        "LocationUnavailable",
        SOON,
        "backup storage location default cannot be read: timed out",
        id="unreadable",
    ),
    pytest.param(
        {"backup": a_backup(annotations={HOLD: "audit"})},
        "Held",
        NOW + timedelta(hours=1),
        "backup is held until the hold is taken off: audit",
        id="held",
    ),
    pytest.param(
        {"backup": a_backup(annotations={HOLD: "audit", HOLD_UNTIL: "2024-05-01T00:00:00Z"})},
        "Held",
        NOW.replace(month=5, day=1, hour=0),
        "backup is held until 2024-05-01T00:00:00Z: audit",
        id="held-until-a-date",
    ),
    pytest.param(
        {"directory": Directory(MetadataPresent(STARTED), {HOLD: "mirrored"})},
        "Held",
        NOW + timedelta(hours=1),
        "backup is held until the hold is taken off: mirrored (so says reprieve-hold.json in its directory)",
        id="held-by-the-document-in-the-bucket",
    ),
    pytest.param(
        {
            "backup": a_backup(annotations={HOLD: "audit", HOLD_UNTIL: "2024-01-01T00:00:00Z"}),
            "directory": Directory(MetadataPresent(STARTED), {HOLD: "mirrored"}),
        },
        "Held",
        NOW + timedelta(hours=1),
        "mirrored (so says reprieve-hold.json in its directory)",
        id="held-by-the-document-when-the-record's-own-hold-is-over",
    ),
    *(
        pytest.param(
            {"restores": [a_restore("r2", phase=phase), a_restore("r1", phase=phase)]},
            "RestoreRunning",
            SOON,
            "restore r1, r2 of the backup is still running",
            id=f"restore-running-{phase or 'no-phase'}",
        )
        for phase in sorted(RESTORE_UNFINISHED)
    ),
]


@pytest.mark.parametrize(("given", "reason", "until", "message"), DEFERRED)
def test_deferred(given, reason, until, message):
    """Deferred: stays, with a next-check time."""
    answer = admit(facts(**given), inventory(a_snapshot()), now=NOW)

    assert isinstance(answer, Deferred)
    assert (answer.reason, answer.until) == (reason, until)
    assert message in answer.message


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="its-directory"),
        pytest.param({"directory": Directory(MetadataPresent(NOW))}, id="another-ones-directory"),
    ],
)
def test_a_kind_that_may_not_be_listed_defers(given):
    """What it would have named is not known: to take it for none would leak it."""
    answer = admit(facts(**given), inventory(troubles=[Unlisted("VolumeSnapshot", "403")]), now=NOW)

    assert isinstance(answer, Deferred)
    assert (answer.reason, answer.until) == ("Unreadable", SOON)
    assert "(VolumeSnapshot: 403)" in answer.message


# Admission


ADMITTED = [
    pytest.param({}, (a_snapshot(),), id="all-is-well"),
    pytest.param({"request": a_request(uid="")}, (), id="unlabelled-and-younger-than-the-backup"),
    pytest.param({"request": a_request(uid="", created=None)}, (), id="unlabelled-without-a-creation-time"),
    *(
        pytest.param({"backup": a_backup(phase=phase)}, (), id=f"phase-{phase}")
        for phase in ("Completed", "PartiallyFailed", "Failed", "FailedValidation", "Deleting")
    ),
    *(
        pytest.param(
            {"backup": a_backup(phase=phase), "request": a_request(annotations=ATTEMPTED)},
            (),
            id=f"even-in-progress-{phase or 'no-phase'}",
        )
        for phase in sorted(UNFINISHED)
    ),
    pytest.param({"directory": Directory(MetadataAbsent())}, (), id="directory-without-metadata-belongs-to-its-record"),
    pytest.param({"directory": Directory(MetadataPresent(NOW))}, (a_snapshot(),), id="record-without-data-of-its-own"),
    pytest.param({"backup": a_backup(), "snapshot_locations": []}, (), id="no-snapshots-no-snapshot-location-needed"),
    pytest.param({"snapshot_locations": []}, (a_snapshot(""),), id="snapshot-that-was-never-taken"),
    pytest.param({}, (RepositorySnapshot("", "kopia"),), id="volume-backup-that-was-never-taken"),
    pytest.param({}, inventory(troubles=[ListAbsent("backups/foo/x")]), id="absent-list-and-no-snapshots-completed"),
    pytest.param(
        {"restores": [a_restore("r", backup="other", phase="New")]}, (), id="running-restore-of-another-backup"
    ),
    pytest.param(
        {"backup": a_backup(annotations={HOLD: "x", HOLD_UNTIL: "2024-04-04T12:00:00Z"})},
        (),
        id="hold-ends-exactly-now",
    ),
]


@pytest.mark.parametrize(("given", "items"), ADMITTED)
def test_admitted(given, items):
    """Admitted: phase InProgress, backup phase Deleting."""
    listed = inventory(*items) if isinstance(items, tuple) else items

    answer = admit(facts(**given), listed, now=NOW)

    assert answer == Admitted(Reason.ADMITTED, "backup foo is deleted because foo-abcde asked for it")


@pytest.mark.parametrize("text", ["True", "yes", "1", ""])
def test_even_in_progress_must_say_true(text):
    asked = a_request(annotations={EVEN_IN_PROGRESS: text})

    assert isinstance(admit(facts(request=asked, backup=a_backup(phase="New")), inventory(), now=NOW), Refused)


def test_the_phase_in_progress_of_a_request_is_no_way_around_the_check():
    """Only the annotation allows a backup at work to be deleted, not a request that a hand made InProgress."""
    forged = a_request(phase=RequestPhase.IN_PROGRESS)

    answer = admit(facts(request=forged, backup=a_backup(phase="InProgress")), inventory(), now=NOW)

    assert answer == Refused(Reason.BACKUP_IN_PROGRESS, "backup is still in progress")


# Whose directory


@pytest.mark.parametrize(
    ("started", "metadata", "owns"),
    [
        pytest.param(STARTED, MetadataPresent(STARTED), True, id="same-start"),
        pytest.param(STARTED, MetadataPresent(NOW), False, id="another-start"),
        pytest.param(None, MetadataPresent(NOW), False, id="record-that-never-started"),
        pytest.param(STARTED, MetadataPresent(None), False, id="metadata-without-a-start"),
        pytest.param(STARTED, MetadataAbsent(), True, id="no-metadata"),
        pytest.param(STARTED, MetadataCorrupt("x"), False, id="corrupt-metadata"),
    ],
)
def test_who_owns_the_directory(started, metadata, owns):
    """A record whose status.startTimestamp is not that of the bucket's metadata does not own that directory."""
    assert owns_directory(facts(backup=a_backup(started=started), directory=Directory(metadata))) is owns


# Resuming


def resumed(**given):
    return facts(**{**at_work(), **given})


def test_a_request_that_the_backup_names_is_resumed():
    """A deletion that was cut off goes on at the next start."""
    assert admit(resumed(), inventory(a_snapshot()), now=NOW).reason is Reason.RESUMED


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"request": a_request(phase=RequestPhase.IN_PROGRESS)}, id="by-velero-which-notes-nothing"),
        pytest.param({"request": in_progress()}, id="by-an-older-reprieve-or-by-a-hand"),
        pytest.param({"request": a_request("second"), "backup": deleting()}, id="for-a-request-that-is-gone"),
    ],
)
def test_what_somebody_else_began_is_picked_up_as_new(given):
    """velero#10169: it is never left lying; but nothing that the request says of itself is believed."""
    picked_up = facts(**{"backup": a_backup(phase="Deleting"), **given})

    assert admit(picked_up, inventory(a_snapshot()), now=NOW).reason is Reason.ADMITTED


def test_gone_with_its_metadata_it_is_completed():
    """If its Backup is gone already: metadata gone too -> completed."""
    answer = admit(resumed(backup=Absent(), directory=Directory()), inventory(), now=NOW)

    assert answer == Admitted(Reason.RESUMED, "deletion of backup foo goes on where it stopped")


def test_gone_before_its_metadata_it_is_processed():
    """… metadata still there -> Processed, "the record vanished during deletion; ask again when it is back"."""
    answer = admit(resumed(backup=Absent()), inventory(), now=NOW)

    assert answer == Refused(Reason.RECORD_VANISHED, "the record vanished during deletion; ask again when it is back")


def test_gone_and_the_metadata_cannot_be_read_it_waits():
    """An observation that failed is not "gone"."""
    answer = admit(resumed(backup=Absent(), directory=DirectoryUnreadable("no answer")), inventory(), now=NOW)

    assert (answer.reason, answer.message) == (
        Reason.LOCATION_UNAVAILABLE,
        "backup storage location default cannot be read: no answer",
    )


def test_gone_and_nobody_noted_where_its_files_were():
    """A request that Velero began does not say where to look."""
    velero = a_request(phase=RequestPhase.IN_PROGRESS)

    assert admit(resumed(request=velero, backup=Absent()), inventory(), now=NOW).reason is Reason.BACKUP_NOT_FOUND


def test_from_the_bucket_stage_on_an_absent_list_is_no_refusal():
    """Before the stage starts, stage is patched: from then on an absent list or absent metadata is no refusal."""
    given = {"backup": deleting(of={"snapshots_completed": 2}), "directory": Directory(MetadataAbsent())}
    absent = inventory(troubles=[ListAbsent("backups/foo/foo-volumesnapshots.json.gz")])

    assert isinstance(admit(resumed(**given), absent, now=NOW), Refused)
    among_files = at_work(stage=BUCKET_STAGE, of={"snapshots_completed": 2})
    assert isinstance(admit(facts(**{**given, **among_files}), absent, now=NOW), Admitted)


COUNTED = {"snapshots_completed": 2}


@pytest.mark.parametrize(
    ("backup", "admitted"),
    [
        pytest.param(deleting("earlier", stage=BUCKET_STAGE, of=COUNTED), True, id="the-backup-says-so"),
        pytest.param(
            deleting("earlier", stage=BUCKET_STAGE, of=COUNTED | {"phase": "Completed"}), False, id="not-deleting"
        ),
        pytest.param(deleting("earlier", stage=BUCKET_STAGE, uid="uid-old", of=COUNTED), False, id="for-another-uid"),
        pytest.param(a_backup(phase="Deleting", **COUNTED), False, id="only-requests-say-so"),
    ],
)
@pytest.mark.parametrize("phase", RequestPhase)
def test_what_an_earlier_request_left_among_the_files_can_be_asked_for_again(backup, admitted, phase):
    """A deletion took the snapshots and their list, and failed at the last file: a new request takes the rest.

    That the lists are this deletion's own doing is believed of the Backup alone, in whatever phase requests say it.
    """
    state = a_state("earlier", stage=BUCKET_STAGE)
    given = facts(
        request=a_request(state=state, phase=RequestPhase.IN_PROGRESS),
        backup=backup,
        siblings=[a_request("earlier", state=state, phase=phase)],
    )
    absent = inventory(troubles=[ListAbsent("backups/foo/foo-volumesnapshots.json.gz")])

    assert isinstance(admit(given, absent, now=NOW), Admitted) is admitted
    assert begin(given, now=NOW).stage == (BUCKET_STAGE if admitted else None)


def test_a_corrupt_list_is_a_refusal_even_then():
    corrupt = inventory(troubles=[ListCorrupt("backups/foo/foo-volumesnapshots.json.gz", "truncated")])

    assert admit(facts(**at_work(stage=BUCKET_STAGE)), corrupt, now=NOW).reason is Reason.LIST_CORRUPT


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param(a_location(bucket="elsewhere"), id="another-bucket"),
        pytest.param(a_location(prefix="below"), id="another-prefix"),
        pytest.param(a_location("second"), id="another-location"),
    ],
)
def test_a_deletion_does_not_move(moved):
    """State holds location, bucket and prefix: what began in one place does not go on in another."""
    given = at_work(of={"storage_location": moved.name})
    answer = admit(facts(**given, location=moved), inventory(), now=NOW)

    assert answer.reason is Reason.LOCATION_MOVED
    assert f"began in default (bucket/), but the backup's location is now {moved.name}" in answer.message


# The state that begins a deletion


def test_the_state_that_begins_a_deletion():
    """Whom, for which request, where, the phase of before, since when: written in the patch that says Deleting."""
    assert begin(facts(location=a_location(prefix="clusters/a")), now=NOW) == RequestState(
        uid=UID,
        request="uid-foo-abcde",
        location="default",
        bucket="bucket",
        prefix="clusters/a",
        previous_phase="Completed",
        first_attempt=NOW,
    )


@pytest.mark.parametrize("phase", RequestPhase)
def test_nothing_that_a_request_says_of_itself_gets_into_it(phase):
    forged = RequestState(
        uid=UID,
        request="uid-foo-abcde",
        location="y",
        bucket="z",
        prefix="p",
        previous_phase="New",
        attempts=99,
        stage=BUCKET_STAGE,
        reason="Retrying",
        first_attempt=STARTED,
        next_attempt=NOW + timedelta(days=9),
    )
    honest = begin(facts(backup=a_backup(phase="Failed")), now=NOW)

    assert (
        begin(facts(request=a_request(state=forged, phase=phase), backup=a_backup(phase="Failed")), now=NOW) == honest
    )
    assert (honest.location, honest.previous_phase, honest.attempts) == ("default", "Failed", 0)


@pytest.mark.parametrize(
    ("phase", "kept"),
    [
        *(pytest.param(phase, phase, id=phase or "no-phase") for phase in ["", *sorted(ENDED)]),
        *(pytest.param(phase, None, id=phase) for phase in [*sorted(UNFINISHED - {""}), "Deleting", "nonsense"]),
    ],
)
def test_the_phase_to_give_back_is_one_of_an_end(phase, kept):
    """A backup at work that is deleted, and then is not, must not be run by Velero again."""
    assert begin(facts(backup=a_backup(phase=phase)), now=NOW).previous_phase == kept


def test_a_resumed_deletion_keeps_its_state():
    given = at_work(attempts=3, first_attempt=ASKED, reason="Pending", next_attempt=NOW)

    assert begin(facts(**given), now=NOW) == given["request"].state


def test_a_new_pass_is_noted():
    """A pause is over: a crash in the pass can be told from it."""
    state = begin(facts(**at_work(attempts=3, reason="Retrying", next_attempt=NOW)), now=NOW)

    assert (state.reason, state.next_attempt, state.attempts) == (None, None, 3)


@pytest.mark.parametrize("reason", ["Locked", "Held", "RestoreRunning", "LocationUnavailable"])
def test_waiting_and_deferral_do_not_count(reason):
    """Deadline and attempts: waiting and deferral do not count."""
    state = begin(facts(**at_work(attempts=3, first_attempt=STARTED, reason=reason)), now=NOW)

    assert (state.reason, state.first_attempt, state.attempts) == (None, NOW, 3)


def test_a_deletion_whose_request_is_gone_is_taken_over():
    """Where it is and how far it has come stay; attempts and deadline are those of the one that asks now."""
    known = {"attempts": 4, "first_attempt": STARTED, "reason": "Retrying", "next_attempt": SOON, "bucket": "old"}
    taken = begin(facts(request=a_request("second"), backup=deleting(**known)), now=NOW)

    assert taken == a_state("second", bucket="old", first_attempt=NOW)


def test_one_that_was_among_the_files_is_taken_over_without_a_phase_to_give_back():
    taken = begin(facts(request=a_request("second"), backup=deleting(stage=BUCKET_STAGE)), now=NOW)

    assert (taken.stage, taken.previous_phase, taken.request) == (BUCKET_STAGE, None, "uid-second")


def test_a_resumed_deletion_learns_where_it_works():
    """Any key but uid may be absent."""
    given = at_work(location=None, bucket=None, prefix=None, previous_phase=None)

    state = begin(facts(**given), now=NOW)

    assert (state.location, state.bucket, state.prefix, state.previous_phase) == ("default", "bucket", "", None)


def test_one_that_velero_began_gets_a_state():
    velero = a_request(phase=RequestPhase.IN_PROGRESS)

    state = begin(facts(request=velero, backup=a_backup(phase="Deleting")), now=NOW)

    assert (state.uid, state.previous_phase, state.first_attempt) == (UID, None, NOW)


def test_with_the_record_gone_what_the_request_says_is_all_there_is():
    """Only the requests themselves are left to end; that they are tried is counted."""
    given = facts(**{**at_work(reason="Retrying", attempts=2, next_attempt=NOW), "backup": Absent()})

    assert begin(given, now=NOW) == a_state(attempts=2)
    assert begin(evolve(given, request=in_progress(location=None)), now=NOW).location == "default"
    assert begin(evolve(given, request=in_progress(location=None), location=Absent()), now=NOW).location is None


def test_a_deferral_at_work_is_noted_once():
    """A deferral of a request at work writes once: the next look gives the same state, so nothing is written again."""
    later = [Deferred(Reason.HELD, NOW + timedelta(hours=n)) for n in (1, 2)]
    paused = in_progress(attempts=2, reason="Retrying").state

    noted = postpone(paused, later[0])

    assert (noted.reason, noted.attempts, noted.previous_phase) == ("Held", 2, "Completed")
    assert postpone(noted, later[1]) == noted


def test_a_deferral_in_the_middle_of_a_pass_leaves_no_phase_to_give_back():
    """The hold is asked again before each stage, and by then something may be gone."""
    assert postpone(in_progress().state, Deferred(Reason.HELD, NOW)).previous_phase is None


def test_a_pass_that_was_cut_off_after_a_wait_leaves_no_phase_to_give_back():
    """One pass waited for its turn, the next deleted a snapshot and died; a hold then made the backup look whole."""
    waited = in_progress(reason="Pending").state

    assert postpone(waited, Deferred(Reason.HELD, NOW)).previous_phase is None
