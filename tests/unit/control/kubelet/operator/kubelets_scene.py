"""Nodes whose kubelets are ordered, as the operator's controller sees them: agents and controllers are played."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from autarky.control.base.operator_view import View
from autarky.control.kubelet.decide import order, report
from autarky.control.kubelet.decide.order import CORDONED, Order, Target
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.operator.kubelets import Kubelets
from autarky.kube.fenced import Fenced
from autarky.model.components import API_SERVER, HOSTED, NAME_LABEL, SLOT_LABEL
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render.crds import API_VERSION, control_plane_crd
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM
from fakes.clock import LoopClock
from fakes.kube import FakeKube

V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
PLANE = (API_VERSION, "ControlPlane", "cluster")


class Api(FakeKube):
    """before: what happens right before a write of the object of that name; it may raise."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    async def _first(self, name: str) -> None:
        if (act := self.before.get(name)) is not None:
            await act()

    async def patch(self, api_version: str, kind: str, name: str, *args: Any, **more: Any) -> Object:
        await self._first(name)
        return await super().patch(api_version, kind, name, *args, **more)

    async def create(self, obj: Object) -> Object:
        await self._first(obj["kind"])
        return await super().create(obj)


class Scene:
    """leads: whether this operator may write. busy: what is at work on the control plane. said: what it logged."""

    def __init__(self, version: Version = V37, kubelets: Version = V36, **spec: Any) -> None:
        self.kube = Api()
        self.leads, self.busy = True, ""
        self.said: list[str] = []
        self.kube.put(control_plane_crd())
        self.kube.put(
            {
                "apiVersion": API_VERSION,
                "kind": "ControlPlane",
                "metadata": {"name": "cluster"},
                "spec": {"version": str(version), "selfHosted": "2-4", "kubelets": {"follow": True}, **spec},
                "status": {"version": str(version)},
            }
        )
        for name in ("c1", "w1", "w2"):
            self.node(name, kubelets)
        self.begins()

    def begins(self) -> None:
        """Another operator leads."""
        self.view = View(self.kube, LoopClock(), lambda: None, print)
        fenced = Fenced(self.kube, lambda: self.leads)
        self.kubelets = Kubelets(self._say, self.view, fenced, LoopClock(), lambda _: self.busy)

    def _say(self, sentence: str, **_: object) -> None:
        self.said.append(sentence)

    def node(self, name: str, kubelet: Version, *, ready: bool = True) -> None:
        """As `up` left it. Of a control node, with an API server, where it is named so."""
        said = Report(base=f"base-{name}", target=Target(kubelet, f"base-{name}").digest, version=kubelet)
        labels = {CONTROL_PLANE_ACTIVE: ""} if name.startswith("c") else {}
        meta: Object = {"name": name, "labels": labels, "annotations": {report.ANNOTATION: report.text(said)}}
        status = {
            "nodeInfo": {"kubeletVersion": str(kubelet)},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        }
        self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status})
        if name.startswith("c"):
            self.server(name, ready=ready)

    def server(self, name: str, *, ready: bool = True) -> None:
        labels = {NAME_LABEL: API_SERVER, SLOT_LABEL: HOSTED}
        meta = {"name": f"{API_SERVER}-{name}", "namespace": SYSTEM, "labels": labels}
        spec = {"nodeName": name, "containers": [{"name": API_SERVER, "image": "i"}]}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
        self.kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})

    async def live(self, name: str) -> Object:
        found = await self.kube.get("v1", "Node", name)
        assert found is not None
        return found

    async def annotations(self, name: str) -> Mapping[str, str]:
        found: Mapping[str, str] = (await self.live(name))["metadata"].get("annotations") or {}
        return found

    async def order(self, name: str) -> Order | None:
        return order.read((await self.live(name))["metadata"])

    async def ordered(self) -> dict[str, Version]:
        """Node → the version that it is ordered."""
        names = [node["metadata"]["name"] for node in await self.kube.list("v1", "Node")]
        found = {name: await self.order(name) for name in names}
        return {name: one.target.version for name, one in found.items() if one is not None}

    async def reports(self, name: str, state: State, **more: Any) -> None:
        """Its agent says so of its order, and the kubelet that belongs to that runs."""
        given, live = await self.order(name), await self.live(name)
        assert given is not None
        has = given.target.version if state is State.DONE else Version.parse(kubelet_in(live))
        said = Report(given.id, given.number, given.attempt, state, base=given.target.base, version=has)
        said = replace(said, target=replace(given.target, version=has).digest, **more)
        await self.annotate(name, {report.ANNOTATION: report.text(said)})
        live = await self.live(name)
        self.kube.put({**live, "status": {**live["status"], "nodeInfo": {"kubeletVersion": str(has)}}})

    async def annotate(self, name: str, annotations: Mapping[str, str | None], **spec: Any) -> None:
        await self.kube.patch("v1", "Node", name, {"metadata": {"annotations": dict(annotations)}, "spec": spec})

    async def is_cordoned(self, name: str) -> tuple[bool, bool]:
        """(Whether it is, whether it is for an order.)"""
        unschedulable = (await self.live(name))["spec"].get("unschedulable") is True
        return unschedulable, CORDONED in await self.annotations(name)

    async def wants(self, **spec: Any) -> None:
        await self.kube.patch(*PLANE, {"spec": spec})

    async def shows(self, version: Version, **status: Any) -> None:
        await self.kube.patch(*PLANE, {"status": {"version": str(version), **status}}, subresource="status")

    async def passes(self, times: int = 1) -> None:
        for _ in range(times):
            await asyncio.sleep(1)
            self.kubelets.begin_pass()
            await self.kubelets.reconcile()
        await asyncio.sleep(0.1)

    async def time_goes_by(self, seconds: float) -> None:
        """While the operator hears of everything now and then."""
        for number in range(int(seconds / 60)):
            for key in (PLANE, ("v1", "Node", "c1")):
                await self.kube.patch(*key, {"metadata": {"annotations": {"heard": str(number)}}})
            mark = {"metadata": {"annotations": {"heard": str(number)}}}
            await self.kube.patch("v1", "Pod", f"{API_SERVER}-c1", mark, namespace=SYSTEM)
            await asyncio.sleep(59)
            await self.passes()

    async def events(self) -> list[tuple[str, str, str]]:
        """(On what, reason, message.)"""
        found = await self.kube.list("v1", "Event", namespace="default")
        return [(one["involvedObject"]["name"], one["reason"], one["message"]) for one in found]


def kubelet_in(node: Object) -> str:
    return str(node["status"]["nodeInfo"]["kubeletVersion"])


class watched:  # noqa: N801 # used as a statement
    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    async def __aenter__(self) -> Scene:
        self.task = asyncio.create_task(self.scene.view.run())
        await asyncio.sleep(1)
        return self.scene

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
