"""Asks the container runtime whether the containers that the API shows as running on this node do run: after a power
cut, until the kubelet has updated their status, the API shows pods of which nothing runs.

Contract: the runtime is asked only when the API names a container that was not seen running yet. If the runtime does
not answer, the result is "not known", and it is not asked again for a while, because the caller waits for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from autarky.control.common.pods import said_to_run
from autarky.errors import AutarkyError
from autarky.model import patience
from autarky.ports import Clock, Cri, Object

ASK_SECONDS = patience.RUNTIME_LOOK
SILENT_SECONDS = 10.0
"""How long a runtime that did not answer is not asked again."""


@dataclass(slots=True)
class RunningHere:
    cri: Cri
    clock: Clock
    _running: frozenset[str] = frozenset()
    """As of the last answer: an id that was seen running belongs to this boot."""
    _not_before: float = 0.0

    async def runs(self, pod: Object) -> bool | None:
        """Whether all containers that its status shows as running do run; None when that is not known."""
        said = said_to_run(pod)
        if said <= self._running:
            return True
        if self.clock.monotonic() < self._not_before:
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await self.cri.containers()
        except (AutarkyError, TimeoutError):
            self._not_before = self.clock.monotonic() + SILENT_SECONDS
            return None
        self._running = frozenset(container.id for container in found if container.state == "running")
        return said <= self._running
