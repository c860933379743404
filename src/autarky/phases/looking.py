"""Looking at what workers and tenants make as many and as long as they like, without waiting for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autarky.errors import Unreachable

LOOK_SECONDS = 20.0


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    """Unreachable after LOOK_SECONDS. What was found until then is for the caller to keep, or not."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            yield
    except TimeoutError as error:
        raise Unreachable(f"it takes more than {LOOK_SECONDS:.0f} s") from error
