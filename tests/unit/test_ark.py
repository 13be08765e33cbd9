"""Ark v0.8's dialect: read in Velero's words, written in Ark's, over a bucket that is laid out in another way."""

import pytest

from reprieve.adapters.k8s import ark, velero
from reprieve.adapters.k8s.dialect import VELERO, FixedLocations, ServedLocations, ark_dialect
from reprieve.core.backups import (
    BACKUP_NAME,
    BACKUP_UID,
    GC_FAILURE,
    SCHEDULE_NAME,
    Directory,
    Inventory,
    Layout,
    MetadataPresent,
    NativeSnapshot,
    request_for,
)
from reprieve.core.marks import MarksAsked, SnapshotsSeen
from reprieve.core.objects import ObjectRef, resource_from_json
from reprieve.core.requests import Admitted, DeletionFacts, Refused, admit, plan
from reprieve.core.retention import draft_request
from reprieve.core.steps import ChangeMetadata, DeleteFile, DeleteFiles, DeleteRestore, DeleteSnapshot, merge_patch
from reprieve.core.values import parse_instant
from tests.unit.builders import NOW, a_restore

ARK = ark_dialect(bucket="ark-backups", provider="aws", namespace="heptio-ark")
STARTED = "2018-04-03T12:00:00Z"
VOLUMES = {
    "pv-2": {"snapshotID": "snap-2", "type": "gp2", "availabilityZone": "us-east-1a", "iops": 100},
    "pv-1": {"snapshotID": "snap-1", "type": "gp2"},
}


def an_object(kind="Backup", name="foo", *, labels=None, **body):
    metadata = {"name": name, "namespace": "heptio-ark", "uid": f"uid-{name}", "labels": labels or {}}
    return resource_from_json({"apiVersion": "ark.heptio.com/v1", "kind": kind, "metadata": metadata, **body})


def a_backup(*, labels=None, **status):
    return an_object(labels=labels, status={"phase": "Completed", "startTimestamp": STARTED, **status})


def facts(backup, *, handlers=("aws",), restores=()):
    return DeletionFacts(
        request=draft_request(backup),
        backup=backup,
        location=ARK.locations.storage,
        directory=Directory(MetadataPresent(parse_instant(STARTED))),
        marks=MarksAsked([SnapshotsSeen("default", ["snap-1", "snap-2"])]),
        snapshot_locations=[ARK.locations.snapshots],
        restores=restores,
        handlers=handlers,
        layout=ARK.layout,
        without_provider=ARK.without_provider,
    )


def inventory(backup):
    return Inventory(backup.legacy_snapshots)


# Reading


def test_a_backup_is_read_in_veleros_words():
    labels = {"ark-schedule": "nightly", "app": "x"}
    read = ark.backup(a_backup(labels=labels, volumeBackups=VOLUMES, expiration="2018-05-03T12:00:00Z"))

    assert read.ref == ObjectRef("ark.heptio.com/v1", "Backup", "foo", "heptio-ark", "uid-foo")
    assert dict(read.meta.labels) == {SCHEDULE_NAME: "nightly", "app": "x"}
    assert read.schedule == "nightly"
    assert read.storage_location == "default"
    assert read.phase == "Completed"
    assert read.started == parse_instant(STARTED)
    assert read.expiration == parse_instant("2018-05-03T12:00:00Z")
    assert read.legacy_snapshots == (
        NativeSnapshot("snap-1", "default", "", "pv-1"),
        NativeSnapshot("snap-2", "default", "us-east-1a", "pv-2"),
    )


@pytest.mark.parametrize(
    "expiration",
    [
        pytest.param("0001-01-01T00:00:00Z", id="gos-zero-time"),
        pytest.param(None, id="null"),
        pytest.param("soon", id="no-date"),
    ],
)
def test_a_zero_expiration_means_never(expiration):
    """heptio/ark v0.7.1 took a zero expiration for an expired one."""
    assert ark.backup(a_backup(expiration=expiration)).expiration is None


@pytest.mark.parametrize("volumes", [None, [], "snap-1", {"pv": "snap-1"}, {"pv": {"snapshotID": 7}}])
def test_whatever_people_wrote_is_read(volumes):
    assert [s.id for s in ark.backup(a_backup(volumeBackups=volumes)).legacy_snapshots if s.id] == []


def test_a_request_is_bound_by_arks_labels():
    labels = {"ark.heptio.com/backup-name": "foo", "ark.heptio.com/backup-uid": "uid-foo"}
    read = ark.deletion_request(an_object("DeleteBackupRequest", "foo-1", labels=labels, spec={"backupName": "foo"}))

    assert (read.backup, read.bound_uid) == ("foo", "uid-foo")
    assert dict(read.meta.labels) == {BACKUP_NAME: "foo", BACKUP_UID: "uid-foo"}


def test_a_restore_is_read():
    read = ark.restore(an_object("Restore", "r1", spec={"backupName": "foo"}, status={"phase": "Completed"}))

    assert (read.backup, read.phase) == ("foo", "Completed")


def test_the_one_bucket_is_a_location_that_is_always_there():
    location, snapshots = ARK.locations.storage, ARK.locations.snapshots

    assert (location.name, location.place, location.provider) == ("default", "ark-backups", "aws")
    assert location.available
    assert not location.read_only
    assert location.meta.namespace == "heptio-ark"
    assert (snapshots.name, snapshots.provider) == ("default", "aws")


# Writing


def test_a_request_is_written_in_arks_words():
    manifest = ark.request_manifest(request_for(ark.backup(a_backup())))

    assert manifest == {
        "apiVersion": "ark.heptio.com/v1",
        "kind": "DeleteBackupRequest",
        "metadata": {
            "generateName": "foo-",
            "namespace": "heptio-ark",
            "labels": {"ark.heptio.com/backup-name": "foo", "ark.heptio.com/backup-uid": "uid-foo"},
        },
        "spec": {"backupName": "foo"},
    }


