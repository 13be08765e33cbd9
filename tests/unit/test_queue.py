"""The work queue: a key once, in one hand at a time, back later when asked."""

import threading

from reprieve.entrypoints.controller.queue import FIRST_DELAY, LAST_DELAY, WorkQueue


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
