"""The agents of the cluster: they do what `up` then waits for.

Before the pivot a standby agent as a static pod on each initial member whose slots have to move: at the first `up` on
that with the temporary control plane. An agent more at that moment would only take processor time from the API servers
that start. After the pivot the other standby agents, the node agents' DaemonSet, and the operator.

After the pivot a standby agent is written only where there is none: the hosted agent makes it a copy of itself, once it
has been healthy for a while. So a broken agent never replaces both. Agents of a cluster that has some are changed only
after the pivot: a hosted API server that rolls asks its node's agent before it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autarky.control.slots.decide.pivot import Slot
from autarky.engine.phase import Change, Kept
from autarky.errors import CommandFailed
from autarky.model.cluster import Node
from autarky.model.components import NODE_AGENT, WITH_STANDBY
from autarky.model.files import File
from autarky.phases.context import Context, for_each
from autarky.phases.objects import ApplyParts
from autarky.phases.pivot import pivoting, wanted_slot
from autarky.phases.standbys import active, operator_exists, standby_agents
from autarky.ports import Progress
from autarky.render import node as render_node
from autarky.render.objects import Part, agent_parts
from autarky.render.values import Inputs


@dataclass(frozen=True, slots=True)
class StartAgents:
    """Where there are none yet, and something has to move."""

    name: str = "start-agents"
    title: str = "Start the agents"
    timeout: float = 120
    needs: tuple[str, ...] = ("prepare-hosts", "apply-objects")

    async def plan(self, context: Context) -> Sequence[Change | Kept]:
        nodes = await _to_move(context)
        if not context.addresses_known or not context.pki.complete() or not await context.api_answers():
            return [Change(f"start the node agent on {node.name}") for node in nodes]
        started = not nodes or await operator_exists(context)
        rights = [] if started else await ApplyParts(_first_parts).plan(context)
        work = await for_each(nodes, lambda node: _work(context, node, replaces=not started))
        return [*rights, *_changes(work)]

    async def run(self, context: Context, progress: Progress) -> None:
        started = await operator_exists(context)
        if not started:
            await ApplyParts(_first_parts).run(context, progress)
        await for_each(await _to_move(context), lambda node: _start(context, node, replaces=not started))


@dataclass(frozen=True, slots=True)
class ApplyAgents:
    """The rest of them, and the current version of all."""

    name: str = "apply-agents"
    title: str = "Apply the agents"
    timeout: float = 120
    needs: tuple[str, ...] = ("prepare-hosts", "apply-objects", "pivot")
    render: Callable[[Inputs], list[Part]] = agent_parts

    async def plan(self, context: Context) -> Sequence[Change | Kept]:
        changes = await ApplyParts(self.render).plan(context)
        if not context.addresses_known or not context.pki.complete():
            return changes
        return [*changes, *_changes(await for_each(pivoting(context), lambda node: _work(context, node)))]

    async def run(self, context: Context, progress: Progress) -> None:
        await ApplyParts(self.render).run(context, progress)
        await for_each(pivoting(context), lambda node: _start(context, node))


async def _to_move(context: Context) -> list[Node]:
    """The nodes on which a standby has to go or to come."""
    move = await for_each(pivoting(context), lambda node: _has_to_move(context, node))
    return [node for node in pivoting(context) if move[node.name]]


async def _has_to_move(context: Context, node: Node) -> bool:
    try:
        in_place = await active(context.host(node))
    except CommandFailed:  # the host is not prepared yet
        return True
    return any((wanted_slot(context, one) is Slot.STANDBY) != (one in in_place) for one in WITH_STANDBY)


def _first_parts(inputs: Inputs) -> list[Part]:
    """What the standby agents need: the rights of the node agents."""
    return [
        Part(part.name, tuple(obj for obj in part.objects if obj["kind"] != "DaemonSet"))
        for part in agent_parts(inputs)
        if part.name == NODE_AGENT
    ]


@dataclass(frozen=True, slots=True)
class _Work:
    """Of one node: the static pods of standby agents to remove first, by path, and those to write."""

    stale: tuple[str, ...]
    files: tuple[File, ...]


def _changes(work: Mapping[str, _Work]) -> list[Change]:
    """work: by the node's name."""
    stale = [Change(f"remove the static pod {path} on {name}") for name, one in work.items() for path in one.stale]
    return stale + [
        Change(f"write the static pod {file.path} on {name}") for name, one in work.items() for file in one.files
    ]


async def _start(context: Context, node: Node, *, replaces: bool = False) -> None:
    work, host = await _work(context, node, replaces=replaces), context.host(node)
    await host.remove(list(work.stale))
    await host.write_files(list(work.files))


async def _work(context: Context, node: Node, *, replaces: bool = False) -> _Work:
    """The first standby agent's manifest, unless there is one already, whatever its content. replaces: nobody else
    would replace it yet, and a faulty one would never get as far as the pivot."""
    present = await standby_agents(context.host(node))
    wanted = list(render_node.agent_pod(context.inputs(), node).values())
    if present and not replaces:
        return _Work((), ())
    paths = {file.path for file in wanted}
    return _Work(
        tuple(path for path in present if path not in paths), tuple(one for one in wanted if one.path not in present)
    )
