"""Running the probe: four streams of requests side by side, at fixed rates, until the block ends.

    async with Probe(target) as probe:
        ...  # do something to the cluster
    print(probe.report.verdict)

It talks to the one address it was given and to nothing else, and stops by itself after `limit` seconds.
It leaves nothing in the cluster: its ConfigMap is deleted in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import urlsplit

from autarky.errors import UserError
from autarky.probe.http import Answer, Connection, ProbeError, reason
from autarky.probe.record import Failure, Report, StreamRecord, longest_outage, lost_writes, missed_events

NAMESPACE = "default"
CATCH_UP_SECONDS = 10.0
"""How long the watch may lag behind the last acknowledged write in the end."""
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_READ = "/api/v1/namespaces/kube-system"


@dataclass(frozen=True, slots=True)
class Target:
    """The API to probe: an https URL and a TLS context that trusts it and acts as somebody."""

    url: str
    tls: ssl.SSLContext = field(repr=False)

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 443


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests a second, by stream. New connections cost a TLS handshake on both sides."""

    new: float = 20.0
    kept: float = 40.0
    write: float = 10.0


class Probe:
    """See the module. `timeout`: seconds for one request. `limit`: seconds after which it stops by itself."""

    def __init__(
        self, target: Target, *, rates: Rates | None = None, timeout: float = 5.0, limit: float = 1800.0
    ) -> None:
        self._target = target
        self._rates = rates or Rates()
        self._timeout = timeout
        self._limit = limit
        self._name = f"autarky-probe-{uuid.uuid4().hex[:8]}"
        self._records = {name: StreamRecord() for name in ("new", "kept", "write", "watch")}
        self._failures: list[Failure] = []
        self._outcomes: list[tuple[float, bool]] = []
        self._acknowledged: list[int] = []
        self._seen: list[int] = []
        self._resumed = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._begin = 0.0
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """The result, once the block has ended."""
        if self._report is None:
            raise UserError("the probe is still running")
        return self._report

    # --- life ---

    async def __aenter__(self) -> Probe:
        self._begin = time.monotonic()
        version = await self._create_object()
        self._tasks = [
            asyncio.create_task(self._paced(self._rates.new, self._new_connection), name="probe new"),
            asyncio.create_task(self._kept_alive(), name="probe kept"),
            asyncio.create_task(self._write_all(), name="probe write"),
            asyncio.create_task(self._watch(version), name="probe watch"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        *requesting, watching = self._tasks
        for task in requesting:
            task.cancel()
        await asyncio.gather(*requesting, return_exceptions=True)
        await self._let_watch_catch_up(watching)
        await self._judge_writes()
        with contextlib.suppress(ProbeError):
            await self._once("DELETE", f"{_CONFIG_MAPS}/{self._name}")
        self._report = Report(
            seconds=time.monotonic() - self._begin,
            streams={name: record.summary() for name, record in self._records.items()},
            failures=tuple(self._failures),
            watch_resumed=self._resumed,
            writes_acknowledged=len(self._acknowledged),
            outage=longest_outage(self._outcomes),
        )

    async def _paced(self, rate: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do it at a fixed rate: a slow answer does not slow the stream down, but no two overlap."""
        if rate <= 0:
            return
        for number in itertools.count(1):
            await work()
            due = self._begin + number / rate
            elapsed = time.monotonic()
            if elapsed - self._begin > self._limit:
                return
            await asyncio.sleep(max(due - elapsed, 0.002))

    # --- streams ---

    async def _new_connection(self) -> None:
        begin = time.monotonic()
        try:
            answer = await self._once("GET", _READ)
        except ProbeError as error:
            self._count("new", begin)
            await self._fail("new", error.kind, error.detail)
            self._outcomes.append((begin, False))
            return
        self._count("new", begin)
        await self._judge("new", answer)
        self._outcomes.append((begin, answer.status < 400))

    async def _kept_alive(self) -> None:
        connection: Connection | None = None

        async def one() -> None:
            nonlocal connection
            begin = time.monotonic()
            try:
                connection, answer = await self._on_kept(connection)
            except ProbeError as error:
                connection = None
                await self._fail("kept", error.kind, error.detail)
            else:
                await self._judge("kept", answer)
                if not answer.keeps_open:
                    connection.close()
                    connection = None
            self._count("kept", begin)

        try:
            await self._paced(self._rates.kept, one)
        finally:
            if connection is not None:
                connection.close()

    async def _on_kept(self, connection: Connection | None) -> tuple[Connection, Answer]:
        """One request; if a kept connection was closed under it, or the server asks for it, once again."""
        connection = connection or await self._open()
        kept = connection.used
        try:
            answer = await connection.request("GET", _READ, timeout=self._timeout)
            if not (kept and answer.status == 429):  # a draining server: "try again elsewhere"
                return connection, answer
        except ProbeError as error:
            connection.close()
            if not kept or error.kind not in {"closed without answer", "reset"}:
                raise
        self._records["kept"].races += 1
        again = await self._open()
        return again, await again.request("GET", _READ, timeout=self._timeout)

    async def _write_all(self) -> None:
        numbers = itertools.count(1)

        async def one() -> None:
            number = next(numbers)
            begin = time.monotonic()
            patch = json.dumps({"data": {"value": str(number)}}).encode()
            try:
                answer = await self._once(
                    "PATCH", f"{_CONFIG_MAPS}/{self._name}", patch, "application/merge-patch+json"
                )
            except ProbeError as error:
                await self._fail("write", error.kind, error.detail)
            else:
                await self._judge("write", answer)
                if answer.status == 200:
                    self._acknowledged.append(number)
            self._count("write", begin)

        await self._paced(self._rates.write, one)

    async def _watch(self, version: str) -> None:
        """Watch the probe's own object for ever; resume after the last event that was seen."""
        while True:
            query = f"?watch=true&fieldSelector=metadata.name={self._name}&resourceVersion={version}&timeoutSeconds=300"
            connection = None
            try:
                connection = await self._open()
                self._records["watch"].requests += 1
                async for status, line in connection.stream(_CONFIG_MAPS + query, idle=330):
                    event = json.loads(line) if line else {}
                    if status != 200 or event.get("type") == "ERROR":
                        await self._fail("watch", "status", f"{status} {str(event)[:200]}")
                        break
                    if event:
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._seen.append(int(event["object"].get("data", {}).get("value", "0")))
            except (ProbeError, ValueError):
                pass  # a watch may end; what counts is that nothing is missed
            finally:
                if connection is not None:
                    connection.close()
            self._resumed += 1
            await asyncio.sleep(0.05)

    # --- judging ---

    async def _judge(self, stream: str, answer: Answer) -> None:
        if answer.status >= 400:
            await self._fail(stream, "status", f"{answer.status} {reason(answer)}")

    async def _fail(self, stream: str, kind: str, detail: str) -> None:
        host, port = self._target.address
        answered_by = await self._who_answers()
        self._failures.append(Failure(time.time(), stream, kind, detail, f"{host}:{port}", answered_by))

    async def _who_answers(self) -> str:
        """After a failure: the version of whichever server answers now, if one does within half a second."""
        try:
            async with asyncio.timeout(0.5):
                answer = await self._once("GET", "/version")
                return str(json.loads(answer.body).get("gitVersion", ""))
        except (ProbeError, TimeoutError, ValueError):
            return ""

    def _count(self, stream: str, begin: float) -> None:
        record = self._records[stream]
        record.requests += 1
        record.latencies.append(time.monotonic() - begin)

    async def _let_watch_catch_up(self, watching: asyncio.Task[None]) -> None:
        """Give the last events a moment to arrive, then judge what the watch saw."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while missed_events(self._acknowledged, self._seen) and time.monotonic() < deadline:  # noqa: ASYNC110 # bounded
            await asyncio.sleep(0.05)  # ten seconds at most, at the end
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        for value in missed_events(self._acknowledged, self._seen):
            await self._fail("watch", "missed event", f"write {value}")

    async def _judge_writes(self) -> None:
        """Nothing that was acknowledged may be lost."""
        try:
            answer = await self._once("GET", f"{_CONFIG_MAPS}/{self._name}")
            found = int(json.loads(answer.body).get("data", {}).get("value", "0"))
        except (ProbeError, ValueError) as error:
            await self._fail("write", "lost write", f"the object cannot be read in the end: {error}")
            return
        for value in lost_writes(self._acknowledged, found):
            await self._fail("write", "lost write", f"write {value}; the object holds {found}")

    # --- requests ---

    async def _open(self) -> Connection:
        host, port = self._target.address
        return await Connection.open(host, port, self._target.tls, self._timeout)

    async def _once(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> Answer:
        connection = await self._open()
        try:
            return await connection.request(method, path, body=body, content_type=content_type, timeout=self._timeout)
        finally:
            connection.close()

    async def _create_object(self) -> str:
        """The probe's own ConfigMap; its resourceVersion. UserError when that cannot be had."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._name}, "data": {"value": "0"}}
        try:
            answer = await self._once("POST", _CONFIG_MAPS, json.dumps(body).encode(), "application/json")
        except ProbeError as error:
            raise UserError(
                f"{self._target.url} does not answer: {error}", fix="probe a cluster that is up: `autarky status`"
            ) from error
        if answer.status != 201:
            raise UserError(
                f"cannot write to {self._target.url}: {answer.status} {reason(answer)}",
                fix="use a kubeconfig that may create ConfigMaps in the namespace default",
            )
        return str(json.loads(answer.body)["metadata"]["resourceVersion"])
