"""Holds beside a backup's files: what an annotation says of them lifts none, and what says a thing twice holds."""

import hashlib
import json
from datetime import timedelta

import pytest

from tests.unit.overtime import DAY, NOW, Namespace, files_of, location, record, told

KEY = "backups/foo/reprieve-hold.json"
LATER = NOW + timedelta(minutes=1)
BY_HAND = b'{"reprieve.dev/hold": "case 4711"}'
OF_ANOTHER = b'{"reprieve.dev/hold": "case 4711", "reprieve.dev/mirrored-from": "uid-of-another-cluster"}'


def scene(*, file=None, expires=NOW - DAY, **annotations):
    """``foo`` has expired, ``bar`` is its neighbour; ``file`` is what the bucket has beside foo's files."""
    marks = {f"reprieve.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    foo, bar = record("foo", expires=expires, annotations=marks), record("bar", expires=expires)
    files = files_of(foo) | files_of(bar) | ({KEY: file} if file else {})
    return Namespace(location(), foo, bar, buckets={"b": files})


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("file", [BY_HAND, OF_ANOTHER], ids=["put-there-by-hand", "another-records"])
@pytest.mark.parametrize("forged", [{}, {"hold": "mine"}, {"hold": "mine", "hold_until": "2000-01-01T00:00:00Z"}])
def test_a_forged_mark_neither_removes_nor_rewrites_the_hold_of_the_bucket(file, forged):
    """Whoever may patch Backups writes the digest of the bucket's hold file as if it were this record's.

    Sync took the file away, or wrote another hold over it, and the backup went with the next pass of retention.
    """
    ns = scene(file=file, hold_mirrored=digest(file), **forged)
    for at in (NOW, LATER, LATER + DAY):
        ns.run("sync", "retention", "deletion", at=at)
    assert ns.stores.files("b")[KEY] == file
    assert ns.get("foo") is not None
    assert ns.get("bar") is None
    # The annotations are taken off again: nothing is left of the forgery but the hold.
    ns.annotate("foo", hold=None, hold_until=None)
    for at in (LATER + 2 * DAY, LATER + 3 * DAY):
        ns.run("sync", "retention", "deletion", at=at)
    assert ns.stores.files("b")[KEY] == file
    assert ns.get("foo") is not None


def test_a_lifted_hold_that_a_foreign_file_holds_on_is_told():
    """The way out is to remove the file by hand, and that is said with its key."""
    ns = scene(file=BY_HAND, hold_mirrored=digest(BY_HAND))
    report = ns.run("sync")
    assert ("sync", "foo", "KEEP", "HoldFileForeign") in told(report)
    assert KEY in report.decisions[0].message


def test_a_forged_mark_does_not_keep_a_hold_out_of_the_bucket():
    """The mark says that the hold is in its file, so sync did not look, and the hold was lost with the namespace."""
    ns = scene(expires=None)
    document = {"reprieve.dev/hold": "case 4711", "reprieve.dev/mirrored-from": ns.get("foo").meta.uid}
    expected = (json.dumps(document) + "\n").encode()
    ns.annotate("foo", hold="case 4711", hold_mirrored=digest(expected))
    ns.run("sync")
    assert ns.stores.files("b")[KEY] == expected


DOUBLED = [
    pytest.param(
        b'{"reprieve.dev/hold": "x", "reprieve.dev/hold-until": "2099-01-01T00:00:00Z",'
        b' "reprieve.dev/hold-until": "2000-01-01T00:00:00Z"}',
        id="a-second-date-that-has-passed",
    ),
    pytest.param(
        b'{"reprieve.dev/hold-until": "2000-01-01T00:00:00Z", "reprieve.dev/hold": "x", "reprieve.dev/hold": ""}',
        id="a-second-reason",
    ),
    pytest.param(
        b'{"a": {"b": 1, "b": 2}, "reprieve.dev/hold-until": "2000-01-01T00:00:00Z"}', id="a-doubled-key-further-down"
    ),
]


@pytest.mark.parametrize("file", DOUBLED)
def test_a_doubled_key_in_a_hold_file_holds(file):
    """Of two dates the last one counted: a line at the end of the file lifted the hold that everybody reads."""
    ns = scene(file=file)
    report = ns.run("retention", "deletion")
    assert ("retention", "foo", "KEEP", "Held") in told(report)
    assert ns.get("foo") is not None
    assert ns.get("bar") is None


def test_a_hold_that_came_back_with_its_record_can_be_lifted_with_it():
    """An honest neighbour: the namespace was lost, the record came back held, and its owner lets it go."""
    ns = scene(hold="case 4711")
    ns.run("sync")
    again = Namespace(location(), buckets={"b": ns.stores.files("b")})
    again.run("sync")
    assert again.get("foo").meta.annotations["reprieve.dev/hold"] == "case 4711"
    assert json.loads(again.stores.files("b")[KEY])["reprieve.dev/mirrored-from"] == again.get("foo").meta.uid
    again.annotate("foo", hold=None)
    again.run("sync", at=LATER)
    assert KEY not in again.stores.files("b")


def test_a_hold_put_there_by_hand_outlives_the_record_that_it_came_back_with():
    """The record that sync makes of it is held; to take the annotation off it lifts nothing in the bucket."""
    ns = Namespace(location(), buckets={"b": files_of(record("foo", expires=NOW)) | {KEY: BY_HAND}})
    ns.run("sync")
    assert ns.get("foo").meta.annotations["reprieve.dev/hold"] == "case 4711"
    ns.annotate("foo", hold=None)
    ns.run("sync", "retention", "deletion", at=NOW + 3 * DAY)
    ns.run("sync", "retention", "deletion", at=NOW + 4 * DAY)
    assert ns.stores.files("b")[KEY] == BY_HAND
    assert ns.get("foo") is not None
