"""A machine that was replaced: the node is in the cluster, and its host has an empty disk.

The old machine's node is forgotten, as by `autarky node remove --dead`, before the new one joins under its name: what
the old kubelet held (certificates, pods, a member of etcd) does not belong to the new one. Refused while something
still answers in its name: two machines would be one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.admission.decide import removal
from autarky.engine.phase import Change
from autarky.errors import Refused
from autarky.model.cluster import Node
from autarky.phases import forget
from autarky.phases.context import Context
from autarky.phases.removal import is_silent, leave_control_plane, refuse_removal, still_control
from autarky.ports import Progress
from autarky.render import node as render_node


@dataclass(frozen=True, slots=True)
class ForgetReplaced:
    name: str = "forget-replaced"
    title: str = "Forget machines that were replaced"
    timeout: float = 300

    async def plan(self, context: Context) -> Sequence[Change]:
        return [Change(f"forget the machine that was {node.name} before") for node in await _replaced(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        for node in await _replaced(context):
            await _refuse_life(context, node)
            await refuse_removal(context, node, answers=False, dead=True)
            if await still_control(context, node) is not None:
                await leave_control_plane(context, node, progress)
            await forget.forget(context.kube(), node.name)
            progress.note(f"the machine that was {node.name} before is forgotten")


async def _replaced(context: Context) -> list[Node]:
    """Nodes that were registered from another machine than the one that is there now: a kubelet writes its
    kubeconfig before it registers, and keeps it."""
    if not await context.api_answers():
        return []
    found = []
    for node in context.present(context.cluster.nodes):
        host = context.machines.host(node.name)
        if host is None or await host.read(render_node.KUBELET_KUBECONFIG) is not None:
            continue
        if await context.kube().get("v1", "Node", node.name) is not None:
            found.append(node)
    return found


async def _refuse_life(context: Context, node: Node) -> None:
    if not await is_silent(context, node):
        raise Refused(
            removal.UNKNOWN_IS_NOT_DOWN,
            f"the host of node {node.name} has an empty disk, and another machine answers as {node.name}",
            "power the old machine off permanently, or give the new one another name",
        )
