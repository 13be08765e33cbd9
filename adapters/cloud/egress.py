"""The only way out of obstore: a proxy on loopback, through which a store reaches its own endpoint and nothing else.

obstore follows redirects and resolves names by itself, and has no option against either. So its stores are opened with
a proxy of ours. What a store asks for in the name of its own endpoint goes through, unread where it is TLS; where a
redirect would lead, it does not. Names are resolved here, each address is looked at, and the connection is made to the
very address that was looked at, so that a name cannot mean two things.

A proxy that the environment names (``HTTPS_PROXY``, ``NO_PROXY``) is used for the way on: it is the operator's, and
then it is the one that resolves names.

What comes back is counted: obstore reads answers whole, an error page many times over, and gathers every page of a
listing before it gives any of them away. An answer or a connection that grows beyond its limit is cut off, and of a
refusal that can be read here, where there is no TLS, no more is passed on than an error document can have.

Guarantee: without a passage that this process issued nothing passes, so that nobody else on the machine gets anything
from it; a passage is good for one scheme, host and port. Not guaranteed: that a redirect to the endpoint itself is not
followed; it leads nowhere else.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import hashlib
import hmac
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
import urllib.request
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from attrs import frozen

from reprieve.adapters.cloud.endpoints import Authority, Standing, may_connect
from reprieve.adapters.sizes import BUCKET_ANSWER, BUCKET_CONNECTION, ERROR_BODY

CONNECT = timedelta(seconds=5)
HEAD = 64 * 1024
CHUNK = 64 * 1024
REMEMBERED = 256
REDIRECT_REFUSED = "RedirectRefused"
ADDRESS_REFUSED = "AddressRefused"
UNREACHABLE = "Unreachable"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@frozen
class Passage:
    """What one store may connect to, and why."""

    authority: Authority
    standing: Standing


@frozen
class Unconnected:
    """Why a connection was not made: a code of ours, and a sentence."""

    code: str
    why: str


class _Refused(Exception):
    """A connection that is not made."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.told = Unconnected(code, why)


@frozen
class _Head:
    """The head of a request: method, target, and the other lines as they are."""

    method: str
    target: str
    lines: tuple[bytes, ...]

    def value(self, name: str) -> str:
        """A header's value, empty where it is absent."""
        start = name.encode() + b":"
        found = (line[len(start) :] for line in self.lines if line.lower().startswith(start))
        return next(found, b"").strip().decode("latin-1")

    def to_origin(self, target: str) -> bytes:
        """The head as the endpoint itself gets it."""
        kept = [line for line in self.lines if not line.lower().startswith(b"proxy-")]
        return b"\r\n".join([f"{self.method} {target} HTTP/1.1".encode("latin-1"), *kept, b"", b""])


