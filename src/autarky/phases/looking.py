"""Looking at objects that workers and tenants can create in any number and size, without waiting for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autarky.errors import Unreachable

LOOK_SECONDS = 20.0


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    """Unreachable after LOOK_SECONDS. The caller decides whether to keep what was found until then."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            yield
    except TimeoutError as error:
        raise Unreachable(f"it takes more than {LOOK_SECONDS:.0f} s") from error
