"""The budget of memory: who waits, who goes on, and that somebody always can. No test waits."""

import json
import threading
import tracemalloc
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters import budget, sizes
from reprieve.adapters.budget import Account, Budget, Tally, account, charge, charge_json, charge_xml
from reprieve.core.errors import TooMuchError, UnavailableError
from reprieve.core.objects import ObjectMeta, OwnerReference

FREE, RESERVE = 10, 100


def a_budget(**options):
    return Budget(FREE + RESERVE, largest=RESERVE, **({"wait": 0} | options))


def holds(each):
    return each.held


def test_a_share_comes_from_what_is_free_and_goes_back():
    budget = a_budget()
    first, second = Account(budget), Account(budget)
    first.charge(FREE, "a")
    first.settle(0)
    second.charge(FREE, "b")

    assert (first.held, second.held) == (0, FREE)


def test_beyond_what_is_free_one_goes_on_with_the_reserve_and_the_others_wait():
    budget = a_budget()
    giant, other = Account(budget), Account(budget)
    giant.charge(RESERVE, "a giant")
    other.charge(FREE, "a neighbour")

    with pytest.raises(UnavailableError, match="another: not read, since others took all the memory"):
        other.charge(1, "another")
    giant.settle(0)
    other.charge(1, "another")
    assert other.held == FREE + 1


def test_what_the_giant_held_before_is_free_for_others():
    """It came from what is free, and the reserve takes it over: the reserve is as large as any account."""
    budget = a_budget()
    giant, other = Account(budget), Account(budget)
    giant.charge(FREE, "begun small")
    giant.charge(RESERVE - FREE, "grown")
    other.charge(FREE, "a neighbour")

    assert (giant.held, other.held) == (RESERVE, FREE)


def test_a_giant_that_shrank_leaves_the_reserve_to_the_next():
    budget = a_budget()
    first, second = Account(budget), Account(budget)
    first.charge(RESERVE, "first")
    first.settle(1)
    second.charge(RESERVE, "second")

    assert (first.held, second.held) == (1, RESERVE)


def test_nobody_holds_more_than_the_largest():
    """Not even where nobody else holds anything: what comes next would wait for ever."""
    only = Account(a_budget())
    only.charge(RESERVE, "whole")

    with pytest.raises(TooMuchError, match="one more: reading it would take more than 0 MiB"):
        only.charge(1, "one more")


def test_who_waits_is_woken_by_what_is_given_back():
    budget = a_budget(wait=60)
    giant, waiting = Account(budget), Account(budget)
    giant.charge(RESERVE, "a giant")
    thread = threading.Thread(target=lambda: waiting.charge(RESERVE, "the next"))
    thread.start()
    giant.settle(0)
    thread.join()

    assert waiting.held == RESERVE


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=60))
def test_in_any_order_somebody_can_go_on_to_the_largest(charges):
    """Accounts grow in pieces; those that have to wait do nothing meanwhile. Never do all of them wait."""
    budget = a_budget()
    accounts = [Account(budget) for _ in range(4)]
    waiting = set()
    for number, size in charges:
        if number not in waiting and accounts[number].held + size <= RESERVE:
            try:
                accounts[number].charge(size, "a piece")
            except UnavailableError:
                waiting.add(number)
    going = [each for number, each in enumerate(accounts) if number not in waiting]

    assert sum(map(holds, accounts)) <= FREE + RESERVE
    assert going
    if waiting:
        privileged = budget._privileged
        privileged.charge(RESERVE - privileged.held, "all the rest")
        assert privileged.held == RESERVE
    for each in accounts:
        each.settle(0)
    Account(budget).charge(RESERVE, "everything was given back")
    Account(budget).charge(FREE, "everything was given back")


def test_within_an_account_all_is_charged_to_it_and_given_back():
    budget = a_budget()
    with account(budget) as outer, account(budget) as inner:
        charge(7, "a document")
        assert inner is outer
        assert outer.held == 7
    assert outer.held == 0


def test_what_fails_gives_back_too():
    budget = a_budget()
    with suppress(KeyError), account(budget) as failed:
        charge(RESERVE, "a document")
        _ = {}["a field that it lacks"]

    assert failed.held == 0


def test_without_an_account_nothing_is_held():
    charge(10 * sizes.BUDGET, "whoever has no account answers for himself")


# What things cost


@pytest.mark.parametrize(
    "unit",
    [b"[]", b"{}", b"1.5", b'"%d"', b'{"a":1}', b'{"a":{"b":{}}}', b'{"%d":1}', b'{"%d":{}}', b'"\xc3\xa9%d"', b"null"],
)
@pytest.mark.parametrize("read", [msgspec.json.decode, json.loads], ids=["msgspec", "json"])
def test_no_json_costs_more_than_it_is_charged(unit, read):
    data = b"[" + b",".join(unit.replace(b"%d", b"%d" % n) for n in range(20_000)) + b"]"
    with account() as ours:
        charge_json(data, "a document")
        charged = ours.held
    tracemalloc.start()
    try:
        kept = read(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert kept
    assert peak <= charged


@pytest.mark.parametrize(
    "text",
    [b'"\xf0\x9f\x98\x80' + b"a" * 100_000 + b'"', b'"\\ud83d\\ude00' + b"a" * 100_000 + b'"'],
    ids=["as-is", "escaped"],
)
def test_a_wide_character_makes_its_whole_string_wide(text):
    with account() as ours:
        charge_json(text, "a text")
        charged = ours.held

    assert charged > 4 * 100_000


@pytest.mark.parametrize(
    ("charged", "data"),
    [
        pytest.param(charge_json, b"[],", id="json-values"),
        pytest.param(charge_json, b"a" * 50, id="json-text"),
        pytest.param(charge_xml, b"<a/>", id="xml"),
    ],
)
def test_a_document_that_would_cost_too_much_is_refused_before_it_is_read(charged, data):
    with pytest.raises(TooMuchError, match=r"the page: it has a size of \d+, some \d+ \w+, and would take \d+ MiB"):
        charged(data * (sizes.LARGEST // len(data)), "the page")


def test_an_object_weighs_what_it_holds():
    bare = budget.weight_of(ObjectMeta("a"))
    owner = OwnerReference("v1", "Database", "name", "uid")
    full = ObjectMeta("a", labels={"k": "v" * 100}, annotations={"k": "é"}, finalizers=["f"], owners=[owner])

    assert budget.weight_of(full) > bare + 100
    assert budget.size_of({"a": [1, {"b": "c" * 1000}]}) > 1000


# Lists


def test_a_list_ends_at_its_limits():
    pages, entries, kept = (
        Tally("pages", pages_at_most=2),
        Tally("entries", entries_at_most=5),
        Tally("kept", kept_at_most=9),
    )
    pages.page(1)
    pages.page(1)
    entries.page(5)
    kept.keep(9)

    with pytest.raises(TooMuchError, match=r"pages: it goes on after 2 pages.*\(3 pages and 3 entries were seen\)"):
        pages.page(1)
    with pytest.raises(TooMuchError, match="entries: it goes on after 5 entries"):
        entries.page(1)
    with pytest.raises(TooMuchError, match="kept: it goes on after 0 MiB of them in memory"):
        kept.keep(1)


def test_what_a_list_keeps_is_charged():
    with account() as ours:
        Tally("a list").keep(1000)
        assert ours.held == 1000
