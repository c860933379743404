"""Whether a control node serves, judged by asking its own API servers. Pure.

Contract: a node serves if it was seen to serve, for a while, and lately. A Ready Node does not prove it: its kubelet
reports through whatever API server its load balancer finds. Unknown counts as not serving (rule 2).
"""

from __future__ import annotations

from dataclasses import dataclass

STEADY_SECONDS = 10.0
"""For how long its servers must have answered every look: one that crashes soon after it starts does not count."""
LATELY_SECONDS = 10.0
"""How old the last answer may be, and how long the pause between two looks."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Times in monotonic seconds. since: since when it has answered every look, None while it does not answer; last:
    when it was last asked; trouble: what was seen instead of an answer."""

    since: float | None
    last: float
    trouble: str = ""


def observed(before: Sight | None, trouble: str | None, now: float) -> Sight:
    """Adds one look. trouble: None if the node's API server answered that it is ready."""
    if trouble is not None:
        return Sight(None, now, trouble)
    goes_on = before is not None and before.since is not None and now - before.last <= LATELY_SECONDS
    return Sight(before.since if before is not None and goes_on else now, now)


def obstacle(sight: Sight | None, now: float) -> str | None:
    """None if the node serves, else why it does not count as serving. Contains no running seconds, so that it does not
    change with every look."""
    if sight is None:
        return "its API servers have not been asked"
    if sight.since is None:
        return sight.trouble
    if now - sight.last > LATELY_SECONDS:
        return f"its API servers have not been asked for {LATELY_SECONDS:.0f} s"
    if sight.last - sight.since < STEADY_SECONDS:
        return f"it serves, but has not been seen to for {STEADY_SECONDS:.0f} s yet"
    return None
