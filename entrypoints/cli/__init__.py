"""The ``reprieve`` command. Thin: each subcommand is a module, loaded when it is called; rendering stands apart.

Guarantee: an error is one clear message on standard error and exit code 1, never a traceback; ``--help`` loads no
SDK.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command and exit with its code."""
    try:
        from reprieve.entrypoints.cli.root import run
    except ModuleNotFoundError as fault:
        if fault.name != "click":
            raise
        sys.stderr.write("reprieve: the command needs its libraries: pip install 'reprieve[cli]'\n")
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
