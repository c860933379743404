"""Whether a control node's clock is so far ahead of the others' that its API servers should serve nobody. Pure.

A server that is ahead rejects valid certificates as expired, and signs tokens that others reject as issued in the
future; one that is behind by as much is only reported, since what it signs is valid everywhere.

Contract: a node judges itself by the other control nodes' clocks, and is withdrawn only when it is ahead of most of
them. What cannot be seen changes nothing (rule 2); a node that no other answers is not newly withdrawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

AHEAD_SECONDS = 60.0
"""The limit of Kubernetes' own tools for clock skew; service account tokens allow no more."""
BACK_SECONDS = 30.0
"""Back in use only well below the limit, so that a clock at the limit does not flap."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """ahead: by how many seconds the clock is ahead of most others' (negative: behind); None: unknown."""

    withdrawn: bool
    ahead: float | None
    sentence: str


def judge(differences: Mapping[str, float], *, withdrawn: bool) -> Verdict:
    """differences: other control node → seconds by which this node's clock is ahead of its. withdrawn: until now."""
    if not differences:
        return Verdict(withdrawn, None, "no other control node reports its time")
    # The node's own clock has a vote. Of an even number of clocks the slower half is believed: of two that differ, the
    # one that is ahead does the harm, whichever is right. By hand: `statistics` costs each agent nearly 1 MB.
    clocks = sorted([0.0, *differences.values()])
    ahead = clocks[len(clocks) // 2]
    names = ", ".join(sorted(differences))
    if ahead > (BACK_SECONDS if withdrawn else AHEAD_SECONDS):
        return Verdict(True, ahead, f"the clock is {ahead:.0f} s ahead of those of {names}")
    return Verdict(False, ahead, "the clock agrees with those of the other control nodes")
