"""What is known to be secret is found in a text in whatever form it comes back, and nothing else is taken away."""

import base64
import html
import json
import string
import textwrap
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.cloud import known
from reprieve.adapters.cloud.known import HIDDEN, Known

TOKEN = "IQoJb3JpZ2luX2VjEFoaCXVzLWVhc3QtMSJHMEUCIQDx/+" + "Vq7k9Zt0aB3cD4eF5gH6iJ7kL8mN9oP0qR1sT2uV3wX4yZ5" * 4 + "=="
FORMS = {
    "as it is": lambda s: s,
    "wrapped": lambda s: "\n".join(textwrap.wrap(s, 20)),
    "wrapped and indented": lambda s: "\r\n    > ".join(textwrap.wrap(s, 20)),
    "wrapped to one character": "\n".join,
    "wrapped, in JSON": lambda s: json.dumps("\n".join(textwrap.wrap(s, 20))),
    "quoted for a URL": lambda s: quote(s, safe=""),
    "quoted twice": lambda s: quote(quote(s, safe=""), safe=""),
    "quoted for a form": quote_plus,
    "quoted for a URL, all of it": lambda s: "".join(f"%{byte:02X}" for byte in s.encode()),
    "escaped for HTML": lambda s: html.escape(s).replace("/", "&#47;").replace("+", "&#x2B;"),
    "escaped for JSON": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    "escaped for Rust": lambda s: "".join(f"\\u{{{ord(c):x}}}" for c in s),
    "escaped bytes": lambda s: "".join(f"\\x{ord(c):02x}" for c in s),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 after a name": lambda s: base64.b64encode(b"user:" + s.encode()).decode(),
    "base64 after two": lambda s: base64.b64encode(b"a:user:" + s.encode()).decode(),
    "base64, wrapped": lambda s: base64.encodebytes(s.encode()).decode(),
}


def knowing(*values):
    known = Known()
    known.remember(*values)
    return known


def letters(text):
    return "".join(filter(str.isalnum, text))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "secret", [TOKEN, "wJalrXUtnFEMI/K7MDENG+bPxRfiCY=", "hunter2-and-more"], ids=["token", "key", "pw"]
)
def test_a_secret_is_found_in_any_form(secret, form):
    shown = knowing(secret).hide(f"InvalidToken, HTTP 403: the token {form(secret)} is not valid: ask again")

    assert shown.startswith("InvalidToken, HTTP 403: the token ")
    assert shown.endswith(" is not valid: ask again")
    assert HIDDEN in shown
    assert (
        len(letters(shown)) <= len(letters("InvalidToken, HTTP 403: the token is not valid: ask again") + HIDDEN) + 16
    )


@given(st.text(string.ascii_letters + string.digits + "+/=%&\\n", min_size=24), st.sampled_from([*FORMS.values()]))
def test_whatever_the_secret_no_long_piece_of_it_is_left(secret, form):
    shown = letters(knowing(secret).hide(f"the token '{form(secret)}' is not valid").replace(HIDDEN, " "))

    pieces = {secret[at : at + known.PIECE] for at in range(len(secret) - known.PIECE + 1)}
    assert not [piece for piece in pieces if piece.isalnum() and piece in shown]


def test_a_piece_of_a_secret_is_found_where_the_text_was_cut():
    assert knowing(TOKEN).hide(f"the token {TOKEN[40:90]}") == f"the token {HIDDEN}"


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        pytest.param("minio123", "no minio123 here", f"no {HIDDEN} here", id="eight"),
        pytest.param("minio123", "no xminio123x here", f"no x{HIDDEN}x here", id="eight within"),
        pytest.param("velero", "key velero: no", f"key {HIDDEN}: no", id="a word"),
        pytest.param("velero", "key velerox: no", "key velerox: no", id="within a word"),
        pytest.param("abc", "key abc: no", "key abc: no", id="three"),
        pytest.param("pässwört", "no pässwört", f"no {HIDDEN}", id="not ASCII"),
        pytest.param("pässwört", "no " + quote("pässwört"), f"no {HIDDEN}", id="not ASCII, quoted"),
        pytest.param("other", "Bearer abcdefghij.klmnopqrst", f"Bearer {HIDDEN}", id="a token that nobody knew"),
    ],
)
def test_a_short_secret_is_found_where_it_stands_alone(secret, text, shown):
    assert knowing(secret).hide(text, strangers=True) == shown


def test_a_secret_that_is_a_word_takes_none_of_ours():
    assert knowing("velero").hide("Secret velero/cloud") == "Secret velero/cloud"


def test_what_is_no_secret_stays():
    text = "deleting snapshot snap-0123456789abcdef0: UnauthorizedOperation, HTTP 403: \\u00e4 100% &amp; you may not"

    assert knowing(TOKEN, None, "").hide(text) == text
    assert Known().hide(text) == text


def test_the_oldest_secret_goes_when_there_are_too_many():
    many = knowing("first-of-all-secrets")
    many.remember(*(f"secret-{number:08d}-of-many" for number in range(known.KEPT)))

    assert many.hide("first-of-all-secrets") == "first-of-all-secrets"
    assert many.hide("secret-00000255-of-many") == HIDDEN


def test_one_that_is_used_again_stays():
    many = knowing("first-of-all-secrets")
    for number in range(known.KEPT + 10):
        many.remember(f"secret-{number:08d}-of-many", "first-of-all-secrets")

    assert many.hide("first-of-all-secrets") == HIDDEN


def test_tokens_that_pass_do_not_take_the_place_of_what_was_read():
    many = knowing("first-of-all-secrets")
    many.remember(*(f"secret-{number:08d}-of-many" for number in range(2 * known.KEPT)), passing=True)

    assert many.hide("first-of-all-secrets") == HIDDEN
    assert many.hide("secret-00000511-of-many") == HIDDEN


def test_a_text_that_is_full_of_pieces_goes_as_a_whole():
    secrets = [f"{number:04d}".join("abcdefghijklmnop") for number in range(60)]
    text = " ".join(secret[at : at + 10] for secret in secrets for at in range(0, 40, 8))

    assert len(letters(knowing(*secrets).hide(text))) < len(letters(text)) / 2


@pytest.mark.parametrize(
    ("headers", "hidden"),
    [
        ({"Authorization": "Bearer an-opaque-token-of-the-pod"}, "an-opaque-token-of-the-pod"),
        ({"Authorization": b"Bearer another-opaque-token"}, "another-opaque-token"),
        ({"X-Amz-Security-Token": "a-session-token-of-the-pod"}, "a-session-token-of-the-pod"),
    ],
)
def test_what_goes_out_with_a_call_is_known(headers, hidden):
    known.remember_sent(headers)

    assert known.hide(f"no {hidden}") == f"no {HIDDEN}"
