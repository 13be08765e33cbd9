"""Which keys can be asked for byte for byte, and how they hang below a prefix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.cloud.buckets_keys import check_directory, check_key, common_directory, join, strip
from reprieve.core.errors import InvalidError

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


@given(st.lists(KEYS, min_size=1, max_size=5))
def test_the_common_directory_holds_every_key(keys):
    directory = common_directory(keys)
    assert all(key.startswith(f"{directory}/") or not directory for key in keys)
    assert directory not in keys or any(key.startswith(f"{directory}/") for key in keys)
