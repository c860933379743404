"""Wait until something has changed, or so many seconds have passed."""

from __future__ import annotations

import asyncio


async def changed_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event was set within the seconds (None: no limit). Does not clear the event."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
