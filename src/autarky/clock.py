"""Real time. `monotonic` includes the time that the machine sleeps, so that leases expire and ages grow meanwhile."""

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
