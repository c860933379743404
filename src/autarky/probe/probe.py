"""The probe: it runs while something is done to a cluster, and reports what a client noticed.

    async with Probe(["https://10.0.0.1:6443"], ca_pem=ca, client_cert_pem=cert, client_key_pem=key) as probe:
        await pivot()
    print(probe.report().verdict)

Contract: it connects only to the addresses it was given, each of which must serve by itself: a client
has only one. It starts only once all of them answer. It is bounded: every request has a time limit, as
many are under way as the rates say, and it ends with the block or after `duration`. Leaving the block takes
well under a second; when the API is down, up to three times `timeout` and `patience`.

Dangers: it shares its event loop with whatever the caller does. A caller that blocks the loop holds the probe
up as well: the report has the longest such time, and says so with each timeout that it may have caused.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from types import TracebackType

from autarky.errors import UserError
from autarky.net.tls import client_context
from autarky.probe import objects, streams
from autarky.probe.background import background
from autarky.probe.endpoint import resolve
from autarky.probe.http import Client, Request
from autarky.probe.identity import PATIENCE, identify
from autarky.probe.ledger import Ledger
from autarky.probe.outcome import Failure, Fault, Stream
from autarky.probe.pace import Pace
from autarky.probe.report import Report, report
from autarky.probe.run import Run
from autarky.probe.watch import Follower
from autarky.probe.writes import Writer

NAMESPACE = "autarky-probe"
PER_WORKER = 50
"""Requests a second for one worker that sends one after the other: enough while answers take up to 20 ms."""
METER = 0.25
"""Seconds between two checks whether the probe itself runs in time."""
WORTH_NOTING = 0.5
"""Seconds by which it is late."""
LOOK = 1.0
"""Seconds between two checks which API server answers."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests a second, over all endpoints. A rate of 0 leaves the stream out; without writes of either kind
    there is no watch, and nothing is created in the cluster.

    The default is 200 in all. A new connection costs both sides about five times a kept one, for its TLS
    handshake, and every one of the `writes` has one as well; hence the shares.
    """

    new: float = 40.0
    kept_alive: float = 130.0
    writes: float = 20.0
    kept_writes: float = 10.0

    @classmethod
    def shared(cls, total: float, *, writes: bool = True) -> Rates:
        """`total` in the default's shares; without writes their share goes to the reads of the same kind."""
        share = total / 200
        rates = (40, 130, 20, 10) if writes else (60, 140, 0, 0)
        return cls(*(rate * share for rate in rates))

    @property
    def any_writes(self) -> bool:
        return self.writes > 0 or self.kept_writes > 0


