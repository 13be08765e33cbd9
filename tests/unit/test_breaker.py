"""When calls are held back, and that a stuck or throttled bucket is not asked by one caller after the other."""

from datetime import timedelta

import pytest

from reprieve.adapters.cloud.breaker import HUNG, REST, SHORT_REST, Breaker
from reprieve.adapters.cloud.limited import QUICK_FAILURES, GuardedObjectStore
from reprieve.core.errors import NotFoundError, ThrottledError, UnavailableError
from reprieve.core.outcomes import Denied, Done, Retryable
from reprieve.core.ports import FileInfo


class Clock:
    """Time that passes when a call takes some."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bucket:
    """A store that fails as told, after as long as told; it counts how often it was asked."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.takes = 0.0
        self.fails: Exception | None = None
        self.deletes = Done()
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1
        self.clock.now += self.takes
        if self.fails:
            raise self.fails

    def read(self, key, *, limit):
        self.ask()
        return b"x"

    def list(self, prefix):
        yield FileInfo("a", 1)
        self.ask()
        yield FileInfo("b", 1)

    def list_directories(self, prefix):
        self.ask()
        yield "a"

    def write(self, key, data):
        self.ask()

    def delete(self, keys):
        self.asked += 1
        self.clock.now += self.takes
        return dict.fromkeys(keys, self.deletes)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def bucket(clock):
    return Bucket(clock)


@pytest.fixture
def store(bucket, clock):
    breaker = Breaker(quick=QUICK_FAILURES, clock=clock)
    return GuardedObjectStore(bucket, breaker, place="bucket backups", clock=clock)


CALLS = {
    "read": lambda store: store.read("k", limit=1),
    "list": lambda store: list(store.list("d/")),
    "list_directories": lambda store: list(store.list_directories("d/")),
    "write": lambda store: store.write("k", b""),
}
EVERY_CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def hang(bucket):
    bucket.takes, bucket.fails = 30.0, UnavailableError("timed out")


@EVERY_CALL
def test_after_a_call_that_hung_nobody_else_is_kept(store, bucket, clock, call):
    hang(bucket)
    with pytest.raises(UnavailableError, match="timed out"):
        call(store)
    for other in CALLS.values():
        with pytest.raises(UnavailableError, match=r"bucket backups: .* not asked.*; held back for 30 s") as caught:
            other(store)
        assert caught.value.after == REST
    outcomes = store.delete(["a", "b"])

    assert {type(outcome) for outcome in outcomes.values()} == {Retryable}
    assert list(outcomes) == ["a", "b"]
    assert bucket.asked == 1
    assert clock.now == 30.0


def test_a_delete_that_hung_holds_back_too(store, bucket):
    bucket.takes, bucket.deletes = 30.0, Retryable(message="timed out")
    store.delete(["a", "b"])
    with pytest.raises(UnavailableError, match="not asked"):
        store.read("k", limit=1)

    assert bucket.asked == 1


@EVERY_CALL
def test_a_throttled_bucket_is_left_alone_after_some_answers(store, bucket, clock, call):
    """One 503 among many reads is everyday; three in a row mean that more would only keep it throttled."""
    bucket.fails = ThrottledError("slow down")
    for _ in range(10):
        with pytest.raises((ThrottledError, UnavailableError)):
            call(store)
    assert bucket.asked == QUICK_FAILURES

    clock.now += SHORT_REST.total_seconds()
    bucket.fails = None
    call(store)
    call(store)
    assert bucket.asked == QUICK_FAILURES + 2


def test_single_failures_between_answers_hold_nobody_back(store, bucket):
    for _ in range(10):
        bucket.fails = ThrottledError("slow down")
        with pytest.raises(ThrottledError):
            store.read("k", limit=1)
        bucket.fails = NotFoundError("no such file")
        with pytest.raises(NotFoundError):
            store.read("k", limit=1)

    assert bucket.asked == 20


@pytest.mark.parametrize("outcome", [Done(), Denied("no")])
def test_a_slow_delete_that_was_answered_holds_nobody_back(store, bucket, outcome):
    bucket.takes, bucket.deletes = 60.0, outcome

    assert store.delete(["a"]) == {"a": outcome}
    assert store.delete(["a"]) == {"a": outcome}


def test_a_list_that_nobody_reads_to_its_end_leaves_no_trace(store, bucket, clock):
    hang(bucket)
    with pytest.raises(UnavailableError):
        store.read("k", limit=1)
    clock.now += REST.total_seconds()
    listing = store.list("d/")
    assert next(listing).key == "a"
    listing.close()
    bucket.fails = None

    assert store.read("k", limit=1) == b"x"


def test_deleting_nothing_asks_nobody(store, bucket):
    assert store.delete([]) == {}
    assert bucket.asked == 0


def test_only_one_call_tries_after_the_rest(clock):
    breaker = Breaker(clock=clock)
    clock.now += HUNG.total_seconds() + 1
    breaker.note(began=0.0, failed=True)
    clock.now += REST.total_seconds()

    assert breaker.held() == timedelta(0)
    assert breaker.ask() == timedelta(0)
    assert breaker.ask() == SHORT_REST
    breaker.let_go()
    assert breaker.ask() == timedelta(0)
    breaker.note(began=clock.now, failed=False)
    assert breaker.ask() == timedelta(0)
    assert breaker.ask() == timedelta(0)


def test_a_bucket_that_is_still_throttled_rests_again(clock):
    breaker = Breaker(quick=1, clock=clock)
    breaker.note(began=clock.now, failed=True)
    clock.now += SHORT_REST.total_seconds()
    assert breaker.ask() == timedelta(0)
    breaker.note(began=clock.now, failed=True)

    assert breaker.ask() == SHORT_REST
