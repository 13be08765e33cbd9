"""What is read out of a Google credential in a Secret, and what is refused, with no value of it in any error."""

import json

import pytest

from reprieve.adapters.cloud.gcp import SCOPE, credentials_from
from reprieve.adapters.cloud.secret_gcp import Federation, ServiceAccount, User, read_key
from reprieve.core.errors import InvalidError

PEM = "-----BEGIN PRIVATE KEY-----\nMIIE+/=\n-----END PRIVATE KEY-----\n"
ACCOUNT = {
    "type": "service_account",
    "project_id": "backups-1234",
    "private_key_id": "1",
    "private_key": PEM,
    "client_email": "velero@backups-1234.iam.gserviceaccount.com",
    "client_id": "1",
    "auth_uri": "https://accounts.google.com/o/oauth2/auth",
    "token_uri": "https://oauth2.googleapis.com/token",
    "auth_provider_x509_cert_url": "https://www.googleapis.com/oauth2/v1/certs",
    "client_x509_cert_url": "https://www.googleapis.com/robot/v1/metadata/x509/velero%40backups-1234.iam.gserviceaccount.com",
    "universe_domain": "googleapis.com",
}
USER = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}
TOKEN = "/var/run/secrets/tokens/gcp-ksa/token"
FEDERATION = {
    "type": "external_account",
    "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "token_url": "https://sts.googleapis.com/v1/token",
    "credential_source": {"file": TOKEN},
}
FOREIGN = ["http://oauth2.googleapis.com/token", "https://evil.example/token", "https://oauth2.googleapis.com@evil/x"]


def read(document):
    return read_key(json.dumps(document).encode())


def test_a_key_as_google_writes_it():
    assert read(ACCOUNT) == ServiceAccount(ACCOUNT["client_email"], PEM, "1", "backups-1234")


def test_a_key_for_an_emulator_signs_nothing():
    emulated = {"type": "service_account", "client_email": "a@b", "private_key": "-", "private_key_id": "1"}

    assert read({**emulated, "disable_oauth": True}) == ServiceAccount("a@b", "", "1", signs=False)


def test_a_user_s_login():
    said = {"account": "", "universe_domain": "googleapis.com", "quota_project_id": "q-12345"}

    assert read({**USER, **said}) == User("a", "b", "c", "q-12345")


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({}, ""),
        ({"format": {"type": "text"}}, ""),
        ({"format": {"type": "json", "subject_token_field_name": "t"}}, "t"),
    ],
)
def test_a_federation_with_the_pod_s_token(form, field):
    impersonation = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com"
    document = {
        **FEDERATION,
        "credential_source": {"file": TOKEN, **form},
        "service_account_impersonation_url": f"{impersonation}:generateAccessToken",
    }

    assert read(document) == Federation(
        FEDERATION["audience"], FEDERATION["subject_token_type"], TOKEN, field, "a@b.iam.gserviceaccount.com"
    )


