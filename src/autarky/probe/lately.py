"""How slow answers are at this time. Pure: no clock, no I/O; times are given, and never go back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

LATELY = 5.0
"""Seconds. Machines are short of processors for seconds at a time, when several servers start or stop at once."""


@dataclass(slots=True)
class SlowestLately:
    """The slowest of the answers that came in the last LATELY seconds. Kept are those to which nothing as slow came
    later: a few."""

    _slower_first: deque[tuple[float, float]] = field(default_factory=deque)

    def note(self, at: float, seconds: float) -> None:
        """An answer came at this time, after so many seconds."""
        while self._slower_first and self._slower_first[-1][1] <= seconds:
            self._slower_first.pop()
        self._slower_first.append((at, seconds))
        self._forget(at)

    def seconds(self, at: float) -> float:
        """How long the slowest of them took; 0 where none came."""
        self._forget(at)
        return self._slower_first[0][1] if self._slower_first else 0.0

    def _forget(self, at: float) -> None:
        while self._slower_first and self._slower_first[0][0] < at - LATELY:
            self._slower_first.popleft()
