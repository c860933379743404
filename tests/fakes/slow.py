"""An API server of a test's own that may be slow at anything: at its TLS handshake, at its answers, or silent."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from socket import socket as Socket  # noqa: N812

from autarky.net.tls import load_identity
from fakes.web import answer, certificates

_OK = answer(200, "ok")


@dataclass
class SlowServer:
    """handshake: seconds before it begins with TLS; answers: seconds before an answer, by path; else at once. May be
    changed while it runs; that holds for what comes then."""

    handshake: float = 0.0
    answers: Mapping[str, float] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    """By path, how often."""
    _listener: Socket | None = None
    _accepting: asyncio.Task[None] | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SlowServer]:
        self._listener = socket.create_server((self.host, self.port), backlog=100)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept(self._listener), name="accepting")
        try:
            yield self
        finally:
            await self.refuse()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def refuse(self) -> None:
        """From now on; the connections that it has stay."""
        if self._accepting is not None and self._listener is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._listener.close()
            self._accepting = None

    async def _accept(self, listener: Socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            task = asyncio.create_task(self._serve(connection), name="serving")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Socket) -> None:
        transport = None
        try:
            await asyncio.sleep(self.handshake)
            reader, transport = await _by_tls(connection)
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split()[1]
                self.asked[path] += 1
                await asyncio.sleep(self.answers.get(path, 0.0))
                transport.write(_OK)
                self.answered[path] += 1
        except (OSError, EOFError):
            return
        finally:
            connection.close() if transport is None else transport.abort()


async def _by_tls(connection: Socket) -> tuple[asyncio.StreamReader, asyncio.Transport]:
    tls, server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificates().server
    load_identity(tls, server.certificate, server.key)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(lambda: asyncio.StreamReaderProtocol(reader), connection, ssl=tls)
    return reader, transport


@contextmanager
def nobody_answers(host: str, port: int) -> Iterator[None]:
    """Attempts to connect get no answer there, not even a refusal, as from a host without power."""
    with socket.socket() as full, ExitStack() as waiting:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind((host, port))
        full.listen(0)
        for _ in range(4):  # with its queue full, the kernel drops what comes
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((host, port))
        yield


@contextmanager
def out_of_reach(host: str) -> Iterator[None]:
    """Attempts to connect there fail at once: no route leads to it. Of an address of loopback that nobody else uses."""
    route = ["unreachable", host, "table", "local"]
    subprocess.run(["ip", "route", "add", *route], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "route", "del", *route], check=True)
