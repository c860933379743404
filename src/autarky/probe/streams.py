"""The reads: new connections, and one long connection per worker (see kept.py)."""

from __future__ import annotations

import asyncio

from autarky.probe.endpoint import Endpoint
from autarky.probe.http import Answer, Request
from autarky.probe.kept import Kept
from autarky.probe.outcome import Stream
from autarky.probe.pace import Pace
from autarky.probe.run import Run

MAX_IN_FLIGHT = 256
"""New connections at a time. One more would have to wait for a descriptor in a small container."""


async def new_connections(run: Run, request: Request, rate: float) -> None:
    """Begin `rate` requests a second, each on a connection of its own, the endpoints in turn.

    A dial that hangs does not hold up the next one: clients arrive whether or not others are served.
    """
    pace = Pace(rate, run.halted)
    tally = run.tally.streams[Stream.NEW]
    begun = 0
    async with asyncio.TaskGroup() as group:
        under_way: set[asyncio.Task[Answer | None]] = set()
        while await pace.tick():
            if len(under_way) >= MAX_IN_FLIGHT:
                tally.left_out += 1
                continue
            endpoint = run.endpoints[begun % len(run.endpoints)]
            task = group.create_task(run.fresh(Stream.NEW, endpoint, request), name=f"probe: new connection {begun}")
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            begun += 1
    tally.paced(left_out=pace.left_out, silence=pace.longest_silence)


async def kept_alive(run: Run, endpoint: Endpoint, request: Request, pace: Pace) -> None:
    """Read again and again on one connection, one request after another."""
    kept = Kept(run, endpoint, Stream.KEPT)
    try:
        while await pace.tick():
            await kept.send(request)
    finally:
        kept.close()
        run.tally.streams[Stream.KEPT].paced(left_out=pace.left_out, silence=pace.longest_silence)
