"""Every case of the snapshot contract on every provider, and the page that is generated from it."""

import pytest

from tests.integration.contract_snapshots import CASES, COLUMNS, PAGE, Case, contract_table, render

CELLS = [
    pytest.param(case, name, id=f"{case.name}-{name}")
    for case in CASES
    for name, column in COLUMNS.items()
    if case.name not in column.lacks
]


@pytest.fixture
def column(request):
    made = COLUMNS[request.param]()
    yield made
    made.close()


@pytest.mark.parametrize(("case", "column"), CELLS, indirect=["column"])
def test_the_same_comes_to_the_same(case: Case, column):
    assert case.run(column) == case.expected


def test_every_gap_is_of_a_case_that_there_is(tell):
    tell(contract_table())
    names = {case.name for case in CASES}

    assert [(name, gap) for name, column in COLUMNS.items() for gap in column.lacks if gap not in names] == []


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render(), "write it anew: python -m tests.integration.contract_snapshots"
