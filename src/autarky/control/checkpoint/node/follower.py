"""Keeps the standby of a level 3 component current on a control node that has no hosted pod of it.

Contract: the standby follows only what the operator has seen lead (`control.leadership.decide.reported`): the live
template is used only when it is that very one, and its Secrets and ConfigMaps only when their content is the same. They
are read once per good revision, with rights that the operator grants to control nodes by name. A failure of any kind
leaves the standby as it is. `decide.following` decides.

Danger: what is read holds private keys. A worker has none of these rights, and this runs on control nodes only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from autarky.control.base.node_view import ApiView
from autarky.control.checkpoint.decide import following
from autarky.control.checkpoint.decide.revisions import Action, Verb
from autarky.control.checkpoint.manifests import images
from autarky.control.checkpoint.node.checkpointer import delete_revision, disk_of, write_revision
from autarky.control.checkpoint.node.images import ImageKeeping
from autarky.control.checkpoint.node.reading import (
    READ_SECONDS,
    Content,
    Reading,
    content_of_pod,
    pod_of_template,
    reading,
)
from autarky.control.leadership.decide.reported import Reported
from autarky.control.rollout.decide.good_revision import content_of, revision_of
from autarky.control.slots.decide.pivot import Health, Slot
from autarky.control.slots.manifests import Revision
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.errors import ApiError, AutarkyError
from autarky.kube import KubeClient
from autarky.model.components import COMPONENTS
from autarky.ports import Clock
from autarky.render.values import SYSTEM

RETRY_SECONDS = 30.0
"""Between two attempts to read the last good revision while it is not available."""


class _NotToBeHad(Exception):  # no error: the agent waits for it
    """The last good revision is not available. The text says why, as a clause."""


class _OnTrial(_NotToBeHad):  # no error: the agent waits for it
    """The current template becomes good, or is rolled back, without further action."""


@dataclass(slots=True)
class Follower:
    """One component's standby on this node. tell(subject, sentence): logs a change once."""

    component: str
    kube: KubeClient
    api: ApiView
    clock: Clock
    images: ImageKeeping
    tell: Callable[[str, str], None]
    _memory: following.Memory = field(default_factory=following.Memory)
    _reading: Reading[tuple[str, str]] | None = None
    _refused: str = ""

    @property
    def refused(self) -> str:
        """Why the standby cannot become the last good revision; "" where no reason is known, or where it follows the
        hosted pod of this node."""
        return self._refused

    async def reconcile(self, wanted: Slot, hosted: Health) -> None:
        """hosted: the health of the component's pod on this node; UNKNOWN while the API or etcd is down."""
        now = self.clock.monotonic()
        self._memory = following.watched(wanted, hosted, self._memory, now)
        if wanted is Slot.STANDBY or hosted is Health.READY:
            self._refused = ""
        if not self._memory.is_due(now):
            return
        reported = self.api.reported_of(self.component)
        if not reported.last_good:
            return
        await self._read_when_new(reported)
        known = self._reading
        revision = None if known is None else known.revision
        if known is not None and (revision is not None or known.refusal):  # else the last result stands
            self._refused = "" if known.ends else known.refusal
        seen = following.Seen(
            wanted,
            hosted,
            disk_of(self.component),
            candidate=None if revision is None else revision.name,
            refusal="" if known is None else known.refusal,
            images=None if revision is None else self.images.have(self.component, images(revision)),
        )
        actions, sentence = following.decide(seen, self._memory, now)
        self.tell(f"standby of {self.component}", sentence)
        if revision is not None:
            await self._carry_out(actions, revision)

    # --- reading ---

    async def _read_when_new(self, reported: Reported) -> None:
        known, good, now = self._reading, (reported.last_good, reported.content), self.clock.monotonic()
        if known is None or not known.stands(good, now, RETRY_SECONDS):
            self._reading = await self._read(reported, good)

    async def _read(self, reported: Reported, good: tuple[str, str]) -> Reading[tuple[str, str]]:
        now = self.clock.monotonic()
        try:
            async with asyncio.timeout(READ_SECONDS):
                content = await self._content(reported)
        except _NotToBeHad as why:
            return Reading(good, now, refusal=str(why), ends=isinstance(why, _OnTrial))
        except ApiError as error:
            if error.status != 403:
                return Reading(good, now, refusal=str(error), ends=True)
            return Reading(good, now, refusal="the operator has not granted the right to read it yet")
        except (AutarkyError, TimeoutError):
            return Reading(good, now)
        return reading(good, now, self.component, content, refused="no standby can be made of the last good revision")

    async def _content(self, reported: Reported) -> Content:
        live = await self.kube.get("apps/v1", COMPONENTS[self.component].kind, self.component, SYSTEM)
        if live is None or revision_of(live["spec"]["template"]) != reported.last_good:
            raise _OnTrial("the current template is not known to be good yet")
        template = live["spec"]["template"]
        content = await content_of_pod(self.kube, pod_of_template(self.component, template))
        if content_of(template, content.objects) != reported.content:
            raise _NotToBeHad("the Secrets and ConfigMaps that the last good revision names have changed since it led")
        return content

    # --- acting ---

    async def _carry_out(self, actions: tuple[Action, ...], revision: Revision) -> None:
        """In order; after a failure the next reconcile decides again."""
        try:
            for action in actions:
                match action.verb:
                    case Verb.WRITE:
                        write_revision(revision)
                    case Verb.SWITCH:
                        await slots_on_disk.run_script("switch", self.component, action.revision)
                    case Verb.DELETE:
                        delete_revision(self.component, action.revision)
        except (AutarkyError, OSError) as error:
            self.tell(f"standby of {self.component} not made", f"the standby could not be made: {error}")
