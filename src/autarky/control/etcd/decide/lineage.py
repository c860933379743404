"""Which clusters of etcd a newer one has replaced: what keeps a member that was away from coming back to life. Pure.

A recovery makes a new etcd while members of the old one may be off. Where two of three come back together they are the
majority of the old one, and would serve it. So the new etcd has, in a key beside those of Kubernetes, the ids of all
clusters that it replaces; a member that finds the id of its own cluster there is of a former one.

Invariants: a member ends only when a member of another cluster says, with a certificate of etcd's CA, that it has
replaced this one's cluster, by its id; silence and unknown content say nothing (rule 2). An id is never reused.
"""

from __future__ import annotations

from autarky.parsing import parsed

FORMER = "autarky.dev/etcd/former-clusters"
"""The key. The API servers' begin with another prefix (/registry)."""


def former_of(content: str | bytes | None) -> frozenset[int]:
    """The ids; empty where there are none, or they cannot be understood."""
    try:
        found = parsed(content.encode() if isinstance(content, str) else content or b"[]")
        return frozenset(int(str(one), 16) for one in found) if isinstance(found, list) else frozenset()
    except ValueError:
        return frozenset()


def is_replaced(cluster: int | None, said: frozenset[int]) -> bool:
    """Whether the cluster of this node's data has been replaced, by what another one says."""
    return cluster is not None and cluster in said
