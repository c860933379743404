"""Whether two clusters of etcd have had a quorum at once, from reads that were answered. Pure: no cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Read:
    """A linearizable one that was answered: etcd `cluster` had a quorum at some moment between these."""

    cluster: int
    begun: float
    ended: float


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
