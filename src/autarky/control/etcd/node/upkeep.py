"""The controller that looks after a running etcd, on the node of its leader: defragments, and acts on alarms.

Contract: `decide.upkeep` says what comes next; this observes and acts. It asks etcd only, and needs no API: with the
alarm NOSPACE nothing can be written there, with CORRUPT nothing be read. On the other nodes it asks its own member
twice a minute whether that leads.

Race: leadership may move, and members come and go, between the look and the act. So right before an act the list, the
leader and the alarms are read again, and must be unchanged. An act that is carried out twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base import node_metrics as metrics
from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide import upkeep
from autarky.control.etcd.decide.corruption import Content
from autarky.control.etcd.decide.upkeep import Action, Decision, Seen, Verb
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.seen import LOCAL, EtcdSeen, address_of
from autarky.errors import ApiError, AutarkyError
from autarky.etcd import Alarm, Member, Membership, MemberStatus
from autarky.model import patience
from autarky.model.etcd_members import is_second
from autarky.ports import Clock

WORK_SECONDS = 3.0
REST_SECONDS = 30.0
"""Between two looks: while there is an alarm or something was done, and otherwise."""
SUBJECT = "etcd upkeep"
DONE_BEFORE = "OutOfRange"
"""etcd's reason where what is to be compacted was compacted before: the API server does it, too."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What an act relies on."""

    membership: Membership
    leader: int
    alarms: tuple[Alarm, ...]
    statuses: Mapping[int, MemberStatus]
    names: Mapping[int, str]


