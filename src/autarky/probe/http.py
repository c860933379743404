"""A small HTTP/1.1 client that gives control over every connection.

Why not net/http.py: a pool hides exactly what the probe measures, namely whether a request used a new or a
kept connection, to which address, and how it failed. Only what the API server answers is understood:
Content-Length or chunked bodies.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

LIMIT = 4 * 1024 * 1024


class ProbeError(Exception):
    """A request that got no answer. `kind` is one of the documented words; `sent` tells whether bytes went out."""

    def __init__(self, kind: str, detail: str, *, sent: bool) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def keeps_open(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class Connection:
    """One TCP and TLS connection. `peer` is the address that was dialled."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str) -> None:
        self._reader = reader
        self._writer = writer
        self.peer = peer
        self.used = False

    @classmethod
    async def open(cls, host: str, port: int, tls: ssl.SSLContext, timeout: float) -> Connection:
        """Dial; ProbeError("connect refused" | "connect timeout" | "tls" | "connect failed")."""
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=LIMIT)
        except TimeoutError:
            raise ProbeError("connect timeout", f"{host}:{port}", sent=False) from None
        except ConnectionRefusedError:
            raise ProbeError("connect refused", f"{host}:{port}", sent=False) from None
        except ssl.SSLError as error:
            raise ProbeError("tls", str(error), sent=False) from None
        except OSError as error:
            # A load balancer with no server closes in the middle of the handshake.
            raise ProbeError("connect failed", str(error), sent=False) from None
        return cls(reader, writer, f"{host}:{port}")

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", timeout: float
    ) -> Answer:
        """One request and its whole answer; ProbeError("closed without answer" | "reset" | "timeout")."""
        try:
            async with asyncio.timeout(timeout):
                await self._send(method, path, body, content_type)
                status, headers = await self._head()
                return Answer(status, headers, await self._body(headers))
        except TimeoutError:
            raise ProbeError("timeout", f"no answer within {timeout:.0f} s", sent=True) from None
        except asyncio.IncompleteReadError as error:
            kind = "cut in the middle" if error.partial else "closed without answer"
            raise ProbeError(kind, "", sent=True) from None
        except (ConnectionError, OSError) as error:
            raise ProbeError("reset", str(error), sent=True) from None
        finally:
            self.used = True

    async def stream(self, path: str, *, idle: float) -> AsyncIterator[tuple[int, bytes]]:
        """A GET whose chunked body comes line by line: (status, line). Ends when the server ends it."""
        try:
            async with asyncio.timeout(idle):
                await self._send("GET", path, b"", "")
                status, headers = await self._head()
            if headers.get("transfer-encoding", "").lower() != "chunked":
                yield status, await self._body(headers)
                return
            rest = b""
            while True:
                async with asyncio.timeout(idle):
                    chunk = await self._chunk()
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield status, line
        except TimeoutError:
            raise ProbeError("timeout", f"nothing came for {idle:.0f} s", sent=True) from None
        except (asyncio.IncompleteReadError, ConnectionError, OSError) as error:
            raise ProbeError("cut in the middle", str(error), sent=True) from None

    def close(self) -> None:
        self._writer.close()

    async def _send(self, method: str, path: str, body: bytes, content_type: str) -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.peer}\r\n"
        head += "Accept: application/json\r\nUser-Agent: autarky-probe\r\n"
        if body:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        await self._writer.drain()

    async def _head(self) -> tuple[int, dict[str, str]]:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])}
        return int(lines[0].split(" ")[1]), headers

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while chunk := await self._chunk():
                parts.append(chunk)
            return b"".join(parts)
        return await self._reader.readexactly(int(headers.get("content-length", "0")))

    async def _chunk(self) -> bytes:
        size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
        data = await self._reader.readexactly(size + 2)
        return data[:-2]


def reason(answer: Answer) -> str:
    """The machine-readable word of an error status, or a piece of its body."""
    try:
        return str(json.loads(answer.body).get("reason", ""))
    except (ValueError, AttributeError):
        return answer.body[:80].decode(errors="replace")
