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
"""After a refusal: it is to hold connections, not to keep all processors busy. One that was cut is replaced at once."""


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""Both: a writer that nobody has any more closes the connection."""


async def attempt(address: str) -> Streams | None:
    with suppress(OSError):
        return await asyncio.open_connection(address, 6443)
    return None


async def hold(address: str, streams: Streams | None) -> None:
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        if streams is not None:
            reader, writer = streams
            with suppress(OSError):
                await reader.read()
            writer.transport.abort()
        if loop.time() - began < 1:
            await asyncio.sleep(PAUSE_SECONDS)
        streams = await attempt(address)


async def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    address, number = sys.argv[1], int(sys.argv[2])
    first = await asyncio.gather(*(attempt(address) for _ in range(number)))
    holding = [asyncio.create_task(hold(address, streams)) for streams in first]
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in holding:
        task.cancel()
    await asyncio.gather(*holding, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
