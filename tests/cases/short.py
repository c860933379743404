"""Tier 1: all short cases, where the machine has the time for them.

CI ends whatever has not ended after 90 minutes, and a slow day of the machine makes everything take twice as long; with
nothing in the caches, the components are built before. So the short cases have a clock: each place is asked for what
fits, by the pace of those before it. What the change touches comes first; what needs another release to be built comes
last. Whatever does not fit is left to the next run, and is named. On a usual day all of it runs, and by hand always.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cases.pieces import seconds_of
from cases.rotation import SLOWER, Candidate, Pick, fit, in_turn

LONGEST_SECONDS = 82 * 60
"""From the start of CI on. Less than its 90 minutes by what the last place may take longer than those before it."""
MARGIN = 1.1
"""How much slower than those before it a place may be."""


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


def next_place(taken: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Of what was taken all of one place, as pytest runs it: of those that the change touches first, then of the
    smallest, so that the pace is known when it comes to the largest."""
    places: dict[str, list[Candidate]] = {}
    for one in taken:
        places.setdefault(one.piece.place, []).append(one)

    def turn(place: str) -> tuple[bool, float, str]:
        found = places[place]
        return not any(one.touched for one in found), seconds_of(one.piece for one in found), place

    first = min(places, key=turn, default=None)
    return tuple(sorted(places.get(first or "", ()), key=lambda one: one.piece.position))


def pace(took: float, recorded: float) -> float:
    """How much slower than recorded what comes next may be: as what has run took `took` seconds. SLOWER where nothing
    has."""
    return max(1.0, MARGIN * took / recorded) if recorded > 0 else SLOWER
