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


def test_the_image_has_what_the_tests_ran_with_and_no_tool():
    assert versions("image.txt") < versions("dev.txt")
    assert versions("build.txt") < versions("dev.txt")
    assert {"pytest", "moto", "uv"} & {name for name, _ in versions("image.txt")} == set()
    assert {"attrs", "kubernetes", "boto3", "obstore", "click"} <= {name for name, _ in versions("image.txt")}


def installations(path):
    """The commands of a file that install something."""
    joined = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(r"\bpip (?:install|sync|wheel) [^\n&`]*", joined)


def test_every_installation_from_the_requirements_asks_for_the_hashes():
    pages = [ROOT / "Makefile", ROOT / "deploy" / "Containerfile", *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    found = [each for path in pages for each in installations(path) if re.search(r"requirement|\.txt", each)]

    assert len(found) > 5
    assert [each for each in found if "--require-hashes" not in each] == []


@pytest.mark.parametrize("path", ["Makefile", "deploy/Containerfile"])
def test_what_is_installed_without_hashes_is_ours_and_asks_no_index(path):
    without = [each for each in installations(ROOT / path) if "--require-hashes" not in each]

    assert without
    assert [each for each in without if not re.search(r"--no-index|--offline", each) or "--no-deps" not in each] == []
