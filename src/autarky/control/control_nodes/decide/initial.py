"""Which control nodes found the cluster, and which join one that is there.

Contract: pure. The founders start etcd together, as a new cluster of exactly these members, with files and
certificates from the command line. Every other control node joins as a worker and becomes one by its label.

Danger: a member that starts anew with an empty disk, as if it founded the cluster, has the identity of the old
one and none of what that had promised: acknowledged writes may be lost. So once a cluster has been founded, a
host counts as a founder only if it says so itself; a machine that was replaced does not. A host that does not
answer stays what the others remember it as (rule 2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """What a host remembers. founders: those of its cluster, if it is one of them, else nobody; founded: whether
    their API has ever answered."""

    initial_members: frozenset[str] = frozenset()
    founded: bool = False


def initial_members(control_nodes: Collection[str], seen: Mapping[str, Memory]) -> frozenset[str]:
    """Those of the control nodes that found the cluster, or have. `seen`: what each host that answers remembers."""
    remembered = frozenset[str]().union(*(memory.initial_members for memory in seen.values()))
    if not remembered:
        return frozenset(control_nodes)
    if not any(memory.founded for memory in seen.values()):
        return remembered.intersection(control_nodes)
    itself = {name for name in control_nodes if name not in seen or name in seen[name].initial_members}
    return remembered & itself
