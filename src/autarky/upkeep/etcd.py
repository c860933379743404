"""Upkeep of a running etcd, asked for by a person: through the host of any member.

Contract: `decide.maintenance` says in which order, and when not. Before each member all of them are looked at again. It
may be killed between any two steps, and doing it again is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autarky.control.etcd.decide import maintenance
from autarky.control.etcd.decide.maintenance import EtcdSeen, MemberSeen
from autarky.engine.deadline import NotYet, poll_until
from autarky.errors import CommandFailed, Refused, Unreachable, UserError
from autarky.etcd import EtcdTools, SnapshotStatus
from autarky.model import patience
from autarky.ports import Clock, Host, Progress
from autarky.upkeep.etcd_seen import NO_ANSWER, look
from autarky.upkeep.patience import LEAST_SECONDS, seconds_for

ONLY_WITH_QUORUM = "etcd changes only while it has a quorum"


class Etcd:
    """etcd by its members' hosts. hosts: node → host, of nodes that may have a member; addresses: node → address."""

    def __init__(self, hosts: Mapping[str, Host], addresses: Mapping[str, str], clock: Clock) -> None:
        self._hosts, self._addresses, self._clock = hosts, addresses, clock

    def host(self, node: str) -> Host:
        return self._hosts[node]

    async def seen(self) -> EtcdSeen:
        return (await look(self._hosts, self._addresses))[0]

    async def defragment(self, names: Sequence[str], progress: Progress) -> None:
        """These members, or all. Refused where another one would be needed and is not healthy."""
        seen, _ = await self._there()
        _refuse_unknown(seen, names)
        wanted = maintenance.defragmentation(seen, names)
        for number, before in enumerate(wanted):
            progress.progress("members", number, len(wanted))
            now = await self._settled(progress)
            member = next((one for one in now.members if one.id == before.id), None)
            if member is None:
                continue
            await self._defragment(member, progress)
        progress.progress("members", len(wanted), len(wanted))

    async def _defragment(self, member: MemberSeen, progress: Progress) -> None:
        _, tools = await self._there()
        await tools.defragment(member.url, timeout=seconds_for(member.size))
        after = next((one for one in (await self.seen()).members if one.id == member.id), member)
        progress.note(f"{member.name}: its database had {member.size:,} bytes, and has {after.size:,}")

    async def _settled(self, progress: Progress) -> EtcdSeen:
        """Waits until all members are healthy, and returns what was seen then; TimedOut if they do not become so."""
        seen = EtcdSeen(())

        async def healthy() -> NotYet | None:
            nonlocal seen
            seen = await self.seen()
            obstacle = maintenance.obstacle(seen)
            return None if obstacle is None else NotYet(obstacle, obstacle)

        await poll_until(
            "all members of etcd are healthy",
            healthy,
            timeout=patience.STEP,
            still=patience.STILL,
            progress=progress,
            clock=self._clock,
        )
        return seen

    async def compact(self, keep: int, progress: Progress) -> None:
        """Forget all history but the newest `keep` revisions."""
        _, tools = await self._there()
        newest = await tools.revision()
        target = maintenance.compaction(newest, keep)
        if target is None:
            progress.note(f"nothing to forget: the newest revision is {newest:,}")
            return
        try:
            await tools.compact(target, timeout=LEAST_SECONDS)
        except CommandFailed as error:
            if "has been compacted" not in error.stderr:
                raise
            progress.note(f"revisions up to {target:,} were forgotten before")
            return
        progress.note(f"revisions up to {target:,} of {newest:,} are forgotten; `autarky etcd defrag` frees the disk")

    async def move_leader(self, name: str, progress: Progress) -> None:
        seen, tools = await self._there()
        _refuse_unknown(seen, [name])
        target = next(one for one in seen.members if one.name == name)
        leader = seen.leader
        if leader is None:
            raise Unreachable("etcd has no leader")
        if leader.id == target.id:
            progress.note(f"{name} leads already")
            return
        if target.learner or target.error is not None:
            why = "it is a learner, which has no vote" if target.learner else target.error
            raise UserError(f"{name} cannot lead: {why}", fix="choose another member: `autarky etcd status`")
        await tools.move_leader(leader.url, target.id)
        progress.note(f"the leadership moved from {leader.name} to {name}")

    async def disarm(self, progress: Progress) -> None:
        seen, tools = await self._there()
        raised = [f"{alarm} of {one.name}" for one in seen.members for alarm in one.alarms]
        if not raised:
            progress.note("there is no alarm")
            return
        await tools.disarm()
        progress.note(f"cleared: {', '.join(raised)}. etcd raises an alarm again if its cause is still there")

    async def source(self) -> tuple[str, MemberSeen]:
        """(node, member) that a snapshot should come from: a healthy follower, so that the leader is not slowed down;
        else any that answers."""
        seen, _ = await self._there()
        able = [one for one in seen.members if one.error is None and not one.learner and one.name in self._hosts]
        if not able:
            raise Unreachable("no member of etcd answers")
        best = min(able, key=lambda one: (one.leads, bool(one.alarms), -one.applied))
        return best.name, best

    async def save_snapshot(self, path: str, node: str, member: MemberSeen) -> SnapshotStatus:
        """On that node's host, with its hash verified."""
        tools = EtcdTools(self._hosts[node])
        await tools.save_snapshot(path, timeout=seconds_for(member.size))
        return await tools.snapshot_status(path, timeout=seconds_for(member.size))

    async def _there(self) -> tuple[EtcdSeen, EtcdTools]:
        """Refused where etcd has no quorum."""
        seen, tools = await look(self._hosts, self._addresses)
        if tools is None:
            raise Unreachable(f"no member of etcd answers; asked on {', '.join(sorted(self._hosts)) or 'no host'}")
        if not seen.quorum:
            down = ", ".join(f"{one.name}: {one.error or NO_ANSWER}" for one in seen.members if one.error is not None)
            raise Refused(ONLY_WITH_QUORUM, f"etcd has no quorum ({down})", "bring members back: `autarky etcd status`")
        return seen, tools


def _refuse_unknown(seen: EtcdSeen, names: Sequence[str]) -> None:
    if unknown := maintenance.unknown_names(seen, names):
        known = ", ".join(one.name for one in seen.members)
        raise UserError(f"etcd has no member {', '.join(unknown)}", fix=f"its members are: {known}")
