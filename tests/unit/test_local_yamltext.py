"""YAML and JSON texts: what each says, where it stands, and what is written reads back."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.local.yamltext import SyntaxFault, read_json, read_yaml, scalar, write_item, write_yaml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.sampled_from(
    [
        "no",
        "on",
        "yes",
        "off",
        "y",
        "n",
        "null",
        "~",
        "true",
        "1e3",
        "0o7",
        "0x1F",
        "012",
        "12:30:45",
        "2020-01-01",
        ".inf",
        ".nan",
        "=",
        "<<",
        "-",
        "?",
        "#",
        "&",
        "*",
        "!",
        "|",
        ">",
        "%",
        "@",
        "`",
        "1_000",
        "+1",
        ".5",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_is_written_reads_back(data):
    (found,) = read_yaml(write_yaml(data))
    assert found.data == data
    assert type(found.data) is type(data)


@given(st.dictionaries(TEXT, JSON, min_size=1, max_size=4), st.integers(0, 4))
def test_an_item_that_is_written_reads_back_in_its_place(data, indent):
    first, last = write_item({"a": 1}, indent), write_item({"z": 1}, indent)
    (found,) = read_yaml("items:\n" + first + write_item(data, indent) + last)
    assert found.data == {"items": [{"a": 1}, data, {"z": 1}]}


@given(st.dictionaries(TEXT | WORDS, TEXT | WORDS, max_size=4))
def test_strings_that_are_written_are_strings_for_a_reader_of_yaml_1_1_too(data):
    assert yaml.safe_load(write_yaml(data)) == data


@given(st.text(max_size=60))
def test_any_text_is_documents_or_a_syntax_fault(text):
    for read in (read_yaml, read_json):
        try:
            found = read(text)
        except SyntaxFault as fault:
            assert str(fault)  # noqa: PT017 - both ends are right
        else:
            assert all(0 <= each.whole.start <= each.content.start <= each.content.end <= len(text) for each in found)
            json.dumps([each.data for each in found], allow_nan=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("12:30:45", "12:30:45"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("1_000", "1_000"),
        ("true", True),
        ("~", None),
        ("", None),
        ("0644", 420),
        ("0o644", 420),
        ("0x1f", 31),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
    ],
)
def test_plain_scalars(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 10)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        pytest.param("a: 1\nb: [1\nc: 2", "flow sequence", 3, id="unclosed"),
        pytest.param("a: 1\nb: 2\na: 3\n", "'a' is there twice", 3, id="duplicate-key"),
        pytest.param("a: 1\n---\nb: !!python/object:os.system x\n", "tag", 3, id="tag"),
        pytest.param("a: *nothing\n", "nothing", 1, id="unknown-alias"),
        pytest.param("a: &a [*a]\n", "not complete", 1, id="alias-in-its-own-anchor"),
        pytest.param("? [1, 2]\n: 3\n", "cannot be a key", 1, id="list-as-key"),
        pytest.param("a: 1\nb: \x07\n", "control characters", 2, id="control-character"),
        pytest.param("a: \t- b\n", ".", 1, id="tab"),
        pytest.param("[" * 5000, ".", 1, id="deep-flow"),
        pytest.param("".join(f"{' ' * n}a:\n" for n in range(200)), "nested deeper", 101, id="deep-block"),
        pytest.param(BOMB, "aliases expand", 5, id="alias-bomb"),
    ],
)
def test_faults_say_the_line(text, what, line):
    with pytest.raises(SyntaxFault, match=what) as caught:
        read_yaml(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": 1,}', "."),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "NaN"),
        ("[" * 100_000, "nested"),
        ('{"a": "', "Unterminated"),
        ('{"a": ' + "9" * 5000 + "}", "."),
    ],
)
def test_json_faults(text, what):
    with pytest.raises(SyntaxFault, match=what):
        read_json(text)


def test_merge_keys_and_aliases():
    (found,) = read_yaml("base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\nagain: *b\n")
    assert found.data["mine"] == {"x": 1, "y": 3}
    assert found.data["again"] == {"x": 1, "y": 2}


def test_documents_cover_the_text():
    text = "# head\na: 1\n# after\n---\n# own\nb: 2 # same line\n\n# tail\n--- {c: 3}\n---\n"
    found = read_yaml(text)
    assert "".join(text[each.whole.start : each.whole.end] for each in found) == text
    contents = [text[each.content.start : each.content.end] for each in found]
    assert contents[:3] == ["a: 1\n", "b: 2 # same line\n", "{c: 3}\n"]
    assert [each.data for each in found] == [{"a": 1}, {"b": 2}, {"c": 3}, None]


def test_the_items_of_a_block_list_have_their_lines():
    text = "kind: List\nitems:\n  - a: 1\n    t: |\n      x\n      y\n  # between\n  - b: 2\nmetadata: {}\n"
    (found,) = read_yaml(text)
    assert found.indent == 2
    assert [text[span.start : span.end] for span in found.items] == [
        "  - a: 1\n    t: |\n      x\n      y\n",
        "  - b: 2\n",
    ]
    assert read_yaml("kind: List\nitems: [{a: 1}, {b: 2}]\n")[0].items == ()


def test_text_of_several_lines_is_written_as_such():
    assert write_yaml({"script": "a\nb\n"}) == "script: |\n  a\n  b\n"
