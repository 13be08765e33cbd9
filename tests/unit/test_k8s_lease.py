"""Leader election over the local cluster: two candidates, one clock of the test's own."""

from datetime import UTC, datetime, timedelta

import pytest

from reprieve.adapters.k8s.lease import SKEW, Elector, Following, Free, Held, Leading, Terms, identity, lease_holder
from reprieve.adapters.local.cluster import LocalCluster
from reprieve.core import errors
from reprieve.core.objects import ObjectKind, ObjectRef

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE = ObjectKind("coordination.k8s.io/v1", "Lease")
REF = ObjectRef(LEASE.api_version, LEASE.kind, "reprieve", "velero")


class Faulty:
    """A cluster on which calls can be made to fail, by name."""

    def __init__(self, cluster):
        self.cluster, self.broken = cluster, {}

    def __getattr__(self, name):
        return self.broken.get(name) or getattr(self.cluster, name)

    def fail(self, *names, error):
        def raising(*args, **kwargs):
            raise error

        self.broken = dict.fromkeys(names, raising)

    def mend(self):
        self.broken = {}


class World:
    def __init__(self):
        self.seconds = 0.0
        self.cluster = LocalCluster.in_memory(now=self.now)
        self.log = []

    def now(self):
        return START + timedelta(seconds=self.seconds)

    def candidate(self, name):
        cluster = Faulty(self.cluster)
        elector = Elector(
            cluster, namespace="velero", name="reprieve", identity=name, now=self.now, clock=lambda: self.seconds
        )
        return elector, cluster

    def spec(self):
        return self.cluster.get(REF).section("spec")


@pytest.fixture
def world():
    return World()


def test_the_first_leads_and_the_second_follows(world):
    first, _ = world.candidate("one")
    second, _ = world.candidate("two")

    assert first.step() == Leading()
    assert second.step() == Following("one holds the lease velero/reprieve")
    assert (first.leading, second.leading) == (True, False)
    assert world.spec() == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-03-01T12:00:00.000000Z",
        "renewTime": "2026-03-01T12:00:00.000000Z",
    }


def test_a_renewed_lease_is_not_taken(world):
    first, _ = world.candidate("one")
    second, _ = world.candidate("two")
    for _ in range(60):
        assert first.step() == Leading()
        assert isinstance(second.step(), Following)
        world.seconds += 2

    assert world.spec()["renewTime"] == "2026-03-01T12:01:58.000000Z"
    assert world.spec()["acquireTime"] == "2026-03-01T12:00:00.000000Z"


def test_a_lease_that_stands_still_is_taken_after_its_duration(world):
    first, _ = world.candidate("one")
    second, _ = world.candidate("two")
    first.step()
    second.step()

    world.seconds = 14.9
    assert isinstance(second.step(), Following)
    world.seconds = 15.0
    assert second.step() == Leading()
    assert world.spec()["leaseTransitions"] == 1
    assert isinstance(first.step(), Following), "who lost it does not take it back"


def test_a_dead_leaders_old_times_are_not_believed(world):
    """A candidate whose clock runs ahead would take a live lease: only what it watched standing still counts."""
    first, _ = world.candidate("one")
    first.step()
    world.seconds = 3600.0
    second, _ = world.candidate("two")

    assert isinstance(second.step(), Following)
    world.seconds += 15
    assert second.step() == Leading()


@pytest.mark.parametrize("calls", [("patch",), ("get", "patch")], ids=["patch-fails", "nothing-works"])
def test_a_leader_that_cannot_renew_stops_leading_before_anybody_else_begins(world, calls):
    first, cluster = world.candidate("one")
    second, _ = world.candidate("two")
    first.step()
    second.step()
    cluster.fail(*calls, error=errors.UnavailableError("etcd has no leader"))

    world.seconds = 8.0
    assert first.step() == Leading()
    world.seconds = 10.0
    assert not first.leading, "also without asking anybody"
    assert isinstance(first.step(), Following)
    assert isinstance(second.step(), Following)
    world.seconds = 15.0
    assert second.step() == Leading()
    assert not first.leading


def test_a_short_trouble_costs_nothing(world):
    first, cluster = world.candidate("one")
    first.step()
    cluster.fail("patch", error=errors.UnavailableError("down"))
    world.seconds = 8.0
    first.step()
    cluster.mend()
    world.seconds = 9.0

    assert first.step() == Leading()
    world.seconds = 18.0
    assert first.leading


@pytest.mark.parametrize(
    ("call", "error"),
    [
        pytest.param("patch", errors.ConflictError("changed"), id="lost-the-race-for-a-patch"),
        pytest.param("patch", errors.NotFoundError("gone"), id="deleted-meanwhile"),
        pytest.param("create", errors.AlreadyExistsError("there"), id="lost-the-race-for-a-creation"),
    ],
)
def test_who_was_slower_follows(world, call, error):
    first, _ = world.candidate("one")
    second, cluster = world.candidate("two")
    if call == "patch":
        first.step()
        first.release()
    cluster.fail(call, error=error)

    standing = second.step()

    assert isinstance(standing, Following)
    assert "quicker" in standing.why
    assert not second.leading


def test_nobody_leads_without_an_answer(world):
    first, cluster = world.candidate("one")
    cluster.fail("get", error=errors.DeniedError("no right to get leases"))

    standing = first.step()

    assert isinstance(standing, Following)
    assert "no right to get leases" in standing.why


def test_a_released_lease_is_taken_at_once(world):
    first, _ = world.candidate("one")
    second, _ = world.candidate("two")
    first.step()
    second.step()
    first.release()

    assert not first.leading
    assert second.step() == Leading()


