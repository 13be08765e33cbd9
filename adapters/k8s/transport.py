"""What the Kubernetes adapter needs of a connection: one call, and one stream of lines; ``client`` makes one.

Guarantee asked of a transport: whatever goes wrong on the way raises ``reprieve.core.errors``; an HTTP status is no
failure of a call. Not asked: retries; who calls decides about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Protocol

from attrs import field, frozen

from reprieve.adapters.k8s.errors import Answer, Ask
from reprieve.adapters.sizes import OBJECT
from reprieve.core.values import as_tuple

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


@frozen
class Request:
    """An HTTP request below the server's address; ``path`` is quoted already, ``body`` is plain JSON data or None.

    ``limit``: the most bytes that its answer, or one line of it, may have.
    """

    ask: Ask
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = field(default=(), converter=as_tuple)
    accept: str = JSON
    content_type: str = JSON
    body: Mapping[str, Any] | None = None
    limit: int = OBJECT


class Transport(Protocol):
    """A connection to one API server."""

    def call(self, request: Request) -> Answer:
        """Make one call, without retries, and read the whole answer. Raises what ``errors.failure_of`` gives.

        ``TooMuchError`` for an answer beyond the request's limit; of a refusal only ``STATUS_BODY`` is read.
        """
        ...

    def lines(self, request: Request, *, idle: timedelta) -> Iterator[bytes]:
        """Make one call and yield its lines, at most ``idle`` apart. Any status but 200 raises (``error_of``)."""
        ...

    def within(self, timeout: timedelta) -> Transport:
        """Give the same connection with another time-out a call."""
        ...

    def close(self) -> None:
        """End every stream (their readers see a broken connection) and close the connections."""
        ...
