"""The gate between obstore and the network: what goes through it, and by which way."""

import socket
import threading
from contextlib import closing as closed_after
from datetime import timedelta

import pytest

from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.adapters.cloud.egress import Gate, Passage
from reprieve.adapters.cloud.endpoints import Standing, read_url
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import UnavailableError
from tests.integration.cloud_http import closed_url, closing, stand_ins
from tests.integration.s3 import S3

KEYS = b"[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
PATIENCE = 60


def opened(url):
    config = {"region": "x", "s3Url": url, "s3ForcePathStyle": "true"}
    stores = CloudObjectStores(policy=stand_ins(url), timeout=timedelta(seconds=10))
    return stores.open(StorageLocation("x", "aws", "bucket", config=config), credential=KEYS)


class Proxy:
    """A proxy that hears one request for a tunnel, and answers it."""

    def __init__(self, answer):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self.asked = []
        self.url = f"http://us%20er:pass@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with self._listener:
            connection, _ = self._listener.accept()
            with connection:
                self.asked.append(connection.recv(65536))
                connection.sendall(self._answer)

    def close(self):
        self._listener.close()


@pytest.fixture
def environment(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", "reading k", id="let-through"),
        pytest.param(b"HTTP/1.1 403 Forbidden\r\n\r\n", "https://store.example: EOFError", id="refused"),
    ],
)
def test_the_environment_s_proxy_is_the_way_on(environment, answer, said):
    with closed_after(Proxy(answer)) as proxy:
        environment.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(UnavailableError, match=said):
            opened("https://store.example").read("k", limit=1)
    head = proxy.asked[0].decode()
    assert head.startswith("CONNECT store.example:443 HTTP/1.1\r\nHost: store.example:443\r\n")
    assert "Proxy-Authorization: Basic dXMgZXI6cGFzcw==" in head


@pytest.mark.parametrize("excluded", ["127.0.0.1", "nonsense/x, 127.0.0.0/8", "*"])
def test_what_the_environment_takes_out_of_its_proxy_is_reached_straight(environment, excluded):
    environment.setenv("HTTP_PROXY", closed_url())
    environment.setenv("NO_PROXY", excluded)
    with closing(S3()) as s3:
        s3.put("k", b"data")
        assert s3.open().read("k", limit=10) == b"data"


def test_a_proxy_that_cannot_be_used_is_named_by_what_it_is_for(environment):
    environment.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(UnavailableError, match=r"https://store\.example"):
        opened("https://store.example").read("k", limit=1)


def test_one_connection_carries_many_calls_with_and_without_a_body():
    with closing(S3()) as s3:
        store = s3.open()
        for number in range(20):
            store.write(f"k{number}", bytes(number * 10_000))
        assert [len(store.read(f"k{number}", limit=10**6)) for number in range(20)] == [n * 10_000 for n in range(20)]
        assert all("proxy" not in name.lower() for request in s3.requests for name in request.headers)
        assert {request.path.partition("/")[0] for request in s3.requests} == {""}, "as the store itself is asked"


def test_what_is_no_request_gets_no_answer():
    url = Gate().url(Passage(read_url("http://a").authority, Standing.LISTED))
    host, _, port = url.rpartition("@")[2].rpartition(":")
    for nonsense in (b"\r\n\r\n", b"a b\r\n\r\n", b"GET http://a/ HTTP/1.1 x y\r\n\r\n", b"x" * 200_000):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            try:
                connection.sendall(nonsense)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(100) == b""
            except (ConnectionResetError, BrokenPipeError):
                continue


def test_why_a_connection_was_not_made_is_forgotten_once_one_is():
    with closing(S3()) as s3:
        gate, passage = Gate(), Passage(read_url(s3.url).authority, Standing.UNLISTED)
        assert gate.said(passage) is None
        assert through(gate, passage, f"{s3.url}/x").startswith(b"HTTP/1.1 421")
        assert "which no location may reach" in gate.said(passage).why
        listed = Passage(passage.authority, Standing.LISTED)
        assert not through(gate, listed, f"{s3.url}/x").startswith(b"HTTP/1.1 421")
        assert gate.said(listed) is None


def through(gate, passage, target):
    """The beginning of what the gate answers to a GET."""
    import base64

    login, _, host = gate.url(passage).removeprefix("http://").rpartition("@")
    name, _, port = host.rpartition(":")
    proof = base64.b64encode(login.encode()).decode()
    with socket.create_connection((name, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {proof}\r\n\r\n".encode())
        return connection.recv(1000)
