"""A program: what a client on a node meets who opens a new connection to the node's load balancer, ten times a second.

    new_connections.py CA_FILE

Run it in the node's network namespace. It says "probing" when it begins, and when its standard input ends, one JSON
list of [began, seconds, status] on standard output: Unix time, how long it took, the HTTP status (0: it failed).
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time

EVERY_SECONDS = 0.1
PATIENCE_SECONDS = 10.0
PATH = "/readyz"


async def attempt(tls: ssl.SSLContext, seen: list[tuple[float, float, int]]) -> None:
    began = time.time()
    status, writer = 0, None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", 6443, ssl=tls)
            writer.write(f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            status = int((await reader.readline()).split()[1])
    except (OSError, IndexError, ValueError, TimeoutError):
        pass
    finally:
        if writer is not None:
            writer.transport.abort()
    seen.append((began, time.time() - began, status))


async def main() -> None:
    tls = ssl.create_default_context(cafile=sys.argv[1])
    seen: list[tuple[float, float, int]] = []
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    sys.stdout.write("probing\n")
    sys.stdout.flush()
    async with asyncio.TaskGroup() as group:
        while not ended.done():
            group.create_task(attempt(tls, seen))
            await asyncio.sleep(EVERY_SECONDS)
    sys.stdout.write(json.dumps(sorted(seen)))


if __name__ == "__main__":
    asyncio.run(main())