@dataclass(slots=True)
class EtcdUpkeep(Controller):
    """happened(reason, message): reports an event. busy(): whether members join, leave or change. wanted(): address →
    name of the EtcdMembers that should be members, empty where etcd has none."""

    name: ClassVar[str] = SUBJECT
    longest_pause: ClassVar[float] = REST_SECONDS

    clock: Clock
    log: DecisionLog
    happened: Callable[[str, str], None]
    busy: Callable[[], bool]
    wanted: Callable[[], Mapping[str, str]]
    etcd: EtcdSeen = field(default_factory=EtcdSeen)
    trouble: str = field(default="", init=False)
    """What needs a person, as a sentence; empty where nothing does, or another node's agent looks after etcd."""
    _memory: upkeep.Memory = field(default_factory=upkeep.Memory)
    _reported: set[tuple[str, str]] = field(default_factory=set)

    async def reconcile(self) -> float:
        if not etcd_on_disk.has_certificates() or not etcd_on_disk.has_member():
            self._memory, self.trouble = upkeep.Memory(), ""
            return REST_SECONDS
        return WORK_SECONDS if await self.look() else REST_SECONDS

    async def look(self) -> bool:
        """Look and act once; returns whether another look should follow soon."""
        local = await self.etcd.status(LOCAL)
        look = await self._look(local) if local is not None and local.member == local.leader else None
        if local is None or look is None:
            self._cannot_look(local)
            return False
        seen = self._seen(local, look)
        decision = upkeep.decide(seen, self._memory, self.clock.monotonic())
        if decision.action is not None and decision.action.verb is Verb.COMPARE:
            self._take(decision, look)
            seen = replace(seen, contents=await self._contents(look))
            decision = upkeep.decide(seen, self._memory, self.clock.monotonic())
        self._take(decision, look)
        if decision.action is not None and await self._still(look):
            await self._carry_out(decision, decision.action, look)
        return bool(look.alarms) or decision.action is not None

    def _cannot_look(self, local: MemberStatus | None) -> None:
        """Where another member leads, its agent looks. Where etcd does not answer, what was said last stands."""
        if local is not None and local.leader and local.member != local.leader:
            self._memory, self.trouble, self._reported = upkeep.Memory(), "", set()
            self.log.tell(SUBJECT, "the agent beside etcd's leader looks after it")
            return
        unseen = Seen(None, None, None, None)
        decision = upkeep.decide(unseen, self._memory, self.clock.monotonic())
        self._memory = decision.memory
        self.log.tell(SUBJECT, decision.sentence)

    def _take(self, decision: Decision, look: _Look) -> None:
        self._memory = decision.memory
        self.trouble = decision.trouble if decision.action is None else self.trouble
        self.log.tell(SUBJECT, decision.sentence)
        if decision.trouble:
            self._report(decision)
        elif not look.alarms and decision.action is None:
            self._reported.clear()

    def _report(self, decision: Decision) -> None:
        """Each sentence once, numbers aside, until all is well again."""
        kind = (decision.reason, "".join(letter for letter in decision.sentence if not letter.isdigit()))
        if kind not in self._reported:
            self._reported.add(kind)
            self.happened(decision.reason, decision.sentence)

    # --- what is seen ---

    async def _look(self, local: MemberStatus) -> _Look | None:
        """None where etcd does not answer."""
        membership = await self.etcd.membership([LOCAL])
        alarms = await self._alarms()
        if membership is None or alarms is None or membership.cluster != local.cluster:
            return None
        found = await asyncio.gather(*(self.etcd.status(address_of(member)) for member in membership.members))
        statuses = {
            member.id: status
            for member, status in zip(membership.members, found, strict=True)
            if status is not None and status.member == member.id and status.cluster == membership.cluster
        }
        wanted = self.wanted()
        names = {one.id: wanted.get(address_of(one)) or one.name or address_of(one) for one in membership.members}
        return _Look(membership, local.leader, alarms, statuses, names)

    async def _alarms(self) -> tuple[Alarm, ...] | None:
        try:
            found = await (await self.etcd.client(LOCAL)).alarms()
        except (AutarkyError, OSError, ValueError):
            return None
        return tuple(sorted(found, key=lambda alarm: (alarm.kind, alarm.member)))

    def _seen(self, local: MemberStatus, look: _Look) -> Seen:
        members = tuple(self._member(member, look) for member in look.membership.members)
        return Seen(
            own=local.member,
            leader=look.leader,
            members=members,
            alarms=tuple(upkeep.Alarm(alarm.member, alarm.kind) for alarm in look.alarms),
            revision=local.revision,
            busy=self.busy() or any(is_second(address_of(member)) for member in look.membership.members),
            fenced=etcd_on_disk.is_fenced(),
        )

    def _member(self, member: Member, look: _Look) -> upkeep.Member:
        status = look.statuses.get(member.id)
        return upkeep.Member(
            id=member.id,
            name=look.names[member.id],
            learner=member.is_learner,
            leads=member.id == look.leader,
            answers=status is not None and status.leader == look.leader,
            size=0 if status is None else status.db_size,
            in_use=0 if status is None else status.db_size_in_use,
            quota=0 if status is None else status.quota,
            rejoins=address_of(member) in self.wanted(),
        )

    async def _contents(self, look: _Look) -> dict[int, Content]:
        """Of those that answer, at a revision that all of them have."""
        members = [one for one in look.membership.members if one.id in look.statuses and not one.is_learner]
        revision = min((look.statuses[one.id].revision for one in members), default=0)
        found = await asyncio.gather(*(self._content(address_of(one), revision) for one in members))
        return {one.id: content for one, content in zip(members, found, strict=True) if content is not None}

    async def _content(self, address: str, revision: int) -> Content | None:
        try:
            found = await (await self.etcd.client(address)).keys_hash(revision, timeout=patience.MEMBER_UPKEEP)
        except (AutarkyError, OSError, ValueError):
            return None
        return Content(found.hash, found.compacted) if found.revision == revision else None

    async def _still(self, look: _Look) -> bool:
        """Whether nothing has changed since the look."""
        membership = await self.etcd.membership([LOCAL])
        local, alarms = await self.etcd.status(LOCAL), await self._alarms()
        leads = local is not None and local.member == local.leader == look.leader
        return leads and membership == look.membership and alarms == look.alarms and not etcd_on_disk.is_fenced()

    # --- acting ---

    async def _carry_out(self, decision: Decision, action: Action, look: _Look) -> None:
        try:
            done = await self._act(action, look)
        except ApiError as error:
            if action.verb is not Verb.COMPACT or error.reason != DONE_BEFORE:
                self.log.tell(action.verb.value, f"etcd refuses: {error}")
                return
            done = "that was done before"
        except AutarkyError as error:
            self.log.tell(action.verb.value, f"it is not known whether it was done: {error}")
            return
        metrics.ETCD_UPKEEP.labels(action.verb.name.lower()).inc()
        self.log.say(f"{action.verb.value}: {done}", component=SUBJECT)
        if decision.reason:
            self.happened(decision.reason, f"{decision.sentence}: {done}")

    async def _act(self, action: Action, look: _Look) -> str:
        """Returns what came of it, as a clause."""
        client = await self.etcd.client(LOCAL)
        match action.verb:
            case Verb.COMPACT:
                await client.compact(action.revision, timeout=patience.MEMBER_UPKEEP)
            case Verb.DISARM:
                for alarm in action.alarms:
                    await client.disarm(Alarm(alarm.member, alarm.kind))
            case Verb.DEFRAGMENT:
                return await self._defragment(action.member, look)
            case Verb.MOVE_LEADER:
                await client.move_leader(action.target)
            case Verb.REMOVE:
                await client.remove(action.member)
            case Verb.COMPARE:
                pass
        return "done"

    async def _defragment(self, member: int, look: _Look) -> str:
        address = next(address_of(one) for one in look.membership.members if one.id == member)
        before = self.clock.monotonic()
        await (await self.etcd.client(address)).defragment(timeout=patience.MEMBER_UPKEEP)
        seconds = self.clock.monotonic() - before
        after = await self.etcd.status(address)
        size = "" if after is None else f", and its database has {after.db_size / upkeep.MIB:.0f} MiB"
        return f"it took {seconds:.1f} s{size}"
