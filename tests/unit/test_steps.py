"""Steps as data: what they are called in messages, what they are for machines, and the patches that they stand for."""

import json

import pytest

from reprieve.core.backups import request_for
from reprieve.core.objects import ObjectRef, OwnerReference
from reprieve.core.steps import (
    AddFinalizer,
    ChangeMetadata,
    CreateRecord,
    CreateRequest,
    DeleteFile,
    DeleteFiles,
    DeleteObject,
    DeleteRestore,
    DeleteSnapshot,
    EndRequest,
    MarkOwner,
    RemoveFinalizer,
    RemoveOwnerReference,
    UnmarkOwner,
    WriteHoldFile,
    describe,
    merge_patch,
    step_to_json,
)
from tests.unit.builders import METADATA_KEY, a_backup, ref

OWNER = ref("GitTrackObject", "web", "u1")
OTHER = OwnerReference("v1", "ConfigMap", "other", "u9")
BACKUP = {"apiVersion": "velero.io/v1", "kind": "Backup", "namespace": "velero", "name": "foo", "uid": "u"}


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (DeleteSnapshot("aws", "snap-1", "vsl-1"), "snapshot snap-1"),
        (DeleteRestore(ref("Restore", "r1"), "default", "restores/r1/"), "restore velero/r1"),
        (DeleteFiles("default", "backups/foo/", METADATA_KEY), "backup files under backups/foo/"),
        (DeleteFile("default", METADATA_KEY), "backup file backups/foo/velero-backup.json"),
        (DeleteObject(ref("Backup", "foo")), "backup velero/foo"),
        (EndRequest(ref("DeleteBackupRequest", "foo-abcde")), "deletebackuprequest velero/foo-abcde"),
        (DeleteObject(ObjectRef("v1", "Namespace", "x")), "namespace x"),
        (AddFinalizer(OWNER, "1", ["f"]), "gittrackobject velero/web"),
        (RemoveFinalizer(OWNER, "1"), "gittrackobject velero/web"),
        (RemoveOwnerReference(OWNER, "1", "u2"), "gittrackobject velero/web"),
        (MarkOwner(OWNER, "1"), "gittrackobject velero/web"),
        (UnmarkOwner(OWNER, "1"), "gittrackobject velero/web"),
        (ChangeMetadata(ref("Backup", "foo"), "1"), "backup velero/foo"),
        (CreateRecord(ref("Backup", "foo"), {}), "backup velero/foo"),
        (CreateRequest(request_for(a_backup())), "deletion request for backup velero/foo"),
        (WriteHoldFile("default", "backups/foo/reprieve-hold.json", "{}"), "hold file backups/foo/reprieve-hold.json"),
    ],
)
def test_a_step_is_called_after_its_thing(step, name):
    """As Velero's messages do: error deleting snapshot snap-1, error deleting restore velero/r1."""
    assert describe(step) == name


@pytest.mark.parametrize(
    ("step", "document"),
    [
        (
            DeleteSnapshot("aws", "snap-1", "vsl-1"),
            {"step": "DeleteSnapshot", "provider": "aws", "id": "snap-1", "location": "vsl-1"},
        ),
        (DeleteObject(ref("Backup", "foo", "u")), {"step": "DeleteObject", "ref": BACKUP}),
        (
            DeleteObject(ref("Backup", "foo", "u"), resource_version="7"),
            {"step": "DeleteObject", "ref": BACKUP, "resourceVersion": "7"},
        ),
        (
            DeleteRestore(ObjectRef("velero.io/v1", "Restore", "r"), "default", "restores/r/"),
            {
                "step": "DeleteRestore",
                "location": "default",
                "prefix": "restores/r/",
                "ref": {"apiVersion": "velero.io/v1", "kind": "Restore", "name": "r"},
            },
        ),
        (
            RemoveOwnerReference(ref("Backup", "foo", "u"), "7", "u2", [OTHER], "u2/u"),
            {
                "step": "RemoveOwnerReference",
                "ref": BACKUP,
                "resourceVersion": "7",
                "ownerUid": "u2",
                "remaining": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "u9"}],
                "orphanedFrom": "u2/u",
                "forget": False,
            },
        ),
        (
            CreateRequest(request_for(a_backup())),
            {
                "step": "CreateRequest",
                "request": {
                    "generate_name": "foo-",
                    "namespace": "velero",
                    "backup": "foo",
                    "labels": {"velero.io/backup-name": "foo", "velero.io/backup-uid": "uid-foo"},
                    "annotations": {},
                },
            },
        ),
    ],
    ids=["snapshot", "object", "object-as-it-was", "restore", "owner-reference", "request"],
)
def test_a_step_for_machines(step, document):
    """{"step": "DeleteSnapshot", "provider": "aws", "id": "snap-1", …}."""
    assert step_to_json(step) == document
    assert json.loads(json.dumps(step_to_json(step))) == document


@pytest.mark.parametrize(
    ("step", "metadata"),
    [
        (AddFinalizer(OWNER, "1", ["a", "b"]), {"finalizers": ["a", "b"]}),
        (RemoveFinalizer(OWNER, "1", ["a"]), {"finalizers": ["a"]}),
        (RemoveFinalizer(OWNER, "1"), {"finalizers": None}),
        (RemoveOwnerReference(OWNER, "1", "u2"), {"ownerReferences": None}),
        (
            RemoveOwnerReference(OWNER, "1", "u2", [OTHER], "u2/u1"),
            {
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "u9"}],
                "annotations": {"reprieve.dev/orphaned-from": "u2/u1"},
            },
        ),
        (
            RemoveOwnerReference(OWNER, "1", "u2", forget=True),
            {"ownerReferences": None, "annotations": {"reprieve.dev/orphaned-from": None}},
        ),
        (MarkOwner(OWNER, "1"), {"annotations": {"reprieve.dev/deletion-requested": "u1"}}),
        (UnmarkOwner(OWNER, "1"), {"annotations": {"reprieve.dev/deletion-requested": None}}),
        (ChangeMetadata(OWNER, "1"), {}),
        (
            ChangeMetadata(OWNER, "1", {"a": "b"}, {"c": "d"}, ["e"], ["f"]),
            {"labels": {"a": "b", "e": None}, "annotations": {"c": "d", "f": None}},
        ),
    ],
    ids=[
        "add-finalizer",
        "others-finalizers-stay",
        "last-finalizer",
        "last-reference",
        "other-references-stay",
        "forget",
        "mark-by-its-own-uid",
        "unmark",
        "no-change",
        "labels-and-annotations",
    ],
)
def test_a_merge_patch_names_only_what_it_changes(step, metadata):
    assert merge_patch(step) == {"metadata": metadata}
