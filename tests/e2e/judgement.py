"""What a probe's report must say, of an operation that nobody may notice and of one that hurts. Pure: no cluster.

A report is the JSON of `autarky bench probe`, and `announced`: the spans of time in which the test itself cut power or
the like (harness.py). What was slow outside of them is logged, and fails nothing; the run tells it in its end
(conftest.py).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST_OUTAGE = 3.0
"""Seconds for which new connections may fail after a power cut."""
LONGEST_OUTAGE_OF_WRITES = 12.0
"""The same for writes. They go one after the other and have 5 s each: two in a row may hang, with a server whose power
is gone and with an etcd that elects its leader, and the third one succeeds."""
WORST_SHARE = 0.25
"""Of the requests of any ten seconds. No new connection for LONGEST_OUTAGE and nothing else going well meanwhile is
about that: those on kept connections hang, and so are few."""
FAILED_SHARE = 0.02
"""Of all requests; seen were up to 1.1 % (docs/high-availability.md)."""
FAILED_AT_MOST_ANYWAY = 120
"""As many as there are new connections in LONGEST_OUTAGE: of a short probe they are more than that share."""
PROMISES = (
    "acknowledged-write-lost",
    "writes-not-verified",
    "watch-event-missed",
    "watch-event-out-of-order",
    "watch-not-resumed",
)
"""What a client may rely on whatever fails: the kinds of failure that are no request's, but for OVERTAKEN, on which it
may rely where another server serves."""
OVERTAKEN = "watch-event-overtaken"
"""A watch that must begin again from a list shows no event of a write that the next one has covered. It must do so
where the only server was killed, which knew the events."""
LONGEST_SILENCE = 5.0
"""Seconds for which a probe may ask nothing: it meets no outage of that time. Missed requests are never caught up with,
so a shorter bound would be better for what is looked for; but a probe runs beside a cluster that starts, on two
processors, and one that was not scheduled for some seconds would fail what it watched."""
LONGEST_SILENCE_OF_WAITING = LONGEST_SILENCE + 6.0
"""The same for workers that wait for their answers: one has 5 s, and who refused it is asked for one more second."""
SLOW = "slow, with no cut announced"
NEW, KEPT, WRITES, KEPT_WRITES = "new-connections", "kept-alive", "writes", "kept-writes"
Report = Mapping[str, Any]

_log = logging.getLogger(__name__)


def nothing_failed(report: Report, *, writes: int = 20) -> None:
    """And something was tried: more than so many writes were acknowledged."""
    kinds = Counter((failure["stream"], failure["kind"]) for failure in report["failures"])
    assert report["failed"] == 0, f"{report['verdict']}: {dict(kinds)}; at first {report['failures'][:3]}"
    assert report["writes_acknowledged"] > writes, report
    _asked_all_the_time(report)
    _few_are_excused(report)
    _tell_what_was_slow(report)


def only_writes_under_way_failed(report: Report, *, moves: int = 1) -> None:
    """etcd drops what is proposed while its leadership moves: a write that is under way just then gets no answer in
    time, or an error. Each of the two writers has one under way. Nothing else fails, and nothing that was acknowledged
    is lost; what is excused of servers that stop is no more than elsewhere. moves: of the leadership."""
    nothing_lost(report)
    failed = Counter(failure["stream"] for failure in report["failures"])
    assert failed.keys() <= {WRITES, KEPT_WRITES}, report
    assert all(number <= moves for number in failed.values()), report
    assert {failure["kind"] for failure in report["failures"]} <= {"timeout", "http-status"}, report
    _few_are_excused(report)


def nothing_lost(report: Report, *, only_server_killed: bool = False) -> None:
    """Whatever failed meanwhile: what was acknowledged is there and was seen to be, the watch has shown all of it,
    and in the end the API served again. Something was tried: writes were acknowledged."""
    promises = PROMISES if only_server_killed else (*PROMISES, OVERTAKEN)
    kinds = Counter[str]()
    for stream in report["streams"].values():
        kinds.update(stream["failures"])
    broken = {kind: kinds[kind] for kind in promises if kinds[kind]}
    assert not broken, f"{report['verdict']}: {broken}; at first {report['failures'][:3]}"
    assert report["writes_lost"] == 0, report
    assert report["writes_acknowledged"] > 20, report
    _asked_all_the_time(report)
    going_on = [name for name in (NEW, WRITES, KEPT_WRITES) if not _is_over(report, name)]
    assert not going_on, f"{report['verdict']}: in the end they still failed: {going_on}"


def survived(report: Report) -> None:
    """Requests failed for a moment at most, never many, and nothing was lost."""
    nothing_lost(report)
    outages = {name: longest_outage(report, name) for name in (NEW, WRITES, KEPT_WRITES)}
    assert outages[NEW] <= LONGEST_OUTAGE, f"{report['verdict']}: {outages}"
    assert max(outages.values()) <= LONGEST_OUTAGE_OF_WRITES, f"{report['verdict']}: {outages}"
    worst = report["worst"]
    assert worst is None or worst["failed"] <= WORST_SHARE * worst["requests"], f"{report['verdict']}: {worst}"
    most = max(FAILED_AT_MOST_ANYWAY, FAILED_SHARE * report["requests"])
    assert report["failed_requests"] <= most, f"{report['verdict']}: more than {most:.0f}"
    _few_are_excused(report)
    _tell_what_was_slow(report)


def longest_outage(report: Report, stream: str = NEW) -> float:
    """Seconds from a request that failed to the next that did not, by when they began."""
    outage = report["streams"][stream]["outage"]
    return 0.0 if outage is None else float(outage["seconds"])


def figures(report: Report) -> str:
    """What clients noticed, whatever is judged of it."""
    streams = report["streams"]
    writes = [streams[name] for name in (WRITES, KEPT_WRITES)]
    failed, slow = (sum(one[what] for one in writes) for what in ("failed", "slow"))
    pause = max(longest_outage(report, name) for name in (NEW, WRITES, KEPT_WRITES))
    return (
        f"{report['failed_requests']:,} of {report['requests']:,} requests failed, {failed:,} of these writes;"
        f" {slow:,} writes were slow, the slowest took {max(one['max'] for one in writes):.1f} s;"
        f" the longest pause was {pause:.1f} s"
    )


def _is_over(report: Report, stream: str) -> bool:
    """Not the longest outage alone, after which there may have been another."""
    found = report["streams"][stream]
    return not found["fails_at_the_end"] and (found["outage"] is None or bool(found["outage"]["over"]))


def _asked_all_the_time(report: Report) -> None:
    """Or what happened in the rest of the time was seen by nobody: also during announced cuts, which are what a probe
    is there for. New connections wait for no answer, so that no server can hold them up."""
    held_up = report["held_up"]
    assert held_up <= LONGEST_SILENCE, f"{report['verdict']}: the probe itself did not run for {held_up:.1f} s"
    for name in (NEW, KEPT, WRITES, KEPT_WRITES):
        stream = report["streams"][name]
        silence, most = stream["silence"], LONGEST_SILENCE if name == NEW else LONGEST_SILENCE_OF_WAITING
        assert stream["requests"], f"{report['verdict']}: {name} asked nothing"
        assert silence <= most, f"{report['verdict']}: {name} began nothing for {silence:.1f} s"
    begun, left_out = report["streams"][NEW]["requests"], report["streams"][NEW]["left_out"]
    due = begun + left_out
    assert begun >= left_out, f"{report['verdict']}: only {begun} new connections of {due} that were due were begun"


def _few_are_excused(report: Report) -> None:
    """Each server that stops turns each worker away once at most. It may close the connection instead, and a load
    balancer that is started anew closes each once: that is as many races again. Late ones are of servers alone, which
    let a request lie while they stop: a balancer that goes leaves none unread."""
    for name, stream in report["streams"].items():
        most = stream["workers"] * len(report["servers"])
        turned_away, races, late = stream["turned_away"], stream["races"], stream["late_races"]
        assert turned_away <= most, f"{report['verdict']}: of {name} {turned_away} were turned away, not {most}"
        assert turned_away + races <= 2 * most, f"{report['verdict']}: of {name} {races} were races, not {2 * most}"
        assert turned_away + late <= most, f"{report['verdict']}: of {name} {late} races were late ones, not {most}"


def _tell_what_was_slow(report: Report) -> None:
    by_stream: dict[str, list[Mapping[str, Any]]] = {}
    for slow in unannounced(report):
        by_stream.setdefault(slow["stream"], []).append(slow)
    for stream, found in sorted(by_stream.items()):
        worst = max(found, key=lambda slow: slow["seconds"])
        _log.warning("%s: %s, %d times, %.1f s at %.1f", SLOW, stream, len(found), worst["seconds"], worst["time"])
    if report["slow_left_out"]:
        _log.warning("%s: and %d that are not told", SLOW, report["slow_left_out"])


def unannounced(report: Report) -> Iterator[Mapping[str, Any]]:
    """What was slow at a time for which the test had announced nothing."""
    for slow in report["slow"]:
        begin, end = slow["time"], slow["time"] + slow["seconds"]
        if not any(begin <= until and since <= end for since, until in report["announced"]):
            yield slow
