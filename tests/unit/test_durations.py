"""Durations as Go writes them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "span"),
    [
        pytest.param("1h", timedelta(hours=1), id="hours"),
        pytest.param("1h30m", timedelta(minutes=90), id="hours-and-minutes"),
        pytest.param("1m0s", timedelta(minutes=1), id="as-kubernetes-writes-a-minute"),
        pytest.param("250ms", timedelta(milliseconds=250), id="milliseconds"),
        pytest.param("1.5h", timedelta(minutes=90), id="fraction"),
        pytest.param("-2m", timedelta(minutes=-2), id="negative"),
        pytest.param("0", timedelta(0), id="bare-zero"),
        pytest.param("", None, id="empty"),
        pytest.param("1", None, id="no-unit"),
        pytest.param("1d", None, id="no-such-unit"),
        pytest.param("1h ", None, id="space"),
        pytest.param("٣h", None, id="digits-of-another-script"),
        pytest.param("9" * 19 + "h", None, id="more-than-fits"),
        pytest.param("9" * 400 + "h", None, id="longer-than-any-is"),
        pytest.param(5, None, id="no-text"),
        pytest.param(None, None, id="nothing"),
    ],
)
def test_durations_are_read_as_go_reads_them(text, span):
    """What is no duration is none, never an exception."""
    assert parse_duration(text) == span


@given(st.integers(min_value=-(10**6), max_value=10**6))
def test_whole_seconds_come_back_as_written(seconds):
    """Writing and reading is the identity."""
    span = timedelta(seconds=seconds)
    assert parse_duration(format_duration(span)) == span
