"""How long one look of an agent may take: one that hangs is broken off, and one that cannot be broken off shows, so
that the agent gives no beat any more (`agents.node.lock`) and is ended.

Contract: what is bounded raises Overdue; `hangs` may be called from another thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from autarky.model import patience

LONGEST_SECONDS = patience.LONGEST_ROUND
"""Each request and each command gives up within 30 s, and a look makes a few of them."""
GRACE_SECONDS = 30.0
"""For what is broken off to end."""
_running: dict[object, tuple[str, float]] = {}

_T = TypeVar("_T")


class Overdue(Exception):
    """It took too long."""


async def bounded(name: str, run: Callable[[], Awaitable[_T]]) -> _T:
    """Overdue when it has not ended after LONGEST_SECONDS."""
    token = object()
    _running[token] = (name, time.monotonic())
    try:
        async with asyncio.timeout(LONGEST_SECONDS) as bound:
            return await run()
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise Overdue(f"a round of {name} was broken off after {LONGEST_SECONDS:.0f} s") from error
    finally:
        del _running[token]


def hangs() -> str | None:
    """What should have ended long ago, in a sentence."""
    now = time.monotonic()
    for name, began in list(_running.values()):
        if now - began > LONGEST_SECONDS + GRACE_SECONDS:
            return f"a round of {name} has taken {now - began:.0f} s and cannot be broken off"
    return None
