"""Waiting: everything in autarky that waits for something outside of it waits here.

Contract: every wait has a name (a clause that will be true: "the API answers on n1"), an overall deadline,
and remembers what it saw last, which is shown while it waits and in the error when it gives up. A
condition that hangs is cut off; it can never outlive the deadline by more than `LAST_CHECK` seconds. A deadline may
follow progress: then it is extended for as long as there is progress, up to a ceiling.

Dangers: a condition is called many times and may be cancelled at any await, so it only looks, or acts
idempotently. Unreachable and ApiError mean "not yet" here (a starting API server causes both);
every other error ends the wait at once. What is seen may be text that a compromised worker controls: of any
length, and different at each look. It is cut and shown; it never extends a deadline, and nothing is searched in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from autarky.errors import ApiError, TimedOut, Unreachable
from autarky.model.patience import CEILING
from autarky.ports import Clock, Progress


@dataclass(frozen=True, slots=True)
class NotYet:
    """What a look has seen instead, as one sentence, and how far things have come (`come`): a count of our own, or a
    step. A count higher than ever before in this wait is progress; so is a step that was not seen before. So there are
    few values of it, and none contains what a kubelet or a tenant says: whoever can change it at each look keeps the
    command waiting."""

    sentence: str
    come: Hashable = None


Condition = Callable[[], Awaitable[str | NotYet | None]]
"""None when it holds, else what was seen instead. A bare sentence is never progress."""

FIRST_INTERVAL = 0.1
LONGEST_INTERVAL = 0.5
GROWTH = 1.25
"""Seconds between checks, and their growth: quick for what is nearly there, gentle on a starting server."""
REPORT_INTERVAL = 1.0
"""A wait is reported at most once in so many seconds."""
LAST_CHECK = 1.0
"""Seconds that a check gets at least, so that the one at the deadline is a fair one."""
LONGEST_SEEN = 8000
"""Characters of what was seen that are kept and shown."""
MOST_KNOWN = 1000
"""Different steps that a wait counts as progress: more than there are until its ceiling."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A budget of seconds that starts when it is created. Nested waits share one and get what is left."""

    clock: Clock
    end: float

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> Deadline:
        """The deadline that many seconds from now."""
        return cls(clock, clock.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.end - self.clock.monotonic())

    @property
    def expired(self) -> bool:
        return self.left <= 0


async def poll_until(
    what: str,
    condition: Condition,
    *,
    timeout: float | None = None,
    deadline: Deadline | None = None,
    progress: Progress,
    clock: Clock,
    interval: float = FIRST_INTERVAL,
    still: float | None = None,
) -> None:
    """Check the condition until it holds. Exactly one of `timeout` (seconds) and `deadline` is given.

    `interval` is the first pause in seconds; it grows to `LONGEST_INTERVAL` (or stays, when it is longer).
    `still`: it gives up only after so many seconds without progress (`NotYet.come`), at most after `CEILING` times
    `timeout`.
    Raises TimedOut with the name, the time and the last thing seen; errors of the condition other than
    Unreachable and ApiError pass through.
    """
    if deadline is None:
        if timeout is None:
            raise TypeError("a wait needs a timeout or a deadline")
        deadline = Deadline.after(timeout, clock)
    elif timeout is not None:
        raise TypeError("a wait has a timeout or a deadline, not both")
    if still is not None and timeout is None:
        raise TypeError("a shared deadline cannot be extended")
    wait = _Wait(what, deadline, progress, clock, started=clock.monotonic())
    ceiling = clock.monotonic() + CEILING * (timeout or 0.0)
    pause = interval
    while (seen := await _check(condition, wait.deadline, wait.last)) is not None:
        wait.last = seen.sentence[:LONGEST_SEEN]
        if still is not None and wait.comes_on(seen.come):
            wait.moves_to(min(clock.monotonic() + still, ceiling))
        if wait.deadline.expired:
            raise wait.gave_up()
        wait.report()
        await clock.sleep(min(pause, wait.deadline.left))
        pause = max(pause, min(pause * GROWTH, LONGEST_INTERVAL))
    wait.ended()


async def _check(condition: Condition, deadline: Deadline, before: str) -> NotYet | None:
    """One look; an error that may pass becomes the sentence."""
    try:
        async with asyncio.timeout(max(deadline.left, LAST_CHECK)) as limit:
            seen = await condition()
            return NotYet(seen) if isinstance(seen, str) else seen
    except (Unreachable, ApiError) as error:
        return NotYet(str(error))
    except TimeoutError:
        if not limit.expired():
            raise
        return NotYet("the last check did not finish" + (f"; before it: {before}" if before else ""))


@dataclass(slots=True)
class _Wait:
    """What one wait has seen and said so far."""

    what: str
    deadline: Deadline
    progress: Progress
    clock: Clock
    started: float
    last: str = ""
    reported: float | None = None
    known: set[int] = field(default_factory=set)
    """Hashes of how far things had come at some look."""
    most: int | None = None
    """Where that is counted: the most."""

    def comes_on(self, come: Hashable) -> bool:
        """Whether this is further than ever before in this wait. What goes back and comes again is no progress."""
        if isinstance(come, int):
            further = self.most is None or come > self.most
            self.most = come if further else self.most
            return further
        if come is None or hash(come) in self.known or len(self.known) == MOST_KNOWN:
            return False
        self.known.add(hash(come))
        return True

    def moves_to(self, end: float) -> None:
        """Never to an earlier time."""
        self.deadline = Deadline(self.clock, max(self.deadline.end, end))

    def report(self) -> None:
        now = self.clock.monotonic()
        if self.reported is None or now - self.reported >= REPORT_INTERVAL:
            self.reported = now
            self.progress.waiting(self.what, self.deadline.left, self.last)

    def ended(self) -> None:
        """Take the wait off the screen, if it was ever put there."""
        if self.reported is not None:
            self.progress.waiting(self.what, self.deadline.left, "")

    def gave_up(self) -> TimedOut:
        waited = self.clock.monotonic() - self.started
        last = " ".join(self.last.split())
        return TimedOut(f"timed out after {waited:.0f} s, waiting until {self.what}; last seen: {last}")
