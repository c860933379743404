"""The watch over active standbys, with a runtime in memory and the node's own health ports of the test's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autarky.control.slots.decide.activations import FORGOTTEN_SECONDS, PATIENCE_SECONDS
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node import ports as ports_seen
from autarky.control.slots.node.activation_watch import REST_SECONDS, ActivationWatch
from autarky.model import ports
from autarky.model.runtime import Sandbox
from fakes.clock import HandClock
from fakes.cri import FakeCri
from unit.control.disks import Disk, a_disk

API = "kube-apiserver"
LABELS = {"k8s-app": API, "autarky.dev/slot": "standby"}


class CountingCri(FakeCri):
    looks = 0

    async def pods(self) -> Sequence[Sandbox]:
        self.looks += 1
        return await FakeCri.pods(self)


class Node:
    """What the watch sees and does on one node."""

    def __init__(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk, self.cri, self.clock = disk, CountingCri(), HandClock()
        self.ran: list[tuple[str, ...]] = []
        self.serves = False
        self.kubelets = {ports.KUBELET_HEALTH}
        self.watch = ActivationWatch(
            self.cri, self.clock, lambda _subject, _sentence: None, self.etcd_up, lambda _component: self.serves
        )
        monkeypatch.setattr(slots_on_disk, "run_script", self.run_script)
        monkeypatch.setattr(ports_seen, "plain_status", self.status)

    async def etcd_up(self) -> bool:
        return True

    async def run_script(self, *words: str) -> None:
        self.ran.append(words)

    async def status(self, port: int, _path: str) -> int | None:
        return 200 if port in self.kubelets else None

    async def rounds(self, seconds: float) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            await self.watch.reconcile()
            await self.clock.sleep(2.0)

    def start(self, uid: str) -> str:
        self.cri.put_image("api:1")
        sandbox = self.cri.run_sandbox(f"pod-{uid}", "kube-system", uid, labels=LABELS)
        self.cri.start_container(self.cri.create_container(sandbox, API, "api:1"))
        return sandbox


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(a_disk(tmp_path, monkeypatch), monkeypatch)


async def test_an_activation_of_which_nothing_runs_is_renewed(node: Node) -> None:
    node.disk.manifest("standby-kube-apiserver-0123abcd", "one")
    await node.rounds(PATIENCE_SECONDS + 4)
    assert node.ran == [("renew", API)]


@pytest.mark.parametrize(("port", "renews"), [(ports.KUBELET_HOSTED_HEALTH, True), (ports.OPERATOR, False)])
async def test_the_kubelet_may_be_the_hosted_one(node: Node, port: int, *, renews: bool) -> None:
    node.kubelets = {port}
    node.disk.manifest("standby-kube-apiserver-0123abcd", "one")
    await node.rounds(PATIENCE_SECONDS + 4)
    assert bool(node.ran) is renews


async def test_one_that_runs_is_left_alone_and_looked_at_seldom(node: Node) -> None:
    node.disk.manifest("standby-kube-apiserver-0123abcd", "one")
    node.start("one")
    await node.rounds(10 * REST_SECONDS)
    assert node.ran == []
    assert node.cri.looks <= 11


async def test_while_the_runtime_does_not_answer_nothing_is_done(node: Node) -> None:
    node.disk.manifest("standby-kube-apiserver-0123abcd", "one")
    node.cri.set_outage("it hangs")
    await node.rounds(10 * PATIENCE_SECONDS)
    assert node.ran == []


async def test_a_pod_that_the_kubelet_forgot_is_ended_once_the_hosted_server_serves(node: Node) -> None:
    sandbox = node.start("gone")
    await node.rounds(2 * FORGOTTEN_SECONDS)
    assert [pod.id for pod in await node.cri.pods() if pod.ready] == [sandbox]
    node.serves = True
    await node.rounds(2 * REST_SECONDS)
    assert [pod.id for pod in await node.cri.pods() if pod.ready] == []
