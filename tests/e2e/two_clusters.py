"""Whether two clusters of etcd have had a quorum at once, from reads that were answered. Pure: no cluster.

Members in different places, of which some join and others leave, are of one cluster. One that is copied, restored or
recovered has an id of its own: from its first answer on the former one must have none left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Read:
    """A linearizable one that was answered: etcd `cluster` had a quorum at some moment between these."""

    cluster: int
    begun: float
    ended: float
    host: str = ""
    """Whose member has answered; with a suffix where it is the second one there."""


def two_at_once(reads: Iterable[Read]) -> set[tuple[int, int]]:
    """Pairs of clusters (an earlier and a later one, by their first answers) of which the earlier was read after the
    later one had answered."""
    reads = list(reads)
    first = {one.cluster: min(read.ended for read in reads if read.cluster == one.cluster) for one in reads}
    return {
        (read.cluster, later)
        for read in reads
        for later, since in first.items()
        if first[read.cluster] < since < read.begun
    }


def has_become_another(reads: Iterable[Read]) -> bool:
    """Whether the last answer is of another cluster than the first one."""
    clusters = [one.cluster for one in _by_their_end(reads)]
    return bool(clusters) and clusters[0] != clusters[-1]


def of_the_last(reads: Iterable[Read]) -> set[str]:
    """The hosts that have answered of the cluster that has answered last."""
    ordered = _by_their_end(reads)
    return {one.host for one in ordered if one.cluster == ordered[-1].cluster}


def _by_their_end(reads: Iterable[Read]) -> list[Read]:
    return sorted(reads, key=lambda one: one.ended)
