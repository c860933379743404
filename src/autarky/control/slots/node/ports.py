"""Health of the node's hosted API server and what its load balancer sees, by their ports on loopback.

Contract: the hosted slot is judged by its own port, never by the shared one, and etcd is left out (rule 9).
A refused connection is ABSENT; an answer other than 200 is NOT_READY. No answer is UNKNOWN, and NOT_READY only when
that lasts longer than a live server's slowest answer: a slow machine answers late, a hung server never. A server that
closes connections is not just slow: SILENT_ROUNDS of that are enough.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field

from autarky.control.api_server.manifests import READY_PATH
from autarky.control.slots.decide.pivot import Health
from autarky.model import patience, ports

_STATUS = re.compile(rb"[0-9]{3}")
SILENT_ROUNDS = 3
ANSWER_SECONDS, PLAIN_SECONDS, DEAD_SECONDS = patience.OWN_PORT, patience.PLAIN_PORT, patience.DEAD
_BROKEN = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)
"""What reading from a closed connection, or a malformed answer, raises."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class KeptConnection:
    """Requests one path of one server repeatedly through one connection. At two requests a second for the life of the
    agent they must be cheap: this takes a fraction of what a general HTTP client needs."""

    tls: ssl.SSLContext
    port: int
    path: str
    host: str = "127.0.0.1"
    _open: Connection | None = field(default=None, repr=False)

    async def status(self) -> int | None:
        """The status of an answer on the kept connection, or on a new one when the server has closed the old one; None
        where there is no answer in time."""
        with suppress(*_BROKEN, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._open is not None:
                    with suppress(*_BROKEN):
                        return await self._ask(self._open)
                    await self.close()
                self._open = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
                return await self._ask(self._open)
        await self.close()
        return None

    async def _ask(self, connection: Connection) -> int:
        """The status; the complete answer is read. Raises one of _BROKEN."""
        reader, writer = connection
        writer.write(f"GET {self.path} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(":", 1) for line in head[1:] if line)
        if "content-length" in fields:
            await reader.readexactly(int(fields["content-length"]))
        if "content-length" not in fields or fields.get("connection", "").strip() == "close":
            await self.close()
        return int(head[0].split()[1])

    async def close(self) -> None:
        """At once, without a TLS close."""
        if self._open is not None:
            self._open[1].transport.abort()
            self._open = None


@dataclass
class OwnPorts:
    """The hosted API server of this node."""

    tls: ssl.SSLContext
    port: int = ports.API_HOSTED
    _silent: int = 0
    _silent_since: float | None = None
    _kept: KeptConnection | None = field(default=None, repr=False)

    async def hosted_api_server(self) -> Health:
        if self._kept is None:
            self._kept = KeptConnection(self.tls, self.port, READY_PATH)
        asked = time.monotonic()
        status = await self._kept.status()
        if status is None:
            return await self._unanswered(asked)
        self._heard()
        return Health.READY if status == 200 else Health.NOT_READY

    async def _unanswered(self, asked: float) -> Health:
        if not await listens(self.port):
            self._heard()
            return Health.ABSENT
        self._silent += 1
        if self._silent_since is None:
            self._silent_since = asked
        is_dead = time.monotonic() - self._silent_since >= DEAD_SECONDS
        return Health.NOT_READY if is_dead or self._silent >= SILENT_ROUNDS else Health.UNKNOWN

    def _heard(self) -> None:
        self._silent, self._silent_since = 0, None

    async def close(self) -> None:
        if self._kept is not None:
            await self._kept.close()
            self._kept = None


async def listens(port: int) -> bool:
    """Whether anything accepts connections there."""
    try:
        async with asyncio.timeout(PLAIN_SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError):
        return True
    writer.close()
    return True


async def plain_status(port: int, path: str) -> int | None:
    """The status of a plain HTTP answer on loopback, or None when there is none."""
    try:
        async with asyncio.timeout(PLAIN_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):  # the last one: a line without an end
        return None
    fields = line.split()
    return int(fields[1]) if len(fields) > 1 and _STATUS.fullmatch(fields[1]) else None


async def balanced(node: str) -> bool | None:
    """Whether the load balancer considers the node's hosted API server ready; None when that is not known."""
    status = await plain_status(ports.NLLB_HEALTH, f"/{node}-hosted")
    return None if status is None else status == 200


async def standby_balanced(node: str) -> bool | None:
    """The same of the node's standby, on either of its two ports; None when that is not known."""
    seen = [await plain_status(ports.NLLB_HEALTH, f"/{node}-{slot}") for slot in ("standby", "spare")]
    return None if seen == [None, None] else 200 in seen
