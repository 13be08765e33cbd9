"""The examples of the documentation run, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def examples():
    """Every Python block of every page."""
    for page in PAGES:
        for number, match in enumerate(PYTHON.finditer(page.read_text(encoding="utf-8"))):
            yield pytest.param(match[1], id=f"{page.name}-{number}")


def test_there_are_pages():
    """The pages are found where the test looks for them."""
    assert {"README.md", "local.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("code", list(examples()))
def test_an_example_runs(code):
    """What a page shows is what the library does."""
    exec(compile(code, "example", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_file_of_this_project(page):
    """No page points at what is not there."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
