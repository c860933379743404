"""A server that is slow lives; one that is silent, refuses or is out of reach does not. The real HAProxy.

How long each takes is bounded by the table (`model/patience.py`), with what a busy machine adds.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from autarky.agents.node.ports_seen import plain_status
from autarky.model import patience, ports
from autarky.model.balancer import ApiNode, Balancer
from contract.balancer.haproxy import BALANCER, SELF, Running, balancing
from fakes.slow import SlowServer, nobody_answers

pytestmark = pytest.mark.contract

BUSY = 1.5
"""Seconds that a busy machine adds."""
READY, ALIVE = "/readyz", "/livez?exclude=etcd"
OTHER = "127.0.0.3"
OF_ANOTHER_NODE = Balancer("w1", False, (ApiNode("n1", OTHER),))
NEVER = 3600.0


@asynccontextmanager
async def led_to(
    image: Path, directory: Path, server: SlowServer, made_of: Balancer = BALANCER
) -> AsyncIterator[Running]:
    """A load balancer that leads to it, and has just held it for ready."""
    async with balancing(image, directory, server.port, made_of=made_of) as balancer:
        await comes(balancer, "n1-hosted", 20)
        await comes(balancer, "alive/n1-hosted", 20)
        yield balancer


async def says(balancer: Running, path: str) -> bool:
    return await plain_status(balancer.ours[ports.NLLB_HEALTH], f"/{path}") == 200


async def comes(balancer: Running, path: str, most: float) -> None:
    async with asyncio.timeout(most):
        while not await says(balancer, path):  # noqa: ASYNC110 # HAProxy tells nobody
            await asyncio.sleep(0.05)


async def answers_a_look(server: SlowServer, path: str) -> None:
    before = server.answered[path]
    async with asyncio.timeout(2 * patience.SLOWEST_ANSWER + BUSY):
        while server.answered[path] == before:  # noqa: ASYNC110 # nor does the load balancer when it looks
            await asyncio.sleep(0.02)


async def leaves(balancer: Running, path: str, most: float) -> float:
    """Seconds until it is not held for healthy."""
    began = time.monotonic()
    while await says(balancer, path):
        assert time.monotonic() - began < most, f"{path} is still held for healthy"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


def a_session(balancer: Running) -> ssl.SSLSocket:
    session = balancer.tls().wrap_socket(balancer.connect(SELF, SELF))
    assert balancer.status(session) == 200
    return session


def has_ended(session: ssl.SSLSocket) -> bool:
    session.settimeout(0.5)
    try:
        return session.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


async def test_a_server_that_answers_its_checks_after_three_seconds_stays_in_and_keeps_its_sessions(
    haproxy_root: Path, tmp_path: Path
) -> None:
    """For longer than it takes to declare one dead. It may be passed over for a quicker one; here is none."""
    async with SlowServer().running() as server, led_to(haproxy_root, tmp_path, server) as balancer:
        session = await asyncio.to_thread(a_session, balancer)
        server.handshake, server.answers = 0.9, {READY: 2.0, ALIVE: 2.0}
        assert await leaves(balancer, "n1-hosted", 2 * patience.PREFERRED_ANSWER + BUSY) > 0
        ends = time.monotonic() + patience.SLOWEST_ANSWER + patience.DEAD + BUSY
        while time.monotonic() < ends:
            assert await says(balancer, "alive/n1-hosted")
            await asyncio.sleep(0.1)
        assert not await asyncio.to_thread(has_ended, session)
        assert await balancer.asked(SELF) == 200
        session.close()


async def test_a_server_that_is_silent_for_longer_goes_and_its_sessions_are_cut(
    haproxy_root: Path, tmp_path: Path
) -> None:
    async with SlowServer().running() as server, led_to(haproxy_root, tmp_path, server) as balancer:
        session = await asyncio.to_thread(a_session, balancer)
        server.handshake = NEVER
        took = await leaves(balancer, "alive/n1-hosted", patience.SLOWEST_ANSWER + patience.DEAD + BUSY)
        assert took > patience.DEAD - BUSY
        assert await asyncio.to_thread(has_ended, session)
        session.close()


async def test_a_server_that_refuses_goes_at_once(haproxy_root: Path, tmp_path: Path) -> None:
    async with SlowServer().running() as server, led_to(haproxy_root, tmp_path, server) as balancer:
        session = await asyncio.to_thread(a_session, balancer)
        await answers_a_look(server, ALIVE)  # the next one is the latest that there can be
        await server.refuse()
        most = patience.PREFERRED_CHECK + patience.REFUSED + 1
        assert most < patience.SLOWEST_ANSWER, "or this shows nothing"
        await leaves(balancer, "alive/n1-hosted", most)
        assert await asyncio.to_thread(has_ended, session)
        session.close()


async def test_a_server_whose_host_does_not_answer_goes_sooner_than_one_that_is_silent(
    haproxy_root: Path, tmp_path: Path
) -> None:
    """As after a power cut."""
    server = SlowServer(host=OTHER)
    async with server.running(), led_to(haproxy_root, tmp_path, server, OF_ANOTHER_NODE) as balancer:
        session = await asyncio.to_thread(a_session, balancer)
        await server.refuse()
        with nobody_answers(OTHER, server.port):
            took = await leaves(balancer, "alive/n1-hosted", 2 * patience.PREFERRED_CHECK + patience.UNANSWERED + BUSY)
            assert took > patience.UNANSWERED, "a lost packet is not a lost host"
        assert await asyncio.to_thread(has_ended, session)
        session.close()


async def test_the_sessions_of_a_server_that_was_out_of_reach_for_a_moment_stay(
    haproxy_root: Path, tmp_path: Path
) -> None:
    """A link that lost packets: two looks in a row were not answered."""
    server = SlowServer(host=OTHER)
    async with server.running(), led_to(haproxy_root, tmp_path, server, OF_ANOTHER_NODE) as balancer:
        session = await asyncio.to_thread(a_session, balancer)
        await server.refuse()
        with nobody_answers(OTHER, server.port):
            await leaves(balancer, "n1-hosted", 2 * patience.PREFERRED_CHECK + BUSY)
        async with SlowServer(host=OTHER, port=server.port).running():
            await comes(balancer, "n1-hosted", patience.UNANSWERED)
            await asyncio.sleep(patience.UNANSWERED)
            assert await says(balancer, "alive/n1-hosted")
            assert not await asyncio.to_thread(has_ended, session)
        session.close()


async def test_where_servers_live_and_none_is_ever_ready_in_time_the_hold_lets_clients_through(
    haproxy_root: Path, tmp_path: Path
) -> None:
    """The first waits for a ready one, as after any boot; whoever comes later does not wait any more."""
    answer = 2.5
    server = SlowServer(answers={READY: answer})
    async with server.running(), balancing(haproxy_root, tmp_path, server.port) as balancer:
        first, second = [await _seconds_until_served(balancer) - answer for _ in range(2)]
        assert not await says(balancer, "n1-hosted")
    assert 1 < first < patience.HOLD
    assert second < BUSY


async def _seconds_until_served(balancer: Running) -> float:
    began = time.monotonic()
    assert await balancer.asked(SELF) == 200
    return time.monotonic() - began


async def test_while_no_server_lives_a_connection_is_held_for_all_its_time_and_no_longer(
    haproxy_root: Path, tmp_path: Path
) -> None:
    with socket.create_server((SELF, 0)) as taken:
        port = taken.getsockname()[1]
    async with balancing(haproxy_root, tmp_path, port) as balancer:
        began = time.monotonic()
        with pytest.raises((OSError, IndexError)):
            await balancer.asked(SELF)
        assert patience.HOLD - 0.5 < time.monotonic() - began < patience.HOLD + BUSY
