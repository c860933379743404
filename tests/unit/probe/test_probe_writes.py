"""Writes, and the watch on them, against a real HTTPS server that forgets what it should not."""

from __future__ import annotations

import asyncio

import pytest

from autarky.probe import Kind, Rates, Stream
from autarky.probe.objects import LABEL
from autarky.probe.watch import PAUSE
from unit.probe.misbehaving import ALWAYS, deletions, kept_patches, patch_events, patches, watches
from unit.probe.probing import KEPT_WRITES_ONLY, LATER, SOON, WRITES_ONLY, done, happened, time_for

# --- writes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["close", "stall", "status 503"])
async def test_a_write_that_is_not_acknowledged_fails_and_is_not_lost(server, make_probe, until, what):
    probe = make_probe(server, rates=WRITES_ONLY, timeout=time_for(what))
    async with probe:
        await until(happened(server.misbehave(what, when=patches)))
        await until(lambda: probe.report().failed)
        await until(done(probe, Stream.WRITES))
    report = probe.report()
    assert {failure.stream for failure in report.failures} == {Stream.WRITES}
    assert report.failed == report.failed_requests  # nothing is lost, nothing missed


async def test_every_write_has_a_connection_of_its_own(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY)
    async with probe:
        await until(done(probe, Stream.WRITES, 10))
    written = [incoming.number for incoming in server.requests if incoming.method == "PATCH"]
    assert set(written) == {1}


async def test_a_lost_acknowledged_write_is_found_though_later_ones_are_there(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY)
    async with probe:
        await until(happened(server.misbehave("forget", when=patches)))
        await until(done(probe, Stream.WRITES, 25))
    report = probe.report()
    assert [failure.kind for failure in report.failures] == [Kind.LOST]
    assert report.verdict.endswith("; 1 acknowledged write lost")
    assert report.failed_requests == 0
    assert not report.ok


async def test_a_deletion_that_was_acknowledged_and_not_done_is_a_lost_write(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY, timeout=SOON, patience=SOON)
    async with probe:
        await until(happened(server.misbehave("forget", when=deletions)))
    kinds = {failure.kind: failure.detail for failure in probe.report().failures}
    assert kinds[Kind.LOST].endswith(": its deletion")
    assert Kind.MISSED in kinds  # of what did not happen there is no event


async def test_writes_that_cannot_be_verified_are_a_failure(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY, timeout=SOON, patience=SOON)
    async with probe:
        await until(done(probe, Stream.WRITES))
        server.stop_listening()
        server.end_connections()
    kinds = {failure.kind for failure in probe.report().failures}
    assert {Kind.UNVERIFIED, Kind.NOT_RESUMED} <= kinds
    assert "the acknowledged writes could not be verified" in probe.report().verdict


async def test_objects_of_a_probe_killed_over_an_hour_ago_are_deleted(server, make_probe, until):
    for name, created in (("old", "2001-01-01T00:00:00Z"), ("new", "2999-01-01T00:00:00Z")):
        meta = {"name": name, "labels": {LABEL: name}, "creationTimestamp": created}
        server.objects[name] = {"metadata": meta, "data": {}}
    async with make_probe(server) as probe:
        assert set(server.objects) - {"new"} <= {n for n in server.objects if n.startswith("autarky-probe-")}
    assert set(server.objects) == {"new"}
    assert probe.report().ok


# --- writes on kept connections --------------------------------------------------------------------------


async def test_patches_go_over_a_kept_connection_and_what_may_not_be_done_twice_does_not(server, make_probe, until):
    probe = make_probe(server, rates=KEPT_WRITES_ONLY)
    async with probe:
        await until(done(probe, Stream.KEPT_WRITES, 25))
    report = probe.report()
    assert report.ok
    created = [i.number for i in server.requests if i.method == "POST" and i.path.endswith("/configmaps")]
    deleted = [i.number for i in server.requests if deletions(i)]
    patched = [i.number for i in server.requests if patches(i)]
    assert len(created + deleted) == report.streams[Stream.WRITES].requests >= 3
    assert set(created + deleted) == {1}
    assert patched.count(1) == 1  # the one for which the connection was opened
    assert len(patched) > 20


@pytest.mark.usefixtures("slow_machine")
@pytest.mark.parametrize("what", ["close", "reset"])
async def test_a_kept_write_may_meet_the_idle_close_race_and_be_sent_again(server, make_probe, until, what):
    probe = make_probe(server, rates=KEPT_WRITES_ONLY)
    async with probe:
        await until(happened(server.misbehave(what, when=kept_patches)))
        await until(done(probe, Stream.KEPT_WRITES, 25))
    report = probe.report()
    assert (report.ok, report.streams[Stream.KEPT_WRITES].races) == (True, 1)
    assert report.watch_events == report.writes_acknowledged


@pytest.mark.usefixtures("slow_machine")
async def test_a_kept_write_that_was_carried_out_and_not_answered_has_failed(server, make_probe, until):
    """The server had the request, however soon the connection ended. The writes after it go on."""
    probe = make_probe(server, rates=KEPT_WRITES_ONLY)
    async with probe:
        await until(happened(server.misbehave("do and close", when=kept_patches)))
        await until(done(probe, Stream.KEPT_WRITES, 25))
    report = probe.report()
    (failure,) = report.failures
    assert (failure.stream, failure.kind) == (Stream.KEPT_WRITES, Kind.CLOSED)
    assert failure.detail.startswith("closed before any answer, though it was carried out: a retry got 409")
    assert report.streams[Stream.KEPT_WRITES].races == 0
    assert report.writes_lost == 0


