"""Removes dead runs of pods that hide later ones from the kubelet, after the clock was set back (`decide.hidden`).

Contract: a controller of its own, since a runtime that hangs must not delay the agent's others; on workers too, for
every pod of the node. What the runtime does not say changes nothing (rule 2). Only what is dead is removed, and with it
what `kubectl logs --previous` would show. A run that cannot be removed does not hold up the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from autarky.control.base.controller import Controller
from autarky.control.clocks.decide.hidden import Hiding, hiding
from autarky.errors import ApiError, Unreachable
from autarky.ports import Clock, Cri
from autarky.render.values import SYSTEM

LOOK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class _Removal:
    id: str
    namespace: str
    run: str
    """Which run of which pod, for the log."""
    make: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Unhiding(Controller):
    """`tell(subject, sentence)` logs a sentence once."""

    name: ClassVar[str] = "hidden pods"
    rest: ClassVar[float | None] = LOOK_SECONDS

    cri: Cri
    clock: Clock
    tell: Callable[[str, str], None]
    _stays: set[str] = field(default_factory=set)
    """The ids of what could not be removed yet."""

    async def reconcile(self) -> None:
        """Look once at everything that runs and ran, and act."""
        try:
            found = hiding(await self.cri.pods(), await self.cri.containers())
        except (Unreachable, ApiError) as error:
            self.tell("hidden pods", f"the runtime does not say what runs: {error}")
            return
        for removal in self._in_turn(found):
            await self._remove(removal)

    def _in_turn(self, found: Hiding) -> Sequence[_Removal]:
        """The control plane's first; last what could not be removed before: a few calls that time out take up all of a
        reconcile, and the others would never have their turn."""
        removals = self._removals(found)
        self._stays &= {one.id for one in removals}
        return sorted(removals, key=lambda one: (one.id in self._stays, one.namespace != SYSTEM))

    def _removals(self, found: Hiding) -> list[_Removal]:
        sandboxes = [
            _Removal(
                one.id,
                one.namespace,
                f"run {one.attempt} of the sandbox of {one.namespace}/{one.name}",
                partial(self.cri.remove_sandbox, one.id),
            )
            for one in found.sandboxes
        ]
        containers = [
            _Removal(
                one.id,
                one.pod_namespace,
                f"run {one.attempt} of {one.name} of {one.pod_namespace}/{one.pod_name}",
                partial(self.cri.remove_container, one.id),
            )
            for one in found.containers
        ]
        return sandboxes + containers

    async def _remove(self, removal: _Removal) -> None:
        self._stays.add(removal.id)  # before: the reconcile may be cancelled meanwhile
        what = f"{removal.run}, which is dead and hides a later one: the clock was set back between them"
        try:
            await removal.make()
        except (Unreachable, ApiError) as error:
            self.tell(f"hidden {removal.run}", f"cannot remove {what}; trying again: {error}")
            return
        self._stays.discard(removal.id)
        self.tell(f"hidden {removal.run}", f"removed {what}")
