"""What a finalizer cannot do, honestly, and that the shield does it.

The shield is the CEL of the manifests that ``reprieve shield`` prints, evaluated for every request to the local API
server; the garbage collector is running. The same world, once without it and once with it.
"""

import pytest

from reprieve.adapters.local import StatusError
from reprieve.adapters.local.collector import USER as COLLECTOR
from reprieve.core.outcomes import Done
from reprieve.core.protection import PROTECT
from reprieve.core.reasons import Reason, Verdict
from reprieve.entrypoints.controller.decisions import Standing
from tests.unit.protected import (
    CLAIM,
    DATABASE,
    DEPLOYMENT,
    GTO,
    PEOPLE,
    PROPAGATIONS,
    SECRET,
    THEIRS,
    Bench,
    beside,
    carrying,
    databases,
    faros,
    refer,
)

BACKGROUND, FOREGROUND, ORPHAN = PROPAGATIONS
BLOCKING = pytest.mark.parametrize("blocks", [True, False], ids=["blocks-owner-deletion", "does-not-block"])


def protected(*, shielded, blocks=True, theirs=(), entry=None):
    bench = Bench(entry or databases(), shielded=shielded)
    owner = bench.make(DATABASE, "orders", finalizers=[PROTECT])
    reference = {**refer(owner), "blockOwnerDeletion": blocks}
    return bench, owner, bench.make(SECRET, "password", reference, finalizers=theirs)


# Foreground


@BLOCKING
def test_without_the_shield_a_foreground_deletion_takes_the_dependent_at_once(blocks):
    """The collector does not wait for our finalizer: when we first look, the dependent is gone."""
    bench, owner, secret = protected(shielded=False, blocks=blocks)
    bench.delete(owner, FOREGROUND)
    assert not bench.there(secret)
    assert bench.there(owner), "the finalizer holds the owner, and nothing else"

    bench.settle()
    assert not bench.there(owner)


@BLOCKING
def test_without_the_shield_the_event_says_that_it_is_lost_and_what_would_have_helped(blocks):
    bench, owner, secret = protected(shielded=False, blocks=blocks, theirs=[THEIRS])
    bench.delete(owner, FOREGROUND)
    report = bench.settle()
    (decision,) = report.decisions
    assert (decision.verdict, decision.reason, report.standing) == (Verdict.KEEP, Reason.LOST, Standing.SETTLED)
    lost = [event for event in bench.events.events if event.ref.uid == secret.meta.uid]
    assert {event.reason for event in lost} == {"Lost"}
    assert "cannot be undone" in lost[0].message
    # Where nothing blocks, the collector's own finalizer is gone by now, and with it the sign of what happened.
    assert ("the shield prevents that" in lost[0].message) is blocks


@BLOCKING
@pytest.mark.parametrize("theirs", [[], [THEIRS]], ids=["", "with-a-finalizer-of-others"])
def test_with_the_shield_it_is_kept_and_the_owner_goes(blocks, theirs):
    bench, owner, secret = protected(shielded=True, blocks=blocks, theirs=theirs)
    bench.delete(owner, FOREGROUND)
    assert not bench.now(secret).meta.terminating, "the collector was denied"

    bench.settle()
    assert not bench.there(owner), "once the reference is off, the collector lets its foregroundDeletion go"
    assert bench.seen(secret) == ", ".join(["live", *["theirs" for _ in theirs], "orphaned"])
    assert set(bench.told(secret)) == {"Orphaned"}


def test_with_the_shield_a_foreground_deletion_of_an_asked_owner_still_takes_the_dependent():
    """We delete it ourselves, by name and UID: the shield stands against the collector alone."""
    bench, owner, secret = protected(shielded=True)
    bench.ask(owner)
    bench.delete(owner, FOREGROUND)
    assert bench.there(secret)

    bench.settle()
    assert not bench.there(owner)
    assert not bench.there(secret)


def test_a_foreground_deletion_is_denied_also_while_the_controller_is_down():
    """No webhook has to stay alive: the collector asks again and again, and everything waits for us."""
    bench, owner, secret = protected(shielded=True)
    bench.delete(owner, FOREGROUND)
    for _ in range(3):
        refused = bench.collector.step().refused
        assert [each.name for each in refused] == ["password"]
    assert (bench.seen(owner), bench.seen(secret)) == (
        "terminating, foregroundDeletion, protected",
        "live, owned by orders",
    )


# An owner that is absent


