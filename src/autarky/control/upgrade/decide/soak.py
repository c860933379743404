"""The clock of a soak: for how long new binaries have emulated the minor before, all in place, and an operator looked.

Contract: it counts by clocks that nobody sets, never backwards, and never what no operator has seen: while something is
not in place, the API is away or no operator runs, it stands still. What was counted is in the ControlPlane's status, a
small part of the soak late, from where the next operator goes on: another operator can make a soak longer, never
shorter. The wall clock is only shown to people. Pure: now is the time by a clock that nobody sets, wall Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autarky.control.upgrade.decide.reported import Soaking
from autarky.model.versions import Version

PARTS, LONGEST_PART = 10, 300.0
"""What was counted is written after so many parts of the soak, or seconds. Each is a write of the status."""
SHIFT_SECONDS = 30.0
"""By which its end must have moved to be shown: a status that says the same is not written."""


@dataclass(slots=True)
class SoakClock:
    """of_status: what is to be written; None while nothing soaks."""

    of_status: Soaking | None = field(default=None, init=False)
    _counted: float = field(default=0.0, init=False)
    _at: float | None = field(default=None, init=False)
    """Of the last look at which everything was in place; None if there was none right before."""

    def forget(self) -> None:
        """What an earlier leader has seen, the status says."""
        self.of_status, self._counted, self._at = None, 0.0, None

    def stand_still(self) -> None:
        """What was not counted yet is not counted."""
        self._at = None

    def ends(self, wanted: Version, now: float) -> None:
        """It has lasted as long as it should: that stays known, also to the next operator."""
        self._counted = self.soaked(wanted, now)
        if self.of_status is not None and self.of_status.seconds < int(self._counted):
            self.of_status = replace(self.of_status, seconds=self._counted)

    def take_over(self, written: Soaking | None, wanted: Version) -> None:
        """written: in the status, by whichever operator; one of another version is none."""
        if self.of_status is not None and self.of_status.version != wanted:
            self.forget()
        if written is None or written.version != wanted:
            return
        if self.of_status is None:
            self.of_status = written
        if written.seconds > self._counted:  # another operator has counted: what was seen here was before that
            self._counted, self._at = written.seconds, None

    def soaked(self, wanted: Version, now: float) -> float:
        """Seconds, also of the time since the last look."""
        since = 0.0 if self._at is None else now - self._at
        return self._counted + since if self.of_status is not None and self.of_status.version == wanted else 0.0

    def count(self, wanted: Version, seconds: float, now: float, wall: float) -> Soaking:
        """At a look at which everything is in place, and nothing else is to be done. seconds: of all of the soak."""
        self._counted, self._at = self.soaked(wanted, now), now
        until = wall + max(0.0, seconds - self._counted)
        shown = self.of_status or Soaking(wanted, wall, until, 0.0)
        if shown.version != wanted:
            shown = Soaking(wanted, wall, until, 0.0)
        if abs(until - shown.until) >= SHIFT_SECONDS:
            shown = replace(shown, until=until)
        if self._counted - shown.seconds >= min(LONGEST_PART, max(1.0, seconds / PARTS)):
            shown = replace(shown, seconds=self._counted)
        self.of_status = shown
        return shown
