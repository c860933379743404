"""The controller that changes this node's member to another template, when it has the turn.

Contract: `decide.change` says what happens; the turn is given by the agent beside etcd's leader (`decide.membership`).
It begins only where the API confirms the turn and every other voter serves right then; from there on it needs neither
the API nor any memory but the file, which names the member and ends with it. What the member runs, and a template that
it was not healthy with, is reported on its EtcdMember. Nothing is done where a recovery has fenced the node.

Race: while this looks, a recovery may fence the node, or the agent's other part find out that the data is of a former
etcd, and drop the note. So right before each step fence and note are read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide import change as etcd_change
from autarky.control.etcd.decide.change import Action, Change
from autarky.control.etcd.decide.leaving import RELOAD_SECONDS
from autarky.control.etcd.decide.local import Data
from autarky.control.etcd.decide.template import revision
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import KIND, should_be_member
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node import seen as etcd_seen
from autarky.control.etcd.node.last_words import last_words
from autarky.control.etcd.node.seen import EtcdSeen
from autarky.control.slots.node.ports import plain_status
from autarky.errors import AutarkyError
from autarky.etcd import Membership
from autarky.kube import Reflector
from autarky.model import ports
from autarky.model.runtime import Container
from autarky.ports import Clock, Cri, Kube, Object
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM

WORK_SECONDS, REST_SECONDS = 1.0, 60.0
"""Between two looks: while a change is under way, and else, where nothing was seen to change."""
LIST_SECONDS = 10.0
"""Between two looks at etcd's list of members: one that is off costs all of the time for an answer."""
READY = "/readyz"
PULL_SECONDS = 300.0


