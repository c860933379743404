"""What the agent reports on its Node: its slots, in the form of `decide.report`, and events about what it did.

Contract: level-triggered: the annotation is written when it differs from what it should be, whoever changed it, and
never periodically. It is a task of its own: an API that does not answer delays no decision of the agent. Events wait
for the API, also across restarts of the agent (`pending_events`); those that wait too long appear in its log only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from autarky import places
from autarky.control.base import events
from autarky.control.base.health import PORT_TAKEN
from autarky.control.base.node_view import ApiView
from autarky.control.base.pending_events import PendingEvents, Reporting
from autarky.control.common import emulation
from autarky.control.common.skew import image_version
from autarky.control.slots.decide.report import ANNOTATION, Slots, text
from autarky.errors import ApiError, AutarkyError
from autarky.model.components import NODE_AGENT
from autarky.ports import Clock, Kube

RETRY_SECONDS = 5.0
INVALID = (400, 413, 422)
"""The API's answers to what it will never accept."""
WARNINGS = frozenset({"CheckpointRefused", PORT_TAKEN})
"""The reasons of events that need somebody to act."""


@dataclass(slots=True)
class Announcer(Reporting):
    """`wants` and `happened` (an event on the Node) say what to report; `run`, as a task, reports it.
    `tell(subject, sentence)` logs failures."""

    name: ClassVar[str] = "announcing"

    node: str
    kube: Kube
    api: ApiView
    clock: Clock
    tell: Callable[[str, str], None]
    pending: PendingEvents
    agent: str = ""
    """The uid of this agent's pod."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set it when the live Node may have changed."""
    _wanted: str | None = None
    _not_before: float = 0.0

    def wants(self, level: int, slots: Mapping[str, Slots]) -> None:
        wanted = text(level, slots, self.agent)
        if wanted != self._wanted:
            self._wanted = wanted
            self.changed.set()

    async def reconcile(self) -> float | None:
        """What could not be reported is tried again after RETRY_SECONDS, not at the next change."""
        if (rests := self._not_before - self.clock.monotonic()) > 0:
            return rests
        if all([await self._done(one) for one in (self._announce, self._tell_events)]):
            return None
        self._not_before = self.clock.monotonic() + RETRY_SECONDS
        return RETRY_SECONDS

    async def _done(self, telling: Callable[[], Awaitable[None]]) -> bool:
        """One of them may be refused (an annotation by a policy, say), which must not block the other."""
        try:
            await telling()
        except AutarkyError as error:
            self.tell("announcing", f"what happened on the node could not be reported: {error}")
            return False
        return True

    async def _announce(self) -> None:
        node = self.api.own_node
        if node is None or self._wanted is None:
            return
        if (node["metadata"].get("annotations") or {}).get(ANNOTATION) != self._wanted:
            patch = {"metadata": {"annotations": {ANNOTATION: self._wanted}}}
            await self.kube.patch("v1", "Node", self.node, patch)

    async def _tell_events(self) -> None:
        node = self.api.own_node
        while node is not None and (one := self.pending.first) is not None:
            token, warning = f"{one.message} {one.when}", one.reason in WARNINGS
            try:
                await events.report(
                    self.kube, node, one.reason, one.message, by=NODE_AGENT, token=token, now=one.when, warning=warning
                )
            except ApiError as error:
                if error.status not in INVALID:
                    raise
                self.tell("event", f"the API refused an event, which is dropped: {error}")  # a retry would fail as well
            self.pending.drop(one)


def checkpoint_time(component: str) -> float | None:
    """Since when (Unix seconds) the standby has had its current revision; None when there is none."""
    try:
        return Path(places.STANDBY, component, "current").lstat().st_mtime
    except OSError:
        return None


def checkpoint_stamp(component: str) -> str:
    """The same as RFC 3339; empty when there is none."""
    when = checkpoint_time(component)
    return "" if when is None else datetime.fromtimestamp(int(when), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def current_revision(component: str) -> str:
    """The standby's revision; empty when there is none."""
    try:
        return Path(places.STANDBY, component, "current").readlink().name
    except OSError:
        return ""


def current_version(component: str) -> tuple[str, str]:
    """The tag of the standby's image, and the minor that it emulates; empty when there is no standby, its image has no
    tag, or it emulates none."""
    try:
        return _version_of(component, current_revision(component))
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return "", ""


@lru_cache(maxsize=32)
def _version_of(component: str, revision: str) -> tuple[str, str]:
    """A revision never changes. One that cannot be read now is read again."""
    pod = json.loads(Path(places.STANDBY, component, revision, "pod.json").read_bytes())
    version = image_version(pod["spec"]["containers"][0]["image"])
    return "" if version is None else str(version), ",".join(emulation.given(pod, component))
