"""hypothesis strategies for core values, built from the fields that attrs knows."""

import enum
import functools
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import attrs
from hypothesis import strategies as st

from reprieve.core.plain import MODULES
from reprieve.core.values import FrozenMap

TEXT = st.text(max_size=8)
FIRST, LAST = datetime(1, 1, 2), datetime(9999, 12, 30)  # noqa: DTZ001 (hypothesis adds the time zone)
INSTANTS = st.datetimes(FIRST, LAST, timezones=st.just(UTC))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT | st.just("type"), inner, max_size=2),
    max_leaves=4,
)
LEAVES = {
    str: TEXT,
    int: st.integers(),
    bool: st.booleans(),
    datetime: INSTANTS,
    timedelta: st.timedeltas(timedelta(-9999), timedelta(9999)),
}


def classes():
    """Every value of core by its name, in one order."""
    found = [item for module in MODULES for item in vars(module).values() if isinstance(item, type) and attrs.has(item)]
    return sorted(set(found), key=lambda cls: cls.__name__)


@functools.cache
def values(cls):
    """Values of one class, any content that its annotations allow."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: of(hints[field.name]) for field in attrs.fields(cls)})


@functools.cache
def of(hint):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([st.none() if each is type(None) else of(each) for each in arguments])
    if origin in (tuple, frozenset):
        return st.lists(of(arguments[0]), max_size=2).map(origin)
    if origin is FrozenMap:
        return st.dictionaries(TEXT | st.just("type"), TEXT, max_size=2).map(FrozenMap)
    if origin is Mapping:
        return st.dictionaries(TEXT | st.just("type"), JSON, max_size=2)
    return leaf(hint)


def leaf(hint):
    if attrs.has(hint):
        return st.deferred(lambda: values(hint))
    if issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    return LEAVES[hint]
