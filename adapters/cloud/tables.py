"""Error tables: what an SDK said, and what it means to the core.

The tables are data; this module is the only reader of them.

An adapter turns an exception into a ``Fault`` (plain data), the first ``Rule`` that fits it names the core's error, and
no rule means ``UnknownError``. Rules name exception classes as text, so that a table can be read, printed and tested
without its SDK.

Guarantee: whatever is raised inside ``translated`` leaves it as a ``ReprieveError``, the panic of a native library
included; what no rule names is never "gone" and never "done". What is known to be secret is in no message.
Not guaranteed: that a provider keeps its codes; a code that it invents tomorrow is ``UnknownError``
until a rule names it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve, field, frozen

from reprieve.adapters.cloud.known import hide
from reprieve.adapters.sizes import MESSAGE
from reprieve.core.errors import (
    LockedError,
    MissingExtraError,
    ReprieveError,
    ThrottledError,
    UnavailableError,
    UnknownError,
)
from reprieve.core.outcomes import Done, Outcome, outcome_of
from reprieve.core.values import cut

LONGEST_MESSAGE = 500
LONGEST_PAUSE = timedelta(hours=1)
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}", re.ASCII)


def words(text: str) -> str:
    """A stranger's words, as they may be searched and told: cut, on one line, nothing in them that is not printed."""
    shown = "".join(each if each.isprintable() else " " for each in cut(text, limit=MESSAGE))
    return " ".join(shown.split())


def _known_form(code: str) -> str:
    return code if _CODE.fullmatch(code) else ""


@frozen
class Fault:
    """What an SDK said, cut before any pattern sees it.

    ``classes``: the exception's class and its bases by name; ``status``: HTTP, 0 for none; ``code``: the provider's
    word, empty where it has not the form of one; ``message``: its sentence, from its own error document. ``foreign``:
    it answered with something else than such a document, of which nothing is told: whatever a location points at may be
    behind it.
    """

    classes: tuple[str, ...] = ()
    status: int = 0
    code: str = field(default="", converter=_known_form)
    message: str = field(default="", converter=words)
    after: timedelta = timedelta(0)
    until: datetime | None = None
    foreign: bool = False


@frozen
class Rule:
    """One row: what must hold of a fault (every part that is given), and the core's error that it then is.

    ``codes`` are regular expressions for the whole code, ``words`` one that is searched for in the message, both
    without regard to case.
    """

    error: type[ReprieveError]
    exceptions: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    codes: tuple[str, ...] = ()
    words: str = ""
    why: str = field(default="", kw_only=True)

    def fits(self, fault: Fault) -> bool:
        """Whether every part that the rule gives holds."""
        return (
            (not self.exceptions or not set(self.exceptions).isdisjoint(fault.classes))
            and (not self.statuses or fault.status in self.statuses)
            and (not self.codes or any(re.fullmatch(code, fault.code, re.IGNORECASE) for code in self.codes))
            and (not self.words or re.search(self.words, fault.message, re.IGNORECASE) is not None)
        )


Table = tuple[Rule, ...]


def error_for(fault: Fault, table: Sequence[Rule]) -> type[ReprieveError]:
    """The core's error for a fault: that of the first rule that fits, ``UnknownError`` where none does."""
    return next((rule.error for rule in table if rule.fits(fault)), UnknownError)


def build_error(fault: Fault, table: Sequence[Rule], *, what: str) -> ReprieveError:
    """Make the core's error: what was tried, the provider's code and its words, the pause or the date that it gave."""
    kind = error_for(fault, table)
    message = hide(f"{what}: {said(fault)}")
    if issubclass(kind, ThrottledError | UnavailableError):
        return kind(message, fault.after)
    return kind(message, fault.until) if issubclass(kind, LockedError) else kind(message)


def said(fault: Fault) -> str:
    """What is told of a fault: code, status, and the provider's words, where they are the provider's."""
    if fault.foreign:
        return f"HTTP {fault.status or 200} with a body that is not the provider's"
    parts = [fault.code or (fault.classes[0] if fault.classes else ""), f"HTTP {fault.status}" if fault.status else ""]
    told = hide(fault.message, strangers=True)[:LONGEST_MESSAGE]
    return ": ".join(part for part in (", ".join(p for p in parts if p), told) if part)


class NativePanicError(Exception):
    """A native library gave up on a call, for a value that it did not expect."""


NATIVE_PANIC = NativePanicError.__name__

STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What is beside ``Exception`` in Python and meant to end what runs."""


@contextmanager
def native() -> Iterator[None]:
    """Make an exception of a native library's panic.

    Libraries in Rust (obstore, cryptography) raise theirs beside ``Exception``, where no handler looks: it would end
    the thread that made the call. Everything of that kind counts that is not meant to stop us.
    """
    try:
        yield
    except (Exception, *STOPS):
        raise
    except BaseException as error:
        raise NativePanicError(f"{type(error).__name__}: {error}") from error


@contextmanager
def told(make: Callable[[Exception], ReprieveError]) -> Iterator[None]:
    """Let nothing out but the core's errors, without what is known to be secret.

    ``make`` makes one of whatever else is raised inside; the original is chained.
    """
    try:
        with native():
            yield
    except ReprieveError as error:
        shown = without_secrets(error)
        if shown is error:
            raise
        raise shown from error.__cause__
    except Exception as error:
        raise without_secrets(make(error)) from error


def translated(read: Callable[[Exception], Fault], table: Sequence[Rule], *, what: str) -> AbstractContextManager[None]:
    """Let no exception of an SDK out: whatever is raised inside leaves as the core's error, the original chained."""
    return told(lambda error: build_error(read(error), table, what=what))


def without_secrets(error: ReprieveError) -> ReprieveError:
    """The same error without what is known to be secret; itself, where nothing of it is."""
    text = str(error)
    return error if (shown := hide(text)) == text else reworded(error, shown)


def reworded(error: ReprieveError, text: str) -> ReprieveError:
    """The same error with another text. Its pause, its date, and whatever else its class keeps, come along."""
    copy = type(error).__new__(type(error), text)  # not by its __init__: each class has one of its own
    copy.__dict__.update(error.__dict__)
    return copy


def outcome(effect: Callable[[], Outcome | None]) -> Outcome:
    """Carry out an effect that may raise the core's errors.

    What comes back is an outcome, ``Done`` where the effect says nothing else.
    """
    try:
        found: Any = effect() or Done()
    except ReprieveError as error:
        found = outcome_of(error)
    message = getattr(found, "message", "")
    shown: Outcome = evolve(found, message=hide(message)) if message else found
    return shown


def class_names(error: BaseException) -> tuple[str, ...]:
    """Name an exception's class and all its bases, the most special one first."""
    return tuple(cls.__name__ for cls in type(error).__mro__ if cls not in {object, BaseException, Exception})


def pause(header: str | None) -> timedelta:
    """Read a ``Retry-After`` of seconds, at most an hour.

    A date or nonsense counts as none, the core's own back-off then applies.
    """
    try:
        seconds = float(header or 0)
    except ValueError:
        return timedelta(0)
    return timedelta(seconds=min(seconds, LONGEST_PAUSE.total_seconds())) if 0 < seconds < math.inf else timedelta(0)


def not_installed(extra: str) -> MissingExtraError:
    """The error for a provider whose SDK is not there, with the way out."""
    return MissingExtraError(f"the SDK for {extra}", extra=extra)
