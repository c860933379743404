"""A program: somebody who opens connections to ADDRESS:6443, says nothing, and opens another one for each that ends.

    silent_connections.py ADDRESS NUMBER

Run it in the network namespace of whoever it is to be. It says "open" when each has been tried once, and ends with
its standard input.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from contextlib import suppress

PAUSE_SECONDS = 5.0
"""Before the next attempt: it is to hold connections, not to keep all processors busy."""


async def attempt(address: str) -> asyncio.StreamReader | None:
    with suppress(OSError):
        reader, _ = await asyncio.open_connection(address, 6443)
        return reader
    return None


async def hold(address: str, reader: asyncio.StreamReader | None) -> None:
    while True:
        if reader is not None:
            with suppress(OSError):
                await reader.read()
        await asyncio.sleep(PAUSE_SECONDS)
        reader = await attempt(address)


async def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    address, number = sys.argv[1], int(sys.argv[2])
    first = await asyncio.gather(*(attempt(address) for _ in range(number)))
    holding = [asyncio.create_task(hold(address, reader)) for reader in first]
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in holding:
        task.cancel()
    await asyncio.gather(*holding, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
