"""What keeps one controller's failure from ending the others: it is told, and tried again after a growing pause. The
same of live copies: what nobody has foreseen in one of them ends no other.

Contract: what a controller handles itself never comes here. A cancellation passes.
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
"""(subject, sentence): says a thing once."""


@dataclass(slots=True)
class Shield:
    """Of one thing that is done again and again. `tell(subject, sentence)` says a thing once."""

    name: str
    clock: Clock
    tell: Tell
    longest_pause: float = LONGEST_PAUSE
    _pause: float = 0.0
    _not_before: float = 0.0

    async def attempt(self, run: Run) -> bool:
        """Do it, unless it has failed a moment ago; whether it was done."""
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
            self._say("it goes on")
        return True

    @property
    def rests(self) -> float:
        """Seconds until it is tried again, after a failure."""
        return max(0.0, self._not_before - self.clock.monotonic())

    async def keep(self, run: Run) -> None:
        """Do it until it ends by itself, which most never do."""
        while not await self.attempt(run):
            await self.clock.sleep(self.rests)

    def _failed(self, error: Exception, took: float) -> None:
        """What has gone on for long before it failed is tried again soon."""
        self._pause = FIRST_PAUSE if took > LONGEST_PAUSE else min(self.longest_pause, 2 * self._pause or FIRST_PAUSE)
        self._not_before = self.clock.monotonic() + self._pause
        self._say(f"it failed and is tried again in {self._pause:.0f} s: {unforeseen(error)}")

    def _say(self, sentence: str) -> None:
        self.tell(f"{self.name} failed", sentence)


async def follow(source: Reflector, tell: Tell) -> None:
    """Run a live copy, whatever becomes of it."""
    what = " ".join(word for word in ("watching", source.kind, source.namespace, source.fields) if word)
    await Shield(what, source.clock, tell).keep(source.run)


def unforeseen(error: Exception) -> str:
    """What an AutarkyError says; of others the type and the places that it came through, in one line: a log has one
    sentence for a decision."""
    if isinstance(error, AutarkyError):
        return str(error)
    if isinstance(error, ExceptionGroup):
        return "; ".join(unforeseen(one) for one in error.exceptions)
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"a fault of autarky's: {type(error).__name__}: {error} ({places})"
