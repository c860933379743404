"""The node's running HAProxy: which configuration takes new connections, and how to reload it.

Contract: neither raises when HAProxy does not answer. A reload drops no connection: the master starts a new worker with
the same listening sockets, and the old worker stays for its connections (see `manifests.haproxy.MOST_RELOADS`). If
HAProxy cannot use the file, it continues as before.

The agent has no capabilities, so it cannot send signals: HAProxy's master listens on a socket that only root may open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from autarky.control.load_balancer.manifests.haproxy import CONFIGURATION_PATH, MASTER_SOCKET, SLOTS
from autarky.control.slots.node.ports import PLAIN_SECONDS, plain_status
from autarky.model import ports


async def running_configuration(port: int = ports.NLLB_HEALTH) -> str | None:
    """The hash of what runs; empty when that is of a release that reports none; None when HAProxy does not answer."""
    writer = None
    try:
        async with asyncio.timeout(PLAIN_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {CONFIGURATION_PATH} HTTP/1.0\r\n\r\n".encode())
            answer = await reader.read()
    except (OSError, TimeoutError):
        return None
    finally:
        if writer is not None:
            writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)
    if len(status) < 2:
        return None
    return body.decode("latin-1").strip() if status[1] == b"200" else ""


async def holds(path: str) -> bool:
    """Whether it considers a server ready ("n1-hosted"), or alive ("alive/n1-hosted")."""
    return await plain_status(ports.NLLB_HEALTH, f"/{path}") == 200


async def holds_any(paths: Iterable[str]) -> bool:
    """The same of one of them at least. They are asked side by side: whoever keeps the port busy costs the time of one
    answer, and not of one for each."""
    return any(await asyncio.gather(*map(holds, paths)))


async def another_node_serves(node: str, control_nodes: Iterable[str]) -> bool:
    """Whether it considers an API server of another node ready, in either slot."""
    others = [name for name in control_nodes if name != node]
    return await holds_any(f"{name}-{slot}" for name in others for slot in SLOTS)


async def reload(socket: str = MASTER_SOCKET) -> str | None:
    """Request it. Returns None, or why that is not possible. `running_configuration` shows whether it was done."""
    writer = None
    try:
        async with asyncio.timeout(PLAIN_SECONDS):
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(b"reload\n")
            await writer.drain()
            with suppress(ConnectionError):  # the master re-executes itself, which closes its connections
                await reader.read()
    except TimeoutError:
        return None if writer is not None else "it does not answer on its socket"
    except OSError as error:
        return f"its socket cannot be used: {error.strerror or error}"
    finally:
        if writer is not None:
            writer.close()
    return None
