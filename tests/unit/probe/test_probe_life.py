"""The probe as a whole: how it begins, what it does when all is well, and how it ends."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from autarky.errors import ApiError, Unreachable, UserError
from autarky.probe import Rates, Stream
from autarky.probe.report import REQUEST_STREAMS
from unit.probe.misbehaving import ALWAYS, new_reads, watches
from unit.probe.probing import NEW_ONLY, SOON, done

# --- a healthy server ------------------------------------------------------------------------------------


async def test_a_healthy_server_gives_exactly_0_failed(server, make_probe, until):
    probe = make_probe(server)
    async with probe:
        await until(done(probe, Stream.WRITES, 25))
    report = probe.report()
    assert (report.ok, report.failed, report.failures, report.outage) == (True, 0, (), None)
    assert report.writes_wanted, "it would be well without a single one"
    assert report.requests == sum(stream.requests for stream in report.streams.values())
    assert min(report.streams[stream].requests for stream in (Stream.NEW, Stream.KEPT, Stream.KEPT_WRITES)) > 3
    assert (report.worst, report.streams[Stream.WRITES].outage, report.watch_down) == (None, None, 0)
    slow = r"(\d+ slower than 1 s, )?slowest \d\.\d\d s"  # on a busy machine
    assert re.fullmatch(rf"0 of {report.requests} requests failed \(\d+ s, {slow}\)", report.verdict)
    assert report.watch_events == report.writes_acknowledged >= 23
    assert [seen.server for seen in report.servers] == ["v1.36.4 since 2026-11-21T00:00:00Z"]


async def test_the_probe_leaves_no_object_behind(server, make_probe, until):
    probe = make_probe(server)
    async with probe:
        await until(lambda: server.objects)
    assert server.objects == {}


async def test_a_probe_that_is_over_at_once_has_asked_each_thing_once(server, make_probe):
    async with make_probe(server) as probe:
        pass
    report = probe.report()
    assert report.ok
    assert all(report.streams[stream].requests for stream in (Stream.NEW, Stream.KEPT, Stream.WRITES))
    assert report.writes_acknowledged


async def test_it_ends_by_itself_after_its_duration(server, make_probe, until):
    async with make_probe(server, duration=0.1) as probe:
        await probe.wait()
        await until(lambda: not server.objects)  # what was written is cleaned up
        requests = -1
        async with asyncio.timeout(60):  # for what was under way; one that has not ended makes some each time
            while requests != (requests := probe.report().requests):  # noqa: ASYNC110 # what does not happen has no event
                await asyncio.sleep(0.5)
    assert probe.report().seconds >= 0.1


async def test_a_probe_that_only_reads_creates_nothing(server, make_probe, until):
    probe = make_probe(server, rates=Rates(100, 100, 0, 0))
    async with probe:
        await until(done(probe, Stream.NEW))
    assert probe.report().ok
    assert {incoming.method for incoming in server.requests} == {"GET"}
    assert server.namespaces == {"default"}


@pytest.mark.parametrize("writes", [True, False])
def test_the_shares_of_all_streams_add_up_to_the_rate(writes):
    rates = Rates.shared(100, writes=writes)
    assert rates.new + rates.kept_alive + rates.writes + rates.kept_writes == pytest.approx(100)
    assert rates.any_writes is writes
    assert Rates.shared(200) == Rates()


async def test_new_connections_are_new_and_kept_ones_are_kept(server, make_probe, until):
    probe = make_probe(server, rates=Rates(100, 100, 0, 0))
    async with probe:
        await until(done(probe, Stream.NEW, 10))
        await until(done(probe, Stream.KEPT, 10))
    reads = [incoming.number for incoming in server.requests if incoming.is_read]
    assert reads.count(1) >= 10
    assert max(reads) >= 10


async def test_a_token_is_asked_again_for_every_connection(server, make_probe, until):
    tokens = iter(f"token-{number}" for number in range(1000))
    probe = make_probe(server, rates=NEW_ONLY, token=lambda: next(tokens))
    async with probe:
        await until(done(probe, Stream.NEW))
    sent = [re.search(r"Authorization: Bearer (\S+)\r", incoming.head) for incoming in server.requests]
    assert len({match[1] for match in sent if match}) > 3


# --- beginning and ending --------------------------------------------------------------------------------


async def test_a_probe_does_not_begin_before_the_api_answers(server, make_probe):
    server.stop_listening()
    with pytest.raises(Unreachable, match="connection-refused: nothing listens there"):
        async with make_probe(server, timeout=SOON):
            pass


async def test_a_probe_does_not_begin_before_it_can_watch(server, make_probe):
    server.misbehave("status 503", times=ALWAYS, when=watches)
    with pytest.raises(Unreachable, match="does not start a watch: 503"):
        async with make_probe(server, timeout=SOON):
            pass


async def test_a_probe_that_may_not_write_does_not_begin(server, make_probe):
    server.misbehave("status 403", times=ALWAYS)
    with pytest.raises(ApiError, match="403"):
        async with make_probe(server):
            pass


async def test_a_server_of_another_ca_is_not_probed(server, make_probe):
    with pytest.raises(Unreachable, match="tls: CERTIFICATE_VERIFY_FAILED"):
        async with make_probe(server, ca_pem=None, timeout=SOON):
            pass


def test_a_probe_of_nothing_is_a_mistake(make_probe):
    with pytest.raises(UserError, match="nothing to probe"):
        make_probe()


async def test_an_exception_of_the_block_is_raised_as_it_is_and_the_report_stands(server, make_probe, until):
    probe = make_probe(server)

    async def fail() -> None:
        async with probe:
            await until(done(probe, Stream.NEW))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert probe.report().ok
    assert server.objects == {}


async def test_a_cancelled_probe_ends_at_once_and_cleans_up(server, make_probe, until):
    probe = make_probe(server)

    async def work() -> None:
        async with probe:
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await until(lambda: server.objects)
    server.misbehave("stall", times=ALWAYS, when=new_reads)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(3):  # a stalled request has five
            await task
    assert server.objects == {}


async def test_a_probe_cancelled_while_it_begins_leaves_no_task(server, make_probe):
    server.misbehave("stall", times=ALWAYS)
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), make_probe(server):
            pass
    assert {task for task in asyncio.all_tasks() - before if task.get_name().startswith("probe")} == set()


async def test_failures_are_told_at_once(server, make_probe, until):
    reported: list[Any] = []
    async with make_probe(server, rates=NEW_ONLY, on_failure=reported.append) as probe:
        server.misbehave("status 503", when=new_reads)
        await until(lambda: reported)
    assert tuple(reported) == probe.report().failures


async def test_a_probe_that_was_held_up_says_so(server, make_probe, until):
    async with make_probe(server, rates=NEW_ONLY) as probe:
        await until(done(probe, Stream.NEW))
        time.sleep(0.4)  # noqa: ASYNC251 # what a caller must not do
        await until(done(probe, Stream.NEW))
    assert probe.report().held_up > 0.1


async def test_a_probe_that_was_held_up_has_asked_nothing_meanwhile_on_any_stream(server, make_probe, until):
    async with make_probe(server) as probe:
        await until(done(probe, Stream.KEPT_WRITES))
        time.sleep(0.4)  # noqa: ASYNC251 # what a caller must not do
        await until(done(probe, Stream.KEPT_WRITES))
    streams = probe.report().streams
    assert {name for name, stream in streams.items() if stream.silence > 0.3} == set(REQUEST_STREAMS)
