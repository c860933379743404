"""Whether a control node serves, as those know who asked its API servers themselves. Pure.

Contract: serving is what was seen to serve, for a while, and lately. A Node that is Ready says nothing about it: its
kubelet reports through whatever API server its load balancer finds. What is not known does not serve (rule 2).
"""

from __future__ import annotations

from dataclasses import dataclass

STEADY_SECONDS = 10.0
"""For how long its servers must have answered every look: one that crashes soon after its start serves nobody."""
LATELY_SECONDS = 10.0
"""How old the last answer may be, and how long a pause between two looks."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Times in monotonic seconds. since: when it began to answer without a break, None while it does not; last: when
    it was asked last; trouble: what was seen instead of an answer."""

    since: float | None
    last: float
    trouble: str = ""


def observed(before: Sight | None, trouble: str | None, now: float) -> Sight:
    """One look more. trouble: None where the node's API server answered that it is ready."""
    if trouble is not None:
        return Sight(None, now, trouble)
    goes_on = before is not None and before.since is not None and now - before.last <= LATELY_SECONDS
    return Sight(before.since if before is not None and goes_on else now, now)


def obstacle(sight: Sight | None, now: float) -> str | None:
    """None where the node serves, else what was seen of it. It holds no counting seconds."""
    if sight is None:
        return "its API servers have not been asked"
    if sight.since is None:
        return sight.trouble
    if now - sight.last > LATELY_SECONDS:
        return f"its API servers have not been asked for {LATELY_SECONDS:.0f} s"
    if sight.last - sight.since < STEADY_SECONDS:
        return f"it serves, and has not been seen to for {STEADY_SECONDS:.0f} s"
    return None
