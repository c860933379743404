"""A cluster in memory whose etcd moves between control nodes and a host outside."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.phase import Change
from autarky.engine.runner import run_operation
from autarky.model.files import CertSpec
from autarky.phases.context import Context
from autarky.phases.hosts import FOUNDED
from autarky.phases.migration.inwards import JoinInside, LeaveOutside
from autarky.phases.migration.judging import JudgeMigration
from autarky.phases.migration.looking import Migration, Peers
from autarky.phases.migration.outwards import JoinOutside, LeaveInside
from autarky.pki.issue import Authority, issue_ca, issue_leaf, read_pair
from autarky.pki.keys import new_key
from autarky.ports import Progress
from autarky.render import node as render_node
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.kube import FakeKube
from fakes.migrating_host import BALANCER, MigratingEtcd, MigratingHost

ETCD, KEYS = 0xC1, {"/registry/pods/demo/web": "1", "autarky.dev/etcd/former-clusters": "[]", "compact_rev_key": "1"}
STORE = "192.0.2.99"
OUTSIDE = f"https://{STORE}:2379"


LATE_SECONDS = 30.0


@dataclass
class Roll:
    """What `up` does in between, and the agents: all API servers, and their standbys, dial the new place; those that
    are late do so LATE_SECONDS later, and so does the template that the operator would go back to."""

    world: Scene
    url: str
    name: str = "roll"
    title: str = "Roll"
    timeout: float = 60

    async def plan(self, context: Context) -> list[Change]:
        return [Change("roll") for host in self.world.controls if host.dials != {self.url}]

    async def run(self, context: Context, progress: Progress) -> None:
        new = frozenset({self.url})
        for host in self.world.controls:
            host._act(f"roll to {self.url}")
            lingers = self.world.late.get(host.name)
            if lingers is None:
                host.dials = new
            else:
                host.dials = host.dials if lingers == "server" else host.dials | new
                later(LATE_SECONDS, partial(setattr, host, "dials", new))
        if self.world.etcd.last_good:
            later(LATE_SECONDS, lambda: self.world.goes_back_to(self.url))
        self.world.rolled()


def later(seconds: float, what: Callable[[], object]) -> None:
    """It happens by itself meanwhile."""
    asyncio.get_running_loop().call_later(seconds, what)


class Scene:
    """late: control node → "server" or "standby", which still dials the former place for a while when all others have
    been rolled. rolled: is called when they are."""

    def __init__(
        self, contexts: dict[bool, Callable[[], Context]], etcd_: MigratingEtcd, kube: FakeKube, notes: Any
    ) -> None:
        self.contexts, self.etcd, self.kube, self.notes = contexts, etcd_, kube, notes
        self.peers: Peers | None = None
        self.late: dict[str, str] = {}
        self.rolled: Callable[[], object] = lambda: None

    @property
    def controls(self) -> list[MigratingHost]:
        return [host for name, host in self.etcd.hosts.items() if name != "store"]  # type: ignore[misc]

    @property
    def store(self) -> MigratingHost:
        return self.etcd.hosts["store"]  # type: ignore[return-value]

    async def move(self, *, into: bool, cut: int | None = None) -> None:
        """One command, as a process of its own."""
        self.etcd.on_again()
        self.etcd.cut = cut
        context = self.contexts[into]()
        migration = Migration(lambda: self.store, self.peers)
        inwards: Any = (JoinInside(migration), Roll(self, BALANCER), LeaveOutside(migration))
        steps: Any = inwards if into else (JoinOutside(), Roll(self, OUTSIDE), LeaveInside())
        await run_operation("test", "migration", steps, context, clock=context.clock)

    def goes_back_to(self, url: str) -> None:
        """That is where a bad template of the API servers is rolled back to."""
        template = base64.b64encode(f'{{"command": ["--etcd-servers={url}"]}}'.encode()).decode()
        metadata = {"name": "autarky-last-good-kube-apiserver", "namespace": SYSTEM}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"template.json": template}}
        self.kube.put(secret)
        self.etcd.last_good = url

    def lends(self, peers: Peers) -> None:
        """The etcd outside has another CA, of which there is this certificate."""
        self.etcd.strangers.add(STORE)
        self.peers, self.etcd.lent = peers, (peers.certificate, peers.ca)

    async def judged(self, context: Context | None = None) -> None:
        context = replace(context or self.contexts[True](), api_seen=True)
        await JudgeMigration().plan(context)

    def all_inside(self) -> None:
        assert set(self.etcd.voters[ETCD]) == {host.name for host in self.controls} == self.etcd.running(ETCD)
        assert "etcd" not in self.store.active_units
        assert not self.etcd.learners.get(ETCD)
        self.etcd.check("at the end")

    def all_outside(self) -> None:
        assert set(self.etcd.voters[ETCD]) == {"store"} == self.etcd.running(ETCD)
        for host in self.controls:
            assert not host.pods
            assert {name.partition(".")[0] for name in host.left()} <= {"kept"}
            assert not host.is_balanced()
            assert places.MEMBERS_FILE not in host.files
        assert not self.etcd.learners.get(ETCD)
        self.etcd.check("at the end")


def begin(scene: Scene, contexts: dict[bool, Callable[[], Context]], *, inside: bool) -> None:
    inputs, outer = contexts[True]().inputs(), contexts[False]()
    for number, host in enumerate(scene.controls, 1):
        host.files[FOUNDED] = (b"", 0o644)
        host.dials = frozenset({BALANCER if inside else OUTSIDE})
        host.active_units.add("kubelet")
        if inside:
            node = inputs.cluster.node(host.name)
            file = render_node.manifest(etcd.member_pod(inputs, node))
            host.files[file.path] = (file.content, 0o600)
            host.has_data(ETCD, number, scene.etcd.values[ETCD])
            for one in (*render_node.leaf_files(inputs, node), *render_node.kubelet_files(inputs, node)):
                host.files[one.path] = (one.content, one.mode)
    if inside:
        scene.etcd.voters[ETCD] = {host.name: number for number, host in enumerate(scene.controls, 1)}
        return
    node = outer.cluster.etcd_host
    assert node is not None
    for one in etcd.external_unit_files(outer.inputs(), node):
        scene.store.files[one.path] = (one.content, one.mode)
    scene.store.active_units.add("etcd")
    scene.store.has_data(ETCD, 9, scene.etcd.values[ETCD])
    scene.etcd.voters[ETCD] = {"store": 9}


def peers(*, nodes: int = 3, usages: tuple[Any, ...] = ("server", "client"), ended: bool = False) -> Peers:
    """Of another CA, for that many control nodes."""
    begin = datetime.fromtimestamp(LoopClock().time(), UTC) - timedelta(days=40 if ended else 0)
    ca = issue_ca("theirs", new_key("EC"), begin, 3650)
    spec = CertSpec("peer", "ca", "peer", (), (), tuple(f"192.0.2.1{n + 1}" for n in range(nodes)), usages=usages)
    pair = issue_leaf(spec, Authority(*read_pair(ca)), "EC", begin, timedelta(days=30))
    return Peers(pair.certificate, pair.key, ca.certificate)
