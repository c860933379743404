"""Which addresses default/kubernetes leads to: the load balancers of the control nodes. Pure.

Contract: a control node is one that carries the label which the operator (or `up`) gives. One that is not
Ready is marked so while at least one other is: whichever load balancer is asked reaches all API servers, so
nothing is lost. While none is Ready, each stays as it was: after an outage every kubelet looks silent
(rule 2). The list never becomes empty. A node that withdraws its own API servers (its clock is off) serves no
more and is not ready, unless all of them say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autarky.model.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class ControlNode:
    """ready: None when nobody knows. withdrawn: the node's agent says that its API servers should not be used."""

    name: str
    address: str
    ready: bool | None
    withdrawn: bool = False


def endpoints(nodes: Sequence[ControlNode], now_ready: Mapping[str, bool]) -> tuple[Endpoint, ...] | None:
    """What the slice should hold, by node name; None: leave it as it is. now_ready: address → as it is now."""
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