class Probe:
    """See the module's contract."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        ca_pem: bytes | None,
        client_cert_pem: bytes | None = None,
        client_key_pem: bytes | None = None,
        token: str | Callable[[], str] | None = None,
        server_name: str | None = None,
        rates: Rates | None = None,
        timeout: float = 5.0,
        duration: float | None = None,
        patience: float = 20.0,
        namespace: str = NAMESPACE,
        on_failure: Callable[[Failure], None] = lambda _failure: None,
    ) -> None:
        """`servers`: https URLs. `timeout`: seconds for one request, dialling included. `duration`: seconds
        after which the probe ends by itself; None: with the block. `patience`: seconds in the end for a watch
        to resume, and for an answer about the writes. `on_failure` is called for each failure at once. Raises
        UserError for certificates that cannot be used.
        """
        if not servers:
            raise UserError("there is nothing to probe", fix="give the URL of an API server")
        self._servers = tuple(servers)
        self._rates = rates or Rates()
        self._timeout = timeout
        self._duration = duration
        self._patience = patience
        self._namespace = namespace
        self._on_failure = on_failure
        self._id = secrets.token_hex(4)
        tls: ssl.SSLContext = client_context(ca_pem, client_cert_pem, client_key_pem)
        self._client = Client(tls, f"autarky-probe/{self._id}", token, server_name)
        self._run: Run | None = None
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0
        self._ended: float | None = None

    # --- life ---

    async def __aenter__(self) -> Probe:
        """Begin. Raises Unreachable when an endpoint does not answer, ApiError when it refuses the probe."""
        endpoints = [await resolve(server) for server in self._servers]
        halted = asyncio.get_running_loop().create_future()
        self._run = run = Run(
            self._id, self._client, tuple(endpoints), self._namespace, self._timeout, halted, self._on_failure
        )
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._probe(run, ready), name="probe")
        try:
            await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        if not ready.done():
            await self._task  # it has failed
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        assert self._task is not None  # noqa: S101 # for mypy: it was entered
        self._halt()
        if error is not None and not isinstance(error, Exception):  # cancelled: nobody waits for a judgement
            self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            if error is None:
                raise

    async def wait(self) -> None:
        """Until `duration` has passed. With no duration: forever."""
        assert self._run is not None  # noqa: S101 # for mypy: it was entered
        await asyncio.wait({self._run.halted})

    def report(self) -> Report:
        """What was noticed so far; after the block, all of it."""
        assert self._run is not None  # noqa: S101 # for mypy: it was entered
        ended = self._ended if self._ended is not None else self._run.now()
        return report(
            self._run.tally,
            started=self._run.unix(self._began),
            ended=self._run.unix(ended),
            endpoints=[endpoint.url for endpoint in self._run.endpoints],
            writes_wanted=self._rates.any_writes,
        )

    # --- the work ---

    async def _probe(self, run: Run, ready: asyncio.Future[None]) -> None:
        try:
            await self._prepare_and_probe(run, ready)
        finally:
            self._ended = self._ended if self._ended is not None else run.now()
            self._halt()

    async def _prepare_and_probe(self, run: Run, ready: asyncio.Future[None]) -> None:
        if self._rates.any_writes:
            await self._probe_with_writes(run, ready)
            return
        request = _read("default")
        await run.ask(request, patience=self._timeout)
        async with background([self._meter(run, [])]):
            await self._load(run, ready, request, [], Ledger())

    async def _probe_with_writes(self, run: Run, ready: asyncio.Future[None]) -> None:
        position = await objects.prepare(run, patience=self._timeout)
        followers = [Follower(run, endpoint, position) for endpoint in run.endpoints]
        ledger = Ledger()
        try:
            async with background([self._meter(run, followers), *(follower.follow() for follower in followers)]):
                for follower in followers:
                    await follower.begin(self._timeout)
                await self._load(run, ready, _read(self._namespace), followers, ledger)
                deadline = run.now() + self._patience
                for follower in followers:
                    await follower.settle(deadline)
            await objects.verify(run, ledger, patience=max(self._timeout, deadline - run.now()))
        finally:
            await objects.clean_up(run, patience=self._timeout)

    async def _load(
        self, run: Run, ready: asyncio.Future[None], request: Request, followers: Sequence[Follower], ledger: Ledger
    ) -> None:
        """The requests, from now until the probe is halted, and until all of them have ended."""
        self._began = run.now()
        if self._duration is not None:
            asyncio.get_running_loop().call_later(self._duration, self._halt)
        ready.set_result(None)
        async with background([self._look(run)]), asyncio.TaskGroup() as group:
            if self._rates.new:
                group.create_task(streams.new_connections(run, request, self._rates.new), name="probe: new")
            self._start_kept_alive(run, group, request)
            self._start_writers(run, group, ledger, followers)
        self._ended = run.now()

    def _start_kept_alive(self, run: Run, group: asyncio.TaskGroup, request: Request) -> None:
        for number, pace in enumerate(_paces(run, Stream.KEPT, self._rates.kept_alive)):
            endpoint = run.endpoints[number % len(run.endpoints)]
            group.create_task(streams.kept_alive(run, endpoint, request, pace), name=f"probe: kept alive {number}")

    def _start_writers(self, run: Run, group: asyncio.TaskGroup, ledger: Ledger, followers: Sequence[Follower]) -> None:
        for stream, rate in ((Stream.WRITES, self._rates.writes), (Stream.KEPT_WRITES, self._rates.kept_writes)):
            for number, pace in enumerate(_paces(run, stream, rate)):
                endpoint = run.endpoints[number % len(run.endpoints)]
                writer = Writer(run, endpoint, number, ledger, followers, stream)
                group.create_task(writer.write(pace), name=f"probe: {stream} {number}")

    async def _meter(self, run: Run, followers: Sequence[Follower]) -> None:
        """Notice when the probe itself is held up, and when a watch has gone silent."""
        while True:
            due = run.now() + METER
            await asyncio.sleep(METER)
            run.tally.held_up(run.unix(due), run.unix(run.now()), worth_noting=WORTH_NOTING)
            for follower in followers:
                follower.cut_if_dead()

    async def _look(self, run: Run) -> None:
        """Once a second, ask whoever answers a new connection who it is: brackets every failure."""
        while True:
            for endpoint in run.endpoints:
                try:
                    connection = await run.open(endpoint, until=run.now() + PATIENCE)
                except Fault:
                    continue
                run.noticed(endpoint, await identify(connection))
                connection.close()
            await asyncio.sleep(LOOK)

    def _halt(self) -> None:
        if self._run is not None and not self._run.halted.done():
            self._run.halted.set_result(None)


def _read(namespace: str) -> Request:
    """A small object that is always there, read from etcd."""
    return Request("GET", f"/api/v1/namespaces/{namespace}")


def _paces(run: Run, stream: Stream, rate: float) -> list[Pace]:
    """One pace for each worker of a stream: at least one for each endpoint, out of step with each other."""
    if not rate:
        return []
    workers = run.tally.streams[stream].workers = max(len(run.endpoints), ceil(rate / PER_WORKER))
    return [Pace(rate / workers, run.halted, offset=number / rate) for number in range(workers)]
