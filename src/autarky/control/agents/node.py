"""Keeps the standby agent of a control node a copy of the hosted one: observe, decide (`decide`), act.

Contract: only the hosted agent does it, so that no agent stops itself. What is copied is the current revision of the
agent's own standby, which `checkpointer` makes as it does for every component; a manifest appears in one rename.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from autarky import places
from autarky.control.agents import decide as standby_agent
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.base.controller import Controller
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node.runtime import running_standbys
from autarky.model.components import NODE_AGENT
from autarky.ports import Clock, Cri
from autarky.render import pods
from autarky.store import NOT_UNDERSTOOD, write_private

POLL_SECONDS = 2.0
REST_SECONDS = 30.0
"""Between two observations while everything is settled."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A standby agent's manifest: its pod's uid, and its revision ("" for one rendered by `up`)."""

    uid: str
    revision: str


@dataclass(slots=True)
class StandbyAgent(Controller):
    """`tell(subject, sentence)` logs a change once."""

    name: ClassVar[str] = "standby agent"
    rest: ClassVar[float | None] = POLL_SECONDS

    cri: Cri
    clock: Clock
    tell: Callable[[str, str], None]
    _memory: standby_agent.Memory = field(default_factory=standby_agent.Memory)
    _last: object = None
    _rests_until: float = 0.0

    async def reconcile(self) -> None:
        """Skipped while everything is settled and nothing has changed on the disk."""
        current, manifests = current_revision(), manifests_in_place()
        if (current, manifests) == self._last and self.clock.monotonic() < self._rests_until:
            return
        self._last = (current, manifests)
        decision = standby_agent.decide(await self._seen(current, manifests), self._memory, self.clock.monotonic())
        self._memory = decision.memory
        self._rests_until = self.clock.monotonic() + REST_SECONDS if decision.settled else 0.0
        self.tell("the standby agent", decision.sentence)
        self._act(decision)

    async def _seen(self, current: str | None, manifests: Mapping[str, Manifest] | None) -> standby_agent.Seen:
        if manifests is None:
            return standby_agent.Seen(current, None, None)
        running = await running_standbys(self.cri)
        return standby_agent.Seen(
            current,
            {name: manifest.revision for name, manifest in manifests.items()},
            None
            if running is None
            else frozenset(n for n, manifest in manifests.items() if manifest.uid in running[NODE_AGENT]),
        )

    def _act(self, decision: standby_agent.Decision) -> None:
        try:
            if decision.place:
                put_in_place()
            for name in sorted(decision.remove):
                Path(places.MANIFESTS, name).unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            self.tell("the standby agent not changed", f"the standby agent could not be changed: {error}")


def current_revision() -> str | None:
    """Of the agent's own standby; None before the first checkpoint, or when it is not complete."""
    link = Path(places.STANDBY, NODE_AGENT, "current")
    return link.readlink().name if link.is_symlink() and (link / "pod.json").exists() else None


def manifests_in_place() -> Mapping[str, Manifest] | None:
    """By file name; None when they cannot be read."""
    found = {}
    try:
        for path in slots_on_disk.manifest_paths_of(NODE_AGENT):
            meta = json.loads(path.read_text())["metadata"]
            found[path.name] = Manifest(str(meta["uid"]), str(meta.get("annotations", {}).get(pods.REVISION, "")))
    except NOT_UNDERSTOOD:
        return None
    return found


def put_in_place() -> None:
    """A new activation of the current revision, with a new name and uid."""
    uid = str(uuid.uuid4())
    activation = uid.partition("-")[0]
    pod = Path(places.STANDBY, NODE_AGENT, "current", "pod.json").read_text()
    pod = pod.replace(pods.ACTIVATION_UID, uid).replace(pods.ACTIVATION, activation)
    write_private(Path(places.MANIFESTS, f"{agent.STANDBY_POD}-{activation}.json"), pod.encode())
