"""What a look at the hosted API server's own port makes of every way to answer, and not to."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from autarky.control.api_server.manifests import READY_PATH
from autarky.control.slots.decide.pivot import Health
from autarky.control.slots.node import ports as ports_seen
from autarky.control.slots.node.ports import SILENT_ROUNDS, OwnPorts
from fakes.slow import SlowServer
from fakes.web import CUT, HANG, Web, answer, trusting_context

OK = answer(200, "ok")


@pytest.fixture
async def look() -> AsyncIterator[OwnPorts]:
    found = OwnPorts(trusting_context())
    yield found
    await found.close()


async def test_all_looks_share_one_connection_and_leave_etcd_out(look: OwnPorts) -> None:
    async with Web([OK, answer(500, "[-]poststarthook failed"), OK]) as web:
        look.port = web.port
        seen = [await look.hosted_api_server() for _ in range(3)]
    assert seen == [Health.READY, Health.NOT_READY, Health.READY]
    assert web.connections == 1
    assert set(web.lines) == {"GET /readyz?exclude=etcd&exclude=etcd-readiness"}


@pytest.mark.parametrize("end", [CUT, answer(200, "ok", Connection="close") + CUT])
async def test_a_connection_that_the_server_has_closed_is_made_again_without_a_missed_look(
    look: OwnPorts, end: bytes
) -> None:
    async with Web([OK, end, OK]) as web:
        look.port = web.port
        assert [await look.hosted_api_server() for _ in range(3)] == [Health.READY] * 3
        assert web.connections == 2


async def test_a_draining_server_is_not_ready_though_it_closes_the_connection(look: OwnPorts) -> None:
    async with Web([answer(500, "shutting down", Connection="close") + CUT]) as web:
        look.port = web.port
        assert [await look.hosted_api_server() for _ in range(2)] == [Health.NOT_READY] * 2


async def test_nobody_listening_is_absent(look: OwnPorts) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        look.port = taken.getsockname()[1]
        assert await look.hosted_api_server() is Health.ABSENT


@pytest.mark.parametrize("said", [CUT, b"nonsense\r\n\r\n" + CUT, b"x" * 100_000 + CUT])
async def test_whoever_breaks_off_is_unknown_and_after_a_few_rounds_not_ready(look: OwnPorts, said: bytes) -> None:
    async with Web([said]) as web:
        look.port = web.port
        seen = [await look.hosted_api_server() for _ in range(SILENT_ROUNDS)]
    assert seen == [Health.UNKNOWN] * (SILENT_ROUNDS - 1) + [Health.NOT_READY]


@pytest.mark.parametrize("said", [HANG, OK[:-1] + HANG])
async def test_silence_is_unknown_and_not_ready_when_it_lasts_too_long(
    look: OwnPorts, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late this machine is: of two looks that took a tenth of a second each or more, the first is within what a
    live server may take, and the second is not."""
    monkeypatch.setattr(ports_seen, "ANSWER_SECONDS", 0.1)
    seen = []
    async with Web([said]) as web:
        look.port = web.port
        for dead in (3600, 0.15):
            monkeypatch.setattr(ports_seen, "DEAD_SECONDS", dead)
            seen.append(await look.hosted_api_server())
    assert seen == [Health.UNKNOWN, Health.NOT_READY]
    assert len(seen) < SILENT_ROUNDS, "it is for its length, not for how often"


async def test_a_server_that_answers_as_late_as_a_live_one_may_is_ready(look: OwnPorts) -> None:
    async with SlowServer(handshake=1.0, answers={READY_PATH: 1.7}).running() as server:
        look.port = server.port
        assert await look.hosted_api_server() is Health.READY


async def test_one_answer_ends_the_silence(look: OwnPorts) -> None:
    async with Web([CUT, CUT, OK, CUT, CUT, CUT, OK]) as web:
        look.port = web.port
        seen = [await look.hosted_api_server() for _ in range(4)]
    assert seen == [Health.UNKNOWN, Health.UNKNOWN, Health.READY, Health.UNKNOWN]
