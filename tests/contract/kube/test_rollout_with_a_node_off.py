"""A DaemonSet's rollout with one node off, or one worker that does not come along, by the real controller and the real
scheduler: it stands still, and the operator's steps bring it to every other node. Kubelets are played by the test.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from autarky.clock import SystemClock
from autarky.control.base.operator_view import View
from autarky.control.common.pods import is_ready
from autarky.control.rollout.operator.stepping import Stepping
from autarky.kube import KubeClient
from autarky.model.components import KUBE_PROXY
from autarky.ports import Object
from autarky.render import pods
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM
from contract.servers import Server, running, running_api_server, running_etcd

pytestmark = pytest.mark.contract

LIVING = ("n1", "n2")
FASTER = 20.0
"""How much faster the operator's clock runs here: a node is away after 3 s, and a worker lags after 4.5 s."""
BEFORE, WANTED = "registry.example/a", "registry.example/b"


class FastClock(SystemClock):
    def monotonic(self) -> float:
        return super().monotonic() * FASTER


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A cluster of its own with the DaemonSet controller, and the scheduler, which places what it makes."""
    directory = tmp_path_factory.mktemp("controllers")
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(tmp_path_factory.mktemp("etcd")))
        api_server = stack.enter_context(running_api_server(etcd, tmp_path_factory.mktemp("kube-apiserver")))
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(api_server)))
        common = {"kubeconfig": kubeconfig, "leader-elect": "false", "secure-port": 0}
        for program, flags in (
            ("kube-controller-manager", {**common, "controllers": "daemonset-controller"}),
            ("kube-scheduler", common),
        ):
            (directory / program).mkdir()
            stack.enter_context(running(program, flags, directory / program, _at_once))
        yield api_server


async def _at_once() -> None:
    """Nobody asks them anything."""


def _kubeconfig(server: Server) -> Object:
    pair, ca = server.pki.read("super-admin"), server.pki.files()["ca.crt"]

    def text(content: bytes) -> str:
        return base64.b64encode(content).decode()

    user = {"client-certificate-data": text(pair.certificate), "client-key-data": text(pair.key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": server.url, "certificate-authority-data": text(ca)}}],
        "users": [{"name": "x", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }


@dataclass
class Nodes:
    """Nodes (those called n… are control nodes), whose kubelets this is. ill: whose pods never become Ready. serving:
    after each look, the nodes with a Ready pod."""

    kube: KubeClient
    off: set[str] = field(default_factory=set)
    ill: set[str] = field(default_factory=set)
    serving: list[set[str]] = field(default_factory=list)

    def away(self, *names: str) -> set[frozenset[str]]:
        """Which of them were seen without a pod that serves, at the same time. A pod that ends is seen at least once,
        by the look that lets it go."""
        return {frozenset(set(names) - serving) for serving in self.serving}

    async def join(self, *names: str) -> None:
        for name in names:
            labels = {CONTROL_PLANE_ACTIVE: ""} if name.startswith("n") else {}
            meta = {"name": name, "labels": labels}
            await self.kube.create({"apiVersion": "v1", "kind": "Node", "metadata": meta})
            await self._says(name, "True")

    async def leave(self) -> None:
        """Nothing is left for the next test: nobody collects garbage here."""
        await self.kube.delete("apps/v1", "DaemonSet", KUBE_PROXY, SYSTEM)
        await _until("the DaemonSet is gone", self._is_gone)
        for pod in await self.pods():
            await self.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM, grace_seconds=0)
        for revision in await self.kube.list("apps/v1", "ControllerRevision", namespace=SYSTEM):
            await self.kube.delete("apps/v1", "ControllerRevision", revision["metadata"]["name"], SYSTEM)
        for node in await self.kube.list("v1", "Node"):
            await self.kube.delete("v1", "Node", node["metadata"]["name"])

    async def _is_gone(self) -> bool:
        return await self.kube.get("apps/v1", "DaemonSet", KUBE_PROXY, SYSTEM) is None

    async def cut(self, name: str) -> None:
        """What the node lifecycle controller writes of one that has fallen silent."""
        self.off.add(name)
        await self._says(name, "Unknown")
        for pod in await self.pods():
            if pod["spec"].get("nodeName") == name:
                await self._pod(pod, ready=False)

    async def boot(self, name: str) -> None:
        self.off.discard(name)
        await self._says(name, "True")

    async def run(self) -> None:
        while True:
            found = await self.pods()
            self.serving.append({pod["spec"]["nodeName"] for pod in found if is_ready(pod) and not _ends(pod)})
            for pod in found:
                node = pod["spec"].get("nodeName")
                if node is None or node in self.off:
                    continue
                if _ends(pod):
                    await self.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM, grace_seconds=0)
                elif node in self.ill:
                    if is_ready(pod):
                        await self._pod(pod, ready=False)
                elif not is_ready(pod):
                    await self._pod(pod, ready=True)
            await asyncio.sleep(0.2)

    async def pods(self) -> list[Object]:
        return await self.kube.list("v1", "Pod", namespace=SYSTEM, labels=f"k8s-app={KUBE_PROXY}")

    async def images(self) -> dict[str, str]:
        """Node → the image of its Ready pod."""
        return {
            pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"]
            for pod in await self.pods()
            if is_ready(pod) and not _ends(pod)
        }

    async def _says(self, name: str, ready: str) -> None:
        condition = {"type": "Ready", "status": ready, "reason": "Test", "message": "", **_NOW}
        size = {"pods": "10", "cpu": "4", "memory": "4Gi"}
        status = {"conditions": [condition], "capacity": size, "allocatable": size}
        await self.kube.patch("v1", "Node", name, {"status": status}, subresource="status")

    async def _pod(self, pod: Object, *, ready: bool) -> None:
        condition = {"type": "Ready", "status": str(ready), **_NOW}
        status = {"phase": "Running", "conditions": [condition]}
        meta = pod["metadata"]
        await self.kube.patch("v1", "Pod", meta["name"], {"status": status}, namespace=SYSTEM, subresource="status")


_NOW = {"lastTransitionTime": "2026-01-01T00:00:00Z"}


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@contextmanager
def _meanwhile(*tasks: asyncio.Task[None]) -> Iterator[None]:
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _until(what: str, condition: Callable[[], Awaitable[bool]], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end, f"waited {seconds} s until {what}"
        await asyncio.sleep(0.2)


@pytest.fixture
async def nodes(controllers: Server) -> AsyncIterator[Nodes]:
    kube = controllers.kube()
    nodes = Nodes(kube)
    kubelets = asyncio.create_task(nodes.run(), name="kubelets")
    yield nodes
    kubelets.cancel()
    await asyncio.gather(kubelets, return_exceptions=True)
    await nodes.leave()
    await kube.close()


@dataclass
class Operator:
    """Its one duty that this is about, and what it has said."""

    duty: Stepping
    nodes: Nodes
    said: list[str]

    async def runs(self, image: str, *where: str) -> bool:
        found = await self.nodes.images()
        return all(found.get(node) == image for node in where)

    async def steps(self, image: str, *where: str) -> bool:
        await self.duty.reconcile()
        return await self.runs(image, *where)


@pytest.fixture
async def operator(nodes: Nodes) -> AsyncIterator[Operator]:
    said = list[str]()
    view = View(nodes.kube, SystemClock(), lambda: None, print)
    duty = Stepping(lambda sentence, **_: said.append(sentence), view, nodes.kube, FastClock())
    watching = asyncio.create_task(view.run(), name="view")
    with _meanwhile(watching):
        yield Operator(duty, nodes, said)


async def _wanted(kube: KubeClient) -> None:
    change = {"spec": {"template": {"spec": _pod_spec(WANTED)}}}
    await kube.patch("apps/v1", "DaemonSet", KUBE_PROXY, change, namespace=SYSTEM)


async def _was_not_touched(kube: KubeClient) -> None:
    """By nobody but the user's one edit."""
    live = await kube.get("apps/v1", "DaemonSet", KUBE_PROXY, SYSTEM)
    assert live is not None
    assert live["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
    assert live["metadata"]["generation"] == 2


async def test_the_operator_goes_on_where_the_real_controller_waits_for_a_node_that_is_off(
    nodes: Nodes, operator: Operator
) -> None:
    await nodes.join(*LIVING, "n3")
    await nodes.kube.create(pods.daemon_set(KUBE_PROXY, _pod_spec(BEFORE), strategy=_STRATEGY))
    await _until("it runs everywhere", lambda: operator.runs(BEFORE, *LIVING, "n3"))

    await nodes.cut("n3")
    await _wanted(nodes.kube)
    await asyncio.sleep(5)
    assert await operator.runs(BEFORE, *LIVING), "the controller waits for n3"

    nodes.serving.clear()
    await _until("the others have it", lambda: operator.steps(WANTED, *LIVING))
    assert nodes.away(*LIVING) == _one_after_the_other(*LIVING)
    assert sum("goes on without n3" in sentence for sentence in operator.said) >= len(LIVING), operator.said

    nodes.serving.clear()
    await nodes.boot("n3")
    await _until("n3 has it", lambda: operator.runs(WANTED, *LIVING, "n3"))
    assert nodes.away(*LIVING) == {frozenset()}, "who has it is left alone"
    await _was_not_touched(nodes.kube)


async def test_the_operator_goes_on_where_the_real_controller_waits_for_a_worker_that_does_not_come_along(
    nodes: Nodes, operator: Operator
) -> None:
    others = ("n1", "w2")
    await nodes.join("n1", "w1", "w2")
    await nodes.kube.create(pods.daemon_set(KUBE_PROXY, _pod_spec(BEFORE), strategy=_STRATEGY))
    await _until("it runs everywhere", lambda: operator.runs(BEFORE, *others, "w1"))

    nodes.ill.add("w1")  # whose pod the controller replaces first: it serves nobody
    await _until("w1 keeps its pod from being Ready", lambda: _is_ill(nodes))
    await _wanted(nodes.kube)
    await asyncio.sleep(5)
    assert await operator.runs(BEFORE, *others), "the controller waits for w1"

    nodes.serving.clear()
    await _until("the others have it", lambda: operator.steps(WANTED, *others))
    assert nodes.away(*others) == _one_after_the_other(*others)
    gone_on = [sentence for sentence in operator.said if "goes on without w1, whose pod" in sentence]
    assert "on n1 is replaced" in gone_on[0], operator.said
    assert "on w2 is replaced" in gone_on[-1], operator.said
    await _was_not_touched(nodes.kube)


def _one_after_the_other(*names: str) -> set[frozenset[str]]:
    return {frozenset(), *(frozenset({name}) for name in names)}


async def _is_ill(nodes: Nodes) -> bool:
    return "w1" not in await nodes.images()


_STRATEGY = pods.rolling(surge=0, unavailable=1)


def _pod_spec(image: str) -> Object:
    container = {"name": KUBE_PROXY, "image": image}
    return {"hostNetwork": True, "tolerations": pods.TOLERATE_ALL, "containers": [container]}
