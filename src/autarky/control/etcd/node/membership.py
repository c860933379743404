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
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide import figures
from autarky.control.etcd.decide import membership as etcd_members
from autarky.control.etcd.decide.second import Reported, with_second
from autarky.control.etcd.manifests.members import KIND, should_be_member
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node import seen as etcd_seen
from autarky.control.etcd.node.clients import Clients, no_connections
from autarky.control.etcd.node.figures import scraped
from autarky.control.etcd.node.former import FormerEtcd
from autarky.control.etcd.node.on_disk import FIRST, SECOND
from autarky.control.etcd.node.own import OwnMember
from autarky.control.etcd.node.seen import EtcdSeen, address_of
from autarky.errors import ApiError, AutarkyError
from autarky.etcd import Member as Listed
from autarky.etcd import Membership
from autarky.etcd import MemberStatus as Said
from autarky.kube import Reflector
from autarky.model import ports
from autarky.model.cluster import Level
from autarky.model.etcd_members import (
    SECOND_SUFFIX,
    Action,
    Desired,
    Member,
    MemberStatus,
    Phase,
    Seen,
    Verb,
    host_of,
    is_second,
    peer_url,
)
from autarky.ports import Clock, Cri, Kube, Object
from autarky.render.crds import API_VERSION

WORK_SECONDS = 1.0
REST_SECONDS = 30.0
"""Between two looks: while there is something to do, and while there is not."""
STALE_SECONDS = 120.0
"""An older view of the EtcdMembers is not acted on."""
ALARM = "alarm:"


