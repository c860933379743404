"""The result: a frozen value, its verdict in one line, and its JSON form. Pure.

"0 failed" means: every new connection and every write succeeded; a request on a kept-alive connection may
meet the idle-close race, or be turned away by a server that stops (once by each), if its first retry succeeds;
a watch may end if it resumes without a missed event; no acknowledged write is lost. All fields of the JSON form
are described in docs/probe.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from autarky.probe.outages import Outage, Stretch
from autarky.probe.outcome import Failure, Kind, Stream
from autarky.probe.tally import SLOW, Latencies, Seen, Slow, Stall, Tally

REQUEST_STREAMS = (Stream.NEW, Stream.KEPT, Stream.WRITES, Stream.KEPT_WRITES)


@dataclass(frozen=True, slots=True)
class StreamReport:
    """One stream: its counts, and its times in seconds. A watch has no requests; its times are from the
    acknowledgement of a write to its event."""

    workers: int
    requests: int
    failed: int
    failures: Mapping[Kind, int]
    races: int
    late_races: int
    turned_away: int
    reconnects: int
    left_out: int
    silence: float
    slow: int
    outage: Outage | None
    fails_at_the_end: bool
    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a client would have noticed. Times of day are Unix seconds, lengths are seconds."""

    started: float
    seconds: float
    endpoints: tuple[str, ...]
    streams: Mapping[Stream, StreamReport]
    watch_events: int
    watch_resumed: int
    watch_relisted: int
    watch_down: float
    writes_wanted: bool
    writes_acknowledged: int
    writes_lost: int
    outage: Outage | None
    worst: Stretch | None
    slow: tuple[Slow, ...]
    slow_left_out: int
    failures: tuple[Failure, ...]
    failures_left_out: int
    servers: tuple[Seen, ...]
    held_up: float

    @property
    def failed(self) -> int:
        """Everything that failed: requests, lost writes, missed events."""
        return sum(stream.failed for stream in self.streams.values())

    @property
    def requests(self) -> int:
        return sum(stream.requests for stream in self.streams.values())

    @property
    def failed_requests(self) -> int:
        return sum(n for s in self.streams.values() for kind, n in s.failures.items() if kind.is_request)

    @property
    def ok(self) -> bool:
        """Whether nothing failed. A probe that asked nothing has shown nothing, nor has one whose writes nobody
        acknowledged."""
        return self.failed == 0 and self.requests > 0 and not self._nothing_written

    @property
    def _nothing_written(self) -> bool:
        return self.writes_wanted and self.writes_acknowledged == 0

    @property
    def verdict(self) -> str:
        """One line: "0 of 5,986 requests failed (12 s, 3 idle-close races, watch resumed 2×, slowest 0.21 s)"."""
        head = f"{self.failed_requests:,} of {self.requests:,} requests failed ({', '.join(self._circumstances())})"
        return "; ".join([head, *self._broken_promises()])

    def _circumstances(self) -> list[str]:
        races = sum(stream.races for stream in self.streams.values())
        turned_away = sum(stream.turned_away for stream in self.streams.values())
        slowest = max((self.streams[name].max for name in REQUEST_STREAMS if name in self.streams), default=0.0)
        clauses = [f"{self.seconds:.0f} s"]
        if self.outage is not None:
            clauses.append(f"longest outage {self.outage.seconds:.1f} s{'' if self.outage.over else ' and not over'}")
        if self.worst is not None:
            clauses.append(f"at worst {self.worst.failed:,} of {self.worst.requests:,} in {self.worst.seconds:.0f} s")
        clauses += [_count(races, "idle-close race")] if races else []
        clauses += [f"{turned_away:,} turned away by a stopping server"] if turned_away else []
        clauses += [f"watch resumed {self.watch_resumed:,}×"] if self.watch_resumed else []
        clauses += [f"watch began again {self.watch_relisted:,}×"] if self.watch_relisted else []
        slow = sum(stream.slow for stream in self.streams.values())
        clauses += [f"{slow:,} slower than {SLOW:.0f} s"] if slow else []
        clauses.append(f"slowest {slowest:.2f} s")
        return clauses

    def _broken_promises(self) -> list[str]:
        counts: dict[Kind, int] = {}
        for stream in self.streams.values():
            for kind, number in stream.failures.items():
                counts[kind] = counts.get(kind, 0) + number
        broken = [words(counts[kind]) for kind, words in _PROMISES.items() if counts.get(kind)]
        return [*broken, "no write was acknowledged"] if self._nothing_written else broken

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "verdict": self.verdict,
            "ok": self.ok,
            "failed": self.failed,
            "failed_requests": self.failed_requests,
            "requests": self.requests,
            **asdict(self),
        }


