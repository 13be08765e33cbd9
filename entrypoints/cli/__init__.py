"""The ``reprieve`` command. Thin: each subcommand is a module, loaded when it is called; rendering stands apart.

Guarantee: an error is one clear message on standard error and exit code 1, never a traceback; ``--help`` loads no
SDK.
"""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command and exit with its code."""
    _make_streams_safe()
    try:
        from reprieve.entrypoints.cli.root import run
    except ModuleNotFoundError as fault:
        if fault.name != "click":
            raise
        from reprieve.core.errors import MissingExtraError  # here, since --help needs nothing of core

        sys.stderr.write(f"reprieve: {MissingExtraError('click', extra='cli')}\n")
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))


def _make_streams_safe() -> None:
    """Make a closed stream an empty one, and let a character that a stream cannot show be escaped: no errors, both."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - stays open with the process
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - the same
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - the same
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
