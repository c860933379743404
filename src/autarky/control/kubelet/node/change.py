"""The controller that changes this node's kubelet as its Node is ordered to, and reports how that goes.

Contract: `decide.own` decides; this observes, and carries one step out in each pass. What a step writes on the disk is
there before anything is reported of it, and before what it allows: a note of the end before the report, a note of the
question before the question. A node that has no base.json has no such kubelet: then nothing is read, written or
reported. What cannot be read or reached raises, and is tried again; during a trial it only keeps the proof from being
given.

Danger: what `up` switches by itself it may go back to with what no link reaches: nothing is pruned meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from autarky.control.base.controller import Controller
from autarky.control.base.pending_events import PendingEvents
from autarky.control.common.shapes import plain
from autarky.control.kubelet.decide import hosted, own, proof
from autarky.control.kubelet.decide import order as orders
from autarky.control.kubelet.decide import report as reports
from autarky.control.kubelet.decide.observed import (
    Asked,
    Decision,
    Final,
    Memory,
    OnDisk,
    Other,
    Phase,
    Seen,
    Staged,
    Step,
)
from autarky.control.kubelet.decide.order import Order
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.node import preparing, telling
from autarky.control.kubelet.node.at_work import at_work
from autarky.control.kubelet.node.draining import Draining
from autarky.control.kubelet.node.hosted_files import HostedFiles
from autarky.control.kubelet.node.observing import LOOK_SECONDS, Observing
from autarky.control.kubelet.node.on_disk import Found, KubeletFiles
from autarky.control.kubelet.node.staging import NoRoom, Staging
from autarky.control.kubelet.node.telling import KubeletEvents
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node.ports import plain_status
from autarky.control.upgrade.decide.path import kubelet_of
from autarky.errors import AutarkyError, UserError
from autarky.ports import Clock, Cri, ImageFiles, Kube, Object
from autarky.render.values import CONTROL_PLANE_ACTIVE

WORK_SECONDS, REST_SECONDS = 1.0, 10.0
"""Between two looks: while something is under way, and else, where nothing was seen to change."""
ASK_AGAIN_SECONDS = 5.0
"""The same while the API says that it may not begin yet."""


def host_uptime() -> int:
    """Seconds without their fraction, as the script reads them."""
    return int(Path("/proc/uptime").read_text().split(".")[0])


@dataclass(slots=True)
class KubeletChange(Controller):
    """own_node: the Node as last seen, None before. works: what else may be at work on this node, and whether it is.
    staging, boot, uptime, pending: for tests."""

    name: ClassVar[str] = "kubelet change"
    longest_pause: ClassVar[float] = 5.0  # the operator waits for it

    node: str
    kube: Kube
    cri: Cri
    images: ImageFiles
    own_node: Callable[[], Object | None]
    works: Mapping[Other, Callable[[], bool]]
    clock: Clock
    tell: Callable[[str, str], None]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    files: KubeletFiles = field(default_factory=KubeletFiles)
    staging: Staging | None = None
    boot: Callable[[], str | None] = slots_on_disk.this_boot
    uptime: Callable[[], int] = host_uptime
    pending: PendingEvents | None = None
    _staging: Staging = field(init=False)
    _observing: Observing = field(init=False)
    _draining: Draining = field(init=False)
    _events: KubeletEvents = field(init=False)
    _memory: Memory = field(default_factory=Memory)
    _trouble: tuple[str, str] = ("", "")
    """The order that cannot be staged, and why."""
    _full: tuple[str, str] = ("", "")
    """The order that there was no room for when it was staged last, and how that was said."""
    _may_prune: bool = True
    """Whether something may be on the disk that nobody wants any more."""

    def __post_init__(self) -> None:
        self._staging = self.staging or Staging(self.images, self.files.root)
        self._observing = Observing(self.node, self.kube, self.cri, self._healthy)
        self._draining = Draining(self.kube, self.node, self.clock)
        pending = self.pending or PendingEvents(self.tell, telling.FILE)
        self._events = KubeletEvents(self.kube, self.clock, self.tell, pending)

    async def reconcile(self) -> float:
        found = self.files.read()
        if found is None:
            return REST_SECONDS
        seen = await self._observe(found)
        decision = own.decide(seen, self._memory, self.clock.monotonic())
        looked = decision.step is Step.LOOK
        if looked:
            seen = replace(seen, live=await self._observing.live())
            decision = own.decide(seen, decision.memory, self.clock.monotonic())
        self._memory = decision.memory
        if decision.sentence:
            self.tell("kubelet change", decision.sentence)
        await self._carry_out(decision, seen, found)
        if decision.step is Step.NOTHING and not self._is_under_way(seen, found.disk):
            await self._rest(seen)
            return REST_SECONDS
        return ASK_AGAIN_SECONDS if looked and decision.step is Step.NOTHING else WORK_SECONDS

    def _is_under_way(self, seen: Seen, disk: OnDisk) -> bool:
        ordered = seen.order is not None and not own.is_over(seen.order, disk.last)
        return ordered or bool(disk.ask) or disk.trial is not None

    # --- what is seen ---

    async def _observe(self, found: Found) -> Seen:
        disk, node = found.disk, self.own_node()
        order = None if node is None else orders.read(node["metadata"])
        said = None if node is None else reports.read(node["metadata"])
        seen = Seen(
            order=order,
            disk=disk,
            boot=self.boot() or "",
            others=at_work({Other.UP: self.files.is_changed_by_up, Other.HOSTED: self._is_all_there_is, **self.works}),
            runs=kubelet_of(node),
            control=node is not None and CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {}),
            ended=said.order if said is not None and said.is_final else "",
            unschedulable=node is not None and (node.get("spec") or {}).get("unschedulable") is True,
        )
        if disk.trial is not None and disk.trial.phase is Phase.PROVING:
            if disk.asked is None or disk.asked.order != disk.trial.order:
                return seen
            return replace(seen, proof=await self._proof(disk.asked))
        if order is None or disk.ask or disk.trial is not None or own.is_over(order, disk.last):
            return seen
        seen = replace(seen, staged=self._staged(order))
        drains = seen.staged.generation and seen.unschedulable and orders.drains(order, seen.runs)
        return replace(seen, pods=await self._draining.left()) if drains else seen

    async def _proof(self, asked: Asked) -> proof.Seen:
        since, now = self.files.proving_since(), self.clock.time()
        return await self._observing.proof(asked.order, asked.before, None if since is None else (since, now))

    def _staged(self, order: Order) -> Staged:
        """That there is no room for the programs either, only staging sees: which of them are there already."""
        free = self._staging.free(self._staging.root)
        if name := self.files.generation_of(order.target):
            return Staged(name, free=free)
        trouble, full = (why if name == order.id else "" for name, why in (self._trouble, self._full))
        return Staged(trouble=trouble, full=full, free=free)

    def _is_all_there_is(self) -> bool:
        """Whether a hosted kubelet is, which a trial of the host's would end, or is to be in a moment. OSError."""
        disk, boot, node = HostedFiles(self.files), self.boot() or "", self.own_node()
        one = disk.read(boot, self.uptime())
        if one is None or node is None:
            return one is not None and one.is_all_there_is
        return one.is_all_there_is or hosted.starts_first(one, disk.verdict_on(one, boot), node["metadata"])

    async def _healthy(self) -> bool | None:
        port = self.files.health_port()
        return None if port is None else await plain_status(port, "/healthz") == 200

    # --- what is done ---

    async def _carry_out(self, decision: Decision, seen: Seen, found: Found) -> None:
        """What is short and on the disk comes before the report, what takes long, after it."""
        match decision.step:
            case Step.REFUSE | Step.REPORT:
                self._end(decision, found.disk)
            case Step.ASK:
                self._ask(decision, seen, found)
            case Step.PROVE:
                self._prove(decision, found.disk)
        if decision.report is not None and (seen.proof is None or seen.proof.answers):
            await self._report(decision.report)
        match decision.step:
            case Step.STAGE:
                await self._stage(seen, found)
            case Step.DRAIN:
                await self._draining.evict()

    def _end(self, decision: Decision, disk: OnDisk) -> None:
        final = decision.final
        if final is None:
            return
        self.files.note_final(final)
        self._may_prune = True
        if final.state is not State.DONE or _was_asked(disk, final):
            self._events.ended(final, disk.version)

    def _ask(self, decision: Decision, seen: Seen, found: Found) -> None:
        """Nothing may have happened on the disk while the API was asked."""
        if decision.asked is None or self.files.read() != found:
            return
        self.files.note_asked(decision.asked)
        if not self.files.ask(decision.asked.order, seen.staged.generation, seen.boot, self.uptime()):
            self.tell("kubelet change", "somebody else has just asked the script for something else")

    def _prove(self, decision: Decision, disk: OnDisk) -> None:
        if decision.verdict is not None and disk.trial is not None:
            self.files.give_verdict(disk.trial.order, decision.verdict, self.uptime(), decision.sentence)

    async def _stage(self, seen: Seen, found: Found) -> None:
        order = seen.order
        if order is None:
            return
        self._may_prune, self._full = True, ("", "")
        try:
            await self._staging.stage(preparing.wanted(order, found.base, found.disk, self.files, self._staging))
        except NoRoom as error:
            self._full = order.id, plain(str(error))
        except UserError as error:
            self._trouble = order.id, plain(str(error))

    # --- what is reported ---

    async def _report(self, report: Report) -> None:
        """A report that cannot be written holds nothing up: the next pass writes it."""
        node, text = self.own_node(), reports.text(report)
        if node is None or (node["metadata"].get("annotations") or {}).get(reports.ANNOTATION) == text:
            return
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self.kube.patch(
                    "v1", "Node", self.node, {"metadata": {"annotations": {reports.ANNOTATION: text}}}
                )
        except (AutarkyError, TimeoutError) as error:
            self.tell("kubelet report", f"the state of the kubelet could not be reported: {error or 'no answer'}")

    async def _rest(self, seen: Seen) -> None:
        """Nothing is under way: what has waited for that."""
        if self._may_prune and seen.others is not None and Other.UP not in seen.others:
            self._may_prune = False
            try:
                if gone := await self._staging.prune([]):
                    self.tell("kubelet staging", f"removed what nobody wants any more: {', '.join(gone)}")
            except OSError as error:
                self.tell("kubelet staging", f"what nobody wants any more could not be removed: {error}")
        if (node := self.own_node()) is not None:
            await self._events.send(node)


def _was_asked(disk: OnDisk, final: Final) -> bool:
    """Whether the script was: what was there already is no change."""
    return disk.result is not None and disk.result.order == final.order
