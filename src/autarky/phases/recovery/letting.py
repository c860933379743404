"""Letting a member of the new etcd start on its host.

Contract: it is of the version that the new etcd has. What would take its static pod away at the next boot of its host
goes first: the fence of the recovery, and the note of which cluster the former data was of. With either of them a power
cut, or a restart of the kubelet, would stop a member that votes. So does what its agent was changing of the former one.
"""

from __future__ import annotations

from collections.abc import Mapping

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.model.cluster import Node
from autarky.phases.context import Context
from autarky.phases.etcd_pods import static_pods
from autarky.phases.recovery.state import OF_FORMER
from autarky.phases.recovery.versions import member_pod, version_on
from autarky.ports import Host
from autarky.render import node as render_node


async def let_start(context: Context, seat: Host, node: Node, addresses: Mapping[str, str]) -> None:
    """seat: where the new etcd has begun. addresses: of all members by their names. Its data, or the place for it, is
    there. The fence goes last of what is removed: whoever sees none, sees nothing of the former member either."""
    host = context.host(node)
    await host.remove([places.ETCD_CLUSTER, *OF_FORMER])
    if not await static_pods(host):
        founding = etcd.Founding(etcd.initial_cluster(addresses), "existing")
        pod = member_pod(context, node, await version_on(seat), founding)
        await host.write_files([render_node.manifest(pod)])
