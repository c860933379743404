"""The two clocks of all tests: one that goes with the event loop, whose time looptime moves without waiting, and one
that is moved by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

BEGAN: Final = 1_800_000_000.0
"""The wall clock at the loop's zero, in seconds since 1970: some day of 2027."""
SHORTEST = 1e-6
"""The time of the loop goes in microseconds: within a shorter pause it would stand still forever."""


@dataclass
class LoopClock:
    """began: the wall clock at the loop's zero; nothing but stamps for people may depend on it. ahead: seconds that it
    has been moved by hand as well."""

    began: float = BEGAN
    ahead: float = 0.0

    def monotonic(self) -> float:
        try:
            return asyncio.get_running_loop().time() + self.ahead
        except RuntimeError:  # a metric that outlives its test is read by a thread of another one
            return 0.0

    def time(self) -> float:
        return self.began + self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, SHORTEST) if seconds > 0 else 0)


@dataclass
class HandClock:
    """now: both clocks' time, which a sleep moves at once, while others have their turn. step: seconds by which each
    look at it moves it."""

    now: float = 0.0
    step: float = 0.0

    def monotonic(self) -> float:
        self.now += self.step
        return self.now

    def time(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)