async def test_a_kept_write_may_be_turned_away_by_a_stopping_server(server, make_probe, until):
    probe = make_probe(server, rates=KEPT_WRITES_ONLY)
    async with probe:
        await until(happened(server.misbehave("shut down", when=kept_patches)))
        await until(done(probe, Stream.KEPT_WRITES))
    report = probe.report()
    assert (report.ok, report.streams[Stream.KEPT_WRITES].turned_away) == (True, 1)


@pytest.mark.parametrize("what", ["close late", "reset late", "stall", "status 503"])
async def test_a_kept_write_of_which_nothing_is_known_has_failed(server, make_probe, until, what):
    probe = make_probe(server, rates=KEPT_WRITES_ONLY, timeout=time_for(what))
    async with probe:
        await until(done(probe, Stream.KEPT_WRITES, 10))
        await until(happened(server.misbehave(what, when=kept_patches)))
        await until(lambda: probe.report().failed)
        await until(done(probe, Stream.KEPT_WRITES))
    report = probe.report()
    assert {failure.stream for failure in report.failures} == {Stream.KEPT_WRITES}
    assert report.failed == report.failed_requests  # nothing is lost, nothing missed
    assert report.streams[Stream.KEPT_WRITES].races == 0


async def test_a_lost_kept_write_is_found(server, make_probe, until):
    """Twice: the next patch is of a version that the object no longer has."""
    probe = make_probe(server, rates=KEPT_WRITES_ONLY)
    async with probe:
        await until(happened(server.misbehave("forget", when=kept_patches)))
        await until(done(probe, Stream.KEPT_WRITES, 25))
    report = probe.report()
    kinds = [(failure.stream, failure.kind) for failure in report.failures]
    assert kinds == [(Stream.KEPT_WRITES, Kind.STATUS), (Stream.KEPT_WRITES, Kind.LOST)]
    assert report.writes_lost == 1


# --- the watch -------------------------------------------------------------------------------------------


async def test_a_watch_may_end_if_it_resumes_without_a_missed_event(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY)
    async with probe:
        for number in (1, 2):
            await until(done(probe, Stream.WRITES))
            server.end_watches()
            await until(lambda wanted=number: probe.report().watch_resumed == wanted)
    report = probe.report()
    assert report.ok
    assert "watch resumed 2×" in report.verdict
    assert report.watch_down >= PAUSE
    assert report.watch_events == report.writes_acknowledged


async def test_a_missed_event_is_a_failure(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY)
    async with probe:
        await until(happened(server.misbehave("lose", when=patch_events)))
        await until(lambda: probe.report().failed)
    report = probe.report()
    assert [failure.kind for failure in report.failures] == [Kind.MISSED]
    assert report.verdict.endswith("; 1 watch event missed")


async def test_an_event_that_is_missed_while_the_watch_is_down_is_a_failure(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY, patience=SOON)
    async with probe:
        await until(done(probe, Stream.WRITES))
        order = server.misbehave("lose", when=patch_events)
        server.end_watches()
        await until(happened(order))
    assert Kind.MISSED in {failure.kind for failure in probe.report().failures}


async def test_an_event_that_comes_twice_is_out_of_order(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY)
    async with probe:
        await until(happened(server.misbehave("repeat", when=patch_events)))
        await until(lambda: probe.report().failed)
    assert [failure.kind for failure in probe.report().failures] == [Kind.DISORDER]


async def test_a_watch_that_falls_silent_is_resumed_on_a_new_connection(server, make_probe, until):
    probe = make_probe(server, rates=WRITES_ONLY, timeout=SOON)
    async with probe:
        await until(done(probe, Stream.WRITES))
        server.silence()
        await until(lambda: probe.report().watch_resumed)
    report = probe.report()
    assert report.streams[Stream.WATCH].failed == 0
    assert report.streams[Stream.WATCH].max > SOON  # the event that was waited for


async def test_a_watch_that_is_gone_begins_again_from_a_list(server, make_probe, until):
    probe = make_probe(server, rates=Rates(0, 0, 20, 0))
    async with probe:
        await until(done(probe, Stream.WRITES))
        server.bookmark()
        await asyncio.sleep(0.02)
        server.oldest = server.version + 1
        server.version += 1
        server.error(410)
        await until(lambda: probe.report().watch_relisted)
        await until(done(probe, Stream.WRITES))
    report = probe.report()
    assert report.ok
    assert "watch began again 1×" in report.verdict
    assert report.watch_resumed == 0


async def test_a_watch_that_never_comes_back_is_a_failure(server, make_probe, until):
    """Its patience is for more than one attempt, so that the last answer is reported, not how the watch ended."""
    probe = make_probe(server, rates=WRITES_ONLY, timeout=SOON, patience=LATER)
    async with probe:
        await until(done(probe, Stream.WRITES))
        server.misbehave("status 503", times=ALWAYS, when=watches)
        server.end_watches()
        await until(done(probe, Stream.WRITES))
    report = probe.report()
    (failure,) = [failure for failure in report.failures if failure.kind is Kind.NOT_RESUMED]
    assert failure.detail == "503 ServiceUnavailable: made 503"
    assert report.verdict.endswith("; the watch did not resume")
