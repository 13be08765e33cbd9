"""The steps of retention and sync as data: what they are called, what they are for machines, and their patches."""

import json

import pytest

from reprieve.core.backups import request_for
from reprieve.core.steps import (
    ChangeMetadata,
    CreateRecord,
    CreateRequest,
    WriteHoldFile,
    describe,
    merge_patch,
    step_to_json,
)
from tests.unit.builders import a_backup, ref

BACKUP = ref("Backup", "foo", "u")
NAMED = {"apiVersion": "velero.io/v1", "kind": "Backup", "namespace": "velero", "name": "foo", "uid": "u"}
CHANGE = ChangeMetadata(BACKUP, "7", {"a": "1"}, {"b": "2"}, ["c"], ["d"])
CREATE = CreateRequest(request_for(a_backup()))
RECORD = CreateRecord(ref("Backup", "foo"), {"kind": "Backup", "metadata": {"name": "foo"}})
HOLD = WriteHoldFile("default", "backups/foo/reprieve-hold.json", "{}\n")


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (CHANGE, "backup velero/foo"),
        (CREATE, "deletion request for backup velero/foo"),
        (RECORD, "backup velero/foo"),
        (HOLD, "hold file backups/foo/reprieve-hold.json"),
    ],
)
def test_a_step_is_called_after_its_thing(step, name):
    assert describe(step) == name


@pytest.mark.parametrize(
    ("step", "patch"),
    [
        pytest.param(
            CHANGE,
            {"metadata": {"labels": {"a": "1", "c": None}, "annotations": {"b": "2", "d": None}}},
            id="all-four",
        ),
        pytest.param(ChangeMetadata(BACKUP, "7", {"a": "1"}), {"metadata": {"labels": {"a": "1"}}}, id="labels-alone"),
        pytest.param(
            ChangeMetadata(BACKUP, "7", without_annotations=["d"]),
            {"metadata": {"annotations": {"d": None}}},
            id="annotations-alone",
        ),
    ],
)
def test_the_patch_names_only_what_it_changes(step, patch):
    assert merge_patch(step) == patch


@pytest.mark.parametrize("step", [CHANGE, CREATE, RECORD, HOLD], ids=lambda step: type(step).__name__)
def test_a_step_for_machines_is_json_under_its_name(step):
    written = step_to_json(step)

    assert json.loads(json.dumps(written)) == written
    assert written["step"] == type(step).__name__


def test_steps_say_what_they_work_on():
    assert step_to_json(CHANGE)["ref"] == NAMED
    assert step_to_json(CREATE)["request"]["backup"] == "foo"
    assert "type" not in step_to_json(CREATE)["request"]
    assert step_to_json(RECORD)["manifest"] == {"kind": "Backup", "metadata": {"name": "foo"}}
    assert step_to_json(HOLD) == {
        "step": "WriteHoldFile",
        "location": "default",
        "key": "backups/foo/reprieve-hold.json",
        "content": "{}\n",
    }
