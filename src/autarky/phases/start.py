"""The temporary control plane: etcd, load balancer, and the standbys of levels 2 and 3, as static pods.

Contract: after it, the API answers through the first control node's load balancer. On a cluster that is
already up it does nothing: then the hosted slots serve, and starting standbys is the pivot's or the node
agent's decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky import places
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases.context import Context, for_each
from autarky.phases.prepare import changed_files
from autarky.ports import Host, Progress
from autarky.render import node as render_node
from autarky.render import standby

API_TIMEOUT = 180.0
"""Seconds from the kubelet's start to a ready API; 5 s were measured, a loaded machine takes longer."""


@dataclass(frozen=True, slots=True)
class StartControlPlane:
    name: str = "start-control-plane"
    title: str = "Start the temporary control plane"
    timeout: float = 240

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.addresses_known or not context.pki.complete():
            return [Change(f"start the temporary control plane on {n.name}") for n in context.cluster.control_nodes]
        changes: list[Change] = []
        for node in context.cluster.control_nodes:
            changes += [Change(sentence) for sentence in await self._differences(context, node)]
        if not changes and not await context.api_answers():
            changes.append(Change("activate the standby control plane, since the API does not answer"))
        return changes

    async def _differences(self, context: Context, node: Node) -> list[str]:
        host = context.machines.host(node.name)
        if host is None:
            return [f"start the temporary control plane on {node.name}"]
        sentences = []
        if await host.read(render_node.KUBELET_KUBECONFIG) is None:
            sentences.append(f"write the kubelet's first credentials on {node.name}")
        stale, missing = await static_pod_changes(context, host, node)
        sentences += [f"remove the static pod {path} on {node.name}" for path in stale]
        sentences += [f"write the static pod {file.path} on {node.name}" for file in missing]
        if not await kubelet_runs(host):
            sentences.append(f"start the kubelet on {node.name}")
        return sentences

    async def run(self, context: Context, progress: Progress) -> None:
        await for_each(context.cluster.control_nodes, lambda node: self._start(context, node, progress))
        await wait_for_api(context, progress)

    async def _start(self, context: Context, node: Node, progress: Progress) -> None:
        host = context.host(node)
        if await host.read(render_node.KUBELET_KUBECONFIG) is None:
            await host.write_files([render_node.first_kubeconfig(context.inputs(), node)])
        stale, missing = await static_pod_changes(context, host, node)
        await host.remove(stale)
        await host.write_files(missing)
        if not await context.api_answers():
            for component in standby.COMPONENTS:
                await host.run([standby.SCRIPT_PATH, "activate", component])
        await start_kubelet(host)
        progress.note(f"the kubelet of {node.name} runs")


async def wait_for_api(context: Context, progress: Progress) -> None:
    kube = context.kube()
    await poll_until(
        "the API answers through the load balancer",
        lambda: kube.healthy("/readyz"),
        timeout=API_TIMEOUT,
        progress=progress,
        clock=context.clock,
    )


async def static_pod_changes(context: Context, host: Host, node: Node) -> tuple[list[str], list[File]]:
    """(manifests of older generations, manifests to write) of the static pods that stay for good."""
    wanted = render_node.static_pods(context.inputs(), node)
    present = (await host.run(["ls", places.MANIFESTS], check=False)).text.split()
    keep = {file.path for file in wanted.values()}
    stale = [
        f"{places.MANIFESTS}/{name}"
        for name in present
        for component in wanted
        if name.startswith(f"{component}-") and f"{places.MANIFESTS}/{name}" not in keep
    ]
    return stale, await changed_files(host, list(wanted.values()))


async def kubelet_runs(host: Host) -> bool:
    return (await host.run(["systemctl", "is-active", "kubelet"], check=False)).text == "active"


async def start_kubelet(host: Host) -> None:
    """Enable and start; a running kubelet is left alone."""
    await host.run(["systemctl", "daemon-reload"])
    await host.run(["systemctl", "enable", "--now", "kubelet"], timeout=60)