@dataclass(slots=True)
class EtcdMembership(Controller):
    """lowest_level(): the lowest hosted level, None where it is not known.
    hosted_api_server(): its pod on this node. wanted(): `spec.etcd` of the ControlPlane, None without one.
    happened(reason, message): reports an event. disconnect(): closes the connections of this agent that lead to etcd
    through the load balancer."""

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
    wanted: Callable[[], Object | None] = dict
    etcd: EtcdSeen = field(default_factory=EtcdSeen)
    scrape: Callable[[], Awaitable[str]] = scraped
    happened: Callable[[str, str], None] = lambda _reason, _message: None
    disconnect: Callable[[], Awaitable[None]] = no_connections
    busy: bool = field(default=False, init=False)
    """Whether the last look has left anything to do, for any agent, as far as this one can tell."""
    _own: dict[str, OwnMember] = field(default_factory=dict)
    _memory: etcd_members.Memory = field(default_factory=etcd_members.Memory)
    _clients: Clients = field(init=False)
    _former: FormerEtcd = field(init=False)

    def __post_init__(self) -> None:
        for seat in (FIRST, SECOND):
            confirm = partial(self._object, self.node)
            self._own[seat.component] = OwnMember(
                *(self.node, seat, self.kube, self.cri, self.clock, self.log, confirm, self._tell, self._status),
                happened=self._happened,
            )
        self._former = FormerEtcd(self.node, self.etcd, self.clock, self.log, self._own)
        self._clients = Clients(
            self.node,
            self.kube,
            self.clock,
            self.log,
            self.hosted_api_server,
            self._status,
            self._tell,
            self._disconnect,
        )

    async def _disconnect(self) -> None:
        """By whom, is said later."""
        await self.disconnect()

    def _happened(self, reason: str, message: str) -> None:
        """By whom, is said later."""
        self.happened(reason, message)

    def sources(self) -> Sequence[Reflector]:
        return [self.objects] if self._follows_objects() else []

    async def reconcile(self) -> float:
        self.busy = etcd_on_disk.has_certificates() and await self.look()
        return WORK_SECONDS if self.busy else REST_SECONDS

    def _follows_objects(self) -> bool:
        """Where etcd is external, or level 1 is not hosted, agents have no permission to read EtcdMembers."""
        level = self.lowest_level()
        return level is not None and level <= Level.ETCD and etcd_on_disk.has_certificates()

    async def look(self) -> bool:
        """Look and act once; returns whether another look should follow soon."""
        desired = self._all_desired()
        if await self._former.look(desired or ()):
            return True
        membership = await self.etcd.membership(self._addresses(desired or ()))
        if desired is not None and membership is not None:
            desired = with_second(desired, await self._for_second(desired, membership), self._noted())
        if membership is not None:
            self._remember(membership, desired or ())
        busy = await self._own_members(desired, membership)
        if desired is None or membership is None:
            return busy
        return await self._everybody(desired, membership) or busy

    async def _for_second(self, desired: tuple[Desired, ...], membership: Membership) -> Sequence[Member]:
        """The members, with whether they serve where the only one is changed: else nobody needs to be asked."""
        there = any(is_second(address_of(member)) for member in membership.members)
        alone = len(membership.members) == 1 and any(spec.should_change for spec in desired)
        if not there and not alone:
            return _listed(membership)
        said = [await self.etcd.status(address_of(member)) for member in membership.members]
        leader = next((one.leader for one in said if one is not None and one.leader), 0)
        return await self.etcd.members(membership, leader)

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
        """Whom to ask for the list: this node's own members first, if it has any."""
        return [*_local(), *etcd_on_disk.remembered_addresses(), *(spec.address for spec in desired)]

    def _remember(self, membership: Membership, desired: tuple[Desired, ...]) -> None:
        """Without members that leave or are changed, so that they get no new connections, unless no other voter would
        remain: etcd goes on accepting connections for seconds after it was told to stop, and answers none of them."""
        leaving = {spec.address for spec in desired if spec.reported or (spec.has_turn and spec.should_change)}
        staying = [member for member in membership.members if address_of(member) not in leaving]
        there = staying if any(not member.is_learner for member in staying) else membership.members
        kept = [_entry(member) for member in there]
        if etcd_on_disk.remember_members(sorted(kept, key=lambda entry: (str(entry["address"]), "port" in entry))):
            self.log.say(f"etcd's members: {', '.join(_clause(entry) for entry in kept)}", component="etcd members")

    # --- this node's member ---

    async def _own_members(self, desired: tuple[Desired, ...] | None, membership: Membership | None) -> bool:
        """Whether one of them needs another look soon."""
        busy = False
        address = next((spec.address for spec in desired or () if spec.name == self.node), None)
        for seat, name in ((FIRST, self.node), (SECOND, f"{self.node}{SECOND_SUFFIX}")):
            spec = next((spec for spec in desired or () if spec.name == name), None)
            own = self._own[seat.component]
            if seat is SECOND and spec is None and not etcd_on_disk.has_second():
                await self._forget_second(desired)
                continue
            decision, mine = await own.look(spec, address, membership, api=desired is not None)
            busy = busy or not decision.settled
            if spec is not None and mine is not None and not mine.is_learner:
                await self._clients.leave_own(spec, membership, mine.id)
        await self._clients.leave_others(desired or (), membership)
        return desired is not None and busy

    async def _forget_second(self, desired: tuple[Desired, ...] | None) -> None:
        if desired is not None and self._status(f"{self.node}{SECOND_SUFFIX}"):
            await self.kube.patch(API_VERSION, KIND, self.node, {"status": {"second": None}}, subresource="status")

    # --- all members ---

    async def _everybody(self, desired: tuple[Desired, ...], membership: Membership) -> bool:
        """What only the agent beside the leader does; returns whether work is left for that agent."""
        leading = await self._leading()
        if leading is None:
            self._memory = etcd_members.Memory()
            return not etcd_members.settled(_listed(membership), desired)
        at, local = leading
        members = await self._with_peers(await self.etcd.members(membership, local.leader), at)
        seen = Seen(
            own=local.member,
            leader=local.leader,
            members=members,
            desired=await self._reached(desired, membership),
            alarms=tuple(error for error in local.errors if ALARM in error),
            replace_after=self._replace_after(),
        )
        decision = etcd_members.decide(seen, self._memory, self.clock.monotonic())
        self._memory = decision.memory
        self.log.tell("etcd members", decision.sentence)
        await self._tell_all(decision.reported)
        if decision.action is not None and await self._still(decision.action, membership, at, local.leader):
            await self._act(decision.action, at)
        return not etcd_members.settled(members, desired)

    async def _with_peers(self, members: tuple[Member, ...], at: str) -> tuple[Member, ...]:
        """Those that do not serve, with whether this node's member, which leads, is connected to them."""
        if at != etcd_seen.LOCAL or all(member.serves for member in members):
            return members
        try:
            connected = figures.connected_peers(await self.scrape())
        except (AutarkyError, ValueError):
            return members
        return tuple(m if m.serves else replace(m, connected=m.id in connected) for m in members)

    def _replace_after(self) -> float:
        """Without a ControlPlane nobody says how long, and nobody is replaced (rule 10)."""
        wanted = self.wanted()
        return math.inf if wanted is None else float(wanted.get("replaceAfterSeconds", etcd_members.REPLACE_SECONDS))

    async def _leading(self) -> tuple[str, Said] | None:
        """Where to ask the member of this node that leads etcd, and what it says; None where none does."""
        for at in _local():
            said = await self.etcd.status(at)
            if said is not None and said.leader and said.member == said.leader:
                return at, said
        return None

    async def _reached(self, desired: tuple[Desired, ...], membership: Membership) -> tuple[Desired, ...]:
        """The desired members; those that should join with whether their nodes can be reached."""
        there = {address_of(member) for member in membership.members}
        joining = [spec for spec in desired if spec.present and spec.address not in there]
        answers = await asyncio.gather(*(etcd_seen.accepts(spec.address) for spec in joining))
        reachable = {spec.name for spec, answer in zip(joining, answers, strict=True) if answer}
        return tuple(etcd_members.reached(spec) if spec.name in reachable else spec for spec in desired)

    async def _still(self, action: Action, membership: Membership, at: str, leader: int) -> bool:
        """Whether nothing has changed since the look: neither the EtcdMember nor etcd itself."""
        name = action.name.removesuffix(SECOND_SUFFIX)
        live, held = await self._object(name), self.objects.items.get((None, name))
        if live is None or held is None or _desired(live) != _desired(held):
            return False
        now = await self.etcd.membership([at])
        local = await self.etcd.status(at)
        return now == membership and local is not None and local.member == local.leader == leader

    async def _object(self, name: str) -> Object | None:
        """The EtcdMember read from the API, not from the watch."""
        return await self.kube.get(API_VERSION, KIND, name)

    async def _act(self, action: Action, at: str) -> None:
        client = await self.etcd.client(at)
        self.log.say(f"{action.verb.value}: {action.name} ({action.member:x})", component="etcd members")
        try:
            match action.verb:
                case Verb.ADD:
                    await client.add_learner(peer_url(action.address))
                case Verb.PROMOTE:
                    await client.promote(action.member)
                case Verb.MOVE_LEADER:
                    await client.move_leader(action.target)
                case Verb.REMOVE:
                    await client.remove(action.member)
                case Verb.TURN:
                    await self._tell(action.name, {"turn": action.revision})
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
        """name: of the EtcdMember, or of its second member, which has a part of that one's status."""
        before, own = self._status(name), name.removesuffix(SECOND_SUFFIX)
        if (None, own) in self.objects.items and any(before.get(key) != value for key, value in status.items()):
            part = {"second": status} if own != name else status
            await self.kube.patch(API_VERSION, KIND, own, {"status": part}, subresource="status")

    def _status(self, name: str) -> Object:
        own = name.removesuffix(SECOND_SUFFIX)
        found = (self.objects.items.get((None, own)) or {}).get("status") or {}
        return dict(found if own == name else found.get("second") or {})

    def _noted(self) -> dict[str, Reported]:
        """What the EtcdMembers say of the second members on their nodes."""
        names = [str(obj["metadata"]["name"]) for obj in self.objects.items.values()]
        found = {name: self._status(f"{name}{SECOND_SUFFIX}") for name in names}
        return {
            name: Reported(said.get("phase") == Phase.LEAVING.value, _id(said.get("vacatedMemberID")))
            for name, said in found.items()
        }


