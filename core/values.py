"""Building blocks of every core value: a frozen mapping, instants as RFC 3339 text, and the way to plain data.

Guarantee: values are immutable and compare by content; equal content gives equal plain data.
Not guaranteed: that plain data tells every type apart by itself; ``plain`` knows the way back.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import attrs

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class FrozenMap(Mapping[K, V_co]):
    """An immutable, hashable mapping that keeps its keys sorted, so that equal content gives equal bytes."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V_co] | None = None) -> None:
        """Take a copy of ``items``; later changes of the original are not seen."""
        pairs = sorted((items or {}).items(), key=lambda pair: str(pair[0]))
        self._items: dict[K, V_co] = dict(pairs)

    def __getitem__(self, key: K) -> V_co:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def string_map(items: Mapping[str, str] | None) -> FrozenMap[str, str]:
    """Converter for attrs fields: any mapping of strings (or nothing) becomes a ``FrozenMap``."""
    return items if isinstance(items, FrozenMap) else FrozenMap(items)


def as_tuple(items: Iterable[Any]) -> tuple[Any, ...]:
    """Converter for attrs fields: any iterable becomes a tuple (``tuple`` itself tells a type checker too little)."""
    return tuple(items)


def as_set(items: Iterable[Any]) -> frozenset[Any]:
    """Converter for attrs fields: any iterable becomes a frozen set."""
    return frozenset(items)


TEXT_LIMIT = 1024  # characters: more of one text of a stranger nobody reads in an event, a status or a line of a log


def cut(text: object, *, limit: int = TEXT_LIMIT) -> str:
    """``text`` in at most ``limit`` characters; where there is room, how many were left out is said at its end.

    For every text that a stranger wrote, before a pattern, a message or a status gets it. Total: an object is taken
    as ``str`` shows it (bytes as UTF-8), one that cannot be shown is named by its type, and half a surrogate pair,
    which no file or API takes, is replaced. What is short enough stays as it is, so to cut twice is to cut once.
    """
    try:
        whole = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    except Exception:  # noqa: BLE001 -- a stranger's value may fail in any way when it is asked for its text
        whole = f"<{type(text).__name__} that cannot be shown>"
    if len(whole) > limit:
        # The note takes its room from the text: as much as the longest number needs that it may have to hold.
        room = limit - len(f" … ({len(whole)} more characters)")
        whole = f"{whole[:room]} … ({len(whole) - room} more characters)" if room > 0 else whole[: max(limit, 0)]
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


ERRORS_LIMIT = 20
ERRORS_BYTES = 32_000


def bounded(errors: Iterable[str], *, last: str = "") -> tuple[str, ...]:
    """So many errors as a status may carry: at most 20 texts of together 32,000 bytes of JSON, the last "and N more".

    ``last`` is said at the end whatever is left out. What is within the bounds stays as it is, so to bound twice is to
    bound once. Every writer of errors goes through here: a status that outgrows what the API server takes is never
    written, and then nobody learns of any of them.
    """
    every, end = tuple(errors), (last,) if last else ()
    room = ERRORS_LIMIT - len(end)
    kept = every if len(every) <= room else every[: room - 1]
    more = (f"and {len(every) - len(kept)} more",) if len(every) > len(kept) else ()
    told = (*kept, *more, *end)
    share = ERRORS_BYTES // ERRORS_LIMIT if len(told) > 1 else ERRORS_BYTES
    return tuple(_fitted(text, share) for text in told)


_ESCAPED = 12  # bytes: the longest that one character becomes in JSON


def _fitted(text: str, room: int) -> str:
    short = cut(text, limit=room - 4)  # two quotes, a comma, a space
    return short if len(json.dumps(short)) + 2 <= room else cut(short, limit=room // _ESCAPED - 4)


def joined(texts: Iterable[str], *, by: str = ", ") -> str:
    """Texts in one sentence, as many as ``bounded`` lets through."""
    return by.join(bounded(texts))


def parse_instant(text: object) -> datetime | None:
    """Read an RFC 3339 instant, to UTC; None for anything else, an instant without an offset included."""
    if not isinstance(text, str):
        return None
    try:
        instant = datetime.fromisoformat(text.strip())
        return instant.astimezone(UTC) if instant.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def later(instant: datetime, delta: timedelta) -> datetime:
    """``instant`` and ``delta`` (which may be negative) added up; beyond the calendar it is its first or last instant.

    The one sum of a date and a span: dates are written by strangers, and ``9999-12-31`` and a second are no date, which
    raises wherever it is not thought of. The instant's time zone stays.
    """
    try:
        return instant + delta
    except OverflowError:
        zone = instant.tzinfo
        return datetime.max.replace(tzinfo=zone) if delta > timedelta(0) else datetime.min.replace(tzinfo=zone)


def format_instant(instant: datetime) -> str:
    """Write an instant as Kubernetes does: UTC, a trailing Z, fractions only where there are some."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def to_plain(value: Any) -> Any:
    """Turn a core value into dicts, lists, strings, numbers and booleans.

    An attrs class becomes a dict with its name as ``type``; a field that is called ``type`` goes under ``type_``.
    """
    match value:
        case enum.Enum():
            return value.value
        case datetime():
            return format_instant(value)
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): to_plain(item) for key, item in value.items()}
        case frozenset() | set():
            return sorted((to_plain(item) for item in value), key=repr)
        case tuple() | list():
            return [to_plain(item) for item in value]
        case _ if attrs.has(type(value)):
            fields = {plain_name(f.name): to_plain(getattr(value, f.name)) for f in attrs.fields(type(value))}
            return {"type": type(value).__name__, **fields}
        case _:
            return value


def plain_name(field: str) -> str:
    """The key of a field in plain data; ``type`` is taken by the name of the class."""
    return "type_" if field == "type" else field
