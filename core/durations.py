"""Durations as Go and Kubernetes write them: ``1h``, ``1m30s``, ``250ms``."""

from __future__ import annotations

import re
from datetime import timedelta

LONGEST_TEXT = 64
"""Characters: more than any duration needs, and a pattern is not run over what a stranger made longer."""
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d{1,19}(?:\.\d{1,19})?)(h|ms|us|µs|ns|m|s)")
_WHOLE = re.compile(rf"-?(?:{_PART.pattern})+", re.ASCII)


def parse_duration(text: object) -> timedelta | None:
    """Read a Go duration (``1h30m``; ``0`` alone is allowed); None for anything else, and for one out of range."""
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        return None
    if text == "0":
        return timedelta(0)
    if _WHOLE.fullmatch(text) is None:
        return None
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        return timedelta(seconds=-seconds if text.startswith("-") else seconds)
    except OverflowError:
        return None


def format_duration(span: timedelta) -> str:
    """Write a duration in hours, minutes and whole seconds, largest first: ``1h30m``, ``45s``, ``0s``."""
    left = round(abs(span.total_seconds()))
    parts = [(left // 3600, "h"), (left % 3600 // 60, "m"), (left % 60, "s")]
    body = "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
    return f"-{body}" if span < timedelta(0) and left else body
