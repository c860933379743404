"""When a level moves between its slots: whether a hosted workload is retired, or comes back. Pure.

`selfHosted` says which levels are hosted. The node agents activate and withdraw standbys by themselves; only the hosted
workload of one component is decided here. That of the kubelet (level 0) has no standby to wait for: on each node the
host's kubelet waits behind the hosted one, which steps aside once it sees that, and is in force then.

Contract:
- rule 1: it is retired only when its standby serves on every control node, on its own port and through the load
  balancer, for SETTLE_SECONDS without interruption: a server that has just started is slow, and may yet fail;
- rule 2: nothing is retired while something is unknown;
- rule 10: it is retired for a change of level, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

SETTLE_SECONDS = 10.0
"""As long as a node agent watches a hosted API server before it withdraws the standby."""


class Step(Enum):
    NOTHING = "nothing"
    WAIT = "wait"
    RETIRE = "take the hosted workload away"
    BRING_BACK = "bring the hosted workload back"
    FINISH = "use up what is kept of the workload that is back"


@dataclass(frozen=True, slots=True)
class Seen:
    """One component.

    hosted: whether its level should be hosted; None while that is not known.
    workload: whether its hosted workload exists (and is not being deleted); None while that is not known.
    leaving: how many pods of a deleted workload still exist.
    standbys: control node → whether the standby serves there; None where that is not known.
    turn: False while a component that comes back earlier does not serve from its hosted slot yet: three that start at
    once would take the processor from the standbys that serve.
    in_force: of the kubelet, the control nodes where the hosted one has yet to step aside; None for others.
    kept: whether a retired copy of it is still there: beside its workload, a move was interrupted.
    """

    hosted: bool | None
    workload: bool | None
    leaving: int = 0
    standbys: Mapping[str, bool | None] | None = None
    turn: bool = True
    in_force: Collection[str] | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """Since when (monotonic seconds) the standbys serve on every control node without interruption."""

    serving_since: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    step: Step
    sentence: str
    memory: Memory = Memory()

    @property
    def settled(self) -> bool:
        return self.step is Step.NOTHING


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """See the module's contract. `memory`: of the decision before; `now`: monotonic seconds."""
    if seen.hosted is None or seen.workload is None:
        return Decision(Step.WAIT, "the requested or the current state is not known")
    if seen.hosted:
        return _come(seen)
    if seen.workload and seen.in_force is not None:
        return _step_aside(seen.in_force)
    if seen.workload:
        return _go(seen.standbys or {}, memory, now)
    if seen.leaving:
        return Decision(Step.WAIT, f"{seen.leaving} hosted pods are still terminating")
    return Decision(Step.NOTHING, "it is not hosted, as requested")


def _come(seen: Seen) -> Decision:
    if seen.workload and seen.kept:
        return Decision(Step.FINISH, "its workload is back, and its retired copy is still there")
    if seen.workload:
        return Decision(Step.NOTHING, "it is hosted, as requested")
    if not seen.turn:
        return Decision(Step.WAIT, "it comes back once the components before it serve")
    return Decision(Step.BRING_BACK, "its level is hosted and its workload is missing")


def _step_aside(in_force: Collection[str]) -> Decision:
    if in_force:
        return Decision(Step.WAIT, f"it has yet to step aside for the host's on {', '.join(sorted(in_force))}")
    return Decision(Step.RETIRE, "on each control node the host's is in force")


def _go(standbys: Mapping[str, bool | None], memory: Memory, now: float) -> Decision:
    idle = sorted(node for node, serves in standbys.items() if not serves)
    if not standbys:
        return Decision(Step.WAIT, "no control node is known")
    if idle:
        return Decision(Step.WAIT, f"its standby does not serve yet on {', '.join(idle)}")
    since = now if memory.serving_since is None else memory.serving_since
    if now - since < SETTLE_SECONDS:
        return Decision(Step.WAIT, f"its standby serves, and is watched for {SETTLE_SECONDS:.0f} s", Memory(since))
    return Decision(Step.RETIRE, "its standby serves on every control node", Memory(since))
