"""The migration at start: live Backups lose the finalizer of old Ark releases, and no other."""

import attrs
import pytest

from reprieve.core.migration import migrate
from reprieve.core.steps import merge_patch
from tests.unit.builders import NOW, a_backup

OLD = "gc.ark.heptio.com"


def carrying(name, *finalizers, deleted=None):
    made = a_backup(name, uid=f"uid-{name}")
    return attrs.evolve(made, meta=attrs.evolve(made.meta, finalizers=finalizers, deleted=deleted))


@pytest.mark.parametrize(
    ("finalizers", "left"),
    [
        pytest.param([OLD], None, id="the-only-one"),
        pytest.param(["a/b", OLD, "c/d"], ["a/b", "c/d"], id="only-the-target-is-removed"),
        pytest.param([OLD, OLD], None, id="twice"),
    ],
)
def test_the_old_finalizer_is_taken_off_with_a_precondition(finalizers, left):
    (step,) = migrate([carrying("foo", *finalizers)])

    assert merge_patch(step) == {"metadata": {"finalizers": left}}
    assert (step.ref.uid, step.resource_version) == ("uid-foo", "1")


@pytest.mark.parametrize(
    "backups",
    [
        pytest.param([], id="no-backups"),
        pytest.param([carrying("a"), carrying("b", "velero.io/other")], id="none-that-carries-it"),
    ],
)
def test_without_the_finalizer_nothing_is_written(backups):
    assert migrate(backups) == ()


def test_a_backup_that_could_never_go_away_is_let_go():
    """heptio/ark#333 and its like: with the server gone first, nobody served the finalizer, and the namespace hung."""
    (step,) = migrate([carrying("stuck", OLD, deleted=NOW)])

    assert step.ref.name == "stuck"


def test_the_order_is_fixed():
    backups = [carrying(name, OLD) for name in ("c", "a", "b")]

    assert [step.ref.name for step in migrate(backups)] == ["a", "b", "c"]
