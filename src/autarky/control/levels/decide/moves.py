"""When a level moves between its slots: whether a hosted workload goes, or comes back. Pure.

`selfHosted` says which levels are hosted. The node agents bring standbys up and take them away by themselves; what is
decided here is only the hosted workload of one component.

Contract (design §4):
- rule 1: it goes only when its standby serves on every control node, by itself and through the load balancer, and
  has done so for a while without a break: a server that has just started is slow, and may yet fail;
- rule 2: what is not known lets nothing go;
- rule 10: it goes for a change of level, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

SETTLE_SECONDS = 10.0
"""As long as a node agent watches a hosted API server before it withdraws the standby."""


class Step(Enum):
    NOTHING = "nothing"
    WAIT = "wait"
    RETIRE = "take the hosted workload away"
    BRING_BACK = "bring the hosted workload back"


@dataclass(frozen=True, slots=True)
class Seen:
    """One component.

    hosted: whether its level is to be hosted; None while that is not known.
    workload: whether its hosted workload is there (and is not being deleted); None while that is not known.
    leaving: how many pods of a workload that has gone are still there.
    standbys: control node → whether the standby serves there; None where that is not known.
    turn: False while a component that comes back before it does not serve from its hosted slot yet: three that start at
    once would take the processor from the standbys that serve.
    """

    hosted: bool | None
    workload: bool | None
    leaving: int = 0
    standbys: Mapping[str, bool | None] | None = None
    turn: bool = True


@dataclass(frozen=True, slots=True)
class Memory:
    """Since when (monotonic seconds) the standbys serve on every control node without a break."""

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
        return Decision(Step.WAIT, "what is wanted, or what is there, is not known")
    if seen.hosted:
        return _come(seen)
    if seen.workload:
        return _go(seen.standbys or {}, memory, now)
    if seen.leaving:
        return Decision(Step.WAIT, f"{seen.leaving} hosted pods are still ending")
    return Decision(Step.NOTHING, "it runs as static pods, as wanted")


def _come(seen: Seen) -> Decision:
    if seen.workload:
        return Decision(Step.NOTHING, "it is hosted, as wanted")
    if not seen.turn:
        return Decision(Step.WAIT, "it comes back when what comes before it serves")
    return Decision(Step.BRING_BACK, "its level is hosted and its workload is not there")


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
