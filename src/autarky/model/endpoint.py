"""One address behind the Service default/kubernetes. stdlib only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A control node's load balancer. serving: False while the node's own API servers are withdrawn."""

    node: str
    address: str
    ready: bool
    serving: bool = True
