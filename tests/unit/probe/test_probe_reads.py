"""Reads against a real HTTPS server that misbehaves: everything is reported as what it is."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.probe import Kind, Rates, Stream
from autarky.probe.kept import APART, LATEST, Farewells, is_race
from autarky.probe.lately import LATELY, SlowestLately
from autarky.probe.outcome import Fault
from unit.probe.misbehaving import LATE, ApiServer, kept_reads, new_reads
from unit.probe.probing import KEPT_ONLY, LATER, NEW_ONLY, done, happened, time_for

# --- new connections -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "kind", "detail"),
    [
        ("reset", Kind.RESET, "reset before any answer"),
        ("close", Kind.CLOSED, "closed before any answer"),
        ("cut", Kind.CLOSED, "closed in the midst of the answer"),
        ("stall", Kind.TIMEOUT, "silence before any answer"),
        ("garbage", Kind.MALFORMED, "the answer is not HTTP/1.1: it begins with 'SSH-2.0-OpenSSH_9.2p1'"),
        ("status 503", Kind.STATUS, "503 ServiceUnavailable: made 503"),
        ("turn away", Kind.STATUS, "429 TooManyRequests: made 429"),
        ("shut down", Kind.STATUS, "503 ServiceUnavailable: apiserver is shutting down"),
    ],
)
async def test_a_new_connection_without_a_good_answer_is_a_failure(server, make_probe, until, what, kind, detail):
    probe = make_probe(server, rates=NEW_ONLY, timeout=time_for(what))
    async with probe:
        await until(happened(server.misbehave(what, when=new_reads)))
        await until(done(probe, Stream.NEW))
    failure = probe.report().failures[0]
    assert (failure.stream, failure.kind, failure.detail) == (Stream.NEW, kind, detail)
    assert abs(failure.time - time.time()) < 5
    assert failure.address == f"127.0.0.1:{server.port}"
    assert failure.local.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("what", "kind", "detail"),
    [
        ("reset", Kind.RESET, "reset in the TLS handshake"),
        ("close", Kind.CLOSED, "closed in the TLS handshake"),
        ("stall", Kind.TIMEOUT, "silence in the TLS handshake"),
    ],
)
async def test_a_broken_handshake_is_told_from_a_broken_answer(server, make_probe, until, what, kind, detail):
    probe = make_probe(server, rates=NEW_ONLY, timeout=time_for(what))
    async with probe:
        await until(done(probe, Stream.NEW))
        server.handshakes = what
        await until(lambda: probe.report().failed)
        server.handshakes = ""
        await until(done(probe, Stream.NEW))
    assert (kind, detail) in {(failure.kind, failure.detail) for failure in probe.report().failures}


async def test_a_refused_connection_is_an_outage_until_the_first_that_succeeds(server, make_probe, until):
    probe = make_probe(server, rates=NEW_ONLY)
    async with probe:
        await until(done(probe, Stream.NEW))
        server.stop_listening()
        begin = time.time()
        await asyncio.sleep(0.2)
        await server.listen()
        await until(done(probe, Stream.NEW))
    report = probe.report()
    assert (Kind.REFUSED, "nothing listens there") in {(failure.kind, failure.detail) for failure in report.failures}
    assert report.outage.over
    assert begin - 0.1 <= report.outage.start < begin + 3
    assert 0.1 <= report.outage.seconds < 3
    assert f"longest outage {report.outage.seconds:.1f} s," in report.verdict
    assert not report.ok


async def test_a_request_that_hangs_holds_up_no_other(server, make_probe, until):
    probe = make_probe(server, rates=NEW_ONLY, timeout=LATER)
    async with probe:
        await until(happened(server.misbehave("stall", when=new_reads)))
        await until(done(probe, Stream.NEW, 10))
        assert probe.report().failed == 0  # it still hangs
    assert probe.report().failed >= 1


async def test_each_endpoint_must_serve_for_itself(server, server_tls, make_probe, until):
    async with ApiServer(server_tls) as other:
        probe = make_probe(server, other, rates=NEW_ONLY)
        async with probe:
            await until(done(probe, Stream.NEW))
            other.stop_listening()
            await until(lambda: probe.report().failed >= 3)
    report = probe.report()
    assert {failure.address for failure in report.failures} == {f"127.0.0.1:{other.port}"}
    assert report.outage.endpoint == other.url
    assert not report.outage.over
    assert "and not over" in report.verdict


# --- who answered ----------------------------------------------------------------------------------------


async def test_a_refusal_says_which_server_it_came_from(server, make_probe, until):
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(done(probe, Stream.KEPT))
        await until(happened(server.misbehave("status 503", when=kept_reads)))
        await until(done(probe, Stream.KEPT))
    (failure,) = probe.report().failures
    assert failure.server == "v1.36.4 since 2026-11-21T00:00:00Z"
    assert str(failure).endswith(f"by {failure.server}: 503 ServiceUnavailable: made 503")


async def test_a_server_without_statusz_is_known_by_its_version(server_tls, make_probe, until):
    async with ApiServer(server_tls, statusz=False) as server, make_probe(server, rates=KEPT_ONLY) as probe:
        await until(lambda: probe.report().servers)
        assert [seen.server for seen in probe.report().servers] == ["v1.36.4"]


async def test_a_hand_over_shows_both_servers_and_when(server, make_probe, until):
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(lambda: probe.report().servers)
        server.started = "2026-11-21T09:00:00Z"
        server.end_connections()
        await until(lambda: len(probe.report().servers) == 2)
    before, after = probe.report().servers
    assert (before.server, after.server) == ("v1.36.4 since 2026-11-21T00:00:00Z", "v1.36.4 since 2026-11-21T09:00:00Z")
    assert before.first <= before.last <= after.first <= after.last


# --- kept-alive connections ------------------------------------------------------------------------------


@pytest.mark.usefixtures("slow_machine")
@pytest.mark.parametrize("what", ["close", "reset"])
async def test_the_idle_close_race_is_no_failure(server, make_probe, until, what):
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        order = server.misbehave(what, when=kept_reads)
        await until(happened(order))
        await until(done(probe, Stream.KEPT))
    report = probe.report()
    assert (report.failed, report.streams[Stream.KEPT].races) == (0, 1)
    assert "1 idle-close race," in report.verdict


@pytest.mark.usefixtures("slow_machine")
@pytest.mark.parametrize(("what", "kind"), [("close", Kind.CLOSED), ("shut down", Kind.STATUS)])
async def test_the_first_request_of_a_kept_connection_has_no_excuse(server, make_probe, until, what, kind):
    """A server that has answered nothing on it did not end it while it was idle."""
    probe = make_probe(server, rates=Rates(0, 20, 0, 0))
    async with probe:
        await until(done(probe, Stream.KEPT))
        await until(happened(server.misbehave("close after", when=kept_reads)))
        await until(happened(server.misbehave(what, when=new_reads)))
        await until(done(probe, Stream.KEPT))
    kept = probe.report().streams[Stream.KEPT]
    assert (kept.failures, kept.races, kept.turned_away) == ({kind: 1}, 0, 0)


@pytest.mark.usefixtures("slow_machine")
async def test_a_race_whose_retry_fails_is_one_failure_and_no_race(server, make_probe, until):
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(done(probe, Stream.KEPT))
        server.misbehave("close", when=kept_reads)
        await until(happened(server.misbehave("reset", when=new_reads)))
        await until(done(probe, Stream.KEPT))
    report = probe.report()
    (failure,) = report.failures
    assert failure.kind is Kind.RESET
    assert failure.detail == "reset before any answer; it was the retry after: closed before any answer"
    assert (report.failed, report.streams[Stream.KEPT].races) == (1, 0)


@pytest.mark.usefixtures("slow_machine")
async def test_a_race_whose_retry_is_refused_is_one_failure_and_no_race(server, make_probe, until):
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(done(probe, Stream.KEPT))
        server.misbehave("close", when=kept_reads)
        await until(happened(server.misbehave("status 500", when=new_reads)))
        await until(done(probe, Stream.KEPT))
    report = probe.report()
    assert [failure.kind for failure in report.failures] == [Kind.STATUS]
    assert report.streams[Stream.KEPT].races == 0


@pytest.mark.parametrize(("what", "kind"), [("close late", Kind.CLOSED), ("reset late", Kind.RESET)])
async def test_a_close_later_than_a_round_trip_is_a_failure(server, make_probe, until, what, kind):
    """The server had the request, and nobody knows what became of it."""
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(done(probe, Stream.KEPT, 10))
        await until(happened(server.misbehave(what, when=kept_reads)))
        await until(lambda: probe.report().failed)
        await until(done(probe, Stream.KEPT))
    report = probe.report()
    (failure,) = report.failures
    assert (failure.kind, report.streams[Stream.KEPT].races) == (kind, 0)
    assert re.fullmatch(r"(closed|reset) before any answer, \d+\.\d\d s after the request", failure.detail)
    assert failure.seconds >= LATE


async def test_where_other_answers_are_as_slow_a_late_close_is_the_race(server, make_probe, until):
    """The server had no processor for what others asked either: the request lay unread."""
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(done(probe, Stream.KEPT, 10))
        server.misbehave("slow", when=kept_reads)
        await until(lambda: probe.report().streams[Stream.KEPT].slow)
        await until(happened(server.misbehave(f"close in {LATEST - 0.3}", when=kept_reads)))
        await until(lambda: probe.report().streams[Stream.KEPT].races)
    report = probe.report()
    kept = report.streams[Stream.KEPT]
    assert (report.failed, kept.races, kept.late_races) == (0, 1, 1)


async def test_however_slow_another_answer_was_a_close_after_more_than_a_second_is_a_failure(
    server, make_probe, until, monkeypatch
):
    """It took 4.5 s, as a write may while etcd's leadership moves: that says nothing of where a read lies."""
    monkeypatch.setattr(SlowestLately, "seconds", lambda _lately, _at: 4.5)
    probe = make_probe(server, rates=Rates(0, 5, 0, 0))
    async with probe:
        await until(done(probe, Stream.KEPT, 3))
        server.misbehave(f"close in {LATEST + 0.3}", when=kept_reads)
        await until(lambda: probe.report().failed or probe.report().streams[Stream.KEPT].races)
    report = probe.report()
    assert [failure.kind for failure in report.failures] == [Kind.CLOSED]
    assert report.streams[Stream.KEPT].races == 0


