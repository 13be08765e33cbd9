"""Logs: structlog on standard error, for people on a terminal, one JSON object a line elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

LEVELS = ("debug", "info", "warning", "error")


def configure_logging(level: str) -> None:
    """Set the level and the form of the logs. The message is constant; what differs stands in fields."""
    import structlog

    terminal = sys.stderr.isatty()
    common: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    people: list[Any] = [structlog.dev.ConsoleRenderer()]
    machines: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=common + (people if terminal else machines),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # the one of the moment, as it may be replaced
        cache_logger_on_first_use=False,
    )
