"""How long and how badly requests failed: outages, and the worst seconds. Pure; times are Unix seconds.

An outage is from the first failed request to the first later one that succeeded. But one success in between is no
end of it for a client: seconds in a row in each of which a tenth of the requests failed are one outage, too. Whichever
is longer counts. All times are those at which requests began, not ended: a dial that hangs fails seconds after others
that began later have succeeded.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

BAD_SHARE = 0.1
"""Of the requests of a second: with so many failures it belongs to an outage."""
WINDOW = 10
"""Seconds over which the worst share of failures is taken."""


@dataclass(frozen=True, slots=True)
class Outage:
    """From a failed request to a later one that succeeded, by when they began.

    One that was not `over` lasted at least until the end of the probe.
    """

    endpoint: str
    start: float
    seconds: float
    over: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """How many requests began in these seconds, and how many of them failed."""

    start: float
    seconds: float
    requests: int
    failed: int


def longest_outage(endpoint: str, failed: Iterable[float], succeeded: Iterable[float], end: float) -> Outage | None:
    """The longest outage at one endpoint, without a success or with too few; the times come in any order."""
    bad, good = sorted(failed), sorted(succeeded)
    spans = [(time, time) for time in bad] + list(_bad_stretches(bad, good))
    found = (_until_a_success(endpoint, span, good, end) for span in spans)
    return max(found, key=lambda outage: (outage.seconds, -outage.start), default=None)


def _until_a_success(endpoint: str, span: tuple[float, float], good: Sequence[float], end: float) -> Outage:
    """From the first to the last of these failures, and on to the first later success."""
    start, last = span
    index = bisect_right(good, last)
    over = index < len(good)
    until = good[index] if over else max(end, last)
    return Outage(endpoint, start, until - start, over)


def _bad_stretches(bad: Sequence[float], good: Sequence[float]) -> Iterator[tuple[float, float]]:
    """First and last failure of each run of bad seconds. Seconds in which no request began neither make nor end one:
    a client that waits for its answer sends nothing."""
    failures, successes = Counter(map(math.floor, bad)), Counter(map(math.floor, good))
    position = 0
    first: float | None = None
    last = 0.0
    for second in sorted(failures.keys() | successes.keys()):
        failed = failures[second]
        if failed and failed >= BAD_SHARE * (failed + successes[second]):
            first = bad[position] if first is None else first
            last = bad[position + failed - 1]
        elif first is not None:
            yield first, last
            first = None
        position += failed
    if first is not None:
        yield first, last


class PerSecond:
    """How many requests began in each second, and how many of them failed: eight bytes a second."""

    def __init__(self) -> None:
        self._first = 0
        self._requests = array("I")
        self._failed = array("I")

    def note(self, began: float, *, failed: bool) -> None:
        index = int(began) - self._first
        if not 0 <= index < len(self._requests):
            index = self._made(int(began))
        self._requests[index] += 1
        self._failed[index] += failed

    def worst(self, window: int = WINDOW) -> Stretch | None:
        """See `worst_stretch`."""
        return worst_stretch(self._first, self._requests, self._failed, window)

    def _made(self, second: int) -> int:
        """The place of a second that has none yet. It may lie before the first one: requests are noted when they
        end."""
        if not self._requests:
            self._first = second
        before = max(0, self._first - second)
        after = max(0, second + 1 - self._first - len(self._requests))
        for counts in (self._requests, self._failed):
            counts[:0] = array("I", [0] * before)
            counts.extend([0] * after)
        self._first -= before
        return second - self._first


def worst_stretch(first: int, requests: Sequence[int], failed: Sequence[int], window: int = WINDOW) -> Stretch | None:
    """The seconds in a row, `window` of them or all that there are, with the highest share of failed requests.

    None when nothing failed. `requests` and `failed` are counts of one second each, from the second `first` on.
    """
    length = min(window, len(requests))
    worst: Stretch | None = None
    asked, lost = sum(requests[:length]), sum(failed[:length])
    for start in range(len(requests) - length + 1):
        if start:
            asked += requests[start + length - 1] - requests[start - 1]
            lost += failed[start + length - 1] - failed[start - 1]
        if lost and (worst is None or (lost * worst.requests, lost) > (worst.failed * asked, worst.failed)):
            worst = Stretch(float(first + start), float(length), asked, lost)
    return worst
