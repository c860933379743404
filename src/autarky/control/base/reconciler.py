"""Runs one controller: catches what it raises, retries with growing pauses, measures.

Contract: of what a controller raises only a cancellation leaves this module. An unexpected error is logged with its
place in the code, and the controller is retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Counter, Histogram

from autarky.control.base.bounds import bounded
from autarky.control.base.controller import Controller
from autarky.control.base.shield import Shield, Tell, follow
from autarky.control.base.waiting import changed_within
from autarky.kube import Reflector
from autarky.ports import Clock

RECONCILED = Histogram("autarky_reconcile_seconds", "How long each reconcile of a controller took", ["controller"])
FAILURES = Counter("autarky_reconcile_failures_total", "Reconciles that failed", ["controller"])

LONGEST_QUIET = 60.0
"""Seconds until the next reconcile of a controller that gets no changes reported and asks for no other time."""


def _never() -> bool:
    return False


@dataclass(slots=True)
class Reconciler:
    """`tell(subject, sentence)` logs a change once."""

    controller: Controller
    clock: Clock
    tell: Tell
    _shield: Shield = field(init=False)
    _again: float | None = None
    _followed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shield = Shield(self.controller.name, self.clock, self.tell, self.controller.longest_pause)

    async def attempt(self) -> float | None:
        """Reconcile, unless it is still waiting after a failure. Returns the seconds until the next attempt if nothing
        changes; None: only on a change."""
        return self._again if await self._shield.attempt(self._reconcile) else self._shield.rests

    async def run(self, ends: Callable[[], bool] = _never) -> None:
        """Attempt after attempt, each within its time limit, with its sources run beside it, until `ends()`."""
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
            again = await bounded(name, self.controller.reconcile)
        self._again = self.controller.rest if again is None else again

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
