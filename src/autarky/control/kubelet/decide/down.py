"""Which kubelets the control plane waits for before it goes down a minor. Pure.

Contract (rule 4): for all that are of a later minor than it is to have, or may get one any moment
(`turns.Decision.above`). A control node is waited for without end. A worker is passed over when it is away, and all
workers are when for LAGS_SECONDS no one more has come down: one that does not, maybe since an attacker has it, must
not hold up the way back of all. Each counts once, so that one that goes up and down begins no clock again. Times are
by the clock of the operator that has watched; another one begins again.

Danger: only for a cluster whose kubelets follow (`wanted.follows`): nobody takes the others down.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from autarky.control.kubelet.decide.turns import LATE_SECONDS
from autarky.control.upgrade.decide.absent import Lacking

LAGS_SECONDS = 2 * LATE_SECONDS
"""Beyond the time for a drain: a worker that is late has lost its turn by then, and the next one has had its own."""


@dataclass(frozen=True, slots=True)
class Decision:
    memory: Lacking
    waits: tuple[str, ...]
    passed: tuple[str, ...]


def decide(
    above: frozenset[str],
    control: Collection[str],
    away: Collection[str],
    memory: Lacking | None,
    now: float,
    *,
    minor: str,
    drain_seconds: int = 0,
) -> Decision:
    """control: names of the control nodes. minor: to which it goes down. drain_seconds: the most of any pool. `now`:
    monotonic seconds."""
    before = memory if memory is not None and memory.revision == minor else Lacking(minor, above, now)
    memory = before.looked_at(above, now)
    lag = now - memory.since >= LAGS_SECONDS + drain_seconds
    passed = {name for name in above if name not in control and (lag or name in away)}
    return Decision(memory, tuple(sorted(above - passed)), tuple(sorted(passed)))
