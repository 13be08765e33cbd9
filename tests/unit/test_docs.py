"""The examples of the documentation run, its links lead somewhere, and each dependency has its row."""

import re
import tomllib
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


# Dependencies

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAME = re.compile(r"^[\w.-]+")
OURS = "reprieve"


def names(requirements):
    return {NAME.match(each)[0] for each in requirements} - {OURS}


def dependency_rows(title):
    """The first two cells of a section's table, each as the names in it."""
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    text = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    return [([each.strip("` ") for each in cells[0].split(",")], re.findall(r"`(\w+)`", cells[1])) for cells in lines]


def test_each_dependency_is_listed_with_its_extras():
    """A library that nobody gave a reason for does not come in, and a reason does not outlive its library."""
    listed = {
        (name, extra)
        for found, extras in dependency_rows("What reprieve runs with")
        for name in found
        for extra in extras or [""]
    }
    extras = PROJECT["project"]["optional-dependencies"].items()
    declared = {(name, extra) for extra, requirements in extras for name in names(requirements)}

    assert listed == declared | {(name, "") for name in names(PROJECT["project"]["dependencies"])}


def test_each_tool_is_listed():
    listed = [name for found, _ in dependency_rows("What it is built and tested with") for name in found]
    pinned = re.findall(NAME.pattern, (ROOT / "requirements" / "uv.txt").read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(listed) == sorted(names(PROJECT["dependency-groups"]["dev"]) | set(pinned))
