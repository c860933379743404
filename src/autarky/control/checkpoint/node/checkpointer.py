"""Keeps each component's standby a copy of the hosted pod: observe, decide (`decide.revisions`), act.

Contract: content is read from the API once per run of a pod's containers and once more right before it is
written, never in between; everything else is read from the disk and from live copies. A failure of any kind
leaves the existing checkpoint as it is.

Dangers: the files hold private keys, so a revision's directory is closed to others before anything is written to it.
Each action may be interrupted anywhere and repeated: pod.json is written last and deleted first.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autarky import places
from autarky.control.base.node_view import ApiView
from autarky.control.checkpoint.decide import revisions as checkpoint
from autarky.control.checkpoint.decide.evidence import instance_of
from autarky.control.checkpoint.decide.revisions import Disk, Instance, Seen, Verb
from autarky.control.checkpoint.manifests import images
from autarky.control.checkpoint.node.images import ImageKeeping
from autarky.control.checkpoint.node.reading import READ_SECONDS, Reading, content_of_pod, reading
from autarky.control.slots import manifests as standby
from autarky.control.slots.decide.pivot import Health, Slot
from autarky.control.slots.manifests import Revision
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.errors import AutarkyError, UserError
from autarky.kube import KubeClient
from autarky.ports import Clock, Object
from autarky.render import pods
from autarky.store import NOT_UNDERSTOOD, write_private

RETRY_SECONDS = 5.0
"""Between two attempts to read a pod's content from an API that does not answer."""


def _as_it_is(pod: Object) -> Object:
    return pod


@dataclass(slots=True)
class Checkpointer:
    """One component's checkpoint on this node."""

    component: str
    kube: KubeClient
    api: ApiView
    clock: Clock
    images: ImageKeeping
    tell: Callable[[str, str], None]
    report: Callable[[str, str], None]
    """(reason, message) of an event on the Node."""
    prepare: Callable[[Object], Object] = _as_it_is
    """Changes the hosted pod for the standby, beyond the rules that all components share."""
    _memory: checkpoint.Memory = field(default_factory=checkpoint.Memory)
    _reading: Reading[Instance] | None = None

    @property
    def refused(self) -> str:
        """Why the running pod cannot become the checkpoint as it is; "" where no reason is known."""
        return self._memory.refused

    async def reconcile(self, wanted: Slot, hosted: Health, *, etcd_up: bool) -> None:
        """`hosted`: the hosted slot's current health, by its own port or its lease."""
        looked = self.clock.monotonic()
        pod = self.api.hosted_pod(self.component)
        instance = None if pod is None else instance_of(pod, self.api.version_unstarted(pod))
        if hosted is Health.READY and pod is not None and instance is not None:
            await self._read_when_new(pod, instance)
        known = self._reading if self._reading is not None and self._reading.subject == instance else None
        seen = Seen(
            looked=looked,
            wanted=wanted,
            hosted=hosted,
            disk=disk_of(self.component),
            etcd_up=etcd_up,
            instance=instance,
            candidate=known.revision.name if known is not None and known.revision is not None else None,
            refusal=known.refusal if known is not None else "",
            sources=known.sources if known is not None else None,
            images=None if known is None else self._images_of(known),
        )
        decision = checkpoint.decide(seen, self._memory, self.clock.monotonic())
        if decision.memory.refused and decision.memory.refused != self.refused:
            self.report("CheckpointRefused", f"{self.component}: {decision.sentence}")
        self._memory = decision.memory
        self.tell(f"checkpoint of {self.component}", decision.sentence)
        if decision.actions and pod is not None and instance is not None:
            await self._carry_out(decision.actions, pod, instance)

    def _images_of(self, reading: Reading[Instance]) -> bool | None:
        """They run, so they were on the node; this says whether they still are, and are kept."""
        return None if reading.revision is None else self.images.have(self.component, images(reading.revision))

    # --- content ---

    async def _read_when_new(self, pod: Object, instance: Instance) -> None:
        known = self._reading
        if known is None or not known.stands(instance, self.clock.monotonic(), RETRY_SECONDS):
            self._reading = await self._read(pod, instance)

    async def _read(self, pod: Object, instance: Instance) -> Reading[Instance]:
        now = self.clock.monotonic()
        try:
            async with asyncio.timeout(READ_SECONDS):
                content = await content_of_pod(self.kube, self.prepare(pod))
        except (AutarkyError, TimeoutError):
            return Reading(instance, now)
        return reading(instance, now, self.component, content, refused="no checkpoint can be made")

    # --- acting ---

    async def _carry_out(self, actions: tuple[checkpoint.Action, ...], pod: Object, instance: Instance) -> None:
        """In order; after a failure the next reconcile decides again."""
        try:
            for action in actions:
                match action.verb:
                    case Verb.WRITE:
                        await self._write_if_unchanged(action.revision, pod, instance)
                    case Verb.SWITCH:
                        await slots_on_disk.run_script("switch", self.component, action.revision)
                    case Verb.DELETE:
                        delete_revision(self.component, action.revision)
        except (AutarkyError, OSError) as error:
            self.tell(f"checkpoint of {self.component} not made", f"the checkpoint could not be made: {error}")

    async def _write_if_unchanged(self, name: str, pod: Object, instance: Instance) -> None:
        """A mutable Secret may have changed since it was read."""
        self._reading = await self._read(pod, instance)
        revision = self._reading.revision
        if revision is None or revision.name != name:
            raise UserError(
                f"the content of revision {name} has changed since it was read", fix="wait until it is read again"
            )
        write_revision(revision)


def disk_of(component: str) -> Disk | None:
    """The component's directory as it is; None when it cannot be read."""
    directory = Path(places.STANDBY, component)
    try:
        revisions = {path.name for path in directory.iterdir() if path.is_dir() and not path.is_symlink()}
        complete = {name for name in revisions if is_complete(directory / name)}
        return Disk(
            current=_link(directory / "current"),
            previous=_link(directory / "previous"),
            complete=frozenset(complete),
            incomplete=frozenset(revisions - complete),
            in_use=_in_use(component, revisions),
        )
    except NOT_UNDERSTOOD:
        return None


def _link(path: Path) -> str | None:
    return path.readlink().name if path.is_symlink() else None


def is_complete(revision: Path) -> bool:
    """An incomplete pod.json does not count: the revision is written again."""
    pod = revision / "pod.json"
    return pod.exists() and standby.is_complete(pod.read_bytes())


def _in_use(component: str, revisions: set[str]) -> frozenset[str]:
    """An incomplete manifest may be of any revision, and its pod may still run."""
    manifests = slots_on_disk.manifests_of(component)
    if not all(map(standby.is_complete, manifests)):
        return frozenset(revisions)
    found = [json.loads(content)["metadata"] for content in manifests]
    return frozenset(meta["annotations"][pods.REVISION] for meta in found if "annotations" in meta)


def write_revision(revision: Revision) -> None:
    """All files, each synced; pod.json last, which says that everything else is there."""
    directory = Path(revision.directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in revision.files:
        write_private(Path(file.path), file.content, mode=file.mode)


def delete_revision(component: str, name: str) -> None:
    """pod.json first, so that a partly deleted revision is incomplete."""
    directory = Path(places.STANDBY, component, name)
    (directory / "pod.json").unlink(missing_ok=True)
    shutil.rmtree(directory)
