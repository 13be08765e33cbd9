"""The way back from plain data to core values, for logs and tests.

Guarantee: ``from_plain(to_plain(value)) == value`` for every frozen core value.
Not guaranteed: that plain data written by one release can be read by an older one.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from reprieve.core import (
    audit,
    backups,
    holds,
    marks,
    objects,
    outcomes,
    ports,
    protection,
    pruning,
    records,
    requests,
    retention,
    shield,
    steps,
    sync,
    witnesses,
)
from reprieve.core.values import parse_instant, plain_name


def from_plain(data: Mapping[str, Any]) -> Any:
    """Rebuild the core value that ``to_plain`` wrote. Raises ``ValueError`` when the type or a field is not known."""
    name = data.get("type")
    if name not in _KNOWN:
        raise ValueError(f"{name!r} is not a value of reprieve.core")
    return _build(_KNOWN[name], data)


def _is_value(item: object, module: str) -> bool:
    return isinstance(item, type) and attrs.has(item) and item.__module__ == module


MODULES = (
    audit,
    backups,
    holds,
    marks,
    objects,
    outcomes,
    ports,
    protection,
    pruning,
    records,
    requests,
    retention,
    shield,
    steps,
    sync,
    witnesses,
)
"""Every module of core that defines values; a test holds this list complete."""

_KNOWN: dict[str, type[Any]] = {
    name: item for module in MODULES for name, item in vars(module).items() if _is_value(item, module.__name__)
}


def _build(cls: type[Any], data: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    fields = {plain_name(f.name): f.name for f in attrs.fields(cls)}
    unknown = set(data) - set(fields) - {"type"}
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
    return cls(**{fields[n]: _shape(hints[fields[n]], item) for n, item in data.items() if n != "type"})


def _shape(hint: Any, data: Any) -> Any:
    """Give plain data the type that a field's annotation asks for. Free mappings (labels, bodies) stay as they are."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _shape_union(typing.get_args(hint), data)
    if origin in (tuple, frozenset):
        return origin(_shape(typing.get_args(hint)[0], item) for item in data)
    return from_plain(data) if attrs.has(hint) else _shape_leaf(hint, data)


def _shape_union(hints: tuple[Any, ...], data: Any) -> Any:
    """A union is of core values, which name their class, or of one plain type and None."""
    if data is None or isinstance(data, Mapping):
        return data if data is None else from_plain(data)
    return _shape(next(hint for hint in hints if hint is not type(None)), data)


def _shape_leaf(hint: Any, data: Any) -> Any:
    if hint is datetime:
        return parse_instant(data)
    if hint is timedelta:
        return timedelta(seconds=data)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(data)
    return data
