"""A native library's panic is an answer that nobody understands, and ends no worker.

obstore panics over a line's end in a region or a token: beside ``Exception``, where no handler of a worker looks. One
location after the other took a worker away until none was left, while the probes stayed green.
"""

import obstore
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import S3Store

from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import ReprieveError
from reprieve.core.outcomes import Unknown
from tests.integration.blob_server import Blobs
from tests.integration.cloud_http import closed_url, closing, stand_ins
from tests.security.at_work import running

KEYS = "aws_access_key_id = A\naws_secret_access_key = B\n"
FILE = f"[default]\n{KEYS}"


def panicking():
    """An S3 store that obstore panics over: nothing of ours stands before it."""
    config = {"region": "us\neast", "access_key_id": "a", "secret_access_key": "b", "endpoint": closed_url()}
    return S3Store("bucket", config=config, client_options={"allow_http": True}, retry_config={"max_retries": 0})


def test_obstore_does_panic():
    """If it does not any more, the tests below show nothing."""
    with pytest.raises(BaseException, match="InvalidHeaderValue") as caught:
        obstore.get(panicking(), "key")

    assert not isinstance(caught.value, Exception)


def test_what_would_panic_is_refused_and_the_workers_go_on(strangers, monkeypatch):
    """Fifteen such locations and four workers; the honest backup is asked for last."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "two\nlines")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "B")
    for mark in "\n\r\x00\x7f\x1b\u2028\u00e9":
        strangers.attack("aws", FILE, {"region": f"us{mark}east-1"})
    for mark in "\r\x0b\x1b":
        strangers.attack("aws", f"{FILE}aws_session_token = a{mark}b\n")
    strangers.attack("aws", FILE.replace("= A", "= \u00c4"))
    strangers.attack("aws", FILE, {"kmsKeyId": "a\nb"})
    strangers.attack("aws", FILE, {"profile": "a\nb"})
    strangers.attack("azure", "AZURE_TENANT_ID=a\x0bb\nAZURE_CLIENT_ID=c\nAZURE_CLIENT_SECRET=s\n")
    strangers.attack("gcp", '{"type": "service_account"}', {"project": "p\n1", "storeEndpointURI": "http://a\nb"})
    with running(strangers, "deletion") as cluster:
        assert cluster.until(strangers.served)

    assert {*strangers.names} <= {*strangers.listed("Backup")}
    assert {*strangers.run()} == {*strangers.names}


def test_a_panic_that_nobody_foresaw_is_unknown_and_the_workers_go_on(strangers, monkeypatch):
    """Every call for a stranger's files panics inside of obstore; nothing counts as gone."""
    names = [f"stranger-{number}" for number in range(6)]
    for name in names:
        strangers.backup(name, location="")
    broken, get = panicking(), obstore.get

    def or_panic(call):
        def asked(store, key=None, *more, **options):
            return get(broken, "key") if "stranger" in str(key) else call(store, key, *more, **options)

        return asked

    for operation in ("get", "list", "list_with_delimiter", "delete"):
        monkeypatch.setattr(obstore, operation, or_panic(getattr(obstore, operation)))
    with running(strangers, "deletion") as cluster:
        assert cluster.until(strangers.served)
    report = strangers.report()

    assert {*names} <= {*strangers.listed("Backup")}
    told = {each.ref.name: each.message for each in report.decisions}
    assert all("panicked" in told[name] or "NativePanicError" in told[name] for name in names)
    assert {f"backups/{name}/velero-backup.json" for name in names} <= strangers.files.keys()


@pytest.mark.parametrize("operation", ["delete", "list", "list_directories", "read", "write"])
def test_every_call_tells_a_panic_as_unknown(operation, monkeypatch):
    with closing(Blobs()) as files:
        store = files.open()
        store.store._backend = type(store.store._backend)(panicking(), panicking(), batch=0)
        match operation:
            case "delete":
                outcomes = store.delete(["a", "b"]).values()
                assert all(isinstance(outcome, Unknown) for outcome in outcomes)
                assert all("NativePanicError" in outcome.message for outcome in outcomes)
                return
            case "list":
                call = lambda: list(store.list("a"))  # noqa: E731
            case "list_directories":
                call = lambda: list(store.list_directories("a"))  # noqa: E731
            case "read":
                call = lambda: store.read("a", limit=1)  # noqa: E731
            case _:
                call = lambda: store.write("a", b"x")  # noqa: E731
        with pytest.raises(ReprieveError, match="NativePanicError"):
            call()


ODD = st.text(st.sampled_from("a1-./:@%\\ \t\n\r\x00\x1b\x7f\u00e9\u2028\ud800"), max_size=6)
KEYS_OF_LOCATIONS = (
    *("region", "s3Url", "profile", "kmsKeyId", "serverSideEncryption", "storeEndpointURI", "universeDomain"),
    *("storageAccount", "storageAccountURI", "storageAccountKeyEnvVar", "s3ForcePathStyle"),
)
CONFIG = st.dictionaries(st.sampled_from(KEYS_OF_LOCATIONS), ODD, max_size=3)
URL = closed_url()
GIVEN = {
    "aws": ({"region": "us-east-1", "s3Url": URL, "s3ForcePathStyle": "true"}, FILE.encode()),
    "gcp": ({"storeEndpointURI": URL}, b'{"type": "service_account", "client_email": "a@b", "disable_oauth": true}'),
    "azure": ({"storageAccount": "abc", "storageAccountURI": URL, "storageAccountKeyEnvVar": "K"}, b"K=a2V5"),
}


@given(provider=st.sampled_from(sorted(GIVEN)), config=CONFIG, bucket=st.just("bucket") | ODD, prefix=st.just("") | ODD)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_word_of_a_location_ends_in_anything_but_an_error_of_ours(provider, config, bucket, prefix):
    base, secret = GIVEN[provider]
    location = StorageLocation("x", provider, bucket, prefix, config={**base, **config})
    with pytest.raises(ReprieveError):
        CloudObjectStores(policy=stand_ins(URL)).open(location, credential=secret).read("key", limit=1)