_PROMISES: Mapping[Kind, Callable[[int], str]] = {
    Kind.LOST: lambda n: f"{_count(n, 'acknowledged write')} lost",
    Kind.UNVERIFIED: lambda _: "the acknowledged writes could not be verified",
    Kind.MISSED: lambda n: f"{_count(n, 'watch event')} missed",
    Kind.OVERTAKEN: lambda n: f"{_count(n, 'watch event')} overtaken while the watch began again",
    Kind.DISORDER: lambda n: f"{_count(n, 'watch event')} out of order",
    Kind.NOT_RESUMED: lambda _: "the watch did not resume",
}


def report(
    tally: Tally, *, started: float, ended: float, endpoints: Sequence[str], writes_wanted: bool = False
) -> Report:
    """What the tally says at `ended`. Times in Unix seconds."""
    failed = sum(stream.failures.total() for stream in tally.streams.values())
    return Report(
        started=started,
        seconds=ended - started,
        endpoints=tuple(endpoints),
        streams={name: _stream(tally, name, ended) for name in tally.streams},
        watch_events=tally.watch.events,
        watch_resumed=tally.watch.resumed,
        watch_relisted=tally.watch.relisted,
        watch_down=tally.watch.longest_down,
        writes_wanted=writes_wanted,
        writes_acknowledged=tally.writes_acknowledged,
        writes_lost=sum(stream.failures[Kind.LOST] for stream in tally.streams.values()),
        outage=tally.outage(Stream.NEW, ended),
        worst=tally.worst(),
        slow=tuple(tally.slow),
        slow_left_out=tally.slow_in_all - len(tally.slow),
        failures=tuple(explained(failure, tally.stalls) for failure in tally.failures),
        failures_left_out=failed - len(tally.failures),
        servers=tuple(replace(seen) for seen in tally.servers),
        held_up=tally.longest_stall,
    )


def explained(failure: Failure, stalls: Sequence[Stall]) -> Failure:
    """What took its time while the probe itself was held up says so: an answer, or the end of a connection, may
    have been there unread.

    It is a failure all the same: nothing shows that it was.
    """
    if failure.kind not in _MATTERS_OF_TIME:
        return failure
    end = failure.time + failure.seconds
    held_up = sum(max(0.0, min(end, stall.end) - max(failure.time, stall.start)) for stall in stalls)
    if not held_up:
        return failure
    return replace(failure, detail=f"{failure.detail}; the probe itself was held up for {held_up:.1f} s of it")


_MATTERS_OF_TIME = {Kind.TIMEOUT, Kind.CONNECT_TIMEOUT, Kind.CLOSED, Kind.RESET}


def _stream(tally: Tally, name: Stream, ended: float) -> StreamReport:
    found = tally.streams[name]
    return StreamReport(
        workers=found.workers,
        requests=found.requests,
        failed=found.failures.total(),
        failures=dict(found.failures),
        races=found.races,
        late_races=found.late_races,
        turned_away=found.turned_away,
        reconnects=found.reconnects,
        left_out=found.left_out,
        silence=found.silence,
        slow=found.slow,
        outage=tally.outage(name, ended),
        fails_at_the_end=tally.fails_at_the_end(name),
        **_times(found.latencies),
    )


def _times(latencies: Latencies) -> dict[str, float]:
    return {"p50": latencies.quantile(0.5), "p99": latencies.quantile(0.99), "max": latencies.max}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
