"""What a read through a port may raise. Each error is named for what the caller must know, not for an SDK's word.

Guarantee: ``NotFoundError`` is only ever about the object itself; a missing bucket, project, namespace or kind is
``ContainerMissingError``. Not guaranteed: that a message of another system is stable; decide on the class alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta


class ReprieveError(Exception):
    """The base of everything that reprieve raises on purpose; its text says what, where, and the way out."""


class NotFoundError(ReprieveError):
    """The object itself is not there (its container is)."""


class ContainerMissingError(ReprieveError):
    """The bucket, project, resource group, zone, namespace or kind that should hold the object is not there."""


class InUseError(ReprieveError):
    """Something else uses the object."""


class LockedError(ReprieveError):
    """A lock, a retention rule or an admission policy refuses; ``until`` is when it ends, where that is known."""

    def __init__(self, message: str, until: datetime | None = None) -> None:
        """Keep the instant of release beside the message."""
        super().__init__(message)
        self.until = until


class DeniedError(ReprieveError):
    """The credentials are missing, expired, or may not do this."""


class ThrottledError(ReprieveError):
    """Too many calls; not before ``after`` where the other side said so."""

    def __init__(self, message: str, after: timedelta = timedelta(0)) -> None:
        """Keep the pause that was asked for beside the message."""
        super().__init__(message)
        self.after = after


class UnavailableError(ReprieveError):
    """The other side could not be reached or could not answer; it may pass."""

    def __init__(self, message: str, after: timedelta = timedelta(0)) -> None:
        """Keep the pause that was asked for beside the message."""
        super().__init__(message)
        self.after = after


class ConflictError(ReprieveError):
    """A precondition (UID, resource version) did not hold: read again."""


class AlreadyExistsError(ReprieveError):
    """An object of that name is there already."""


class InvalidError(ReprieveError):
    """The other side refuses the ask as malformed."""


class MissingExtraError(InvalidError, ImportError):
    """A library is not installed; the text names the extra that brings it, and where that is installed from."""

    def __init__(self, library: str, *, extra: str) -> None:
        """Say it with the way out, which never is a name on an index: only a checkout and its wheel are ours."""
        super().__init__(
            f"{library} is not installed: it comes with the extra {extra}; in a checkout of reprieve: "
            f"pip install '.[{extra}]', or from its wheel: pip install './FILE.whl[{extra}]'"
        )


class ExpiredError(ReprieveError):
    """The resource version or the continue token is too old: list again."""


class UnknownError(ReprieveError):
    """An answer that nobody understands: never taken for gone, never for done."""


class TooMuchError(UnknownError):
    """An answer, a document or a list that goes on beyond what is read of one: nothing is concluded from its part."""
