"""What is read out of an Azure credential in a Secret, and what is refused, with no value of it in any error."""

import pytest

from reprieve.adapters.cloud.secret_azure import is_account_key, read_secret, read_values
from reprieve.core.errors import InvalidError


def test_a_file_of_values():
    data = b"""# Azure

export AZURE_TENANT_ID=t\r
AZURE_CLIENT_ID = "c"
AZURE_CLIENT_SECRET=a=b#c 'd
MY_KEY=a2V5 # comment
"""

    assert read_secret(data) == {
        "AZURE_TENANT_ID": "t",
        "AZURE_CLIENT_ID": "c",
        "AZURE_CLIENT_SECRET": "a=b#c 'd",
        "MY_KEY": "a2V5",
    }


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ('"abc" # ours', "abc"),
        ("'abc'\t# ours", "abc"),
        ('"abc" # the "old" one, not "this"', "abc"),
        ('"a # b"', "a # b"),
        ('"abc"#d', '"abc"#d'),
        ('"a"b"', 'a"b'),
        ('""', ""),
    ],
)
def test_a_quoted_value_ends_with_its_quote_whatever_the_comment_behind_it(said, value):
    assert read_secret(f"AZURE_CLIENT_SECRET={said}".encode()) == {"AZURE_CLIENT_SECRET": value}


def test_the_pod_s_own_token_may_be_named():
    file = "/var/run/secrets/azure/tokens/azure-identity-token"

    assert read_secret(f"AZURE_FEDERATED_TOKEN_FILE={file}".encode()) == {"AZURE_FEDERATED_TOKEN_FILE": file}


def test_a_file_of_the_pod_s_own_may_name_a_certificate():
    assert read_values(b"AZURE_CLIENT_CERTIFICATE_PATH=/mounted/cert.pem") == {
        "AZURE_CLIENT_CERTIFICATE_PATH": "/mounted/cert.pem"
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"\xff\xfe", "is no text", id="binary"),
        pytest.param(b"A=1\n\nTOPSECRET\n", "line 3 .* is not of the form", id="no equals sign"),
        pytest.param(b'{"clientSecret": "TOPSECRET"}', "line 1 .* is not of the form", id="JSON"),
        pytest.param("ÄZURE=TOPSECRET".encode(), "line 1 .* is not of the form", id="no name"),
        pytest.param(b"A_B=1\nA_B=TOPSECRET\n", "line 2 .* the key A_B once more", id="doubled"),
        pytest.param(b"AZURE_CLIENT_SECRET=\x0bTOPSECRET", r"line 1 .* U\+000B", id="a line's end to some"),
        pytest.param(b"AZURE_TENANT_ID=a/TOPSECRET", "a AZURE_TENANT_ID that is none", id="no tenant"),
        pytest.param(b"AZURE_STORAGE_ACCOUNT_ACCESS_KEY=TOPSECRET!", "KEY that is none", id="no key"),
        pytest.param(b"AZURE_AUTHORITY_HOST=TOPSECRET", "where to log in", id="where to log in"),
        pytest.param(b"AZURE_CLIENT_CERTIFICATE_PATH=/TOPSECRET", "no file is read", id="a file"),
        pytest.param(b"AZURE_FEDERATED_TOKEN_FILE=/TOPSECRET", "no token of this pod", id="another file's text"),
        pytest.param(b"AZURE_USERNAME=TOPSECRET", "the key AZURE_USERNAME, which is refused", id="not taken"),
        pytest.param(b"azure_x=TOPSECRET", "the key azure_x, which is refused", id="in another case"),
    ],
)
def test_a_credential_of_no_use_says_so_and_shows_nothing_of_it(data, message):
    with pytest.raises(InvalidError, match=message) as caught:
        read_secret(data)

    assert "TOPSECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "may"),
    [("AZURE_STORAGE_ACCOUNT_ACCESS_KEY", True), ("MY_KEY", True), ("AZURE_CLIENT_SECRET", False)],
)
def test_an_account_s_key_is_not_what_means_something_else(variable, may):
    assert is_account_key(variable) is may
