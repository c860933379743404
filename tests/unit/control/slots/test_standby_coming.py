"""Whether the standby is on its way while the kubelet waits, with a runtime in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.clock import SystemClock
from autarky.control.base.reconciler import Reconciler
from autarky.control.slots.node import ports as ports_seen
from autarky.control.slots.node.hand_over import HandOver
from autarky.control.slots.node.standby_coming import StandbyComing, servers_that_cover
from autarky.model import patience
from autarky.model.endpoint import Endpoint
from autarky.model.runtime import Container
from autarky.ports import Object
from fakes.clock import HandClock
from fakes.cri import FakeCri
from unit.control.disks import Disk, a_disk

API = "kube-apiserver"
ENDPOINTS = [Endpoint(name, f"192.0.2.{number}", ready=True) for number, name in enumerate(("n1", "n2", "n3"), 1)]


def ending(grace: int) -> Object:
    """A hosted pod that is being deleted."""
    return {"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z", "deletionGracePeriodSeconds": grace}}


class CountingCri(FakeCri):
    looks = 0

    async def containers(self) -> Sequence[Container]:
        self.looks += 1
        return await FakeCri.containers(self)


class Node:
    """n1, whose hosted API server is about to end."""

    def __init__(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk, self.cri = disk, CountingCri()
        self.hand_over = HandOver(SystemClock())
        self.ready: set[str] = set()
        self.endpoints = ENDPOINTS[:1]
        self.hosted = [ending(patience.GRACE)]
        self.coming = StandbyComing(
            "n1",
            self.cri,
            HandClock(),
            lambda _subject, _sentence: None,
            self.hand_over,
            lambda: self.endpoints,
            lambda: self.hosted,
        )
        self.cri.put_image("api:1")
        monkeypatch.setattr(ports_seen, "plain_status", self.status)
        monkeypatch.setattr("autarky.control.load_balancer.node.haproxy.plain_status", self.status)

    async def status(self, _port: int, path: str) -> int:
        return 200 if path.removeprefix("/") in self.ready else 503

    def activate(self, uid: str = "one") -> None:
        self.disk.manifest("standby-kube-apiserver-0123abcd", uid)

    def container(self, uid: str = "one", *, attempt: int = 0, starts: bool = True) -> str:
        sandbox = self.cri.run_sandbox(f"pod-{uid}", "kube-system", uid)
        made = self.cri.create_container(sandbox, API, "api:1", attempt=attempt)
        if starts:
            self.cri.start_container(made)
        return made

    async def is_waited_for(self) -> bool:
        await self.coming.reconcile()
        return self.hand_over._worth > patience.HAND_OVER


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    scene = Node(a_disk(tmp_path, monkeypatch), monkeypatch)
    kubelet = threading.Thread(target=scene.hand_over.before_stop)
    kubelet.start()
    while not scene.hand_over.waits:
        pass
    yield scene
    scene.hand_over.go_on()
    kubelet.join(timeout=60)


async def test_one_whose_process_runs_is_on_its_way(node: Node) -> None:
    node.activate()
    assert not await node.is_waited_for(), "nothing of it has come to run"
    node.container()
    assert await node.is_waited_for()


async def test_one_whose_container_is_made_is_on_its_way(node: Node) -> None:
    node.activate()
    node.container(starts=False)
    assert await node.is_waited_for()


async def test_one_that_has_ended_is_not_though_it_starts_again(node: Node) -> None:
    node.activate()
    node.cri.exit_container(node.container())
    assert not await node.is_waited_for()
    node.container(attempt=1)
    assert not await node.is_waited_for()


async def test_a_new_activation_of_it_is_judged_afresh(node: Node) -> None:
    node.activate()
    node.cri.exit_container(node.container())
    node.activate("two")
    node.container("two")
    assert await node.is_waited_for()


async def test_what_runs_without_a_manifest_is_on_no_way(node: Node) -> None:
    node.container()
    assert not await node.is_waited_for()


@pytest.mark.parametrize("server", ["n2-standby", "n3-standby", "n3-spare", "a-hosted"])
async def test_where_another_node_serves_nobody_waits_for_a_slow_standby(node: Node, server: str) -> None:
    node.endpoints = [*ENDPOINTS, Endpoint("a", "192.0.2.9", ready=True)]
    node.activate()
    node.container()
    node.ready = {"n1-hosted"}
    assert await node.is_waited_for(), "its own is the one that ends"
    node.ready = {server}
    assert not await node.is_waited_for()


async def test_where_all_hosted_servers_are_to_end_at_once_the_first_node_waits_for_its_standby(node: Node) -> None:
    """Each of the three still serves while its kubelet waits, and none will in a moment."""
    node.endpoints = ENDPOINTS
    node.activate()
    node.container()
    node.ready = {f"{each.node}-hosted" for each in ENDPOINTS}
    assert await node.is_waited_for()


@given(st.lists(st.sampled_from(["n1", "n2", "n10", "a", "z"]), min_size=1, unique=True))
def test_no_two_nodes_count_on_each_others_hosted_server(nodes: list[str]) -> None:
    counts = {(one, other) for one in nodes for other in nodes if f"{other}-hosted" in servers_that_cover(one, nodes)}
    assert not [pair for pair in counts if pair[::-1] in counts]
    assert all(f"{other}-standby" in servers_that_cover(one, nodes) for one in nodes for other in nodes if one != other)


@pytest.mark.parametrize(
    ("hosted", "seconds"),
    [
        ([ending(patience.GRACE)], patience.SLOW_HAND_OVER),
        ([{"metadata": {}}, ending(patience.GRACE)], patience.SLOW_HAND_OVER),
        ([ending(90)], 90 - patience.HOSTED_DRAIN),
        ([ending(1)], 0),
        ([{"metadata": {}}], 0),
        ([], 0),
    ],
)
async def test_it_is_waited_for_within_the_grace_period_of_who_is_deleted(
    node: Node, hosted: list[Object], seconds: float
) -> None:
    """Whose probes fail has less, and is not deleted."""
    node.activate()
    node.container()
    node.hosted = hosted
    await node.coming.reconcile()
    assert max(node.hand_over._worth, 0) == seconds


async def test_rule_2_what_the_runtime_or_the_disk_do_not_say_changes_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.activate()
    made = node.container()
    assert await node.is_waited_for()
    node.cri.set_outage("it is busy")
    node.cri.exit_container(made)
    assert await node.is_waited_for()
    node.cri.set_outage(None)
    with monkeypatch.context() as broken:
        broken.setattr("autarky.places.MANIFESTS", "/no/such/directory")
        assert await node.is_waited_for()
    assert not await node.is_waited_for()


async def test_nothing_is_asked_unless_a_kubelet_waits(node: Node) -> None:
    clock = HandClock()
    node.hand_over.go_on()
    while node.hand_over.waits:
        pass
    await Reconciler(node.coming, clock, print).run(lambda: clock.now > 100)
    assert node.cri.looks == 0
