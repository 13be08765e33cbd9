"""The work queue: a key once, in one hand at a time, back later when asked."""

import threading

from reprieve.entrypoints.controller.queue import (
    BURST,
    FIRST_DELAY,
    FIRST_REST,
    HEARD_AGAIN,
    LAST_DELAY,
    LONGEST_WAIT,
    SLOW,
    WorkQueue,
)


class Clock:
    """Seconds that the test moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def drained(queue):
    """Take and lay down everything that is ready."""
    keys = []
    while (key := queue.get(timeout=0)) is not None:
        keys.append(key)
        queue.done(key)
    return keys


def test_a_key_that_is_added_twice_is_handed_out_once():
    """Events about one object fold into one look at it."""
    queue = WorkQueue(clock=Clock())
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert drained(queue) == ["a", "b"]


def test_a_key_in_hand_is_never_in_a_second_hand():
    """Added while it is worked on, it comes again only after it was laid down."""
    queue = WorkQueue(clock=Clock())
    queue.add("a")
    assert queue.get(timeout=0) == "a"
    queue.add("a")
    assert queue.get(timeout=0) is None
    queue.done("a")
    assert drained(queue) == ["a"]


def test_a_key_comes_back_at_its_time_and_not_before():
    """Waiting is a timed requeue; the earliest of several times counts, and it is handed out once."""
    clock = Clock()
    queue = WorkQueue(clock=clock)
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    clock.now = 4.9
    assert drained(queue) == []
    clock.now = 5
    assert drained(queue) == ["a"]
    clock.now = 30
    assert drained(queue) == []


def test_a_time_that_has_passed_is_now():
    """A requeue for the past does not wait."""
    queue = WorkQueue(clock=Clock())
    queue.add_after("a", -3)
    assert drained(queue) == ["a"]


def test_failures_in_a_row_pause_longer_and_longer_up_to_a_limit():
    """A key that fails on and on does not hammer; one success makes it new."""
    clock = Clock()
    queue = WorkQueue(clock=clock)
    pauses = [queue.retry("a") for _ in range(15)]
    assert pauses[:3] == [FIRST_DELAY, FIRST_DELAY * 2, FIRST_DELAY * 4]
    assert pauses[-1] == LAST_DELAY
    queue.forget("a")
    assert queue.retry("a") == FIRST_DELAY


def test_closing_wakes_those_who_wait():
    """A stop does not wait for work that will not come."""
    queue = WorkQueue()
    got = []
    waiter = threading.Thread(target=lambda: got.append(queue.get()))
    waiter.start()
    queue.close()
    waiter.join(timeout=10)
    assert got == [None]


def test_many_workers_share_the_keys_without_overlap():
    """Each key is worked on as often as it was added between two looks, never by two at once."""
    queue = WorkQueue()
    busy, overlaps, seen = set(), [], []
    lock = threading.Lock()

    def work():
        while (key := queue.get()) is not None:
            with lock:
                overlaps.extend([key] if key in busy else [])
                busy.add(key)
                seen.append(key)
            with lock:
                busy.discard(key)
            queue.done(key)
            if len(set(seen)) == 50:
                queue.close()

    for key in range(50):
        queue.add(key)
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)
    assert overlaps == []
    assert set(seen) == set(range(50))


def test_no_wait_is_longer_than_an_hour():
    """A date that a stranger wrote is looked at again every hour; a thread cannot wait for a century."""
    clock = Clock()
    queue = WorkQueue(clock=clock)
    queue.add_after("far", 1e12)
    clock.now = LONGEST_WAIT - 1
    assert drained(queue) == []
    clock.now = LONGEST_WAIT
    assert drained(queue) == ["far"]


def test_events_do_not_end_the_pause_of_a_key_that_fails():
    """Its own writes are events too; a real change is seen after half a minute, not after five."""
    clock = Clock()
    queue = WorkQueue(clock=clock)
    for _ in range(12):
        queue.retry("bad")
    clock.now = LAST_DELAY
    assert drained(queue) == ["bad"]
    queue.retry("bad")
    for _ in range(100):
        queue.add("bad")
    assert drained(queue) == []
    clock.now += HEARD_AGAIN
    assert drained(queue) == ["bad"]


def test_an_event_during_a_look_that_fails_is_no_reason_to_look_at_once():
    clock = Clock()
    queue = WorkQueue(clock=clock)
    queue.add("bad")
    assert queue.get(timeout=0) == "bad"
    queue.add("bad")
    queue.retry("bad")
    queue.done("bad")
    assert drained(queue) == []
    clock.now = FIRST_DELAY
    assert drained(queue) == ["bad"]


def test_events_wake_a_key_so_often_and_no_more():
    """An object that somebody changes a thousand times a second is looked at once a second, after a burst."""
    clock = Clock()
    queue = WorkQueue(clock=clock)
    looks = 0
    for step in range(1000):
        clock.now = step / 100
        queue.add("flickers")
        looks += len(drained(queue))
    assert BURST < looks <= BURST + 11
    queue.add("calm")
    assert drained(queue) == ["calm"]


def test_a_place_that_held_a_worker_up_rests_and_the_others_go_on():
    """The rest doubles with each time in a row, and ends with a look that came back in time."""
    clock = Clock()
    queue = WorkQueue(clock=clock, place_of=lambda key: key[:3])
    for key in ("tar1", "tar2", "ok 1", "ok 2"):
        queue.add(key)
    assert [queue.get(timeout=0), queue.get(timeout=0), queue.get(timeout=0)] == ["tar1", "ok 1", None]
    queue.judge("ok 1", seconds=0.1, progress=False)
    assert queue.get(timeout=0) == "ok 2"
    queue.judge("tar1", seconds=SLOW + 1, progress=False)
    queue.done("tar1")
    assert (queue.get(timeout=0), queue.waiting) == (None, False)
    clock.now = FIRST_REST
    assert queue.get(timeout=0) == "tar2"
    queue.judge("tar2", seconds=SLOW + 1, progress=False)
    queue.done("tar2")
    queue.add("tar1")
    clock.now = FIRST_REST * 2.5
    assert queue.get(timeout=0) is None
    clock.now = FIRST_REST * 3
    assert queue.get(timeout=0) == "tar1"
    queue.judge("tar1", seconds=SLOW + 1, progress=True)
    queue.add("tar2")
    assert queue.get(timeout=0) == "tar2"
