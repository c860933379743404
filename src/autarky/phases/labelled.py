"""Control nodes that a label has made: the file has them as workers. Only looks, with or without the API."""

from __future__ import annotations

import asyncio

from autarky import places
from autarky.errors import AutarkyError
from autarky.model.cluster import Node
from autarky.phases.context import Context
from autarky.ports import Host
from autarky.render.values import CONTROL_PLANE_ACTIVE


async def find_labelled(context: Context, *, api: bool) -> None:
    """From here on, `context.control_nodes` has them. A host that does not answer is taken for a worker."""
    workers = context.cluster.workers
    names = await _by_label(context) if api else await _by_disk(context)
    context.labelled = frozenset(names & {node.name for node in workers})


async def _by_label(context: Context) -> set[str]:
    nodes = await context.kube().list("v1", "Node", labels=CONTROL_PLANE_ACTIVE)
    return {node["metadata"]["name"] for node in nodes}


async def _by_disk(context: Context) -> set[str]:
    """As the nodes' agents have recorded it for the next boot."""
    workers = context.cluster.workers
    found = await asyncio.gather(*(_is_control_node(context, node) for node in workers))
    return {node.name for node, is_one in zip(workers, found, strict=True) if is_one}


async def _is_control_node(context: Context, node: Node) -> bool:
    host = context.machines.host(node.name)
    if host is None:
        return False
    try:
        return await is_labelled(host)
    except AutarkyError:
        return False


async def is_labelled(host: Host) -> bool:
    """Whether its agent has recorded that a label has made it a control node."""
    noted = await host.read(places.CONTROL_NODE_STATE)
    return noted is not None and b'"ready"' in noted
