"""The nodes of a cluster, one row each: from the file, the hosts and the API, whichever of these answer."""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.common.pods import is_ready
from autarky.errors import ApiError, AutarkyError, Unreachable
from autarky.model.cluster import Node
from autarky.phases.context import Context
from autarky.phases.hosts import observe
from autarky.phases.promote import etcd_members
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED


@dataclass(frozen=True, slots=True)
class Row:
    """etcd: the phase of the node's member, "-" where it has none. state: one clause for people."""

    name: str
    host: str
    address: str
    role: str
    etcd: str
    state: str


async def gather(context: Context) -> list[Row]:
    """Look at hosts and API."""
    problem = ""
    try:
        await observe(context)
    except AutarkyError as error:
        problem = str(error)
    live, phases = await _live(context)
    in_file = {node.name for node in context.cluster.nodes}
    return [
        _row(context, node, live, phases, problem, unlisted=node.name not in in_file)
        for node in (*context.cluster.nodes, *context.unlisted)
    ]


async def _live(context: Context) -> tuple[dict[str, Object] | None, dict[str, str]]:
    """(Node objects by name, phases of etcd's members by node); None when the API does not answer."""
    if not await context.api_answers():
        return None, {}
    try:
        nodes = {node["metadata"]["name"]: node for node in await context.kube().list("v1", "Node")}
        members = await etcd_members(context.kube())
    except (Unreachable, ApiError):
        return None, {}
    return nodes, {m["metadata"]["name"]: (m.get("status") or {}).get("phase", "Pending") for m in members}


def _row(
    context: Context,
    node: Node,
    live: dict[str, Object] | None,
    phases: dict[str, str],
    problem: str,
    *,
    unlisted: bool,
) -> Row:
    obj = (live or {}).get(node.name)
    states = [_host_state(context, node, problem), "not in the file" if unlisted else "", _api_state(live, obj)]
    return Row(
        name=node.name,
        host=str(node.host),
        address=node.address or "-",
        role=_role(node, obj),
        etcd=phases.get(node.name, "-"),
        state="; ".join(state for state in states if state),
    )


def _host_state(context: Context, node: Node, problem: str) -> str:
    why = context.absent.get(node.name, problem)
    return f"its host does not answer: {why}" if why else ""


def _api_state(live: dict[str, Object] | None, obj: Object | None) -> str:
    if live is None:
        return "unknown: the API does not answer"
    if obj is None:
        return "not joined"
    return "Ready" if is_ready(obj) else "not Ready"


def _role(node: Node, obj: Object | None) -> str:
    """As the API has it; before it has anything, as the file wants it."""
    if obj is None:
        return "control-plane" if node.control_plane else "worker"
    labels = obj["metadata"].get("labels") or {}
    if CONTROL_PLANE_ACTIVE in labels:
        return "control-plane" if CONTROL_PLANE_REQUESTED in labels else "control-plane (leaving)"
    return "worker (to be control-plane)" if CONTROL_PLANE_REQUESTED in labels else "worker"
