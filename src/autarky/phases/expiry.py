"""When certificates expire: as the nodes report it, or as their disks have it while there is no API.

Contract: only looks. A certificate that cannot be read counts as unknown, never as expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from autarky.control.agents.manifests.node_agent import KUBELET_PKI
from autarky.control.certificates import decide as certificates
from autarky.control.certificates.decide import Reported
from autarky.control.certificates.manifests import leaves
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.errors import AutarkyError
from autarky.model.cluster import Node
from autarky.phases.context import Context
from autarky.pki.check import is_due
from autarky.pki.kept import end_of, end_of_pem
from autarky.ports import Host, Object

ADMINISTRATOR = "your kubeconfig"
"""Where the administrator's certificate is. `autarky up` renews it, after two thirds of its life like all others."""
_KUBELET = ("kubelet-client", f"{KUBELET_PKI}/{kubelet_credentials.CURRENT}")


def reported_by_nodes(nodes: Iterable[Object]) -> dict[str, Reported]:
    """Without nodes of an earlier release, which report nothing."""
    read = {node["metadata"]["name"]: certificates.read(node["metadata"]) for node in nodes}
    return {name: reported for name, reported in read.items() if reported is not None}


async def on_disks(context: Context) -> dict[str, Reported]:
    """Of control nodes that answer: their expired certificates may be why there is no API."""
    if not context.addresses_known:
        return {}
    nodes = context.present(context.control_nodes)
    seen = await asyncio.gather(*(_on_disk(context, node) for node in nodes))
    return {node.name: reported for node, reported in zip(nodes, seen, strict=True) if reported.ends}


async def _on_disk(context: Context, node: Node) -> Reported:
    host = context.machines.host(node.name)
    plan = leaves.plan_of(context.complete).at(node.known_address())
    paths = {leaf.name_on(node.name): leaf.certificate for leaf in leaves.leaves_of(node.name, plan)}
    try:
        return Reported({} if host is None else await _ends(host, dict([_KUBELET, *paths.items()])))
    except AutarkyError:
        return Reported()


async def _ends(host: Host, paths: dict[str, str]) -> dict[str, datetime]:
    contents = await asyncio.gather(*(host.read(path) for path in paths.values()))
    ends = {name: end_of_pem(pem) for name, pem in zip(paths, contents, strict=True) if pem is not None}
    return {name: end for name, end in ends.items() if end is not None}


def administrators(context: Context) -> dict[str, Reported]:
    """The user's own: only `up` renews it, so the user reads when that is due."""
    end = end_of(context.pki.directory / "admin.crt")
    if end is None:
        return {}
    due = is_due(end, timedelta(days=context.cluster.certificates.leaf_days), datetime.now(UTC))
    return {ADMINISTRATOR: Reported({"admin": end}, {"admin": "run `autarky up`"} if due else {})}
