"""The controller beside the supervisor of this node's hosted kubelet (level 0): it allows its starts, judges them, has
it end where it may not be in force any more, and reports how that stands.

Contract: `decide.hosted` decides; this observes, and carries one decision out in each pass. A note is on the disk
before the verdict that it is for, and before anything is reported. Where no supervisor runs nothing is written, the API
is asked for nothing, and the report is taken off the Node, unless its kubelet is healthy all the same. What cannot be
read or reached raises, and is tried again. Each hand-over is an event on the Node, once (`telling`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from autarky.control.base.controller import Controller
from autarky.control.base.pending_events import PendingEvents
from autarky.control.kubelet.decide import hosted, hosted_report, proof
from autarky.control.kubelet.decide.hosted import Decision, Hosted, Live, Memory, Seen
from autarky.control.kubelet.decide.hosted_report import Report
from autarky.control.kubelet.decide.observed import Other
from autarky.control.kubelet.manifests.hosted import State, Verdict
from autarky.control.kubelet.node.at_work import at_work
from autarky.control.kubelet.node.change import REST_SECONDS, WORK_SECONDS, host_uptime
from autarky.control.kubelet.node.hosted_files import HostedFiles
from autarky.control.kubelet.node.observing import LOOK_SECONDS, Observing
from autarky.control.kubelet.node.on_disk import Found, KubeletFiles
from autarky.control.kubelet.node.telling import HostedEvents, KubeletEvents
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node.ports import plain_status
from autarky.errors import AutarkyError
from autarky.kube import Reflector
from autarky.model import ports
from autarky.ports import Clock, Cri, Kube, Object
from autarky.render.crds import CONTROL_PLANE

CALM = (hosted_report.State.REFUSED, hosted_report.State.FAILED, hosted_report.State.IN_FORCE)
"""States that last."""
SOON_SECONDS = 2.0
"""Between two looks for a supervisor, where there has been one: each new pod waits for it."""


@dataclass(slots=True)
class HostedKubelet(Controller):
    """plane: a copy of the ControlPlane, followed once a supervisor has been seen. own_node: the Node as last seen,
    None before. works: what else may be at work on this node, and whether it is. pending: the events that wait, shared
    with `KubeletChange`. boot, uptime: for tests."""

    name: ClassVar[str] = "hosted kubelet"
    longest_pause: ClassVar[float] = 5.0  # the operator and the supervisor wait for it

    node: str
    kube: Kube
    cri: Cri
    plane: Reflector
    own_node: Callable[[], Object | None]
    works: Mapping[Other, Callable[[], bool]]
    clock: Clock
    tell: Callable[[str, str], None]
    pending: PendingEvents
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    files: KubeletFiles = field(default_factory=KubeletFiles)
    boot: Callable[[], str | None] = slots_on_disk.this_boot
    uptime: Callable[[], int] = host_uptime
    _disk: HostedFiles = field(init=False)
    _observing: Observing = field(init=False)
    _events: HostedEvents = field(init=False)
    _memory: Memory = field(default_factory=Memory)
    _follows: bool = False

    def __post_init__(self) -> None:
        self._disk = HostedFiles(self.files)
        self._observing = Observing(self.node, self.kube, self.cri, _healthy)
        self._events = HostedEvents(KubeletEvents(self.kube, self.clock, self.tell, self.pending))

    def sources(self) -> Sequence[Reflector]:
        return (self.plane,) if self._follows else ()

    async def reconcile(self) -> float:
        one = self._read()
        if one is None and await _healthy():  # stopped, or kept from its disk
            self.tell("hosted kubelet", "its supervisor says nothing, and its kubelet is in force")
            return WORK_SECONDS
        if one is None:
            self._memory = Memory()
            self._events.look(None, "", self.own_node())
            await self._report(None)
            await self._send_events()
            return SOON_SECONDS if self._follows else REST_SECONDS
        found = self.files.read()
        seen = await self._observe(one, found)
        decision = hosted.decide(seen, self._memory, self.clock.monotonic())
        if decision.look:
            seen = replace(seen, live=await self._live())
            decision = hosted.decide(seen, decision.memory, self.clock.monotonic())
        self._memory = decision.memory
        if (self._read(), self.files.read()) != (one, found):  # while the API was asked
            return WORK_SECONDS
        if decision.sentence:
            self.tell("hosted kubelet", decision.sentence)
        self._write(decision, seen, one)
        self._events.look(decision.report, one.why, self.own_node())
        if seen.proof is None or seen.proof.answers:
            await self._report(decision.report)
        if one.state is not State.PROVING:  # what is on trial is not kept waiting
            await self._send_events()
        is_calm = decision.report is not None and decision.report.state in CALM
        if is_calm and decision.verdict is not Verdict.LEAVE and self._follows:
            return REST_SECONDS
        self._follows = True  # from the next pass on, which begins at once: until then nothing is known
        return WORK_SECONDS

    # --- what is seen ---

    def _read(self) -> Hosted | None:
        return self._disk.read(self.boot(), self.uptime())

    async def _observe(self, one: Hosted, found: Found | None) -> Seen:
        boot, node, notes = self.boot() or "", self.own_node(), self._disk.notes()
        before = proof.Before() if notes.allowed is None else notes.allowed.before
        return Seen(
            hosted=one,
            boot=boot,
            uptime=self.uptime(),
            notes=notes,
            said=self._disk.verdict_on(one, boot),
            disk=None if found is None else found.disk,
            others=at_work({Other.UP: self.files.is_changed_by_up, **self.works}),
            plane=self.plane.items.get((None, CONTROL_PLANE)),
            metadata=None if node is None else node["metadata"],
            proof=await self._observing.proof(one.trial, before) if one.state is State.PROVING else None,
        )

    async def _live(self) -> Live:
        now = await self._observing.now()
        return Live(now.plane, None if now.node is None else now.node["metadata"], now.before)

    # --- what is done ---

    def _write(self, decision: Decision, seen: Seen, one: Hosted) -> None:
        if decision.notes is not None:
            self._disk.note(decision.notes)
            failed = decision.notes.failed
            if failed is not None and failed != seen.notes.failed:
                self._events.failed(failed)
        if decision.verdict is not None:
            self._disk.give_verdict(one, seen.boot, decision.verdict, seen.uptime, decision.sentence)

    async def _report(self, report: Report | None) -> None:
        """One that cannot be written holds nothing up: the next pass writes it."""
        node, text = self.own_node(), None if report is None else hosted_report.text(report)
        if node is None or (node["metadata"].get("annotations") or {}).get(hosted_report.ANNOTATION) == text:
            return
        patch: dict[str, Any] = {"metadata": {"annotations": {hosted_report.ANNOTATION: text}}}
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self.kube.patch("v1", "Node", self.node, patch)
        except (AutarkyError, TimeoutError) as error:
            self.tell("hosted kubelet report", f"its state could not be reported: {error or 'no answer'}")

    async def _send_events(self) -> None:
        if (node := self.own_node()) is None:
            return
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._events.events.send(node)
        except TimeoutError:
            self.tell("kubelet events", "an event waits for the API, which does not answer")


async def _healthy() -> bool:
    return await plain_status(ports.KUBELET_HOSTED_HEALTH, "/healthz") == 200
