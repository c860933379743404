"""Which control nodes start a new cluster (the initial members), and which join an existing one.

Contract: pure. The initial members start etcd together, as a new cluster of exactly these members, with files and
certificates from the command line. Every other control node joins as a worker and becomes one by its label.

Danger: an initial member that starts again with an empty disk has the identity of the old member and none of its votes
and log: acknowledged writes may be lost. So once a cluster has been created, a host counts as an initial member only if
it says so itself; a replaced machine does not. A host that does not answer stays what the others remember (rule 2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """What a host remembers. initial_members: those of its cluster if it is one of them, else none; founded: whether
    their API has ever answered."""

    initial_members: frozenset[str] = frozenset()
    founded: bool = False


def initial_members(control_nodes: Collection[str], seen: Mapping[str, Memory]) -> frozenset[str]:
    """Those of the control nodes that create the cluster, or did. `seen`: what each host that answers remembers."""
    remembered = frozenset[str]().union(*(memory.initial_members for memory in seen.values()))
    if not remembered:
        return frozenset(control_nodes)
    if not any(memory.founded for memory in seen.values()):
        return remembered.intersection(control_nodes)
    itself = {name for name in control_nodes if name not in seen or name in seen[name].initial_members}
    return remembered & itself