@pytest.mark.parametrize(("retry", "failed"), [("slow", 0), ("", 1)])
async def test_where_the_retry_is_as_slow_a_late_close_is_the_race(server, make_probe, until, retry, failed):
    """The first of those that find the server without a processor."""
    probe = make_probe(server, rates=Rates(0, 5, 0, 0))
    async with probe:
        await until(done(probe, Stream.KEPT, 3))
        server.misbehave(f"close in {LATEST - 0.3}", when=kept_reads)
        server.misbehave(retry, when=lambda incoming: incoming.is_read and incoming.number == 1)
        await until(lambda: probe.report().failed or probe.report().streams[Stream.KEPT].races)
    report = probe.report()
    assert (report.failed, report.streams[Stream.KEPT].late_races) == (failed, 1 - failed), report.failures


@given(st.lists(st.tuples(st.floats(0, 4), st.floats(0, 3)), max_size=30), st.floats(0, 20))
def test_the_slowest_answer_of_the_last_seconds(answers, after):
    lately, came, now = SlowestLately(), [], 0.0
    for pause, seconds in answers:
        now += pause
        came.append((now, seconds))
        lately.note(now, seconds)
        assert lately.seconds(now) == max(took for at, took in came if at >= now - LATELY)
    now += after
    assert lately.seconds(now) == max((took for at, took in came if at >= now - LATELY), default=0)


