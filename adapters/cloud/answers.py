"""Answers of the clouds' APIs, read up to a limit: the SDKs themselves read whatever is sent.

Guarantee: of a refusal (or a redirect) ``ERROR_BODY`` is read, of any other answer ``CLOUD_ANSWER``, unpacked; beyond
it ``TooMuchError``, never a part. What an answer is going to become in memory is charged before an SDK builds it. Not
guaranteed: a bound on what SDKs ask for on their own account (tokens, from a provider's own server or the instance's).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from reprieve.adapters.budget import charge_json, gather
from reprieve.adapters.cloud.known import remember_sent
from reprieve.adapters.sizes import CHUNK, CLOUD_ANSWER, ERROR_BODY
from reprieve.core.errors import UnknownError

REFUSAL = 300


def limit_of(status: int) -> int:
    """How much is read of an answer with that HTTP status."""
    return ERROR_BODY if status >= REFUSAL else CLOUD_ANSWER


def bound_requests(session: Any, *, connections: int) -> None:
    """Let a session of requests (Google's and Azure's SDKs have one) read no answer further than its limit.

    What it sends as a token is known to be secret from then on. It keeps ``connections`` open: the SDKs' sessions keep
    ten, and would open and drop one for every further call of our workers.
    """
    from requests.adapters import HTTPAdapter

    class BoundedAdapter(HTTPAdapter):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            remember_sent(request.headers)
            response: Any = super().send(request, *args, **kwargs)
            what = f"the answer to {request.method} {str(request.url).partition('?')[0]}"
            try:
                body = gather(
                    response.iter_content(CHUNK),
                    limit=limit_of(response.status_code),
                    refusal=response.status_code >= REFUSAL,
                    what=what,
                )
                charge_json(body, what)
            finally:
                response.close()
            # As requests itself leaves an answer that it has read whole.
            response._content, response._content_consumed = body, True  # noqa: SLF001
            return response

    for scheme in ("https://", "http://"):
        retries = session.get_adapter(scheme).max_retries
        session.mount(scheme, BoundedAdapter(max_retries=retries, pool_connections=1, pool_maxsize=connections))


def pin(session: Any, *, url: str) -> None:
    """Let a session of ``requests`` send to one scheme, host and port alone, that of ``url``.

    Whatever else an answer leads to (a next page, an operation, a redirect) raises ``UnknownError``, unsent.
    """
    ours = _origin(url)
    for adapter in set(session.adapters.values()):
        adapter.send = _pinned(adapter.send, ours)


def _pinned(send: Callable[..., Any], ours: tuple[str, str, int]) -> Callable[..., Any]:
    def checked(request: Any, *given: Any, **more: Any) -> Any:
        if _origin(request.url) != ours:
            raise UnknownError(f"{ours[1]} answered with an address elsewhere; it is not asked")
        return send(request, *given, **more)

    return checked


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
