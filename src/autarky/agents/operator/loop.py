"""The leader's loop: whenever something has changed, every controller reconciles, in order. Nothing is polled.

Contract: a failure of a controller is logged, and it is retried soon; the others continue. That holds for unexpected
errors as well: a malformed object that breaks one controller must not stop the one that rolls back a bad rollout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from autarky.control.base.controller import ClusterController
from autarky.control.base.decision_log import Say
from autarky.control.base.reconciler import LONGEST_QUIET, Reconciler
from autarky.control.base.shield import Tell
from autarky.control.base.waiting import changed_within
from autarky.model import patience
from autarky.ports import Clock

GATHER_SECONDS = 0.1
"""Changes come in bursts: one pass handles all of them."""
HUNG_SECONDS = patience.LONGEST_PASS
"""A pass that takes so long hangs: each request gives up after 30 s."""
BEAT_SECONDS = patience.BEAT
STILL_SECONDS = patience.HANG
"""An event loop that has not run for so long is blocked, whether in a pass or not."""


@dataclass(slots=True)
class Loop:
    """`changed` is set whenever something that a controller observes changes."""

    clock: Clock
    say: Say
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _controllers: Sequence[ClusterController] = ()
    _reconcilers: Sequence[Reconciler] = ()
    _round_began: float | None = None
    _turned: float | None = None

    def runs(self, controllers: Sequence[ClusterController]) -> None:
        """Reconcile these from now on, in that order."""
        self._controllers = controllers
        self._reconcilers = [Reconciler(one, self.clock, _teller(one)) for one in controllers]

    async def run(self) -> NoReturn:
        while True:
            self.changed.clear()
            pause = await self._pass()
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
            return f"the event loop has been blocked for {still:.0f} s"
        if began is None or (busy := self.clock.monotonic() - began) < HUNG_SECONDS:
            return None
        return f"one pass over all controllers has taken {busy:.0f} s"

    async def _pass(self) -> float:
        """One pass: every controller once. Returns the seconds until the next one if nothing changes."""
        self._round_began = self.clock.monotonic()
        for controller in self._controllers:
            controller.begin_pass()
        try:
            rests = [await one.attempt() for one in self._reconcilers]
        finally:
            self._round_began = None
        return min([LONGEST_QUIET, *(seconds for seconds in rests if seconds is not None)])

    async def _quiet(self, seconds: float) -> None:
        if await changed_within(self.changed, seconds):
            await self.clock.sleep(GATHER_SECONDS)


def _teller(controller: ClusterController) -> Tell:
    """Failures of a controller go into its own decision log."""
    return lambda _subject, sentence: controller.tell(sentence)
