"""Logs: structlog on standard error, for people on a terminal, one JSON object a line elsewhere.

Guarantee: on a terminal a text of a stranger is one line that moves nothing, as on the rest of the screen; JSON is
ASCII. What is known to be secret is in no entry, a traceback and what it quotes included.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

from reprieve.adapters.cloud.known import hide
from reprieve.entrypoints.cli.screen import printable

LEVELS = ("debug", "info", "warning", "error")


def configure_logging(level: str) -> None:
    """Set the level and the form of the logs. The message is constant; what differs stands in fields."""
    import structlog

    # Libraries log what they were answered with; without a handler of its own the root would print it.
    logging.getLogger().addHandler(logging.NullHandler())
    terminal = sys.stderr.isatty()
    common: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    people: list[Any] = [
        structlog.processors.format_exc_info,
        _without_secrets,
        _made_printable,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
    machines: list[Any] = [
        structlog.processors.format_exc_info,
        _without_secrets,
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=common + (people if terminal else machines),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # the one of the moment, as it may be replaced
        cache_logger_on_first_use=False,
    )


def _without_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take secrets out of every text: adapters do so in what they tell, and a traceback shows what they were told."""
    for key, value in event.items():
        if not isinstance(value, int | float | None):
            shown = hide(text := str(value))
            event[key] = value if shown == text else shown
    return event


def _made_printable(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Make every text one harmless line.

    A traceback has many lines, each of them indented, so that none passes for an entry of the log.
    """
    for key, value in event.items():
        if key == "exception":
            event[key] = "\n".join(f"    {printable(line)}" for line in str(value).split("\n"))
        elif not isinstance(value, int | float | None):
            event[key] = printable(str(value))
    return event
