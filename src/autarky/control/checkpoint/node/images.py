"""Keeps every image that a standby needs on the node: there may be no registry when it is needed.

Contract: a task of its own, because a runtime that hangs must not delay the agent's other controllers. It keeps the
images of the kept revisions, the active manifests and the standby agent, and those that a checkpoint is about to need;
it releases all others. `have` returns what the last look found: None when that is unknown or too old.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from autarky import places
from autarky.control.base.controller import Controller
from autarky.control.checkpoint.manifests import images_of_pod
from autarky.control.slots import manifests as standby
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node.runtime import AGENT_OR_STANDBY
from autarky.errors import AutarkyError
from autarky.ports import Clock, KeptImages
from autarky.store import NOT_UNDERSTOOD

POLL_SECONDS = 2.0
"""How soon a new request is handled."""
LOOK_SECONDS = 30.0
"""How soon a removed image is put back."""
STALE_SECONDS = 3 * LOOK_SECONDS
Tell = Callable[[str, str], None]


@dataclass(slots=True)
class ImageKeeping(Controller):
    """`tell(subject, sentence)` logs a change once."""

    name: ClassVar[str] = "image keeping"
    rest: ClassVar[float | None] = POLL_SECONDS

    kept: KeptImages
    clock: Clock
    tell: Tell
    _requested: dict[str, frozenset[str]] = field(default_factory=dict)
    _asked: frozenset[str] = frozenset()
    _found: frozenset[str] = frozenset()
    _looked: float | None = None

    def have(self, owner: str, images: Iterable[str]) -> bool | None:
        """Whether the node has these images and they are kept. From this call on they are requested, until the
        owner requests others."""
        requested = frozenset(images)
        self._requested[owner] = requested
        recent = self._looked is not None and self.clock.monotonic() - self._looked <= STALE_SECONDS
        return requested <= self._found if recent and requested <= self._asked else None

    async def reconcile(self) -> None:
        """Look when a request is new, when an image is missing, or when it is time. Images of what is on the disk were
        requested before, except those already there when the agent starts to act."""
        requested_now = frozenset[str]().union(*self._requested.values())
        if self._looked is not None and requested_now <= self._asked:
            rested = self.clock.monotonic() - self._looked
            if rested < (LOOK_SECONDS if self._asked <= self._found else POLL_SECONDS):
                return
        needed = images_on_disk()
        if needed is not None:
            await self._keep(needed | requested_now, needed)

    async def _keep(self, wanted: frozenset[str], needed: frozenset[str]) -> None:
        try:
            self._found = await self.kept.keep(wanted)
        except AutarkyError as error:
            self.tell("images", f"the images could not be listed or kept: {error}")
            return
        self._asked, self._looked = wanted, self.clock.monotonic()
        missing = sorted(needed - self._found)
        self.tell("images", f"missing on the node: {', '.join(missing)}" if missing else "all are on the node")


def images_on_disk() -> frozenset[str] | None:
    """The images of all kept revisions, active manifests and standby agents; None when the disk cannot be read."""
    try:
        revisions = [path.read_bytes() for path in Path(places.STANDBY).glob("*/*/pod.json")]
        manifests = [pod for component in AGENT_OR_STANDBY for pod in slots_on_disk.manifests_of(component)]
        pods = [json.loads(pod) for pod in (*revisions, *manifests) if standby.is_complete(pod)]
        return frozenset(image for pod in pods for image in images_of_pod(pod))
    except NOT_UNDERSTOOD:
        return None
