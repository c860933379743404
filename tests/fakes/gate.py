"""A TCP door in front of a real server, which a test can shut, cut and freeze."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Gate:
    """Forwards connections on a loopback port of its own to `port`; use it with `async with`.

    passed: how many connections were let through.
    held: set when bytes wait at a frozen gate.
    """

    port: int
    passed: int = 0
    held: asyncio.Event = field(default_factory=asyncio.Event)
    own_port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _thawed: asyncio.Event = field(default_factory=asyncio.Event)
    _pumps: set[asyncio.Task[None]] = field(default_factory=set)
    _connecting: set[asyncio.Task[None]] = field(default_factory=set)
    _cuts: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.own_port}"

    async def __aenter__(self) -> Gate:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def open(self) -> None:
        """Let connections in, on the same port as before."""
        self._thawed.set()
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.own_port)
        self.own_port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Refuse new connections, and break off those there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        """Break off all connections without a farewell."""
        self._cuts += 1
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def freeze(self) -> None:
        """Let no byte through, and close nothing: the other side's power was cut."""
        self._thawed.clear()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.passed += 1
        cuts = self._cuts
        with self._listed_as_connecting():
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
            if cuts != self._cuts:  # cut while the other half was being made
                writer.transport.abort()
                back.transport.abort()
                await asyncio.sleep(0)
                return
        self._writers |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink), name="gate")
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    @contextmanager
    def _listed_as_connecting(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._connecting.add(task)
        try:
            yield
        finally:
            self._connecting.discard(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self._thawed.is_set():
                    self.held.set()
                    await self._thawed.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            self._writers.discard(sink)
            sink.close()
