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


# An installer, and on the same line this project by its name: "pip install 'reprieve[k8s]'", "uvx reprieve".
BY_NAME = re.compile(
    r"\b(?:(?:pip3?|pipx|uv|poetry|conda|pdm|easy_install)\b[^\n`]*\b(?:install|add|run|inject|upgrade)\b|uvx\b)"
    r"[^\n`#]*?(?<![\w./:@-])['\"]?reprieve(?:\[[\w, {}]*\])?['\"]?(?:[=<>~!]=?[\w.]+)?(?![\w./-])"
)


def told():
    """Every file that says something to somebody: pages, manifests, messages in the code."""
    folders = ("core", "adapters", "entrypoints", "tools", "benchmarks", "deploy", "docs")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path for path in [*PAGES, ROOT / "Makefile", *inside] if path.suffix not in {".pyc", ".typed"}]


def test_nobody_is_told_to_install_by_a_name_that_is_not_ours():
    """Whoever takes the name on an index has their code run by all who follow the documentation."""
    found = {
        str(path.relative_to(ROOT)): lines
        for path in told()
        if (lines := BY_NAME.findall(path.read_text(encoding="utf-8")))
    }

    assert found == {}


@pytest.mark.parametrize(
    ("line", "by_name"),
    [
        pytest.param("pip install reprieve", True, id="plain"),
        pytest.param("pip install 'reprieve[k8s]'", True, id="extra"),
        pytest.param('pip install --upgrade "reprieve[all]==0.1.0"', True, id="version"),
        pytest.param("f\"pip install 'reprieve[{extra}]'\"", True, id="in-code"),
        pytest.param("uv pip install reprieve", True, id="uv"),
        pytest.param("uvx reprieve plan", True, id="uvx"),
        pytest.param("pipx install reprieve", True, id="pipx"),
        pytest.param("pip install '.[k8s]'              # reprieve, in its checkout", False, id="checkout"),
        pytest.param("pip install './reprieve-0.1.0-py3-none-any.whl[k8s]'", False, id="wheel"),
        pytest.param("make; .venv/bin/reprieve run", False, id="running-it"),
        pytest.param("pip install --no-deps /src/reprieve", False, id="folder"),
    ],
)
def test_an_installation_by_name_is_seen(line, by_name):
    assert bool(BY_NAME.search(line)) == by_name
