"""A member of an etcd that a recovery has replaced while this node was away: it stops, and its data is moved aside.

Contract: as of `decide.lineage`; it needs no API: that of this node may be served by the former etcd. It is about both
of a node's seats: the second member, which stands in for the only one, may have all data, or what is left of it may lie
beside that of the new etcd. What the node's agent was changing of the member ends with it. Every step is visible in the
next look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide import lineage
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.on_disk import FIRST, SECOND, Seat
from autarky.control.etcd.node.own import OwnMember
from autarky.control.etcd.node.seen import LOCAL, EtcdSeen
from autarky.model.etcd_members import Desired
from autarky.ports import Clock

ASK_SECONDS = 30.0
"""Between two questions: a node that is off costs all of the time for an answer."""
FENCE_SECONDS = 600.0
"""A recovery fences a node for a minute or two; on machines twenty times slower for this long."""


@dataclass(slots=True)
class FormerEtcd:
    """own: this node's members, by the component of their seats."""

    node: str
    etcd: EtcdSeen
    clock: Clock
    log: DecisionLog
    own: Mapping[str, OwnMember]
    _next: float = 0.0
    _fenced_since: float | None = None
    _replaced: frozenset[int] = frozenset()
    """The clusters of this node's data that another one says it has replaced."""

    async def look(self, desired: Sequence[Desired]) -> bool:
        """Look and act once; returns whether there is a member of a former etcd, beside which nothing else is done."""
        now, clusters = self.clock.monotonic(), _clusters()
        if not etcd_on_disk.is_fenced():
            self._fenced_since = None
        elif self._fenced_since is None:
            self._fenced_since = now
        if not clusters or (self._fenced_since is not None and not self._fence_is_old(now)):
            return False
        if self._fenced_since is None and FIRST in clusters:
            etcd_on_disk.remember_cluster(clusters[FIRST])
        await self._ask(clusters, desired, now)
        former = {seat for seat, cluster in clusters.items() if cluster in self._replaced}
        if not former or (self._fenced_since is not None and former != clusters.keys()):
            return False
        await self._leave(former, {seat for seat in (FIRST, SECOND) if seat in former or seat not in clusters})
        return True

    def _fence_is_old(self, now: float) -> bool:
        """Whether the recovery that has fenced this node has surely gone on without it: the node was off at its end."""
        return self._fenced_since is not None and now - self._fenced_since >= FENCE_SECONDS

    async def _ask(self, clusters: Mapping[Seat, int], desired: Sequence[Desired], now: float) -> None:
        """The other nodes. With data of two clusters also this one: the member of one may have replaced the other."""
        mine = frozenset(clusters.values())
        if mine <= self._replaced or now < self._next:
            return
        self._next = now + ASK_SECONDS
        own = next((spec.address for spec in desired if spec.name == self.node), None)
        others = [*etcd_on_disk.remembered_addresses(), *(spec.address for spec in desired)]
        asked = [one for one in others if one != own] + ([LOCAL] if len(mine) > 1 else [])
        said = await self.etcd.former(asked)
        self._replaced |= {cluster for cluster in mine if lineage.is_replaced(cluster, said)}

    async def _leave(self, former: set[Seat], stopped: set[Seat]) -> None:
        """It joins the other etcd as a new member, if it should. A fence goes too: nobody else takes it away. former:
        whose data is moved aside; stopped: where no other member may run either."""
        if FIRST in stopped:
            etcd_on_disk.forget_change()  # before the fence: without that it would put the former static pod back
        if etcd_on_disk.is_fenced():
            etcd_on_disk.drop_fence()
            self.log.say("the recovery that has fenced this node ended without it", component="own etcd member")
        self.log.tell(
            "own etcd member",
            "a recovery has replaced the etcd of this node's data: it stops, and joins as a new member",
        )
        for seat in stopped:
            running, pod = await self.own[seat.component].runs()
            if etcd_on_disk.manifests(seat):
                etcd_on_disk.stop(seat)
            elif seat in former and running is False and pod is False:
                kept = etcd_on_disk.move_aside(self.clock.time(), seat)
                self.log.say(f"the data of a former etcd is kept in {kept}", component="own etcd member")


def _clusters() -> dict[Seat, int]:
    """Of the data in each seat, as far as it says so."""
    found = {seat: etcd_on_disk.data(seat) for seat in (FIRST, SECOND)}
    return {seat: data.cluster for seat, data in found.items() if data is not None and data.cluster is not None}
