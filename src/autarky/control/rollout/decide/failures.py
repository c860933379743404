"""Revisions of a component that went back: what is kept of them, and what becomes of one that is applied again. Pure.

A revision that ran and was not healthy is condemned: applied again it goes back at once, then later each time, so that
two tools which do not agree do not fight at full speed. One of which nothing ever ran is not: what was missing (a
registry, a Secret) may be there now. It is given its chance each time, and stays at least as long before it goes back.

A verdict expires when the revision has not been wanted for EXPIRES_SECONDS, as long as one operator has watched: a new
leader begins to count anew, which is later, never sooner. TRY_AGAIN, on the workload, ends all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_DELAY, LONGEST_DELAY = 10.0, 300.0
"""Seconds until a bad revision that was applied once more goes back: none at first, then this and twice as
much each time."""
EXPIRES_SECONDS = 3600.0
KEPT_FAILURES = 8
TRY_AGAIN = "autarky.dev/try-again"
"""Annotation of a workload, with any value: what went back of it is forgotten, and the annotation goes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A revision that went back: how often, and why the last time. never_ran: no container of it was ever made."""

    revision: str
    count: int
    sentence: str
    by_skew: bool = False
    never_ran: bool = False

    @property
    def condemns(self) -> bool:
        """Whether it goes back when it is applied again, whatever its pods do then. (Versions are judged anew.)"""
        return not self.by_skew and not self.never_ran

    @property
    def delay(self) -> float:
        """Seconds for which it stays at least when it is applied again."""
        if self.count <= 1:
            return 0.0
        return float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self.count - 2, 10)))

    def again(self, workload: str) -> str:
        """What becomes of it when it is applied again, and what to run for it to be tried. `workload`: as kubectl
        takes it ("ds/kube-proxy")."""
        if self.by_skew:
            return "applied again, it is judged by the versions that run then"
        if self.never_ran:
            return "nothing of it ever ran: to try it again, apply it again"
        anew = f"kubectl -n kube-system annotate {workload} {TRY_AGAIN}=now"
        when = f"after {self.delay:.0f} s" if self.delay else "at once"
        return f"applied again within the hour it goes back {when}; to have it tried, first run `{anew}`"


@dataclass(frozen=True, slots=True)
class Record:
    """What is stored. current: the failure that the user has not answered yet by a revision that is healthy. start: how
    many seconds the good revision's pods took until they were Ready, the slowest of them; None where nobody saw it."""

    good: str | None = None
    failures: tuple[Failure, ...] = ()
    current: str | None = None
    start: float | None = None

    def failure(self, revision: str | None) -> Failure | None:
        return next((failure for failure in self.failures if failure.revision == revision), None)

    def without(self, revision: str) -> Record:
        """That it went back is forgotten."""
        return replace(self, failures=tuple(one for one in self.failures if one.revision != revision))

    def pardoned(self) -> Record:
        """That anything went back is forgotten."""
        return replace(self, failures=(), current=None)

    def with_good(self, revision: str, start: float | None = None) -> Record:
        """The revision is healthy; that it went back before is forgotten."""
        return replace(self.without(revision), good=revision, current=None, start=start)

    def with_failure(self, revision: str, sentence: str, *, by_skew: bool, never_ran: bool = False) -> Record:
        before = self.failure(revision)
        failure = Failure(revision, before.count + 1 if before else 1, sentence, by_skew, never_ran)
        failures = (*self.without(revision).failures, failure)
        return replace(self, failures=failures[-KEPT_FAILURES:], current=revision)
