"""Watches through CRI whether active standbys really run: observe, decide (`decide.activations`), act.

Contract: a task of its own, because a runtime that hangs must not delay the agent's other controllers. While nothing
is pending the runtime is asked only twice a minute; a runtime that does not answer changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.base.controller import Controller
from autarky.control.slots.decide import activations
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node import ports as ports_seen
from autarky.control.slots.node.runtime import Running, running_standbys
from autarky.errors import AutarkyError
from autarky.model import ports
from autarky.model.components import WITH_STANDBY
from autarky.ports import Clock, Cri

POLL_SECONDS = 2.0
REST_SECONDS = 30.0
"""Between two observations while nothing is pending."""


@dataclass(slots=True)
class ActivationWatch(Controller):
    """`etcd_up()` and `hosted_serves(component)` are what the agent knows; `tell(subject, sentence)` logs a
    change once."""

    name: ClassVar[str] = "activation watch"
    rest: ClassVar[float | None] = POLL_SECONDS

    cri: Cri
    clock: Clock
    tell: Callable[[str, str], None]
    etcd_up: Callable[[], Awaitable[bool]]
    hosted_serves: Callable[[str], bool]
    _memory: dict[str, activations.Memory] = field(default_factory=dict)
    _last: Mapping[str, frozenset[str]] | None = None
    _rests_until: float = 0.0

    async def reconcile(self) -> None:
        """One observation, unless nothing is pending and nothing has changed on the disk."""
        in_place = slots_on_disk.activations()
        if in_place is not None and in_place == self._last and self.clock.monotonic() < self._rests_until:
            return
        self._last = in_place
        running = await running_standbys(self.cri)
        kubelet_up = await _kubelet_answers()
        etcd_up = await self.etcd_up()
        settled = True
        for component in WITH_STANDBY:
            seen = activations.Seen(
                in_place=None if in_place is None else in_place[component],
                running=None if running is None else frozenset(running[component]),
                kubelet_up=kubelet_up,
                etcd_up=etcd_up,
                hosted_serves=self.hosted_serves(component),
            )
            settled &= await self._judge(component, seen, running)
        self._rests_until = self.clock.monotonic() + REST_SECONDS if settled else 0.0

    async def _judge(self, component: str, seen: activations.Seen, running: Running | None) -> bool:
        memory = self._memory.get(component, activations.Memory())
        decision = activations.decide(seen, memory, self.clock.monotonic())
        self._memory[component] = decision.memory
        self.tell(f"standby of {component}", decision.sentence)
        try:
            if decision.renew:
                await slots_on_disk.run_script("renew", component)
            for uid in sorted(decision.stop):
                for sandbox in running[component][uid] if running is not None else ():
                    await self.cri.stop_sandbox(sandbox)
        except AutarkyError as error:
            self.tell(f"standby of {component} not repaired", f"the standby could not be repaired: {error}")
        return decision.settled


async def _kubelet_answers() -> bool:
    """In whichever slot it is in force."""
    for port in (ports.KUBELET_HEALTH, ports.KUBELET_HOSTED_HEALTH):
        if await ports_seen.plain_status(port, "/healthz") == 200:
            return True
    return False
