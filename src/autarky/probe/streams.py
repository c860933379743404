"""The reads: new connections, and one long connection per worker.

Kept-alive requests may meet the idle-close race: the server ends a connection while a request is on its way
to it. As Go's HTTP client has it, it is that race when the connection had carried an answer before, broke by
a close or a reset, and not one byte of the new answer had come; then the request is sent once more, on a new
connection. Succeeds that, the race is counted and nothing has failed; else the request has failed.

A stopping API server says the same in words to what still comes on kept connections: in the moment in which
it closes them, it answers 503 «apiserver is shutting down» with `Retry-After`, and with
`--shutdown-send-retry-after` 429 with `Connection: close`, for longer. HTTP/1.1 has no other way to tell a
busy client to go elsewhere, so it is judged like the race, by its first retry, and counted by itself. On a
new connection or for a write the same answer is a failure: the load balancer should not have led there.
"""

from __future__ import annotations

import asyncio

from autarky.probe.endpoint import Endpoint
from autarky.probe.http import Answer, Connection, Request
from autarky.probe.identity import identify
from autarky.probe.outcome import Fault, Kind, Stream
from autarky.probe.pace import Pace
from autarky.probe.run import Run

MAX_IN_FLIGHT = 256
"""New connections at a time. One more would have to wait for a descriptor in a small container."""

SHUTTING_DOWN = "apiserver is shutting down"
"""kube-apiserver's words (1.36, 1.37) to a request that comes after it has begun to wait for the last ones."""


async def new_connections(run: Run, request: Request, rate: float) -> None:
    """Begin `rate` requests a second, each on a connection of its own, the endpoints in turn.

    A dial that hangs does not hold up the next one: clients come whether or not others are served.
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
    tally.left_out += pace.left_out


async def kept_alive(run: Run, endpoint: Endpoint, request: Request, pace: Pace) -> None:
    """Read again and again on one connection, one request after another."""
    reader = _KeptAlive(run, endpoint, request)
    try:
        while await pace.tick():
            await reader.read()
    finally:
        reader.close()
        run.tally.streams[Stream.KEPT].left_out += pace.left_out


class _KeptAlive:
    """One worker of the kept-alive stream, and the connection it keeps."""

    def __init__(self, run: Run, endpoint: Endpoint, request: Request) -> None:
        self._run = run
        self._endpoint = endpoint
        self._request = request
        self._connection: Connection | None = None
        self._tally = run.tally.streams[Stream.KEPT]

    async def read(self) -> None:
        """One request, with the one retry that a race allows; counted once."""
        began = self._run.now()
        try:
            connection, answer = await self._asked(until=began + self._run.timeout)
        except Fault as fault:
            self._run.faulted(Stream.KEPT, self._endpoint, began, fault, self._connection)
            return
        if not answer.ok:
            await self._run.refused(Stream.KEPT, began, connection, answer)
            return
        self._run.answered(Stream.KEPT, self._endpoint, began)
        self._run.noticed(self._endpoint, await identify(connection))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _asked(self, *, until: float) -> tuple[Connection, Answer]:
        connection = await self._opened(until)
        reused = connection.answers > 0
        try:
            answer = await connection.exchange(self._request, until=until)
        except Fault as fault:
            if not (reused and _is_race(fault)):
                raise
            found = await self._again(fault.detail, until)
            self._tally.races += 1
            return found
        if not (reused and _turns_away(answer)):
            return connection, answer
        found = await self._again(answer.sentence(), until)
        self._tally.turned_away += found[1].ok
        return found

    async def _opened(self, until: float) -> Connection:
        """The kept connection, or a new one where the server has ended that in order, as any client would."""
        if self._connection is not None and not self._connection.usable:
            self._connection.close()
            self._connection = None
            self._tally.reconnects += 1
        if self._connection is None:
            self._connection = await self._run.open(self._endpoint, until=until)
        return self._connection

    async def _again(self, why: str, until: float) -> tuple[Connection, Answer]:
        """The first retry, on a new connection."""
        self.close()
        self._connection = None
        try:
            self._connection = await self._run.open(self._endpoint, until=until)
            return self._connection, await self._connection.exchange(self._request, until=until)
        except Fault as fault:
            detail = f"{fault.detail}; it was the retry after: {why}"
            raise Fault(fault.kind, str(self._endpoint), detail, begun=fault.begun) from fault


def _is_race(fault: Fault) -> bool:
    return fault.kind in (Kind.CLOSED, Kind.RESET) and not fault.begun


def _turns_away(answer: Answer) -> bool:
    """Whether a stopping server has said that it carried nothing out. Other 429 and 503 are failures: too
    much to do, no storage."""
    if answer.status == 503:
        return "retry-after" in answer.headers and SHUTTING_DOWN in answer.sentence()
    return answer.status == 429 and answer.headers.get("connection", "").lower() == "close"
