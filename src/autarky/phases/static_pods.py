"""The static pods that stay: etcd, the load balancer, and the components of levels that are not hosted.

A kubelet reports a static pod's readiness through its mirror pod, up to 10 s late where the mirror pod was created
after the pod had become ready. Nothing in them is awaited elsewhere, so `status` right after `up` could show them as
not ready.

Contract: what a node's kubelet says is believed of its own node only, and is read for a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterable

from autarky.control.common.pods import has_ended, is_mirror, is_ready
from autarky.errors import Unreachable
from autarky.model.cluster import Node
from autarky.model.components import COMPONENTS, LOAD_BALANCER, WITH_STANDBY, Component, labelled
from autarky.phases.context import Context, for_each
from autarky.phases.looking import in_time
from autarky.ports import Object
from autarky.render.values import SYSTEM


async def unready_static_pods(context: Context) -> list[str]:
    """A sentence for each component that has static pods on a node which is present, none of them Ready."""
    found = await unready_by_node(context, context.present(context.cluster.nodes))
    return [f"static pod {name} of {node} is not Ready" for node, names in found.items() for name in names]


async def unready_by_node(context: Context, nodes: Iterable[Node]) -> dict[str, list[str]]:
    """Node → those components."""
    return await for_each(nodes, lambda node: _unready_on(context, node))


async def _unready_on(context: Context, node: Node) -> list[str]:
    """Where a worker floods the API with pods, what was read in time has to do: only its own load balancer counts."""
    ready, seen = set[str](), set[str]()
    try:
        async with in_time():
            async for pod in context.kube().each(
                "v1", "Pod", namespace=SYSTEM, fields=f"spec.nodeName={node.name}", labels=_wanted_labels(node)
            ):
                component = _component_that_stays(context, pod)
                if component is None:
                    continue
                seen.add(component.name)
                if is_ready(pod):
                    ready.add(component.name)
    except Unreachable:
        if node.control_plane:
            raise
    return sorted(seen - ready)


def _wanted_labels(node: Node) -> str | None:
    return None if node.control_plane else COMPONENTS[LOAD_BALANCER].name_selector


def _component_that_stays(context: Context, pod: Object) -> Component | None:
    """None for other pods, for those that have ended, and for a standby that an agent withdraws."""
    component = labelled(pod["metadata"].get("labels") or {})
    if component is None or not is_mirror(pod) or has_ended(pod):
        return None
    if component.name in WITH_STANDBY:
        return None if context.cluster.hosts_level(component.level) else component
    return component if component.only_static else None
