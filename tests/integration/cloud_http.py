"""What the clouds' stand-ins share.

Canned answers, and a threaded HTTP server on loopback that can also hang, and never sleeps.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from attrs import field, frozen

from reprieve.adapters.cloud.endpoints import EndpointPolicy, Pattern, read_url


@frozen
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: bytes = b""
    headers: dict[str, str] = field(factory=dict)


@frozen
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(factory=dict)

    @classmethod
    def of_json(cls, document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Self:
        return cls(status, json.dumps(document).encode(), {"Content-Type": "application/json", **(headers or {})})


GARBAGE = Answer(200, b"<html><body>It works!", {"Content-Type": "text/html"})


def stand_ins(*urls: str) -> EndpointPolicy:
    """Allows locations to point at these stand-ins, with any identity, and tokens to go to them without TLS."""
    patterns = [Pattern(read_url(url).authority) for url in urls]
    return EndpointPolicy(patterns, patterns, bearer_over_http=True)


class Faults:
    """What goes wrong next.

    ``canned`` answers are given once each, in order; ``hanging`` holds every call until the end.
    """

    def __init__(self) -> None:
        self.canned: list[tuple[Callable[[Request], bool], Answer]] = []
        self.hanging = threading.Event()
        self.released = threading.Event()
        self._lock = threading.Lock()

    def next(self, answer: Answer, *, when: Callable[[Request], bool] = lambda _: True, times: int = 1) -> None:
        self.canned += [(when, answer)] * times

    def pick(self, request: Request) -> Answer | None:
        if self.hanging.is_set():
            self.released.wait()
            return Answer(500)
        with self._lock:
            hit = next((i for i, (when, _) in enumerate(self.canned) if when(request)), None)
            return None if hit is None else self.canned.pop(hit)[1]


class Server:
    """Serves ``answer`` on loopback.

    Every call is kept in ``requests``. A hanging handler is let go when the server closes.
    """

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.faults = Faults()
        self.requests: list[Request] = []
        self._answer = answer
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.faults.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.faults.pick(request) or self._answer(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        return type("Bound", (Handler,), {"standin": self})


class Handler(BaseHTTPRequestHandler):
    """Reads a request, gives it to the server it is made for, and writes the answer."""

    standin: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else headers and body go out 40 ms apart

    def log_message(self, *args: object) -> None:
        """Say nothing: the tests' output is the tests'."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        answer = self.standin.handle(Request(self.command, parts.path, query, body, dict(self.headers)))
        try:
            self._send(answer)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if answer.status not in {204, 304}:
            self.wfile.write(answer.body)

    def do_GET(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()


def closed_url() -> str:
    """An address on loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def closing(standin: Any) -> Iterator[Any]:
    """Close a stand-in at the end."""
    try:
        yield standin
    finally:
        standin.close()
