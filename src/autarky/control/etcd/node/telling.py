"""Events about etcd, on this node's EtcdMember, and on its Node where etcd has none: as soon as the API takes them.

Contract: with etcd's alarms the API takes no writes, so an event waits, in a file that outlives the agent
(`pending_events`); one that the API does not accept as it is, is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

from autarky import places
from autarky.control.base import pending_events
from autarky.control.base.pending_events import PendingEvents, Reporting
from autarky.ports import Clock, Kube, Object

FILE = Path(places.RUN, "pending-etcd-events.json")
RETRY_SECONDS = 5.0
NORMAL = frozenset({"EtcdDefragmented", "EtcdHistoryCompacted", "EtcdAlarmCleared"})
"""The reasons of events that need nobody; all others are warnings."""


@dataclass(slots=True)
class EtcdEvents(Reporting):
    """about(): the object that the events are for; None while it is not known."""

    name: ClassVar[str] = "etcd events"
    longest_pause: ClassVar[float] = RETRY_SECONDS

    kube: Kube
    clock: Clock
    tell: Callable[[str, str], None]
    about: Callable[[], Object | None]
    pending: PendingEvents
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def reconcile(self) -> float | None:
        while (one := self.pending.first) is not None:
            obj = self.about()
            if obj is None or not await pending_events.send(
                self.kube, obj, one, warning=one.reason not in NORMAL, tell=partial(self.tell, self.name)
            ):
                return RETRY_SECONDS
            self.pending.drop(one)
        return None
