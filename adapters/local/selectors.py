"""Label and field selectors, in the full syntax of the API (``=``, ``==``, ``!=``, ``in``, ``notin``, ``exists``.

``!exists``).

Guarantee: what the API server refuses as unparsable is refused here (``ValueError``), never matched loosely.
Not guaranteed: field selectors other than ``metadata.name`` and ``metadata.namespace``; these are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_PREFIX = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
LABEL_KEY = re.compile(rf"(?:{_PREFIX}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_TERM = re.compile(
    r"\s*(?:(?P<not>!)\s*(?P<absent>[^\s,=!()]+)"
    r"|(?P<key>[^\s,=!()]+)(?:\s*(?P<op>==|=|!=)\s*(?P<value>[^\s,=!()]*)"
    r"|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?P<end>,|$)"
)
_LABEL_LIMIT = 63
_PREFIX_LIMIT = 253
_FIELD = re.compile(r"\s*(?P<key>[^\s=!,]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^,=!]*?)\s*(?P<end>,|$)")

Match = Callable[[Mapping[str, Any]], bool]
"""Whether an object's JSON matches."""


def is_label_key(key: str) -> bool:
    """Whether a string can be a label's key (optional DNS prefix, a slash, a name of at most 63 characters)."""
    prefix, _, name = key.rpartition("/")
    return LABEL_KEY.fullmatch(key) is not None and len(name) <= _LABEL_LIMIT and len(prefix) <= _PREFIX_LIMIT


def is_label_value(value: str) -> bool:
    """Whether a string can be a label's value."""
    return len(value) <= _LABEL_LIMIT and LABEL_VALUE.fullmatch(value) is not None


def label_selector(text: str) -> Match:
    """Parse a label selector; an empty one matches everything. Raises ``ValueError``."""
    terms = [_label_term(found) for found in _terms(_TERM, text)]
    return lambda obj: all(term(_labels(obj)) for term in terms)


def field_selector(text: str) -> Match:
    """Parse a field selector over ``metadata.name`` and ``metadata.namespace``. Raises ``ValueError``."""
    terms = [_field_term(found) for found in _terms(_FIELD, text)]
    return lambda obj: all(term(obj) for term in terms)


def _terms(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Cut a selector into its terms, all of it."""
    terms: list[re.Match[str]] = []
    position = 0
    while text.strip() and (position < len(text) or (terms and terms[-1]["end"])):
        found = pattern.match(text, position)
        if found is None:
            raise ValueError(f"unable to parse requirement: {text!r} at {position}")
        terms.append(found)
        position = found.end()
    return terms


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    labels = (obj.get("metadata") or {}).get("labels")
    return labels if isinstance(labels, Mapping) else {}


def _label_term(found: re.Match[str]) -> Match:
    key = found["absent"] or found["key"]
    if not is_label_key(key):
        raise ValueError(f"unable to parse requirement: {key!r} is no label key")
    if found["not"]:
        return lambda labels: key not in labels
    if found["op"] is None and found["set"] is None:
        return lambda labels: key in labels
    values = frozenset(_values(found))
    if found["op"] == "!=" or found["set"] == "notin":
        return lambda labels: labels.get(key) not in values
    return lambda labels: labels.get(key) in values


def _values(found: re.Match[str]) -> list[str]:
    values = [found["value"]] if found["set"] is None else [v.strip() for v in found["values"].split(",")]
    wrong = [v for v in values if not is_label_value(v)]
    if wrong:
        raise ValueError(f"unable to parse requirement: {wrong[0]!r} is no label value")
    return values


def _field_term(found: re.Match[str]) -> Match:
    section, _, name = found["key"].partition(".")
    if section != "metadata" or name not in {"name", "namespace"}:
        raise ValueError(f"field label not supported: {found['key']}")
    value, same = found["value"], found["op"] != "!="
    return lambda obj: ((obj["metadata"].get(name) or "") == value) is same
