"""The rotation: which of the long cases a run takes in the time that it has. Pure.

In this order, as long as the next one fits: what the change touches; what has never passed; what has waited longest, by
the number of the run that recorded it, and of these last what has passed on this very tree. A run that records nothing,
which is one of CI, takes nothing of which no case has ever passed, unless the change touches it: a first pass is by
hand. Its records stand still until somebody has run something by hand: so behind what the change touches all are drawn,
and whoever has waited longest has the best chance. The tree decides in the draw, and among those that have waited
equally long, so that each change gets others, and a repeated run of one tree the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date

from cases.pieces import Piece, seconds_of
from cases.records import Record

WHOLE_SECONDS = 75 * 60
"""From the start of CI on: what is left of it gets the rotation."""
RESERVE_SECONDS = 120
"""For what comes after the last case."""
SLOWER = 1.3
"""How much longer than recorded a piece may take: records are of another machine, and another day."""
SHARE_SECONDS = 15 * 60
"""What CI has left for the rotation, about."""
LONGEST_WAITS = 4.0
"""How many chances in a draw whoever has waited longest has for one of whoever was recorded last."""
OLD_DAYS = 14
"""A complete turn by hand takes about as long: twenty hours of scenarios, beside what else is done."""
TOO_OLD_DAYS = 2 * OLD_DAYS
"""Two turns."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A piece as the rotation sees it.

    `waits_since`: the run that recorded it last, of its cases the one that has waited longest. `unproven`: it is
    touched, and not known to pass as it is now: a case of it has passed otherwise, or never. `never_passed`: none of
    its cases has. `builds`: what has to be built for it first, by name.
    """

    piece: Piece
    waits_since: int = 0
    touched: bool = False
    unproven: bool = False
    never_passed: bool = False
    passed_here: bool = False
    builds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Pick:
    """What is taken, and what of the rest did not fit; both in the order in which they were looked at."""

    taken: tuple[Candidate, ...]
    too_long: tuple[Candidate, ...]


def seconds_left(started: float, now: float) -> float:
    """For the rotation; both by the boot clock."""
    return WHOLE_SECONDS - RESERVE_SECONDS - (now - started)


def pick(
    candidates: Iterable[Candidate], left: float, build_seconds: Mapping[str, float], tree: str, *, records: bool = True
) -> Pick:
    """As many as fit into `left` seconds. `records`: whether passes will be recorded."""
    looked_at = [one for one in candidates if records or not waits_for_a_first_pass(one)]
    return fit(in_turn(looked_at, tree, records=records), left, build_seconds)


def fit(in_order: Iterable[Candidate], left: float, build_seconds: Mapping[str, float], slower: float = SLOWER) -> Pick:
    """As many as fit into `left` seconds. A long one that does not fit holds up no shorter one behind it."""
    taken: list[Candidate] = []
    too_long: list[Candidate] = []
    for candidate in in_order:
        fits = cost([*taken, candidate], build_seconds, slower) <= left
        (taken if fits else too_long).append(candidate)
    return Pick(tuple(taken), tuple(too_long))


def waits_for_a_first_pass(one: Candidate) -> bool:
    """By hand, as nobody needs it now."""
    return one.never_passed and not one.touched


def in_turn(candidates: Iterable[Candidate], tree: str, *, records: bool = True) -> list[Candidate]:
    """Who is looked at, first to last."""
    found = list(candidates)
    runs = [one.waits_since for one in found]
    first, last = min(runs, default=0), max(runs, default=0)

    def recorded(one: Candidate) -> tuple[bool, bool, bool, bool, int, float]:
        return *_touched_first(one), not one.never_passed, one.passed_here, one.waits_since, _drawn(one, tree)

    def drawn(one: Candidate) -> tuple[bool, bool, bool, float]:
        waited = (last - one.waits_since) / max(1, last - first)
        chances = 1 + (LONGEST_WAITS - 1) * waited
        return *_touched_first(one), one.passed_here, -math.log(_drawn(one, tree)) / chances

    return sorted(found, key=recorded if records else drawn)


def _touched_first(one: Candidate) -> tuple[bool, bool]:
    return not one.unproven, not one.touched


def _drawn(one: Candidate, tree: str) -> float:
    """Above 0, and 1 at most."""
    digest = hashlib.sha256(f"{tree} {' '.join(one.piece.ids)}".encode()).digest()
    return (int.from_bytes(digest[:6], "big") + 1) / 2**48


def cost(taken: Sequence[Candidate], build_seconds: Mapping[str, float], slower: float = SLOWER) -> float:
    """Seconds at most: setups and builds are paid once each."""
    builds = frozenset[str]().union(*(one.builds for one in taken))
    return slower * (seconds_of(one.piece for one in taken) + sum(build_seconds[build] for build in builds))


def first_group(pick: Pick) -> tuple[Candidate, ...]:
    """Of what was taken: the first, and all others of its place, in the order of their module."""
    if not pick.taken:
        return ()
    place = pick.taken[0].piece.place
    return tuple(sorted((one for one in pick.taken if one.piece.place == place), key=lambda one: one.piece.position))


def as_candidate(
    piece: Piece,
    records: Mapping[str, Record],
    *,
    tree: str,
    scenarios: Mapping[str, str],
    changed: Set[str],
    builds: Iterable[str] = (),
) -> Candidate:
    """`scenarios`: case → its hash now. `changed`: cases that are other than before the change, if that is known.

    A case is touched as well when it has passed once, but not as it is now. Of a piece with some cases of the rotation
    these alone count.
    """
    its = {case.id: records.get(case.id, Record()) for case in piece.cases if case.rotation or not piece.rotates}
    passed = {case for case, record in its.items() if record.passed}
    other = {case for case in passed if its[case].scenario != scenarios[case]}
    touched = other | (changed & its.keys())
    return Candidate(
        piece,
        waits_since=min(record.run for record in its.values()),
        touched=bool(touched),
        unproven=bool(other) or (bool(touched) and passed != its.keys()),
        never_passed=not passed,
        passed_here=all(record.tree == tree for record in its.values()),
        builds=frozenset(builds),
    )


# --- turns --------------------------------------------------------------------------------------------


def turn(pieces: Iterable[Piece]) -> int:
    """How many runs the rotation needs to take every piece once."""
    rotating = [piece for piece in pieces if piece.rotates]
    return max(1, math.ceil(SLOWER * seconds_of(rotating) / SHARE_SECONDS))


def longer_than_a_share(pieces: Iterable[Piece]) -> list[Piece]:
    """Of the rotation what takes longer, with its setup, than a run of CI has left: it is run by hand."""
    return [piece for piece in pieces if piece.rotates and SLOWER * seconds_of([piece]) > SHARE_SECONDS]


def grown_old(pieces: Sequence[Piece], records: Mapping[str, Record], days: int = OLD_DAYS) -> dict[str, str]:
    """Case → when it passed last, of those of the rotation for which that is more than `days` before the latest pass of
    all. By days, as the numbers of runs say nothing: CI records none, and what is run by name counts as of the latest
    one. No clock is asked, so that a tree that passes goes on to do so."""
    dates = {case: record.date for case, record in records.items() if record.date is not None}
    latest = max(map(date.fromisoformat, dates.values()), default=date.min)
    rotating = [case.id for piece in pieces for case in piece.cases if case.rotation and case.id in dates]
    return {case: dates[case] for case in rotating if (latest - date.fromisoformat(dates[case])).days > days}
