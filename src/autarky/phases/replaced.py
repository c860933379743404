"""A machine that was replaced: the node is in the cluster, and its host has an empty disk.

The old machine's node is forgotten, as by `autarky node remove --dead`, before the new one joins under its name: what
the old kubelet held (certificates, pods, a member of etcd) does not belong to the new one. Refused while something
still answers in its name: two machines would be one node. A plain worker is left out then, or where its disk cannot be
read: whoever has root there could keep `up` from all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.admission.decide import removal
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.engine.phase import Change, Warn
from autarky.errors import Refused
from autarky.model.cluster import Node
from autarky.phases import forget
from autarky.phases.context import Context, for_each_or_left_out, left_out, left_out_since
from autarky.phases.distrust import is_plain_worker
from autarky.phases.removal import is_silent, leave_control_plane, refuse_removal, still_control
from autarky.ports import Progress


@dataclass(frozen=True, slots=True)
class ForgetReplaced:
    name: str = "forget-replaced"
    title: str = "Forget machines that were replaced"
    timeout: float = 300

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        before = set(context.absent)
        found = await _replaced(context, context.silence)
        changes = [Change(f"forget the machine that was {node.name} before") for node in found]
        return [*changes, *left_out_since(context, before)]

    async def run(self, context: Context, progress: Progress) -> None:
        for node in await _replaced(context, progress):
            if not await is_silent(context, node):
                await _refuse_or_leave_out(context, node, progress)
                continue
            await refuse_removal(context, node, answers=False, dead=True)
            if await still_control(context, node) is not None:
                await leave_control_plane(context, node, progress)
            await forget.forget(context.kube(), node.name)
            progress.note(f"the machine that was {node.name} before is forgotten")


async def _replaced(context: Context, progress: Progress) -> list[Node]:
    """Nodes that were registered from another machine than the one that is there now: a kubelet writes its
    kubeconfig before it registers, and keeps it."""
    if not await context.api_answers():
        return []

    async def has_joined(node: Node) -> bool:
        host = context.machines.host(node.name)
        return host is None or await host.read(kubelet_credentials.KUBELET_KUBECONFIG) is not None

    joined = await for_each_or_left_out(context, context.present(context.cluster.nodes), has_joined, progress)
    new = [node for node in context.cluster.nodes if not joined.get(node.name, True)]
    return [node for node in new if await context.kube().get("v1", "Node", node.name) is not None]


async def _refuse_or_leave_out(context: Context, node: Node, progress: Progress) -> None:
    """Something answers in the name of the node besides its host."""
    seen = f"the host of node {node.name} has an empty disk, and another machine answers as {node.name}"
    go_on = "power the old machine off permanently, or give the new one another name"
    if not await is_plain_worker(context, node):
        raise Refused(removal.UNKNOWN_IS_NOT_DOWN, seen, go_on)
    context.leave_out(node.name, f"{seen}: {go_on}")
    progress.note(left_out(context, node.name))
