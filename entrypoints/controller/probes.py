"""Probes and metrics over HTTP: ``/healthz``, ``/readyz`` and ``/metrics``.

Guarantee: whoever reaches the port cannot use up the process: so many connections at once and no more, each for so long
and no longer, and where one too many comes the oldest goes. Not guaranteed: secrecy; metrics name controllers and
reasons, so a network policy says who may ask.
"""

from __future__ import annotations

import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from reprieve.core.errors import InvalidError
from reprieve.entrypoints.controller.metrics import Metrics

CONNECTIONS = 16
"""Connections at once; kubelet and Prometheus need two."""
SECONDS = 5.0
"""How long one connection may take in all."""


class Probes:
    """Answers probes; ready only once the controllers were started, healthy while every thread of theirs lives."""

    def __init__(self, metrics: Metrics, port: int, *, host: str = "") -> None:
        """``port`` 0 serves nothing."""
        self._metrics, self._port, self._host = metrics, port, host
        self._ready = threading.Event()
        self._ended: Callable[[], Sequence[str]] = list

    def ready(self) -> None:
        """Say from now on that the controllers are ready."""
        self._ready.set()

    def watch_over(self, ended: Callable[[], Sequence[str]]) -> None:
        """Be unhealthy once that names a thread which ended by itself."""
        self._ended = ended

    @contextmanager
    def serving(self) -> Iterator[int]:
        """Serve while the context lasts; gives the port. Raises ``InvalidError`` when the address cannot be used."""
        if not self._port:
            yield 0
            return
        try:
            server = _Server((self._host, self._port), self._handler())
        except (OSError, TypeError, ValueError) as fault:
            where = f"--probe-port {self._port}" + (f" at --probe-address {self._host}" if self._host else "")
            raise InvalidError(f"{where} cannot be used: {fault}") from fault
        thread = threading.Thread(target=server.serve_forever, name="probes", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()

    def answer(self, path: str) -> tuple[HTTPStatus, bytes]:
        """What a path is answered with."""
        match path:
            case "/healthz":
                dead = self._ended()
                said = f"ended: {', '.join(dead)}".encode() if dead else b"ok"
                return (HTTPStatus.INTERNAL_SERVER_ERROR if dead else HTTPStatus.OK), said
            case "/readyz":
                return (HTTPStatus.OK, b"ok") if self._ready.is_set() else (HTTPStatus.SERVICE_UNAVAILABLE, b"starting")
            case "/metrics":
                return HTTPStatus.OK, self._metrics.text()
            case _:
                return HTTPStatus.NOT_FOUND, b"there are /healthz, /readyz and /metrics"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            timeout = SECONDS

            def do_GET(self) -> None:
                status, body = answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                """Probes are no news."""

        return Handler


class _Server(HTTPServer):
    """Answers each connection in a thread of its own: so many at once, the oldest gives way, none lasts long."""

    address_family = socket.AF_INET
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: OrderedDict[int, tuple[socket.socket, threading.Timer]] = OrderedDict()
        self._lock = threading.Lock()
        self._threads = threading.Semaphore(2 * CONNECTIONS)  # those of connections that were cut off end at once
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind, without asking any name server who we are."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; cut the oldest connection off when there are too many."""
        timer = threading.Timer(SECONDS, _cut_off, [request])
        timer.daemon = True
        with self._lock:
            oldest = next(iter(self._open.values()))[0] if len(self._open) >= CONNECTIONS else None
            self._open[id(request)] = (request, timer)
        if oldest is not None:
            _cut_off(oldest)
        self._threads.acquire()
        try:
            timer.start()
            threading.Thread(target=self._answer, args=(request, client_address), name="probe", daemon=True).start()
        except RuntimeError:  # no thread is to be had
            self._close(request)
            self._threads.release()

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            with suppress(Exception):  # a connection that broke off: no news, and no traceback
                self.finish_request(request, client_address)
        finally:
            self._close(request)
            self._threads.release()

    def _close(self, request: Any) -> None:
        with self._lock:
            found = self._open.pop(id(request), None)
        if found is not None:
            found[1].cancel()
        self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing on standard error."""


def _cut_off(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
