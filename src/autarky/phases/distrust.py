"""Revoking a worker's membership of the cluster: the first step of its removal, before anything that somebody on its
host, or with its certificate, could hold up. They are often the reason for the removal.

Contract: for plain workers only. A control node is a member of etcd and serves the API until it has left both, and must
be trusted until then; `forget` removes its entries at the end. Each write stands on its own, in the order of
`forget.distrust`, and what is gone is skipped: a removal that was killed in between continues where it stopped. The
later steps need no trust: the administrator evicts the pods and deletes the Node, and the host is cleaned over its own
connection.
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
    """After the node has left the file, and before it leaves the record on control nodes, whose hosts may not be
    writable. Once it has left all three, the next `up` does not admit it again, whatever interrupts the removal."""

    node: Node
    name: str = "distrust-node"
    title: str = "Revoke the worker's membership"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await is_plain_worker(context, self.node):
            return []
        context.distrusted |= {self.node.name}
        return [Change(f"delete {what}") for what in await forget.trust_in(context.kube(), self.node.name)]

    async def run(self, context: Context, progress: Progress) -> None:
        await forget.distrust(context.kube(), self.node.name)
        progress.note(f"node {self.node.name} is no longer a member: it can renew no certificate and create no object")


async def is_plain_worker(context: Context, node: Node) -> bool:
    """Whether the node is not a control node, is not becoming one and never was: by the file, the record, its labels,
    which no node can set on itself, and etcd. A former control node has the CA keys, or had them."""
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
