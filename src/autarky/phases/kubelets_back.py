"""Kubelets back to an earlier version, before the control plane goes there: none may be newer than an API server.

Contract: only kubelets of a later minor than is wanted; one after the other, each judged, and back to what it had where
it is not healthy (`kubelets`). A node whose kubelet is newer and whose host does not answer is left to the refusal.
Safe to be killed at any moment: run again, it goes on with those that are left.
"""

from __future__ import annotations

from autarky.control.common.skew import minor_of
from autarky.control.upgrade.decide import path
from autarky.engine.deadline import poll_until
from autarky.model.cluster import Node
from autarky.model.versions import Version
from autarky.phases import kubelets
from autarky.phases.binaries import install_binaries
from autarky.phases.context import Context
from autarky.ports import Progress
from autarky.render import node as render_node

REPORTED_SECONDS = 60.0
"""Within which a Node has the version of a kubelet that has started: it says so at once, and again every 10 s."""
_LINK = render_node.BINARIES["kubelet"]


async def versions(context: Context) -> dict[str, Version | None]:
    """Node → the version of its kubelet, as it reports it."""
    nodes = await context.kube().list("v1", "Node")
    return {node["metadata"]["name"]: path.kubelet_of(node) for node in nodes}


async def to_lower(context: Context, wanted: Version) -> dict[str, Version]:
    """Node that answers → the version of its kubelet, where that is of a later minor."""
    present = {node.name for node in kubelets.nodes_that_answer(context)}
    found = await versions(context)
    return {
        name: version
        for name, version in sorted(found.items())
        if name in present and version is not None and minor_of(version) > minor_of(wanted)
    }


async def lower(context: Context, wanted: Version, progress: Progress) -> None:
    """UserError where one is not healthy with that version; it has the former one again then."""
    lowered = await to_lower(context, wanted)
    binary = context.require_payload().binaries["kubelet"]
    for node in kubelets.nodes_that_answer(context):
        if node.name in lowered:
            await install_binaries(context.host(node), {_LINK: binary}, progress, unlinked=[_LINK])
            await kubelets.apply(context, node, progress)
            await _until_reported(context, node, wanted, progress)


async def _until_reported(context: Context, node: Node, wanted: Version, progress: Progress) -> None:
    async def look() -> str | None:
        found = (await versions(context)).get(node.name)
        return None if found == wanted else f"it says {found}"

    what = f"the Node {node.name} says that its kubelet is of {wanted}"
    await poll_until(what, look, timeout=REPORTED_SECONDS, progress=progress, clock=context.clock)
