"""What one node's load balancer leads to: all that its configuration depends on. stdlib only.

It is this small, and not the whole cluster, so that `up` and the node agent render the same bytes from what each of
them knows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiNode:
    """A control node, whose API servers listen at `address`. withdrawn: they get no new connections while another
    node's are there, since what they say cannot be relied on (a clock that is off)."""

    name: str
    address: str
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class EtcdNode:
    """A voting member of etcd that stays one."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Balancer:
    """The load balancer of `node`. etcd: empty where the node serves no etcd port, which is so on every worker.
    certificate: a short name for the one that etcd's members are asked for their health with, "" before it is known:
    HAProxy reads it only when it reads its configuration.

    Raises ValueError for a worker with etcd: there its port would be root over all Secrets.
    """

    node: str
    control_node: bool
    servers: tuple[ApiNode, ...]
    etcd: tuple[EtcdNode, ...] = ()
    certificate: str = ""

    def __post_init__(self) -> None:
        if self.etcd and not self.control_node:
            raise ValueError(f"{self.node} is a worker, and a worker's load balancer never leads to etcd")
