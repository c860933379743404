"""Waiting with a name, a deadline and a memory of the last thing seen.

Contract: every wait in autarky goes through `poll_until`, so that progress and the final error always say
what was waited for, how long, and what was last seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from autarky.errors import ApiError, CommandFailed, Conflict, TimedOut, Unreachable
from autarky.ports import Clock, Progress

FIRST_INTERVAL = 0.1
LAST_INTERVAL = 0.5
_GROWTH = 1.3
_REPORT_EVERY = 1.0
NOT_YET = (Unreachable, ApiError, Conflict, CommandFailed)
"""Errors that mean "not yet" while waiting; their text is what was last seen."""


async def poll_until(
    what: str,
    condition: Callable[[], Awaitable[str | None]],
    *,
    timeout: float,
    progress: Progress,
    clock: Clock,
    interval: float = FIRST_INTERVAL,
) -> None:
    """Ask `condition` until it returns None; else it returns a sentence with what it saw.

    `timeout` and `interval` in seconds; the interval grows to half a second. Raises TimedOut.
    """
    start = clock.monotonic()
    reported = start
    while True:
        seen = await _ask(condition)
        if seen is None:
            return
        elapsed = clock.monotonic() - start
        if elapsed >= timeout:
            raise TimedOut(f"waited {elapsed:.0f} s until {what}; last seen: {seen}")
        if clock.monotonic() - reported >= _REPORT_EVERY:
            reported = clock.monotonic()
            progress.waiting(what, timeout - elapsed, seen)
        await clock.sleep(min(interval, timeout - elapsed))
        interval = min(interval * _GROWTH, max(LAST_INTERVAL, interval))


async def _ask(condition: Callable[[], Awaitable[str | None]]) -> str | None:
    try:
        return await condition()
    except NOT_YET as error:
        return str(error) or type(error).__name__
