"""Pieces: what of the cases runs together or not at all, and what that costs.

A piece is one case, or a chain of them in their order. Pieces of one place share a cluster, whose setup is paid once.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cases.listing import Case, Need
from cases.records import Record

UNKNOWN_SECONDS = 300.0
"""Of a case that no run has timed."""
UNKNOWN_SETUP = 60.0


@dataclass(frozen=True, slots=True)
class Piece:
    """`seconds` of all its cases, with no setup; `setup` of its place. `position`: among all pieces, as pytest runs
    them."""

    cases: tuple[Case, ...]
    seconds: float
    setup: float
    position: int = 0

    @property
    def place(self) -> str:
        return self.cases[0].place

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(case.id for case in self.cases)

    @property
    def rotates(self) -> bool:
        """Whether any of it is left to the rotation."""
        return any(case.rotation for case in self.cases)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset(need for case in self.cases for need in case.needs)


def pieces_of(cases: Iterable[Case], records: Mapping[str, Record]) -> list[Piece]:
    """Every case is in one piece; pieces stand in the order of their first cases."""
    cases = list(cases)
    together: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        alone, chained = (case.id,), (case.id.partition("::")[0], f"chain {case.chain}")
        together.setdefault(alone if case.chain is None else chained, []).append(case)
    setups = _setups(cases, records)
    return [
        Piece(tuple(found), _seconds(found, records), setups[found[0].place], position)
        for position, found in enumerate(together.values())
    ]


def _seconds(cases: Sequence[Case], records: Mapping[str, Record]) -> float:
    return sum(_known(records.get(case.id, Record()).seconds, UNKNOWN_SECONDS) for case in cases)


def _setups(cases: Sequence[Case], records: Mapping[str, Record]) -> dict[str, float]:
    """Place → the longest setup that a case has met there: one that wants all of it has paid for all of it."""
    found: dict[str, list[float]] = {case.place: [] for case in cases}
    for case in cases:
        setup = records.get(case.id, Record()).setup
        if setup is not None:
            found[case.place].append(setup)
    return {place: max(setups, default=UNKNOWN_SETUP) for place, setups in found.items()}


def _known(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def seconds_of(pieces: Iterable[Piece]) -> float:
    """Of all of them in one go: each place is set up once."""
    pieces = list(pieces)
    return sum(piece.seconds for piece in pieces) + sum({piece.place: piece.setup for piece in pieces}.values())
