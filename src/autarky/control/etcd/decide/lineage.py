"""Which clusters of etcd a newer one has replaced: what keeps a member that was away from coming back to life. Pure.

A recovery makes a new etcd while members of the old one may be off. Where two of three come back together they are the
majority of the old one, and would serve it. So the new etcd has, in a key beside those of Kubernetes, the ids of all
clusters that it replaces; a member that finds the id of its own cluster there is of a former one.

Invariants: a member ends only when a member of another cluster says, with a certificate of etcd's CA, that it has
replaced this one's cluster, by its id; silence and unknown content say nothing (rule 2). An id is never reused.

Danger: the key may have been written by whoever had the etcd that the control nodes have joined. What the members of a
cluster say of that cluster itself is therefore nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autarky.parsing import parsed

FORMER = "autarky.dev/etcd/former-clusters"
"""The key. The API servers' begin with another prefix (/registry)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a member says: of which cluster it is (0: it does not say), and which ones that has replaced."""

    cluster: int
    former: frozenset[int]


def former_of(content: str | bytes | None) -> frozenset[int]:
    """The ids; empty where there are none, or they cannot be understood."""
    try:
        found = parsed(content.encode() if isinstance(content, str) else content or b"[]")
        return frozenset(int(str(one), 16) for one in found) if isinstance(found, list) else frozenset()
    except ValueError:
        return frozenset()


def is_replaced(cluster: int | None, said: Iterable[Answer]) -> bool:
    """Whether the cluster of this node's data has been replaced, by what members of another one say."""
    return cluster is not None and any(cluster in one.former for one in said if one.cluster not in (0, cluster))
