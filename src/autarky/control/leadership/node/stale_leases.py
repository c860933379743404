"""Frees, once per boot, the leases that were held on this node when its power went (`decide.stale_leases`), and writes
down who holds them now, for the next boot.

Danger: a lease must not be taken from a live holder. So it is written under the version that was read, and a note says
in which boot its holder was first seen.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.base import node_view as api_seen
from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import Say
from autarky.control.leadership.decide import stale_leases as dead_leases
from autarky.control.leadership.decide.leader import Lease
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.errors import AutarkyError
from autarky.ports import Clock, Kube
from autarky.render.values import SYSTEM

NO_ANSWER_SECONDS, NOTE_SECONDS, FULL_DISK_SECONDS = 0.5, 1.0, 60.0
"""After a request without an answer; between two looks at who holds the leases (in live copies, without a request); and
until a disk that cannot be written is tried again."""


@dataclass(slots=True)
class StaleLeases(Controller):
    """clients: for each component a client with the component's own identity. NodeRestriction lets a kubelet
    change no lease but its node's own, whatever RBAC says. lease(component): the live copy.
    """

    clients: Mapping[str, Kube]
    clock: Clock
    say: Say
    report: Callable[[str, str], None]
    """(reason, message) of an event on the Node."""
    lease: Callable[[str], Lease | None]
    name: ClassVar[str] = "stale leases"
    _boot: str | None = None
    _pending: set[str] = field(default_factory=set)

    async def reconcile(self) -> float | None:
        """Until `standby boot` has written which boot this is, nothing is freed or noted."""
        if self._boot is None:
            self._boot = slots_on_disk.this_boot()
            self._pending = set(self.clients)
        if self._boot is None:
            return FULL_DISK_SECONDS
        for name in sorted(self._pending):
            with suppress(AutarkyError):  # the API may still be starting
                await self._free_if_dead(name, self._boot)
                self._pending.discard(name)
        if self._pending:
            return NO_ANSWER_SECONDS
        return NOTE_SECONDS if self._note(self._boot) else FULL_DISK_SECONDS

    async def _free_if_dead(self, name: str, boot: str) -> None:
        obj = await self.clients[name].get(*api_seen.LEASE, name, SYSTEM)
        holder = "" if obj is None else obj.get("spec", {}).get("holderIdentity") or ""
        noted = slots_on_disk.noted_holders().get(name)
        if obj is None or not dead_leases.holder_is_dead(holder, noted, socket.gethostname(), boot):
            return
        await self.clients[name].replace({**obj, "spec": {**obj["spec"], "holderIdentity": ""}})
        freed = f"the lease of {holder} is freed: it died with the last boot of this node"
        self.say(freed, component=name)
        self.report("LeaseFreed", f"{name}: {freed}")

    def _note(self, boot: str) -> bool:
        """Whether the current holders are written down."""
        noted = dict(slots_on_disk.noted_holders())
        news = {}
        for name in self.clients:
            found = self.lease(name)
            new = dead_leases.to_note(
                "" if found is None else found.holder, noted.get(name), socket.gethostname(), boot
            )
            if new is not None:
                news[name] = new
        try:
            if news:
                slots_on_disk.note_holders({**noted, **news})
        except OSError as error:
            self.say(f"could not write down who holds the leases: {error}")
            return False
        return True
