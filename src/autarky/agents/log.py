"""One structured line of JSON per decision, on standard output, where the kubelet collects it."""

from __future__ import annotations

from typing import Any

import structlog


def logger(**bound: Any) -> structlog.typing.FilteringBoundLogger:
    """A logger with the time, the level and the bound values in every line."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        cache_logger_on_first_use=True,
    )
    bound_logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**bound)
    return bound_logger
