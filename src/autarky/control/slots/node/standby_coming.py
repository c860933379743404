"""Checks, while the kubelet waits to stop the hosted API server, whether this node's standby is starting.

A standby is starting when its container exists and none of its containers has exited: on a slow machine a server needs
minutes to start, and one that cannot start exits. How far it has got cannot be observed.

It is waited for only while the hosted server's pod is being deleted, and within its grace period: a server that fails
its probes has a shorter one, and would have no time to drain.

Contract: a task of its own, since a runtime that hangs must not delay the agent's other controllers; nothing is asked
unless the kubelet waits. What the disk or the runtime does not answer changes nothing (rule 2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autarky.control.base.controller import Controller
from autarky.control.load_balancer.manifests.haproxy import SLOTS
from autarky.control.load_balancer.node import haproxy
from autarky.control.slots.decide.pivot import Slot
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node.hand_over import HandOver
from autarky.errors import AutarkyError
from autarky.model import patience
from autarky.model.components import API_SERVER
from autarky.model.endpoint import Endpoint
from autarky.model.runtime import Container
from autarky.ports import Clock, Cri, Object

LOOK_SECONDS = 2.0
ASK_SECONDS = patience.RUNTIME


@dataclass(slots=True)
class StandbyComing(Controller):
    """`tell(subject, sentence)` logs a change once; endpoints: the control nodes as far as known; hosted: this node's
    hosted API servers, as the API shows them."""

    name: ClassVar[str] = "coming standby"
    rest: ClassVar[float | None] = LOOK_SECONDS

    node: str
    cri: Cri
    clock: Clock
    tell: Callable[[str, str], None]
    hand_over: HandOver
    endpoints: Callable[[], Sequence[Endpoint]]
    hosted: Callable[[], Sequence[Object]]

    async def reconcile(self) -> None:
        """Update the hand-over, while the kubelet waits for it."""
        if not self.hand_over.waits:
            return
        comes = await self._is_on_its_way()
        if comes is None:
            return
        covered = comes and await self._another_node_serves()
        self.hand_over.is_worth(seconds_to_wait(self.hosted()) if comes and not covered else 0.0)
        why = "another node serves" if covered else "its process runs" if comes else "it does not run, or exited"
        self.tell("hand-over", f"the hosted API server waits for its standby: {why}")

    async def _is_on_its_way(self) -> bool | None:
        """None where that cannot be observed."""
        in_place = slots_on_disk.activations()
        if in_place is None:
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                containers = await self.cri.containers()
        except (AutarkyError, TimeoutError):
            return None
        return is_on_its_way([one for one in containers if one.pod_uid in in_place[API_SERVER]])

    async def _another_node_serves(self) -> bool:
        """As the load balancer sees it: requests would go there."""
        return await haproxy.holds_any(servers_that_cover(self.node, [one.node for one in self.endpoints()]))


def servers_that_cover(node: str, control_nodes: Sequence[str]) -> list[str]:
    """The servers that may serve instead of the node's own. A hosted one that is being stopped serves until its hook
    has been answered: when all are stopped at once, each would count on the others and none wait for its standby. So a
    node counts only on the hosted servers of the nodes before it by name, and the first node on none."""
    others = [name for name in control_nodes if name != node]
    return [f"{name}-{slot}" for name in others for slot in SLOTS if slot != Slot.HOSTED.value or name < node]


def seconds_to_wait(hosted: Sequence[Object]) -> float:
    """The grace period of a pod that is being deleted, less the time to drain."""
    ending = [pod["metadata"] for pod in hosted if "deletionTimestamp" in pod["metadata"]]
    graces = [float(meta.get("deletionGracePeriodSeconds") or 0) for meta in ending]
    return max(graces, default=0.0) - patience.HOSTED_DRAIN


def is_on_its_way(containers: Sequence[Container]) -> bool:
    """`containers`: those of the standby that is in place. One that has exited and restarts has failed to start."""
    own = [one.state for one in containers if one.name == API_SERVER]
    return any(state in ("created", "running") for state in own) and "exited" not in own
