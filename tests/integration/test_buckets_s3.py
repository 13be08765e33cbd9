"""S3 in particular: the number of calls, versions and locks, addressing, TLS, credentials, stores that resemble S3."""

import base64
import ipaddress
import json
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import obstore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import ContainerMissingError, DeniedError, InvalidError, UnavailableError
from reprieve.core.outcomes import Denied, Done, Locked, Retryable
from tests.integration.blob_server import Blobs
from tests.integration.buckets_http import IMPATIENCE, xml_error
from tests.integration.cloud_http import Answer, closed_url, closing, stand_ins
from tests.integration.contract_buckets import names
from tests.integration.gcs_server import Gcs
from tests.integration.s3 import S3


@pytest.fixture
def s3():
    with closing(S3()) as made:
        yield made


def open_at(config, *, bucket="backups", credential=S3.credential, **rest):
    location = StorageLocation("default", provider="aws", bucket=bucket, config=config, **rest)
    policy = stand_ins(*filter(is_url, (config.get("s3Url", ""), "https://backups.s3.example:8443")))
    return CloudObjectStores(policy=policy).open(location, credential=credential)


def is_url(text):
    return text.startswith("http")


@pytest.mark.parametrize(("keys", "calls"), [(1, 1), (1000, 1), (1001, 2), (2500, 3)])
def test_a_thousand_keys_are_one_call(s3, keys, calls):
    for key in names(keys):
        s3.put(key)
    outcomes = s3.open().delete(names(keys))
    assert set(outcomes.values()) == {Done()}
    assert [r.method for r in s3.requests] == ["POST"] * calls


@pytest.mark.parametrize(("keys", "calls"), [(1, 1), (256, 1), (257, 2), (2500, 10)])
def test_256_keys_are_one_call_on_azure(keys, calls):
    with closing(Blobs()) as blobs:
        for key in names(keys):
            blobs.put(key)
        outcomes = blobs.open().delete(names(keys))
        assert set(outcomes.values()) == {Done()}
        assert [r.method for r in blobs.requests] == ["POST"] * calls


def test_a_key_is_a_call_on_gcs_and_a_listing_follows():
    with closing(Gcs()) as gcs:
        for key in names(40):
            gcs.put(key)
        outcomes = gcs.open().delete(names(40))
        assert set(outcomes.values()) == {Done()}
        assert [r.method for r in gcs.requests if r.method != "GET"] == ["DELETE"] * 40
        assert gcs.requests[-1].method == "GET"


def test_a_listing_asks_once_a_page(s3):
    for key in names(1500):
        s3.put(key)
    assert len(list(s3.open().list("backups/many/"))) == 1500
    assert len(s3.requests) == 2


def test_opening_asks_nothing(s3):
    s3.open()
    assert s3.requests == []


def test_a_listing_is_read_page_by_page(s3):
    for key in names(2500):
        s3.put(key)
    listing = s3.open().list("backups/many/")
    assert next(listing).key == names(1)[0]
    assert len(s3.requests) < 3


def test_a_failed_bulk_delete_asks_again_only_for_what_is_left(s3):
    for key in names(20):
        s3.put(key)
    s3.lock(names()[3])
    s3.open().delete(names(20))
    assert [(r.method, "delete" in r.query) for r in s3.requests] == [("POST", True), ("GET", False), ("DELETE", False)]


def test_a_store_without_bulk_delete_is_asked_key_by_key(s3):
    """Some S3-compatible stores, and GCS through its S3 interface, answer DeleteObjects with NotImplemented."""
    for key in "abc":
        s3.put(key)
    s3.faults.next(xml_error(501, "NotImplemented", "not implemented."), when=lambda r: r.method == "POST", times=9)
    assert s3.open().delete(["a", "b", "c"]) == dict.fromkeys("abc", Done())
    assert s3.keys() == set()


