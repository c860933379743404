"""Work in a thread that has ended when its caller goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


async def to_the_end(work: Callable[[], _Result], leave: Callable[[], object] = lambda: None) -> _Result:
    """Its result. The work has ended on return, also where this is cancelled: whoever comes next uses the same names,
    or the same connection. leave: called before its end is waited for, so that it can hurry what the work waits for."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    finally:
        leave()
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # looked at, so that nobody logs it
