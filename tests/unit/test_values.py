"""The building blocks: frozen maps, instants, and plain data there and back."""

import importlib
import json
import pkgutil
from datetime import UTC, datetime, timedelta, timezone

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from reprieve import core
from reprieve.core.backups import RequestPhase, RequestState
from reprieve.core.objects import ObjectKind, ObjectMeta, Resource
from reprieve.core.plain import MODULES, from_plain
from reprieve.core.values import (
    TEXT_LIMIT,
    FrozenMap,
    bounded,
    cut,
    format_instant,
    joined,
    later,
    parse_instant,
    string_map,
    to_plain,
)
from tests.unit.builders import NOW, a_backup, a_location
from tests.unit.strategies import INSTANTS, classes, values

MAPS = st.dictionaries(st.text(max_size=3), st.integers(), max_size=5)


# A date and a span

LAST, FIRST = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("instant", "delta", "expected"),
    [
        pytest.param(NOW, timedelta(hours=1), datetime(2024, 4, 4, 13, tzinfo=UTC), id="an-hour"),
        pytest.param(NOW, timedelta(0), NOW, id="nothing"),
        pytest.param(NOW, -timedelta(days=1), datetime(2024, 4, 3, 12, tzinfo=UTC), id="back"),
        pytest.param(parse_instant("9999-12-31T00:00:00Z"), timedelta(days=1), LAST, id="beyond-the-last-day"),
        pytest.param(NOW, timedelta.max, LAST, id="a-span-beyond-the-calendar"),
        pytest.param(FIRST, -timedelta(seconds=1), FIRST, id="before-the-first-day"),
        pytest.param(NOW, timedelta.min, FIRST, id="far-back"),
    ],
)
def test_a_date_and_a_span_are_always_a_date(instant, delta, expected):
    """A hold until 9999 and a minute more: the sum raised wherever nobody had thought of it."""
    assert later(instant, delta) == expected


@given(INSTANTS, st.timedeltas())
def test_a_sum_never_raises_and_goes_the_right_way(instant, delta):
    total = later(instant, delta)
    assert total.tzinfo is instant.tzinfo
    assert (total >= instant) if delta >= timedelta(0) else (total <= instant)
    assert total in {LAST, FIRST} or total - instant == delta


# Texts of strangers


class Unshowable:
    def __str__(self):
        raise SystemError("no text")  # neither a ValueError nor a TypeError: whatever a native part may raise


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        pytest.param("", 10, "", id="empty"),
        pytest.param("short", 5, "short", id="fits-exactly"),
        pytest.param("a" * 60, 40, "a" * 17 + " … (43 more characters)", id="counted"),
        pytest.param("a" * 60, 10, "a" * 10, id="no-room-for-the-count"),
        pytest.param("abc", 0, "", id="nothing-is-let-through"),
        pytest.param("abc", -3, "", id="a-limit-below-nothing"),
        pytest.param(None, 10, "None", id="no-text"),
        pytest.param(b"caf\xc3\xa9\xff", 10, "café\ufffd", id="bytes"),
        pytest.param(ValueError("why"), 10, "why", id="exception"),
        pytest.param(10**5000, 80, "<int that cannot be shown>", id="number-too-long-for-python"),
        pytest.param(Unshowable(), 80, "<Unshowable that cannot be shown>", id="fails-when-asked"),
        pytest.param("a\ud800b", 10, "a\ufffdb", id="half-a-surrogate-pair"),
        pytest.param("\ud83d\ude00", 10, "😀", id="both-halves"),
    ],
)
def test_a_strangers_text_is_cut(text, limit, expected):
    assert cut(text, limit=limit) == expected


# Errors in a status


MANY = [f"error deleting snapshot snap-{number:05}: in use" for number in range(20_000)]


@pytest.mark.parametrize(
    ("errors", "last", "told"),
    [
        pytest.param([], "", (), id="none"),
        pytest.param(["one"], "", ("one",), id="one"),
        pytest.param([], "gave up", ("gave up",), id="only-the-last-word"),
        pytest.param(MANY[:20], "", tuple(MANY[:20]), id="as-many-as-fit"),
        pytest.param(MANY[:21], "", (*MANY[:19], "and 2 more"), id="one-too-many"),
        pytest.param(MANY, "", (*MANY[:19], "and 19981 more"), id="thousands"),
        pytest.param(MANY, "gave up", (*MANY[:18], "and 19982 more", "gave up"), id="thousands-and-a-last-word"),
        pytest.param(["a" * 20_000], "", ("a" * 20_000,), id="a-single-long-one-stays-whole"),
    ],
)
def test_a_status_carries_twenty_errors_and_how_many_more_there_are(errors, last, told):
    assert bounded(errors, last=last) == told


def test_texts_in_a_sentence_are_as_many_as_a_status_carries():
    assert joined(["a", "b"]) == "a, b"
    assert joined(MANY, by="; ").endswith("snap-00018: in use; and 19981 more")


@given(
    st.lists(st.text(st.characters(codec=None), max_size=60).map(lambda text: text * 600), max_size=30),
    st.text(max_size=5),
)
def test_errors_are_bounded_whatever_they_say(errors, last):
    """Escapes count as well: a control character is six bytes in JSON, an emoji twelve."""
    told = bounded(errors, last=last)

    assert len(told) <= 20
    assert len(json.dumps(told)) <= 32_000
    assert bounded(told) == told
    assert told[-1:] == ((last,) if last else told[-1:])


