"""The verdict is a pure function over what was recorded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.probe.record import Failure, Report, StreamRecord, longest_outage, lost_writes, missed_events

OUTCOMES = st.lists(st.booleans(), max_size=60).map(lambda good: [(float(i), ok) for i, ok in enumerate(good)])


def _report(**fields: object) -> Report:
    stream = {"requests": 10, "races": 1, "p50": 0.01, "p99": 0.02, "max": 0.25}
    values: dict[str, object] = {
        "seconds": 12.3,
        "streams": {"new": stream, "kept": stream},
        "failures": (),
        "watch_resumed": 2,
        "writes_acknowledged": 5,
        "outage": 0.0,
        **fields,
    }
    return Report(**values)  # type: ignore[arg-type] # made from keywords


def test_the_verdict_is_one_line_with_all_counts() -> None:
    assert _report().verdict == "0 of 20 requests failed (12 s, 2 idle-close races, watch resumed 2×, slowest 0.25 s)"


def test_failures_and_the_longest_outage_are_in_the_verdict() -> None:
    failure = Failure(1.0, "new", "connect refused", "", "127.0.0.1:6443")
    verdict = _report(failures=(failure,), outage=3.21).verdict
    assert verdict.startswith("1 of 20 requests failed")
    assert "longest outage 3.2 s" in verdict


@given(OUTCOMES)
def test_without_a_failure_there_is_no_outage(outcomes: list[tuple[float, bool]]) -> None:
    assert (longest_outage(outcomes) > 0) <= any(not ok for _, ok in outcomes)


@given(OUTCOMES)
def test_an_outage_is_as_long_as_the_longest_run_of_failures_says(outcomes: list[tuple[float, bool]]) -> None:
    longest, since = 0.0, None
    for number, (time, ok) in enumerate(outcomes):
        if not ok:
            since = time if since is None else since
            end = outcomes[number + 1][0] if number + 1 < len(outcomes) else time
            longest = max(longest, end - since)
        else:
            since = None
    assert longest_outage(outcomes) == longest


@given(st.lists(st.integers(1, 100), unique=True), st.integers(0, 100))
def test_writes_above_what_is_found_are_lost(acknowledged: list[int], found: int) -> None:
    assert set(lost_writes(acknowledged, found)) == {value for value in acknowledged if value > found}


@given(st.sets(st.integers(1, 50)), st.sets(st.integers(0, 60)))
def test_every_acknowledged_write_must_be_seen_by_the_watch(acknowledged: set[int], seen: set[int]) -> None:
    assert missed_events(sorted(acknowledged), sorted(seen)) == sorted(acknowledged - seen)


def test_quantiles_of_nothing_are_zero() -> None:
    assert StreamRecord().summary() == {"requests": 0, "races": 0, "p50": 0.0, "p99": 0.0, "max": 0.0}
