"""Certificates and keys of a kubeconfig are in files for a moment only, in a folder that is ours alone.

The Kubernetes client wrote them to the folder of everybody's temporary files and removed them when the interpreter
ended in good order: a controller that loses its lease does not, and neither does one that is killed.
"""

import base64
import ipaddress
import json
import os
import ssl
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from reprieve.adapters.k8s import private
from reprieve.adapters.k8s.client import connect

NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "reprieve")])


def certificate():
    """A certificate for loopback that signs itself, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(NAME, NAME, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return made.public_bytes(serialization.Encoding.PEM), pem


class Version(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        body = json.dumps({"gitVersion": "v1.31.0"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def kubeconfig(tmp_path):
    """A kubeconfig with a certificate and a key in it, and the server that wants to see them."""
    cert, key = certificate()
    (tmp_path / "server.pem").write_bytes(cert + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    context.load_verify_locations(cadata=cert.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    server = ThreadingHTTPServer(("127.0.0.1", 0), Version)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    data = {"client-certificate-data": cert, "client-key-data": key}
    user = {name: base64.b64encode(pem).decode() for name, pem in data.items()}
    url = f"https://127.0.0.1:{server.server_port}"
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(cert).decode()}
    file = tmp_path / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
    }
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    yield file
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder of everybody's temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def modes(folder):
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in sorted(folder.rglob("*"))}


def test_a_key_of_a_kubeconfig_is_in_a_file_for_a_moment_and_for_us_alone(kubeconfig, temporary, monkeypatch):
    seen = {}
    monkeypatch.setattr("reprieve.adapters.k8s.client._keep_private", lambda *_: seen.update(modes(temporary)))
    for _ in range(2):  # the client remembers the names of its files
        cluster = connect(kubeconfig=kubeconfig)
        assert list(temporary.iterdir()) == []
        assert cluster.version() == "v1.31.0"
        cluster.close()
    files = {mode for name, mode in seen.items() if "/" in name}
    folders = {mode for name, mode in seen.items() if "/" not in name}

    assert (folders, files) == ({0o700}, {0o600})


def test_a_kubeconfig_that_cannot_be_used_leaves_nothing(kubeconfig, temporary):
    broken = kubeconfig.read_text().replace("client-key-data: ", "client-key-data: QUJD")
    kubeconfig.write_text(broken)
    with pytest.raises(Exception, match="no cluster from"):
        connect(kubeconfig=kubeconfig)

    assert list(temporary.iterdir()) == []


CHILD = """
import os, signal, sys, tempfile
from reprieve.adapters.k8s import client
from reprieve.entrypoints.controller.serve import _exit_at_once
if sys.argv[2] == "killed":
    client._keep_private = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cluster = client.connect(kubeconfig=sys.argv[1])
assert cluster.version() == "v1.31.0"
_exit_at_once()
"""


def ended(kubeconfig, temporary, how):
    environment = {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(kubeconfig), how], env=environment, check=False, timeout=120
    ).returncode


def test_a_controller_that_loses_its_lease_leaves_nothing(kubeconfig, temporary):
    """It ends at once then, and no handler of an orderly end runs."""
    assert ended(kubeconfig, temporary, "lost") == 1
    assert list(temporary.iterdir()) == []


def test_what_one_that_was_killed_left_is_removed_by_the_next(kubeconfig, temporary):
    assert ended(kubeconfig, temporary, "killed") < 0
    assert [mode for name, mode in modes(temporary).items() if "/" not in name] == [0o700]

    connect(kubeconfig=kubeconfig).close()
    assert list(temporary.iterdir()) == []


def test_what_is_not_left_over_and_not_ours_stays(temporary):
    """Somebody who may write there makes folders that look like ours."""
    other = temporary / "elsewhere"
    other.mkdir()
    (other / "file").write_text("x", encoding="utf-8")
    (temporary / f"{private.PREFIX}link").symlink_to(other)
    (temporary / f"{private.PREFIX}open").mkdir(mode=0o755)
    (temporary / f"{private.PREFIX}file").write_text("x", encoding="utf-8")
    with private.private_folder() as first, private.private_folder() as second:
        assert first.is_dir()
        assert second.is_dir()

    left = {path.name for path in temporary.iterdir()}
    assert left == {"elsewhere", *(f"{private.PREFIX}{name}" for name in ("link", "open", "file"))}
    assert (other / "file").exists()
