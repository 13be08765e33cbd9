"""What an effect came to. Adapters report one of these; nothing above them sees an SDK's exception.

Guarantee: only ``Done`` and ``AlreadyGone`` mean that the thing is gone. Everything that could not be told apart is
``Unknown``, and unknown is never gone and never done. Not guaranteed: that a ``Pending`` deletion ends well; it has to
be asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, assert_never

import attrs
from attrs import frozen

from reprieve.core import errors

DEFAULT_PENDING = timedelta(seconds=5)


@frozen
class Done:
    """The effect was carried out, and its end was seen."""


@frozen
class AlreadyGone:
    """The thing was not there: the aim is reached, by somebody else."""


@frozen
class Pending:
    """Accepted, not finished: ask again after that time. No attempt is counted.

    ``begun`` is off where nothing was asked for yet, as the call still waits for its turn: then nothing is going away.
    """

    after: timedelta = DEFAULT_PENDING
    message: str = "accepted, not finished yet"
    begun: bool = True


@frozen
class Retryable:
    """Failed for a reason that passes (throttled, unavailable); not before ``after``, where the other side said so."""

    after: timedelta = timedelta(0)
    message: str = ""


@frozen
class InUse:
    """Something else uses the thing. Retried: users let go."""

    message: str = ""


@frozen
class Locked:
    """A lock or a retention rule refuses, until that instant where it is known."""

    until: datetime | None = None
    message: str = ""


@frozen
class Conflict:
    """The thing changed since it was read. Retried after another read."""

    message: str = ""


@frozen
class Denied:
    """The credentials may not do this."""

    message: str = ""


@frozen
class Invalid:
    """The ask itself is wrong (a malformed id, another region); no retry mends it."""

    message: str = ""


@frozen
class ContainerMissing:
    """What should hold the thing (bucket, project, resource group, kind) is not there: never the thing being gone."""

    message: str = ""


@frozen
class Unknown:
    """Nothing that is understood. Retried, and never taken for done."""

    message: str = ""


Outcome = (
    Done | AlreadyGone | Pending | Retryable | InUse | Locked | Conflict | Denied | Invalid | ContainerMissing | Unknown
)


def outcome_of(error: errors.ReprieveError) -> Outcome:
    """Map what an adapter raised while it carried out an effect to the outcome of the effect. The only such map."""
    message = str(error)
    match error:
        case errors.NotFoundError():
            return AlreadyGone()
        case errors.ContainerMissingError():
            return ContainerMissing(message)
        case errors.InUseError():
            return InUse(message)
        case errors.LockedError(until=until):
            return Locked(until, message)
        case errors.DeniedError():
            return Denied(message)
        case errors.ThrottledError(after=after) | errors.UnavailableError(after=after):
            return Retryable(after, message)
        case errors.ConflictError() | errors.AlreadyExistsError():
            return Conflict(message)
        case errors.InvalidError():
            return Invalid(message)
        case _:
            return Unknown(message)


def is_gone(outcome: Outcome) -> bool:
    """Whether the thing is confirmed gone: only then may the next stage start."""
    return isinstance(outcome, Done | AlreadyGone)


def message_of(outcome: Outcome) -> str:
    """The sentence that an outcome carries; empty for those that are no trouble."""
    match outcome:
        case Done() | AlreadyGone():
            return ""
        case (
            Pending(message=message)
            | Retryable(message=message)
            | InUse(message)
            | Locked(message=message)
            | Conflict(message)
            | Denied(message)
            | Invalid(message)
            | ContainerMissing(message)
            | Unknown(message)
        ):
            return message or type(outcome).__name__
        case _:
            assert_never(outcome)


def combined(outcomes: Mapping[str, Outcome]) -> Outcome:
    """Fold the outcomes of many parts, by name, into that of the whole: gone only when every part is.

    The gravest outcome stands for all, and says how many parts are left (not of how many: a run that is cut off and one
    that is not say the same). Order does not matter; no part at all is ``AlreadyGone``.
    """
    left = sorted((_gravity(outcome), name) for name, outcome in outcomes.items() if not is_gone(outcome))
    if not left:
        return Done() if any(isinstance(outcome, Done) for outcome in outcomes.values()) else AlreadyGone()
    name = left[-1][1]
    gravest: Any = outcomes[name]
    note = f"{len(left)} left, such as {name}: {message_of(gravest)}"
    whole: Outcome = attrs.evolve(gravest, message=note)
    return attrs.evolve(whole, begun=_any_begun(outcomes.values())) if isinstance(whole, Pending) else whole


def _any_begun(outcomes: Iterable[Outcome]) -> bool:
    """Whether something is on its way to be gone: of parts that wait for their turn and one that goes, it is."""
    return any(isinstance(outcome, Pending) and outcome.begun for outcome in outcomes)


_GRAVEST = (Done, AlreadyGone, Pending, Locked, Retryable, Conflict, InUse, Unknown, Denied, Invalid, ContainerMissing)


def _gravity(outcome: Outcome) -> int:
    return _GRAVEST.index(type(outcome))
