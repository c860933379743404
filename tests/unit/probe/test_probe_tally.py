"""The verdict as a pure function over what was seen."""

from __future__ import annotations

import itertools
import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.probe.outcome import Failure, Kind, Stream
from autarky.probe.report import explained, report
from autarky.probe.tally import MAX_FAILURES, Latencies, Stall, Tally, longest_outage

PROPERTY = settings(deadline=None, max_examples=50, derandomize=True)

REQUESTS = [Stream.NEW, Stream.KEPT, Stream.WRITES]
REQUEST_KINDS = [kind for kind in Kind if kind.is_request]
PROMISES = [kind for kind in Kind if not kind.is_request]
TIMES = st.integers(0, 1000).map(float)

successes = st.tuples(st.sampled_from(REQUESTS), TIMES, st.floats(0.0001, 30))
broken_requests = st.builds(
    Failure, TIMES, st.sampled_from(REQUESTS), st.sampled_from(REQUEST_KINDS), st.just("?"), st.floats(0, 30)
)
broken_promises = st.builds(Failure, TIMES, st.sampled_from(list(Stream)), st.sampled_from(PROMISES), st.just("?"))


def judged(outcomes, **counts):
    tally = Tally()
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            tally.failed(outcome, "https://a")
        else:
            tally.answered(outcome[0], "https://a", outcome[1], outcome[2])
    for stream in REQUESTS:
        for name, number in counts.items():
            setattr(tally.streams[stream], name, number)
    return report(tally, started=0.0, ended=1000.0, endpoints=["https://a"])


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
        Kind.DISORDER: "1 watch event out of order",
        Kind.NOT_RESUMED: "the watch did not resume",
    }
    found = judged([*outcomes, Failure(1.0, Stream.WATCH, kind, "?")])
    assert found.verdict.endswith(f"; {words[kind]}")
    assert not found.ok


def test_a_probe_that_asked_nothing_has_shown_nothing():
    assert not judged([]).ok


def test_numbers_are_readable():
    found = judged(itertools.repeat((Stream.KEPT, 1.0, 0.21), 5986), races=1)
    assert found.verdict == "0 of 5,986 requests failed (1000 s, 3 idle-close races, slowest 0.21 s)"


def test_only_the_first_failures_are_kept_whole_and_all_are_counted():
    found = judged([Failure(1.0, Stream.NEW, Kind.REFUSED, "?")] * (MAX_FAILURES + 5))
    assert (len(found.failures), found.failures_left_out, found.failed) == (MAX_FAILURES, 5, MAX_FAILURES + 5)


def test_the_report_is_json():
    found = judged([(Stream.NEW, 1.0, 0.1), Failure(2.0, Stream.NEW, Kind.REFUSED, "?")])
    read = json.loads(json.dumps(found.as_dict()))
    assert read["streams"]["new-connections"]["failures"] == {"connection-refused": 1}
    assert read["failures"][0]["kind"] == "connection-refused"
    assert read["outage"] == {"endpoint": "https://a", "start": 2.0, "seconds": 998.0, "over": False}


# --- outages ---------------------------------------------------------------------------------------------


def naive_outage(failed, succeeded, end):
    """By trying every failure."""
    return max((min([s for s in succeeded if s > f], default=max(end, f)) - f for f in failed), default=None)


@PROPERTY
@given(st.lists(TIMES), st.lists(TIMES))
def test_the_longest_outage_is_from_a_failure_to_the_next_success(failed, succeeded):
    found = longest_outage("https://a", failed, succeeded, 1000.0)
    assert (found.seconds if found else None) == naive_outage(failed, succeeded, 1000.0)


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
    found = tally.outage(60.0)
    assert (found.endpoint, found.seconds, found.over) == ("https://a", 50.0, False)


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


def test_a_refusal_is_no_matter_of_time():
    failure = Failure(100.0, Stream.NEW, Kind.REFUSED, "nothing listens there", seconds=5.0)
    assert explained(failure, [Stall(90.0, 110.0)]) == failure


def test_short_stalls_are_measured_but_not_kept():
    tally = Tally()
    tally.held_up(1.0, 1.2, worth_noting=0.5)
    assert (tally.longest_stall, tally.stalls) == (1.2 - 1.0, [])
