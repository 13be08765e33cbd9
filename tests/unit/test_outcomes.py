"""Outcomes: how an error becomes one, what counts as gone, and what many of them come to."""

from datetime import timedelta
from itertools import permutations

import pytest

from reprieve.core import errors, outcomes
from reprieve.core.outcomes import (
    AlreadyGone,
    Conflict,
    ContainerMissing,
    Denied,
    Done,
    InUse,
    Invalid,
    Locked,
    Pending,
    Retryable,
    Unknown,
    combined,
    is_gone,
    message_of,
    outcome_of,
)
from tests.unit.builders import NOW

WAIT = timedelta(seconds=9)
ALL = [
    Done(),
    AlreadyGone(),
    Pending(),
    Retryable(),
    InUse(),
    Locked(),
    Conflict(),
    Denied(),
    Invalid(),
    ContainerMissing(),
    Unknown(),
]


def error_classes(base=errors.ReprieveError):
    return [
        base,
        *(found for sub in base.__subclasses__() if sub.__module__ == errors.__name__ for found in error_classes(sub)),
    ]


MAPPED = [
    (errors.NotFoundError("x"), AlreadyGone()),
    (errors.ContainerMissingError("no bucket"), ContainerMissing("no bucket")),
    (errors.InUseError("image"), InUse("image")),
    (errors.LockedError("retention", NOW), Locked(NOW, "retention")),
    (errors.LockedError("policy"), Locked(None, "policy")),
    (errors.DeniedError("no"), Denied("no")),
    (errors.ThrottledError("slow down", WAIT), Retryable(WAIT, "slow down")),
    (errors.UnavailableError("503", WAIT), Retryable(WAIT, "503")),
    (errors.ConflictError("changed"), Conflict("changed")),
    (errors.AlreadyExistsError("there"), Conflict("there")),
    (errors.InvalidError("malformed"), Invalid("malformed")),
    (errors.MissingExtraError("x", extra="k8s"), Invalid(str(errors.MissingExtraError("x", extra="k8s")))),
    (errors.ExpiredError("410"), Unknown("410")),
    (errors.UnknownError("?"), Unknown("?")),
    (errors.TooMuchError("x"), Unknown("x")),
    (errors.ReprieveError("new"), Unknown("new")),
]


@pytest.mark.parametrize(("error", "outcome"), [pytest.param(e, o, id=f"{type(e).__name__}-{e}") for e, o in MAPPED])
def test_one_function_maps_the_one_to_the_other(error, outcome):
    """Reads raise core.errors, effects return an outcome; one function in core maps the one to the other."""
    assert outcome_of(error) == outcome


def test_the_map_is_whole():
    """Every error that an adapter may raise has its row above."""
    assert {type(error) for error, _ in MAPPED} == set(error_classes())


def test_only_not_found_is_gone():
    """Anything that nobody understands is never taken for gone, never for done; nor is a missing container."""
    assert {type(error) for error, outcome in MAPPED if is_gone(outcome)} == {errors.NotFoundError}


@pytest.mark.parametrize("outcome", [pytest.param(o, id=type(o).__name__) for o in ALL])
def test_every_trouble_has_a_sentence(outcome):
    assert (message_of(outcome) == "") == is_gone(outcome)
    assert outcome in ALL
    assert type(outcome) in outcomes.Outcome.__args__


def test_a_message_is_told_else_the_outcomes_name():
    assert message_of(InUse("image ami-1")) == "image ami-1"
    assert message_of(InUse()) == "InUse"


# Many parts


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        pytest.param({}, AlreadyGone(), id="no-part"),
        pytest.param({"a": AlreadyGone()}, AlreadyGone(), id="nothing-was-there"),
        pytest.param({"a": Done(), "b": AlreadyGone()}, Done(), id="all-gone"),
        pytest.param({"a": Done(), "b": Denied("no")}, Denied("1 left, such as b: no"), id="one-left"),
        pytest.param(
            {"a": Retryable(WAIT, "slow"), "b": Denied("no"), "c": Done()},
            Denied("2 left, such as b: no"),
            id="the-gravest-stands-for-all",
        ),
        pytest.param(
            {"a": Retryable(WAIT, "slow"), "b": Pending()},
            Retryable(WAIT, "2 left, such as a: slow"),
            id="it-keeps-its-pause",
        ),
        pytest.param(
            {"a": Pending(WAIT, "its turn", begun=False), "b": Pending(WAIT, "it runs")},
            Pending(WAIT, "2 left, such as b: it runs"),
            id="one-that-goes-is-begun",
        ),
        pytest.param(
            {"a": Pending(WAIT, "it runs"), "b": Pending(WAIT, "its turn", begun=False)},
            Pending(WAIT, "2 left, such as b: its turn"),
            id="begun-whichever-stands-for-all",
        ),
        pytest.param(
            {"a": Pending(WAIT, "its turn", begun=False)},
            Pending(WAIT, "1 left, such as a: its turn", begun=False),
            id="not-begun",
        ),
        pytest.param({"a": Locked(NOW, "x")}, Locked(NOW, "1 left, such as a: x"), id="it-keeps-its-date"),
    ],
)
def test_many_parts(parts, whole):
    """Gone only when every part is; the order of the parts does not matter."""
    assert {combined(dict(order)) for order in permutations(parts.items())} == {whole}