class Gate:
    """The proxy. It begins to listen when the first passage is asked for, in a thread of its own."""

    def __init__(self, *, resolve: Callable[..., Awaitable[list[tuple[object, ...]]]] | None = None) -> None:
        """Make a key of this process' own. ``resolve`` replaces the event loop's ``getaddrinfo``."""
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        self._address = ""
        self._resolve = resolve
        self._said: OrderedDict[Passage, Unconnected] = OrderedDict()

    def url(self, passage: Passage) -> str:
        """The address of the proxy for a store with that passage."""
        with self._lock:
            if not self._address:
                self._address = self._listen()
        user = _written(passage)
        return f"http://{user}:{self._sign(user)}@{self._address}"

    def said(self, passage: Passage) -> Unconnected | None:
        """Why the last connection with a passage was not made; None where it was."""
        with self._lock:
            return self._said.get(passage)

    def _note(self, passage: Passage, told: Unconnected | None) -> None:
        with self._lock:
            self._said.pop(passage, None)
            if told:
                self._said[passage] = told
            while len(self._said) > REMEMBERED:
                self._said.popitem(last=False)

    def _sign(self, user: str) -> str:
        return hmac.new(self._key, user.encode(), hashlib.sha256).hexdigest()

    def _listen(self) -> str:
        loop = asyncio.new_event_loop()
        listener = _loopback()

        def run() -> None:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(asyncio.start_server(self._serve, sock=listener, limit=HEAD))
            loop.run_forever()

        threading.Thread(target=run, name="egress", daemon=True).start()
        host, port = listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Exception):  # hung up, no request, no passage: the connection ends
            await self._guide(reader, writer)
        writer.close()

    async def _guide(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _read_head(reader)
        passage = self._passage(head)
        if passage is None:  # after a redirect to another host obstore shows none, nor can anybody else
            await _refuse(writer, head, Unconnected(REDIRECT_REFUSED, f"a redirect{_elsewhere(head)} is not followed"))
            return
        try:
            _check_target(head, passage)
            upstream = await self._connect(passage)
        except _Refused as refused:
            self._note(passage, refused.told)
            await _refuse(writer, head, refused.told)
            return
        self._note(passage, None)
        try:
            await _tunnel((reader, writer), upstream) if head.method == "CONNECT" else await _forward(
                head, passage, (reader, writer), upstream
            )
        finally:
            upstream[1].close()

    def _passage(self, head: _Head) -> Passage | None:
        """The passage that a request shows, None where it is not one of ours."""
        try:
            shown = base64.b64decode(head.value("proxy-authorization").removeprefix("Basic "), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        user, _, password = shown.partition(":")
        if not hmac.compare_digest(self._sign(user).encode(), password.encode()):
            return None
        return _read_passage(user)

    async def _connect(self, passage: Passage) -> Streams:
        """Connect to a passage's endpoint, through the environment's proxy where it names one."""
        authority = passage.authority
        try:
            async with asyncio.timeout(CONNECT.total_seconds()):
                proxy = _environment_proxy(authority)
                return await (_through(proxy, authority) if proxy else self._straight(passage))
        except TimeoutError as error:
            raise _Refused(UNREACHABLE, f"{authority}: no connection within {CONNECT.total_seconds():.0f} s") from error
        except (OSError, EOFError, ValueError) as error:
            raise _Refused(UNREACHABLE, f"{authority}: {_words(error)}") from error

    async def _straight(self, passage: Passage) -> Streams:
        authority = passage.authority
        resolve = self._resolve or asyncio.get_running_loop().getaddrinfo
        found = await resolve(authority.host, authority.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))  # type: ignore[index]
        allowed = [each for each in addresses if may_connect(each, passage.standing)]
        if addresses and not allowed:
            raise _Refused(ADDRESS_REFUSED, f"{authority} resolves to {addresses[0]}, which no location may reach")
        last: OSError = OSError("the name has no address")
        for each in allowed:
            try:  # an address that nobody answers at leaves time for the next one
                async with asyncio.timeout(CONNECT.total_seconds() / len(allowed)):
                    return await asyncio.open_connection(each, authority.port, limit=HEAD)
            except OSError as error:
                last = error
        raise last


@functools.cache
def gate() -> Gate:
    """The gate of this process."""
    return Gate()


def _loopback() -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", 0))
    except OSError:  # a machine without IPv4
        return socket.create_server(("::1", 0), family=socket.AF_INET6)


def _written(passage: Passage) -> str:
    authority = passage.authority
    parts = [authority.scheme, authority.host, authority.port, passage.standing.name]
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def _read_passage(user: str) -> Passage:
    scheme, host, port, standing = json.loads(base64.urlsafe_b64decode(user + "=" * (-len(user) % 4)))
    return Passage(Authority(scheme, host, port), Standing[standing])


async def _read_head(reader: asyncio.StreamReader) -> _Head:
    """Raises ``EOFError`` at the end, ``ValueError`` for what is no request."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    method, target, _ = first.decode("latin-1").split(" ")
    return _Head(method, target, tuple(lines))


def _check_target(head: _Head, passage: Passage) -> None:
    """Refuse what is not the passage's endpoint: only a redirect leads there."""
    authority = passage.authority
    if head.method == "CONNECT":
        ours = authority.scheme == "https" and head.target == _host_and_port(authority)
    else:
        ours = authority.scheme == "http" and _below(head.target, authority) is not None
    if not ours:
        raise _Refused(REDIRECT_REFUSED, f"{authority} answered with a redirect{_elsewhere(head)}; it is not followed")


def _host_and_port(authority: Authority) -> str:
    return f"[{authority.host}]:{authority.port}" if ":" in authority.host else f"{authority.host}:{authority.port}"


def _below(target: str, authority: Authority) -> str | None:
    """A request's target without its scheme and host, None where they are not the authority's."""
    for netloc in {authority.netloc, _host_and_port(authority)}:
        rest = target.removeprefix(f"http://{netloc}")
        if rest != target and rest[:1] in {"", "/", "?"}:
            return rest if rest.startswith("/") else f"/{rest}"
    return None


_PLAIN = re.compile(r"(?:http://)?([a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?(?=[/?]|\Z)", re.ASCII)


def _elsewhere(head: _Head) -> str:
    found = _PLAIN.match(head.target)
    return f" to {found[0]}" if found else ""


async def _refuse(writer: asyncio.StreamWriter, head: _Head, told: Unconnected) -> None:
    """Answer in the words of object storage; who asked for a tunnel to no avail gets a status, or nothing."""
    if head.method == "CONNECT":
        if told.code != UNREACHABLE:
            writer.write(b"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\n\r\n")
        return
    status = HTTPStatus.BAD_GATEWAY if told.code == UNREACHABLE else HTTPStatus.MISDIRECTED_REQUEST
    body = f"<Error><Code>{told.code}</Code><Message>{told.why}</Message></Error>".encode("ascii", "replace")
    start = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/xml\r\n"
    writer.write(f"{start}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()


async def _tunnel(client: Streams, upstream: Streams) -> None:
    client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    answers = _Answers()
    await _until_one_ends(_pump(client[0], upstream[1], answers.asked), _answer(upstream[0], client[1], answers))


async def _forward(head: _Head, passage: Passage, client: Streams, upstream: Streams) -> None:
    answers = _Answers(read=True)
    requests = _requests(head, passage, client[0], upstream[1], answers)
    await _until_one_ends(requests, _answer(upstream[0], client[1], answers))


class _Answers:
    """What has come back on a connection. One request is under way at a time: stores speak HTTP/1.1 here."""

    def __init__(self, *, read: bool = False) -> None:
        """``read``: the answers are no TLS, so their status can be seen."""
        self._read = read
        self._all = self._this = 0
        self._limit = BUCKET_ANSWER

    def asked(self) -> None:
        """Another request is sent, or more of one: what comes from now on is the answer to it."""
        self._this, self._limit = 0, BUCKET_ANSWER

    def passes(self, chunk: bytes) -> bytes:
        """What of a piece of an answer may go on: less than all of it is the end of the connection."""
        if self._read and not self._this and not re.match(rb"HTTP/1\.[01] (1\d\d|2\d\d|304)\b", chunk):
            self._limit = HEAD + ERROR_BODY
        room = min(self._limit - self._this, BUCKET_CONNECTION - self._all)
        self._this += len(chunk)
        self._all += len(chunk)
        return chunk[: max(room, 0)]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: _Answers) -> None:
    while chunk := await reader.read(CHUNK):
        passed = answers.passes(chunk)
        writer.write(passed)
        await writer.drain()
        if len(passed) < len(chunk):
            return


async def _requests(
    head: _Head, passage: Passage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: _Answers
) -> None:
    """Pass on one request after the other, as the endpoint itself would get them."""
    while True:
        target = _below(head.target, passage.authority)
        if target is None:
            return None  # another endpoint's request belongs into a connection of its own
        answers.asked()
        writer.write(head.to_origin(target))
        if head.value("transfer-encoding"):
            return await _pump(reader, writer)
        left = int(head.value("content-length") or 0)
        while left > 0:
            chunk = await reader.read(min(left, CHUNK))
            if not chunk:
                return None
            left -= len(chunk)
            writer.write(chunk)
            await writer.drain()
        await writer.drain()
        head = await _read_head(reader)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: Callable[[], None] = lambda: None
) -> None:
    while chunk := await reader.read(CHUNK):
        passing()
        writer.write(chunk)
        await writer.drain()


