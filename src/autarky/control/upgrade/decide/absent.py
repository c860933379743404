"""Which nodes a rollout has gone on without, so that an upgrade does not wait for them. Pure.

Contract: a node is away when it has not been Ready for as long as `control.rollout.decide.stepping` wants, which then
goes on without it. Workers lag when no node more has got the revision for LAGS_SECONDS: by then the rollout has gone on
without one that holds it up, and each step of it is faster than that. Each node gets it once: one whose pod comes and
goes, whatever for, begins no clock again, nor does it stop an upgrade that has gone on without it. Times are by the
clock of the operator that has watched; another one begins again with all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autarky.control.rollout.decide import stepping

LAGS_SECONDS = stepping.LAG_SECONDS + 60.0


@dataclass(frozen=True, slots=True)
class Lacking:
    """nodes: without a Ready pod of the revision; got: those of before that have had one since; since: when the latest
    of these got its first."""

    revision: str
    nodes: frozenset[str]
    since: float
    got: frozenset[str] = frozenset()

    def looked_at(self, nodes: frozenset[str], now: float) -> Lacking:
        got = self.got | (self.nodes - nodes)
        return Lacking(self.revision, nodes, now if got > self.got else self.since, got)


@dataclass(frozen=True, slots=True)
class Memory:
    """not_ready: node → since when; lacking: component → what is lacking of it. Monotonic seconds."""

    not_ready: Mapping[str, float] = field(default_factory=dict)
    lacking: Mapping[str, Lacking] = field(default_factory=dict)

    def with_nodes(self, ready: Mapping[str, bool], now: float) -> Memory:
        return replace(self, not_ready=stepping.not_ready_since(self.not_ready, ready, now))

    def with_lacking(self, component: str, revision: str, nodes: frozenset[str], now: float) -> Memory:
        before = self.lacking.get(component)
        if before is None or before.revision != revision:
            before = Lacking(revision, nodes, now)
        return replace(self, lacking={**self.lacking, component: before.looked_at(nodes, now)})

    def away(self, now: float) -> frozenset[str]:
        return frozenset(node for node, since in self.not_ready.items() if stepping.is_away(since, now))

    def lagging(self, component: str, workers: frozenset[str], now: float) -> frozenset[str]:
        """Of these workers: all that still lack it."""
        found = self.lacking.get(component)
        stuck = found is not None and now - found.since >= LAGS_SECONDS
        return workers & found.nodes if found is not None and stuck else frozenset()
