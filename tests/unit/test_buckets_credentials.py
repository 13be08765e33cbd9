"""Credentials for object storage: what is read out of a Secret, and that nothing else is mixed in."""

import json
import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from reprieve.adapters.cloud import buckets_credentials as credentials
from reprieve.adapters.cloud import known
from reprieve.core.backups import StorageLocation
from reprieve.core.errors import DeniedError, InvalidError, UnavailableError
from tests.integration.gcp_compute import private_key

SECRET = "wJalrXUtnFEMI-secret"
FILE = f"""[default]
aws_access_key_id = AKIDEFAULT
aws_secret_access_key = {SECRET}
region = eu-west-1

[backups]
aws_access_key_id = AKIBACKUPS
aws_secret_access_key = {SECRET}
aws_session_token = token
""".encode()


def location(**config):
    return StorageLocation("default", bucket="backups", config=config)


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of this machine's: neither its variables nor its files."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the environment")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.parametrize(
    ("config", "key", "token", "region"),
    [
        pytest.param({}, "AKIDEFAULT", None, "eu-west-1", id="default-profile-and-its-region"),
        pytest.param({"profile": "backups"}, "AKIBACKUPS", "token", "us-east-1", id="profile"),
        pytest.param({"region": "eu-north-1"}, "AKIDEFAULT", None, "eu-north-1", id="the-location-s-region-wins"),
    ],
)
def test_a_secret_s_profile_is_used_and_nothing_of_the_environment(config, key, token, region):
    found, signed_for = credentials.aws_credential(location(**config), FILE)
    assert found.provider() == {
        "access_key_id": key,
        "secret_access_key": SECRET,
        "token": token,
        "expires_at": None,
    }
    assert signed_for == region


def test_without_a_secret_the_default_chain_is_asked():
    found, region = credentials.aws_credential(location(), None)
    assert found.provider()["access_key_id"] == "AKIENVIRONMENT"
    assert found.provider()["expires_at"] is not None
    assert region == "us-east-1"


