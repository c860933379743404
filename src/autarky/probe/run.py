"""What all streams of one probe share: where to, as whom, how long, and where the outcomes go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from autarky.errors import ApiError
from autarky.probe.endpoint import Endpoint
from autarky.probe.http import Answer, Client, Connection, Request, connect
from autarky.probe.identity import identify
from autarky.probe.lately import SlowestLately
from autarky.probe.outcome import Failure, Fault, Kind, Stream
from autarky.probe.tally import Tally


@dataclass(slots=True)
class Run:
    """One probe. `timeout`: seconds for one request, dialling included. `halted`: done when no more requests are to be
    started. `on_failure` is called for every failure at once."""

    id: str
    client: Client
    endpoints: tuple[Endpoint, ...]
    namespace: str
    timeout: float
    halted: asyncio.Future[None]
    on_failure: Callable[[Failure], None] = lambda _failure: None
    tally: Tally = field(default_factory=Tally)
    _lately: SlowestLately = field(default_factory=SlowestLately)
    _epoch: float = field(default_factory=lambda: time.time() - asyncio.get_running_loop().time())

    # --- time ---

    def now(self) -> float:
        """The event loop's clock, in seconds; deadlines are of it."""
        return asyncio.get_running_loop().time()

    def unix(self, moment: float) -> float:
        """A time of the event loop's clock as Unix seconds. A clock that is set meanwhile does not matter."""
        return self._epoch + moment

    # --- requests ---

    async def open(self, endpoint: Endpoint, *, until: float) -> Connection:
        return await connect(endpoint, self.client, until=until)

    async def fresh(
        self, stream: Stream, endpoint: Endpoint, request: Request, *, expected: Collection[int] = (200, 201)
    ) -> Answer | None:
        """One request on a connection of its own, counted. None when it failed."""
        began, connection = self.now(), None
        try:
            connection = await self.open(endpoint, until=began + self.timeout)
            answer = await connection.exchange(request, until=began + self.timeout)
            if answer.status not in expected:
                await self.refused(stream, began, connection, answer)
                return None
            self.answered(stream, endpoint, began)
        except Fault as fault:
            self.faulted(stream, endpoint, began, fault, connection)
            return None
        finally:
            if connection is not None:
                connection.close()
        return answer

    async def ask(self, request: Request, *, patience: float, expected: Collection[int] = (200, 201)) -> Answer:
        """A request that is no part of the measurement, again until somebody answers. Not counted.

        Raises Fault, which is Unreachable, when nobody has answered after `patience` seconds, and ApiError
        for a status that was not expected and will not go away by waiting.
        """
        deadline = self.now() + patience
        while True:
            for endpoint in self.endpoints:
                try:
                    answer = await self._ask_once(endpoint, request, deadline)
                    if answer.status in expected:
                        return answer
                    if answer.status < 500 and answer.status != 429:
                        raise _api_error(answer)
                    problem: Fault | ApiError = _api_error(answer)
                except Fault as fault:
                    problem = fault
            if self.now() + 0.2 >= deadline:
                raise problem
            await asyncio.sleep(0.2)

    async def _ask_once(self, endpoint: Endpoint, request: Request, deadline: float) -> Answer:
        until = min(deadline, self.now() + self.timeout)
        connection = await self.open(endpoint, until=until)
        try:
            return await connection.exchange(request, until=until)
        finally:
            connection.close()

    # --- outcomes ---

    def answered(self, stream: Stream, endpoint: Endpoint, began: float) -> None:
        now = self.now()
        self._lately.note(now, now - began)
        self.tally.answered(stream, endpoint.url, self.unix(began), now - began)

    def slowest_lately(self) -> float:
        """Seconds that the slowest of the last answers took, of any stream; 0 where there was none lately."""
        return self._lately.seconds(self.now())

    async def refused(self, stream: Stream, began: float, connection: Connection, answer: Answer) -> None:
        """An answer that is no success; whoever gave it is asked who it is."""
        seconds = self.now() - began
        detail = answer.sentence()
        self.noticed(connection.endpoint, await identify(connection))
        self._failed(stream, connection.endpoint, began, seconds, Kind.STATUS, detail, connection)

    def faulted(
        self, stream: Stream, endpoint: Endpoint, began: float, fault: Fault, connection: Connection | None
    ) -> None:
        self._failed(stream, endpoint, began, self.now() - began, fault.kind, fault.detail, connection)

    def broken(self, stream: Stream, kind: Kind, detail: str, endpoint: Endpoint | None = None) -> None:
        """Record that a promise spanning many requests was broken."""
        self._tell(Failure(self.unix(self.now()), stream, kind, detail, address=str(endpoint or "")))

    def noticed(self, endpoint: Endpoint, server: str) -> None:
        """This API server answers at this endpoint."""
        self.tally.saw(server, endpoint.url, self.unix(self.now()))

    def _failed(
        self,
        stream: Stream,
        endpoint: Endpoint,
        began: float,
        seconds: float,
        kind: Kind,
        detail: str,
        connection: Connection | None,
    ) -> None:
        local, server = (connection.local, connection.server) if connection is not None else ("", "")
        failure = Failure(self.unix(began), stream, kind, detail, seconds, str(endpoint), local, server)
        self._tell(failure, endpoint.url)

    def _tell(self, failure: Failure, endpoint: str = "") -> None:
        self.tally.failed(failure, endpoint)
        self.on_failure(failure)


def _api_error(answer: Answer) -> ApiError:
    status_object = answer.object()
    return ApiError(
        answer.status, str(status_object.get("reason") or ""), str(status_object.get("message") or "no message")
    )
