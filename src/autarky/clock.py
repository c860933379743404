"""Real time. `monotonic` goes on while the machine sleeps, so that no lease outlives its owner's nap, and no age
looks young after it."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Implements ports.Clock."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
