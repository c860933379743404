"""Tier 1: all short cases, where the machine has the time for them.

CI ends whatever has not ended after 90 minutes, and a slow day of the machine makes everything take twice as long; with
nothing in the caches, the components are built before. So the short cases have a clock: each place is asked for what
fits, by the pace of those before it. What the change touches comes first; what needs another release to be built comes
last. Whatever does not fit is left to the next run, and is named; a run that has shown less than a third of all has
shown too little, and fails. On a usual day all of it runs, and by hand always. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cases.rotation import SLOWER, Candidate, Pick, fit, in_turn

LONGEST_SECONDS = 82 * 60
"""From the start of CI on. Less than its 90 minutes by what the last place may take longer than those before it."""
MARGIN = 1.1
"""How much slower than those before it a place may be."""
KNOWN_SECONDS = 120.0
"""Recorded. What is shorter is mostly the start of pytest, and tells no pace."""
LEAST_SHARE = 1 / 3
"""Of all short cases, by recorded seconds."""


def seconds_of_short(started: float, now: float) -> float:
    """What is left for tier 1; both by the boot clock."""
    return LONGEST_SECONDS - (now - started)


def pick_short(
    candidates: Iterable[Candidate], left: float, build_seconds: Mapping[str, float], tree: str, slower: float = SLOWER
) -> Pick:
    """What fits into `left` seconds, of pieces that take `slower` times what is recorded. Who goes short differs from
    tree to tree."""
    in_order = sorted(in_turn(candidates, tree, records=False), key=lambda one: (not one.touched, bool(one.builds)))
    return fit(in_order, left, build_seconds, slower)


def pace(took: float, recorded: float) -> float:
    """How much slower than recorded what comes next may be: as what has run took `took` seconds. SLOWER where that was
    too short to tell."""
    return max(1.0, MARGIN * took / recorded) if recorded >= KNOWN_SECONDS else SLOWER


def shows_too_little(recorded: float, of: float) -> bool:
    """`recorded` seconds of what has run, and of all that could have."""
    return recorded < LEAST_SHARE * of
