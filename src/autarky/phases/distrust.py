"""What makes a worker a member of the cluster is taken away first, before anything that somebody on its host, or with
its certificate, could hold up: its removal is often asked for because of them.

Contract: of plain workers only. A control node is a member of etcd and serves until it has left both, which needs that
it is known; `forget` takes it out in the end. Each write stands for itself, in the order of `forget.distrust`, and what
is gone is passed over: a removal that was killed in between goes on where it stopped. What comes after it needs no
trust: pods are evicted and the Node is deleted by the administrator, and the host is cleaned over its own connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autarky.control.cluster_file.decide.records import newest
from autarky.engine.phase import Change
from autarky.model.cluster import Node
from autarky.phases import forget
from autarky.phases.context import Context
from autarky.phases.promote import etcd_members
from autarky.ports import Progress
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED


@dataclass(frozen=True, slots=True)
class DistrustNode:
    """After the node has left the file, and before control nodes' record, whose hosts might not let themselves be
    written to. What has left all three the next `up` does not take in again, whatever kills the removal then."""

    node: Node
    name: str = "distrust-node"
    title: str = "Take a worker's membership away"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await is_plain_worker(context, self.node):
            return []
        context.distrusted |= {self.node.name}
        return [Change(f"delete {what}") for what in await forget.trust_in(context.kube(), self.node.name)]

    async def run(self, context: Context, progress: Progress) -> None:
        await forget.distrust(context.kube(), self.node.name)
        progress.note(f"node {self.node.name} is a member no more: nothing of it is renewed, and it makes nothing")


async def is_plain_worker(context: Context, node: Node) -> bool:
    """Whether it is no control node, becomes none and was none: by the file, the record, its labels, which no node sets
    on itself, and etcd. What was one has the CAs' keys, or had them."""
    if node.control_plane or _recorded_as_control(context, node.name):
        return False
    live = await context.kube().get("v1", "Node", node.name)
    labels = set((live or {}).get("metadata", {}).get("labels") or {})
    if labels & {CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED}:
        return False
    return all(member["metadata"]["name"] != node.name for member in await etcd_members(context.kube()))


def _recorded_as_control(context: Context, name: str) -> bool:
    record = newest(context.records)
    said = None if record is None else record.nodes.get(name)
    return isinstance(said, Mapping) and bool(said.get("controlPlane"))
