"""What is installed is what was resolved: versions and hashes, from whichever index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "requirements").iterdir())
PIN = re.compile(r"^([\w.-]+)==([\w.]+)(?: ;[^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def text(name):
    return (ROOT / "requirements" / name).read_text(encoding="utf-8")


def versions(name):
    """Each package with its versions; markers may ask for more than one."""
    return {(package, version) for package, version, _ in PIN.findall(text(name))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_line_is_one_version_with_its_hashes(path):
    rest = PIN.sub("", path.read_text(encoding="utf-8"))

    assert PIN.search(path.read_text(encoding="utf-8"))
    assert [line for line in rest.splitlines() if line.strip() and not line.lstrip().startswith("#")] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_says_where_to_install_from(path):
    assert not re.search(r"://|--(extra-)?index|--find-links", path.read_text(encoding="utf-8"))


def test_the_image_has_what_the_tests_ran_with():
    assert versions("image.txt") < versions("dev.txt")
    assert {"pytest", "moto", "uv"} & {name for name, _ in versions("image.txt")} == set()
    assert {"attrs", "kubernetes", "boto3", "obstore", "click"} <= {name for name, _ in versions("image.txt")}


def installations(path):
    """The commands of a file that install from requirements."""
    joined = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in joined.splitlines() if re.search(r"pip (install|sync)", line) and "requirements/" in line]


def test_every_installation_asks_for_the_hashes():
    pages = [ROOT / "Makefile", *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    found = {path.name: installations(path) for path in pages}

    assert len(found["Makefile"]) == 2
    assert [line for lines in found.values() for line in lines if "--require-hashes" not in line] == []
