"""A member of this node: started, stopped, its data moved aside, as `decide.local` says; for either of a node's seats.

Contract: as of `decide.local`. Every step is visible in the next look. Before each one the EtcdMember is read from the
API, which thereby is known to answer right now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide import change as etcd_change
from autarky.control.etcd.decide import local as etcd_local
from autarky.control.etcd.decide import unusable as etcd_unusable
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.last_words import last_words, logged
from autarky.control.etcd.node.on_disk import FIRST, SECOND, Seat
from autarky.control.etcd.node.seen import address_of
from autarky.errors import AutarkyError
from autarky.etcd import Membership
from autarky.etcd.members import Member as Listed
from autarky.model.components import NAME_LABEL
from autarky.model.etcd_members import Desired, host_of, second, unusable_names
from autarky.model.runtime import Container, ContainerStatus
from autarky.ports import Clock, Cri, Kube, Object
from autarky.render.values import SYSTEM

Tell = Callable[[str, Object], Awaitable[None]]
"""Writes a part of the status of the EtcdMember, or of its second member."""
LOST = "EtcdMemberLost"
"""The reason of the event that says so."""


@dataclass(frozen=True, slots=True)
class Learning:
    """A second member that is a learner. since: monotonic seconds. tried: how often a process was started before, in an
    earlier attempt: the kubelet counts on from them while it has not removed them."""

    member: int
    since: float
    tried: int


@dataclass(slots=True)
class OwnMember:
    """confirm(): raises if the API does not answer right now. status(name): what the EtcdMember, or its second member,
    reports. happened(reason, message): reports an event."""

    node: str
    seat: Seat
    kube: Kube
    cri: Cri
    clock: Clock
    log: DecisionLog
    confirm: Callable[[], Awaitable[object]]
    tell: Tell
    status: Callable[[str], Object]
    happened: Callable[[str, str], None]
    _memory: etcd_local.Memory = field(default_factory=etcd_local.Memory)
    _learns: Learning | None = None
    _claimed: int | None = None
    """The member whose data was reported as lost."""

    async def look(
        self, spec: Desired | None, address: str | None, membership: Membership | None, *, api: bool
    ) -> tuple[etcd_local.Decision, Listed | None]:
        """Look and act once. spec: None where there is no EtcdMember, or it is not known (api false). address: of the
        node."""
        own = None if address is None else second(address) if self.seat is SECOND else address
        mine = next((m for m in membership.members if address_of(m) == own), None) if membership else None
        running, pod = await self.runs()
        seen = etcd_local.Seen(
            api=api,
            cluster=None if membership is None else membership.cluster,
            ids=frozenset(member.id for member in membership.members) if membership else frozenset(),
            mine=None if mine is None else etcd_local.Listed(mine.id, bool(mine.client_urls)),
            data=etcd_on_disk.data(self.seat),
            manifests=etcd_on_disk.manifests(self.seat),
            running=running,
            pod=pod,
            certificates=etcd_on_disk.has_certificates(),
            fenced=etcd_on_disk.is_fenced(),
            changing=self.seat is FIRST and etcd_on_disk.is_changing(),
            unusable=await self._unusable(membership, mine) if running is False and self.seat is FIRST else "",
        )
        decision = etcd_local.decide(seen, self._memory, self.clock.monotonic())
        self._memory = decision.memory
        self.log.tell(self._subject, decision.sentence)
        if decision.action is not etcd_local.Action.NOTHING:
            await self.confirm()
        await self._act(decision.action, own, membership, mine)
        if mine is not None and spec is not None:
            await self._report(decision, spec, mine)
        return decision, mine

    @property
    def _subject(self) -> str:
        return "own etcd member" if self.seat is FIRST else "second etcd member"

    async def _act(
        self, action: etcd_local.Action, own: str | None, membership: Membership | None, mine: Listed | None
    ) -> None:
        match action:
            case etcd_local.Action.STOP:
                etcd_on_disk.stop(self.seat)
            case etcd_local.Action.MOVE_ASIDE:
                self._move_aside(own, membership)
            case etcd_local.Action.START if membership is not None and mine is not None and own is not None:
                await self._start(own, membership, mine.id)

    def _move_aside(self, own: str | None, membership: Membership | None) -> None:
        if self.seat is SECOND:
            self._clear_second(membership)
            return
        beside = {address_of(member) for member in membership.members} if membership is not None else set()
        for_change = own is not None and second(own) in beside
        kept = etcd_on_disk.move_aside_for_change() if for_change else etcd_on_disk.move_aside(self.clock.time())
        self.log.say(f"the data of an earlier member is kept in {kept}", component=self._subject)

    def _clear_second(self, membership: Membership | None) -> None:
        """Of another etcd the first member has nothing."""
        data = etcd_on_disk.data(SECOND) or etcd_local.Data()
        if membership is not None and data.cluster in (None, membership.cluster):
            etcd_on_disk.remove_second()
            self.log.say("the data of the second member is removed: the first one has it", component=self._subject)
        else:
            kept = etcd_on_disk.move_aside(self.clock.time(), SECOND)
            self.log.say(f"the data of a second member of another etcd is kept in {kept}", component=self._subject)

    async def _report(self, decision: etcd_local.Decision, spec: Desired, mine: Listed) -> None:
        if self.seat is SECOND:
            await self._judge_second(spec, mine)
        elif decision.action is etcd_local.Action.CLAIM_LOST:
            await self.tell(self.node, {"lostMemberID": f"{mine.id:x}"})
            if self._claimed != mine.id:
                self.happened(LOST, decision.sentence)
            self._claimed = mine.id
        elif decision.settled and self.status(self.node).get("lostMemberID") == f"{mine.id:x}":
            await self.tell(self.node, {"lostMemberID": ""})  # its disk was mounted late
            self._claimed = None

    async def _judge_second(self, spec: Desired, mine: Listed) -> None:
        """A learner that does not start with the new template: the first member stays as it is."""
        if not mine.is_learner or not spec.revision:
            self._learns = None
            return
        now, newest = self.clock.monotonic(), await self._newest()
        starts, running = (newest.attempt + 1, newest.state != "exited") if newest is not None else (0, False)
        if self._learns is None or self._learns.member != mine.id:
            self._learns = Learning(mine.id, now, starts)
        starts -= self._learns.tried
        waited, why = now - self._learns.since, None
        if not running and starts >= etcd_change.STARTS:
            why = f"it was started {starts} times, and exited each time"
        elif not mine.client_urls and waited >= etcd_change.LIMIT - 20:
            why = f"it had not started after {waited:.0f} s"
        if why is not None:
            said = await last_words(self.cri, [newest] if newest is not None else [])
            sentence = f"a second member with the new template was tried: {why}{said}"
            await self.tell(self.node, {"failedRevision": spec.revision, "failure": sentence})

    async def _start(self, own: str, membership: Membership, member: int) -> None:
        """From the template that is kept in the API, with the current members."""
        found = await self.kube.get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
        if found is None:
            self.log.tell(self._subject, f"ConfigMap {SYSTEM}/{etcd.TEMPLATE} does not exist: run `autarky up`")
            return
        name = etcd.member_name(self.node, own)
        listed = (known.name for known in membership.members if known.id != member and known.name)
        if unusable := unusable_names([name, *listed]):
            said = ", ".join(map(repr, sorted(unusable)))
            fix = "let each be restarted with a `--name` of its own, of letters, digits, '-', '.' and '_'"
            self.log.tell("etcd members' names", f"no member can start here beside those named {said}: {fix}")
            return
        names = {
            name if known.id == member else known.name: address_of(known)
            for known in membership.members
            if known.id == member or known.name
        }
        reported = etcd.Founding(etcd.initial_cluster(names), "existing")
        template = etcd.read_template(found)
        fill = etcd.filled_second if self.seat is SECOND else etcd.filled
        etcd_on_disk.start(fill(template, self.node, host_of(own), reported, member), self.seat)

    # --- what runs ---

    async def runs(self) -> tuple[bool | None, bool | None]:
        """Whether its container runs here, and whether its pod does; None where the runtime does not say."""
        try:
            containers, sandboxes = await self.cri.containers(), await self.cri.pods()
        except AutarkyError:
            return None, None
        component = self.seat.component
        running = any(
            found.name == component and found.pod_namespace == SYSTEM and found.state in ("running", "unknown")
            for found in containers
        )
        pod = any(
            found.ready and found.namespace == SYSTEM and found.labels.get(NAME_LABEL) == component
            for found in sandboxes
        )
        return running, pod

    async def _unusable(self, membership: Membership | None, mine: Listed | None) -> str:
        """Why its data is of no use, where it has ended again and again and said so; else ""."""
        newest = await self._newest()
        if newest is None or newest.state != "exited" or newest.attempt + 1 < etcd_unusable.STARTS:
            return ""
        try:
            status = await self.cri.container_status(newest.id)
            lines = logged(status) if status is not None and _was_short(status) else []
        except (AutarkyError, OSError):
            return ""
        if mine is None or membership is None or not lines:
            return ""
        voters = [
            etcd_unusable.Peer(one.id, one.name or address_of(one), one.peer_urls)
            for one in membership.members
            if not one.is_learner
        ]
        return etcd_unusable.judge(mine.id, voters, lines)

    async def _newest(self) -> Container | None:
        """The newest run of its process; None where there was none, or the runtime does not say."""
        try:
            found = [one for one in await self.cri.containers() if one.name == self.seat.component]
        except AutarkyError:
            return None
        own = [one for one in found if one.pod_namespace == SYSTEM]
        return max(own, key=lambda one: one.created, default=None)


def _was_short(status: ContainerStatus) -> bool:
    """Both times are the runtime's."""
    started, finished = status.started, status.finished
    return started is not None and finished is not None and finished - started < etcd_unusable.SHORT_SECONDS
