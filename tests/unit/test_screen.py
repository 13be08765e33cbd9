"""The screen: one text is one line that can do nothing but be read."""

import json
import unicodedata

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reprieve.entrypoints.cli import screen

ANY_TEXT = st.text(st.characters(), max_size=60)  # surrogates too: a file name can hold them

HARMLESS = [
    pytest.param("shop-nightly", id="a-name"),
    pytest.param("Grüße, 東京, 3 \N{MULTIPLICATION SIGN} 4 …", id="other-languages"),
    pytest.param("e\u0301", id="a-combining-accent"),
    pytest.param("C:\\new", id="a-backslash"),
]

SHOWN = [
    pytest.param("\x1b[2J\x1b[H", r"\x1b[2J\x1b[H", id="clears-the-screen"),
    pytest.param("held\nY", r"held\nY", id="a-line-of-its-own"),
    pytest.param("held\r\x1b[KDELETE", r"held\r\x1b[KDELETE", id="overwrites-its-line"),
    pytest.param("a\x85b\u2028c\u2029d", r"a\x85b\u2028c\u2029d", id="other-line-ends"),
    pytest.param("\x9b31m", r"\x9b31m", id="eight-bit-escape"),
    pytest.param("peek\u202eyllaer", r"peek\u202eyllaer", id="turns-the-reading"),
    pytest.param("a\u2066b\u2069", r"a\u2066b\u2069", id="isolates"),
    pytest.param("pro\u200bd", r"pro\u200bd", id="zero-width"),
    pytest.param("prod\u3164", r"prod\u3164", id="a-letter-that-is-not-seen"),
    pytest.param("prod\ufe0f", r"prod\ufe0f", id="a-variation-selector"),
    pytest.param("a\tb\x08\x7f", r"a\tb\x08\x7f", id="tab-backspace-delete"),
    pytest.param("\ud800", r"\ud800", id="half-a-character"),
    pytest.param("a" + "\u0301" * 6, "a" + "\u0301" * 4 + r"\u0301\u0301", id="a-tower-of-accents"),
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_can_be_read_stays_as_it_is(text):
    assert screen.printable(text) == text


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_what_is_not_to_be_seen_is_shown_as_its_escape(text, shown):
    assert screen.printable(text) == shown


def test_a_text_that_would_push_everything_off_the_screen_is_cut():
    shown = screen.printable("x" * (screen.LINE_LIMIT + 5))
    assert (len(shown) <= screen.LINE_LIMIT, shown.endswith(" more characters)")) == (True, True)


@given(ANY_TEXT)
def test_every_text_is_one_line_that_moves_nothing(text):
    shown = screen.printable(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.bidirectional(c) in {"RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI"} for c in shown)


@given(st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=4))
def test_json_says_the_same_and_moves_nothing(content):
    text = screen._json(content)
    assert json.loads(text) == content
    assert all(line.isprintable() for line in text.split("\n"))


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=4))
def test_yaml_says_the_same_and_moves_nothing(content):
    text = screen._yaml([content], marked=False)
    assert yaml.safe_load(text) == content
    assert all(line.isprintable() for line in text.split("\n"))


def test_several_documents_are_one_stream(capsys):
    screen.emit_documents([{"a": 1}, {"b": "x\u202ey"}])
    said = capsys.readouterr().out
    assert list(yaml.safe_load_all(said)) == [{"a": 1}, {"b": "x\u202ey"}]
    assert "\u202e" not in said


def test_a_cell_cannot_begin_a_row(capsys):
    screen.table(("NAME", "WHY"), [("a\nb   KEEP", "\x1b[8mhidden")], title="t\x1b[0m")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith(r"a\nb   KEEP")
