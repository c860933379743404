"""Compares a control node's clock with those of the other control nodes, and withdraws its API servers if it is
far ahead: observe, decide (`decide.ahead`), act.

The others' time is the Date header of their API's answers, asked through their load balancers, which prefer their own
servers. The verdict is an annotation on this node's Node; the operator puts it into the EndpointSlice of
default/kubernetes, and all load balancers follow that.

A clock may be so far off that every certificate seems expired, or not valid yet. So the others' certificates are
verified except for their dates: by the cluster's CA, their names and their keys, so that no stranger is believed. If
this node's API rejects the verdict for the same reason, it is written through the others'.

Contract: level-triggered; the annotation is written when it is not what it should be. An API that does not answer
delays no other decision of the agent.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import ClassVar, Protocol

from autarky.control.base.controller import Controller
from autarky.control.clocks.decide import ahead as clocks
from autarky.errors import AutarkyError
from autarky.model import patience, ports
from autarky.model.endpoint import Endpoint
from autarky.net.tls import client_context
from autarky.ports import Clock, Kube, Object
from autarky.render.values import WITHDRAWN

LOOK_SECONDS = 30.0
ANSWER_SECONDS = patience.OTHER_CLOCK
PATH = "/livez?exclude=etcd"
"""Anybody may ask for it, and it answers while etcd is down."""


class ClosableKube(Kube, Protocol):
    async def close(self) -> None: ...


class Through(Protocol):
    """Makes a client of those servers."""

    def __call__(self, servers: Sequence[str], *, check_dates: bool) -> ClosableKube: ...


@dataclass(slots=True)
class ClockWatch(Controller):
    """endpoints: the control nodes as far as known; own_node: the live Node; ca: the cluster's, as PEM. UserError if it
    is not one."""

    name: ClassVar[str] = "clock watch"
    rest: ClassVar[float | None] = LOOK_SECONDS

    node: str
    kube: Kube
    clock: Clock
    tell: Callable[[str, str], None]
    ca: bytes
    endpoints: Callable[[], Sequence[Endpoint] | None]
    own_node: Callable[[], Object | None]
    through: Through
    port: int = ports.NLLB_API
    _tls: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        self._tls = client_context(self.ca, check_dates=False)

    async def reconcile(self) -> None:
        node = self.own_node()  # an agent that started with such a clock never sees it
        said = None if node is None else (node["metadata"].get("annotations") or {}).get(WITHDRAWN)
        verdict = clocks.judge(await self._look(), withdrawn=bool(said))
        self.tell("clock", verdict.sentence)
        if verdict.withdrawn == bool(said):
            return
        await self._write(verdict.sentence if verdict.withdrawn else None)

    async def _write(self, wanted: str | None) -> None:
        patch: Object = {"metadata": {"annotations": {WITHDRAWN: wanted}}}
        try:
            await self.kube.patch("v1", "Node", self.node, patch)
        except AutarkyError as error:
            if (trouble := await self._write_elsewhere(patch)) is not None:
                self.tell("withdrawing", f"cannot write the verdict on the clock: {error}; elsewhere: {trouble}")

    async def _write_elsewhere(self, patch: Object) -> str | None:
        """Through the other control nodes; returns what went wrong, if anything."""
        servers = [f"https://{other.address}:{self.port}" for other in self._others()]
        if not servers:
            return "no other control node is known"
        kube = self.through(servers, check_dates=False)
        try:
            await kube.patch("v1", "Node", self.node, patch)
        except AutarkyError as error:
            return str(error)
        finally:
            await kube.close()
        return None

    def _others(self) -> list[Endpoint]:
        return [endpoint for endpoint in self.endpoints() or () if endpoint.node != self.node]

    async def _look(self) -> Mapping[str, float]:
        """Other control node → seconds by which this clock is ahead; without those that do not answer."""
        others = self._others()
        found = await asyncio.gather(*(self._ahead_of(endpoint.address) for endpoint in others))
        return {other.node: ahead for other, ahead in zip(others, found, strict=True) if ahead is not None}

    async def _ahead_of(self, address: str) -> float | None:
        """To the second: HTTP dates are no more precise."""
        before = self.clock.time()
        theirs = await self._date(address)
        return None if theirs is None else (before + self.clock.time()) / 2 - theirs

    async def _date(self, address: str) -> float | None:
        writer = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(address, self.port, ssl=self._tls)
                writer.write(f"GET {PATH} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            dates = [line.partition(":")[2] for line in head.split("\r\n") if line.lower().startswith("date:")]
            return parsedate_to_datetime(dates[0].strip()).timestamp()
        except (OSError, EOFError, ValueError, IndexError, TimeoutError, asyncio.LimitOverrunError):
            return None
        finally:
            if writer is not None:
                writer.transport.abort()
