"""The library as its users write it: the names, the keywords and the shapes that are kept."""

import json
from datetime import timedelta

import pytest

from reprieve import core
from reprieve.core import Admitted, Deferred, Refused, admit, decide, from_plain, plan, settle, to_plain
from reprieve.core.backups import BACKUP_UID, CsiContent, ListCorrupt
from reprieve.core.outcomes import Denied, Done, InUse
from reprieve.core.requests import StageOutcomes
from reprieve.core.steps import StepResult
from tests.unit import builders as a

OWNER = core.TerminatingOwner(
    core.ObjectKind("example.com/v1", "Database"),
    core.ObjectMeta("orders", "shop", "o1", "7", deleted=a.NOW, finalizers=["reprieve.dev/protect"]),
)
SECRET = core.PresentDependent(
    core.ObjectKind("v1", "Secret"),
    core.ObjectMeta(
        "password", "shop", "d1", "3", owners=[core.OwnerReference("example.com/v1", "Database", "orders", "o1")]
    ),
)
POLICY = core.Policy(on_request=core.Verb.DELETE, otherwise=core.Verb.ORPHAN)


def walk(facts, inventory, outcome, *, now=a.NOW, limits=a.LIMITS):
    """A deletion as a user of the library writes it; every step comes to that outcome."""
    match admit(facts, inventory, now=now):
        case Refused(reason, message):
            return f"refused: {reason}: {message}"
        case Deferred(reason, until):
            return f"deferred: {reason}: {until}"
        case Admitted():
            deletion = plan(facts, inventory)
            (name, steps) = deletion.stages[0].name, deletion.stages[0].steps
            outcomes = StageOutcomes(deletion, deletion.stages[0], [StepResult(step, outcome) for step in steps])
            return name, settle(facts, outcomes, now=now, limits=limits)


def test_a_deletion_request_is_admitted_planned_and_settled():
    name, settled = walk(a.facts(**a.at_work()), a.inventory(a.a_snapshot()), Done())
    assert name == "snapshots"
    match settled:
        case core.Next(stage):
            assert stage.name == "bucketFiles"
        case _:
            pytest.fail(f"{settled}")


def test_a_retry_has_a_time_and_errors():
    _, settled = walk(a.facts(**a.at_work()), a.inventory(a.a_snapshot()), InUse("an image"))
    match settled:
        case core.Retry(at, errors):
            assert at > a.NOW
            assert errors == ("error deleting snapshot snap-1: an image",)
        case _:
            pytest.fail(f"{settled}")


def test_a_failure_has_errors():
    _, settled = walk(a.facts(**a.at_work()), a.inventory(a.a_snapshot()), Denied("no"))
    match settled:
        case core.Failed(errors):
            assert errors == ("error deleting snapshot snap-1: no",)
        case _:
            pytest.fail(f"{settled}")


def test_the_end_is_completed():
    facts = a.facts(**a.at_work())
    deletion = plan(facts, a.inventory())
    last = deletion.stages[-1]
    outcomes = StageOutcomes(deletion, last, [StepResult(step, Done()) for step in last.steps])
    assert settle(facts, outcomes, now=a.NOW, limits=a.LIMITS) == core.Completed()


def test_a_refusal_and_a_deferral_are_matched_by_position():
    assert walk(a.facts(backup=a.a_backup(phase="New")), a.inventory(), Done()) == (
        "refused: BackupInProgress: backup is still in progress"
    )
    held = a.a_backup(annotations={"reprieve.dev/hold": "law"})
    assert walk(a.facts(backup=held), a.inventory(), Done()).startswith("deferred: Held: 2024-04-04 13:00")


def test_protection_is_decided_by_keyword():
    decision = decide(OWNER, [SECRET], POLICY, now=a.NOW)
    (each,) = decision.dependents
    assert each.verdict is core.Verdict.ORPHAN
    assert each.ref == core.ObjectRef("v1", "Secret", "password", "shop", "d1")
    assert each.reason is core.Reason.OWNER_LOST
    assert "nobody asked" in each.message
    assert isinstance(decision.owner, core.Release)


def test_what_the_owner_does_is_matched_by_position():
    unknown = core.UnknownDependent(SECRET.ref, "no answer")
    match decide(OWNER, [unknown], POLICY, now=a.NOW).owner:
        case core.Release() | core.Wait(_):
            pytest.fail("unknown never releases")
        case core.RetryAfter(delta):
            assert delta > timedelta(0)


VALUES = [
    pytest.param(a.facts(**a.at_work(), siblings=[a.a_request("b")], restores=[a.a_restore("r")]), id="facts"),
    pytest.param(a.inventory(a.a_snapshot(), CsiContent("c"), troubles=[ListCorrupt("k", "why")]), id="inventory"),
    pytest.param(admit(a.facts(), a.inventory(), now=a.NOW), id="admitted"),
    pytest.param(admit(a.facts(backup=a.a_backup(phase="New")), a.inventory(), now=a.NOW), id="refused"),
    pytest.param(plan(a.facts(restores=[a.a_restore("r")]), a.inventory(a.a_snapshot())), id="plan"),
    pytest.param(a.settle(InUse("x"), Done()), id="retry"),
    pytest.param(a.settle(Denied("x"), Done()), id="failed"),
    pytest.param(a.LIMITS, id="limits"),
    pytest.param(decide(OWNER, [SECRET], POLICY, now=a.NOW), id="protection"),
]


@pytest.mark.parametrize("value", VALUES)
def test_values_go_through_plain_dicts_and_back(value):
    """Through JSON, as a log or a test would write them; and they are frozen, hashable and print their name."""
    text = json.dumps(to_plain(value), sort_keys=True)
    back = from_plain(json.loads(text))
    assert back == value
    assert hash(back) == hash(value)
    assert repr(value).startswith(type(value).__name__)
    assert json.dumps(to_plain(back), sort_keys=True) == text


def test_a_request_is_made_by_one_public_constructor():
    new = core.request_for(a.a_backup(), even_in_progress=True)
    assert (new.generate_name, new.backup, new.labels[BACKUP_UID]) == ("foo-", "foo", a.UID)
    assert dict(new.annotations) == {"reprieve.dev/even-in-progress": "true"}


def test_every_public_name_is_there():
    assert [name for name in core.__all__ if not hasattr(core, name)] == []
