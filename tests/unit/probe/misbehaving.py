"""A small HTTPS server that is enough of an API server for the probe, and misbehaves on command."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autarky.probe import Target
from fakes.web import certificates, trusting_context

Behaviour = Callable[[str, str, int], str | None]
"""(method, path, how many requests this connection has answered) → what to do instead of answering:
"close", "stall", "503", "lose" (acknowledge a write and forget it), or None to answer."""


@dataclass
class Server:
    """One ConfigMap, its versions, and whoever watches it."""

    behaviour: Behaviour
    value: str = "0"
    version: int = 1
    forget_events: bool = False
    cut_watches: bool = False
    events: list[dict[str, object]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = 0
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split(" ", 2)
                length = next((int(h.split(":")[1]) for h in head.split("\r\n") if h.startswith("Content-Length")), 0)
                body = await reader.readexactly(length)
                if not await self._one(writer, method, path, body, answered):
                    return
                answered += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _one(self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes, answered: int) -> bool:
        """Answer one request; False when the connection is to be closed."""
        act = self.behaviour(method, path, answered)
        if act == "close":
            return False
        if act == "stall":
            await asyncio.sleep(30)
        if act == "503":
            return await self._answer(writer, 503, {"reason": "ServiceUnavailable"})
        if "watch=true" in path:
            return await self._watch(writer, int(path.split("resourceVersion=")[1].split("&", maxsplit=1)[0]))
        if method == "PATCH" and act != "lose":
            self._write(json.loads(body)["data"]["value"])
        if method == "POST":
            return await self._answer(writer, 201, self._object())
        return await self._answer(writer, 200, self._object())

    def _object(self) -> dict[str, object]:
        return {"metadata": {"resourceVersion": str(self.version)}, "data": {"value": self.value}, "gitVersion": "v0"}

    def _write(self, value: str) -> None:
        self.value = value
        self.version += 1
        if not self.forget_events:
            self.events.append({"version": self.version, "value": value})
        self.changed.set()

    async def _answer(self, writer: asyncio.StreamWriter, status: int, obj: object) -> bool:
        body = json.dumps(obj).encode()
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        return True

    async def _watch(self, writer: asyncio.StreamWriter, version: int) -> bool:
        writer.write(b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        while True:
            for event in [e for e in self.events if int(str(e["version"])) > version]:
                version = int(str(event["version"]))
                obj = {"metadata": {"resourceVersion": str(version)}, "data": {"value": event["value"]}}
                line = json.dumps({"type": "MODIFIED", "object": obj}).encode() + b"\n"
                writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                await writer.drain()
                sent += 1
                if self.cut_watches and sent == 2:
                    return False
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def running(behaviour: Behaviour, directory: Path, **fields: bool) -> AsyncIterator[tuple[Server, Target]]:
    """The server on a loopback port, and the target that leads to it."""
    leaf = certificates().server
    files = directory / "server.crt", directory / "server.key"
    files[0].write_bytes(leaf.certificate)
    files[1].write_bytes(leaf.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*files)
    server = Server(behaviour, **fields)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield server, Target(f"https://127.0.0.1:{port}", trusting_context())
    finally:
        listener.close()