def test_without_a_limit_of_its_own_a_text_has_the_common_one():
    assert cut("a" * TEXT_LIMIT) == "a" * TEXT_LIMIT
    assert cut("a" * 20_000_000).endswith("a … (19999005 more characters)")


@given(st.text(st.characters(codec=None), max_size=80), st.integers(-5, 90))
def test_what_is_cut_is_short_can_be_written_and_stays_as_it_is(text, limit):
    once = cut(text, limit=limit)

    assert len(once) <= max(limit, 0)
    assert once.encode().decode() == once
    assert cut(once, limit=limit) == once


# Frozen maps


@given(MAPS)
def test_a_frozen_map_is_its_content(items):
    frozen = FrozenMap(items)

    assert frozen == items
    assert len(frozen) == len(items)
    assert list(frozen) == sorted(items)
    assert all(frozen[key] == items[key] for key in items)
    assert repr(frozen) == repr(dict(sorted(items.items())))


@given(MAPS)
def test_equal_content_is_one_key(items):
    """Whatever the order of insertion: equal, equal hash, equal text."""
    there, back = FrozenMap(items), FrozenMap(dict(reversed(items.items())))

    assert there == back
    assert hash(there) == hash(back)
    assert repr(there) == repr(back)


def test_a_frozen_map_is_a_copy():
    original = {"a": 1}
    frozen = FrozenMap(original)
    original["a"] = 2

    assert frozen["a"] == 1
    assert FrozenMap() == FrozenMap(None) == {}
    assert string_map(frozen) is frozen


def test_a_frozen_map_cannot_be_written():
    with pytest.raises(TypeError):
        FrozenMap({"a": 1})["a"] = 2


# Instants


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-04-04T12:00:00Z", NOW),
        (" 2024-04-04T12:00:00Z ", NOW),
        ("2024-04-04T14:00:00+02:00", NOW),
        ("2024-04-04T12:00:00.123456789Z", NOW.replace(microsecond=123456)),
    ],
)
def test_an_instant(text, instant):
    assert parse_instant(text) == instant


@pytest.mark.parametrize(
    "text",
    [None, 7, NOW, "", "now", "2024-04-04", "2024-04-04T12:00:00", "2024-02-30T00:00:00Z", "0001-01-01T00:00:00+14:00"],
)
def test_no_instant(text):
    """An instant without an offset is none: nobody knows which one it would be."""
    assert parse_instant(text) is None


@given(INSTANTS)
def test_an_instant_there_and_back(instant):
    assert parse_instant(format_instant(instant)) == instant


def test_an_instant_is_written_as_kubernetes_does():
    assert format_instant(NOW.astimezone(timezone(timedelta(hours=5)))) == "2024-04-04T12:00:00Z"
    assert format_instant(datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC)) == "2024-01-01T00:00:00.000005Z"


# Plain data


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_every_core_value_round_trips(cls):
    """Everything is frozen, hashable where it can be, prints readably, and round-trips through plain dicts."""

    @settings(max_examples=10, phases=[Phase.generate])
    @given(values(cls))
    def round_trips(value):
        plain = to_plain(value)

        assert json.loads(json.dumps(plain)) == plain
        assert from_plain(plain) == value
        assert hash(from_plain(plain)) == hash(value)
        assert cls.__name__ in repr(value)

    round_trips()


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_every_core_value_is_frozen(cls):
    @settings(max_examples=1, phases=[Phase.generate])
    @given(values(cls))
    def frozen(value):
        for field in attrs.fields(cls):
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                setattr(value, field.name, None)

    frozen()


def all_modules():
    names = [module.name for module in pkgutil.iter_modules(core.__path__)]
    return [importlib.import_module(f"reprieve.core.{name}") for name in sorted(names)]


def own_values(module):
    return {
        n
        for n, item in vars(module).items()
        if isinstance(item, type) and attrs.has(item) and item.__module__ == module.__name__
    }


def test_every_module_with_values_is_known():
    """A value of a module that is not in the list could be written, but not read back."""
    assert {m.__name__ for m in all_modules() if own_values(m)} == {m.__name__ for m in MODULES}


def test_no_two_values_have_one_name():
    """Plain data knows a value by its class's name alone."""
    names = [name for module in MODULES for name in own_values(module)]

    assert sorted(names) == sorted(set(names))


def test_labels_and_bodies_are_not_taken_for_values():
    """A label that is called "type", a Service's type: free mappings stay as they are."""
    service = Resource(
        ObjectKind("v1", "Service"), ObjectMeta("x", labels={"type": "Done"}), {"type": "Done", "spec": {}}
    )

    assert from_plain(to_plain(service)) == service


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "None is not a value of reprieve.core"),
        ({"type": "Nothing at all"}, "'Nothing at all' is not a value of reprieve.core"),
        ({"type": "Done", "colour": "red", "b": 1}, "Done has no field b, colour"),
    ],
    ids=["no-type", "unknown-type", "unknown-field"],
)
def test_what_is_not_known_is_said(data, message):
    with pytest.raises(ValueError, match=message):
        from_plain(data)


def test_plain_data():
    assert to_plain(RequestPhase.NEW) == "New"
    assert to_plain({"b": {1, 3, 2}, 1: timedelta(minutes=1)}) == {"b": [1, 2, 3], "1": 60.0}
    assert to_plain(RequestState(uid="u", first_attempt=NOW))["first_attempt"] == "2024-04-04T12:00:00Z"


def test_values_can_be_keys():
    assert len({a_backup(), a_backup(), a_location()}) == 2
