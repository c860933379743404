"""Frees, once per boot, the leases that were held on this node when its power went (`decide.dead_leases`).

Danger: a lease whose holder lives would be taken from it. So a lease counts as silent only while every look at it is
answered, and it is written under the version that was looked at.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autarky.agents.node import api_seen, slots_on_disk
from autarky.agents.node.told import Say
from autarky.decide import dead_leases
from autarky.errors import AutarkyError
from autarky.ports import Clock, Kube
from autarky.render.values import SYSTEM

LOOK_SECONDS, NO_ANSWER_SECONDS, FULL_DISK_SECONDS = 0.2, 0.5, 60.0
"""Between two looks: at leases that their holders would renew every 0.8 s, after one that was not answered, and until
the disk takes down that it was done."""


@dataclass(slots=True)
class Undertaker:
    """Run it as a task.

    clients: for each component one that acts as the component itself. The NodeRestriction admission lets a
    kubelet's identity change no lease but its node's own, whatever RBAC says.
    """

    clients: Mapping[str, Kube]
    clock: Clock
    say: Say
    report: Callable[[str, str], None]
    """(reason, message) of an event on the Node."""
    _seen: dict[str, tuple[object, float]] = field(default_factory=dict)
    """Component → the lease's version as it was last seen, and since when."""

    async def run(self) -> None:
        """Until it is done; the API may take its time to come back."""
        boot = slots_on_disk.this_boot()
        if boot is None:
            return
        pending = set(self.clients)
        while pending:
            pause = LOOK_SECONDS
            for name in sorted(pending):
                try:
                    if await self._settled(name, boot):
                        pending.discard(name)
                except AutarkyError:
                    self._seen.pop(name, None)  # the silence must be unbroken
                    pause = NO_ANSWER_SECONDS
            await self.clock.sleep(pause)
        while not self._remembered(boot):
            await self.clock.sleep(FULL_DISK_SECONDS)

    def _remembered(self, boot: dead_leases.Boot) -> bool:
        try:
            slots_on_disk.remember_boot(boot)
        except OSError as error:
            self.say(f"that leases of the last boot are freed cannot be written down: {error}")
            return False
        return True

    async def _settled(self, name: str, boot: dead_leases.Boot) -> bool:
        """Whether there is nothing (more) to free here."""
        obj = await self.clients[name].get(*api_seen.LEASE, name, SYSTEM)
        if obj is None:
            return True
        holder, renewed = obj.get("spec", {}).get("holderIdentity") or "", api_seen.renewed(obj)
        if not dead_leases.holder_may_be_dead(holder, renewed, socket.gethostname(), boot):
            return True
        version, now = obj["metadata"]["resourceVersion"], self.clock.monotonic()
        if self._seen.get(name, (None, 0.0))[0] != version:
            self._seen[name] = (version, now)
        silent = now - self._seen[name][1]
        if not dead_leases.holder_is_dead(holder, renewed, socket.gethostname(), boot, silent):
            return False
        await self.clients[name].replace({**obj, "spec": {**obj["spec"], "holderIdentity": ""}})
        freed = f"the lease of {holder} is freed: it died with the last boot of this node"
        self.say(freed, component=name)
        self.report("LeaseFreed", f"{name}: {freed}")
        return True
