"""The reflector over the local cluster, with a clock and pauses of the test's own."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from reprieve.adapters.local.cluster import LocalCluster
from reprieve.core import errors
from reprieve.core.objects import ObjectKind
from reprieve.core.ports import Bookmark
from reprieve.entrypoints.controller.reflector import Backoff, Pace, Reflector, Subject

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONFIG = ObjectKind("v1", "ConfigMap")
INSTANT = timedelta(0)


def manifest(name, namespace="default", **labels):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "data": {"a": "b"},
    }


class Bench:
    """A cluster whose watches can be made to end or fail, and a reflector that writes down what it is told."""

    def __init__(self, **subject):
        self.cluster = LocalCluster.in_memory(now=lambda: NOW)
        self.store = self.cluster.store
        self.time, self.told, self.trouble, self.pauses = 0.0, [], [], []
        self.lists = self.watches = 0
        self.fail = {}  # "list" or "watch" -> errors to raise, one a call
        self.lasts = 0.0  # seconds that a watch takes, by the clock of the test
        self.stop = threading.Event()
        self.reflector = Reflector(
            self,
            Subject(CONFIG, **subject),
            stop=self.stop,
            on_upsert=lambda resource: self.told.append(f"+{resource.meta.name}"),
            on_remove=lambda resource: self.told.append(f"-{resource.meta.name}"),
            on_trouble=self.trouble.append,
            wait=self.pauses.append,
            pace=Pace(Backoff(first=1, ceiling=8), clock=lambda: self.time, jitter=lambda: 1.0, watch=INSTANT),
        )

    def list(self, kind, **kwargs):
        self.lists += 1
        self._maybe_fail("list")
        return self.cluster.list(kind, **kwargs)

    def watch(self, kind, **kwargs):
        self.watches += 1
        self._maybe_fail("watch")
        self.time += self.lasts
        return self.cluster.watch(kind, **kwargs)

    def _maybe_fail(self, call):
        if self.fail.get(call):
            raise self.fail[call].pop(0)

    def create(self, *names):
        for name in names:
            self.store.create(manifest(name))

    def delete(self, name):
        self.store.delete(CONFIG, "default", name)

    def step(self):
        """One list and watch; what was told, and the pause that follows."""
        self.told.clear()
        pause = self.reflector.step()
        return self.told[:], pause


@pytest.fixture
def bench():
    return Bench()


def test_everything_is_told_once_and_remembered(bench):
    bench.create("a", "b")

    assert not bench.reflector.has_synced
    assert bench.step()[0] == ["+a", "+b"]
    assert bench.step()[0] == []
    assert bench.reflector.has_synced
    assert bench.reflector.wait_synced(0)
    assert [resource.meta.name for resource in bench.reflector.items()] == ["a", "b"]
    assert bench.reflector.get("default", "a").meta.uid
    assert bench.reflector.get("default", "z") is None


def test_of_a_body_only_whom_its_spec_names_is_remembered(bench):
    """A cache of bodies would be as large as whoever may create objects likes; a missed removal needs names alone."""
    spec = {"backupName": "nightly", "templates": ["a"] * 1000, "notes": "n" * 1000}
    bench.store.create(manifest("a") | {"spec": spec, "status": {"errors": ["e"] * 1000}})
    bench.step()

    assert bench.reflector.get("default", "a").body == {"spec": {"backupName": "nightly"}}


def test_a_namespace_and_metadata_only():
    bench = Bench(namespace="here", metadata_only=True)
    bench.store.create(manifest("a", "here"))
    bench.store.create(manifest("b", "there"))

    assert bench.step()[0] == ["+a"]
    assert [resource.body for resource in bench.reflector.items()] == [{}]


def test_changes_are_told_from_where_the_last_watch_ended(bench):
    bench.create("a", "b")
    bench.step()
    bench.store.patch(CONFIG, "default", "a", {"metadata": {"labels": {"x": "y"}}})
    bench.delete("b")
    bench.create("c")

    assert bench.step()[0] == ["+a", "-b", "+c"]
    assert bench.lists == 1
    assert bench.reflector.get("default", "a").meta.labels == {"x": "y"}


def test_after_a_version_that_is_too_old_only_what_changed_in_the_gap_is_told(bench):
    """Deletions of the gap have no event any more: they are found by comparing."""
    bench.create("kept", "changed", "gone")
    bench.step()
    bench.store.patch(CONFIG, "default", "changed", {"data": {"a": "c"}})
    bench.delete("gone")
    bench.create("new")
    bench.store.compact()

    told, pause = bench.step()
    assert (told, pause > 0) == ([], True)
    assert [type(error) for error in bench.trouble] == [errors.ExpiredError]
    assert bench.step()[0] == ["-gone", "+changed", "+new"]
    assert bench.lists == 2


@pytest.mark.parametrize("gap", [True, False], ids=["after-a-gap", "by-events"])
def test_an_object_made_anew_under_its_name_is_told_as_removed_and_new(bench, gap):
    bench.create("a")
    bench.step()
    first = bench.reflector.get("default", "a").meta.uid
    bench.delete("a")
    bench.create("a")
    if gap:
        bench.store.compact()
        bench.step()

    assert bench.step()[0] == ["-a", "+a"]
    assert bench.reflector.get("default", "a").meta.uid != first


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(errors.UnavailableError("down"), id="unavailable"),
        pytest.param(errors.UnknownError("garbage"), id="unknown"),
        pytest.param(errors.ContainerMissingError("kind not served"), id="kind-gone"),
        pytest.param(errors.DeniedError("no right"), id="denied"),
    ],
)
def test_a_failed_list_removes_nothing(bench, error):
    """velero's sync once took a failed listing for an empty one; what could not be read is not gone."""
    bench.create("a")
    bench.step()
    bench.fail = {"watch": [errors.ExpiredError("old")], "list": [error]}

    assert [bench.step()[0], bench.step()[0], bench.step()[0]] == [[], [], []]
    assert [resource.meta.name for resource in bench.reflector.items()] == ["a"]
    assert bench.trouble[-1] is error


