"""The verdict as a pure function over what was seen."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.probe.outages import BAD_SHARE, PerSecond, Stretch, longest_outage, worst_stretch
from autarky.probe.outcome import Failure, Kind, Stream
from autarky.probe.report import explained, report
from autarky.probe.tally import MAX_FAILURES, MAX_SLOW, WITH_OUTAGES, Latencies, Stall, Tally

PROPERTY = settings(deadline=None, max_examples=50)

REQUESTS = [Stream.NEW, Stream.KEPT, Stream.WRITES, Stream.KEPT_WRITES]
REQUEST_KINDS = [kind for kind in Kind if kind.is_request]
PROMISES = [kind for kind in Kind if not kind.is_request]
TIMES = st.integers(0, 1000).map(float)

successes = st.tuples(st.sampled_from(REQUESTS), TIMES, st.floats(0.0001, 30))
broken_requests = st.builds(
    Failure, TIMES, st.sampled_from(REQUESTS), st.sampled_from(REQUEST_KINDS), st.just("?"), st.floats(0, 30)
)
broken_promises = st.builds(Failure, TIMES, st.sampled_from(list(Stream)), st.sampled_from(PROMISES), st.just("?"))


def judged(outcomes, *, writes_wanted=False, writes_acknowledged=0, **counts):
    tally = Tally()
    tally.writes_acknowledged = writes_acknowledged
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            tally.failed(outcome, "https://a")
        else:
            tally.answered(outcome[0], "https://a", outcome[1], outcome[2])
    for stream in REQUESTS:
        for name, number in counts.items():
            setattr(tally.streams[stream], name, number)
    return report(tally, started=0.0, ended=1000.0, endpoints=["https://a"], writes_wanted=writes_wanted)


# --- the verdict -----------------------------------------------------------------------------------------


@PROPERTY
@given(st.lists(successes, min_size=1), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_nothing_failed_when_everything_succeeded_whatever_races_were_met(outcomes, races, turned_away, reconnects):
    found = judged(outcomes, races=races, turned_away=turned_away, reconnects=reconnects)
    assert (found.ok, found.failed, found.outage) == (True, 0, None)
    assert found.verdict.startswith(f"0 of {len(outcomes)} requests failed (1000 s,")
    assert ("race" in found.verdict) == (races > 0)


@PROPERTY
@given(st.lists(successes), st.lists(broken_requests), st.lists(broken_promises))
def test_every_failure_counts_once(good, bad, promises):
    found = judged([*good, *bad, *promises])
    assert found.failed == len(bad) + len(promises)
    assert found.failed_requests == len(bad)
    assert found.requests == len(good) + len(bad)
    assert found.ok == (not bad and not promises and len(good) > 0)
    assert found.verdict.startswith(f"{len(bad)} of {found.requests} requests failed (")


@PROPERTY
@given(st.lists(st.one_of(successes, broken_requests, broken_promises), max_size=6), st.randoms(use_true_random=False))
def test_the_verdict_does_not_depend_on_the_order_of_what_happened(outcomes, random):
    shuffled = random.sample(outcomes, len(outcomes))
    assert judged(outcomes).verdict == judged(shuffled).verdict


@PROPERTY
@given(st.lists(successes), st.sampled_from(PROMISES))
def test_a_broken_promise_is_in_the_verdict_though_no_request_failed(outcomes, kind):
    words = {
        Kind.LOST: "1 acknowledged write lost",
        Kind.UNVERIFIED: "the acknowledged writes could not be verified",
        Kind.MISSED: "1 watch event missed",
        Kind.OVERTAKEN: "1 watch event overtaken while the watch began again",
        Kind.DISORDER: "1 watch event out of order",
        Kind.NOT_RESUMED: "the watch did not resume",
    }
    found = judged([*outcomes, Failure(1.0, Stream.WATCH, kind, "?")])
    assert found.verdict.endswith(f"; {words[kind]}")
    assert not found.ok


def test_a_probe_that_asked_nothing_has_shown_nothing():
    assert not judged([]).ok


@PROPERTY
@given(st.lists(successes, min_size=1), st.integers(0, 2))
def test_a_probe_whose_writes_nobody_acknowledged_has_shown_nothing(outcomes, acknowledged):
    found = judged(outcomes, writes_wanted=True, writes_acknowledged=acknowledged)
    assert found.ok == (acknowledged > 0)
    assert found.verdict.endswith("; no write was acknowledged") == (acknowledged == 0)


def test_a_probe_that_is_not_to_write_needs_no_acknowledged_write():
    found = judged([(Stream.KEPT, 1.0, 0.1)], writes_wanted=False)
    assert found.ok
    assert "acknowledged" not in found.verdict


def test_numbers_are_readable():
    found = judged(itertools.repeat((Stream.KEPT, 1.0, 0.21), 5986), races=1)
    assert found.verdict == "0 of 5,986 requests failed (1000 s, 4 idle-close races, slowest 0.21 s)"


def test_the_worst_seconds_are_in_the_verdict():
    found = judged([*[(Stream.KEPT, float(second), 0.1) for second in range(30)], *_failures([12.0, 17.0])])
    assert found.worst == Stretch(start=8.0, seconds=10.0, requests=12, failed=2)
    assert "at worst 2 of 12 in 10 s" in found.verdict


def _failures(times, stream=Stream.NEW):
    return [Failure(time, stream, Kind.REFUSED, "?") for time in times]


def test_what_was_slow_is_told_one_by_one_and_is_no_failure():
    tally = Tally()
    tally.answered(Stream.KEPT, "https://a", 10.0, 1.0)
    tally.answered(Stream.WRITES, "https://a", 20.0, 1.1)
    tally.shown(30.0, 1.2)  # of the watch
    found = report(tally, started=0.0, ended=60.0, endpoints=["https://a"])
    reported = [(slow.time, slow.stream, slow.seconds) for slow in found.slow]
    assert reported == [(20.0, Stream.WRITES, 1.1), (30.0, Stream.WATCH, 1.2)]
    assert [found.streams[stream].slow for stream in Stream] == [0, 0, 1, 0, 1]
    assert (found.ok, found.failed, found.slow_left_out) == (True, 0, 0)
    assert "2 slower than 1 s," in found.verdict


def test_only_the_first_slow_requests_are_told_and_all_are_counted():
    found = judged([(Stream.KEPT, 1.0, 2.0)] * (MAX_SLOW + 5))
    assert (len(found.slow), found.slow_left_out, found.streams[Stream.KEPT].slow) == (MAX_SLOW, 5, MAX_SLOW + 5)


def test_only_the_first_failures_are_kept_in_full_and_all_are_counted():
    found = judged([Failure(1.0, Stream.NEW, Kind.REFUSED, "?")] * (MAX_FAILURES + 5))
    assert (len(found.failures), found.failures_left_out, found.failed) == (MAX_FAILURES, 5, MAX_FAILURES + 5)


def test_the_report_is_json():
    found = judged([(Stream.NEW, 1.0, 0.1), Failure(2.0, Stream.NEW, Kind.REFUSED, "?")])
    read = json.loads(json.dumps(found.as_dict()))
    assert read["streams"]["new-connections"]["failures"] == {"connection-refused": 1}
    assert read["failures"][0]["kind"] == "connection-refused"
    assert read["outage"] == {"endpoint": "https://a", "start": 2.0, "seconds": 998.0, "over": False}


# --- outages ---------------------------------------------------------------------------------------------


TENTHS = st.integers(0, 100).map(lambda tenths: tenths / 10)


def naive_outage(failed, succeeded, end):
    """By trying every failure, alone and with every later one: with that where the seconds from the one to the other
    are bad, as far as anything was asked in them."""

    def is_bad(second):
        lost, done = (sum(1 for time in times if int(time) == second) for times in (failed, succeeded))
        return lost >= BAD_SHARE * (lost + done)

    def until(last):
        return min([time for time in succeeded if time > last], default=max(end, last))

    pairs = [
        (first, last)
        for first in failed
        for last in failed
        if first == last or (first < last and all(map(is_bad, range(int(first), int(last) + 1))))
    ]
    return max((until(last) - first for first, last in pairs), default=None)


@PROPERTY
@given(st.lists(TENTHS), st.lists(TENTHS), st.integers(1, 12))
def test_the_longest_outage_is_until_a_success_or_until_seconds_with_few_failures(failed, succeeded, times):
    found = longest_outage("https://a", failed, succeeded * times, 10.0)
    assert (found.seconds if found else None) == naive_outage(failed, succeeded * times, 10.0)


@PROPERTY
@given(st.lists(TIMES, min_size=1), st.lists(TIMES))
def test_an_outage_begins_with_a_failure_and_ends_with_a_success_or_the_probe(failed, succeeded):
    found = longest_outage("https://a", failed, succeeded, 1000.0)
    assert found.start in failed
    assert found.start + found.seconds in (succeeded if found.over else [1000.0])


@pytest.mark.parametrize("stream", WITH_OUTAGES)
def test_every_second_request_fails_for_a_minute_is_an_outage_of_a_minute(stream):
    tally = Tally()
    for number in range(100 * 20):  # twenty a second
        began = 100.0 + number / 20
        if 30 <= number / 20 < 90 and number % 2:
            tally.failed(Failure(began, stream, Kind.REFUSED, "?"), "https://a")
        else:
            tally.answered(stream, "https://a", began, 0.01)
    found = report(tally, started=100.0, ended=200.0, endpoints=["https://a"])
    outage = found.streams[stream].outage
    assert (outage.endpoint, outage.over) == ("https://a", True)
    assert outage.start == 130.05
    assert 59.8 < outage.seconds < 60
    assert (found.outage == outage) == (stream is Stream.NEW)
    assert (found.worst.seconds, found.worst.requests, found.worst.failed) == (10.0, 200, 100)


def test_one_failure_in_a_second_of_many_good_requests_is_no_longer_outage_than_it_was():
    good = [10 + number / 40 for number in range(80)]
    bad = [10.51, 11.51]  # one of 41 in either second
    assert longest_outage("https://a", bad, good, 60).seconds < 0.02


def test_the_kept_reads_have_no_outage_of_their_own():
    found = judged(_failures([1.0], Stream.KEPT))
    assert found.streams[Stream.KEPT].outage is None
    assert found.worst.failed == 1


def test_a_success_between_two_failures_ends_an_outage():
    found = longest_outage("https://a", [10, 11, 30, 31, 32], [20, 33, 34], 40)
    assert (found.start, found.seconds, found.over) == (10, 10, True)


def test_an_outage_is_by_when_connections_began_not_by_when_they_failed():
    # The dial of second 10 hung for 5 s; one that began in second 12 was served at once.
    assert longest_outage("https://a", [10.0], [12.0], 60).seconds == 2


def test_outages_of_two_endpoints_are_apart():
    tally = Tally()
    tally.failed(Failure(10.0, Stream.NEW, Kind.REFUSED, "?"), "https://a")
    for second in range(10, 20):
        tally.answered(Stream.NEW, "https://b", second, 0.01)
    found = tally.outage(Stream.NEW, 60.0)
    assert (found.endpoint, found.seconds, found.over) == ("https://a", 50.0, False)


# --- the worst seconds -----------------------------------------------------------------------------------


def naive_worst(first, requests, failed, window):
    """By trying all."""
    length = min(window, len(requests))
    found = [
        (sum(failed[at : at + length]), sum(requests[at : at + length])) for at in range(len(requests) - length + 1)
    ]
    return max((lost / asked for lost, asked in found if lost), default=None)


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30), st.integers(1, 12))
def test_the_worst_seconds_are_those_with_the_highest_share_of_failures(seconds, window):
    requests, failed = [well + bad for well, bad in seconds], [bad for _, bad in seconds]
    found = worst_stretch(100, requests, failed, window)
    assert (found.failed / found.requests if found else None) == naive_worst(100, requests, failed, window)
    if found:
        at = int(found.start) - 100
        assert sum(requests[at : at + int(found.seconds)]) == found.requests
        assert sum(failed[at : at + int(found.seconds)]) == found.failed
        assert found.seconds == min(window, len(seconds))


@PROPERTY
@given(st.lists(st.tuples(TIMES, st.booleans())), st.randoms(use_true_random=False))
def test_requests_may_be_noted_in_any_order(noted, random):
    ordered, shuffled = PerSecond(), PerSecond()
    for began, failed in sorted(noted):
        ordered.note(began, failed=failed)
    for began, failed in random.sample(noted, len(noted)):
        shuffled.note(began, failed=failed)
    assert shuffled.worst() == ordered.worst()
    if all(failed for _, failed in noted) and noted:
        assert shuffled.worst(10**6).failed == len(noted)


def test_failures_that_are_far_apart_are_worst_in_full_stretches_only():
    """The last second alone would be a share of 1."""
    assert worst_stretch(0, [10] * 20, [0] * 19 + [10], 10) == Stretch(10.0, 10.0, 100, 10)


# --- times -----------------------------------------------------------------------------------------------


@PROPERTY
@given(st.lists(st.floats(0.0001, 60), min_size=1), st.floats(0, 1))
def test_quantiles_are_exact_to_two_percent(seconds, share):
    latencies = Latencies()
    for each in seconds:
        latencies.note(each)
    exact = sorted(seconds)[max(0, math.ceil(share * len(seconds)) - 1)]
    assert exact * 0.99999 <= latencies.quantile(share) <= exact * 1.0201
    assert latencies.max == max(seconds)


def test_of_nothing_all_times_are_0():
    assert (Latencies().quantile(0.5), Latencies().max) == (0, 0)


# --- who answered, and stalls ----------------------------------------------------------------------------


def test_a_server_is_seen_from_its_first_to_its_last_answer():
    tally = Tally()
    for server, at in (("old", 1), ("old", 5), ("", 6), ("new", 4), ("new", 9)):
        tally.saw(server, "https://a", at)
    assert [(seen.server, seen.first, seen.last) for seen in tally.servers] == [("old", 1, 5), ("new", 4, 9)]


def test_a_timeout_while_the_probe_itself_was_held_up_says_so():
    failure = Failure(100.0, Stream.NEW, Kind.TIMEOUT, "silence", seconds=5.0)
    stalls = [Stall(90.0, 101.0), Stall(103.0, 104.5), Stall(106.0, 108.0)]
    assert explained(failure, stalls).detail == "silence; the probe itself was held up for 2.5 s of it"
    assert explained(failure, []) == failure


def test_the_end_of_a_connection_while_the_probe_itself_was_held_up_says_so():
    failure = Failure(100.0, Stream.KEPT, Kind.CLOSED, "closed, 2.00 s after the request", seconds=2.0)
    reported = "closed, 2.00 s after the request; the probe itself was held up for 1.5 s of it"
    assert explained(failure, [Stall(99.0, 101.5)]).detail == reported


def test_a_refusal_is_no_matter_of_time():
    failure = Failure(100.0, Stream.NEW, Kind.REFUSED, "nothing listens there", seconds=5.0)
    assert explained(failure, [Stall(90.0, 110.0)]) == failure


def test_short_stalls_are_measured_but_not_kept():
    tally = Tally()
    tally.held_up(1.0, 1.2, worth_noting=0.5)
    assert (tally.longest_stall, tally.stalls) == (1.2 - 1.0, [])
