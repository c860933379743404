"""Revisions of a component that were rolled back: the record of them, and what happens when one is applied again. Pure.

A revision that ran and was not healthy is condemned: when it is applied again, it is rolled back at once, and with a
longer delay each further time, so that two tools which do not agree do not fight at full speed. A revision of which no
container ever ran is not condemned: what was missing (a registry, a Secret) may be there now. Nor is one that ran with
a configuration that had been edited (the Corefile), which may be the cause, and corrected now. Such a revision gets its
full time again, and stays at least for the same delay.

A verdict expires when the revision has not been wanted for EXPIRES_SECONDS, watched by one operator: a new leader
counts from zero, so it expires later, never sooner. TRY_AGAIN, on the workload, clears all verdicts at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_DELAY, LONGEST_DELAY = 10.0, 300.0
"""Seconds until a bad revision that is applied again is rolled back: none the first time, then FIRST_DELAY, doubled
each time up to LONGEST_DELAY."""
EXPIRES_SECONDS = 3600.0
KEPT_FAILURES = 8
TRY_AGAIN = "autarky.dev/try-again"
"""Annotation of a workload, with any value: its rollbacks are forgotten, and the annotation is removed."""


def delay_after(times: int) -> float:
    """Seconds for which what was undone so many times stays before it is undone once more."""
    return 0.0 if times <= 1 else float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(times - 2, 10)))


@dataclass(frozen=True, slots=True)
class Failure:
    """A revision that was rolled back: how often, and why the last time. never_ran: none of its containers was ever
    created. by_workers: pods on workers alone were the reason. edited: what is made to be edited was not as the last
    good revision had it."""

    revision: str
    count: int
    sentence: str
    by_skew: bool = False
    never_ran: bool = False
    edited: bool = False
    by_workers: bool = False

    @property
    def condemns(self) -> bool:
        """Whether it is rolled back when applied again, whatever its pods do then. (Versions are judged again.)"""
        return not (self.by_skew or self.never_ran or self.edited)

    @property
    def delay(self) -> float:
        """Minimum seconds for which it stays when it is applied again."""
        return delay_after(self.count)

    def again(self, workload: str) -> str:
        """What happens when it is applied again, and the command to have it tried. `workload`: as kubectl takes it
        ("ds/kube-proxy")."""
        if self.by_skew:
            return "applied again, it is judged against the versions that run then"
        if self.never_ran:
            return "nothing of it ever ran: to try it again, apply it again"
        if self.edited:
            return "its configuration has been edited, which may be the cause: to try it again, apply it again"
        command = f"kubectl -n kube-system annotate {workload} {TRY_AGAIN}=now"
        when = f"after {self.delay:.0f} s" if self.delay else "at once"
        return f"applied again within the hour, it goes back {when}; to try it again, first run `{command}`"


@dataclass(frozen=True, slots=True)
class Record:
    """What is stored. current: the failed revision after which no revision has been healthy yet. start: seconds until
    the slowest of the good revision's pods was Ready; None where it was not observed."""

    good: str | None = None
    failures: tuple[Failure, ...] = ()
    current: str | None = None
    start: float | None = None

    def failure(self, revision: str | None) -> Failure | None:
        return next((failure for failure in self.failures if failure.revision == revision), None)

    def without(self, revision: str) -> Record:
        """Forget that this revision was rolled back."""
        return replace(self, failures=tuple(one for one in self.failures if one.revision != revision))

    def pardoned(self) -> Record:
        """Forget all rollbacks."""
        return replace(self, failures=(), current=None)

    def with_good(self, revision: str, start: float | None = None) -> Record:
        """The revision is healthy; earlier rollbacks of it are forgotten."""
        return replace(self.without(revision), good=revision, current=None, start=start)

    def with_edited(self, revision: str) -> Record:
        """The failure of this revision may have been that of a configuration that was edited."""
        found = tuple(replace(one, edited=True) if one.revision == revision else one for one in self.failures)
        return replace(self, failures=found)

    def with_failure(
        self, revision: str, sentence: str, *, by_skew: bool, never_ran: bool = False, by_workers: bool = False
    ) -> Record:
        before = self.failure(revision)
        failure = Failure(
            revision, before.count + 1 if before else 1, sentence, by_skew, never_ran, by_workers=by_workers
        )
        failures = (*self.without(revision).failures, failure)
        return replace(self, failures=failures[-KEPT_FAILURES:], current=revision)
