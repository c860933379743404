"""Which addresses default/kubernetes has: the load balancers of the control nodes. Pure.

Contract: control nodes are the nodes with the active label, which the operator (or `up`) sets. A node that is not Ready
is marked not ready while at least one other is Ready: each load balancer reaches all API servers, so nothing is lost.
While none is Ready, each keeps its mark: after an outage every kubelet seems silent (rule 2). The list never becomes
empty. A node that withdraws its own API servers (its clock is off) is marked not serving and not ready, unless all do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autarky.model.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class ControlNode:
    """ready: None when unknown. withdrawn: the node's agent reports that its API servers should not be used."""

    name: str
    address: str
    ready: bool | None
    withdrawn: bool = False


def endpoints(nodes: Sequence[ControlNode], now_ready: Mapping[str, bool]) -> tuple[Endpoint, ...] | None:
    """The endpoints of the slice, by node name; None: leave it as it is. now_ready: address → its present condition."""
    if not nodes:
        return None
    withdrawn = {node.name for node in nodes if node.withdrawn}
    if len(withdrawn) == len(nodes):
        withdrawn = set()
    some_are_ready = any(node.ready for node in nodes if node.name not in withdrawn)
    return tuple(
        Endpoint(
            node.name,
            node.address,
            ready=node.name not in withdrawn
            and (bool(node.ready) if some_are_ready else now_ready.get(node.address, True)),
            serving=node.name not in withdrawn,
        )
        for node in sorted(nodes, key=lambda node: node.name)
    )
