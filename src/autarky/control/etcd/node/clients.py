"""Before a member of etcd leaves, the API servers that are connected to it move to other members.

What is in flight in a member when it is removed fails. The load balancers open no new connections to one that leaves,
and keep those that they have. So each API server with such connections makes way for a new one: the one beside the
member, and those on other nodes that were moved there while their own member did not serve.

Contract: level-triggered; what is done is noted on the EtcdMember of the node, so the agent may be killed at any point.
One node after the other: first that of the member, then the others by their names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from autarky.control.base.decision_log import DecisionLog
from autarky.control.common.pods import is_ready
from autarky.control.etcd.decide import leaving as etcd_leaving
from autarky.control.etcd.decide.leaving import RELOAD_SECONDS
from autarky.control.etcd.node.connections import connected_to
from autarky.control.etcd.node.seen import address_of
from autarky.etcd import Membership
from autarky.model import ports
from autarky.model.etcd_members import SECOND_SUFFIX, Desired, host_of, is_second
from autarky.ports import Clock, Kube, Object
from autarky.render.values import SYSTEM


async def no_connections() -> None:
    """For an agent that keeps none open."""


@dataclass(slots=True)
class Clients:
    """Those on this node. hosted_api_server(): its pod. status(name), tell(name, part): of an EtcdMember, or of its
    second member. disconnect(): closes what this agent itself keeps open through the load balancer."""

    node: str
    kube: Kube
    clock: Clock
    log: DecisionLog
    hosted_api_server: Callable[[], Object | None]
    status: Callable[[str], Object]
    tell: Callable[[str, Object], Awaitable[None]]
    disconnect: Callable[[], Awaitable[None]]
    is_connected: Callable[[str, int], bool] = connected_to
    _since: dict[str, float] = field(default_factory=dict)
    """Member → when it was first seen to be reported as leaving."""
    _not_ours: set[str] = field(default_factory=set)
    """Members to which this agent has no connection of its own any more, through the load balancer: its kept one may
    have been opened while the node's own member did not serve."""

    async def leave_own(self, spec: Desired, membership: Membership | None, member: int) -> None:
        """The API server beside it disconnects from this node's member, if there are others."""
        alone = membership is None or sum(not known.is_learner for known in membership.members) < 2
        if not spec.reported or spec.disconnected == member or alone:
            self._since.pop(spec.name, None)
            return
        if await self._make_way(spec.name, member, self._reported_for(spec)):
            await self.tell(spec.name, {"vacatedMemberID": f"{member:x}"})

    async def leave_others(self, desired: Sequence[Desired], membership: Membership | None) -> None:
        """This node's API server disconnects from members of other nodes."""
        ids = {address_of(one): one.id for one in membership.members} if membership is not None else {}
        for spec in desired:
            if not self._is_own(spec) and not spec.reported:
                self._since.pop(spec.name, None)
                self._not_ours.discard(spec.name)
        leaving = [spec for spec in desired if spec.reported and not self._is_own(spec) and spec.address in ids]
        mine = next((spec for spec in desired if spec.name == self.node), None)
        if mine is None or (not leaving and not mine.uses):
            return
        used = [spec for spec in leaving if await self._is_used(spec)]
        uses = tuple(sorted(ids[spec.address] for spec in used))
        if uses != mine.uses:
            await self.tell(self.node, {"uses": [f"{one:x}" for one in uses]})
        for spec in used:
            before = {other.name for other in desired if ids[spec.address] in other.uses and other.name < self.node}
            if spec.disconnected == ids[spec.address] and not before:
                await self._make_way(self.node, ids[spec.address], self._reported_for(spec))

    def _is_own(self, spec: Desired) -> bool:
        return spec.name.removesuffix(SECOND_SUFFIX) == self.node

    async def _is_used(self, spec: Desired) -> bool:
        """Only once the load balancer knows that it leaves: until then it is checked, by connections."""
        if self._reported_for(spec) < RELOAD_SECONDS:
            return False
        if spec.name not in self._not_ours:
            await self.disconnect()
            self._not_ours.add(spec.name)
            return False
        port = ports.ETCD_SECOND_CLIENT if is_second(spec.address) else ports.ETCD_CLIENT
        try:
            return self.is_connected(host_of(spec.address), port)
        except (OSError, ValueError):
            return False

    def _reported_for(self, spec: Desired) -> float:
        now = self.clock.monotonic()
        return now - self._since.setdefault(spec.name, now)

    async def _make_way(self, name: str, member: int, reported_for: float) -> bool:
        """The API server is replaced by one that is not connected to that member; whether that is done. name: of the
        EtcdMember that notes it."""
        pod = self.hosted_api_server()
        noted_for, _, noted = str(self.status(name).get("vacating") or "").partition("/")
        seen = etcd_leaving.Seen(
            reported_for=reported_for,
            noted=noted if noted_for == f"{member:x}" else None,
            pod=None if pod is None else pod["metadata"]["uid"],
            ends=pod is not None and "deletionTimestamp" in pod["metadata"],
            ready=pod is not None and is_ready(pod),
        )
        step, sentence = etcd_leaving.decide(seen)
        self.log.tell("leaving etcd", sentence)
        match step:
            case etcd_leaving.Step.NOTE:
                await self.tell(name, {"vacating": f"{member:x}/{seen.pod}"})
            case etcd_leaving.Step.RESTART if pod is not None:
                await self.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
        return step is etcd_leaving.Step.CLAIM
