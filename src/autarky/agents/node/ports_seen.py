"""What the node's own ports say: the hosted API server, etcd, the load balancer. All on loopback.

Contract: the hosted slot is judged by its own port, never by the shared one, and etcd is left out (rule 9).
A refused connection is ABSENT; an answer other than 200 is NOT_READY; silence is UNKNOWN, and only after
SILENT_ROUNDS of it NOT_READY, since a busy machine is late now and then and a hung server is late for ever.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field

from autarky.decide.slots import Health
from autarky.errors import Unreachable
from autarky.model import ports
from autarky.net.http import Endpoints, Request
from autarky.render.api_server import READY_PATH

SILENT_ROUNDS = 3
ANSWER_SECONDS = 2.0
_READY = Request("GET", READY_PATH, resend=True)


@dataclass
class OwnPorts:
    """Keeps one connection to the hosted API server, so that a look costs a millisecond."""

    tls: ssl.SSLContext
    _silent: int = 0
    _server: Endpoints = field(init=False)

    def __post_init__(self) -> None:
        self._server = Endpoints([f"https://127.0.0.1:{ports.API_HOSTED}"], self.tls)

    async def hosted_api_server(self) -> Health:
        try:
            answer = await self._server.request(_READY, timeout=ANSWER_SECONDS)
        except Unreachable:
            return await self._unanswered()
        self._silent = 0
        return Health.READY if answer.status == 200 else Health.NOT_READY

    async def _unanswered(self) -> Health:
        if not await listens(ports.API_HOSTED):
            self._silent = 0
            return Health.ABSENT
        self._silent += 1
        return Health.NOT_READY if self._silent >= SILENT_ROUNDS else Health.UNKNOWN

    async def close(self) -> None:
        await self._server.close()


async def listens(port: int) -> bool:
    """Whether anything accepts connections there."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
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
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    fields = line.split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None


async def balanced(node: str) -> bool | None:
    """Whether the load balancer holds the node's hosted API server for ready; None when it does not say."""
    status = await plain_status(ports.NLLB_HEALTH, f"/{node}-hosted")
    return None if status is None else status == 200


async def etcd_is_up() -> bool:
    """By the local member's health; the API server reaches its members through the load balancer anyway."""
    return await plain_status(ports.ETCD_HEALTH, "/readyz") == 200