def test_refused_as_a_whole_no_key_is_asked_for_again(s3):
    for key in names(50):
        s3.put(key)
    s3.faults.next(s3.answers["denied"], when=s3.deletes)
    outcomes = s3.open().delete(names(50))
    assert {type(o) for o in outcomes.values()} == {Denied}
    assert len(s3.writes()) == 1


# Versions and locks


def test_in_a_versioned_bucket_the_old_version_stays_behind_a_marker(s3):
    """What a delete leaves: the data, which costs money still, and which an administrator can bring back."""
    s3.backend.put_bucket_versioning("backups", "Enabled")
    store = s3.open()
    store.write("backups/a/velero-backup.json", b"{}")
    assert store.delete(["backups/a/velero-backup.json"]) == {"backups/a/velero-backup.json": Done()}
    assert list(store.list("backups/a/")) == []
    versions, _, markers = s3.backend.list_object_versions("backups")[:3]
    assert [v.value for v in versions] == [b"{}"]
    assert len(markers) == 1


def test_a_locked_object_hides_behind_a_marker_too(s3):
    """S3 does not refuse a plain DELETE of an object under retention: it puts a marker over it, the version stays."""
    s3.backend.create_bucket("locked", "us-east-1", {"ObjectLockEnabled": True})
    s3.backend.buckets["locked"].object_lock_enabled = True
    s3.backend.put_bucket_versioning("locked", "Enabled")
    s3.backend.put_object("locked", "k", b"data", lock_mode="COMPLIANCE", lock_until="2099-01-01T00:00:00Z")
    store = s3.open("locked")
    assert store.delete(["k"]) == {"k": Done()}
    assert list(store.list("")) == []
    versions = s3.backend.list_object_versions("locked")[0]
    assert [(v.value, v.lock_mode) for v in versions] == [(b"data", "COMPLIANCE")]


def test_a_store_that_does_refuse_a_locked_key_is_believed(s3):
    s3.put("k")
    s3.lock("k")
    outcome = s3.open().delete(["k"])["k"]
    assert isinstance(outcome, Locked)
    assert outcome.until is None
    assert s3.keys() == {"k"}


def test_gcs_tells_until_when():
    with closing(Gcs()) as gcs:
        gcs.put("k")
        gcs.lock("k")
        outcome = gcs.open().delete(["k"])["k"]
    assert isinstance(outcome, Locked)
    assert outcome.until == datetime(2031, 5, 1, tzinfo=UTC)


# Where requests go


def test_the_location_s_url_wins_over_the_environment(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", closed_url())
    monkeypatch.setenv("AWS_ENDPOINT_URL", closed_url())
    s3.put("k")
    assert s3.open().read("k", limit=1) == b"x"


def test_without_a_url_of_its_own_the_environment_s_is_asked(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
    s3.put("k")
    store = open_at({"region": "us-east-1", "s3ForcePathStyle": "true"})
    assert store.read("k", limit=1) == b"x"


def test_a_region_that_is_another_s_is_invalid(s3):
    body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting 'eu-west-1'</Message></Error>"
    s3.faults.next(Answer(400, body.encode()))
    with pytest.raises(InvalidError, match="expecting 'eu-west-1'"):
        s3.open().read("k", limit=1)


def test_a_redirect_that_leads_nowhere_is_invalid(s3):
    s3.faults.next(xml_error(301, "PermanentRedirect", "use another endpoint"))
    with pytest.raises(InvalidError, match="region"):
        s3.open().read("k", limit=1)


def test_a_host_that_does_not_resolve_is_unavailable():
    store = open_at({"s3Url": "http://no.such.host.invalid", "s3ForcePathStyle": "true"})
    with pytest.raises(UnavailableError):
        store.read("k", limit=1)


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A CA of our own (``ca``), and a server's certificate and key that it vouches for (``server``)."""
    folder = tmp_path_factory.mktemp("tls")
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    ca = issue("ca", ca_key.public_key(), ca_key, x509.BasicConstraints(ca=True, path_length=None))
    server = issue("server", server_key.public_key(), ca_key, names)
    (folder / "ca").write_bytes(ca.public_bytes(Encoding.PEM))
    key = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server").write_bytes(server.public_bytes(Encoding.PEM) + key)
    return folder


def issue(name, key, issuer_key, extension):
    def called(common_name):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])

    begins = datetime.now(UTC) - timedelta(hours=1)
    builder = x509.CertificateBuilder(called("ca"), called(name), key, x509.random_serial_number())
    builder = builder.not_valid_before(begins).not_valid_after(begins + timedelta(days=2))
    return builder.add_extension(extension, critical=False).sign(issuer_key, SHA256())


