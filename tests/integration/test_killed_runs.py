"""A run over a folder that is killed at any moment, and run again, ends as if nothing had happened."""

import gzip
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from reprieve.entrypoints.sample import write_sample

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

# A child that runs over a folder and kills itself with SIGKILL right before its n-th effect on the disk.
CHILD = """
import os, signal, sys, threading, itertools
from datetime import datetime
from pathlib import Path
from reprieve.adapters.local import Disk
from reprieve.adapters.local import folder as module
from reprieve.entrypoints.cli.root import run

limit, effects, lock = int(sys.argv[1]), itertools.count(1), threading.Lock()

def count():
    with lock:
        if next(effects) == limit:
            os.kill(os.getpid(), signal.SIGKILL)

class Dying(Disk):
    def fill(self, path, data):
        count()
        super().fill(path, data)

    def rename(self, source, target):
        count()
        super().rename(source, target)

    def unlink(self, path):
        count()
        super().unlink(path)

module.Disk = Dying
sys.exit(run(["run", "--once", "--local", sys.argv[2], "--now", sys.argv[3]]))
"""


def run_child(folder: Path, limit: int) -> int:
    """Run over the folder in a process of its own; tells its exit code, negative when it was killed."""
    arguments = [sys.executable, "-c", CHILD, str(limit), str(folder), NOW.isoformat()]
    return subprocess.run(arguments, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode


def state_of(folder: Path) -> dict[str, object]:
    """Everything in the folder, but for resource versions, which count writes and may differ."""
    seen: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file():
            yaml_file = path.suffix == ".yaml"
            seen[name] = documents(path) if yaml_file else path.read_bytes()
    return seen


def documents(path: Path) -> list[object]:
    """The documents of a YAML file without resource versions."""
    found = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    for document in found:
        if isinstance(document, dict):
            document.get("metadata", {}).pop("resourceVersion", None)
    return found


def leaked(folder: Path) -> list[str]:
    """Live snapshots of the sample that a backup was made with, but that no list in any bucket names any more."""
    named = {
        entry["status"]["providerSnapshotID"]
        for path in folder.rglob("*-volumesnapshots.json.gz")
        for entry in readable(path)
    }
    live = {entry["id"] for entry in yaml.safe_load((folder / "snapshots.yaml").read_text(encoding="utf-8")) or []}
    return sorted(live - named)


def readable(path: Path) -> list[dict]:
    """The entries of a list; none for the one that the sample garbles on purpose."""
    try:
        return json.loads(gzip.decompress(path.read_bytes()))
    except EOFError:
        return []


def sample(folder: Path) -> Path:
    """A fresh sample."""
    folder.mkdir()
    write_sample(folder, now=NOW)
    return folder


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    """The state that a run without a kill ends in."""
    folder = sample(tmp_path_factory.mktemp("unharmed") / "folder")
    assert run_child(folder, 0) == 1, "one request of the sample fails, so the run's exit code is 1"
    return state_of(folder)


# Every effect near the beginning, then ever wider apart, up to beyond the last one.
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 9, 12, 16, 21, 28, 37, 49, 64, 80])
def test_a_run_that_is_killed_ends_the_same_when_it_is_run_again(tmp_path, unharmed, limit):
    """Kill -9 before any single effect, start again: the same end state, and never a live snapshot without a list."""
    folder = sample(tmp_path / "folder")
    assert run_child(folder, limit) == -signal.SIGKILL
    assert leaked(folder) == []
    assert run_child(folder, 0) in {1, 3}
    assert leaked(folder) == []
    assert state_of(folder) == unharmed


def test_a_run_that_is_killed_again_and_again_ends_the_same(tmp_path, unharmed):
    """A crash loop gets there too, a few effects at a time."""
    folder = sample(tmp_path / "folder")
    for _ in range(40):
        code = run_child(folder, 9)
        assert leaked(folder) == []
        if code != -signal.SIGKILL:
            break
    assert code in {1, 3}
    assert state_of(folder) == unharmed


def test_a_second_run_over_a_settled_folder_writes_nothing(tmp_path):
    """Reconciling a settled object makes zero writes: not a byte, not a time stamp of a file changes."""
    folder = sample(tmp_path / "folder")
    run_child(folder, 0)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")}
    assert run_child(folder, 0) == 3
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")} == before


def test_plan_writes_nothing(tmp_path):
    """A plan of the whole sample leaves the folder as it is, and works on one that cannot be written."""
    folder = sample(tmp_path / "folder")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    script = "import sys; from reprieve.entrypoints.cli.root import run; sys.exit(run(sys.argv[1:]))"
    arguments = [sys.executable, "-c", script]
    planned = subprocess.run(
        [*arguments, "plan", "--local", str(folder), "--now", NOW.isoformat(), "-o", "json"],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ,
    )
    assert planned.returncode == 3, planned.stderr
    verdicts = {each["object"]["name"]: each["verdict"] for each in json.loads(planned.stdout)}
    assert verdicts["shop-monthly-09-x7k2p"] == "DELETE"
    assert verdicts["shop-legal-q3nch"] == "KEEP"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
