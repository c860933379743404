"""Rest until something has changed, but not for longer than so many seconds."""

from __future__ import annotations

import asyncio


async def changed_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event was set before the seconds had passed (None: however many); it is left as it is."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