@pytest.fixture
def tls(s3, certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server")
    s3.server._http.socket = context.wrap_socket(s3.server._http.socket, server_side=True)
    s3.server._http.handle_error = lambda *_: None  # a client that does not trust us hangs up
    s3.url = s3.url.replace("http://", "https://")
    s3.put("k")
    return s3


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(tls):
    with pytest.raises(UnavailableError, match="UnknownIssuer"):
        open_at(tls.config()).read("k", limit=1)


@pytest.mark.parametrize("written", ["pem", "base64"])
def test_the_location_s_ca_certificate_is_trusted(tls, certificates, written):
    pem = (certificates / "ca").read_bytes()
    ca_cert = pem.decode() if written == "pem" else base64.b64encode(pem).decode()
    assert open_at(tls.config(), ca_cert=ca_cert).read("k", limit=1) == b"x"


def test_unchecked_only_when_asked_for(tls):
    assert open_at({**tls.config(), "insecureSkipTLSVerify": "true"}).read("k", limit=1) == b"x"


# Credentials


def test_the_profile_of_the_secret_signs(s3):
    s3.put("k")
    credential = b"[other]\naws_access_key_id = AKIOTHER\naws_secret_access_key = b\naws_session_token = t0ken\n"
    open_at({**s3.config(), "profile": "other"}, credential=credential).read("k", limit=1)
    sent = {name.lower(): value for name, value in s3.requests[-1].headers.items()}
    assert "Credential=AKIOTHER/" in sent["authorization"]
    assert sent["x-amz-security-token"] == "t0ken"


def test_without_a_secret_boto3_s_chain_signs(s3, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKICHAIN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    s3.put("k")
    open_at(s3.config(), credential=None).read("k", limit=1)
    assert "Credential=AKICHAIN/" in {n.lower(): v for n, v in s3.requests[-1].headers.items()}["authorization"]


def test_no_credential_at_all_is_denied_and_says_where_was_looked(s3, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    store = open_at(s3.config(), credential=None)
    with pytest.raises(DeniedError, match="AWS credentials: none found"):
        store.read("k", limit=1)
    assert s3.requests == []


# Opening


@pytest.mark.parametrize("provider", ["local", "memory", "example.com/other", ""])
def test_a_provider_without_an_adapter_is_named(provider):
    location = StorageLocation("default", provider=provider, bucket="b")
    with pytest.raises(ContainerMissingError, match="storage location default: no adapter for provider"):
        CloudObjectStores().open(location)


@pytest.mark.parametrize(
    ("provider", "config", "credential"),
    [
        pytest.param("aws", {"s3Url": "minio"}, S3.credential, id="aws-url"),
        pytest.param("aws", {"s3ForcePathStyle": "maybe"}, S3.credential, id="aws-flag"),
        pytest.param("aws", {}, b"", id="aws-empty-secret"),
        pytest.param("gcp", {}, b"", id="gcp-empty-secret"),
        pytest.param(
            "gcp",
            {},
            json.dumps(
                {"type": "service_account", "client_email": "a", "private_key": "no key", "private_key_id": "1"}
            ).encode(),
            id="gcp-key-that-is-none",
        ),
        pytest.param("azure", {}, b"", id="azure-no-account"),
        pytest.param(
            "azure", {"storageAccount": "velero", "storageAccountKeyEnvVar": "K"}, b"K=not base64!", id="azure-key"
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_invalid(provider, config, credential):
    location = StorageLocation("default", provider=provider, bucket="backups", config=config)
    with pytest.raises(InvalidError, match="storage location default"):
        CloudObjectStores().open(location, credential=credential)


def test_a_bucket_that_hangs_keeps_one_caller_and_no_other():
    """Two locations in one bucket, as clusters that share it have: after one time-out neither is asked any more."""
    with closing(Gcs()) as gcs:
        stores = CloudObjectStores(timeout=IMPATIENCE, hung=IMPATIENCE / 10, policy=stand_ins(gcs.url))

        def opened(name, prefix):
            location = StorageLocation(
                name, provider=gcs.provider, bucket="backups", prefix=prefix, config=gcs.config()
            )
            return stores.open(location, credential=gcs.credential)

        gcs.faults.hanging.set()
        with pytest.raises(UnavailableError):
            opened("east", "c1").read("k", limit=1)
        asked = len(gcs.requests)
        with pytest.raises(UnavailableError, match="bucket backups/c2: reading k: not asked"):
            opened("west", "c2").read("k", limit=1)
        assert {type(outcome) for outcome in opened("east", "c1").delete(["a", "b"]).values()} == {Retryable}
        assert len(gcs.requests) == asked


def test_memory_keeps_its_buckets_apart():
    stores = CloudObjectStores(memory=["a", "b"])
    opened = [stores.open(StorageLocation("x", provider="memory", bucket=b)) for b in ("a", "b")]
    opened[0].write("k", b"1")
    assert [[i.key for i in store.list("")] for store in opened] == [["k"], []]


def test_a_folder_that_appears_later_is_found(tmp_path):
    store = CloudObjectStores(folder=tmp_path).open(StorageLocation("x", provider="local", bucket="late"))
    with pytest.raises(ContainerMissingError):
        store.read("k", limit=1)
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "k").write_bytes(b"1")
    assert store.read("k", limit=1) == b"1"


def test_a_connection_that_is_cut_is_unavailable(s3):
    """The announced bytes never come: what was read so far is no file."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        store = open_at({**s3.config(), "s3Url": f"http://127.0.0.1:{listener.getsockname()[1]}"})

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nLast-Modified: Mon, 30 Nov 2026 12:00:00 GMT\r\n\r\n"
                connection.sendall(head + b"x" * 10)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(UnavailableError):
            store.read("k", limit=1000)
        thread.join()


@pytest.mark.parametrize(
    ("bucket", "config", "expected"),
    [
        pytest.param("backups", {}, "https://backups.s3.eu-west-1.amazonaws.com/k", id="aws"),
        pytest.param("a.b", {}, "https://s3.eu-west-1.amazonaws.com/a.b/k", id="aws-with-a-dot"),
        pytest.param(
            "backups", {"s3ForcePathStyle": "true"}, "https://s3.eu-west-1.amazonaws.com/backups/k", id="aws-path-style"
        ),
        pytest.param(
            "backups", {"region": "cn-north-1"}, "https://backups.s3.cn-north-1.amazonaws.com.cn/k", id="aws-in-china"
        ),
        pytest.param(
            "backups", {"s3Url": "https://s3.example:8443/"}, "https://backups.s3.example:8443/k", id="another"
        ),
        pytest.param(
            "backups",
            {"s3Url": "http://minio:9000", "s3ForcePathStyle": "true"},
            "http://minio:9000/backups/k",
            id="another-path-style",
        ),
        pytest.param(
            "arn:aws:s3:eu-west-1:123456789012:accesspoint/velero",
            {},
            "https://velero-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/k",
            id="access-point",
        ),
    ],
)
def test_requests_go_where_the_location_says(bucket, config, expected, monkeypatch):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    store = open_at({"region": "eu-west-1", **config}, bucket=bucket)
    url = obstore.sign(store.store._backend.store, "GET", "k", timedelta(minutes=1))
    assert url.partition("?")[0] == expected
