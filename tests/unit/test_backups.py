"""Backups' values: the state annotation, the request that is created, names of places."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.backups import (
    BACKUP_UID,
    EVEN_IN_PROGRESS,
    SCHEDULE_NAME,
    STATE,
    Layout,
    RequestState,
    StorageLocation,
    plain_provider,
    read_state,
    request_for,
    restore_directory,
    write_state,
)
from reprieve.core.objects import ObjectMeta
from tests.unit.builders import NOW, UID, a_backup, a_request, a_snapshot_location

WHOLE = RequestState(
    uid=UID,
    location="default",
    bucket="bucket",
    prefix="",
    previous_phase="Completed",
    first_attempt=NOW,
    attempts=2,
    next_attempt=NOW + timedelta(seconds=30.5),
    finished_at=NOW,
    stage="bucketFiles",
    reason="Retrying",
)


def test_the_state_as_it_is_written():
    """One JSON annotation: uid, location, bucket, prefix, previousPhase, firstAttempt, attempts, nextAttempt, …"""
    assert json.loads(write_state(WHOLE)) == {
        "uid": UID,
        "location": "default",
        "bucket": "bucket",
        "prefix": "",
        "previousPhase": "Completed",
        "firstAttempt": "2024-04-04T12:00:00Z",
        "attempts": 2,
        "nextAttempt": "2024-04-04T12:00:30.500000Z",
        "finishedAt": "2024-04-04T12:00:00Z",
        "stage": "bucketFiles",
        "reason": "Retrying",
    }


def test_any_key_but_uid_may_be_absent():
    """Any key but uid may be absent."""
    assert write_state(RequestState()) == '{"uid":""}'


@pytest.mark.parametrize("state", [WHOLE, RequestState(), RequestState(uid="x", prefix="a/b")])
def test_what_is_written_is_read_back(state):
    assert read_state({STATE: write_state(state)}) == state


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", "null", '"x"', "[" * 100_000, '{"attempts": 1' + "0" * 5000 + "}", "nonsense"],
    ids=["empty", "open", "list", "number", "null", "text", "deep", "huge-number", "no-json"],
)
def test_a_malformed_state_counts_as_absent(text):
    """A hand can write it."""
    assert read_state({STATE: text}) == RequestState()


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("uid", 7),
        ("location", ["x"]),
        ("prefix", {}),
        ("previousPhase", True),
        ("firstAttempt", "yesterday"),
        ("nextAttempt", "2024-04-04T12:00:00"),
        ("finishedAt", 1712232000),
        ("attempts", -1),
        ("attempts", True),
        ("attempts", "3"),
        ("attempts", 2.5),
        ("stage", 1),
        ("reason", None),
    ],
)
def test_a_wrong_value_counts_as_absent(key, wrong):
    assert read_state({STATE: json.dumps({key: wrong})}) == RequestState()


def test_no_annotation_no_state():
    assert read_state({}) == RequestState()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_reading_a_state_never_raises(document):
    assert isinstance(read_state({STATE: json.dumps(document)}), RequestState)


# Requests


def test_a_request_is_bound_by_both_labels():
    request = request_for(a_backup())

    assert dict(request.labels) == {"velero.io/backup-name": "foo", "velero.io/backup-uid": UID}
    assert dict(request.annotations) == {}


def test_a_request_for_a_backup_at_work():
    assert dict(request_for(a_backup(), even_in_progress=True).annotations) == {EVEN_IN_PROGRESS: "true"}


def test_bound_by_the_label_else_by_the_state():
    assert a_request(uid="x", state=RequestState(uid="y")).bound_uid == "x"
    assert a_request(uid="", state=RequestState(uid="y")).bound_uid == "y"
    assert a_request(uid="").bound_uid == ""
    assert BACKUP_UID not in a_request(uid="").meta.labels


# Names and places


def test_a_backups_schedule():
    nightly = a_backup()
    labelled = type(nightly)(nightly.ref, ObjectMeta("foo", labels={SCHEDULE_NAME: "nightly"}))

    assert (nightly.schedule, labelled.schedule) == ("", "nightly")


@pytest.mark.parametrize(("prefix", "place"), [("", "bucket"), ("a/b", "bucket/a/b")])
def test_a_place(prefix, place):
    assert StorageLocation("default", bucket="bucket", prefix=prefix).place == place


def test_a_region():
    assert a_snapshot_location(region="us-east-1").region == "us-east-1"
    assert a_snapshot_location().region == ""


@pytest.mark.parametrize(
    ("provider", "plain"), [("velero.io/aws", "aws"), ("aws", "aws"), ("", ""), ("x.io/y", "x.io/y")]
)
def test_a_plain_provider(provider, plain):
    """`velero.io/aws` and `aws` are one."""
    assert plain_provider(provider) == plain


VELERO = Layout()
ARK = Layout(backups="", restores="", metadata_file="ark-backup.json", located=False)


@pytest.mark.parametrize(
    ("layout", "directory", "metadata", "hold", "restore"),
    [
        pytest.param(
            VELERO,
            "backups/foo/",
            "backups/foo/velero-backup.json",
            "backups/foo/reprieve-hold.json",
            "restores/r1/",
            id="velero",
        ),
        pytest.param(ARK, "foo/", "foo/ark-backup.json", "foo/reprieve-hold.json", "foo/restore-r1-", id="ark"),
    ],
)
def test_a_layout(layout, directory, metadata, hold, restore):
    """Velero's layout of a bucket, and Ark's, where restores' files lie in the directory of their backup."""
    assert layout.directory("foo") == directory
    assert layout.metadata_key("foo") == metadata
    assert layout.hold_key("foo") == hold
    assert layout.restore_prefix("foo", "r1") == restore


def test_a_restores_directory():
    assert restore_directory("r1") == "restores/r1/"
