"""What is read out of an AWS credentials file in a Secret, and what is refused, with no value of it in any error."""

from datetime import timedelta

import pytest

from reprieve.adapters.cloud.secret_aws import Keys, Profile, Role, read_profile
from reprieve.core.errors import InvalidError

KEYS = "aws_access_key_id = A\naws_secret_access_key = B\n"
ARN = "arn:aws:iam::123456789012:role/velero"


def test_a_profile_has_keys_a_token_and_a_region():
    file = f"# by hand\n; so\n[default]\r\n{KEYS}aws_session_token: T\nregion=eu-west-1\noutput = json\n"

    assert read_profile(file.encode()) == Profile(Keys("A", "B", "T"), "eu-west-1")


@pytest.mark.parametrize(
    ("file", "identity"),
    [
        pytest.param("[default]\n  aws_access_key_id=A\n  aws_secret_access_key=B", Keys("A", "B"), id="indented"),
        pytest.param("[default]\nAWS_ACCESS_KEY_ID=A\nAws_Secret_Access_Key=B", Keys("A", "B"), id="another case"),
        pytest.param(
            "[default]\naws_access_key_id=A\naws_secret_access_key = 50%(off)s",
            Keys("A", "50%(off)s"),
            id="percent sign",
        ),
        pytest.param(
            "[default]\naws_access_key_id=A\naws_secret_access_key = a=b: #c",
            Keys("A", "a=b: #c"),
            id="no inline comment",
        ),
        pytest.param(f"[default]\n{KEYS}aws_security_token=T", Keys("A", "B", "T"), id="the old name of the token"),
        pytest.param(f"[default]\n{KEYS}aws_session_token=\nregion =", Keys("A", "B"), id="empty values"),
    ],
)
def test_what_is_written_by_hand_is_understood(file, identity):
    assert read_profile(file.encode()).identity == identity


def test_a_role_is_taken_on_with_keys_of_the_same_secret():
    file = f"[source]\n{KEYS}[default]\nrole_arn={ARN}\nsource_profile=source\nrole_session_name=me\n"
    file += "external_id=x-1\nduration_seconds=900\nregion=us-east-1\n"

    assert read_profile(file.encode()) == Profile(
        Role(ARN, Keys("A", "B"), "me", "x-1", timedelta(minutes=15)), "us-east-1"
    )


def test_a_role_may_be_taken_on_from_a_role_and_with_keys_of_its_own():
    file = f"[a]\nrole_arn={ARN}-a\nsource_profile=b\n[b]\n{KEYS}role_arn={ARN}-b\nsource_profile=b\n"

    assert read_profile(file.encode(), "a").identity == Role(f"{ARN}-a", Role(f"{ARN}-b", Keys("A", "B")))


