"""Asking the API servers of control nodes whether they serve: each node's own, not any that a load balancer finds.

Contract: both slots are asked on the node's address, without etcd (rule 9): one that is ready is enough. This happens
only while a control node is about to leave; `look` forgets the nodes that it was not called with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from autarky.control.control_nodes.decide import serving as seen_to_serve
from autarky.control.control_nodes.decide.serving import Sight
from autarky.model import patience, ports
from autarky.ports import Clock

API_PORTS = (ports.API_HOSTED, ports.API_STANDBY, ports.API_STANDBY_SPARE)
ANSWER_SECONDS = patience.CONTROL_NODE
"""A starved machine needs a second for a TLS handshake."""
Ask = Callable[[str], Awaitable[str | None]]
"""Node → None where an API server of its own is ready, else what was seen."""


@dataclass(slots=True)
class SeenToServe:
    ask: Ask
    clock: Clock
    _sights: dict[str, Sight] = field(default_factory=dict)

    async def look(self, nodes: Sequence[str]) -> dict[str, str | None]:
        """Node → None if it serves, else why it does not."""
        found = await asyncio.gather(*(self.ask(name) for name in nodes))
        now = self.clock.monotonic()
        self._sights = {
            name: seen_to_serve.observed(self._sights.get(name), trouble, now)
            for name, trouble in zip(nodes, found, strict=True)
        }
        return {name: seen_to_serve.obstacle(sight, now) for name, sight in self._sights.items()}


async def ask_address(ask_url: Ask, address: str) -> str | None:
    """By the node's address. ask_url: URL of one API server → None where it is ready, else what was seen."""
    seen = await asyncio.gather(*(ask_url(f"https://{address}:{port}") for port in API_PORTS))
    return None if None in seen else "; ".join(str(one) for one in seen)
