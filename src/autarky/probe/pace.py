"""Requests at a steady rate, until stopped."""

from __future__ import annotations

import asyncio


class Pace:
    """Ticks `rate` times a second, the first at once (or `offset` seconds later), until `halted` is done.

    Missed ticks are skipped, not caught up: after an outage the API gets the same load as before it, and
    no burst.
    """

    def __init__(self, rate: float, halted: asyncio.Future[None], *, offset: float = 0.0) -> None:
        self.left_out = 0
        self.longest_silence = 0.0
        """Seconds between two ticks, before the first one, or from the last one until it was over."""
        self._period = 1 / rate
        self._halted = halted
        self._due = self._last = asyncio.get_running_loop().time() + offset
        self._first = True

    async def tick(self) -> bool:
        """Wait for the next tick; False when it is over. The first tick comes even to one that is halted, so
        that a short probe has asked each thing once."""
        now = asyncio.get_running_loop().time()
        if now < self._due:
            await asyncio.wait({self._halted}, timeout=self._due - now)
        missed = max(0, int((now - self._due) / self._period))
        self.left_out += missed
        self._due += (missed + 1) * self._period
        self._note_silence()
        first, self._first = self._first, False
        return first or not self._halted.done()

    def _note_silence(self) -> None:
        now = asyncio.get_running_loop().time()
        self.longest_silence = max(self.longest_silence, now - self._last)
        self._last = now
