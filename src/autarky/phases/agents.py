"""The node agents: parked static pods on control nodes, a DaemonSet everywhere. From here on the nodes care
for their slots by themselves, with or without an API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.engine.phase import Change
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases.context import Context, for_each
from autarky.phases.objects import ApplyParts
from autarky.phases.start import manifest_changes
from autarky.ports import Progress
from autarky.render import node as render_node
from autarky.render import objects


@dataclass(frozen=True, slots=True)
class StartAgents:
    """After the pivot, so that `up` and the agents do not take turns at it."""

    name: str = "start-agents"
    title: str = "Start the node agents"
    timeout: float = 120

    async def plan(self, context: Context) -> Sequence[Change]:
        nodes = context.cluster.control_nodes
        if not context.addresses_known or not context.pki.complete():
            return [Change(f"start the node agent on {node.name}") for node in nodes]
        changes: list[Change] = []
        for node in nodes:
            stale, missing = await _manifests(context, node)
            changes += [Change(f"remove the static pod {path} on {node.name}") for path in stale]
            changes += [Change(f"write the static pod {file.path} on {node.name}") for file in missing]
        return [*changes, *await ApplyParts(objects.agent_parts).plan(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        await for_each(context.cluster.control_nodes, lambda node: _start(context, node))
        await ApplyParts(objects.agent_parts).run(context, progress)


async def _start(context: Context, node: Node) -> None:
    stale, missing = await _manifests(context, node)
    host = context.host(node)
    await host.write_files(missing)
    await host.remove(stale)


async def _manifests(context: Context, node: Node) -> tuple[list[str], list[File]]:
    return await manifest_changes(context.host(node), render_node.agent_pod(context.inputs(), node))
