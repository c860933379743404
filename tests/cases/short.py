"""Tier 1: all short cases, but for those whose components have to be built first where CI has not the time for it.

CI ends whatever has not ended after 90 minutes. With nothing in the caches the first release is built by tier 0; what
needs another one is then left to the next run, and is named: all of it runs where the store has that release. A
scenario that the change touches is never left out, nor is anything by hand. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cases.pieces import Piece, seconds_of
from cases.rotation import Candidate

LONGEST_SECONDS = 85 * 60
"""From the start of CI on. Of a cold run tier 0 took 31 minutes, the short cases 52, and another release 11."""


def seconds_of_short(started: float, now: float) -> float:
    """What is left for tier 1; both by the boot clock."""
    return LONGEST_SECONDS - (now - started)


def left_out(candidates: Iterable[Candidate], left: float | None, build_seconds: Mapping[str, float]) -> list[Piece]:
    """Of the pieces with short cases. `left` seconds; None where there is no clock."""
    candidates = list(candidates)
    if left is None:
        return []
    builds = frozenset[str]().union(*(one.builds for one in candidates))
    if seconds_of(one.piece for one in candidates) + sum(build_seconds[build] for build in builds) <= left:
        return []
    return [one.piece for one in candidates if one.builds and not one.touched]
