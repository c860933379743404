"""Whether what the API says to run on this node does run, by the container runtime: after a power cut, and until the
kubelet has looked anew, the API shows pods of which nothing runs.

Contract: the runtime is asked when the API names a container that was not seen to run yet, and never while all are
known. A runtime that does not answer is "not known", and is left alone for a while: rounds wait for it.
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
"""After which a runtime that did not answer is asked again."""


@dataclass(slots=True)
class RunningHere:
    cri: Cri
    clock: Clock
    _running: frozenset[str] = frozenset()
    """As of the last look: an id that was seen to run belongs to this boot."""
    _not_before: float = 0.0

    async def runs(self, pod: Object) -> bool | None:
        """Whether all containers that its status says to run do; None when that is not known."""
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
