"""Work that goes on beside a block and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background(coroutines: Sequence[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run these, which never end by themselves, during the block. Unlike a TaskGroup it lets the block's own
    exception through as it is. One of theirs is a bug; it is raised when the block has ended."""
    tasks = [asyncio.create_task(coroutine, name="probe: background") for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