@dataclass(slots=True)
class EtcdChange(Controller):
    """objects: the EtcdMembers, which somebody else watches."""

    name: ClassVar[str] = "etcd change"
    longest_pause: ClassVar[float] = 5.0

    node: str
    kube: Kube
    objects: Reflector
    cri: Cri
    clock: Clock
    log: DecisionLog
    changed: asyncio.Event
    etcd: EtcdSeen = field(default_factory=EtcdSeen)
    _memory: etcd_change.Memory = field(default_factory=etcd_change.Memory)
    _template: tuple[str, Object] | None = None
    _turn: tuple[str, float] | None = None
    """The template that this node has the turn for, and since when (monotonic seconds)."""
    _ask_list: float = 0.0

    async def reconcile(self) -> float:
        if etcd_on_disk.is_fenced():
            return REST_SECONDS
        found = self._noted()
        if found is not None and not found.over:
            await self._go_on(found)
            return WORK_SECONDS
        return await self._look(found)

    def _noted(self) -> Change | None:
        try:
            return etcd_on_disk.change()
        except ValueError as error:  # damaged: nothing says what was under way, so what is in place stays
            self.log.tell("etcd change", f"the note of a change cannot be read and is dropped: {error}")
            etcd_on_disk.forget_change()
            return None

    # --- whether it should change ---

    async def _look(self, last: Change | None) -> float:
        own = self.objects.items.get((None, self.node))
        wanted = "" if own is None else str(own["spec"].get("revision") or "")
        if own is None or not wanted or not self.objects.synced or self.objects.error is not None:
            return REST_SECONDS
        if last is not None and last.revision != wanted:
            etcd_on_disk.forget_change()
            last = None
        pod, template = self._present(), await self._read(wanted)
        if pod is None or template is None:
            return REST_SECONDS
        if etcd.is_made_from(pod, template, self.node, own["spec"]["address"]):
            self._turn = None
            # A turn that it did not complete would be one without any questions, if the same is asked for again.
            await self._tell({"revision": wanted, "failedRevision": "", "failure": "", "turn": ""})
        elif last is not None:
            await self._tell({"revision": "", "failedRevision": wanted, "failure": last.why})
        else:
            await self._tell({"revision": ""})
            return await self._prepare(own, wanted, template, pod)
        return REST_SECONDS

    async def _prepare(self, own: Object, wanted: str, template: Object, pod: Object) -> float:
        """The image is there before anything stops; then this node waits for its turn."""
        if (why := await self._missing(str(template["containers"][0]["image"]))) is not None:
            etcd_on_disk.note_change(Change(wanted, pod, pod, back=True, why=why, over=True))
            return 0.0
        if (own.get("status") or {}).get("turn") != wanted:
            self._turn = None
            return REST_SECONDS
        now = self.clock.monotonic()
        if self._turn is None or self._turn[0] != wanted:
            self._turn = wanted, now
        if now - self._turn[1] < RELOAD_SECONDS:
            self.log.tell("etcd change", "waiting for the load balancers to send nobody to this node's etcd member")
            return WORK_SECONDS
        return await self._begin(wanted, template, pod)

    def _present(self) -> Object | None:
        """The one static pod of etcd; None where there is none, or not one only."""
        found = etcd_on_disk.pods_in_place()
        return next(iter(found.values())) if found is not None and len(found) == 1 else None

    async def _read(self, wanted: str) -> Object | None:
        """The template of that revision; None where the API has another one by now."""
        if self._template is None or self._template[0] != wanted:
            found = await self.kube.get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
            spec = None if found is None else etcd.spec_in(found, etcd.IN_FORCE_KEY)
            if spec is None or revision(spec) != wanted:
                self.log.tell("etcd change", f"waiting for the template {wanted}")
                return None
            self._template = wanted, spec
        return self._template[1]

    async def _begin(self, wanted: str, template: Object, pod: Object) -> float:
        live = await self.kube.get(API_VERSION, KIND, self.node)
        said = {} if live is None else live.get("status") or {}
        if live is None or live["spec"].get("revision") != wanted or said.get("turn") != wanted:
            return WORK_SECONDS
        founding = etcd.founding_of(pod)
        if not should_be_member(live) or founding is None:
            return REST_SECONDS
        address, data = live["spec"]["address"], etcd_on_disk.data() or Data()
        new = etcd.written_as(etcd.filled(template, self.node, address, founding), pod)
        change = await self._not_counting_earlier_starts(Change(wanted, pod, new))
        if (obstacle := await self._obstacle(address, data)) is not None:
            self.log.tell("etcd change", f"this node's etcd member waits with its change: {obstacle}")
            return WORK_SECONDS * 5
        etcd_on_disk.note_change(replace(change, member=data.member, cluster=data.cluster))
        self.log.tell("etcd change", f"this node's etcd member is changed to the template {wanted}")
        return 0.0

    async def _not_counting_earlier_starts(self, change: Change) -> Change:
        """The kubelet counts on from them while it has not removed them: it is the same pod."""
        own, _ = await self._processes(change)
        return replace(change, tried=_starts(own))

    async def _missing(self, image: str) -> str | None:
        """Why the member could not start with this image. It is fetched before anything stops."""
        if await self.cri.has_image(image):
            return None
        self.log.tell("etcd change", f"fetching {image}")
        try:
            await self.cri.pull_image(image, timeout=PULL_SECONDS)
        except AutarkyError as error:
            what = f"the image {image} is not on the node {self.node}, and cannot be fetched ({str(error)[:200]})"
            return f"{what}: bring it with `autarky payload etcd push`"
        return None

    async def _obstacle(self, own: str, data: Data) -> str | None:
        """Why the member may not stop right now. own: its address; data: what its directory contains."""
        membership = await self._membership()
        if membership is None:
            return "the members cannot be listed"
        listed = [(one.id, membership.cluster) for one in membership.members if etcd_seen.address_of(one) == own]
        if listed != [(data.member, data.cluster)]:
            return "its data is not that of the member which etcd lists"
        silent = await self._silent_others(membership, own)
        return f"{', '.join(silent)} does not serve" if silent else None

    async def _membership(self) -> Membership | None:
        return await self.etcd.membership([etcd_seen.LOCAL, *etcd_on_disk.remembered_addresses()])

    async def _silent_others(self, membership: Membership, own: str) -> list[str]:
        """The voters that do not serve right now, but for this node's own."""
        others = [m for m in membership.members if not m.is_learner and etcd_seen.address_of(m) != own]
        statuses = await asyncio.gather(*(self.etcd.status(etcd_seen.address_of(one)) for one in others))
        return [
            one.name
            for one, status in zip(others, statuses, strict=True)
            if status is None or status.member != one.id or not status.leader
        ]

    # --- while it changes ---

    async def _go_on(self, found: Change) -> None:
        change = _named(found)
        decision = etcd_change.decide(await self._seen(change), self._memory, self.clock.monotonic())
        self._memory = decision.memory
        self.log.tell("etcd change", f"this node's etcd member: {decision.sentence}")
        said = await self._last_words(change) if decision.action is Action.GO_BACK else ""
        if self._noted() != change or etcd_on_disk.is_fenced():
            return
        target = f"{_name(change.target)}.json"
        match decision.action:
            case Action.REMOVE:
                in_place = etcd_on_disk.pods_in_place() or {}
                etcd_on_disk.remove([name for name in in_place if name != target])
            case Action.PUT:
                etcd_on_disk.put(change.target)
            case Action.GO_BACK:
                etcd_on_disk.note_change(change.going_back(f"{decision.why}{said}"))
            case Action.GIVE_UP:
                etcd_on_disk.note_change(replace(change, over=True))
            case Action.DONE | Action.DROP:
                etcd_on_disk.forget_change()

    async def _last_words(self, change: Change) -> str:
        own, _ = await self._processes(change)
        return await last_words(self.cri, own or ())

    async def _seen(self, change: Change) -> etcd_change.Seen:
        in_place, target = etcd_on_disk.pods_in_place(), f"{_name(change.target)}.json"
        own, others = await self._processes(change)
        membership = await self._membership_now_and_then()
        alive = ("running", "unknown", "created")
        return etcd_change.Seen(
            back=change.back,
            in_place=None if in_place is None else in_place.get(target) == change.target,
            others=any(name != target for name in in_place or ()),
            running=None if own is None else any(one.state in alive for one in own),
            former_runs=None if others is None else any(one.state in alive for one in others),
            starts=max(0, _starts(own) - change.tried),
            ready=await plain_status(ports.ETCD_HEALTH, READY) == 200,
            member=change.member,
            cluster=change.cluster,
            data=etcd_on_disk.data(),
            listed=None if membership is None else frozenset(one.id for one in membership.members),
            of_cluster=None if membership is None else membership.cluster,
        )

    async def _membership_now_and_then(self) -> Membership | None:
        now = self.clock.monotonic()
        if now < self._ask_list:
            return None
        self._ask_list = now + LIST_SECONDS
        return await self._membership()

    async def _processes(self, change: Change) -> tuple[list[Container] | None, list[Container] | None]:
        """Of the target's pod, and of any other of etcd."""
        try:
            found = [
                one
                for one in await self.cri.containers()
                if one.name == etcd_on_disk.FIRST.component and one.pod_namespace == SYSTEM
            ]
        except AutarkyError:
            return None, None
        name = f"{_name(change.target)}-{self.node}"
        return [one for one in found if one.pod_name == name], [one for one in found if one.pod_name != name]

    async def _tell(self, status: Object) -> None:
        """A revision is said even where it is empty: "" means another template, and silence means nothing."""
        own = self.objects.items.get((None, self.node)) or {}
        before = own.get("status") or {}
        if "revision" not in before or any((before.get(key) or "") != value for key, value in status.items()):
            await self.kube.patch(API_VERSION, KIND, self.node, {"status": status}, subresource="status")

    def sources(self) -> Sequence[Reflector]:
        return ()


def _named(change: Change) -> Change:
    """One that an earlier release has noted is of the member whose data is there now."""
    data = etcd_on_disk.data()
    if change.member is not None or data is None or data.member is None:
        return change
    named = replace(change, member=data.member, cluster=data.cluster)
    etcd_on_disk.note_change(named)
    return named


def _starts(runs: Sequence[Container] | None) -> int:
    return max((one.attempt + 1 for one in runs or ()), default=0)


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
