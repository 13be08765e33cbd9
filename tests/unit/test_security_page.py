"""docs/security.md names every attack that is tested, and each test that it names is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
COLUMNS = ["who writes", "what", "what it could do", "what holds it", "test"]
TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
CELLS = re.compile(r"(?<!\\)\|")


def tables():
    """The cells of every row of every table of the page, the lines below the heads apart."""
    lines = [line.strip() for line in PAGE.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in CELLS.split(line)[1:-1]] for line in lines]
    return [cells for cells in split if set("".join(cells)) != {"-"}]


# The other table of the page, of who may write what, has three columns.
ATTACKS = [cells for cells in tables() if len(cells) != 3 and cells != COLUMNS]


def defined_in(path):
    """The tests of a file, as pytest names them without their parameters."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {f"{path.relative_to(ROOT).as_posix()}::{name}" for name in defined if name.startswith("test_")}


def files(folder):
    return sorted((ROOT / "tests" / folder).rglob("test_*.py"))


NAMED = {name for cells in ATTACKS for name in TEST.findall(cells[-1])}


def test_the_table_is_there():
    """The tests below would hold for a table that they do not find."""
    assert COLUMNS in tables()
    assert NAMED


def test_each_attack_that_is_tested_is_named():
    assert {name for path in files("security") for name in defined_in(path)} - NAMED == set()


def test_each_test_that_is_named_is_there():
    there = {
        name for folder in ("security", "integration", "unit") for path in files(folder) for name in defined_in(path)
    }

    assert NAMED - there == set()


@pytest.mark.parametrize("cells", [pytest.param(cells, id=f"row-{n}") for n, cells in enumerate(ATTACKS, start=1)])
def test_a_row_says_everything(cells):
    assert len(cells) == len(COLUMNS), "a | in a cell is written \\|"
    assert all(cells)
    assert TEST.findall(cells[-1])
