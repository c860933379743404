"""How long one reconcile may take: one that hangs is cancelled; while one cannot be cancelled, the agent stops its
heartbeat (`agents.node.lock`) and is killed.

Contract: `bounded` raises Overdue after LONGEST_SECONDS; `hangs` may be called from another thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from autarky.model import patience

LONGEST_SECONDS = patience.LONGEST_PASS
"""Each request and each command gives up within 30 s, and a reconcile makes a few of them."""
GRACE_SECONDS = 30.0
"""How long a cancelled reconcile may take to stop."""
_running: dict[object, tuple[str, float]] = {}

_T = TypeVar("_T")


class Overdue(Exception):
    """It took too long."""


async def bounded(name: str, run: Callable[[], Awaitable[_T]]) -> _T:
    """Run it. Raises Overdue when it has not finished after LONGEST_SECONDS."""
    token = object()
    _running[token] = (name, time.monotonic())
    try:
        async with asyncio.timeout(LONGEST_SECONDS) as bound:
            return await run()
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise Overdue(f"a reconcile of {name} was cancelled after {LONGEST_SECONDS:.0f} s") from error
    finally:
        del _running[token]


def hangs() -> str | None:
    """Which reconcile should have stopped long ago, as a sentence; None when there is none."""
    now = time.monotonic()
    for name, began in list(_running.values()):
        if now - began > LONGEST_SECONDS + GRACE_SECONDS:
            return f"a reconcile of {name} has taken {now - began:.0f} s and cannot be cancelled"
    return None