def _local() -> list[str]:
    """Where the members of this node answer."""
    seats = ((FIRST, etcd_seen.LOCAL), (SECOND, etcd_seen.LOCAL_SECOND))
    return [address for seat, address in seats if etcd_on_disk.has_member(seat)]


def _desired(obj: Object) -> Desired:
    spec, status = obj["spec"], obj.get("status") or {}
    revision = str(spec.get("revision") or "")
    return Desired(
        name=obj["metadata"]["name"],
        address=spec["address"],
        present=should_be_member(obj),
        asked=obj["metadata"].get("creationTimestamp", ""),
        lost=_id(status.get("lostMemberID")),
        reported=status.get("phase") == Phase.LEAVING.value,
        disconnected=_id(status.get("vacatedMemberID")),
        uses=tuple(_ids(status.get("uses"))),
        revision=revision,
        # One that has just been written again has no status: a member that is as it should be is not changed for that.
        outdated=bool(revision) and status.get("revision", revision) != revision,
        failed=bool(revision) and status.get("failedRevision") == revision,
        has_turn=bool(revision) and status.get("turn") == revision,
    )


def _id(text: object) -> int | None:
    return int(str(text), 16) if text else None


def _ids(found: object) -> list[int]:
    return [int(str(one), 16) for one in found] if isinstance(found, list) else []


def _listed(membership: Membership) -> list[Member]:
    return [Member(m.id, address_of(m), m.is_learner, bool(m.client_urls)) for m in membership.members]


def _entry(member: Listed) -> Object:
    address, port = address_of(member), etcd_seen.client_port(member)
    entry = {"name": member.name, "address": host_of(address), "learner": member.is_learner}
    return entry if port == ports.ETCD_CLIENT else {**entry, "port": port}


def _clause(entry: Mapping[str, object]) -> str:
    return f"{entry['name'] or entry['address']}{' (learner)' if entry['learner'] else ''}"