def test_releasing_what_is_held_by_another_does_nothing(world):
    first, _ = world.candidate("one")
    second, _ = world.candidate("two")
    first.step()
    second.step()
    world.seconds = 15.0
    second.step()
    first.release()
    second_again = world.spec()["holderIdentity"]

    assert second_again == "two"


def test_a_release_that_fails_is_no_trouble(world):
    first, cluster = world.candidate("one")
    first.step()
    cluster.fail("get", error=errors.UnavailableError("down"))
    first.release()

    assert not first.leading
    assert world.spec()["holderIdentity"] == "one"


def test_a_lease_without_a_holder_or_with_nonsense_in_it(world):
    spec = {"holderIdentity": 5, "leaseDurationSeconds": "long", "leaseTransitions": "many"}
    meta = {"name": "reprieve", "namespace": "velero"}
    world.cluster.create({"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": meta, "spec": spec})
    first, _ = world.candidate("one")

    assert first.step() == Leading()
    assert world.spec()["leaseTransitions"] == 1


def run(world, elector, until):
    def wait(seconds):
        world.seconds += seconds
        until(world)

    elector.run(
        stopped=lambda: "stop" in world.log,
        wait=wait,
        on_started=lambda: world.log.append("started"),
        on_lost=lambda why: world.log.append(f"lost: {why}"),
        on_waiting=lambda why: world.log.append(f"waiting: {why}"),
    )


def test_a_campaign_that_is_stopped_lets_go(world):
    first, _ = world.candidate("one")

    run(world, first, lambda world: world.log.append("stop") if world.seconds >= 30 else None)

    assert world.log == ["started", "stop"]
    assert world.spec()["holderIdentity"] == ""


def test_a_candidate_says_once_why_it_waits(world):
    """A controller stood by for hours, and its log told neither for whom nor that it had no right to ask."""
    first, _ = world.candidate("one")
    second, cluster = world.candidate("two")
    first.step()

    def go_on(world):
        if world.seconds < 6:
            first.step()
        elif world.seconds < 12:
            cluster.fail("get", error=errors.DeniedError("no right"))
        else:
            world.log.append("stop")

    run(world, second, go_on)

    assert world.log == [
        "waiting: one holds the lease velero/reprieve",
        "waiting: the lease velero/reprieve cannot be renewed: no right",
        "stop",
    ]


def test_a_campaign_that_loses_says_so_once_and_ends(world):
    first, cluster = world.candidate("one")

    def break_it(world):
        if world.seconds >= 6:
            cluster.fail("get", "patch", error=errors.UnavailableError("down"))

    run(world, first, break_it)

    assert world.log[0] == "started"
    assert world.log[1].startswith("lost: the lease velero/reprieve cannot be renewed")
    assert len(world.log) == 2
    assert world.seconds <= 16, "well before anybody else may take it over"


def test_a_campaign_that_is_overtaken_says_by_whom(world):
    first, _ = world.candidate("one")

    def overtake(world):
        found = world.cluster.get(REF)
        world.cluster.patch(found.ref, {"spec": {"holderIdentity": "two"}})

    run(world, first, overtake)

    assert world.log == ["started", "lost: two holds the lease velero/reprieve"]


@pytest.mark.parametrize(
    ("duration", "deadline", "retry"), [(15, 15, 2), (10, 15, 2), (15, 2, 2), (15, 10, 0), (0.9, 0.5, 0.1)]
)
def test_terms_that_would_allow_two_leaders_are_refused(duration, deadline, retry):
    with pytest.raises(errors.InvalidError, match="retry < deadline < duration"):
        Terms(timedelta(seconds=duration), timedelta(seconds=deadline), timedelta(seconds=retry))


def test_no_call_outlasts_the_time_until_somebody_else_may_begin(world):
    """A renewal that hung for thirty seconds would let the loss be seen long after the next leader began."""
    asked = []

    class Slow(Faulty):
        def within(self, timeout):
            asked.append(timeout)
            return self

    Elector(Slow(world.cluster), namespace="velero", name="reprieve", identity="one")

    assert asked == [timedelta(seconds=2.5)]
    assert Terms().deadline + 2 * asked[0] <= Terms().duration


def test_every_process_has_an_identity_of_its_own():
    assert identity() != identity()


# Asking from outside


def holder(world):
    return lease_holder(world.cluster, namespace="velero", name="reprieve", now=world.now())


def test_a_live_lease_is_held_until_its_end_and_the_skew_of_clocks(world):
    first, _ = world.candidate("one")
    assert holder(world) == Free()
    first.step()

    assert holder(world) == Held("one", START + timedelta(seconds=15))
    world.seconds = 15 + SKEW.total_seconds() - 0.1
    assert isinstance(holder(world), Held)
    world.seconds = 15 + SKEW.total_seconds()
    assert holder(world) == Free()


def test_a_released_lease_is_free(world):
    first, _ = world.candidate("one")
    first.step()
    first.release()

    assert holder(world) == Free()


def test_a_lease_whose_times_cannot_be_read_is_held(world):
    first, _ = world.candidate("one")
    first.step()
    found = world.cluster.get(REF)
    world.cluster.patch(found.ref, {"spec": {"renewTime": "lately"}})

    assert holder(world) == Held("one", None)


def test_a_lease_that_cannot_be_read_is_not_free(world):
    cluster = Faulty(world.cluster)
    cluster.fail("get", error=errors.UnavailableError("down"))

    with pytest.raises(errors.UnavailableError):
        lease_holder(cluster, namespace="velero", name="reprieve", now=START)
