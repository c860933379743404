"""The controller that shows how this node's own etcd member is: as metrics of the agent, as events, and as the trouble
that its EtcdMember reports.

Contract: twice a minute it reads the member's metrics from the node's loopback, and its alarms; the API is only
written to when the trouble changes. A member that does not answer is down in the metrics, and no trouble: whether it
is gone is for others to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base import etcd_metrics as metrics
from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide import figures
from autarky.control.etcd.decide.figures import Figures
from autarky.control.etcd.manifests.members import KIND
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.seen import LOCAL, EtcdSeen
from autarky.errors import AutarkyError, Unreachable
from autarky.model import patience, ports
from autarky.ports import Kube, Object
from autarky.render.crds import API_VERSION

LOOK_SECONDS = 30.0
MOST_BYTES = 8 * 1024 * 1024
"""Of the metrics, which have some 200 kB; anybody on the host may listen there while etcd does not."""
SUBJECT = "etcd figures"


async def scraped() -> str:
    """What the member says on loopback. Unreachable."""
    try:
        async with asyncio.timeout(patience.MEMBER_LOOK):
            reader, writer = await asyncio.open_connection("127.0.0.1", ports.ETCD_HEALTH)
            try:
                writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
                content = b""
                while len(content) < MOST_BYTES and (piece := await reader.read(65536)):
                    content += piece
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"127.0.0.1:{ports.ETCD_HEALTH}: {error}") from error
    return content.decode(errors="replace")


async def own_alarms(etcd: EtcdSeen) -> frozenset[str] | None:
    """The kinds of alarms of this node's member; None where that is not known. Its own metric of them,
    `etcd_debugging_server_alarms`, stays after the alarm was cleared (seen with 3.6.16)."""
    status = await etcd.status(LOCAL)
    try:
        found = await (await etcd.client(LOCAL)).alarms()
    except (AutarkyError, OSError, ValueError):
        return None
    return None if status is None else frozenset(one.kind for one in found if one.member == status.member)


@dataclass(slots=True)
class EtcdFigures(Controller):
    """happened(reason, message): reports an event. own(): this node's EtcdMember, None where etcd has none. beside():
    what else needs a person, by the controller that looks after all members. alarms(): of this member, None where they
    are not known."""

    name: ClassVar[str] = SUBJECT
    rest: ClassVar[float | None] = LOOK_SECONDS

    node: str
    kube: Kube
    log: DecisionLog
    happened: Callable[[str, str], None]
    own: Callable[[], Object | None]
    beside: Callable[[], str]
    alarms: Callable[[], Awaitable[frozenset[str] | None]]
    scrape: Callable[[], Awaitable[str]] = scraped
    _before: Figures | None = None
    _memory: figures.Memory = field(default_factory=figures.Memory)
    _troubles: dict[str, str] = field(default_factory=dict)
    _written: tuple[str, str] | None = None
    """uid and trouble, once: a definition from before there was the field drops it."""

    async def reconcile(self) -> None:
        if etcd_on_disk.has_member():
            await self._look()
        else:
            metrics.no_member()
            self._before, self._memory, self._troubles = None, figures.Memory(), {}
        await self._report()

    async def _look(self) -> None:
        try:
            found = figures.read(await self.scrape())
        except (Unreachable, ValueError) as error:
            metrics.does_not_answer(self.node)
            self._before = None
            self.log.tell(SUBJECT, f"the metrics of this node's etcd member cannot be read: {error}")
            return
        if (raised := await self.alarms()) is not None:
            found = replace(found, alarms=raised)
        before, self._before = self._before, found
        fsync = None if before is None else figures.slowest(before.fsync, found.fsync)
        commit = None if before is None else figures.slowest(before.commit, found.commit)
        metrics.member(self.node, found, fsync, commit)
        judged = figures.judge(found, fsync, self._memory)
        for reason, sentence in judged.troubles.items():
            if reason not in self._troubles:
                self.happened(reason, sentence)
        self._memory, self._troubles = judged.memory, dict(judged.troubles)
        said = "; ".join(judged.troubles.values())
        self.log.tell(SUBJECT, said or "this node's etcd member has space, and its disk is quick enough")

    async def _report(self) -> None:
        """It is not written while etcd takes no writes; then it is tried again with the next look."""
        own = self.own()
        if own is None:
            return
        trouble = "; ".join(one for one in (*self._troubles.values(), self.beside()) if one)
        wanted = (own["metadata"].get("uid", ""), trouble)
        if (own.get("status") or {}).get("trouble", "") == trouble or self._written == wanted:
            return
        try:
            await self.kube.patch(API_VERSION, KIND, self.node, {"status": {"trouble": trouble}}, subresource="status")
            self._written = wanted
        except AutarkyError as error:
            self.log.tell("etcd trouble", f"what needs attention could not be reported: {error}")
