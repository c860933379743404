"""Which kubelets the control plane waits for before it goes down a minor. Pure.

Contract (rule 4): for all that are of a later minor than it is to have, or on the way to some version, which may lead
back to such a one. A control node is waited for without end. A worker is passed over when it is away, unless it is on
the way: then a kubelet that does not work may be why, and the one of before follows. Those that have failed are passed
over when for FAILED_SECONDS no one more has come down, and when for LAGS_SECONDS, all workers that have had their own
turn for as long as one lasts, or take none: one that does not come down, maybe since an attacker has it, must not hold
up the way back of all, nor have others passed over that it has kept from their turns. Each counts once, so that one
that goes up and down begins no clock again, and one that is waited for only by its agent's word does not count at all.
Times are by the clock of the operator that has watched; another one begins again. `by_order`: those of the waited for
that are control nodes, or that the operator itself has ordered a later minor (`turns.Decision.ordered`). `why`: what
keeps control nodes of the waited for from going down; what a worker says of itself is no word of the operator's.

Danger: only for a cluster whose kubelets follow (`wanted.follows`): nobody takes the others down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from autarky.control.kubelet.decide import turns
from autarky.control.upgrade.decide import absent
from autarky.control.upgrade.decide.absent import Lacking

FAILED_SECONDS = absent.LAGS_SECONDS
"""In which somebody may ask again."""
LAGS_SECONDS = turns.HELD_SECONDS
"""Beyond the time for a drain."""
_ASK_AGAIN = "once the cause is removed: `autarky up`, or another text in spec.kubelets.asked"


@dataclass(frozen=True, slots=True)
class Decision:
    memory: Lacking
    waits: tuple[str, ...]
    passed: tuple[str, ...]
    by_order: frozenset[str] = frozenset()
    why: Mapping[str, str] = field(default_factory=dict)


def decide(
    found: turns.Decision,
    control: Collection[str],
    away: Collection[str],
    memory: Lacking | None,
    now: float,
    *,
    minor: str,
    drain_seconds: int = 0,
) -> Decision:
    """found: in this very pass. control: names of the control nodes. minor: to which it goes down. drain_seconds: the
    most of any pool. `now`: monotonic seconds."""
    lacking = found.above | found.under_way
    ordered = lacking - found.claimed
    before = memory if memory is not None and memory.revision == minor else Lacking(minor, ordered, now)
    memory = before.looked_at(ordered, now)
    waited = now - memory.since
    passed = frozenset(away) - found.under_way
    passed |= frozenset(found.failed) if waited >= FAILED_SECONDS else frozenset()
    passed |= lacking - found.owed if waited >= LAGS_SECONDS + drain_seconds else frozenset()
    passed = (passed & lacking) - frozenset(control)
    waits = lacking - passed
    by_order = waits & (frozenset(control) | found.ordered)
    trusted = waits & frozenset(control)
    why = {name: f"it waits: {said}" for name, said in {**found.waits, **found.said}.items() if name in trusted}
    why |= {name: f"{said}; {_ASK_AGAIN}" for name, said in found.failed.items() if name in trusted}
    return Decision(memory, tuple(sorted(waits)), tuple(sorted(passed)), by_order, why)
