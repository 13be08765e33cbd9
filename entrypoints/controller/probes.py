"""Probes and metrics over HTTP: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from reprieve.core.errors import InvalidError
from reprieve.entrypoints.controller.metrics import Metrics


class Probes:
    """Answers probes; ready only once the controllers were started."""

    def __init__(self, metrics: Metrics, port: int, *, host: str = "") -> None:
        """``port`` 0 serves nothing."""
        self._metrics, self._port, self._host = metrics, port, host
        self._ready = threading.Event()

    def ready(self) -> None:
        """Say from now on that the controllers are ready."""
        self._ready.set()

    @contextmanager
    def serving(self) -> Iterator[int]:
        """Serve while the context lasts; gives the port. Raises ``InvalidError`` when the port is taken."""
        if not self._port:
            yield 0
            return
        try:
            server = ThreadingHTTPServer((self._host, self._port), self._handler())
        except OSError as fault:
            raise InvalidError(f"--probe-port {self._port} cannot be used: {fault}") from fault
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
                return HTTPStatus.OK, b"ok"
            case "/readyz":
                return (HTTPStatus.OK, b"ok") if self._ready.is_set() else (HTTPStatus.SERVICE_UNAVAILABLE, b"starting")
            case "/metrics":
                return HTTPStatus.OK, self._metrics.text()
            case _:
                return HTTPStatus.NOT_FOUND, b"there are /healthz, /readyz and /metrics"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                """Probes are no news."""

        return Handler
