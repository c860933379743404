"""The leader's loop: whenever something has changed, every duty has a round. Nothing is polled.

Contract: level-triggered; a duty that fails is told, and has another round soon; the others go on. That holds for
failures that nobody has foreseen as well: what one duty makes of an odd object must not end the one that takes a bad
rollout back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from prometheus_client import Counter, Histogram

from autarky.control.base.controller import Duty, Say
from autarky.control.base.shield import unforeseen
from autarky.control.base.waiting import changed_within
from autarky.model import patience
from autarky.ports import Clock

GATHER_SECONDS = 0.1
"""Changes come in swarms; one round for all of them."""
AGAIN_SECONDS = 2.0
"""After a round in which a duty failed."""
LONGEST_QUIET = 60.0
"""Seconds after which everything is looked at without a change: it costs no request."""
HUNG_SECONDS = patience.LONGEST_ROUND
"""A round that takes so long hangs: each request gives up after 30 s."""
BEAT_SECONDS = patience.BEAT
STILL_SECONDS = patience.HANG
"""An event loop that has not turned for so long is blocked, whether in a round or not."""

ROUNDS = Histogram("autarky_operator_round_seconds", "Rounds of each duty, and how long they took", ["duty"])
FAILURES = Counter("autarky_operator_round_failures_total", "Rounds that ended with an error", ["duty"])


@dataclass(slots=True)
class Loop:
    """`changed` is set by whoever sees a change."""

    duties: Sequence[Duty]
    clock: Clock
    say: Say
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _round_began: float | None = None
    _turned: float | None = None

    async def run(self) -> NoReturn:
        while True:
            self.changed.clear()
            pause = await self._round()
            await self._quiet(pause)

    async def beat(self) -> NoReturn:
        """Run it as a task, also while another operator leads."""
        while True:
            self._turned = self.clock.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    def hangs(self) -> str | None:
        """What is wrong with the loop, if anything. Safe to call from another thread."""
        began, turned = self._round_began, self._turned
        if turned is not None and (still := self.clock.monotonic() - turned) >= STILL_SECONDS:
            return f"the loop has stood still for {still:.0f} s"
        if began is None or (busy := self.clock.monotonic() - began) < HUNG_SECONDS:
            return None
        return f"one round has taken {busy:.0f} s"

    async def _round(self) -> float:
        """All duties once; seconds until the next round if nothing changes."""
        self._round_began = self.clock.monotonic()
        try:
            return min([await self._one(duty) for duty in self.duties])
        finally:
            self._round_began = None

    async def _one(self, duty: Duty) -> float:
        with ROUNDS.labels(duty.name).time():
            try:
                again = await duty.round()
            except Exception as error:  # see the contract
                FAILURES.labels(duty.name).inc()
                duty.tell(f"the round failed: {unforeseen(error)}")
                return AGAIN_SECONDS
        return LONGEST_QUIET if again is None else again

    async def _quiet(self, seconds: float) -> None:
        if await changed_within(self.changed, seconds):
            await self.clock.sleep(GATHER_SECONDS)
