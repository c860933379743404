"""Control nodes that are added later: they have joined as workers, and get the label by which the operator and their
own agent make them control nodes. This sets the label and waits; `kubectl label` does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.common.pods import is_ready
from autarky.control.control_nodes.decide import promotion
from autarky.control.control_nodes.decide.observed import ANNOTATION, READY
from autarky.control.etcd.decide.membership import MOST_MEMBERS
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change
from autarky.errors import ApiError
from autarky.model import patience
from autarky.model.cluster import Level, Node
from autarky.model.components import API_SERVER
from autarky.phases.context import Context, for_each
from autarky.phases.pivot import hosted_pods
from autarky.ports import Kube, Object, Progress
from autarky.render.crds import API_VERSION
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED

ETCD_MEMBER = "EtcdMember"
LABEL_MANAGER = "autarky-control-nodes"
PROMOTION_TIMEOUT = patience.PROMOTION


@dataclass(frozen=True, slots=True)
class MakeControlNodes:
    name: str = "make-control-nodes"
    title: str = "Make control nodes of those that joined later"
    timeout: float = patience.most(PROMOTION_TIMEOUT)
    needs: tuple[str, ...] = ("join-nodes", "apply-agents")

    async def plan(self, context: Context) -> Sequence[Change]:
        nodes = _later(context)
        if not nodes:
            return []
        if not await context.api_answers():
            return [Change(f"make a control node of {node.name}, once the API answers") for node in nodes]
        seen = await for_each(nodes, lambda node: look(context, node))
        changes = []
        for name, view in seen.items():
            if not view.requested:
                changes.append(Change(f"label node {name} as a control node, and wait until it is one"))
            elif (open_ := promotion.missing(name, view)) is not None:
                changes.append(Change(f"wait until {name} is a control node: {open_}"))
        return changes

    async def run(self, context: Context, progress: Progress) -> None:
        await for_each(_later(context), lambda node: _make(context, node, progress))


def _later(context: Context) -> list[Node]:
    return [node for node in context.present(context.cluster.control_nodes) if not node.initial_member]


async def _make(context: Context, node: Node, progress: Progress) -> None:
    requested = {"name": node.name, "labels": {CONTROL_PLANE_REQUESTED: ""}}
    await context.kube().apply({"apiVersion": "v1", "kind": "Node", "metadata": requested}, manager=LABEL_MANAGER)

    async def made() -> NotYet | None:
        seen = await look(context, node)
        sentence = promotion.missing(node.name, seen)
        return None if sentence is None else NotYet(sentence, promotion.come(seen))

    await poll_until(
        f"{node.name} is a control node",
        made,
        timeout=PROMOTION_TIMEOUT,
        still=patience.STEP,
        progress=progress,
        clock=context.clock,
    )
    progress.note(f"{node.name} is a control node")


async def look(context: Context, node: Node) -> promotion.Seen:
    """How far the node has come."""
    kube = context.kube()
    meta = ((await kube.get("v1", "Node", node.name)) or {}).get("metadata", {})
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    member, message = await _member(context, node)
    return promotion.Seen(
        requested=CONTROL_PLANE_REQUESTED in labels,
        prepared=str(annotations.get(ANNOTATION, "")).startswith(READY),
        active=CONTROL_PLANE_ACTIVE in labels,
        serves=await _serves(context, node) if context.cluster.hosts_level(Level.API_SERVER) else None,
        member=member,
        message=message,
    )


async def _serves(context: Context, node: Node) -> bool:
    pods = await hosted_pods(context.kube(), API_SERVER)
    return any(pod["spec"].get("nodeName") == node.name and is_ready(pod) for pod in pods)


async def _member(context: Context, node: Node) -> tuple[str | None, str]:
    """(phase, message) of the node's EtcdMember; the phase is None where it is to have none."""
    if context.cluster.external_etcd is not None:
        return None, ""
    live = {member["metadata"]["name"]: member for member in await etcd_members(context.kube())}
    if node.name not in live:
        return (None if len(live) >= MOST_MEMBERS else ""), ""
    status = live[node.name].get("status") or {}
    return status.get("phase", "Pending"), status.get("message", "")


async def etcd_members(kube: Kube) -> list[Object]:
    """All EtcdMembers; none where the cluster lacks the CRD."""
    try:
        return await kube.list(API_VERSION, ETCD_MEMBER)
    except ApiError as error:
        if error.status == 404:
            return []
        raise