async def _until_one_ends(*ways: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _words(error: Exception) -> str:
    """What went wrong with a connection, in the system's words."""
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number else type(error).__name__


# The environment's proxy


def _environment_proxy(authority: Authority) -> str:
    """The proxy that the environment names for an endpoint, empty where it names none."""
    library: Any = urllib.request  # what is asked for is not in its types
    proxies = library.getproxies_environment()
    proxy: str = proxies.get(authority.scheme) or proxies.get("all") or ""
    if not proxy or library.proxy_bypass_environment(_host_and_port(authority), proxies):
        return ""
    return "" if _in_networks(authority, proxies.get("no", "")) else proxy


def _in_networks(authority: Authority, excluded: str) -> bool:
    """Whether an address is in one of the networks of a ``NO_PROXY``."""
    address = authority.address
    if address is None:
        return False
    for each in excluded.split(","):
        with contextlib.suppress(ValueError):
            if address in ipaddress.ip_network(each.strip(), strict=False):
                return True
    return False


async def _through(proxy: str, authority: Authority) -> Streams:
    """Connect by way of a proxy: all the way for TLS, to the proxy itself else."""
    url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    context = ssl.create_default_context() if url.scheme == "https" else None
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError
    reader, writer = await asyncio.open_connection(
        url.hostname, url.port or (443 if context else 80), ssl=context, limit=HEAD
    )
    login = f"{unquote(url.username or '')}:{unquote(url.password or '')}".encode()
    proof = f"Proxy-Authorization: Basic {base64.b64encode(login).decode()}\r\n" if url.username else ""
    target = _host_and_port(authority)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{proof}\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.[01] 200\b", answer):
        writer.close()
        raise EOFError
    return reader, writer