@pytest.mark.parametrize(
    ("error", "lists"),
    [
        pytest.param(errors.UnavailableError("broken"), 1, id="broken-connection-resumes"),
        pytest.param(errors.ThrottledError("slow"), 1, id="throttled-resumes"),
        pytest.param(errors.DeniedError("token"), 1, id="denied-resumes"),
        pytest.param(errors.ExpiredError("old"), 2, id="expired-lists"),
        pytest.param(errors.UnknownError("garbage"), 2, id="garbage-lists"),
        pytest.param(errors.ContainerMissingError("crd gone"), 2, id="kind-gone-lists"),
    ],
)
def test_after_trouble_with_a_watch(bench, error, lists):
    bench.create("a")
    bench.step()
    bench.fail = {"watch": [error]}
    bench.step()
    bench.create("b")

    assert bench.step()[0] == ["+b"], "nothing is missed, nothing told twice"
    assert bench.lists == lists


def test_pauses_grow_while_trouble_lasts_and_start_over_after_progress(bench):
    bench.fail = {"list": [errors.UnavailableError("down")] * 6}
    assert [bench.step()[1] for _ in range(6)] == [1, 2, 4, 8, 8, 8]

    bench.create("a")
    bench.step()
    bench.create("b")
    assert bench.step() == (["+b"], 0.0)

    bench.fail = {"watch": [errors.UnavailableError("down")]}
    assert bench.step()[1] == 1


def test_the_pause_that_is_asked_for_is_kept(bench):
    bench.fail = {"list": [errors.ThrottledError("slow", timedelta(seconds=30))]}

    assert bench.step()[1] == 30


def test_watches_that_end_at_once_do_not_spin(bench):
    """A server (or a proxy) that closes every watch at once was asked 47 times in two seconds."""
    assert [bench.step()[1] for _ in range(4)] == [1, 2, 4, 8]


def test_a_quiet_watch_that_lasted_is_followed_by_the_next_at_once(bench):
    bench.lasts = 300.0

    assert [bench.step()[1] for _ in range(3)] == [0, 0, 0]
    assert bench.lists == 1


def test_a_watch_that_always_expires_does_not_list_without_pause(bench):
    bench.fail = {"watch": [errors.ExpiredError("old")] * 4}

    assert [bench.step()[1] for _ in range(4)] == [1, 2, 4, 8]


def test_jitter_takes_at_most_half_of_a_pause():
    assert [Backoff(first=2).pause(1, jitter) for jitter in (0.0, 0.5, 1.0)] == [1.0, 1.5, 2.0]
    assert Backoff(ceiling=60).pause(10_000, 1.0) == 60


def test_a_bookmark_moves_the_start_of_the_next_watch(bench):
    bench.create("a")
    bench.step()
    bench.store.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}})
    bench.step()  # brings nothing but the bookmark at its end
    bench.store.compact()

    assert bench.step()[0] == []
    assert bench.trouble == []
    assert bench.lists == 1


def test_following_pauses_and_ends_when_stopped(bench):
    bench.fail = {"list": [errors.UnavailableError("down")] * 2}
    asked = []

    def wait(seconds):
        asked.append(seconds)
        if len(asked) == 3:
            bench.stop.set()

    bench.reflector._wait = wait
    bench.reflector.follow()

    assert asked == [1, 2, 4]
    assert bench.reflector.has_synced


def test_a_stop_does_not_wait_for_a_watch(bench):
    """A watch in which nothing happens lasts five minutes; a pod that is told to stop has thirty seconds."""
    waiting, ever = threading.Event(), threading.Event()

    def watch(kind, **kwargs):
        waiting.set()
        ever.wait(30)
        yield from bench.cluster.watch(kind, **kwargs)

    bench.watch = watch
    thread = threading.Thread(target=bench.reflector.run)
    thread.start()
    assert waiting.wait(10)
    bench.create("late")
    bench.stop.set()
    thread.join(10)
    ever.set()

    assert not thread.is_alive()
    assert bench.told == []


def test_a_handler_that_fails_is_reported_and_survived(bench):
    def fail(resource):
        raise RuntimeError(f"cannot take {resource.meta.name}")

    tell = bench.reflector._on_upsert
    bench.reflector._on_upsert = lambda resource: (fail if resource.meta.name == "a" else tell)(resource)
    bench.create("a", "b")

    assert bench.step()[0] == ["+b"]
    assert "cannot take a" in str(bench.trouble[0])
    assert (len(bench.reflector.items()), bench.lists) == (2, 1)


def test_a_stop_in_the_middle_of_a_watch_leaves_the_rest(bench):
    bench.step()
    bench.create("a", "b")
    bench.stop.set()

    assert bench.step()[0] == []


def test_events_of_other_kinds_of_iterators_are_followed_too(bench):
    """A port promises an iterator, not a generator."""
    bench.watch = lambda kind, **kwargs: iter([Bookmark("77")])
    bench.step()

    assert bench.reflector._version == "77"
