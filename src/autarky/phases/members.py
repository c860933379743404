"""Who is in the cluster: the nodes of the file, those that were taken out of it, and which are its initial members.

Contract: a node that is not in the file keeps its role until it is removed by name. What is known of the
nodes is kept in the cluster's directory, so that a host that does not answer still has an address, and a
node that is not in the file any more still has a host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autarky.control.admission.act import read_inventory
from autarky.control.cluster_file.decide.records import API, newest
from autarky.control.common.pods import internal_address
from autarky.control.control_nodes.decide.initial import initial_members
from autarky.errors import ApiError, Unreachable
from autarky.model.cluster import Cluster, HostRef, Node
from autarky.phases import records
from autarky.phases.context import Context
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_ACTIVE

_FILE = "nodes.json"


# --- the memory ------------------------------------------------------------------------------------------


def remembered(directory: Path) -> dict[str, Node]:
    """The nodes as the last `up` knew them; none where that is not known."""
    try:
        return nodes_of(json.loads((directory / _FILE).read_text()))
    except (OSError, ValueError, KeyError):
        return {}


def nodes_of(memory: Mapping[str, Mapping[str, str | bool]]) -> dict[str, Node]:
    """The nodes that `memory_of` remembers. ValueError, KeyError."""
    return {name: _node(name, said) for name, said in memory.items()}


def _node(name: str, said: Mapping[str, str | bool]) -> Node:
    host = HostRef.parse(str(said["host"]))
    address = str(said["address"])
    return Node(name, host, bool(said["controlPlane"]), address=address, initial_member=bool(said["founder"]))


def with_remembered(cluster: Cluster, directory: Path) -> Cluster:
    """The cluster with the nodes that are remembered and no longer in its file."""
    names = {node.name for node in cluster.nodes}
    others = tuple(node for name, node in remembered(directory).items() if name not in names)
    return replace(cluster, nodes=(*cluster.nodes, *others))


def path_of(directory: Path) -> Path:
    return directory / _FILE


# --- putting it together ------------------------------------------------------------------------------------


async def learn(context: Context) -> None:
    """Find the initial members among the control nodes, and the nodes that are not in the file."""
    controls = {node.name for node in context.cluster.control_nodes}
    known = {name: node for name, node in remembered(context.directory).items() if name not in _in_file(context)}
    seen = {name: memory for name, memory in context.memories.items() if name in controls}
    remembers = any(memory.initial_members for memory in seen.values())
    found = initial_members(controls if remembers or context.initial_member is None else {context.initial_member}, seen)
    nodes = tuple(replace(node, initial_member=node.name in found) for node in context.cluster.nodes)
    context.cluster = replace(context.cluster, nodes=nodes)
    context.unlisted = tuple(known.values())
    nodes_in_api = await _ask_api(context)
    context.joined = frozenset(nodes_in_api)
    context.active_in_api = frozenset(
        name for name, node in nodes_in_api.items() if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {})
    )
    live = {name: obj for name, obj in nodes_in_api.items() if name not in _in_file(context)}
    inventory = await read_inventory(context.kube()) if live or (known and context.api_seen) else {}
    recorded = _recorded(context)
    known |= {
        name: _as_trusted(node, live.get(name), inventory) for name, node in known.items() if name not in recorded
    }
    written_down = {**recorded, **known}
    joined = {name: _unlisted(name, obj, written_down, inventory) for name, obj in live.items()}
    context.unlisted = tuple({**known, **joined}.values())


def _in_file(context: Context) -> set[str]:
    return {node.name for node in context.cluster.nodes}


async def _ask_api(context: Context) -> dict[str, Object]:
    """The Node objects by name, none when the API does not answer. Puts the record into the context."""
    context.api_seen = False
    context.records.pop(API, None)
    if not await context.api_answers():
        return {}
    try:
        nodes = {node["metadata"]["name"]: node for node in await context.kube().list("v1", "Node")}
        record = await records.of_the_api(context.kube())
    except (Unreachable, ApiError):
        return {}
    if record is not None:
        context.records[API] = record
    context.api_seen = True
    return nodes


def _recorded(context: Context) -> dict[str, Node]:
    """The nodes of the newest record."""
    record = newest(context.records)
    try:
        return {} if record is None else nodes_of(record.nodes)
    except (ValueError, KeyError, TypeError):
        return {}


def _as_trusted(node: Node, live: Object | None, inventory: Mapping[str, frozenset[str]]) -> Node:
    """A worker that is in no file, record or inventory is one whose removal has started, here or elsewhere: without an
    address it appears in nothing that is rendered, and does not return to the inventory."""
    control = node.control_plane or CONTROL_PLANE_ACTIVE in ((live or {}).get("metadata", {}).get("labels") or {})
    return node if control or not inventory or node.name in inventory else replace(node, address=None)


def _unlisted(name: str, obj: Object, known: Mapping[str, Node], inventory: Mapping[str, frozenset[str]]) -> Node:
    """A node as the API has it: somebody may have joined it with another file, or made it a control node. Its
    address is that of the join inventory, which is rewritten with it, else what an administrator's machine has
    written down: what its kubelet says counts only where there is no inventory at all."""
    control = CONTROL_PLANE_ACTIVE in (obj["metadata"].get("labels") or {})
    address = min(inventory.get(name, ()), default=None) if inventory else internal_address(obj)
    if name in known:
        return replace(known[name], control_plane=control, address=address or known[name].address)
    return Node(name, HostRef("ssh", name), control, address=address, initial_member=False)


# --- control nodes that join ----------------------------------------------------------------------------------


def as_it_joins(node: Node) -> Node:
    """The node as the command line prepares and joins it: a control node that is no initial member is a worker
    until the operator and its agent have made it a control node, by its label."""
    return replace(node, control_plane=node.control_plane and node.initial_member)


def that_answer(context: Context) -> list[Node]:
    """The nodes of the file whose hosts answer, each as it joins."""
    return [as_it_joins(node) for node in context.present(context.cluster.nodes)]