@pytest.mark.parametrize("document", [USER, FEDERATION], ids=["user", "federation"])
def test_the_sdk_takes_what_was_read(document):
    assert credentials_from(read(document), scope=SCOPE) is not None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"\xff", "holds no JSON", id="binary"),
        pytest.param(json.dumps(ACCOUNT).encode("utf-16"), "holds no JSON", id="UTF-16"),
        pytest.param(b"TOPSECRET", "holds no JSON", id="text"),
        pytest.param(b"[" * 50_000, "holds no JSON", id="too deep"),
        pytest.param(b"[]", "no credential of a known type: authorized_user", id="a list"),
        pytest.param(b'{"type": "TOPSECRET"}', "no credential of a known type: authorized_user", id="another type"),
        pytest.param(b'{"type": ["service_account"]}', "no credential of a known type", id="no type"),
        pytest.param(b'{"type": "authorized_user", "type": "service_account"}', "the key type twice", id="doubled"),
    ],
)
def test_what_is_no_credential_says_so_and_shows_nothing_of_it(data, message):
    with pytest.raises(InvalidError, match=message) as caught:
        read_key(data)

    assert "TOPSECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param({"type": "service_account", "private_key": PEM}, "no private_key_id, client_email", id="missing"),
        pytest.param({**ACCOUNT, "private_key": "TOPSECRET"}, "private_key is none", id="no key"),
        pytest.param({**ACCOUNT, "private_key": PEM + "\x00"}, "private_key is none", id="more than a key"),
        pytest.param({**ACCOUNT, "private_key_id": "1\n2"}, "private_key_id is none", id="two lines"),
        pytest.param({**ACCOUNT, "client_email": "TOPSECRET"}, "client_email is none", id="no address"),
        pytest.param({**ACCOUNT, "client_email": 1}, "client_email is none", id="a number"),
        pytest.param({**ACCOUNT, "universe_domain": "evil.example"}, "universe_domain is none", id="universe"),
        pytest.param({**ACCOUNT, "gcs_base_url": "http://TOPSECRET"}, "gcs_base_url, which is refused", id="a base"),
        pytest.param({**ACCOUNT, "disable_oauth": "yes"}, "disable_oauth, which is refused", id="oauth by a word"),
        pytest.param({**ACCOUNT, "TOPSECRETxx": 1}, "a key whose name is none", id="a stray piece"),
        pytest.param({"type": "authorized_user"}, "no client_id, client_secret, refresh_token", id="an empty user"),
        pytest.param({**USER, "rapt_token": "x"}, "rapt_token, which is refused", id="more of a user"),
        pytest.param({"type": "external_account"}, "no object with a file", id="an empty federation"),
        pytest.param({**FEDERATION, "credential_source": {}}, "has no file", id="no source"),
        pytest.param({**FEDERATION, "audience": ""}, "no audience", id="no audience"),
        pytest.param({**FEDERATION, "subject_token_type": "x"}, "subject_token_type is none", id="a type of token"),
        pytest.param({**FEDERATION, "workforce_pool_user_project": "x"}, "which is refused", id="a workforce"),
        pytest.param({**FEDERATION, "client_secret": "TOPSECRET"}, "client_secret, which is refused", id="a client"),
    ],
)
def test_a_credential_that_cannot_be_used_says_so_before_any_call(document, message):
    with pytest.raises(InvalidError, match=message) as caught:
        read(document)

    assert "TOPSECRET" not in str(caught.value)


@pytest.mark.parametrize("url", FOREIGN)
@pytest.mark.parametrize(
    ("document", "key"),
    [
        *[(ACCOUNT, key) for key in ACCOUNT if key.endswith(("_uri", "_url"))],
        (USER, "token_uri"),
        (FEDERATION, "token_url"),
        (FEDERATION, "token_info_url"),
        (FEDERATION, "service_account_impersonation_url"),
    ],
)
def test_an_address_that_is_not_google_s_own_is_refused(document, key, url):
    with pytest.raises(InvalidError, match=f"{key} is none"):
        read({**document, key: url})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param({"file": "/etc/shadow"}, "no token of this pod", id="another file"),
        pytest.param({"file": "/var/run/secrets/a/../../../../etc/token"}, "no token of this pod", id="a way out"),
        pytest.param({"file": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"}, "no token", id="beside it"),
        pytest.param({"file": "/proc/self/environ"}, "no token of this pod", id="the environment"),
        pytest.param({"url": "http://169.254.169.254"}, "the key url, which is refused", id="a url"),
        pytest.param({"file": TOKEN, "headers": {"a": "b"}}, "the key headers, which is refused", id="headers"),
        pytest.param({"executable": {"command": "touch TOPSECRET"}}, "commands are not run", id="a command"),
        pytest.param({"environment_id": "aws1"}, "environment_id, which is refused", id="another cloud"),
        pytest.param({"certificate": {}}, "the key certificate, which is refused", id="a certificate"),
        pytest.param({"file": TOKEN, "format": "json"}, "its format is none", id="a format"),
        pytest.param({"file": TOKEN, "format": {"type": "xml"}}, "type is none", id="another format"),
        pytest.param({"file": TOKEN, "format": {"type": "json"}}, "no subject_token_field_name", id="no field"),
        pytest.param({"file": [TOKEN]}, "file is none", id="files"),
        pytest.param([TOKEN], "no object with a file", id="a list"),
    ],
)
def test_a_federation_reads_no_file_and_asks_nobody_because_a_secret_says_so(source, message):
    with pytest.raises(InvalidError, match=message) as caught:
        read({**FEDERATION, "credential_source": source})

    assert "TOPSECRET" not in str(caught.value)


def test_a_key_that_only_looks_like_one_is_told_when_it_is_used():
    with pytest.raises(InvalidError, match="key of a service account that cannot be used"):
        credentials_from(read(ACCOUNT), scope=SCOPE)