def test_no_credentials_show_at_the_first_use(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    found, _ = credentials.aws_credential(location(), None)
    with pytest.raises(DeniedError, match="none found"):
        found.provider()


@pytest.mark.parametrize(
    ("config", "secret", "match"),
    [
        pytest.param({"profile": "other"}, FILE, r"no profile \[other\], only default, backups", id="no-such-profile"),
        pytest.param({}, b"nonsense", "no AWS shared credentials file", id="no-ini"),
        pytest.param({}, b"\xff\xfe", "no AWS shared credentials file", id="no-text"),
        pytest.param({}, b"[default]\naws_access_key_id=a\n", "no aws_secret_access_key", id="half-a-key"),
        pytest.param({}, b"[default]\ncredential_process=rm -rf /\n", "commands are not run", id="a-command"),
        pytest.param({"profile": "nowhere"}, None, "names none: name the Secret", id="a-profile-without-a-secret"),
    ],
)
def test_what_cannot_be_used_names_the_location_and_no_secret(config, secret, match):
    with pytest.raises(InvalidError, match=match) as caught:
        credentials.aws_credential(location(**config), secret)
    assert str(caught.value).startswith("storage location default: ")
    assert SECRET not in str(caught.value)


def test_a_credential_does_not_print_what_it_holds():
    found = credentials.azure_credential(location(storageAccountKeyEnvVar="K"), {"K": "c2VjcmV0"}, from_secret=True)
    assert "c2VjcmV0" not in repr(found)


KEY = {"type": "service_account", "client_email": "a@b", "private_key": private_key(), "private_key_id": "1"}


def test_a_service_account_signs_its_token_by_itself():
    found = credentials.gcp_credential(location(), json.dumps(KEY).encode())
    given = found.provider()
    assert given["token"].count(".") == 2
    assert given["expires_at"] <= datetime.now(UTC) + credentials.KEPT
    assert known.hide(f"no {given['token']}") == "no [hidden]"
    assert (found.bearer, found.config) == (True, {})


def test_a_key_for_an_emulator_is_sent_nowhere():
    unsigned = {**KEY, "private_key": "-", "disable_oauth": True}
    found = credentials.gcp_credential(location(), json.dumps(unsigned).encode())
    assert json.loads(found.config["service_account_key"]) == unsigned
    assert (found.bearer, found.provider) == (False, None)


def test_a_service_account_s_key_does_not_say_where_requests_go():
    given = json.dumps(KEY | {"gcs_base_url": "http://169.254.169.254"}).encode()
    with pytest.raises(InvalidError, match="has the key gcs_base_url, which is refused"):
        credentials.gcp_credential(location(), given)


@pytest.mark.parametrize("mark", ["\n", "\r", "\x00", "é"])
def test_a_token_of_the_pod_s_own_that_cannot_be_sent_is_denied(monkeypatch, mark):
    """obstore panics over it."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"of the{mark}environment".replace("\x00", "\x01"))
    found, _ = credentials.aws_credential(location(), None)
    with pytest.raises(DeniedError, match="the token holds a character that cannot be sent"):
        found.provider()


@pytest.mark.parametrize(
    ("secret", "match"),
    [
        pytest.param(b"{", "no JSON", id="no-json"),
        pytest.param(b"[]", "known type", id="no-object"),
        pytest.param(b"\xff", "no JSON", id="no-text"),
        pytest.param(b'{"type": "service_account"}', "private_key, private_key_id, client_email", id="parts-missing"),
        pytest.param(b'{"type": "something_new"}', "known type", id="another-kind"),
        pytest.param(
            b'{"type": "external_account", "credential_source": {"executable": {"command": "rm"}}}',
            "not run",
            id="a-command",
        ),
    ],
)
def test_what_is_no_google_credential_is_refused(secret, match):
    with pytest.raises(InvalidError, match=match):
        credentials.gcp_credential(location(), secret)


def test_an_account_s_key_is_used_where_it_is_named():
    found = credentials.azure_credential(location(storageAccountKeyEnvVar="K"), {"K": "a2V5"}, from_secret=True)
    assert found.config == {"credential_type": "access_key", "account_key": "a2V5"}


@pytest.mark.parametrize(
    "config", [{}, {"useAAD": "true", "storageAccountKeyEnvVar": "K"}], ids=["no-key", "asked-for"]
)
def test_entra_is_used_without_a_key_and_when_asked_for(config):
    values = {"K": "a2V5", "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": SECRET}
    found = credentials.azure_credential(location(**config), values, from_secret=True)
    assert found.config == {}
    assert found.provider is not None


def test_a_variable_of_the_environment_that_a_location_names_is_not_read():
    with pytest.raises(InvalidError, match="the environment is not read") as caught:
        credentials.azure_credential(
            location(storageAccountKeyEnvVar="AWS_SECRET_ACCESS_KEY"), os.environ, from_secret=False
        )
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "as_pod"),
    [
        pytest.param({}, True, id="a-secret-without-an-identity"),
        pytest.param({"AZURE_CLIENT_SECRET": SECRET}, False, id="a-secret-s-own"),
        pytest.param({"AZURE_FEDERATED_TOKEN_FILE": "/token"}, True, id="a-token-of-the-pod"),
    ],
)
def test_what_rests_on_the_pod_s_own_identity_says_so(values, as_pod):
    given = {"AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "c", **values}
    assert credentials.azure_credential(location(), given, from_secret=True).as_pod is as_pod
    assert credentials.azure_credential(location(), given, from_secret=False).as_pod


def test_half_an_identity_is_refused():
    with pytest.raises(InvalidError, match="no AZURE_TENANT_ID"):
        credentials.azure_credential(
            location(), {"AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": SECRET}, from_secret=True
        )


@pytest.mark.parametrize("secret", [b"no assignment", b"\xff\xfe"])
def test_what_is_no_env_file_is_refused_without_its_text(secret):
    with pytest.raises(InvalidError) as caught:
        credentials.azure_values(secret)
    assert "no assignment" not in str(caught.value)


def test_an_account_s_key_that_is_not_there_is_named_by_its_variable():
    with pytest.raises(InvalidError, match="names 'K', which has no value in the Secret"):
        credentials.azure_credential(location(storageAccountKeyEnvVar="K"), {}, from_secret=True)


class ServiceRequestError(Exception):
    """Named as azure-core's: the server of tokens cannot be reached."""


class ClientAuthenticationError(Exception):
    """Named as azure-core's."""


def test_a_token_of_entra_is_kept_for_minutes_and_not_past_its_end():
    ends = datetime.now(UTC) + timedelta(days=1)
    asked = []
    chain = SimpleNamespace(
        get_token=lambda scope: asked.append(scope) or SimpleNamespace(token="t", expires_on=ends.timestamp())
    )
    given = credentials._from_azure(chain)()
    assert given["token"] == "t"
    assert given["expires_at"] < ends
    assert asked == ["https://storage.azure.com/.default"]


@pytest.mark.parametrize(
    ("raised", "expected"), [(ServiceRequestError, UnavailableError), (ClientAuthenticationError, DeniedError)]
)
def test_a_token_that_cannot_be_had_is_told_apart_from_a_server_that_cannot_be_reached(raised, expected):
    def get_token(scope):
        raise raised("first line\nsecond line")

    with pytest.raises(expected, match=r"first line$"):
        credentials._from_azure(SimpleNamespace(get_token=get_token))()


def test_a_google_token_is_refreshed_when_it_is_no_longer_valid():
    class Token:
        valid, token, expiry = False, None, None

        def refresh(self, request):
            self.token, self.expiry, self.valid = "fresh", datetime(2000, 1, 1), True  # noqa: DTZ001 (as google-auth writes it)

    given = credentials._from_google(Token)()
    assert given == {"token": "fresh", "expires_at": datetime(2000, 1, 1, tzinfo=UTC)}