@pytest.mark.parametrize("propagation", [BACKGROUND, FOREGROUND], ids=lambda each: each.value.lower())
def test_without_the_shield_an_owner_that_vanishes_takes_its_dependents_with_no_event(propagation):
    bench, owner, secret = protected(shielded=False)
    bench.take_finalizers(owner)
    bench.delete(owner, propagation)
    assert not bench.there(secret)

    bench.settle()
    assert bench.events.events == ()


@pytest.mark.parametrize("propagation", [BACKGROUND, FOREGROUND], ids=lambda each: each.value.lower())
def test_with_the_shield_its_dependents_stay_and_lose_the_dangling_reference(propagation):
    bench, owner, secret = protected(shielded=True)
    bench.take_finalizers(owner)
    bench.delete(owner, propagation)
    assert bench.seen(secret) == "live, owned by orders"

    bench.settle()
    assert bench.seen(secret) == "live, orphaned"
    assert set(bench.told(secret)) == {"Orphaned"}


@pytest.mark.parametrize("shielded", [True, False], ids=["with-the-shield", "without-the-shield"])
def test_a_reference_to_what_never_was(shielded):
    """A restore from a backup brings dependents before, or without, their owners."""
    bench = Bench(shielded=shielded)
    never = {
        "apiVersion": DATABASE.api_version,
        "kind": DATABASE.kind,
        "name": "orders",
        "uid": "uid-before-the-restore",
    }
    secret = bench.make(SECRET, "password", never)
    assert bench.there(secret) is shielded

    bench.settle()
    assert bench.seen(secret) == ("live, orphaned" if shielded else "gone")


# What the shield is not about


def test_whoever_deletes_by_name_is_not_affected():
    bench, owner, secret = protected(shielded=True)
    claim = bench.make(CLAIM, "data", owner)
    assert isinstance(bench.people.delete(secret.ref), Done)
    assert isinstance(bench.cluster.delete(claim.ref), Done)
    assert bench.seen(owner) == "live, protected"


@pytest.mark.parametrize("propagation", [BACKGROUND, FOREGROUND], ids=lambda each: each.value.lower())
def test_what_no_protected_kind_owns_is_collected_as_ever(propagation):
    bench = Bench(shielded=True)
    owner = bench.make(DEPLOYMENT, "web")
    secret = bench.make(SECRET, "password", owner)
    bench.delete(owner, propagation)
    assert not bench.there(owner)
    assert not bench.there(secret)


def test_a_dependent_beside_an_owner_of_another_kind_is_guarded_too():
    """All its owners are gone, one of them of a protected kind: that one reference is enough."""
    bench = Bench(shielded=True)
    owner, other = bench.make(DATABASE, "orders"), bench.make(DEPLOYMENT, "web")
    secret = bench.make(SECRET, "password", owner, beside(other))
    bench.delete(other)
    bench.delete(owner)
    assert bench.there(secret)

    bench.settle()
    assert bench.seen(secret) == "live, orphaned"


def test_each_protected_kind_is_shielded():
    bench = Bench(databases(), faros(), shielded=True)
    owners = [bench.make(DATABASE, "orders"), bench.make(GTO, "deployment-web", spec=carrying(DEPLOYMENT, "web"))]
    dependents = [bench.make(SECRET, "password", owners[0]), bench.make(DEPLOYMENT, "web", owners[1])]
    for owner in owners:
        bench.delete(owner)
    assert all(map(bench.there, dependents))


def test_the_denial_reads_well():
    bench, _, _ = protected(shielded=True)
    with pytest.raises(StatusError) as caught:
        bench.store.delete(SECRET, "shop", "password", user=COLLECTOR)
    assert caught.value.code == 403
    assert str(caught.value.message) == (
        "secrets \"password\" is forbidden: ValidatingAdmissionPolicy 'reprieve-shield' with binding 'reprieve-shield' "
        "denied request: reprieve's shield: Secret shop/password: "
        "system:serviceaccount:kube-system:generic-garbage-collector may not delete this, because it refers to an "
        "owner of a protected kind (Database.example.com). Delete it by name, take the owner reference off, or ask for "
        "the owner's deletion with reprieve request-deletion; to switch the shield off, delete the "
        "ValidatingAdmissionPolicyBinding reprieve-shield"
    )
    bench.store.delete(SECRET, "shop", "password", user=PEOPLE)
    assert bench.cluster.list(SECRET).items == ()
