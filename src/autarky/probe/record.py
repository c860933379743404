"""What was measured, and the verdict on it. Pure.

"0 failed" (design §10) means: every new connection and every write succeeded; a request on a kept-alive
connection may meet the idle-close race if its first retry succeeds; a watch may end if it resumes without
a missed event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """One request that a client would have noticed.

    time: Unix seconds. stream: "new", "kept", "write" or "watch". kind: "connect refused", "connect
    timeout", "connect failed", "tls", "reset", "closed without answer", "cut in the middle", "timeout",
    "status", "lost write" or "missed event". dialled: the address. answered_by: what the server said of
    itself, if any did.
    """

    time: float
    stream: str
    kind: str
    detail: str
    dialled: str
    answered_by: str = ""


@dataclass(slots=True)
class StreamRecord:
    """The counts and times (seconds) of one stream."""

    requests: int = 0
    races: int = 0
    latencies: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        ordered = sorted(self.latencies)
        return {
            "requests": self.requests,
            "races": self.races,
            "p50": _quantile(ordered, 0.5),
            "p99": _quantile(ordered, 0.99),
            "max": ordered[-1] if ordered else 0.0,
        }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """The result. `outage` is the longest time from a failed new connection to the next good one."""

    seconds: float
    streams: dict[str, dict[str, Any]]
    failures: tuple[Failure, ...]
    watch_resumed: int
    writes_acknowledged: int
    outage: float

    @property
    def requests(self) -> int:
        return sum(stream["requests"] for stream in self.streams.values())

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def verdict(self) -> str:
        """One line."""
        races = sum(stream["races"] for stream in self.streams.values())
        slowest = max((stream["max"] for stream in self.streams.values()), default=0.0)
        parts = [f"{self.seconds:.0f} s", f"{races} idle-close races", f"watch resumed {self.watch_resumed}×"]
        parts += [f"slowest {slowest:.2f} s"] + ([f"longest outage {self.outage:.1f} s"] if self.outage else [])
        return f"{self.failed:,} of {self.requests:,} requests failed ({', '.join(parts)})"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "requests": self.requests, "failed": self.failed, "verdict": self.verdict}


def longest_outage(outcomes: Sequence[tuple[float, bool]]) -> float:
    """The longest stretch of (time, succeeded) from a first failure to the next success, in seconds.

    A stretch that has not ended lasts to the last outcome.
    """
    longest, since = 0.0, None
    for time, succeeded in outcomes:
        if not succeeded and since is None:
            since = time
        elif succeeded and since is not None:
            longest, since = max(longest, time - since), None
    if since is not None and outcomes:
        longest = max(longest, outcomes[-1][0] - since)
    return longest


def lost_writes(acknowledged: Sequence[int], found: int) -> list[int]:
    """Acknowledged values that the store no longer knows: those above what is found in the end."""
    return [value for value in acknowledged if value > found]


def missed_events(acknowledged: Sequence[int], seen: Sequence[int]) -> list[int]:
    """Acknowledged values that a watch from before the first write should have shown, and did not.

    A watch may coalesce nothing: every acknowledged write is one event of the object.
    """
    return sorted(set(acknowledged) - set(seen))
