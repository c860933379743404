"""The backends of one node's load balancer: all that its configuration depends on. stdlib only.

It is this small, instead of all of the cluster, so that `up` and the node agent render the same bytes from what each
knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autarky.model import ports
from autarky.model.etcd_members import is_plain


@dataclass(frozen=True, slots=True)
class ApiNode:
    """A control node, whose API servers listen at `address`. withdrawn: they get no new connections while another
    node's API servers are available, since their answers cannot be relied on (a wrong clock)."""

    name: str
    address: str
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class EtcdNode:
    """A voting etcd member that is not about to be removed. port: of a second member on a node, another one."""

    name: str
    address: str
    port: int = ports.ETCD_CLIENT


def etcd_servers(members: Sequence[EtcdNode]) -> dict[str, EtcdNode]:
    """By the name that each has as a server. HAProxy refuses names with other characters, and one that two have: such
    a member is named by its place, which no plain name looks like."""
    times = Counter(member.name for member in members)
    return {
        member.name if times[member.name] == 1 and is_plain(member.name) else f"{member.address}:{member.port}": member
        for member in members
    }


@dataclass(frozen=True, slots=True)
class Balancer:
    """The load balancer of `node`. etcd: empty if the node serves no etcd port, as on every worker.
    certificate: a short name of the client certificate for etcd health checks, "" before it is known: HAProxy reads
    it only together with its configuration.

    Raises ValueError for a worker with etcd: the port there would give access to all Secrets.
    """

    node: str
    control_node: bool
    servers: tuple[ApiNode, ...]
    etcd: tuple[EtcdNode, ...] = ()
    certificate: str = ""

    def __post_init__(self) -> None:
        if self.etcd and not self.control_node:
            raise ValueError(f"{self.node} is a worker, and a worker's load balancer never leads to etcd")
