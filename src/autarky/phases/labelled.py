"""Control nodes that a label has made: the file has them as workers. Only looks, with or without the API.

Contract: with the API the label counts, which no kubelet may set. Without it a worker's own word counts for nothing,
since root there can write it: a control node of the file must have it among etcd's members or the API's servers, or as
the seat of a recovery; or a person has named it, and then it counts like one of the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from autarky import places
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.errors import AutarkyError
from autarky.model.cluster import Node
from autarky.parsing import parsed
from autarky.phases.context import Context
from autarky.ports import Host
from autarky.render.values import CONTROL_PLANE_ACTIVE

_LONGEST = 1024 * 1024
"""Bytes of a configuration of the load balancer."""
Known = tuple[str, str | None]
"""(node, its address)"""


async def find_labelled(context: Context, *, api: bool, named: Collection[str] = ()) -> list[str]:
    """From here on, `context.control_nodes` has them. A host that does not answer is taken for a worker. Returns those
    whose disk says that they are control nodes, and that nobody else says so of: they are taken for workers."""
    workers = {node.name for node in context.cluster.workers}
    if api:
        context.labelled = frozenset(await _by_label(context) & workers)
        return []
    context.labelled, unproven = await labelled_by_disks(context, named)
    return unproven


async def labelled_by_disks(context: Context, named: Collection[str] = ()) -> tuple[frozenset[str], list[str]]:
    """Without the API: (those that somebody else knows, those that only their own disk knows)."""
    claiming = await _by_disk(context)
    believed = {node.name for node in claiming if node.name in named}
    asked = [node for node in context.cluster.nodes if node.control_plane or node.name in believed]
    known = {one for found in await asyncio.gather(*(_known_to(context, node) for node in asked)) for one in found}
    believed |= {node.name for node in claiming if node.address is not None and (node.name, node.address) in known}
    return frozenset(believed), sorted(node.name for node in claiming if node.name not in believed)


async def _by_label(context: Context) -> set[str]:
    nodes = await context.kube().list("v1", "Node", labels=CONTROL_PLANE_ACTIVE)
    return {node["metadata"]["name"] for node in nodes}


async def _by_disk(context: Context) -> list[Node]:
    """The workers whose agents have recorded it for the next boot; or somebody else."""
    workers = context.cluster.workers
    found = await asyncio.gather(*(_says_so(context, node) for node in workers))
    return [node for node, says_so in zip(workers, found, strict=True) if says_so]


async def _says_so(context: Context, node: Node) -> bool:
    host = context.machines.host(node.name)
    if host is None:
        return False
    try:
        return await is_labelled(host)
    except AutarkyError:
        return False


async def is_labelled(host: Host) -> bool:
    """Whether its agent has recorded that a label has made it a control node. Of a worker of the file it is only its
    own word."""
    noted = await host.read(places.CONTROL_NODE_STATE)
    return noted is not None and b'"ready"' in noted


async def _known_to(context: Context, node: Node) -> set[Known]:
    """The control nodes that this one knows, by files that its agent and recoveries write."""
    host = context.machines.host(node.name)
    if host is None:
        return set()
    try:
        members, fence = await host.read(places.MEMBERS_FILE), await host.read(places.ETCD_FENCE)
        balancer = await host.read(nllb.CONFIG_PATH, most=_LONGEST)
    except AutarkyError:
        return set()
    servers = None if balancer is None else nllb.parse(balancer.decode(errors="replace"))
    return {
        *_members(members),
        *((one.name, one.address) for one in (() if servers is None else servers.servers)),
        *((one.name, one.address) for one in context.cluster.nodes if one.name == _seat(fence)),
    }


def _members(content: bytes | None) -> Iterable[Known]:
    """A node may have two members; the name of the second one begins with its name, too."""
    try:
        return [(str(one["name"]).partition(":")[0], str(one["address"])) for one in parsed(content or b"[]")]
    except (ValueError, KeyError, TypeError):
        return []


def _seat(fence: bytes | None) -> str | None:
    """Of a recovery that is under way."""
    try:
        return None if fence is None else str(parsed(fence)["seat"])
    except (ValueError, KeyError, TypeError):
        return None