@pytest.mark.parametrize(
    ("after", "round_trip", "race"),
    [(0.0, 0.002, True), (0.25, 0.002, True), (0.26, 0.002, False), (0.26, 0.3, True), (0.31, 0.3, False)],
)
def test_a_round_trip_is_the_shortest_exchange_but_never_less_than_a_quarter_of_a_second(after, round_trip, race):
    for kind in (Kind.CLOSED, Kind.RESET):
        fault = Fault(kind, "127.0.0.1:6443", "closed before any answer")
        fault.after = after
        assert is_race(fault, round_trip) is race


@pytest.mark.usefixtures("slow_machine")
@pytest.mark.parametrize(
    ("what", "kind"),
    [("cut", Kind.CLOSED), ("cut and reset", Kind.RESET), ("stall", Kind.TIMEOUT), ("status 503", Kind.STATUS)],
)
async def test_only_a_close_before_any_answer_is_the_race(server, make_probe, until, what, kind):
    probe = make_probe(server, rates=KEPT_ONLY, timeout=time_for(what))
    async with probe:
        await until(happened(server.misbehave(what, when=kept_reads)))
        await until(lambda: probe.report().failed)
        await until(done(probe, Stream.KEPT))
    report = probe.report()
    assert {failure.kind for failure in report.failures} == {kind}
    assert report.streams[Stream.KEPT].races == 0


