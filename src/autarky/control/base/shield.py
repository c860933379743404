"""Keeps the failure of one controller or live copy from affecting the others: it is logged, and retried after a growing
pause.

Contract: errors that a controller handles itself never get here. A cancellation passes.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autarky.errors import AutarkyError
from autarky.kube import Reflector
from autarky.ports import Clock

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds between two attempts at what has failed."""
Run = Callable[[], Awaitable[Any]]
Tell = Callable[[str, str], None]
"""(subject, sentence): logs a change once."""


@dataclass(slots=True)
class Shield:
    """For one thing that is done repeatedly. `tell(subject, sentence)` logs a change once."""

    name: str
    clock: Clock
    tell: Tell
    longest_pause: float = LONGEST_PAUSE
    _pause: float = 0.0
    _not_before: float = 0.0

    async def attempt(self, run: Run) -> bool:
        """Run it, unless it is still waiting after a failure. Returns whether it ran and succeeded."""
        if self.clock.monotonic() < self._not_before:
            return False
        began = self.clock.monotonic()
        try:
            await run()
        except Exception as error:  # see the contract
            self._failed(error, self.clock.monotonic() - began)
            return False
        if self._pause:
            self._pause = self._not_before = 0.0
            self._say("recovered")
        return True

    @property
    def rests(self) -> float:
        """Seconds until the next attempt, after a failure."""
        return max(0.0, self._not_before - self.clock.monotonic())

    async def keep(self, run: Run) -> None:
        """Run it until it returns, which most never do."""
        while not await self.attempt(run):
            await self.clock.sleep(self.rests)

    def _failed(self, error: Exception, took: float) -> None:
        """What ran for long before it failed is retried soon."""
        self._pause = FIRST_PAUSE if took > LONGEST_PAUSE else min(self.longest_pause, 2 * self._pause or FIRST_PAUSE)
        self._not_before = self.clock.monotonic() + self._pause
        self._say(f"failed, retrying in {self._pause:.0f} s: {unforeseen(error)}")

    def _say(self, sentence: str) -> None:
        self.tell(f"{self.name} failed", sentence)


async def follow(source: Reflector, tell: Tell) -> None:
    """Run a live copy, and again after each failure."""
    what = " ".join(word for word in ("watching", source.kind, source.namespace, source.fields) if word)
    await Shield(what, source.clock, tell).keep(source.run)


def unforeseen(error: Exception) -> str:
    """An AutarkyError's own text; of other errors the type and the traceback's places, in one line, as the log has one
    line per decision."""
    if isinstance(error, AutarkyError):
        return str(error)
    if isinstance(error, ExceptionGroup):
        return "; ".join(unforeseen(one) for one in error.exceptions)
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"a bug in autarky: {type(error).__name__}: {error} ({places})"
