"""A cluster whose hosts and API are looked at by `status` and `doctor`: well in all that they ask for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autarky import places
from autarky.doctor.diagnosis import ClusterEvidence, diagnose
from autarky.model import ports
from autarky.model.cluster import Cluster
from autarky.model.components import WITH_STANDBY
from autarky.model.files import File
from autarky.phases.context import Context
from autarky.ports import Completed
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clock import LoopClock
from fakes.clusters import FACTS, a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube

GONE = "n1: the connection broke"
BEGIN = FACTS.clock
"""What this machine's clock says when a test begins."""
ROUND_TRIP, SCRIPT = 4.0, 3.0
"""Seconds that `date` and doctor's script take on every host: so old is at the end what was new at the beginning."""
WITH_A_WORKER = a_cluster(controls=1, workers=1)
THREE = a_cluster(controls=3)
MakeContext = Callable[..., Context]


@dataclass
class LeavingKube(FakeKube):
    """Goes away permanently after so many answers."""

    answers: int | None = None
    asked: int = 0

    async def _arrive(self) -> None:
        self.asked += 1
        if self.answers is not None and self.asked > self.answers:
            self.set_outage(GONE)
        await super()._arrive()


@dataclass
class SeenHost(FakeHost):
    """Well in all that doctor asks for. ahead: seconds by which its clock is before this machine's; None: no `date`."""

    ahead: float | None = 0.0
    says: Sequence[str] = ()
    """What doctor's script prints, in place of what is well."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        match list(argv):
            case ["date", "+%s.%N"]:
                return await self._date()
            case ["bash", "-c", _, "bash", *servers]:
                await asyncio.sleep(SCRIPT)
                return Completed(0, "\n".join(self.says or nothing_wrong(servers)).encode(), "")
        return await super().run(argv, stdin=stdin, timeout=timeout, check=check)

    async def _date(self) -> Completed:
        if self.ahead is None:
            return Completed(127, b"", "date: not found")
        await asyncio.sleep(ROUND_TRIP / 2)
        now = LoopClock(BEGIN + self.ahead).time()
        await asyncio.sleep(ROUND_TRIP / 2)
        return Completed(0, f"{now:.9f}\n".encode(), "")


def nothing_wrong(servers: Sequence[str]) -> list[str]:
    balancer = [f"{word} {server} 200" for server in servers for word in ("server", "alive")]
    return ["unit containerd active", "unit kubelet active", "etcd 200", "balancer 200", *balancer, "stale no"]


def a_context(
    make_context: MakeContext, cluster: Cluster, kube: FakeKube, ahead: Mapping[str, float | None] | None = None
) -> Context:
    """On hosts that are well and have their standbys."""
    facts = facts_of(cluster, listening_ports=frozenset({ports.KUBELET, ports.API_HOSTED}))
    links = {f"{places.STANDBY}/{component}/current": "revision" for component in WITH_STANDBY}
    hosts: dict[str, FakeHost] = {
        name: SeenHost(name, facts[name], links=dict(links), ahead=(ahead or {}).get(name, 0.0)) for name in facts
    }
    return make_context(cluster, kube=kube, hosts=hosts)


def a_kube(
    cluster: Cluster, *, answers: int | None = None, labelled: str = "", kube: LeavingKube | None = None
) -> LeavingKube:
    """All its nodes are ready."""
    kube = kube or LeavingKube(answers=answers)
    for node in cluster.nodes:
        labels = {CONTROL_PLANE_ACTIVE: ""} if node.control_plane or node.name == labelled else {}
        meta = {"name": node.name, "labels": labels}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": ready})
    return kube


def says(context: Context, name: str, *lines: str) -> None:
    """What doctor's script prints on this host."""
    host = context.host(context.cluster.node(name))
    assert isinstance(host, SeenHost)
    host.says = lines


async def noted_on_its_disk(context: Context, name: str, *, known: bool = True) -> None:
    """As a control node that a label has made. known: those of the file have it among etcd's members."""
    noted = File(places.CONTROL_NODE_STATE, b'{"state": "ready"}')
    await context.host(context.cluster.node(name)).write_files([noted])
    members = json.dumps([{"name": name, "address": context.cluster.node(name).address, "learner": False}])
    for node in context.cluster.control_nodes if known else ():
        await context.host(node).write_files([File(places.MEMBERS_FILE, members.encode())])


def whats(cluster: ClusterEvidence) -> list[str]:
    return [f"{finding.subject}: {finding.what}" for finding in diagnose(cluster)]
