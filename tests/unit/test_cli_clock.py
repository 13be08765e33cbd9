"""The time of a command: the real one at its start, or the one that it was told.

freezegun looks into every loaded module, and breaks the Kubernetes client where another test has loaded it; half
started, it leaves the clocks of the whole process standing. So it has a process of its own here.
"""

import subprocess
import sys

import pytest

CODE = """
from datetime import UTC, datetime
from freezegun import freeze_time
from reprieve.entrypoints.cli.options import Target

with freeze_time("2026-03-01T12:00:00Z"):
    target = Target(local=None, kubeconfig=None, context="", config=None, namespace="", at={at})
    print(target.now.isoformat())
"""


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        pytest.param("None", "2026-03-01T12:00:00+00:00", id="no-time-is-now"),
        pytest.param(
            "datetime(2030, 1, 1, tzinfo=UTC)", "2030-01-01T00:00:00+00:00", id="a-time-that-is-told-stands-still"
        ),
    ],
)
def test_the_time_of_a_command(at, shown):
    """Without ``--now`` it is this machine's clock; with it, whatever that clock says."""
    ran = subprocess.run([sys.executable, "-c", CODE.format(at=at)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == shown
