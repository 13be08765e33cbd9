"""The runtime: once until nothing changes, or on and on by events, timed requeues and a resync."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from attrs import define, field

from reprieve.core.errors import ConflictError, NotFoundError, UnavailableError
from reprieve.core.objects import ObjectKind, ObjectMeta, ObjectRef, Resource
from reprieve.core.reasons import Reason, Verdict
from reprieve.entrypoints.controller.decisions import Decision, Result, Standing, decision_to_json, latest
from reprieve.entrypoints.controller.runtime import PASSES, Lane, Runtime, Watch, plan_once, run_once

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KIND = ObjectKind("v1", "ConfigMap")
PATIENCE = 30


def decided(name, *, standing=Standing.SETTLED, reason=Reason.ADMITTED):
    """A decision about an object of that name."""
    return Decision("test", ObjectRef("v1", "ConfigMap", name), Verdict.KEEP, reason, "why", standing=standing)


@define
class Scripted:
    """A reconciler that does what its script says for a key, one entry a call; after that it is settled."""

    script: dict = field(factory=dict)
    known: list = field(factory=list)
    calls: list = field(factory=list)
    called: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))
    name: str = "test"

    def keys(self):
        if isinstance(self.known, Exception):
            raise self.known
        return list(self.known)

    def watches(self):
        return [Watch(KIND, lambda resource, _removed: [resource.meta.name])]

    def reconcile(self, key, *, now, apply=True):
        self.calls.append((key, apply))
        self.called.release()
        steps = self.script.get(key, [])
        step = steps.pop(0) if steps else Result((decided(key),))
        if isinstance(step, Exception):
            raise step
        return step


# Once


def test_once_goes_on_until_a_pass_changes_nothing():
    """What one pass changed may be work for the next."""
    reconciler = Scripted({"a": [Result(changed=True), Result(changed=True)]}, ["a", "b"])
    report = run_once([reconciler], now=NOW)
    assert report.passes == 3
    assert [d.ref.name for d in report.decisions] == ["a", "b"]
    assert report.standing is Standing.SETTLED


def test_the_last_decision_about_an_object_counts():
    """The array holds one entry an object."""
    waiting = Result((decided("a", standing=Standing.WAITING, reason=Reason.HELD),), changed=True)
    report = run_once([Scripted({"a": [waiting]}, ["a"])], now=NOW)
    assert [(d.reason, d.standing) for d in report.decisions] == [(Reason.ADMITTED, Standing.SETTLED)]


@pytest.mark.parametrize("fault", [ConflictError("changed"), NotFoundError("gone")], ids=["conflict", "gone-meanwhile"])
def test_a_world_that_moved_is_read_again(fault):
    """A conflict is no failure of the controller: one more pass reads afresh."""
    report = run_once([Scripted({"a": [fault]}, ["a"])], now=NOW)
    assert (report.passes, report.failures) == (2, ())


def test_a_failure_does_not_take_the_other_keys_along():
    """One object that cannot be read is reported; the rest is done."""
    report = run_once([Scripted({"a": [UnavailableError("no answer")]}, ["a", "b"])], now=NOW)
    assert [d.ref.name for d in report.decisions] == ["b"]
    assert [(f.controller, f.key, f.message) for f in report.failures] == [("test", "a", "no answer")]
    assert report.standing is Standing.FAILED


def test_a_fault_of_our_own_ends_no_run():
    """A date in the year 9999 on one request ended the whole run, and nothing was done for the others."""
    report = run_once([Scripted({"a": [OverflowError("date value out of range")]}, ["a", "b"])], now=NOW)
    assert [d.ref.name for d in report.decisions] == ["b"]
    assert "internal error: OverflowError" in report.failures[0].message


def test_keys_that_cannot_be_listed_are_a_failure():
    """No keys is not the same as keys that cannot be read."""
    report = run_once([Scripted(known=UnavailableError("no answer"))], now=NOW)
    assert report.standing is Standing.FAILED


def test_two_that_undo_each_other_do_not_go_on_for_ever():
    """The number of passes is bounded, and reaching the bound is a failure with its number."""
    reconciler = Scripted({"a": [Result(changed=True)] * (PASSES + 5)}, ["a"])
    report = run_once([reconciler], now=NOW)
    assert report.passes == PASSES
    assert str(PASSES) in report.failures[0].message


def test_a_stop_begins_no_other_key():
    """Between two keys there is a stop."""
    stop = threading.Event()
    reconciler = Scripted(known=["a", "b"])
    report = run_once([reconciler], now=NOW, stop=stop, progress=lambda _decision: stop.set())
    assert reconciler.calls == [("a", True)]
    assert report.passes == 1


def test_a_plan_asks_once_and_applies_nothing():
    """Every key is asked once, with apply off."""
    reconciler = Scripted(known=["b", "a"])
    plan_once([reconciler], now=NOW)
    assert reconciler.calls == [("b", False), ("a", False)]


def test_decisions_are_sorted_and_written_in_the_documented_form():
    """The format for machines: sorted by controller, namespace, name."""
    made = latest([decided("b"), decided("a"), decided("b", reason=Reason.HELD)])
    assert [(d.ref.name, d.reason) for d in made] == [("a", Reason.ADMITTED), ("b", Reason.HELD)]
    assert decision_to_json(made[0]) == {
        "controller": "test",
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": ""},
        "verdict": "KEEP",
        "reason": "Admitted",
        "message": "why",
        "steps": [],
    }


# On and on


class Sources:
    """Followers that the test speaks for: an event is what the test sends."""

    def __init__(self, stop):
        self.stop, self.wakers = stop, []

    def __call__(self, watch, wake):
        self.wakers.append(wake)
        return self

    def run(self):
        self.stop.wait()

    def send(self, name, *, removed=False):
        for wake in self.wakers:
            wake(Resource(KIND, ObjectMeta(name)), removed=removed)


@pytest.fixture
def running():
    """Start a reconciler in a runtime; everything is stopped at the end."""
    started = []

    def start(reconciler, *, workers=1, resync=timedelta(hours=1), observe=lambda _name, _result: None):
        stop = threading.Event()
        sources = Sources(stop)
        lanes = [Lane(reconciler, workers=workers)]
        runtime = Runtime(lanes, source=sources, clock=lambda: NOW, stop=stop, resync=resync, observe=observe)
        runtime.start()
        started.append((runtime, stop))
        return sources

    yield start
    for runtime, stop in started:
        stop.set()
        runtime.wait()


def test_everything_is_looked_at_at_the_start_and_again_on_an_event(running):
    """What was there before the start, and what changes after it."""
    reconciler = Scripted(known=["a"])
    sources = running(reconciler)
    assert reconciler.called.acquire(timeout=PATIENCE)
    sources.send("b")
    assert reconciler.called.acquire(timeout=PATIENCE)
    assert [key for key, _ in reconciler.calls] == ["a", "b"]


def test_a_missed_event_is_caught_by_the_resync(running):
    """Nothing is sent for the key, yet it is looked at."""
    reconciler = Scripted()
    running(reconciler, resync=timedelta(milliseconds=1))
    reconciler.known.append("missed")
    assert reconciler.called.acquire(timeout=PATIENCE)
    assert reconciler.calls[0] == ("missed", True)


def test_a_result_that_says_when_comes_back_then(running):
    """A timed requeue, without an event."""
    reconciler = Scripted({"a": [Result(again=NOW + timedelta(milliseconds=1))]}, ["a"])
    running(reconciler)
    assert reconciler.called.acquire(timeout=PATIENCE)
    assert reconciler.called.acquire(timeout=PATIENCE)
    assert [key for key, _ in reconciler.calls] == ["a", "a"]


@pytest.mark.parametrize("fault", [UnavailableError("no answer"), ConflictError("x"), RuntimeError("a bug")])
def test_a_reconcile_that_fails_comes_back(running, fault):
    """Also after a fault of our own: one key must not end a worker."""
    seen = []
    reconciler = Scripted({"a": [fault]}, ["a"])
    running(reconciler, observe=lambda name, result: seen.append((name, type(result).__name__)))
    assert reconciler.called.acquire(timeout=PATIENCE)
    assert reconciler.called.acquire(timeout=PATIENCE)
    assert seen[0] == ("test", type(fault).__name__)


def test_one_key_that_hangs_does_not_hold_up_the_others(running):
    """velero#3701: one deletion hung for ever, and later requests were not picked up."""
    hang, done = threading.Event(), threading.Event()

    class Hanging(Scripted):
        def reconcile(self, key, *, now, apply=True):
            if key == "stuck":
                hang.wait(PATIENCE)
            else:
                done.set()
            return Result()

    running(Hanging(known=["stuck", "other"]), workers=2)
    assert done.wait(PATIENCE)
    hang.set()


def test_a_stop_lets_the_work_in_hand_end(running):
    """A graceful stop: the effect at hand ends, no other key is begun."""
    begun, may_end, ended = threading.Event(), threading.Event(), []

    class Slow(Scripted):
        def reconcile(self, key, *, now, apply=True):
            begun.set()
            may_end.wait(PATIENCE)
            ended.append(key)
            return Result()

    stop = threading.Event()
    runtime = Runtime([Lane(Slow(known=["a", "b"]))], source=Sources(stop), clock=lambda: NOW, stop=stop)
    runtime.start()
    assert begun.wait(PATIENCE)
    stop.set()
    waiter = threading.Thread(target=runtime.wait)
    waiter.start()
    runtime._lanes[0].queue.close()
    may_end.set()
    waiter.join(PATIENCE)
    assert ended == ["a"]
