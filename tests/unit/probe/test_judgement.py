"""What the scenarios' judgement of a report lets pass, on reports as the probe makes them."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict

import pytest

from autarky.probe.outcome import Failure, Kind, Stream
from autarky.probe.report import report
from autarky.probe.tally import Tally
from e2e.judgement import (
    FAILED_AT_MOST_ANYWAY,
    LONGEST_OUTAGE,
    LONGEST_OUTAGE_OF_WRITES,
    LONGEST_SILENCE,
    LONGEST_SILENCE_OF_WAITING,
    OVERTAKEN,
    PROMISES,
    WORST_SHARE,
    figures,
    longest_outage,
    nothing_failed,
    nothing_lost,
    only_writes_under_way_failed,
    survived,
    unannounced,
)

SECONDS = 60
A_SECOND = {Stream.NEW: 40, Stream.KEPT: 130, Stream.WRITES: 20, Stream.KEPT_WRITES: 10}
STRICT = [nothing_failed, survived, only_writes_under_way_failed]
JUDGES = [nothing_lost, *STRICT]


def test_the_bounds_are_those_of_the_documents():
    assert (LONGEST_OUTAGE, LONGEST_OUTAGE_OF_WRITES, WORST_SHARE) == (3.0, 12.0, 0.25)


def probed(*bad, written=1000, fails=lambda _stream, _began: False, **counts):
    """The report of a minute at the default rates, as a scenario gets it."""
    tally = Tally()
    tally.writes_acknowledged = written
    tally.saw("v1.36.4 since 2026-11-21T00:00:00Z", "https://a", 0.0)
    for stream, rate in A_SECOND.items():
        for number in range(rate * SECONDS):
            began = number / rate
            if fails(stream, began):
                tally.failed(Failure(began, stream, Kind.REFUSED, "?"), "https://a")
            else:
                tally.answered(stream, "https://a", began, 0.01)
    for failure in bad:
        tally.failed(failure, "https://a")
    for name, number in counts.items():
        setattr(tally.streams[Stream.KEPT], name, number)
    found = report(tally, started=0.0, ended=SECONDS, endpoints=["https://a"], writes_wanted=True)
    return {**json.loads(json.dumps(found.as_dict())), "announced": [(20.0, 25.0)]}


def all_of(stream, seconds, begin=20.0):
    return lambda of, began: of is stream and begin <= began < begin + seconds


def one_in(number, stream, begin=20.0, end=40.0):
    return lambda of, began: of is stream and begin <= began < end and round(began * A_SECOND[of]) % number == 0


@pytest.mark.parametrize("judge", JUDGES)
def test_a_probe_that_met_nothing_passes(judge):
    judge(probed())


@pytest.mark.parametrize("judge", JUDGES)
def test_a_probe_whose_writes_were_not_acknowledged_shows_nothing(judge):
    with pytest.raises(AssertionError):
        judge(probed(written=20))


def changed(stream=Stream.NEW, *, held_up=0.0, **fields):
    """The report of a probe that met nothing, with other numbers for one of its streams."""
    seen = probed()
    of_stream = {**seen["streams"][stream], **fields}
    return {**seen, "held_up": held_up, "streams": {**seen["streams"], stream: of_stream}}


@pytest.mark.parametrize("judge", JUDGES)
def test_a_probe_that_slept_through_what_it_watched_shows_nothing(judge):
    """It asked everything in its first five seconds, and then nothing for ten minutes."""
    tally = Tally()
    tally.writes_acknowledged = 150
    tally.held_up(5.0, 595.0, worth_noting=0.5)
    for stream, rate in A_SECOND.items():
        for number in range(rate * 5):
            tally.answered(stream, "https://a", number / rate, 0.01)
        tally.streams[stream].paced(left_out=rate * 590, silence=590.0)
    found = report(tally, started=0.0, ended=600.0, endpoints=["https://a"], writes_wanted=True)
    assert found.ok, found.verdict
    with pytest.raises(AssertionError):
        judge({**json.loads(json.dumps(found.as_dict())), "announced": []})


@pytest.mark.parametrize("judge", JUDGES)
def test_a_probe_that_did_not_run_for_seconds_shows_nothing(judge):
    judge(changed(held_up=LONGEST_SILENCE))
    with pytest.raises(AssertionError, match=r"did not run for 5\.1 s"):
        judge(changed(held_up=LONGEST_SILENCE + 0.1))


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("stream", list(A_SECOND))
def test_a_stream_that_asked_nothing_for_seconds_shows_nothing(judge, stream):
    """A stream whose workers wait for their answers may begin nothing for as long as these may take."""
    most = LONGEST_SILENCE if stream is Stream.NEW else LONGEST_SILENCE_OF_WAITING
    judge(changed(stream, silence=most))
    with pytest.raises(AssertionError, match=f"{stream} began nothing for {most + 0.1} s"):
        judge(changed(stream, silence=most + 0.1))


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("stream", list(A_SECOND))
def test_a_stream_without_any_request_shows_nothing(judge, stream):
    with pytest.raises(AssertionError, match=f"{stream} asked nothing"):
        judge(changed(stream, requests=0))


@pytest.mark.parametrize("judge", JUDGES)
def test_new_connections_that_wait_for_no_answer_are_at_least_half_of_what_was_due(judge):
    due = A_SECOND[Stream.NEW] * SECONDS
    judge(changed(left_out=due))
    with pytest.raises(AssertionError, match=f"{due} new connections of {2 * due + 1}"):
        judge(changed(left_out=due + 1))
    judge(changed(Stream.WRITES, left_out=10 * due))


def test_the_promises_are_the_kinds_that_are_no_requests():
    assert {*PROMISES, OVERTAKEN} == {kind.value for kind in Kind if not kind.is_request}


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("kind", PROMISES)
def test_a_broken_promise_passes_nowhere(judge, kind):
    with pytest.raises(AssertionError):
        judge(probed(Failure(30.0, Stream.WATCH, Kind(kind), "?")))


def test_what_was_overtaken_is_excused_only_where_the_only_server_was_killed():
    seen = probed(Failure(30.0, Stream.WATCH, Kind(OVERTAKEN), "?"))
    nothing_lost(seen, only_server_killed=True)
    for judge in JUDGES:
        with pytest.raises(AssertionError):
            judge(seen)


@pytest.mark.parametrize("stream", list(A_SECOND))
def test_a_short_outage_is_survived_and_is_not_nothing(stream):
    seen = probed(fails=all_of(stream, 0.9))
    survived(seen)
    with pytest.raises(AssertionError):
        nothing_failed(seen)


@pytest.mark.parametrize(
    ("stream", "most"),
    [
        (Stream.NEW, LONGEST_OUTAGE),
        (Stream.WRITES, LONGEST_OUTAGE_OF_WRITES),
        (Stream.KEPT_WRITES, LONGEST_OUTAGE_OF_WRITES),
    ],
)
def test_an_outage_that_is_too_long_is_not_survived_though_nothing_is_lost(stream, most):
    seen = probed(fails=all_of(stream, most + 0.5))
    assert longest_outage(seen, stream) > most
    nothing_lost(seen)
    with pytest.raises(AssertionError, match=f"{stream}': {most + 0.5}"):
        survived(seen)


@pytest.mark.parametrize("stream", [Stream.NEW, Stream.WRITES, Stream.KEPT_WRITES])
def test_an_outage_that_is_not_over_is_a_loss(stream):
    with pytest.raises(AssertionError, match="in the end they still failed"):
        nothing_lost(probed(fails=all_of(stream, 5.0, begin=SECONDS - 1.0)))


def test_that_every_fifth_new_connection_fails_for_seconds_is_an_outage():
    """Never two in a row, and 4 in a hundred requests."""
    seen = probed(fails=one_in(5, Stream.NEW, end=25.0))
    with pytest.raises(AssertionError, match=r"longest outage 4\.9 s, .* {'new-connections': 4\.[89]"):
        survived(seen)


def test_that_every_second_kept_read_fails_for_seconds_is_too_much_though_no_outage():
    with pytest.raises(AssertionError, match=r"'requests': 2000, 'failed': 650"):
        survived(probed(fails=one_in(2, Stream.KEPT, end=30.0)))


def test_many_failures_that_are_spread_are_too_many():
    with pytest.raises(AssertionError, match="more than 240"):
        survived(probed(fails=one_in(20, Stream.KEPT, begin=0.0, end=60.0)))


def test_a_short_probe_may_have_as_many_failures_as_an_outage_makes():
    few = {**probed(*[Failure(1.0, Stream.KEPT, Kind.TIMEOUT, "?")] * FAILED_AT_MOST_ANYWAY), "requests": 1000}
    survived(few)
    with pytest.raises(AssertionError, match="more than 120"):
        survived({**few, "failed_requests": FAILED_AT_MOST_ANYWAY + 1})


@pytest.mark.parametrize("judge", STRICT)
def test_each_server_may_turn_each_worker_away_once(judge):
    judge(probed(workers=3, turned_away=3))
    with pytest.raises(AssertionError, match="kept-alive 4 were turned away, not 3"):
        judge(probed(workers=3, turned_away=4))


@pytest.mark.parametrize("judge", STRICT)
def test_connections_end_in_mid_request_no_oftener_than_servers_and_load_balancers_restart(judge):
    judge(probed(workers=3, turned_away=3, races=3))
    judge(probed(workers=3, races=6))
    for turned_away, races in ((3, 4), (0, 7)):
        with pytest.raises(AssertionError, match=f"kept-alive {races} were races, not 6"):
            judge(probed(workers=3, turned_away=turned_away, races=races))


@pytest.mark.parametrize("judge", STRICT)
def test_connections_end_late_no_oftener_than_servers_stop(judge):
    judge(probed(workers=3, races=3, late_races=3))
    with pytest.raises(AssertionError, match="kept-alive 4 races were late ones, not 3"):
        judge(probed(workers=3, races=4, late_races=4))
    with pytest.raises(AssertionError, match="kept-alive 2 races were late ones, not 3"):
        judge(probed(workers=3, turned_away=2, races=2, late_races=2))


@pytest.mark.parametrize("judge", STRICT)
def test_what_is_excused_may_not_be_many(judge):
    with pytest.raises(AssertionError, match="were turned away"):
        judge(probed(workers=3, turned_away=500, races=500))


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.STATUS])
@pytest.mark.parametrize("moves", [1, 2])
def test_of_each_writer_as_many_writes_may_fail_as_the_leadership_moves(kind, moves):
    under_way = [
        Failure(30.0 + n, stream, kind, "?") for n in range(moves) for stream in (Stream.WRITES, Stream.KEPT_WRITES)
    ]
    only_writes_under_way_failed(probed(*under_way), moves=moves)
    for stream in (Stream.WRITES, Stream.KEPT_WRITES):
        with pytest.raises(AssertionError):
            only_writes_under_way_failed(probed(*under_way, Failure(40.0, stream, kind, "?")), moves=moves)


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (Stream.KEPT, Kind.TIMEOUT),
        (Stream.NEW, Kind.STATUS),
        (Stream.WATCH, Kind.STATUS),
        (Stream.WRITES, Kind.REFUSED),
    ],
)
def test_while_the_leadership_moves_nothing_else_fails(stream, kind):
    with pytest.raises(AssertionError):
        only_writes_under_way_failed(probed(Failure(30.0, stream, kind, "?")))


@pytest.mark.parametrize("stream", [Stream.NEW, Stream.WRITES, Stream.KEPT_WRITES])
def test_a_short_outage_that_goes_on_in_the_end_is_seen_behind_a_long_one_that_is_over(stream):
    def fails(of, began):
        return all_of(stream, 5.0, 20.0)(of, began) or all_of(stream, 4.0, SECONDS - 3.0)(of, began)

    with pytest.raises(AssertionError, match="in the end they still failed"):
        nothing_lost(probed(fails=fails))
    nothing_lost(probed(fails=all_of(stream, 5.0, 20.0)))


def test_what_was_slow_is_told_unless_a_cut_was_announced(caplog):
    tally = Tally()
    for began, seconds in ((10.0, 1.5), (18.0, 3.0), (24.9, 2.0), (25.1, 2.5)):
        tally.answered(Stream.NEW, "https://a", began, seconds)
    tally.answered(Stream.WRITES, "https://a", 30.0, 1.2)
    seen = {**probed(), "slow": [asdict(each) for each in tally.slow], "slow_left_out": 7}
    assert [each["time"] for each in unannounced(seen)] == [10.0, 25.1, 30.0]
    with caplog.at_level(logging.WARNING):
        nothing_failed(seen)
    assert [record.getMessage() for record in caplog.records] == [
        "slow, with no cut announced: new-connections, 2 times, 2.5 s at 25.1",
        "slow, with no cut announced: writes, 1 times, 1.2 s at 30.0",
        "slow, with no cut announced: and 7 that are not told",
    ]


def test_the_figures_are_of_all_that_failed_and_of_how_long_writes_took():
    asked = SECONDS * sum(A_SECOND.values())
    assert figures(probed()) == (
        f"0 of {asked:,} requests failed, 0 of these writes; 0 writes were slow, the slowest took 0.0 s;"
        " the longest pause was 0.0 s"
    )
    seen = probed(Failure(30.0, Stream.NEW, Kind.REFUSED, "?"), fails=all_of(Stream.KEPT_WRITES, 4.0, 20.0))
    seen["streams"]["writes"] |= {"slow": 3, "max": 2.5}
    assert figures(seen) == (
        f"41 of {asked + 1:,} requests failed, 40 of these writes; 3 writes were slow, the slowest took 2.5 s;"
        " the longest pause was 4.0 s"
    )
