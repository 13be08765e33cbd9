"""A run in which backups expire, come back, and are dropped is killed at any moment, run again, and settles."""

import signal

import pytest
import yaml

from reprieve.entrypoints.sample_time import add_time_sample
from tests.integration.test_killed_runs import NOW, leaked, run_child, sample, state_of

SURVIVORS = {"shop-weekly-02", "shop-returned", "shop-last-link"}
WITHOUT_A_LIST = ["snap-ll", "snap-lost"]
"""Snapshots that no list names from the start: the sample has lost them on purpose."""


def time_sample(folder):
    """A fresh sample with the part that is about time."""
    sample(folder)
    add_time_sample(folder, now=NOW)
    return folder


def told(folder):
    """The state of a folder without the UIDs that the cluster made up, and what names them."""
    seen = state_of(folder)
    for documents in seen.values():
        for document in documents if isinstance(documents, list) else []:
            if isinstance(document, dict) and document.get("metadata", {}).get("name") == "shop-returned":
                document["metadata"].pop("uid")
    return seen


def records(folder):
    """The Backups of the part that is about time."""
    files = (folder / "cluster").rglob("*.yaml")
    documents = [each for file in files for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each]
    names = {each["metadata"]["name"] for each in documents if each["kind"] == "Backup"}
    return {name for name in names if name.startswith(("shop-weekly", "shop-returned", "shop-emptied", "shop-last"))}


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    """The state that a run without a kill ends in."""
    folder = time_sample(tmp_path_factory.mktemp("unharmed") / "folder")
    assert run_child(folder, 0) == 1
    assert records(folder) == SURVIVORS
    return told(folder)


@pytest.mark.parametrize("limit", [1, 3, 5, 8, 12, 18, 30, 60])
def test_a_run_that_is_killed_ends_the_same_when_it_is_run_again(tmp_path, unharmed, limit):
    """Kill -9 before any single effect: the record that comes, the hold file, the drop, the request that is filed."""
    folder = time_sample(tmp_path / "folder")
    assert run_child(folder, limit) == -signal.SIGKILL
    assert leaked(folder) == WITHOUT_A_LIST
    assert run_child(folder, 0) in {1, 3}
    assert leaked(folder) == WITHOUT_A_LIST
    assert told(folder) == unharmed


def test_a_second_run_writes_nothing(tmp_path):
    """Two passes in a row: not a byte, not a time stamp of a file changes."""
    folder = time_sample(tmp_path / "folder")
    run_child(folder, 0)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")}
    assert run_child(folder, 0) == 3
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")} == before
