"""Reads a lease from the API once more before a standby is activated because of it.

A watch whose connection is dead shows an old lease for a while, and an API server that has lost its etcd connection
answers nothing.

Contract: runs beside the agent's reconcile, so that a slow answer (up to SLOWEST_ANSWER is valid) delays no other slot:
the first call of `is_still` starts the request, and the first call after the answer returns the result. No answer in
time does not count as "still".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from autarky.control.base.node_view import LEASE
from autarky.control.leadership.decide import leader as leadership
from autarky.errors import AutarkyError
from autarky.model import patience
from autarky.ports import Kube
from autarky.render.values import SYSTEM

ASK_SECONDS = patience.LEASE_LOOK


@dataclass(frozen=True, slots=True)
class Answer:
    """lease: None where there is none."""

    lease: leadership.Lease | None


@dataclass(slots=True)
class LeaseAgain:
    """`heard()` is called when an answer has arrived, or none came in time."""

    kube: Kube
    heard: Callable[[], None]
    _asked: dict[str, asyncio.Task[Answer | None]] = field(default_factory=dict)

    def is_still(self, component: str, lease: leadership.Lease | None) -> bool | None:
        """Whether the API still shows this lease; None while it has not answered."""
        asked = self._asked.get(component)
        if asked is None:
            asked = self._asked[component] = asyncio.create_task(self._ask(component))
            asked.add_done_callback(lambda _: self.heard())
        if not asked.done():
            return None
        del self._asked[component]
        return asked.result() == Answer(lease)

    def forget(self, component: str) -> None:
        """The answer is not needed any more; a late one would be outdated."""
        if (asked := self._asked.pop(component, None)) is not None:
            asked.cancel()

    async def close(self) -> None:
        for component in tuple(self._asked):
            self.forget(component)

    async def _ask(self, component: str) -> Answer | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                obj = await self.kube.get(*LEASE, component, SYSTEM)
        except (AutarkyError, TimeoutError):
            return None
        return Answer(None if obj is None else leadership.lease_of(obj))
