"""Runs one controller: shielded from what it raises, with growing pauses, measured.

Contract: nothing that a controller raises comes out of here but a cancellation. What nobody has foreseen is told with
its place, and tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Counter, Histogram

from autarky.control.base.bounds import bounded
from autarky.control.base.controller import Controller
from autarky.control.base.shield import LONGEST_PAUSE, Shield, Tell, follow
from autarky.control.base.waiting import changed_within
from autarky.kube import Reflector
from autarky.ports import Clock

RECONCILED = Histogram("autarky_reconcile_seconds", "How long each controller took to look and act", ["controller"])
FAILURES = Counter("autarky_reconcile_failures_total", "Times that ended with an error", ["controller"])

LONGEST_QUIET = 60.0
"""Seconds after which what nobody tells of changes, and asks for no other look, is looked at again."""


def _never() -> bool:
    return False


@dataclass(slots=True)
class Reconciler:
    """`tell(subject, sentence)` says a thing once. longest_pause: seconds that it waits at most after failures."""

    controller: Controller
    clock: Clock
    tell: Tell
    longest_pause: float = LONGEST_PAUSE
    _shield: Shield = field(init=False)
    _again: float | None = None
    _followed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shield = Shield(self.controller.name, self.clock, self.tell, self.longest_pause)

    async def attempt(self) -> float | None:
        """Reconcile, unless that has failed a moment ago; the seconds after which to attempt it again though nothing
        changes, None where only a change matters."""
        return self._again if await self._shield.attempt(self._reconcile) else self._shield.rests

    async def run(self, ends: Callable[[], bool] = _never) -> None:
        """Attempt after attempt, each within its bound, with its sources followed beside it, until it is to end."""
        async with asyncio.TaskGroup() as group:
            following: list[asyncio.Task[None]] = []
            while not ends():
                following += [group.create_task(follow(source, self.tell)) for source in self._new_sources()]
                if self.controller.wakes is not None:
                    self.controller.wakes.clear()
                await self._rest(await self.attempt())
            for task in following:
                task.cancel()

    async def _reconcile(self) -> None:
        name = self.controller.name
        with RECONCILED.labels(name).time(), FAILURES.labels(name).count_exceptions():
            self._again = await bounded(name, self.controller.reconcile)

    def _new_sources(self) -> list[Reflector]:
        new = [source for source in self.controller.sources() if id(source) not in self._followed]
        self._followed.update(id(source) for source in new)
        return new

    async def _rest(self, seconds: float | None) -> None:
        changed = self.controller.wakes
        if changed is None:
            await self.clock.sleep(LONGEST_QUIET if seconds is None else seconds)
        elif await changed_within(changed, seconds):
            await self.clock.sleep(self.controller.gather)
