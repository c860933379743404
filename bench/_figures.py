"""What a benchmark found: figures of autarky's beside those of something else (mostly kubeadm's), and the one table of
them all. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from _floor import FLOOR, floor_of

SECONDS, MEMORY = "s", "MiB"
NOTHING = "–"


Rounds = tuple[float | None, ...]
"""What was measured, round by round: None where there was nothing of the kind, which is not a measured 0."""


@dataclass(frozen=True)
class Figure:
    """One thing that was measured of both clusters, once in every round."""

    benchmark: str
    name: str
    unit: str
    ours: Rounds
    theirs: Rounds
    wanted: float | None = None
    """The highest ratio that is wanted; None: it is only reported."""
    most: float | None = None
    """The highest median of ours that is wanted, in its unit; of what may never be, the highest of any round."""
    more: float | None = None
    """How much higher than the median of theirs ours may be, in its unit."""

    def __post_init__(self) -> None:
        if not self.ours or len(self.ours) != len(self.theirs):
            raise ValueError(f"{self.benchmark}: {self.name} was measured in {self.ours} and {self.theirs}")

    @property
    def ratio(self) -> float | None:
        """Of the medians of all rounds; None where kubeadm has nothing of the kind, or 0 of it."""
        theirs = statistics.median(numbers(self.theirs))
        return statistics.median(numbers(self.ours)) / theirs if theirs else None

    @property
    def _most(self) -> float:
        return statistics.median(numbers(self.ours)) if self.most else max(numbers(self.ours))

    @property
    def difference(self) -> float:
        """Of the medians of all rounds."""
        return statistics.median(numbers(self.ours)) - statistics.median(numbers(self.theirs))

    @property
    def kept(self) -> bool:
        """Whether it is as wanted."""
        return (
            (self.wanted is None or (self.ratio is not None and self.ratio <= self.wanted))
            and (self.most is None or self._most <= self.most)
            and (self.more is None or self.difference <= self.more)
        )


def is_nothing(rounds: Rounds) -> bool:
    """Whether there was nothing of the kind in any round."""
    return all(each is None for each in rounds)


def numbers(rounds: Rounds) -> list[float]:
    """With 0 where there was nothing."""
    return [0.0 if each is None else each for each in rounds]


def table(figures: Sequence[Figure], beside: str = "kubeadm") -> str:
    """Medians of all rounds, for a terminal. What is not as wanted says so in its row. beside: what autarky is measured
    against. Where the parts alone were measured as well, there is a column for the floor."""
    parts = parts_alone(figures)
    floor = ["floor"] if parts else []
    head = ("benchmark", "figure", "rounds", *floor, "autarky", beside, "ratio", "wanted")
    rows = [head, *(_row(figure, parts) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    texts = 2

    def aligned(row: Sequence[str]) -> str:
        cells = [row[at].ljust(width) if at < texts else row[at].rjust(width) for at, width in enumerate(widths)]
        return "  ".join(cells).rstrip()

    return "\n".join(map(aligned, rows))


def _row(figure: Figure, parts: Mapping[str, Rounds]) -> tuple[str, ...]:
    alone = figure.benchmark == FLOOR
    ours = figure.theirs if alone else figure.ours
    floor = figure.ours if alone else floor_of(figure.benchmark, figure.name, parts)
    measured = [*([floor] if parts else []), ours, figure.theirs]
    medians = (NOTHING if each is None else median(each, figure.unit) for each in measured)
    return (figure.benchmark, figure.name, str(len(figure.ours)), *medians, *judged(figure))


def parts_alone(figures: Sequence[Figure]) -> dict[str, Rounds]:
    """Part → what it took alone. Empty where `floor` did not run."""
    return {figure.name: figure.ours for figure in figures if figure.benchmark == FLOOR}


def median(rounds: Rounds, unit: str) -> str:
    return NOTHING if is_nothing(rounds) else f"{statistics.median(numbers(rounds)):.1f} {unit}".rstrip()


def judged(figure: Figure) -> tuple[str, str]:
    """The ratio, and what is wanted."""
    ratio = NOTHING if figure.ratio is None else f"{figure.ratio:.2f}"
    limits = [
        *([] if figure.wanted is None else [f"at most {figure.wanted}"]),
        *([] if figure.most is None else [f"at most {figure.most:g} {figure.unit}".rstrip()]),
        *([] if figure.more is None else [f"{figure.difference:+.1f}, at most +{figure.more:g} {figure.unit}"]),
    ]
    if not limits:
        return ratio, NOTHING
    return ratio, ", ".join(limits) + ("" if figure.kept else ": missed")


# --- docs/measurements.md ----------------------------------------------------------------------------------


def in_rounds(figures: Sequence[Figure]) -> str:
    """The head of the first column."""
    rounds = max(len(figure.ours) for figure in figures)
    return f"in {rounds} round{'s' if rounds > 1 else ''}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" if line[0] != "---" else f"|{'|'.join(line)}|\n" for line in lines)
