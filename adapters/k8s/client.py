"""The official client, for what it is good at: kubeconfig, credentials and TLS; imported here and nowhere else.

Guarantee: one request a call (the client's silent retries are off), each with a time-out; no exception of the client
or of its HTTP library passes. Not guaranteed: that the client's own credential plugins are quick; they run inside a
call.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import ssl
import threading
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

from reprieve.adapters.budget import gather
from reprieve.adapters.k8s.cluster import PAGE, KubernetesCluster
from reprieve.adapters.k8s.errors import Answer, error_of, failure_of
from reprieve.adapters.k8s.private import private_folder
from reprieve.adapters.k8s.transport import Request
from reprieve.adapters.sizes import CHUNK, STATUS_BODY
from reprieve.core.errors import InvalidError, ReprieveError, TooMuchError, UnavailableError

__all__ = ["ClientTransport", "KubernetesCluster", "connect", "connect_to"]

TIMEOUT = timedelta(seconds=30)
_CONNECT = timedelta(seconds=5)
_CONNECTIONS = 64  # kept open: workers, and one a watch


def connect(
    *, kubeconfig: Path | str | None = None, context: str = "", timeout: timedelta = TIMEOUT
) -> KubernetesCluster:
    """Connect as kubectl does: the file that is named, else ``KUBECONFIG``, else ``~/.kube/config``, else the pod.

    Makes no call. Raises ``InvalidError`` when there is no configuration, or it cannot be used.
    """
    from kubernetes.client.configuration import Configuration

    configuration = Configuration()
    files = str(kubeconfig or "") or os.environ.get("KUBECONFIG", "") or _home_file()
    try:
        tls = _load(configuration, files, context)
    except Exception as error:
        origin = files or "the pod's service account (no --kubeconfig, no KUBECONFIG, no ~/.kube/config)"
        raise InvalidError(f"no cluster from {origin}: {_said(error)}; or use --local DIR") from error
    return connect_to(configuration, timeout=timeout, tls=tls)


def _said(error: Exception) -> str:
    """What a configuration lacks; an error from inside the client's parser tells nobody what to mend."""
    if isinstance(error, InvalidError | OSError) or type(error).__module__.startswith("kubernetes"):
        return str(error).rstrip(".")
    return f"it is not a kubeconfig ({type(error).__name__}: {error})"


def connect_to(
    configuration: Any, *, timeout: timedelta = TIMEOUT, page: int = PAGE, tls: ssl.SSLContext | None = None
) -> KubernetesCluster:
    """Connect with a ``kubernetes.client.Configuration``, which is changed (no retries, keep-alive). Makes no call.

    ``tls`` has the certificates that are not in files any more.
    """
    from kubernetes.client.api_client import ApiClient

    configuration.retries = False
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = _CONNECTIONS
    try:
        api: Any = ApiClient(configuration)
        if tls is not None:
            api.rest_client.pool_manager.connection_pool_kw["ssl_context"] = tls
        return KubernetesCluster(ClientTransport(api, timeout=timeout), page=page)
    except Exception as error:
        raise InvalidError(f"the connection to {configuration.host} cannot be set up: {error}") from error


class ClientTransport:
    """``transport.Transport`` over the official client's ``ApiClient``. Safe to share between threads."""

    def __init__(self, api: Any, *, timeout: timedelta = TIMEOUT, streams: _Streams | None = None) -> None:
        """Take an ``ApiClient`` whose configuration has its retries off."""
        self._api = api
        self._timeout = timeout
        self._streams = streams or _Streams()

    def within(self, timeout: timedelta) -> ClientTransport:
        """Give the same connections with another time-out a call."""
        return ClientTransport(self._api, timeout=timeout, streams=self._streams)

    def close(self) -> None:
        """End every stream and close the connections."""
        self._streams.end()
        with contextlib.suppress(Exception):
            self._api.close()

    def call(self, request: Request) -> Answer:
        """Make one call and read the whole answer; see the protocol."""
        try:
            return _answer(request, self._send(request, self._timeout))
        except ReprieveError:
            raise
        except Exception as error:  # whatever the client, its plugins or its HTTP library raise ends here
            raise failure_of(request.ask, error) from error

    def lines(self, request: Request, *, idle: timedelta) -> Iterator[bytes]:
        """Make one call and yield its lines; see the protocol."""
        try:
            response = self._send(request, idle)
            refusal = None if response.status == HTTPStatus.OK else _answer(request, response)
        except ReprieveError:
            raise
        except Exception as error:
            raise failure_of(request.ask, error) from error
        if refusal is not None:
            raise error_of(request.ask, refusal)
        with self._streams.reading(response.response) as stream:
            yield from _split(_chunks(request, stream), request)

    def _send(self, request: Request, idle: timedelta) -> Any:
        headers = {"Accept": request.accept, "Content-Type": request.content_type}
        sent = self._api.param_serialize(
            request.method,
            request.path,
            query_params=[*request.query] or None,
            header_params=headers if request.body is not None else {"Accept": request.accept},
            body=request.body,
            auth_settings=["BearerToken"],
        )
        limits = (min(_CONNECT, idle).total_seconds(), idle.total_seconds())
        return self._api.call_api(*sent, _request_timeout=limits)


