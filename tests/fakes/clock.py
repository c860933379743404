"""A Clock on the event loop's time, which looptime moves without waiting."""

from __future__ import annotations

import asyncio


class LoopClock:
    began = 0.0
    """The wall clock's time at the loop's zero, in seconds."""

    def monotonic(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:  # a metric that outlives its test is read by a thread of another one
            return 0.0

    def time(self) -> float:
        return self.began + self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
