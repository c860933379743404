"""Waiting: the only way in which autarky waits for the world.

Contract: every wait has a name (a clause that will be true: "the API answers on n1"), an overall deadline,
and remembers what it saw last, which is shown while it waits and in the error when it gives up. A
condition that hangs is cut off; it can never outlive the deadline by more than `LAST_CHECK` seconds. A deadline may
look at progress: then it moves as long as something new is seen, up to a ceiling.

Dangers: a condition is called many times and may be cancelled at any await, so it only looks, or acts
idempotently. Unreachable and ApiError mean "not yet" here (an API server that starts answers both);
every other error ends the wait at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from autarky.errors import ApiError, TimedOut, Unreachable
from autarky.model.patience import CEILING
from autarky.ports import Clock, Progress

Condition = Callable[[], Awaitable[str | None]]
"""None when it holds, else one sentence with what was seen instead."""

FIRST_INTERVAL = 0.1
LONGEST_INTERVAL = 0.5
GROWTH = 1.25
"""Seconds between checks, and their growth: quick for what is nearly there, gentle on a starting server."""
REPORT_INTERVAL = 1.0
"""A wait is reported at most once in so many seconds."""
LAST_CHECK = 1.0
"""Seconds that a check gets at least, so that the one at the deadline is a fair one."""
_COUNTED = re.compile(r"\d+(\.\d+)? ?(ms|s|m)\b")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A budget of seconds that runs from its making. Nested waits share one and get what is left."""

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
    `still`: only after so many seconds without anything new it gives up, `CEILING` times `timeout` at the most. New is
    a sentence that was not seen before in this wait, but for the seconds that it counts.
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
        raise TypeError("a deadline that others share does not move")
    wait = _Wait(what, deadline, progress, clock, started=clock.monotonic())
    ceiling = clock.monotonic() + CEILING * (timeout or 0.0)
    pause = interval
    while (seen := await _check(condition, wait.deadline, wait.last)) is not None:
        wait.last = seen
        if still is not None and wait.is_new(seen):
            wait.moves_to(min(clock.monotonic() + still, ceiling))
        if wait.deadline.expired:
            raise wait.gave_up()
        wait.report()
        await clock.sleep(min(pause, wait.deadline.left))
        pause = max(pause, min(pause * GROWTH, LONGEST_INTERVAL))
    wait.ended()


async def _check(condition: Condition, deadline: Deadline, before: str) -> str | None:
    """One look; what makes it fail for now becomes the sentence."""
    try:
        async with asyncio.timeout(max(deadline.left, LAST_CHECK)) as limit:
            return await condition()
    except (Unreachable, ApiError) as error:
        return str(error)
    except TimeoutError:
        if not limit.expired():
            raise
        return "the last check did not end" + (f"; before it: {before}" if before else "")


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
    known: set[str] = field(default_factory=set)

    def is_new(self, seen: str) -> bool:
        told = _COUNTED.sub("", seen)
        is_new = told not in self.known
        self.known.add(told)
        return is_new

    def moves_to(self, end: float) -> None:
        """Never back."""
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
        return TimedOut(f"timed out after {waited:.0f} s: {self.what}; last seen: {self.last}")
