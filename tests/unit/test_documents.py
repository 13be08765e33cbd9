"""JSON documents of strangers: read whole or not at all, entry by entry, and never larger than their limits."""

import gzip
import json
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reprieve.adapters import documents, sizes
from reprieve.adapters.budget import account
from reprieve.adapters.documents import DocumentError, read_entries, read_json
from reprieve.adapters.sizes import MIB

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def packed(text):
    return gzip.compress(text if isinstance(text, bytes) else text.encode(), 1)


@given(st.lists(JSON, max_size=6), st.sampled_from([None, 1]), st.integers(1, 40), st.booleans())
@example([{"a": "é" * 10}], None, 1, True)
def test_entries_are_those_of_the_list(entries, indent, chunk, escaped):
    """However the text is cut into parts, and however it is written."""
    data = packed(json.dumps(entries, indent=indent, ensure_ascii=escaped))
    whole, documents.CHUNK = documents.CHUNK, chunk
    try:
        assert list(read_entries(data)) == entries
    finally:
        documents.CHUNK = whole


@given(JSON, st.integers(0, 60))
def test_what_is_cut_off_is_never_taken_for_whole(document, left):
    text = json.dumps([document, document])
    cut = text[: max(0, len(text) - 1 - left)]

    with pytest.raises(DocumentError):
        list(read_entries(packed(cut)))


@given(st.binary(max_size=200))
def test_anything_else_is_a_fault(data):
    """Whatever bytes: no other exception, neither as a packed list nor as a document."""
    for read in (lambda: list(read_entries(packed(data))), lambda: list(read_entries(data)), lambda: read_json(data)):
        with suppress(DocumentError):
            assert read() is not Ellipsis


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("null", None, id="null"),
        pytest.param(" [ ] ", None, id="empty"),
        pytest.param("", "there is nothing in it", id="nothing"),
        pytest.param(" ", "there is nothing in it", id="space"),
        pytest.param("{}", "it is a dict, not a list", id="an-object"),
        pytest.param('"a"', "it is a str, not a list", id="a-text"),
        pytest.param("nul", "it is not JSON", id="half-a-null"),
        pytest.param("null null", "something follows after its end", id="two-nulls"),
        pytest.param("[1 2]", "a comma or the end of the list is missing", id="no-comma"),
        pytest.param("[1,]", "it is not JSON", id="a-comma-too-many"),
        pytest.param("[1", "a comma or the end of the list is missing", id="no-end"),
        pytest.param("[1]]", "something follows after the list", id="two-ends"),
        pytest.param("[1][2]", "something follows after the list", id="two-lists"),
        pytest.param('["a', "Unterminated string starting at at character 1", id="a-text-without-end"),
        pytest.param("[" + "9" * 5000 + "]", "digits", id="a-number-longer-than-python-reads"),
        pytest.param("[" * 100_000, "recursion", id="too-deep"),
    ],
)
def test_each_fault_is_told(text, why):
    if why is None:
        assert list(read_entries(packed(text))) == []
        return
    with pytest.raises(DocumentError, match=why):
        list(read_entries(packed(text)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "truncated after 0 bytes", id="empty"),
        pytest.param(b"hello", "not gzip", id="not-gzip"),
        pytest.param(packed("[]")[:-3], "truncated", id="cut-in-its-checksum"),
        pytest.param(packed("[]") + b"more", "4 bytes follow after its end", id="more"),
        pytest.param(packed("[]") + b"m" * 300_000, "300000 bytes follow after its end", id="much-more"),
        pytest.param(packed("[]")[:-8] + bytes(8), "not gzip", id="a-wrong-checksum"),
        pytest.param(packed(b'["\xff"]'), "no UTF-8", id="no-text"),
        pytest.param(packed(b"[]\xc3"), "no UTF-8", id="half-a-character-at-the-end"),
        pytest.param(packed(b" " * (sizes.UNPACKED + 1)), "unpacks to more than 64 MiB", id="too-much-space"),
        pytest.param(packed(b"[" + b"1," * sizes.ENTRIES + b"1]"), "more than 60000 entries", id="too-many-entries"),
        pytest.param(packed(b'["' + b"a" * 3 * MIB + b'"]'), "an entry of more than 2 MiB", id="a-large-entry"),
        pytest.param(packed(b"[[" + b"[]," * 600_000 + b"0]]"), "some 3.* values, and would take", id="a-dense-entry"),
    ],
)
def test_what_is_no_list_or_too_large_is_refused(data, why):
    with pytest.raises(DocumentError, match=why):
        list(read_entries(data))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"[" + b"[]," * 10_000_000, id="a-list-of-brackets"),
        pytest.param(b"[" + b" " * 40_000_000, id="space"),
        pytest.param(b'["' + b"a" * 40_000_000, id="one-text"),
        pytest.param(b'["' + "é".encode() * 10_000_000, id="one-wide-text"),
        pytest.param(b"[" + b'{"a":{"b":{}}},' * 1_000_000, id="objects"),
    ],
)
def test_a_small_file_that_unpacks_to_much_costs_little(text):
    """A gzipped list of 189 KB took 662 MiB."""
    data = packed(text)
    del text
    tracemalloc.start()
    try:
        with account() as ours, pytest.raises(DocumentError):
            for _ in read_entries(data):
                pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 24 * MIB
    assert ours.held == 0


def test_a_large_list_of_what_velero_writes_is_read():
    """10,000 volumes of 2 KB each."""
    entry = {"metadata": {"name": "n" * 60}, "spec": {"tags": {f"tag-{n}": "v" * 40 for n in range(30)}}, "status": {}}
    text = b"[" + b",".join([json.dumps(entry).encode()] * 10_000) + b"]"
    data = packed(text)

    assert len(data) < sizes.PACKED
    with account():
        assert sum(1 for _ in read_entries(data)) == 10_000


def test_a_whole_document_is_read_or_refused():
    assert read_json(b'{"a": [1, null]}') == {"a": [1, None]}
    for data, why in [
        (b"{", "it is not JSON"),
        (b"[" * 100_000, "recursion"),
        (b"[]," * 400_000, "would take 101 MiB"),
    ]:
        with pytest.raises(DocumentError, match=why):
            read_json(data)
