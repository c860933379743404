"""What answers on an agent's loopback port, which any user of the host may connect to, and take while nobody has it."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from autarky.clock import SystemClock
from autarky.control.base import health
from autarky.control.base.health import Answering
from contract.servers import free_ports

PATIENCE = 20.0


@pytest.fixture
def port() -> int:
    (found,) = free_ports(1)
    return found


@pytest.fixture
def said() -> list[str]:
    return []


def answering(port: int, said: list[str]) -> Answering:
    return Answering(
        port, SystemClock(), tell=lambda _, sentence: said.append(sentence), happened=lambda why, _: said.append(why)
    )


def _probe(port: int, path: str = "/healthz") -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


async def probe(port: int) -> int:
    return await asyncio.to_thread(_probe, port)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 # another thread's doing
            await asyncio.sleep(0.05)


async def test_a_port_that_somebody_else_has_is_told_and_the_work_goes_on_until_it_is_free(
    port: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "RETRY_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", port)):
        serving = asyncio.create_task(answering(port, said).run())
        await asyncio.sleep(0.5)
        assert not serving.done()
        why = "is not available, trying again: Address already in use"
        assert said == ["PortTaken", f"127.0.0.1:{port} {why}"]
    async with asyncio.timeout(PATIENCE):
        await serving
    assert said[-1] == f"this agent listens on 127.0.0.1:{port} now"
    assert await probe(port) == 200


@pytest.fixture
def slow(port: int) -> Iterator[list[socket.socket]]:
    """Connections that have started a request, and never complete it."""
    with ExitStack() as stack:
        yield _Slow(port, stack)


class _Slow(list[socket.socket]):
    def __init__(self, port: int, stack: ExitStack) -> None:
        super().__init__()
        self.port, self.stack = port, stack

    def open(self, number: int) -> None:
        for _ in range(number):
            one = self.stack.enter_context(socket.create_connection(("127.0.0.1", self.port), PATIENCE))
            one.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            self.append(one)

    def drip(self) -> int:
        """Another byte each; how many of them the other side still takes."""
        taken = 0
        for one in self:
            one.setblocking(False)
            try:
                one.send(b"x")
                taken += one.recv(1) != b""
            except BlockingIOError:
                taken += 1
            except OSError:
                continue
        return taken


async def test_an_address_of_its_own_is_answered_by_it_alone_and_held_up_by_nobody(
    port: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of another revision answers at the shared address only; whoever has the own one keeps nobody from that."""
    monkeypatch.setattr(health, "RETRY_SECONDS", 0.05)
    former = answering(port, said)
    await former.run()
    own = "127.64.3.7"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((own, port), timeout=PATIENCE)
    with socket.create_server((own, port)):
        serving = asyncio.create_task(replace(former, own=own).run())
        await until(lambda: any(f"{own}:{port} is not available" in one for one in said))
        assert await probe(port) == 200
    await asyncio.wait_for(serving, PATIENCE)
    socket.create_connection((own, port), timeout=PATIENCE).close()


async def test_a_probe_is_answered_beside_two_hundred_who_ask_slowly(
    port: int, said: list[str], slow: _Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SILENCE_SECONDS", 3600.0)
    await answering(port, said).run()
    before = _descriptors()
    await asyncio.to_thread(slow.open, 200)
    assert await probe(port) == 200
    await until(lambda: slow.drip() <= health.MOST_CONNECTIONS)
    assert slow.drip() > 0, "as many as there may be"
    await until(lambda: _descriptors() - before <= len(slow) + health.MOST_CONNECTIONS)
    assert await probe(port) == 200


async def test_a_request_has_its_time_as_a_whole_however_often_a_byte_comes(
    port: int, said: list[str], slow: _Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SILENCE_SECONDS", 1.0)
    await answering(port, said).run()
    await asyncio.to_thread(slow.open, 5)
    await until(lambda: slow.drip() == 0)


async def test_whoever_has_asked_is_not_the_one_who_goes(port: int, said: list[str], slow: _Slow) -> None:
    """The kubelet waits for the answer of a hook for up to 45 s."""
    asked, answer = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hook() -> None:
        loop.call_soon_threadsafe(asked.set)
        asyncio.run_coroutine_threadsafe(answer.wait(), loop).result(PATIENCE)

    serving = Answering(port, SystemClock(), hook_of=lambda path: hook if path == "/hook" else None)
    await serving.run()
    waiting = asyncio.create_task(asyncio.to_thread(_probe, port, "/hook"))
    async with asyncio.timeout(PATIENCE):
        await asked.wait()
    await asyncio.to_thread(slow.open, 2 * health.MOST_CONNECTIONS)
    assert await probe(port) == 200
    answer.set()
    assert await waiting == 200


async def test_what_is_wrong_is_said(port: int) -> None:
    await Answering(port, SystemClock(), lambda: "this agent has had no heartbeat for 90 s").run()
    assert await probe(port) == 503


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
