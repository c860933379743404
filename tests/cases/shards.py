"""Shards: all cases in so many parts, each on its own machine or day, of about the same length. Pure.

Contract: which shard a case is in follows from the list of cases alone, and never from what was recorded of them: each
shard records while it runs, and the next would be cut of other parts. A case counts as long as it may take at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cases.pieces import Piece


def parse_shard(text: str) -> tuple[int, int]:
    """(2, 4) of "2/4"; ValueError for what is none."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"{text} is no shard: I/N, with I from 1 to N")
    return int(match[1]), int(match[2])


def shard(pieces: Iterable[Piece], number: int, of: int) -> list[list[Piece]]:
    """The groups of shard `number`, each of one place and in the order of its module.

    Groups are dealt longest first, each to the shard that has the least; only a place that is longer than a fair share
    is cut into several groups, of which each sets it up again.
    """
    dealt: list[list[list[Piece]]] = [[] for _ in range(of)]
    for group in sorted(_groups(list(pieces), of), key=lambda group: (-at_most(group), group[0].position)):
        min(dealt, key=_length).append(group)
    return sorted(dealt[number - 1], key=lambda group: group[0].position)


def at_most(pieces: Iterable[Piece]) -> float:
    """Seconds that all of their cases together may take."""
    return sum(case.timeout for piece in pieces for case in piece.cases)


def _groups(pieces: Sequence[Piece], of: int) -> list[list[Piece]]:
    fair = at_most(pieces) / of
    places: dict[str, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda piece: piece.position):
        places.setdefault(piece.place, []).append(piece)
    return [group for found in places.values() for group in _cut(found, fair)]


def _cut(pieces: Sequence[Piece], longest: float) -> list[list[Piece]]:
    """As few groups as are not longer than that, but for a single piece that is."""
    groups: list[list[Piece]] = []
    for piece in pieces:
        if groups and at_most([*groups[-1], piece]) <= longest:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _length(groups: Iterable[Sequence[Piece]]) -> float:
    return sum(at_most(group) for group in groups)
