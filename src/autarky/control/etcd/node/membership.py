"""The controller that manages etcd's members: this node's own, and, beside etcd's leader, all of them.

Contract: `decide.local` says what happens on this node, `decide.membership` which change of membership comes
next; this observes and acts. It needs a current view of the EtcdMembers, so it does nothing while the API is down.
Every step is visible in the next reconcile, so the process may be killed between any two. While all is settled it asks
only etcd, twice a minute.

Race: leadership may move between the look and the change. So right before a change the list and the leader are read
again, through the quorum, and must be unchanged; if two agents still act at once, etcd orders and checks their changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import DecisionLog
from autarky.control.common.pods import is_ready
from autarky.control.etcd.decide import leaving as etcd_leaving
from autarky.control.etcd.decide import lineage
from autarky.control.etcd.decide import local as etcd_local
from autarky.control.etcd.decide import membership as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import KIND
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node import seen as etcd_seen
from autarky.control.etcd.node.seen import EtcdSeen, address_of
from autarky.errors import ApiError, AutarkyError
from autarky.etcd import Membership
from autarky.kube import Reflector
from autarky.model.cluster import Level
from autarky.model.components import ETCD, NAME_LABEL
from autarky.model.etcd_members import Action, Desired, Member, MemberStatus, Phase, Seen, Verb
from autarky.ports import Clock, Cri, Kube, Object
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM

WORK_SECONDS = 1.0
REST_SECONDS = 30.0
"""Between two looks: while there is something to do, and while there is not."""
STALE_SECONDS = 120.0
"""An older view of the EtcdMembers is not acted on."""
ALARM = "alarm:"


@dataclass(slots=True)
class EtcdMembership(Controller):
    """lowest_level(): the lowest hosted level, None where it is not known.
    hosted_api_server(): its pod on this node. wanted(): `spec.etcd` of the ControlPlane."""

    name: ClassVar[str] = "etcd membership"
    gather: ClassVar[float] = 0.1
    longest_pause: ClassVar[float] = 5.0  # a member that joins or leaves waits for it

    node: str
    kube: Kube
    objects: Reflector
    cri: Cri
    clock: Clock
    log: DecisionLog
    lowest_level: Callable[[], int | None]
    changed: asyncio.Event
    hosted_api_server: Callable[[], Object | None]
    wanted: Callable[[], Object] = dict
    etcd: EtcdSeen = field(default_factory=EtcdSeen)
    _local: etcd_local.Memory = field(default_factory=etcd_local.Memory)
    _memory: etcd_members.Memory = field(default_factory=etcd_members.Memory)
    _reported_since: float | None = None
    _ask_former: float = 0.0
    _replaced: int | None = None
    """The cluster of this node's data, once another one says that it has replaced it."""

    def sources(self) -> Sequence[Reflector]:
        return [self.objects] if self._follows_objects() else []

    async def reconcile(self) -> float:
        busy = etcd_on_disk.has_certificates() and await self.look()
        return WORK_SECONDS if busy else REST_SECONDS

    def _follows_objects(self) -> bool:
        """Where etcd is external, or level 1 is not hosted, agents have no permission to read EtcdMembers."""
        level = self.lowest_level()
        return level is not None and level <= Level.ETCD and etcd_on_disk.has_certificates()

    async def look(self) -> bool:
        """Look and act once; returns whether another look should follow soon."""
        desired = self._all_desired()
        if await self._is_replaced(desired or ()):
            return await self._leave_the_former()
        membership = await self.etcd.membership(self._addresses(desired or ()))
        if membership is not None:
            self._remember(membership, desired or ())
        busy = await self._own_member(desired, membership)
        if desired is None or membership is None:
            return busy
        return await self._everybody(desired, membership) or busy

    # --- a member of a former cluster ---

    async def _is_replaced(self, desired: tuple[Desired, ...]) -> bool:
        """Whether a recovery has made another etcd while this node was away. Asked of the other nodes, also without the
        API: that of this node may be served by the former etcd."""
        now, data = self.clock.monotonic(), etcd_on_disk.data()
        if data is None or data.cluster is None or etcd_on_disk.is_fenced():
            return False
        etcd_on_disk.remember_cluster(data.cluster)
        if self._replaced == data.cluster or now < self._ask_former:
            return self._replaced == data.cluster
        self._ask_former = now + REST_SECONDS  # a node that is off costs the whole time for an answer
        own = next((spec.address for spec in desired if spec.name == self.node), None)
        others = [*etcd_on_disk.remembered_addresses(), *(spec.address for spec in desired)]
        said = await self.etcd.former(one for one in others if one != own)
        self._replaced = data.cluster if lineage.is_replaced(data.cluster, said) else None
        return self._replaced is not None

    async def _leave_the_former(self) -> bool:
        """It joins the other etcd as a new member, if it should; its data is moved aside."""
        self.log.tell(
            "own etcd member",
            "a recovery has replaced the etcd of this node's data: it stops, and joins as a new member",
        )
        running, pod = await self._runs()
        if etcd_on_disk.manifests():
            etcd_on_disk.stop()
        elif running is False and pod is False:
            kept = etcd_on_disk.move_aside(self.clock.time())
            self.log.say(f"the data of a former etcd is kept in {kept}", component="own etcd member")
        return True

    # --- what is seen ---

    @property
    def _current(self) -> bool:
        source = self.objects
        return source.synced and source.error is None and source.age < STALE_SECONDS

    def _all_desired(self) -> tuple[Desired, ...] | None:
        """None where the view of them is not current, or they are not to be followed."""
        if not self._current or not self._follows_objects():
            return None
        return tuple(_desired(obj) for obj in self.objects.items.values())

    def _addresses(self, desired: tuple[Desired, ...]) -> list[str]:
        """Whom to ask for the list: this node's own member first, if it has one."""
        local = [etcd_seen.LOCAL] if etcd_on_disk.has_member() else []
        return [*local, *etcd_on_disk.remembered_addresses(), *(spec.address for spec in desired)]

    def _remember(self, membership: Membership, desired: tuple[Desired, ...]) -> None:
        """Without members that leave, so that they get no new connections, unless no other voter would remain."""
        leaving = {spec.address for spec in desired if spec.reported and not spec.present}
        entries = [
            {"name": member.name, "address": address_of(member), "learner": member.is_learner}
            for member in membership.members
        ]
        staying = [entry for entry in entries if entry["address"] not in leaving]
        kept = staying if any(not entry["learner"] for entry in staying) else entries
        if etcd_on_disk.remember_members(sorted(kept, key=lambda entry: str(entry["address"]))):
            self.log.say(f"etcd's members: {', '.join(_clause(entry) for entry in kept)}", component="etcd members")

    # --- this node's member ---

    async def _own_member(self, desired: tuple[Desired, ...] | None, membership: Membership | None) -> bool:
        address = next((spec.address for spec in desired or () if spec.name == self.node), None)
        mine = next((m for m in membership.members if address_of(m) == address), None) if membership else None
        running, pod = await self._runs()
        seen = etcd_local.Seen(
            api=desired is not None,
            cluster=None if membership is None else membership.cluster,
            ids=frozenset(member.id for member in membership.members) if membership else frozenset(),
            mine=None if mine is None else etcd_local.Listed(mine.id, bool(mine.client_urls)),
            data=etcd_on_disk.data(),
            manifests=etcd_on_disk.manifests(),
            running=running,
            pod=pod,
            certificates=etcd_on_disk.has_certificates(),
            fenced=etcd_on_disk.is_fenced(),
        )
        decision = etcd_local.decide(seen, self._local, self.clock.monotonic())
        self._local = decision.memory
        self.log.tell("own etcd member", decision.sentence)
        if decision.action is not etcd_local.Action.NOTHING:
            await self._object(self.node)  # raises if the API does not answer right now
        match decision.action:
            case etcd_local.Action.STOP:
                etcd_on_disk.stop()
            case etcd_local.Action.MOVE_ASIDE:
                kept = etcd_on_disk.move_aside(self.clock.time())
                self.log.say(f"the data of an earlier member is kept in {kept}", component="own etcd member")
            case etcd_local.Action.START if membership is not None and mine is not None and address is not None:
                await self._start(address, membership, mine.id)
            case etcd_local.Action.CLAIM_LOST if mine is not None:
                await self._tell(self.node, {"lostMemberID": f"{mine.id:x}"})
        if decision.settled and mine is not None and self._status(self.node).get("lostMemberID") == f"{mine.id:x}":
            await self._tell(self.node, {"lostMemberID": ""})  # its disk was mounted late
        if desired is not None and mine is not None and not mine.is_learner:
            await self._disconnect(desired, membership, mine.id)
        return desired is not None and not decision.settled

    async def _disconnect(self, desired: tuple[Desired, ...], membership: Membership | None, member: int) -> None:
        """Before this node's member leaves, its API server moves to the other members, if there are any."""
        spec = next(spec for spec in desired if spec.name == self.node)
        alone = membership is None or sum(not known.is_learner for known in membership.members) < 2
        if spec.present or not spec.reported or spec.disconnected == member or alone:
            self._reported_since = None
            return
        now = self.clock.monotonic()
        self._reported_since = now if self._reported_since is None else self._reported_since
        pod = self.hosted_api_server()
        noted_for, _, noted = self._status(self.node).get("vacating", "").partition("/")
        seen = etcd_leaving.Seen(
            reported_for=now - self._reported_since,
            noted=noted if noted_for == f"{member:x}" else None,
            pod=None if pod is None else pod["metadata"]["uid"],
            ends=pod is not None and "deletionTimestamp" in pod["metadata"],
            ready=pod is not None and is_ready(pod),
        )
        step, sentence = etcd_leaving.decide(seen)
        self.log.tell("leaving etcd", sentence)
        match step:
            case etcd_leaving.Step.NOTE:
                await self._tell(self.node, {"vacating": f"{member:x}/{seen.pod}"})
            case etcd_leaving.Step.RESTART if pod is not None:
                await self.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
            case etcd_leaving.Step.CLAIM:
                await self._tell(self.node, {"vacatedMemberID": f"{member:x}"})

    async def _start(self, address: str, membership: Membership, member: int) -> None:
        """From the template that `up` keeps in the API, with the current members."""
        found = await self.kube.get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
        if found is None:
            self.log.tell("own etcd member", f"ConfigMap {SYSTEM}/{etcd.TEMPLATE} does not exist: run `autarky up`")
            return
        names = {
            self.node if known.id == member else known.name: address_of(known)
            for known in membership.members
            if known.id == member or known.name
        }
        reported = etcd.Founding(etcd.initial_cluster(names), "existing")
        template = etcd.read_template(found)
        etcd_on_disk.start(etcd.filled(template, self.node, address, reported, written_for=member))

    async def _runs(self) -> tuple[bool | None, bool | None]:
        """Whether an etcd container runs here, and whether an etcd pod does; None where the runtime does not say."""
        try:
            containers, sandboxes = await self.cri.containers(), await self.cri.pods()
        except AutarkyError:
            return None, None
        running = any(
            found.name == ETCD and found.pod_namespace == SYSTEM and found.state in ("running", "unknown")
            for found in containers
        )
        pod = any(
            found.ready and found.namespace == SYSTEM and found.labels.get(NAME_LABEL) == ETCD for found in sandboxes
        )
        return running, pod

    # --- all members ---

    async def _everybody(self, desired: tuple[Desired, ...], membership: Membership) -> bool:
        """What only the agent beside the leader does; returns whether work is left for that agent."""
        local = await self.etcd.status(etcd_seen.LOCAL) if etcd_on_disk.has_member() else None
        if local is None or not local.leader or local.member != local.leader:
            self._memory = etcd_members.Memory()
            return not _settled(membership, desired)
        members = await self.etcd.members(membership, local.leader)
        seen = Seen(
            own=local.member,
            leader=local.leader,
            members=members,
            desired=await self._reached(desired, membership),
            alarms=tuple(error for error in local.errors if ALARM in error),
            replace_after=float(self.wanted().get("replaceAfterSeconds", etcd_members.REPLACE_SECONDS)),
        )
        decision = etcd_members.decide(seen, self._memory, self.clock.monotonic())
        self._memory = decision.memory
        self.log.tell("etcd members", decision.sentence)
        await self._tell_all(decision.reported)
        if decision.action is not None and await self._still(decision.action, membership, local.leader):
            await self._act(decision.action)
        return not etcd_members.settled(members, desired)

    async def _reached(self, desired: tuple[Desired, ...], membership: Membership) -> tuple[Desired, ...]:
        """The desired members; those that should join with whether their nodes can be reached."""
        there = {address_of(member) for member in membership.members}
        joining = [spec for spec in desired if spec.present and spec.address not in there]
        answers = await asyncio.gather(*(etcd_seen.accepts(spec.address) for spec in joining))
        reachable = {spec.name for spec, answer in zip(joining, answers, strict=True) if answer}
        return tuple(etcd_members.reached(spec) if spec.name in reachable else spec for spec in desired)

    async def _still(self, action: Action, membership: Membership, leader: int) -> bool:
        """Whether nothing has changed since the look: neither the EtcdMember nor etcd itself."""
        live = await self._object(action.name)
        held = self.objects.items.get((None, action.name))
        if live is None or held is None or _desired(live) != _desired(held):
            return False
        now = await self.etcd.membership([etcd_seen.LOCAL])
        local = await self.etcd.status(etcd_seen.LOCAL)
        return now == membership and local is not None and local.member == local.leader == leader

    async def _object(self, name: str) -> Object | None:
        """The EtcdMember read from the API, not from the watch."""
        return await self.kube.get(API_VERSION, KIND, name)

    async def _act(self, action: Action) -> None:
        client = await self.etcd.local()
        self.log.say(f"{action.verb.value}: {action.name} ({action.member:x})", component="etcd members")
        try:
            match action.verb:
                case Verb.ADD:
                    await client.add_learner(etcd.peer_url(action.address))
                case Verb.PROMOTE:
                    await client.promote(action.member)
                case Verb.MOVE_LEADER:
                    await client.move_leader(action.target)
                case Verb.REMOVE:
                    await client.remove(action.member)
        except ApiError as error:  # refused, or already done: the next look shows
            self.log.tell(f"{action.verb.value} {action.name}", f"etcd refuses: {error}")
            return
        self.changed.set()

    # --- reporting ---

    async def _tell_all(self, reported: Mapping[str, MemberStatus]) -> None:
        for name, one in reported.items():
            status: Object = {"phase": one.phase.value, "message": one.message}
            status["memberID"] = "" if one.member is None else f"{one.member:x}"
            await self._tell(name, status)

    async def _tell(self, name: str, status: Object) -> None:
        before = self._status(name)
        if (None, name) in self.objects.items and any(before.get(key) != value for key, value in status.items()):
            await self.kube.patch(API_VERSION, KIND, name, {"status": status}, subresource="status")

    def _status(self, name: str) -> Object:
        return dict((self.objects.items.get((None, name)) or {}).get("status") or {})


def _desired(obj: Object) -> Desired:
    spec, status = obj["spec"], obj.get("status") or {}
    lost, disconnected = status.get("lostMemberID"), status.get("vacatedMemberID")
    return Desired(
        name=obj["metadata"]["name"],
        address=spec["address"],
        present=spec.get("state", "Member") == "Member",
        asked=obj["metadata"].get("creationTimestamp", ""),
        lost=int(lost, 16) if lost else None,
        reported=status.get("phase") == Phase.LEAVING.value,
        disconnected=int(disconnected, 16) if disconnected else None,
    )


def _settled(membership: Membership, desired: tuple[Desired, ...]) -> bool:
    members = [Member(m.id, address_of(m), m.is_learner) for m in membership.members]
    return etcd_members.settled(members, desired)


def _clause(entry: Mapping[str, object]) -> str:
    return f"{entry['name'] or entry['address']}{' (learner)' if entry['learner'] else ''}"
