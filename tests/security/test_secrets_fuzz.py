"""Whatever a Secret's text, no reader of an SDK's sees in it what ours does not.

The check for commands and botocore read the same text in two ways, and who knew where they differ had a command run.
Texts are made of what readers differ about (ends of lines, indentation, comments, doubled names, delimiters); each is
read by ours and by the SDK's own loader.
"""

import configparser
import json
import tempfile
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from botocore.configloader import raw_config_parse
from botocore.exceptions import ConfigParseError
from google.auth import identity_pool
from google.oauth2 import credentials, service_account
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from reprieve.adapters.cloud.secret_aws import REFUSED, VALUES, Keys, read_profile
from reprieve.adapters.cloud.secret_azure import KEYS, read_secret
from reprieve.adapters.cloud.secret_gcp import read_key
from reprieve.core.errors import InvalidError
from tests.integration.gcp_compute import private_key

BOUNDED = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

ENDS = st.sampled_from(
    ["\n"] * 6 + ["\r\n", "\r", "\n\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
BLANKS = st.sampled_from(["", "", "", " ", "  ", "\t", "\u00a0", "\u3000", "\x1f", "\ufeff", "\x00"])
NAMES = st.sampled_from(
    ["default", "default", "x", "profile x", "DEFAULT", " x ", "x]", "default]\n[x", "services s", ""]
)
AWS_KEYS = st.sampled_from(
    [*VALUES, *REFUSED, "CREDENTIAL_PROCESS", "aws_access_key_id ", "sso_session", "s3", "a b", ""]
)
AWS_VALUES = st.sampled_from(
    [
        "A",
        "us-east-1",
        "touch x",
        "x",
        "",
        "%(region)s",
        "${HOME}",
        "a # b",
        "a ; b",
        "\n  credential_process = touch x",
    ]
)


def joined(parts):
    return st.lists(parts, max_size=12).map("".join)


SECTION = st.builds("{}[{}]{}{}".format, BLANKS, NAMES, BLANKS, ENDS)
PAIR = st.builds(
    "{}{}{}{}{}{}".format,
    BLANKS,
    AWS_KEYS,
    st.sampled_from([" = ", "=", ":", " : ", " ", ""]),
    AWS_VALUES,
    BLANKS,
    ENDS,
)
COMMENT = st.builds("{}{}{}{}".format, BLANKS, st.sampled_from(["#", ";", "# x", "rem "]), AWS_VALUES, ENDS)
AWS_TEXTS = st.one_of(
    joined(SECTION | PAIR | PAIR | COMMENT),
    joined(PAIR | COMMENT).map("[default]\naws_access_key_id = A\naws_secret_access_key = B\n{}".format),
)


@contextmanager
def file_of(text):
    """A file with this text, for readers that take no other."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        yield file.name


def botocore_sees(text):
    """The profiles and keys that botocore reads out of a file with this text."""
    with file_of(text) as path, suppress(ConfigParseError):
        return raw_config_parse(path)
    return {}


@given(AWS_TEXTS)
@BOUNDED
def test_botocore_sees_nothing_in_a_secret_that_was_not_checked(text):
    try:
        profile = read_profile(text.encode())
    except InvalidError:
        return
    seen = botocore_sees(text)

    assert {key for section in seen.values() for key in section} <= {*VALUES}
    if isinstance(profile.identity, Keys):
        assert seen["default"]["aws_access_key_id"] == profile.identity.access_key_id
        assert seen["default"]["aws_secret_access_key"] == profile.identity.secret_access_key
        assert seen["default"].get("region", "") == profile.region


def checked_as_before(text):
    """The check that there was: whether it let a text pass."""
    parsed = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parsed.read_string(text)
    except configparser.Error:
        return False
    return "default" in parsed and not any(parsed.has_option(name, "credential_process") for name in parsed.sections())


def test_these_texts_find_what_the_first_check_let_pass():
    """A fuzz that would not have found the fault is none."""

    def hidden(text):
        commands = [key for section in botocore_sees(text).values() for key in section if key == "credential_process"]
        return bool(commands) and checked_as_before(text)

    found = find(AWS_TEXTS, hidden, settings=settings(BOUNDED, max_examples=5_000, phases=[Phase.generate]))

    assert "\r" in found or "[DEFAULT]" in found


def dictionaries(keys, values, base):
    """Documents near one that is right: keys taken away, replaced or added."""
    return st.dictionaries(keys, values, max_size=3).map(lambda more: {**base, **more})


EVIL = "http://evil.example/token"
ACCOUNT = {
    "type": "service_account",
    "client_email": "a@b.iam.gserviceaccount.com",
    "private_key": private_key(),
    "private_key_id": "1",
    "token_uri": "https://oauth2.googleapis.com/token",
}
USER = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}
FEDERATION = {
    "type": "external_account",
    "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "token_url": "https://sts.googleapis.com/v1/token",
    "credential_source": {"file": "/var/run/secrets/tokens/gcp-ksa/token"},
}
ADDRESSES = st.sampled_from(
    [
        EVIL,
        "https://oauth2.googleapis.com/token",
        "https://sts.googleapis.com/v1/token",
        "https://sts.googleapis.com@evil.example/v1/token",
        "https://sts.googleapis.com.evil.example/v1/token",
        "https://evil.example/sts.googleapis.com",
        "https://evil.example\\@sts.googleapis.com/",
        "https://sts.googleapis.com/v1/token\n",
        "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com:generateAccessToken",
        "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@evil.example/../x:generateAccessToken",
        "evil.example",
        "googleapis.com",
        "",
        None,
    ]
)
SOURCES = st.dictionaries(
    st.sampled_from(["file", "url", "headers", "executable", "environment_id", "certificate", "format", "type"]),
    ADDRESSES
    | st.sampled_from(["/etc/passwd", "/var/run/secrets/tokens/x/token", "/var/run/secrets/../x/token", {"a": "b"}]),
    max_size=3,
)
ADDRESSED = st.sampled_from(
    [
        "token_uri",
        "token_url",
        "token_info_url",
        "service_account_impersonation_url",
        "universe_domain",
        "auth_uri",
        "url",
    ]
)
DOCUMENTS = st.one_of(
    dictionaries(ADDRESSED, ADDRESSES, ACCOUNT),
    dictionaries(ADDRESSED, ADDRESSES, USER),
    dictionaries(ADDRESSED, ADDRESSES, FEDERATION),
    dictionaries(st.just("credential_source"), SOURCES, FEDERATION),
)
GOOGLE_TEXTS = st.builds(
    lambda document, before, after: (before + json.dumps(document) + after).encode(),
    DOCUMENTS,
    st.sampled_from(["", "", "\n", "\ufeff", "\x0b"]),
    st.sampled_from(["", "\n", "\x00", "{}"]),
)


LOADERS = {
    "service_account": service_account.Credentials.from_service_account_info,
    "authorized_user": credentials.Credentials.from_authorized_user_info,
    "external_account": identity_pool.Credentials.from_info,
}


def asked(credential):
    """Every address that a credential of google-auth's has in it."""
    values = [value for value in vars(credential).values() if isinstance(value, str)]
    return {urlsplit(value).netloc for value in values if "://" in value}


@given(GOOGLE_TEXTS)
@BOUNDED
def test_google_s_loader_finds_no_foreign_address_and_no_other_file_in_what_is_taken(text):
    try:
        read_key(text)
    except InvalidError:
        return
    document = json.loads(text)
    loaded = LOADERS[document["type"]](document)

    assert not [host for host in asked(loaded) if not host.endswith(".googleapis.com")]
    assert loaded.universe_domain == "googleapis.com"
    source = getattr(loaded, "_credential_source", None) or {}
    assert {*source} <= {"file", "format"}
    assert source.get("file", "/var/run/secrets/").startswith("/var/run/secrets/")
    assert ".." not in source.get("file", "")


AZURE_LINES = st.builds(
    "{}{}{}{}{}{}".format,
    st.sampled_from(["", "", "export ", "  ", "# ", "\u00a0"]),
    st.sampled_from(
        [
            *KEYS,
            "AZURE_AUTHORITY_HOST",
            "AZURE_CLIENT_CERTIFICATE_PATH",
            "azure_x",
            "MY_KEY",
            "AZURE_AUTHORITY_HOST\u00a0",
        ]
    ),
    st.sampled_from(["=", " = ", ":", ""]),
    st.sampled_from(["a", "'a'", '"a', 'a"', "'a\nAZURE_AUTHORITY_HOST=b'", "a # b", "${HOME}", "a\\nb", ""]),
    st.sampled_from(["", " ", "\x1f"]),
    ENDS,
)


def another_reader_sees(text):
    """The keys that a reader sees for whom a line ends wherever Unicode says so, and a blank is any."""
    lines = [line.strip().removeprefix("export ") for line in text.splitlines()]
    return {line.partition("=")[0].strip() for line in lines if not line.startswith("#")}


@given(joined(AZURE_LINES))
@BOUNDED
def test_another_reader_of_such_lines_sees_no_other_key_of_azure_s(text):
    try:
        values = read_secret(text.encode())
    except InvalidError:
        return

    seen = {*values} | another_reader_sees(text)
    assert {key for key in seen if key.upper().startswith("AZURE_")} <= {*KEYS}
