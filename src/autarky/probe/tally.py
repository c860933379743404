"""What was seen, folded as it comes. Pure: no clock, no I/O; times are given.

Contract: memory is bounded, but for eight bytes for each new connection that succeeded (the outages follow
from them): about 1 MB an hour. Counts are exact; of the failures the first MAX_FAILURES are kept whole.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from autarky.probe.outcome import Failure, Kind, Stream

MAX_FAILURES = 1000
MAX_STALLS = 1000
_SHORTEST = 1e-4
_GROWTH = 1.02


class Latencies:
    """Times in seconds, in buckets that grow by 2 %: quantiles are exact to that, the maximum is exact."""

    def __init__(self) -> None:
        self.max = 0.0
        self._buckets: Counter[int] = Counter()

    def note(self, seconds: float) -> None:
        self.max = max(self.max, seconds)
        self._buckets[max(0, math.ceil(math.log(max(seconds, _SHORTEST) / _SHORTEST, _GROWTH)))] += 1

    def quantile(self, share: float) -> float:
        """The time within which this share (0 to 1) of all was done; 0 when there was none."""
        wanted, seen = share * self._buckets.total(), 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(self.max, _SHORTEST * _GROWTH**bucket)
        return self.max


@dataclass(frozen=True, slots=True)
class Outage:
    """From the first failed new connection to the first later one that succeeded, by when they began.

    `start` is in Unix seconds. One that was not `over` lasted at least until the end of the probe.
    """

    endpoint: str
    start: float
    seconds: float
    over: bool


def longest_outage(endpoint: str, failed: Iterable[float], succeeded: Iterable[float], end: float) -> Outage | None:
    """The longest outage at one endpoint. All times are Unix seconds at which connections began; in any order.

    Not by when they ended: a dial that hangs fails seconds after others that began later have succeeded.
    """
    good = sorted(succeeded)
    longest: Outage | None = None
    until = -math.inf
    for start in sorted(failed):
        if start < until:
            continue
        index = bisect_right(good, start)
        over = index < len(good)
        until = good[index] if over else max(end, start)
        if longest is None or until - start > longest.seconds:
            longest = Outage(endpoint, start, until - start, over)
    return longest


@dataclass(slots=True)
class StreamTally:
    """The counts of one stream. `requests` has every request once, whatever became of it."""

    requests: int = 0
    races: int = 0
    """Idle-close races that the first retry settled."""
    turned_away: int = 0
    """Kept-alive requests that a stopping server refused as it closed their connection (see streams.py)."""
    reconnects: int = 0
    left_out: int = 0
    """Requests that were due but not sent, because earlier ones were still under way."""
    failures: Counter[Kind] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)


@dataclass(slots=True)
class WatchTally:
    events: int = 0
    resumed: int = 0
    """How often a watch ended and went on where it was."""
    relisted: int = 0
    """How often it could not, and began again from a list (410 Gone)."""


@dataclass(slots=True)
class Seen:
    """An API server that identified itself, and between which times (Unix seconds)."""

    server: str
    endpoint: str
    first: float
    last: float


@dataclass(slots=True)
class Stall:
    """The probe itself did not run between these times (Unix seconds)."""

    start: float
    end: float


class Tally:
    """Everything that a report is made of."""

    def __init__(self) -> None:
        self.streams = {stream: StreamTally() for stream in Stream}
        self.watch = WatchTally()
        self.writes_acknowledged = 0
        self.failures: list[Failure] = []
        self.stalls: list[Stall] = []
        self.longest_stall = 0.0
        self._servers: dict[tuple[str, str], Seen] = {}
        self._succeeded: dict[str, array[float]] = {}
        self._failed: dict[str, array[float]] = {}

    def answered(self, stream: Stream, endpoint: str, began: float, seconds: float) -> None:
        """A request succeeded. `began` is in Unix seconds."""
        found = self.streams[stream]
        found.requests += 1
        found.latencies.note(seconds)
        if stream is Stream.NEW:
            self._succeeded.setdefault(endpoint, array("d")).append(began)

    def failed(self, failure: Failure, endpoint: str = "") -> None:
        """Something failed: a request, or a promise that spans several (see Kind.is_request)."""
        found = self.streams[failure.stream]
        found.failures[failure.kind] += 1
        if failure.kind.is_request:
            found.requests += 1
            found.latencies.note(failure.seconds)
            if failure.stream is Stream.NEW:
                self._failed.setdefault(endpoint, array("d")).append(failure.time)
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(failure)

    def saw(self, server: str, endpoint: str, at: float) -> None:
        """`server` answered at `endpoint`; nothing is noted of one that does not say who it is."""
        if server:
            self._servers.setdefault((server, endpoint), Seen(server, endpoint, at, at)).last = at

    def held_up(self, start: float, end: float, *, worth_noting: float) -> None:
        """The probe itself did not run; stalls of at least `worth_noting` seconds are kept one by one."""
        self.longest_stall = max(self.longest_stall, end - start)
        if end - start >= worth_noting and len(self.stalls) < MAX_STALLS:
            self.stalls.append(Stall(start, end))

    @property
    def servers(self) -> list[Seen]:
        """In the order in which they were seen first."""
        return sorted(self._servers.values(), key=lambda seen: seen.first)

    def outage(self, end: float) -> Outage | None:
        """The longest outage of any endpoint until `end` (Unix seconds)."""
        found = [
            longest_outage(endpoint, failed, self._succeeded.get(endpoint, ()), end)
            for endpoint, failed in self._failed.items()
        ]
        return max((outage for outage in found if outage is not None), key=lambda o: o.seconds, default=None)
