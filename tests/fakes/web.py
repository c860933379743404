"""A loopback HTTPS server that follows a script, for what no real server does on demand."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.net.tls import client_context, load_identity
from autarky.pki import PkiStore
from autarky.pki.issue import Pair

HANG: bytes = b"(hang)"
CUT: bytes = b"(cut)"


@dataclass(frozen=True)
class Certificates:
    ca: bytes
    server: Pair
    client: Pair


def certificates(years_ago: int = 0) -> Certificates:
    """For 127.0.0.1; issued once per run. A CA lasts for ten years."""
    return _issued(years_ago)


@cache
def _issued(years_ago: int) -> Certificates:
    specs = (
        CertSpec("server", "ca", "server", (), (), ("127.0.0.1",), ("server",)),
        CertSpec("client", "ca", "client"),
    )
    with TemporaryDirectory() as directory:
        store = PkiStore(Path(directory))
        store.ensure(specs, CertificateSettings(), datetime.now(UTC) - timedelta(days=366 * years_ago))
        return Certificates(store.files()["ca.crt"], store.read("server"), store.read("client"))


def trusting_context() -> ssl.SSLContext:
    """A client's context that accepts a Web and has a certificate of its own."""
    found = certificates()
    return client_context(found.ca, found.client.certificate, found.client.key)


def answer(status: int, body: bytes | str = b"", **headers: str) -> bytes:
    """A complete HTTP answer; write the `_` of a header's name for "-"."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def chunked(*chunks: bytes, end: bool = True) -> bytes:
    """An answer that comes in chunks; without `end`, it is never finished."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + body + (b"0\r\n\r\n" if end else b"")


@dataclass(frozen=True)
class Heard:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Web:
    """Use it with `async with`. The script has one entry per request: bytes that are sent as they are, HANG
    to say nothing, or CUT to close the connection; the last entry is for all further requests.

    After an answer that ends with CUT or HANG, that is what happens.
    """

    script: Sequence[bytes] = ()
    demand_client_certificate: bool = False
    issued_years_ago: int = 0
    heard: list[Heard] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    first_request: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def lines(self) -> list[str]:
        """The first lines of all requests, without the protocol."""
        return [heard.line for heard in self.heard]

    async def __aenter__(self) -> Web:
        self._left = deque(self.script)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server = certificates(self.issued_years_ago).server
        load_identity(tls, server.certificate, server.key)
        if self.demand_client_certificate:
            tls.verify_mode = ssl.CERT_REQUIRED
            tls.load_verify_locations(cadata=certificates().ca.decode())
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer), name="web")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.heard.append(await _read(reader))
                self.first_request.set()
                said = self._left.popleft() if len(self._left) > 1 else self._left[0]
                writer.write(said.removesuffix(HANG).removesuffix(CUT))
                await writer.drain()
                if said.endswith(HANG):
                    await asyncio.Event().wait()
                if said.endswith(CUT):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Heard:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Heard(head[0].removesuffix(" HTTP/1.1"), headers, body)
