"""What is found in the live copies is never older than these, and heartbeats of Nodes wake nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from autarky.control.base.operator_view import View
from autarky.errors import ApiError
from autarky.ports import Object, WatchEvent
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.changed import changed
from fakes.clock import LoopClock
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime

BEFORE, AFTER = "2026-11-21T10:00:00Z", "2026-11-21T10:05:00Z"


class Forgetful(FakeKube):
    forgets: str = ""

    async def watch(self, api_version: str, kind: str, **options: Any) -> AsyncGenerator[WatchEvent, None]:
        async for event in FakeKube.watch(self, api_version, kind, **options):
            if self.forgets == kind:
                self.forgets = ""
                raise ApiError(410, "Expired", "too old resource version")
            yield event


class Scene:
    """wakes: how often the view has said that something is new."""

    def __init__(self) -> None:
        self.kube, self.wakes = Forgetful(), 0
        self.view = View(self.kube, LoopClock(), self._woken, print)

    def _woken(self) -> None:
        self.wakes += 1

    async def woken(self) -> int:
        """Since it was asked last."""
        await asyncio.sleep(1)
        found, self.wakes = self.wakes, 0
        return found


def a_node(name: str = "n1") -> Object:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": BEFORE, "lastTransitionTime": BEFORE}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": BEFORE,
            "labels": {CONTROL_PLANE_ACTIVE: ""},
            "annotations": {"autarky.dev/x": "1"},
        },
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "192.0.2.11"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4"},
            "images": [],
        },
    }


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    scene.kube.put(a_node())
    running = asyncio.create_task(scene.view.run())
    await scene.woken()
    yield scene
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def version(scene: Scene) -> str:
    found: str = scene.view.nodes.items[None, "n1"]["metadata"]["resourceVersion"]
    return found


HEARTBEATS = {
    "a heartbeat": (("status", "conditions", 0, "lastHeartbeatTime"), AFTER),
    "images": (("status", "images"), [{"names": ["a"]}]),
    "who wrote it": (("metadata", "managedFields"), [{"manager": "kubelet", "time": AFTER}]),
}
NEWS = {
    "readiness": (("status", "conditions", 0, "status"), "False"),
    "an annotation": (("metadata", "annotations", "autarky.dev/x"), "2"),
    "labels": (("metadata", "labels"), {}),
    "a Node that was made again": (("metadata", "uid"), "another"),
    "a cordon": (("spec", "unschedulable"), True),
    "taints": (("spec", "taints"), []),
    "an address": (("status", "addresses"), []),
    "a kubelet": (("status", "nodeInfo", "kubeletVersion"), "v1.37.1"),
}


@pytest.mark.parametrize("what", HEARTBEATS)
async def test_a_heartbeat_wakes_nobody_and_the_node_is_the_newest_all_the_same(scene: Scene, what: str) -> None:
    path, to = HEARTBEATS[what]
    live = scene.kube.put(changed(a_node(), *path, to=to))
    assert await scene.woken() == 0
    assert version(scene) == live["metadata"]["resourceVersion"]


@pytest.mark.parametrize("what", NEWS)
async def test_whatever_else_is_new_of_a_node_wakes_also_together_with_a_heartbeat(scene: Scene, what: str) -> None:
    path, to = NEWS[what]
    scene.kube.put(changed(changed(a_node(), "status", "conditions", 0, "lastHeartbeatTime", to=AFTER), *path, to=to))
    assert await scene.woken() == 1


async def test_a_node_that_comes_or_goes_wakes(scene: Scene) -> None:
    for _ in range(2):
        scene.kube.put(a_node("n2"))
        assert await scene.woken() == 1
        await scene.kube.delete("v1", "Node", "n2")
        assert await scene.woken() == 1


async def test_nodes_that_are_listed_again_wake_since_the_copy_may_have_been_stale(scene: Scene) -> None:
    scene.kube.forgets = "Node"
    scene.kube.put(changed(a_node(), "status", "conditions", 0, "lastHeartbeatTime", to=AFTER))
    assert await scene.woken() == 1


async def test_what_was_found_is_never_older_than_the_copy(scene: Scene) -> None:
    assert scene.view.active_nodes == {"n1"}
    [ready] = scene.view.ready_nodes
    assert ready is scene.view.nodes.items[None, "n1"]
    scene.kube.put(changed(a_node(), "status", "conditions", 0, "lastHeartbeatTime", to=AFTER))
    await scene.woken()
    assert scene.view.ready_nodes == [scene.view.nodes.items[None, "n1"]]
    scene.kube.put(changed(a_node(), "metadata", "labels", to={}))
    await scene.woken()
    assert scene.view.active_nodes == set()


async def test_pods_are_found_by_their_labels_and_owners_and_each_change_wakes(scene: Scene) -> None:
    owner = {"kind": "DaemonSet", "metadata": {"uid": "u1"}}
    meta = {"name": "p", "namespace": "kube-system", "labels": {"k8s-app": "etcd"}, "ownerReferences": [{"uid": "u1"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": []}, "status": {}}
    assert (scene.view.pods_named("etcd"), scene.view.pods_owned_by(owner)) == ((), ())
    scene.kube.put(pod)
    assert await scene.woken() == 1
    found = list(scene.view.pods.items.values())
    assert (scene.view.pods_named("etcd"), scene.view.pods_owned_by(owner)) == (found, found)
    await scene.kube.delete("v1", "Pod", "p", "kube-system")
    assert await scene.woken() == 1
    assert (scene.view.pods_named("etcd"), scene.view.pods_owned_by(owner)) == ((), ())
