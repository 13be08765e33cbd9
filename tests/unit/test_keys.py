"""Which keys can be asked for byte for byte, and how they hang below a prefix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.errors import InvalidError
from reprieve.core.keys import check_directory, check_key, common_directory, full_key, join, start_of, strip

SEGMENTS = st.text(st.characters(min_codepoint=32, exclude_characters="/\x7f", exclude_categories=["Cs"]), min_size=1)
KEYS = st.lists(SEGMENTS.filter(lambda s: s not in {".", ".."}), min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        pytest.param("", "empty", id="empty"),
        pytest.param("/a", "slash", id="leading-slash"),
        pytest.param("a/", "slash", id="trailing-slash"),
        pytest.param("a//b", "slash", id="two-slashes"),
        pytest.param("a/./b", "segment", id="dot"),
        pytest.param("../a", "segment", id="dot-dot"),
        pytest.param("a\x1fb", "control", id="control"),
        pytest.param("a\x7fb", "control", id="delete"),
        pytest.param("\udce4", "Unicode", id="lone-surrogate"),
        pytest.param("ä" * 513, "1026 bytes", id="too-long-in-bytes"),
    ],
)
def test_keys_that_would_become_others_are_refused_with_the_reason(key, why):
    with pytest.raises(InvalidError, match=why):
        check_key(key)


@pytest.mark.parametrize("key", ["a", "..a", "a..", ".a", "a%2Fb", "a b", "ä" * 512, "a\\b"])
def test_all_others_pass_unchanged(key):
    assert check_key(key) == key


def test_a_character_that_a_provider_changes_is_refused():
    with pytest.raises(InvalidError, match="has a"):
        check_key("a\\b", refused="\\")


def test_a_prefix_may_be_empty_or_end_with_one_slash():
    assert [check_directory(p) for p in ("", "a", "a/", "a/b/")] == ["", "a", "a", "a/b"]


@pytest.mark.parametrize("prefix", ["/", "//", "a//", "/a", "a/../"])
def test_other_prefixes_are_refused(prefix):
    with pytest.raises(InvalidError):
        check_directory(prefix)


@given(prefix=st.just("") | KEYS, key=KEYS)
def test_a_key_comes_back_from_below_its_prefix(prefix, key):
    assert strip(prefix, join(prefix, key)) == key


@given(prefix=st.just("") | KEYS, key=KEYS)
def test_a_full_key_lies_below_its_prefix(prefix, key):
    assert full_key(prefix, key) == start_of(prefix) + key


@pytest.mark.parametrize(
    ("prefix", "key", "why"),
    [
        pytest.param("team", "", "empty", id="the-prefix-itself"),
        pytest.param("team", "../other", "segment", id="out-of-the-prefix"),
        pytest.param("x" * 1020, "abcd", "1025 bytes", id="too-long-together"),
        pytest.param("team", "a\\b", "has a", id="refused-by-the-store"),
    ],
)
def test_a_key_that_is_none_below_its_prefix_is_refused(prefix, key, why):
    with pytest.raises(InvalidError, match=why):
        full_key(prefix, key, refused="\\")


@pytest.mark.parametrize(
    ("keys", "directory"),
    [
        pytest.param((), "", id="none"),
        pytest.param(("a/b/1",), "a/b", id="one"),
        pytest.param(("a/b/1", "a/b/c/2"), "a/b", id="one-deeper"),
        pytest.param(("a/b/1", "a/bc/1"), "a", id="names-that-begin-alike"),
        pytest.param(("a", "a/b"), "", id="a-file-beside-its-directory"),
    ],
)
def test_the_common_directory(keys, directory):
    assert common_directory(keys) == directory


@given(st.lists(KEYS, min_size=1, max_size=5))
def test_the_common_directory_holds_every_key(keys):
    directory = common_directory(keys)
    assert all(key.startswith(start_of(directory)) for key in keys)
