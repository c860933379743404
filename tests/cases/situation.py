"""What is now: the cases that pytest finds, their records, the tree. What decides gets its facts from here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cases import changes
from cases.building import missing_builds
from cases.listing import Case, list_cases
from cases.pieces import Piece, pieces_of
from cases.records import Record, latest_run, read_all, run_by_hand
from cases.rotation import Candidate, as_candidate
from cases.tree import tree_hash


@dataclass
class Situation:
    cases: list[Case] = field(default_factory=list_cases)
    records: Mapping[str, Record] = field(default_factory=read_all)
    tree: str = field(default_factory=tree_hash)

    @cached_property
    def scenarios(self) -> dict[str, str]:
        """Case → the hash of its scenario."""
        return changes.hashes_now(case.id for case in self.cases)

    @cached_property
    def base(self) -> str | None:
        """The commit which the change is based on; None when there is none to compare with."""
        return changes.base()

    @cached_property
    def changed(self) -> set[str]:
        """The cases that are other than in that commit."""
        return set() if self.base is None else changes.changed_since(self.base, self.scenarios)

    @property
    def stale(self) -> list[Case]:
        """The cases whose last pass is not of this very tree."""
        return [case for case in self.cases if self.records.get(case.id, Record()).tree != self.tree]

    def around(self, cases: Iterable[Case]) -> list[Piece]:
        """The pieces that those cases are of."""
        wanted = {case.id for case in cases}
        return [piece for piece in self.pieces if not wanted.isdisjoint(piece.ids)]

    @cached_property
    def pieces(self) -> list[Piece]:
        return pieces_of(self.cases, self.records)

    @cached_property
    def short_pieces(self) -> list[Piece]:
        """Of tier 1. A chain that ends with cases of the rotation has its short ones here without them."""
        return pieces_of((case for case in self.cases if not case.rotation), self.records)

    @property
    def next_run(self) -> int:
        return latest_run(self.records) + 1

    @property
    def run_by_hand(self) -> int:
        return run_by_hand(self.records)

    def candidates(self, pieces: Iterable[Piece]) -> tuple[list[Candidate], dict[str, float]]:
        """Those pieces as the rotation sees them, and the seconds of what has to be built for them."""
        build_seconds: dict[str, float] = {}
        found = []
        for piece in pieces:
            builds = missing_builds(piece.needs)
            build_seconds |= builds
            facts = {"tree": self.tree, "scenarios": self.scenarios, "changed": self.changed, "builds": builds}
            found.append(as_candidate(piece, self.records, **facts))  # type: ignore[arg-type]
        return found, build_seconds
