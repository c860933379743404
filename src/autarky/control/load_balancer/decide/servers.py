"""Which servers a node's load balancer uses: its next configuration, from what is known of the cluster. Pure.

Contract, whatever is observed:
- Unknown or empty changes nothing (rule 2): the API servers and members of etcd in the current configuration stay. A
  configuration is never emptied.
- A worker never has members of etcd. A control node gets none without the client certificate for them, and keeps those
  that it has; with an external etcd it has neither.
- A control node always has its own servers: they can be reached even if the API does not list the node.
- Never all servers are withdrawn: one whose clock is off is better than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autarky.model.balancer import ApiNode, Balancer, EtcdNode
from autarky.model.endpoint import Endpoint

OWN_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Seen:
    """None: not known.

    current: the present configuration. endpoints: those of default/kubernetes. control_node: whether the node has a
    standby, or is a control node by its label. etcd: the voting members that are not being removed. etcd_certificate:
    whether the client certificate for them is on the node. certificate: a short name for that certificate.
    """

    node: str
    current: Balancer | None
    endpoints: Sequence[Endpoint] | None
    control_node: bool | None
    etcd: Sequence[EtcdNode] | None
    etcd_certificate: bool
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """balancer: what the configuration should have; None while too little is known to write any."""

    balancer: Balancer | None
    sentence: str


def decide(seen: Seen) -> Decision:
    """See the module's contract."""
    current = seen.current
    control_node = seen.control_node if seen.control_node is not None else bool(current and current.control_node)
    servers = _servers(seen, control_node=control_node)
    if not servers:
        return Decision(None, "no API server is known yet")
    etcd = _etcd(seen) if control_node else ()
    kept = current.certificate if current is not None else ""
    certificate = (kept if seen.certificate is None else seen.certificate) if etcd else ""
    wanted = Balancer(seen.node, control_node, servers, etcd, certificate)
    return Decision(current if wanted == current else wanted, _sentence(wanted))


def _servers(seen: Seen, *, control_node: bool) -> tuple[ApiNode, ...]:
    """Sorted by name, so that another order in the API is no change."""
    kept = seen.current.servers if seen.current is not None else ()
    found = {e.node: ApiNode(e.node, e.address, withdrawn=not e.serving) for e in seen.endpoints or () if e.node}
    servers = found or {node.name: node for node in kept}
    if control_node and seen.node not in servers:
        servers[seen.node] = next((node for node in kept if node.name == seen.node), ApiNode(seen.node, OWN_ADDRESS))
    if all(node.withdrawn for node in servers.values()):
        servers = {name: replace(node, withdrawn=False) for name, node in servers.items()}
    return tuple(servers[name] for name in sorted(servers))


def _etcd(seen: Seen) -> tuple[EtcdNode, ...]:
    """A new control node knows no members yet, and needs etcd to learn them: it tries the other control nodes, and the
    health checks show which of them have one."""
    kept = seen.current.etcd if seen.current is not None else ()
    if not seen.etcd_certificate:
        return kept
    others = [EtcdNode(e.node, e.address) for e in seen.endpoints or () if e.node and e.node != seen.node]
    return tuple(sorted(seen.etcd or kept or others, key=lambda member: member.name))


def _sentence(balancer: Balancer) -> str:
    servers = ", ".join(node.name + (" (withdrawn)" if node.withdrawn else "") for node in balancer.servers)
    members = f"; to etcd on {', '.join(member.name for member in balancer.etcd)}" if balancer.etcd else ""
    return f"the load balancer leads to the API servers of {servers}{members}"
