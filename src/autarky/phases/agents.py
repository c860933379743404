"""The node agents: a DaemonSet on all nodes, and standby agents as static pods on control nodes. From here on the nodes
manage their slots themselves, with or without an API.

A standby agent is written only where there is none: from then on the hosted agent makes it a copy of itself, once it
has been healthy for a while. So a broken agent never replaces both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.engine.phase import Change, Kept
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases.context import Context, for_each
from autarky.phases.objects import ApplyParts
from autarky.phases.standbys import cares_for_its_slots
from autarky.ports import Progress
from autarky.render import node as render_node
from autarky.render import objects


@dataclass(frozen=True, slots=True)
class StartAgents:
    """After the pivot, so that `up` and the agents do not both work on it."""

    name: str = "start-agents"
    title: str = "Start the node agents"
    timeout: float = 120

    async def plan(self, context: Context) -> Sequence[Change | Kept]:
        nodes = context.present(context.cluster.initial_members)
        if not context.addresses_known or not context.pki.complete():
            return [Change(f"start the node agent on {node.name}") for node in nodes]
        changes: list[Change | Kept] = []
        for node in nodes:
            missing = await _missing(context, node)
            changes += [Change(f"write the static pod {file.path} on {node.name}") for file in missing]
        return [*changes, *await ApplyParts(objects.agent_parts).plan(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        await for_each(context.present(context.cluster.initial_members), lambda node: _start(context, node))
        await ApplyParts(objects.agent_parts).run(context, progress)


async def _start(context: Context, node: Node) -> None:
    await context.host(node).write_files(await _missing(context, node))


async def _missing(context: Context, node: Node) -> list[File]:
    """The first standby agent's manifest, unless there is one already, whatever its content."""
    if await cares_for_its_slots(context.host(node)):
        return []
    return list(render_node.agent_pod(context.inputs(), node).values())
