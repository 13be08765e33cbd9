"""``reprieve --help`` as a whole process, against a process that only imports attrs and the command-line library."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
ATMOST = 1.5
COMMAND = Path(sys.executable).with_name("reprieve")


def seconds(command: list[str]) -> float:
    """How long a process takes."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)  # noqa: S603 - our own commands
    return time.perf_counter() - began


def main() -> None:
    """Measure both in turns, print the ratio of the medians, fail above the promised one."""
    script = (
        [str(COMMAND)]
        if COMMAND.exists()
        else [sys.executable, "-c", "from reprieve.entrypoints.cli import main; main()"]
    )
    shown, bare = [*script, "--help"], [sys.executable, "-c", "import attrs, click"]
    pairs = [(seconds(shown), seconds(bare)) for _ in range(ROUNDS)][1:]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"reprieve --help {ours * 1000:.0f} ms, import of attrs and click {theirs * 1000:.0f} ms")
    print(f"ratio {ours / theirs:.2f}, promised at most {ATMOST}")
    assert ours / theirs <= ATMOST


if __name__ == "__main__":
    main()