async def test_a_connection_closed_while_nothing_is_under_way_is_replaced_in_silence(server, make_probe, until):
    probe = make_probe(server, rates=Rates(0, 20, 0, 0))
    async with probe:
        await until(happened(server.misbehave("close after", when=kept_reads)))
        await until(done(probe, Stream.KEPT))
    kept = probe.report().streams[Stream.KEPT]
    assert (kept.failed, kept.races) == (0, 0)
    assert kept.reconnects == 1


async def test_a_stopping_server_may_turn_away_a_kept_connection(server, make_probe, until):
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(happened(server.misbehave("shut down", when=kept_reads)))
        await until(done(probe, Stream.KEPT))
    report = probe.report()
    assert (report.failed, report.streams[Stream.KEPT].turned_away) == (0, 1)
    assert "1 turned away by a stopping server" in report.verdict


@pytest.mark.parametrize("what", ["status 429", "status 503", "turn away"])
async def test_a_server_with_too_much_to_do_or_no_storage_has_failed_a_kept_request(server, make_probe, until, what):
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(happened(server.misbehave(what, when=kept_reads)))
        await until(lambda: probe.report().failed)
    assert probe.report().streams[Stream.KEPT].turned_away == 0


async def test_a_retry_that_is_turned_away_as_well_is_a_failure(server, make_probe, until):
    probe = make_probe(server, rates=KEPT_ONLY)
    async with probe:
        await until(done(probe, Stream.KEPT))
        server.misbehave("shut down", when=kept_reads)
        await until(happened(server.misbehave("shut down", when=new_reads)))
        await until(done(probe, Stream.KEPT))
    report = probe.report()
    assert [failure.kind for failure in report.failures] == [Kind.STATUS]
    assert report.streams[Stream.KEPT].turned_away == 0


async def test_a_server_that_turns_a_client_away_again_and_again_has_failed(server, make_probe, until):
    """A server that stops closes each connection once; this one goes on, and so may not go on turning away."""
    probe = make_probe(server, rates=Rates(0, 50, 0, 0))  # one worker
    async with probe:
        for _ in range(3):
            await until(happened(server.misbehave("shut down", when=kept_reads)))
            await until(done(probe, Stream.KEPT))
    kept = probe.report().streams[Stream.KEPT]
    assert (kept.workers, kept.turned_away, kept.failures) == (1, 1, {Kind.STATUS: 2})


async def test_each_server_may_turn_a_client_away_once(server, make_probe, until):
    probe = make_probe(server, rates=Rates(0, 50, 0, 0))
    async with probe:
        for number in (1, 2):
            await until(done(probe, Stream.KEPT))  # the kept connection knows who is at its other end
            server.started = f"2026-11-21T09:00:0{number}Z"
            await until(happened(server.misbehave("shut down", when=kept_reads)))
        await until(done(probe, Stream.KEPT))
    kept = probe.report().streams[Stream.KEPT]
    assert (kept.turned_away, kept.failed) == (2, 0)


def test_servers_that_cannot_be_told_apart_may_turn_a_client_away_in_turn():
    farewells = Farewells()
    assert [farewells.is_first("v1.35.4", at) for at in (0.0, APART - 1, 2 * APART)] == [True, False, True]
    told_apart = "v1.36.4 since 2026-11-21T00:00:00Z"
    assert [farewells.is_first(told_apart, at) for at in (0.0, 100 * APART)] == [True, False]
