"""A server that is slow lives, and one that refuses may answer what it has been asked; one that is silent or out of
reach is dead. The real HAProxy.

How long each takes is bounded by the table (`model/patience.py`), with what a busy machine adds.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.load_balancer.node import haproxy
from autarky.control.slots.node.ports import plain_status
from autarky.model import patience, ports
from autarky.model.balancer import ApiNode, Balancer
from contract.balancer.haproxy import BALANCER, NEIGHBOUR, READY, SELF, Running, balancing
from fakes.slow import SlowServer, nobody_answers, out_of_reach

pytestmark = pytest.mark.contract

BUSY = 1.5
"""Seconds that a busy machine adds."""
NEVER_ELSE = 10.0
"""For what would not come within minutes without what is tested."""
ALIVE = "/livez?exclude=etcd"
LONG, LONG_SECONDS = "/long", 5.0
"""A request, and how long it takes: longer than a server that refuses is held for alive."""
OTHER = "127.0.0.3"
OF_ANOTHER_NODE = Balancer("w1", False, (ApiNode("n1", OTHER),))
NEVER = 3600.0


@asynccontextmanager
async def led_to(
    image: Path,
    directory: Path,
    server: SlowServer,
    made_of: Balancer = BALANCER,
    change: Callable[[str], str] = str,
) -> AsyncIterator[Running]:
    """A load balancer that leads to it, and has just held it for ready."""
    async with balancing(image, directory, server.port, made_of=made_of, change=change) as balancer:
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
    """Seconds until it is not considered healthy."""
    began = time.monotonic()
    while await says(balancer, path):
        assert time.monotonic() - began < most, f"{path} is still considered healthy"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


def a_session(balancer: Running) -> ssl.SSLSocket:
    session = balancer.tls().wrap_socket(balancer.connect(SELF, SELF))
    assert balancer.status(session, ALIVE) == 200
    return session


@asynccontextmanager
async def a_session_by_either_backend(balancer: Running, server: SlowServer) -> AsyncIterator[list[ssl.SSLSocket]]:
    """One that began when the server was ready, and one when it only lived: it is not ready in time any more."""
    by_ready = await asyncio.to_thread(a_session, balancer)
    server.answers = {**server.answers, READY: 2 * patience.PREFERRED_ANSWER}
    await leaves(balancer, "n1-hosted", 2 * patience.PREFERRED_ANSWER + BUSY)
    by_alive = await asyncio.to_thread(a_session, balancer)
    with by_ready, by_alive:
        yield [by_ready, by_alive]


def has_ended(session: ssl.SSLSocket) -> bool:
    session.settimeout(0.5)
    try:
        return session.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


async def ends(session: ssl.SSLSocket, most: float) -> float:
    """When it did (monotonic)."""
    began = time.monotonic()
    while not await asyncio.to_thread(has_ended, session):
        assert time.monotonic() - began < most, "the session goes on"
    return time.monotonic()


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
    async with (
        SlowServer().running() as server,
        led_to(haproxy_root, tmp_path, server) as balancer,
        a_session_by_either_backend(balancer, server) as sessions,
    ):
        server.handshake = NEVER
        took = await leaves(balancer, "alive/n1-hosted", patience.CUT + BUSY)
        assert took > patience.DEAD - BUSY
        assert [await asyncio.to_thread(has_ended, session) for session in sessions] == [True, True]


def _with_a_standby(port: int) -> Callable[[str], str]:
    return lambda text: text.replace(f"{SELF}:{ports.API_STANDBY} ", f"{SELF}:{port} ")


@pytest.mark.parametrize("later", [0.0, patience.SLOWEST_ANSWER - 0.3], ids=["after a look", "before a look"])
async def test_a_server_that_refuses_gets_nothing_new_at_once_and_answers_what_it_has_been_asked(
    haproxy_root: Path, tmp_path: Path, later: float
) -> None:
    """As an API server that has drained: it closes its listener first, and then has a minute for its requests. The next
    look whether it lives is the latest that there can be; or that and another one come before all else."""
    server, other = SlowServer(answers={LONG: LONG_SECONDS}), SlowServer(port=_free_port())
    async with (
        server.running(),
        led_to(haproxy_root, tmp_path, server, change=_with_a_standby(other.port)) as balancer,
        a_session_by_either_backend(balancer, server) as sessions,
        other.running(),
    ):
        await comes(balancer, "n1-standby", 20)
        await answers_a_look(server, ALIVE)
        await asyncio.sleep(later)
        asked = [asyncio.create_task(asyncio.to_thread(balancer.status, session, LONG)) for session in sessions]
        while server.asked[LONG] < len(sessions):  # noqa: ASYNC110 # it tells nobody
            await asyncio.sleep(0.02)
        await server.refuse()
        assert await balancer.asked(SELF, path="/new") == 200
        most = patience.PREFERRED_CHECK + patience.REFUSED + 1
        assert most < patience.SLOWEST_ANSWER, "or this shows nothing"
        await leaves(balancer, "alive/n1-hosted", most)
        assert await balancer.asked(SELF, path="/new") == 200
        assert other.answered["/new"] == 2
        assert not server.answered[LONG], "or this shows nothing"
        assert await asyncio.gather(*asked, return_exceptions=True) == [200, 200]


def _free_port() -> int:
    with socket.create_server((SELF, 0)) as taken:
        return int(taken.getsockname()[1])


def _with(words: str, instead: str) -> Callable[[str], str]:
    """In the script."""

    def change(text: str) -> str:
        assert words in text or "register_task" not in text
        return text.replace(words, instead)

    return change


async def test_the_sessions_of_a_server_that_refuses_are_cut_when_it_can_have_nothing_left_to_answer(
    haproxy_root: Path, tmp_path: Path
) -> None:
    """Its host may have been without power for a moment, and knows nothing of them."""
    bearable = 4.0
    server, sooner = (
        SlowServer(),
        _with(f'drained_after = tonumber("{patience.DRAINED:g}', f'drained_after = tonumber("{bearable}'),
    )
    async with server.running(), led_to(haproxy_root, tmp_path, server, change=sooner) as balancer:
        with await asyncio.to_thread(a_session, balancer) as session:
            began = time.monotonic()
            await server.refuse()
            ended = await ends(session, patience.PREFERRED_CHECK + bearable + NEVER_ELSE)
            assert ended - began > bearable


async def test_a_server_that_no_route_leads_to_goes_at_once_and_its_sessions_are_cut(
    haproxy_root: Path, tmp_path: Path
) -> None:
    high, middle, low = os.getpid().to_bytes(3)
    host = f"127.{64 + high}.{middle}.{low}"
    server, of_another = SlowServer(host=host), Balancer("w1", False, (ApiNode("n1", host),))
    async with server.running(), led_to(haproxy_root, tmp_path, server, of_another) as balancer:
        with await asyncio.to_thread(a_session, balancer) as session:
            await answers_a_look(server, ALIVE)
            with out_of_reach(host):
                await leaves(balancer, "alive/n1-hosted", patience.PREFERRED_CHECK + patience.REFUSED + BUSY)
                await ends(session, BUSY)


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


async def test_a_server_that_refuses_after_nobody_answered_has_been_without_power_and_its_sessions_are_cut(
    haproxy_root: Path, tmp_path: Path
) -> None:
    """Its host is back soon, and knows nothing of them."""
    server = SlowServer(host=OTHER)
    async with server.running(), led_to(haproxy_root, tmp_path, server, OF_ANOTHER_NODE) as balancer:
        with await asyncio.to_thread(a_session, balancer) as session:
            await server.refuse()
            with nobody_answers(OTHER, server.port):
                await leaves(balancer, "n1-hosted", 2 * patience.PREFERRED_CHECK + BUSY)
                await asyncio.sleep(patience.REFUSED + 0.5)
                assert not await asyncio.to_thread(has_ended, session)
            await ends(session, NEVER_ELSE)


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


async def reloaded(balancer: Running) -> None:
    """With one more server; the worker of before stays for its sessions."""
    name = balancer.write(nllb.configuration_files(replace(OF_ANOTHER_NODE, servers=_WITH_ONE_MORE)))
    assert await haproxy.reload(balancer.socket) is None
    await balancer.runs(name)


_WITH_ONE_MORE = (*OF_ANOTHER_NODE.servers, ApiNode("n2", NEIGHBOUR))


async def test_a_worker_that_stops_does_not_go_by_the_last_look_that_it_had(haproxy_root: Path, tmp_path: Path) -> None:
    """Which was not answered; the next one would have been, but such a worker looks at nobody any more. It has more
    patience here, since a busy machine takes some seconds for a new worker."""
    bearable = 2 * patience.UNANSWERED
    server, later = (
        SlowServer(host=OTHER),
        _with(f'bearable_unanswered = tonumber("{patience.UNANSWERED}', f'bearable_unanswered = tonumber("{bearable}'),
    )
    async with server.running(), led_to(haproxy_root, tmp_path, server, OF_ANOTHER_NODE, later) as balancer:
        with await asyncio.to_thread(a_session, balancer) as session:
            await server.refuse()
            with nobody_answers(OTHER, server.port):
                await leaves(balancer, "n1-hosted", 2 * patience.PREFERRED_CHECK + BUSY)
                await reloaded(balancer)
            async with SlowServer(host=OTHER, port=server.port).running():
                await comes(balancer, "n1-hosted", bearable)
                await asyncio.sleep(bearable)
                assert not await asyncio.to_thread(has_ended, session)


async def test_the_sessions_of_a_worker_that_stops_are_its_clients_to_end_when_a_server_hangs(
    haproxy_root: Path, tmp_path: Path
) -> None:
    """docs/load-balancing.md says so."""
    server = SlowServer(host=OTHER)
    async with server.running(), led_to(haproxy_root, tmp_path, server, OF_ANOTHER_NODE) as balancer:
        with await asyncio.to_thread(a_session, balancer) as before:
            await reloaded(balancer)
            await comes(balancer, "alive/n1-hosted", 20)
            with await asyncio.to_thread(a_session, balancer) as after:
                server.handshake = NEVER
                await ends(after, patience.CUT + BUSY)
            await asyncio.sleep(BUSY)
            assert not await asyncio.to_thread(has_ended, before)


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
    async with balancing(haproxy_root, tmp_path, _free_port()) as balancer:
        began = time.monotonic()
        with pytest.raises((OSError, IndexError)):
            await balancer.asked(SELF)
        assert patience.HOLD - 0.5 < time.monotonic() - began < patience.HOLD + BUSY
