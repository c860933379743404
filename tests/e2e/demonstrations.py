"""What each case of test_demos runs of docs/demos.md: a demonstration, or a part of one that would take too long.

Pure. `unit/docs/test_demonstrations` compares it with the page: each of its blocks of commands is in one case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Block = TypeVar("Block")

PAGE = "demos.md"
AS_RUN = "6a694402562d"
"""The hash of all commands there and of what one sees. A change of the page changes it, and so touches the cases."""


@dataclass(frozen=True, slots=True)
class Part:
    """name: of the case. heading: of the section whose blocks of commands it runs, from one to before another."""

    name: str
    heading: str
    first: int = 0
    end: int | None = None

    def of(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """Its own, of those of its section."""
        return blocks[self.first : self.end]


PARTS = (
    Part("pivot", "The pivot, watched"),
    Part("label-and-scale", "Label and scale"),
    Part("four-images", "Four images by hand", end=2),
    Part("four-images-and-back", "Four images by hand", first=2),
    Part("flag", "A flag, edited"),
    Part("schedulers", "All schedulers lost"),
    Part("power-cycle", "Power cycle"),
    Part("permanent-loss", "Permanent loss"),
)
"""In the order of the page: each goes on from the one before."""