class _Streams:
    """The open streams of a connection, so that closing it wakes their readers up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Any] = set()
        self._ended = False

    @contextlib.contextmanager
    def reading(self, stream: Any) -> Iterator[Any]:
        with self._lock:
            self._open.add(stream)
            ended = self._ended
        try:
            if ended:
                raise UnavailableError("the connection to the API server is closed")
            yield stream
        finally:
            with self._lock:
                self._open.discard(stream)
            with contextlib.suppress(Exception):
                stream.close()  # a stream that was not read to its end cannot carry another call

    def end(self) -> None:
        with self._lock:
            self._ended = True
            streams = list(self._open)
        for stream in streams:
            with contextlib.suppress(Exception):
                stream.shutdown()


def _chunks(request: Request, stream: Any) -> Iterator[bytes]:
    chunks = stream.stream(CHUNK, decode_content=True)
    while True:
        try:
            chunk = next(chunks, None)
        except Exception as error:
            raise failure_of(request.ask, error) from error
        if chunk is None:
            return
        yield chunk


def _split(chunks: Iterator[bytes], request: Request) -> Iterator[bytes]:
    """Cut a stream into its lines. Raises ``UnavailableError`` when it ends within one, ``TooMuchError``."""
    parts: list[bytes] = []  # of the line that has not ended yet
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > request.limit:
            raise TooMuchError(f"{request.ask}: an event has more than {request.limit} bytes: nothing is concluded")
        for other in others:
            if (line := b"".join(parts)).strip():
                yield line
            parts, size = [other], len(other)
    if b"".join(parts).strip():
        raise UnavailableError(f"{request.ask}: the stream ended within an event")


def _answer(request: Request, response: Any) -> Answer:
    headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
    return Answer(response.status, headers, _body(request, response))


def _body(request: Request, response: Any) -> bytes:
    """Read an answer's body: all of it, or of a refusal its start. Raises ``TooMuchError`` beyond the limit."""
    refusal, stream = response.status >= HTTPStatus.BAD_REQUEST, response.response
    try:
        return gather(
            stream.stream(CHUNK, decode_content=True),
            limit=STATUS_BODY if refusal else request.limit,
            refusal=refusal,
            what=str(request.ask),
        )
    finally:
        # What was read to its end went back to its pool by itself; the rest is nobody's business.
        stream.close()


def _home_file() -> str:
    path = Path("~/.kube/config").expanduser()
    return str(path) if path.is_file() else ""


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """Gather what the client only logs: without a plugin's credentials it would go on, as nobody."""
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    listener = Listener(logging.ERROR)
    logging.getLogger().addHandler(listener)
    try:
        yield told
    finally:
        logging.getLogger().removeHandler(listener)


def _load(configuration: Any, files: str, context: str) -> ssl.SSLContext | None:
    """Read a kubeconfig, or what a pod has. Gives the certificates that stood in the kubeconfig itself, if any did."""
    from kubernetes import config as module

    config: Any = module  # its functions carry no types
    if not files:
        config.load_incluster_config(configuration)
        return None
    with private_folder() as folder:
        try:
            with _complaints() as complaints:
                config.load_kube_config(
                    files, context or None, configuration, persist_config=False, temp_file_path=str(folder)
                )
            if complaints and not (configuration.api_key or configuration.cert_file or configuration.username):
                raise InvalidError(f"the credential plugin gave nothing (see users): {'; '.join(complaints)}")
            _keep_private(configuration, folder)
            return _tls(configuration, folder)
        finally:
            config.kube_config._cleanup_temp_files()  # noqa: SLF001 (it would give out their names again, to others)


def _keep_private(configuration: Any, folder: Path) -> None:
    """Let nothing stay of the files that a credential plugin's answer becomes when the client asks it again."""
    refresh = configuration.refresh_api_key_hook
    if refresh is None:
        return

    def refresh_and_remove(refreshed: Any) -> None:
        try:
            refresh(refreshed)
        finally:
            if folder.exists():
                shutil.rmtree(folder, ignore_errors=True)

    configuration.refresh_api_key_hook = refresh_and_remove


def _tls(configuration: Any, folder: Path) -> ssl.SSLContext | None:
    """Read the client's files that are about to go; None where it has none in the folder.

    Files that the kubeconfig names are read by the client itself, for every connection, so that they may be renewed.
    """
    from urllib3.util.ssl_ import create_urllib3_context

    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    if not any(file and Path(file).is_relative_to(folder) for file in files):
        return None
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE)
    if configuration.ssl_ca_cert:
        context.load_verify_locations(configuration.ssl_ca_cert)
    else:
        context.load_default_certs()
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    configuration.ssl_ca_cert = configuration.cert_file = configuration.key_file = None
    return context