@pytest.mark.parametrize(
    ("text", "profile", "message"),
    [
        pytest.param(b"\xff\xfe", "", "no AWS shared credentials file", id="binary"),
        pytest.param("[default]\n".encode("utf-16"), "", "no AWS shared credentials file", id="UTF-16"),
        pytest.param(b"[default]\n#" + b"x" * 65536, "", "65547 bytes, more than 65536", id="too large"),
        pytest.param(b"aws_access_key_id = TOPSECRET", "", "no AWS shared credentials file", id="no profile"),
        pytest.param(b"[default]\nTOPSECRET", "", "no AWS shared credentials file", id="no value"),
        pytest.param(b"[default]\n= TOPSECRET", "", "line 2 .* neither", id="no key"),
        pytest.param(b"[default", "", "line 1 .* no profile's name", id="half a name"),
        pytest.param(b"[default] x", "", "line 1 .* no profile's name", id="more after a name"),
        pytest.param(b"[DEFAULT]\n", "", "is no profile: ", id="every profile's"),
        pytest.param(b"[a]\n[a]\n", "a", r"line 2 .* \[a\] once more", id="a profile twice"),
        pytest.param(b"", "", r"no profile \[default\], only none", id="empty"),
        pytest.param(b"[a]\n[b]\n", "c", r"no profile \[c\], only a, b", id="another profile"),
        pytest.param(b"[default]\n", "", "no aws_access_key_id and no aws_secret_access_key", id="nothing in it"),
        pytest.param(b"[default]\naws_access_key_id=TOPSECRET", "", "has no aws_secret_access_key,", id="half a key"),
        pytest.param(b"[default]\nregion=a\nREGION=b", "", "line 3 .* the key region .* once more", id="a key twice"),
        pytest.param(b"[default]\nregion=TOPSECRET x", "", "a region that is none", id="no region"),
        pytest.param(b"[default]\naws_session_token=a TOPSECRET", "", "aws_session_token that is none", id="a blank"),
        pytest.param(b"[default]\nregion=a\n TOPSECRET", "", "line 3 .* indented more", id="a value that goes on"),
        pytest.param(b"[default]\ns3 =\n  endpoint_url = TOPSECRET", "", "the key s3, which is refused", id="nested"),
        pytest.param(b"[default]\ncolour=TOPSECRET", "", "the key colour, which is refused", id="an unknown key"),
        pytest.param(
            b"[default]\nTOPSECRETxyz==", "", "a key in line 2, which is refused", id="a stray piece of a token"
        ),
        pytest.param(b"[default]\nrole_arn=TOPSECRET", "", "a role_arn that is none", id="no role"),
        pytest.param(f"[default]\nrole_arn={ARN}".encode(), "", "no source_profile", id="a role without keys"),
        pytest.param(f"[a]\nrole_arn={ARN}\nsource_profile=b".encode(), "a", "not in the same Secret", id="no source"),
        pytest.param(
            f"[a]\nrole_arn={ARN}\nsource_profile=b\n[b]\nrole_arn={ARN}\nsource_profile=a\n".encode(),
            "a",
            "comes back to itself",
            id="a circle",
        ),
        pytest.param(
            f"[a]\n{KEYS}role_arn={ARN}\nsource_profile=a\nduration_seconds=899".encode(),
            "a",
            "900 to 43200",
            id="short",
        ),
    ],
)
def test_what_is_of_no_use_says_so_and_shows_nothing_of_it(text, profile, message):
    with pytest.raises(InvalidError, match=message) as caught:
        read_profile(text, profile)

    assert "TOPSECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "way_out"),
    [
        ("credential_process", "commands are not run"),
        ("CREDENTIAL_PROCESS", "commands are not run"),
        ("web_identity_token_file", "name no credential in the location"),
        ("credential_source", "source_profile"),
        ("endpoint_url", "where requests go"),
        ("services", "where requests go"),
        ("mfa_serial", "nobody is there"),
        ("sso_session", "is refused"),
        ("sso_start_url", "is refused"),
        ("ca_bundle", "is refused"),
        ("login_session", "is refused"),
    ],
)
@pytest.mark.parametrize("section", ["default", "other"])
def test_what_would_run_or_read_or_ask_something_is_refused_in_every_profile(key, way_out, section):
    file = f"[default]\n{KEYS}[x]\n{KEYS}".replace("[x]", f"[{section}-x]") + f"{key} = TOPSECRET\n"

    with pytest.raises(InvalidError, match=way_out) as caught:
        read_profile(file.encode())

    assert "TOPSECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "mark", [*map(chr, {*range(32)} - {9}), *map(chr, range(0x7F, 0xA0)), *"\u2028\u2029\ufeff\u200b\u202e"]
)
def test_no_character_passes_that_another_reader_may_take_for_a_line_s_end(mark):
    file = f"[default]\n{KEYS}# x{mark}credential_process = touch TOPSECRET\n"
    with pytest.raises(InvalidError) as caught:
        read_profile(file.encode())

    assert "TOPSECRET" not in str(caught.value)


@pytest.mark.parametrize("ends", ["\r", "\n\r", "\r\r\n"])
def test_a_carriage_return_alone_is_refused(ends):
    with pytest.raises(InvalidError, match=r"U\+000D"):
        read_profile(f"[default]{ends}{KEYS}".encode())