def test_what_is_written_is_read_back_the_same():
    asked = request_for(ark.backup(a_backup()))

    assert dict(ark.deletion_request(resource_from_json(ark.request_manifest(asked))).meta.labels) == dict(asked.labels)


@pytest.mark.parametrize(
    ("labels", "patch"),
    [
        pytest.param(
            {},
            {"metadata": {"labels": {"ark.heptio.com/backup-name": "foo", "ark.heptio.com/backup-uid": "uid-foo"}}},
            id="unlabelled",
        ),
        pytest.param(
            {"ark.heptio.com/backup-name": "foo"},
            {"metadata": {"labels": {"ark.heptio.com/backup-uid": "uid-foo"}}},
            id="named",
        ),
        pytest.param({"ark.heptio.com/backup-name": "foo", "ark.heptio.com/backup-uid": "other"}, {}, id="bound"),
    ],
)
def test_a_request_is_bound_in_arks_words(labels, patch):
    request = ark.deletion_request(an_object("DeleteBackupRequest", labels=labels, spec={"backupName": "foo"}))

    assert ark.bind_patch(request, "uid-foo") == patch


def test_labels_of_patches_are_translated_and_nothing_else():
    ref = ark.backup(a_backup()).ref
    step = ChangeMetadata(
        ref, "1", without_labels=[GC_FAILURE, "reprieve.dev/metadata-missing"], annotations={"a": "b"}
    )

    assert ark.in_arks_words(merge_patch(step)) == {
        "metadata": {
            "labels": {"ark.heptio.com/gc-failure": None, "reprieve.dev/metadata-missing": None},
            "annotations": {"a": "b"},
        }
    }
    assert ark.in_arks_words({"status": {"phase": "Deleting"}}) == {"status": {"phase": "Deleting"}}


# Deleting


def test_a_deletion_over_arks_layout():
    """Restores' files lie in the backup's directory, snapshots are named by the record, metadata goes last."""
    backup = ark.backup(a_backup(volumeBackups=VOLUMES))
    known = facts(backup, restores=[a_restore("r1"), a_restore("r2", backup="bar")])

    assert isinstance(admit(known, inventory(backup), now=NOW), Admitted)
    stages = {stage.name: stage.steps for stage in plan(known, inventory(backup)).stages}

    assert list(stages) == ["snapshots", "restores", "bucketFiles", "bucketMetadata", "backup", "requests"]
    assert {step.id for step in stages["snapshots"]} == {"snap-1", "snap-2"}
    assert {(step.provider, step.location) for step in stages["snapshots"] if isinstance(step, DeleteSnapshot)} == {
        ("aws", "default")
    }
    assert stages["restores"] == (DeleteRestore(a_restore("r1").ref, "default", "foo/restore-r1-"),)
    assert stages["bucketFiles"] == (DeleteFiles("default", "foo/", "foo/ark-backup.json"),)
    assert stages["bucketMetadata"] == (DeleteFile("default", "foo/ark-backup.json"),)


def test_snapshots_without_a_provider():
    """Ark refuses a backup with snapshots when it has no provider of volumes, and deletes nothing."""
    backup = ark.backup(a_backup(volumeBackups=VOLUMES))
    refused = admit(facts(backup, handlers=()), inventory(backup), now=NOW)

    assert isinstance(refused, Refused)
    assert refused.message == (
        "unable to delete backup because it includes PV snapshots and Ark is not configured with a "
        "PersistentVolumeProvider"
    )


def test_no_snapshots_need_no_provider():
    backup = ark.backup(a_backup())

    assert isinstance(admit(facts(backup, handlers=()), inventory(backup), now=NOW), Admitted)


# Both dialects as one value


def test_the_layouts():
    velero_layout, ark_layout = Layout(), ARK.layout

    assert velero_layout.metadata_key("foo") == "backups/foo/velero-backup.json"
    assert velero_layout.hold_key("foo") == "backups/foo/reprieve-hold.json"
    assert velero_layout.restore_prefix("foo", "r1") == "restores/r1/"
    assert ark_layout.metadata_key("foo") == "foo/ark-backup.json"
    assert ark_layout.hold_key("foo") == "foo/reprieve-hold.json"
    assert ark_layout.restore_prefix("foo", "r1") == "foo/restore-r1-"


def test_the_dialects_differ_only_where_they_must():
    assert VELERO.locations == ServedLocations(velero.STORAGE_LOCATION, velero.SNAPSHOT_LOCATION)
    assert isinstance(ARK.locations, FixedLocations)
    assert VELERO.to_api({"metadata": {"labels": {GC_FAILURE: "x"}}}) == {"metadata": {"labels": {GC_FAILURE: "x"}}}
    assert (VELERO.lists != (), ARK.lists) == (True, ())
    assert (VELERO.without_provider, ARK.without_provider) == ("", ark.WITHOUT_PROVIDER)


@pytest.mark.parametrize("dialect", [VELERO, ARK], ids=lambda dialect: dialect.name)
def test_a_request_goes_there_and_back_in_either_dialect(dialect):
    kind = dialect.backup_kind
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    backup = dialect.backup(resource_from_json({**head, "metadata": {"name": "foo", "namespace": "n", "uid": "u"}}))
    manifest = dialect.request_manifest(request_for(backup))

    read = dialect.deletion_request(resource_from_json(manifest))

    assert (read.ref.type, read.backup, read.bound_uid) == (dialect.request_kind, "foo", "u")
    assert dialect.bind_patch(read, "u") == {}
