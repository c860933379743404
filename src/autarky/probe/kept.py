"""A connection that is kept for one request after the other, and the one retry that it allows.

The idle-close race: the server ends a connection while a request is on its way to it. Such a connection had carried
an answer before, broke by a close or a reset, not one byte of the new answer had come, and the end came within one
round trip of the request, as round trips are at that time: what comes later is the end of a connection over which the
server had the request. The request is then sent once more, on a new connection. If that succeeds, the race is counted
and nothing has failed; otherwise the request has failed. A write says which version of its object it changes: if its
retry gets a conflict, the server had carried out what it did not answer, and that is a failure however soon the
connection ended.

A stopping API server says the same in words to what still comes on kept connections in the moment in which it closes
them: 503 «apiserver is shutting down» with `Retry-After`. HTTP/1.1 has no other way to tell a busy client to go
elsewhere, so it is judged like the race, by its first retry, and counted by itself. It closes each connection only
once: a server that turns the same client away again has failed. On a new connection the same answer is a failure:
the load balancer should not have led there.

Contract: only requests that may be carried out twice go over a kept connection. Of a request that got no answer
nobody knows whether it was.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from autarky.probe.endpoint import Endpoint
from autarky.probe.http import Answer, Connection, Request
from autarky.probe.identity import identify, is_one_process
from autarky.probe.outcome import Fault, Kind, Stream
from autarky.probe.run import Run

SHORTEST_ROUND_TRIP = 0.25
"""Seconds. A stopping kube-apiserver ends all its watches before the connections on which nothing is under way, and the
load balancer waits for a processor meanwhile: by captured packets, on two processors, a request lay unread at the
server for up to 0.12 s before the connection was closed in order."""
LATEST = 1.0
"""Seconds. An end that came later than any of what is known of that time is judged by what its retry takes, up to this:
where a request lay unread for so long, the next one does, too. Slower answers to others count as this: a write may have
waited for etcd, and no request lies unread for that."""
APART = 10.0
"""Seconds between the stops of two indistinguishable servers: they are replaced one after the other, and the new one
must be ready before the next stops."""
CONFLICT = 409
SHUTTING_DOWN = "apiserver is shutting down"
"""kube-apiserver's words (1.36, 1.37) to a request that comes after it has begun to wait for the last ones."""


class Excuse(Enum):
    """Why a request was sent a second time."""

    RACE = "race"
    TURNED_AWAY = "turned away"


class Kept:
    """One worker's connection to one endpoint. Its requests are counted in one stream."""

    def __init__(self, run: Run, endpoint: Endpoint, stream: Stream) -> None:
        self._run = run
        self._endpoint = endpoint
        self._stream = stream
        self._tally = run.tally.streams[stream]
        self._connection: Connection | None = None
        self._farewells = Farewells()

    async def send(self, request: Request, *, expected: Collection[int] = (200, 201)) -> Answer | None:
        """One request with the one retry that a race or a stopping server allows, counted once. None when it failed."""
        began = self._run.now()
        try:
            connection, answer, excuse = await self._asked(request, until=began + self._run.timeout)
        except Fault as fault:
            self._run.faulted(self._stream, self._endpoint, began, fault, self._connection)
            return None
        if answer.status not in expected:
            await self._run.refused(self._stream, began, connection, answer)
            return None
        self._tally.races += excuse is Excuse.RACE
        self._tally.turned_away += excuse is Excuse.TURNED_AWAY
        self._run.answered(self._stream, self._endpoint, began)
        self._run.noticed(self._endpoint, await identify(connection))
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _asked(self, request: Request, *, until: float) -> tuple[Connection, Answer, Excuse | None]:
        connection = await self._opened(until)
        reused = connection.answers > 0
        try:
            answer = await connection.exchange(request, until=until)
        except Fault as fault:
            if not (reused and _is_cut(fault)):
                raise
            longest = max(connection.round_trip, min(self._run.slowest_lately(), LATEST))
            after_it = await self._after_a_cut(request, fault, longest, until)
            self._tally.late_races += fault.after > connection.round_trip
            return *after_it, Excuse.RACE
        if not (reused and _turns_away(answer)):
            return connection, answer, None
        if not self._farewells.is_first(connection.server, self._run.now()):
            return connection, answer, None
        return *await self._again(request, answer.sentence(), until), Excuse.TURNED_AWAY

    async def _after_a_cut(
        self, request: Request, fault: Fault, round_trip: float, until: float
    ) -> tuple[Connection, Answer]:
        """The retry that a race allows. Raises Fault where the server had the request."""
        late = f"{fault.detail}, {fault.after:.2f} s after the request"
        if not is_race(fault, max(round_trip, LATEST)):
            raise Fault(fault.kind, str(self._endpoint), late) from fault
        began = self._run.now()
        connection, answer = await self._again(request, fault.detail, until)
        if answer.status == CONFLICT:
            done = f"{fault.detail}, though it was carried out: a retry got {answer.sentence()}"
            raise Fault(fault.kind, str(self._endpoint), done) from fault
        if not is_race(fault, max(round_trip, self._run.now() - began)):
            raise Fault(fault.kind, str(self._endpoint), late) from fault
        return connection, answer

    async def _opened(self, until: float) -> Connection:
        """The kept connection, or a new one where the server has ended that in order, as any client would."""
        if self._connection is not None and not self._connection.usable:
            self.close()
            self._tally.reconnects += 1
        if self._connection is None:
            self._connection = await self._run.open(self._endpoint, until=until)
        return self._connection

    async def _again(self, request: Request, why: str, until: float) -> tuple[Connection, Answer]:
        """The first retry, on a new connection."""
        self.close()
        try:
            self._connection = await self._run.open(self._endpoint, until=until)
            return self._connection, await self._connection.exchange(request, until=until)
        except Fault as fault:
            detail = f"{fault.detail}; it was the retry after: {why}"
            raise Fault(fault.kind, str(self._endpoint), detail, begun=fault.begun) from fault


class Farewells:
    """Which servers have turned a client away from its kept connection: each may once, as it stops.

    A server that does not report its start time cannot be distinguished from others of its version: together, these
    may once in APART seconds.
    """

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def is_first(self, server: str, at: float) -> bool:
        """Whether it may; noted as done. `server` as `identify` has it, `at` in seconds of any clock."""
        before, self._last[server] = self._last.get(server), at
        return before is None or (not is_one_process(server) and at - before >= APART)


def is_race(fault: Fault, round_trip: float) -> bool:
    """Whether the server may have ended a kept connection before it had the request. `round_trip`: seconds that one may
    take at that time: on a machine without free processors a request lies unread for as long as others wait for their
    answers."""
    return _is_cut(fault) and fault.after <= max(round_trip, SHORTEST_ROUND_TRIP)


def _is_cut(fault: Fault) -> bool:
    return fault.kind in (Kind.CLOSED, Kind.RESET) and not fault.begun


def _turns_away(answer: Answer) -> bool:
    """Whether a stopping server has said that it carried nothing out. Every other 429 and 503 is a failure: too
    much to do, no storage."""
    return answer.status == 503 and "retry-after" in answer.headers and SHUTTING_DOWN in answer.sentence()
