"""What was observed, aggregated as it comes. Pure: no clock, no I/O; times are given.

Contract: memory is bounded, but for eight bytes for each new connection and each write (the outages follow
from them): about 2 MB an hour. Counts are exact; of the failures and of the slow requests the first ones are
kept in full.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field

from autarky.probe.outages import Outage, PerSecond, Stretch, longest_outage
from autarky.probe.outcome import Failure, Kind, Stream

SLOW = 1.0
"""Seconds. What takes longer is noticed by people, and by clients with short leases."""
WITH_OUTAGES = (Stream.NEW, Stream.WRITES, Stream.KEPT_WRITES)
"""The streams whose outages are reported. The kept reads would add no information, and are most of the load."""
MAX_FAILURES = 1000
MAX_SLOW = 1000
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
class Slow:
    """A request that succeeded after more than SLOW seconds; of the watch, an event so long after the
    acknowledgement of its write. `time`: when it began, or was acknowledged, in Unix seconds."""

    time: float
    stream: Stream
    seconds: float


@dataclass(slots=True)
class StreamTally:
    """The counts of one stream. `requests` has every request once, whatever became of it."""

    workers: int = 0
    """Clients that send one request after the other; none where requests do not wait for each other."""
    requests: int = 0
    races: int = 0
    """Idle-close races that the first retry settled."""
    late_races: int = 0
    """Of these: how many connections ended later than the shortest exchange that they had seen (see kept.py)."""
    turned_away: int = 0
    """Kept-alive requests that a stopping server refused as it closed their connection (see kept.py)."""
    reconnects: int = 0
    left_out: int = 0
    """Requests that were due but not sent, because earlier ones were still under way."""
    silence: float = 0.0
    """The longest time, in seconds, for which one of its workers began no request."""
    slow: int = 0
    failures: Counter[Kind] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)

    def paced(self, *, left_out: int, silence: float) -> None:
        """How one worker has kept its pace, when it is over."""
        self.left_out += left_out
        self.silence = max(self.silence, silence)


@dataclass(slots=True)
class WatchTally:
    events: int = 0
    resumed: int = 0
    """How often a watch ended and went on where it was."""
    relisted: int = 0
    """How often it could not, and began again from a list (410 Gone)."""
    longest_down: float = 0.0
    """Seconds from an end until it went on."""


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
        self.slow: list[Slow] = []
        self.stalls: list[Stall] = []
        self.longest_stall = 0.0
        self._servers: dict[tuple[str, str], Seen] = {}
        self._per_second = PerSecond()
        self._succeeded: dict[tuple[Stream, str], array[float]] = {}
        self._failed: dict[tuple[Stream, str], array[float]] = {}

    def answered(self, stream: Stream, endpoint: str, began: float, seconds: float) -> None:
        """A request succeeded. `began` is in Unix seconds."""
        found = self.streams[stream]
        found.requests += 1
        self._took(stream, began, seconds)
        self._per_second.note(began, failed=False)
        if stream in WITH_OUTAGES:
            self._succeeded.setdefault((stream, endpoint), array("d")).append(began)

    def shown(self, acknowledged: float, seconds: float) -> None:
        """A watch's event came so many seconds after the acknowledgement of its write (Unix seconds)."""
        self._took(Stream.WATCH, acknowledged, seconds)

    def failed(self, failure: Failure, endpoint: str = "") -> None:
        """Something failed: a request, or a promise that spans several (see Kind.is_request)."""
        found = self.streams[failure.stream]
        found.failures[failure.kind] += 1
        if failure.kind.is_request:
            found.requests += 1
            found.latencies.note(failure.seconds)
            self._per_second.note(failure.time, failed=True)
            if failure.stream in WITH_OUTAGES:
                self._failed.setdefault((failure.stream, endpoint), array("d")).append(failure.time)
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

    @property
    def slow_in_all(self) -> int:
        return sum(stream.slow for stream in self.streams.values())

    def outage(self, stream: Stream, end: float) -> Outage | None:
        """The stream's longest outage at any endpoint until `end` (Unix seconds)."""
        found = [
            longest_outage(endpoint, failed, self._succeeded.get((stream, endpoint), ()), end)
            for (of, endpoint), failed in self._failed.items()
            if of is stream
        ]
        return max((outage for outage in found if outage is not None), key=lambda o: o.seconds, default=None)

    def fails_at_the_end(self, stream: Stream) -> bool:
        """Whether at any endpoint the request of the stream that began last has failed."""
        last = {endpoint: max(times) for (of, endpoint), times in self._failed.items() if of is stream}
        return any(time > max(self._succeeded.get((stream, at), ()), default=0.0) for at, time in last.items())

    def worst(self) -> Stretch | None:
        """The seconds with the highest share of failed requests, all streams together."""
        return self._per_second.worst()

    def _took(self, stream: Stream, began: float, seconds: float) -> None:
        found = self.streams[stream]
        found.latencies.note(seconds)
        if seconds > SLOW:
            found.slow += 1
            if len(self.slow) < MAX_SLOW:
                self.slow.append(Slow(began, stream, seconds))
