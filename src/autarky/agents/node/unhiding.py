"""Removes dead runs of pods that hide living ones from the kubelet, after the clock was set back (`decide.hidden`).

Contract: a task of its own, since a runtime that hangs must not delay the agent's rounds, on workers too: every pod of
the node is looked at. What the runtime does not say changes nothing (rule 2). Only what is dead is removed; with it
goes what `kubectl logs --previous` would show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from autarky.agents.node.rounds import bounded
from autarky.decide.hidden import hiding
from autarky.errors import ApiError, Unreachable
from autarky.ports import Clock, Cri

LOOK_SECONDS = 20.0


@dataclass(slots=True)
class Unhiding:
    """`tell(subject, sentence)` says a thing once."""

    cri: Cri
    clock: Clock
    tell: Callable[[str, str], None]

    async def run(self) -> NoReturn:
        while True:
            await self.round()
            await self.clock.sleep(LOOK_SECONDS)

    @bounded
    async def round(self) -> None:
        """One look at all that runs and ran, and what follows from it."""
        try:
            found = hiding(await self.cri.pods(), await self.cri.containers())
            for sandbox in found.sandboxes:
                await self.cri.remove_sandbox(sandbox.id)
                self._told(sandbox.name, "its sandbox", sandbox.attempt)
            for container in found.containers:
                await self.cri.remove_container(container.id)
                self._told(container.pod_name, container.name, container.attempt)
        except (Unreachable, ApiError) as error:
            self.tell("hidden pods", f"the runtime does not say what runs, or removes nothing: {error}")

    def _told(self, pod: str, what: str, attempt: int) -> None:
        run = f"run {attempt} of {what}, which is dead and hid the one that runs: the clock was set back between them"
        self.tell(f"hidden pod {pod}", f"removed {run}")
