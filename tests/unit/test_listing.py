"""One listing of a place for all who ask what carries a tag of some value."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import define, field

from reprieve.adapters.cloud.listing import Shared
from reprieve.core.errors import UnavailableError
from reprieve.core.ports import SnapshotInfo

TAG = "velero.io/backup"


@define
class Place:
    """A place with snapshots that tells how often it was listed, and a clock."""

    now: float = 0.0
    listed: int = 0
    fault: Exception | None = None
    snapshots: list = field(factory=lambda: [("s1", "a"), ("s2", "b"), ("s3", "a")])

    def __call__(self):
        self.listed += 1
        if self.fault:
            raise self.fault
        return [SnapshotInfo("gcp", name, {TAG: value, "other": "x"}) for name, value in self.snapshots]


@pytest.fixture
def place():
    return Place()


@pytest.fixture
def shared(place):
    return Shared(lambda: place.now)


def test_all_who_ask_within_a_minute_share_one(place, shared):
    assert shared.ids(TAG, "a", place) == ["s1", "s3"]
    place.now = 59.9
    assert shared.ids(TAG, "b", place) == ["s2"]
    assert shared.ids(TAG, "c", place) == []
    assert place.listed == 1


def test_after_a_minute_it_is_listed_again(place, shared):
    shared.ids(TAG, "a", place)
    place.now, place.snapshots = 60.0, [("s9", "a")]

    assert (shared.ids(TAG, "a", place), place.listed) == (["s9"], 2)


def test_another_tag_is_another_listing(place, shared):
    shared.ids(TAG, "a", place)

    assert (shared.ids("other", "x", place), place.listed) == (["s1", "s2", "s3"], 2)


def test_what_failed_is_not_kept_and_what_was_kept_does_not_outlive_it(place, shared):
    """A listing that fails is never taken for an empty one, nor for the one of a minute ago."""
    shared.ids(TAG, "a", place)
    place.now, place.fault = 61.0, UnavailableError("no answer")
    for _ in range(2):
        with pytest.raises(UnavailableError):
            shared.ids(TAG, "a", place)
    place.fault = None

    assert (shared.ids(TAG, "a", place), place.listed) == (["s1", "s3"], 4)


def test_many_at_once_list_once(place, shared):
    gate = threading.Barrier(8)

    def ask():
        gate.wait(10)
        return shared.ids(TAG, "a", place)

    with ThreadPoolExecutor(8) as pool:
        answers = [each.result() for each in [pool.submit(ask) for _ in range(8)]]
    assert answers == [["s1", "s3"]] * 8
    assert place.listed == 1
