"""What the operator has seen of one rollout: values, for `decide.verdict` to judge. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Leader(Enum):
    """Who renews the lease of a level 3 component, as far as the holder's host and the pods there show.

    OLD: possibly a pod of the old revision; then a Ready new one cannot be blamed.
    STANDBY: possibly a standby. The node agents make it give way to a pod that they trust.
    OTHER: unknown.
    """

    NEW = "new"
    OLD = "old"
    STANDBY = "standby"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Lease:
    """version: changes with each renewal. free: it was released, and nobody has taken it."""

    leader: Leader
    version: str
    free: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the new revision that is not terminating. trouble: what is wrong with its container, as a clause.
    never_ran: whether its kubelet reports that no container of it was ever created. start: seconds until it was Ready,
    where a trusted node reports them. shares: whether other pods of the revision may be on its node."""

    name: str
    node: str
    ready: bool
    trouble: str = ""
    never_ran: bool = False
    start: float | None = None
    shares: bool = False

    @property
    def key(self) -> str:
        """Whose clock is its own: that of its node, so that a pod that follows it there has no more time; or its own,
        where several may be on a node."""
        return self.name if self.shares else self.node


@dataclass(frozen=True, slots=True)
class Observed:
    """One workload as it is now.

    revision: the hash of the template that is wanted now.
    known:    False while the controllers have not observed that template, or while a source may be stale.
    nodes:    the Ready nodes on which the workload may have a pod.
    ending:   those on which a pod of another revision terminates, for which the next one has to wait.
    bare:     those of `nodes` on which a DaemonSet has no pod at all: one may be made at any moment, and ended there at
              once, again and again.
    skew:     how the revision's version breaks rule 4; empty when it does not.
    lease:    of scheduler and controller-manager; None for the others.
    replicas: of a Deployment without a lease: how many pods are wanted; None for the others.
    made:     of such a one: how many pods of the revision there are, also on nodes that are not Ready, and on none yet.
    due:      whether the controllers would have made a pod of the revision by now, and there is none, on any node.
    trusted:  the nodes on which one failure is enough to blame the revision; None: all of them.
    idle:     those of `nodes` whose pod waits for its turn to be tried: no clock of theirs runs.
    refused:  nodes, not among `nodes`, on which the revision may not be in force, as they say.
    by_two:   whether one worker's word makes it no good one: no trusted node is among `nodes`, and one may be there.
    """

    revision: str
    known: bool
    etcd_up: bool
    nodes: frozenset[str]
    pods: tuple[Pod, ...]
    skew: str = ""
    lease: Lease | None = None
    ending: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    replicas: int | None = None
    made: int = 0
    due: bool = False
    trusted: frozenset[str] | None = None
    idle: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    by_two: bool = False

    @property
    def places(self) -> frozenset[str]:
        """The Ready nodes where the revision has to prove itself: those that need a pod; or those that have one, where
        it does not matter where the pods are."""
        return self.nodes if self.replicas is None else frozenset(pod.node for pod in self.pods)

    @property
    def waiting(self) -> frozenset[str]:
        """The nodes whose time runs though they have no pod of the revision now."""
        bare = {node for node in self.bare if not self.trusts(node)}
        return (self.nodes & (self.ending | bare)) - {pod.node for pod in self.pods}

    def trusts(self, node: str) -> bool:
        return self.trusted is None or node in self.trusted
