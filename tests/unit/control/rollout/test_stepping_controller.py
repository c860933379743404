"""Rollouts of DaemonSets while a node is off, from what Kubernetes writes to what the operator does about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from autarky.control.base.operator_view import View
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.rollout.operator.stepping import Stepping
from autarky.model.components import KUBELET
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.kube import FakeKube
from unit.control.world import World, revision_label, template

pytestmark = pytest.mark.looptime

API = "kube-apiserver"
BEFORE = template(API, "registry.example/kube-apiserver:v1.36.4")
WANTED = template(API, "registry.example/kube-apiserver:v1.36.4", "--v=1")
HOSTED = {"autarky.dev/slot": "hosted"}


def pod(world: World, live: Object, node: str, made_of: Object, *, ready: bool = True, ends: bool = False) -> Object:
    labels = {**HOSTED, "controller-revision-hash": revision_label(made_of)}
    return world.pod(live["metadata"]["name"], node, labels, owner=live, ready=ready, ends=ends)


def counted(world: World, live: Object, **status: int) -> None:
    now = world.kube._objects["apps/v1", "DaemonSet", SYSTEM, live["metadata"]["name"]]
    world.kube.put({**now, "status": {**now["status"], **status}})


def half_rolled_out(world: World, component: str = API) -> list[Object]:
    """n3 is off, and its pod ends forever; n1 has the new revision already, n2 has not."""
    for name, ready in (("n1", "True"), ("n2", "True"), ("n3", "Unknown")):
        world.node(name, ready)
    live = world.daemon_set(component, WANTED)
    counted(world, live, desiredNumberScheduled=3, numberUnavailable=1)
    return [
        pod(world, live, "n1", WANTED),
        pod(world, live, "n2", BEFORE),
        pod(world, live, "n3", BEFORE, ready=False, ends=True),
    ]


@asynccontextmanager
async def operator(world: World) -> AsyncIterator[Stepping]:
    clock = LoopClock()
    view = View(world.kube, clock, lambda: None, print)
    watching = asyncio.create_task(view.run())
    await asyncio.sleep(1)
    try:
        yield Stepping(world.say, view, world.kube, clock)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def rounds(duty: Stepping, seconds: int) -> None:
    for _ in range(seconds):
        await duty.reconcile()
        await asyncio.sleep(1)


async def left(world: World) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM)}


@pytest.mark.parametrize("component", [API, "kube-proxy", "kube-flannel", "node-agent"])
async def test_a_rollout_goes_on_when_a_node_has_been_off_for_a_minute(world, component):
    old = half_rolled_out(world, component)[1]
    async with operator(world) as duty:
        await rounds(duty, 59)
        assert await left(world) == {"n1", "n2", "n3"}
        assert await duty.reconcile() == 1.0, "it looks again soon"
        await rounds(duty, 3)
    assert await left(world) == {"n1", "n3"}, "the controller makes the next one on n2"
    [event] = await world.kube.list("v1", "Event", namespace=SYSTEM)
    assert event["involvedObject"]["name"] == component
    assert event["message"] == (
        f"The rollout goes on without n3, not Ready for long: pod {old['metadata']['name']} on n2 is replaced."
    )
    live = await world.kube.get("apps/v1", "DaemonSet", component, SYSTEM)
    assert live is not None
    assert live["metadata"]["generation"] == 1, "nothing of the DaemonSet itself is changed"


@pytest.mark.parametrize("component", ["kube-proxy", "kube-flannel", "node-agent"])
async def test_a_rollout_goes_on_without_a_worker_whose_pod_does_not_become_available(world, component):
    """All nodes are Ready; w1 keeps its own pod from being so."""
    world.node("n1")
    for name in ("w1", "w2"):
        world.node(name, control=False)
    wanted = {**WANTED, "spec": {**WANTED["spec"], "nodeSelector": {}}}
    live = world.daemon_set(component, wanted)
    counted(world, live, desiredNumberScheduled=3, numberUnavailable=1)
    pod(world, live, "n1", BEFORE)
    ill = pod(world, live, "w1", wanted, ready=False)
    pod(world, live, "w2", BEFORE)
    async with operator(world) as duty:
        await rounds(duty, 88)
        assert await left(world) == {"n1", "w1", "w2"}
        await rounds(duty, 4)
        assert await left(world) == {"w1", "w2"}
        await rounds(duty, 30)
        assert await left(world) == {"w1", "w2"}, "n1 has no available pod yet"
        pod(world, live, "n1", wanted)
        await rounds(duty, 2)
        assert await left(world) == {"n1", "w1"}
        pod(world, live, "w2", wanted)
        counted(world, live, updatedNumberScheduled=3)
        await rounds(duty, 2)
        assert await duty.reconcile() is None
    assert await world.kube.get("v1", "Pod", ill["metadata"]["name"], SYSTEM) is not None


def of_two_and_a_worker(world: World, *, off: bool) -> Object:
    """n2 is off, or rolled out already; n1 waits for its turn."""
    world.node("n1")
    world.node("n2", "Unknown" if off else "True")
    wanted = {**WANTED, "spec": {**WANTED["spec"], "nodeSelector": {}}}
    live = world.daemon_set("kube-proxy", wanted)
    pod(world, live, "n1", BEFORE)
    pod(world, live, "n2", BEFORE if off else wanted, ready=not off, ends=off)
    return live


async def test_a_worker_that_is_ready_for_moments_does_not_stop_a_rollout_while_another_node_is_off(world, monkeypatch):
    """Never silent for a minute, and not Ready any more when it is asked again. What it writes of its pod stands."""
    live = of_two_and_a_worker(world, off=True)
    counted(world, live, desiredNumberScheduled=3, numberUnavailable=1)
    world.node("w1", control=False)
    pod(world, live, "w1", live["spec"]["template"])
    shown = world.kube.list

    async def as_soon_as_asked(api_version: str, kind: str, **which: str) -> list[Object]:
        found = await shown(api_version, kind, **which)
        unready = {"conditions": [{"type": "Ready", "status": "False"}]}
        return [{**one, "status": unready} if one["metadata"]["name"] == "w1" else one for one in found]

    async with operator(world) as duty:
        monkeypatch.setattr(duty, "kube", _Shows(world.kube, as_soon_as_asked))
        for second in range(110):
            world.node("w1", "True" if second % 50 == 0 else "False", control=False)
            await rounds(duty, 1)
    assert await left(world) == {"n2", "w1"}


async def test_two_workers_that_never_end_their_old_pods_do_not_stop_a_rollout(world):
    live = of_two_and_a_worker(world, off=False)
    counted(world, live, desiredNumberScheduled=4, numberUnavailable=2)
    for name in ("w1", "w2"):
        world.node(name, control=False)
        pod(world, live, name, BEFORE, ready=False, ends=True)
    async with operator(world) as duty:
        await rounds(duty, 88)
        assert await left(world) == {"n1", "n2", "w1", "w2"}
        await rounds(duty, 5)
    assert await left(world) == {"n2", "w1", "w2"}


@pytest.mark.parametrize(("servers", "goes_on"), [("v1.37.1", True), ("v1.36.4", False)])
async def test_two_workers_stop_no_kube_proxy_with_which_the_control_plane_goes_down(world, servers, goes_on):
    """The API servers wait for those of control nodes (rule 4). Else the two are evidence against it."""
    live = of_two_and_a_worker(world, off=False)
    counted(world, live, desiredNumberScheduled=4, numberUnavailable=2)
    world.daemon_set(API, template(API, f"registry.example/kube-apiserver:{servers}"))
    plane = await world.kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    world.kube.put({**plane, "spec": {**plane["spec"], "version": "v1.36.4"}})
    for name in ("w1", "w2"):
        world.node(name, control=False)
        pod(world, live, name, live["spec"]["template"], ready=False)
    async with operator(world) as duty:
        await rounds(duty, 95)
    assert await left(world) == {"n2", "w1", "w2"} | ({"n1"} if not goes_on else set())


async def test_rule_2_a_new_leader_watches_for_a_minute_itself(world):
    half_rolled_out(world)
    async with operator(world) as duty:
        await rounds(duty, 50)
        duty.begin_term()
        await rounds(duty, 50)
        assert await left(world) == {"n1", "n2", "n3"}
        await rounds(duty, 12)
    assert await left(world) == {"n1", "n3"}


async def test_what_the_live_copies_show_is_asked_again_before_a_pod_is_ended(world, monkeypatch):
    """The node has returned, and the operator's copies are late."""
    half_rolled_out(world)
    shown = world.kube.list

    async def with_the_node_ready(api_version: str, kind: str, **which: str) -> list[Object]:
        found = await shown(api_version, kind, **which)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return [{**node, "status": ready} for node in found] if kind == "Node" else found

    async with operator(world) as duty:
        monkeypatch.setattr(duty, "kube", _Shows(world.kube, with_the_node_ready))
        await rounds(duty, 70)
        assert await left(world) == {"n1", "n2", "n3"}
        monkeypatch.setattr(duty, "kube", world.kube)
        await rounds(duty, 70)
    assert await left(world) == {"n1", "n3"}


class _Shows:
    """An API whose lists are others."""

    def __init__(self, kube: FakeKube, shown: Callable[..., Awaitable[list[Object]]]) -> None:
        self._kube, self.list = kube, shown

    def __getattr__(self, name: str) -> object:
        return getattr(self._kube, name)


async def test_a_pod_that_only_looks_like_one_of_the_daemon_set_counts_for_nothing(world):
    half_rolled_out(world)
    world.node("w1", control=False)
    world.pod(API, "n2", HOSTED, ready=False)
    labels = {**HOSTED, "controller-revision-hash": revision_label(WANTED)}
    world.pod(API, "w1", labels, ready=False, mirror=True)
    async with operator(world) as duty:
        await rounds(duty, 65)
    pods = await world.kube.list("v1", "Pod", namespace=SYSTEM)
    assert [
        pod["spec"]["nodeName"]
        for pod in pods
        if any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", []))
    ] == ["n1", "n3"]


async def test_nothing_is_looked_at_again_while_all_nodes_are_ready(world):
    half_rolled_out(world)
    world.node("n3")
    async with operator(world) as duty:
        assert await duty.reconcile() is None


async def test_one_daemon_set_that_cannot_be_judged_holds_up_no_other(world):
    half_rolled_out(world, "kube-proxy")
    odd = world.daemon_set(API, WANTED)
    world.kube.put({**odd, "spec": {**odd["spec"], "updateStrategy": {"rollingUpdate": {"maxUnavailable": "many"}}}})
    async with operator(world) as duty:
        for _ in range(65):
            with pytest.raises(ValueError, match="many"):
                await duty.reconcile()
            await asyncio.sleep(1)
    assert await left(world) == {"n1", "n3"}


@pytest.mark.parametrize(("state", "steps"), [(State.REFUSED, True), (State.WAITING, False), (State.FAILED, False)])
async def test_a_rollout_of_kubelets_goes_on_without_a_node_that_is_to_have_another_one(world, state, steps):
    wanted, before = template(KUBELET, "autarky.dev/kubelet:v1.36.4"), template(KUBELET, "autarky.dev/kubelet:v1.36.3")
    world.node("n2")
    live = world.daemon_set(KUBELET, wanted)
    counted(world, live, desiredNumberScheduled=2, numberUnavailable=1)
    new, old = pod(world, live, "n1", wanted, ready=False), pod(world, live, "n2", before)
    said = Report(new["metadata"]["uid"], Version(1, 36, 4), state)
    world.node("n1", **{hosted_report.ANNOTATION: hosted_report.text(said)})
    async with operator(world) as duty:
        await rounds(duty, 5)
    left = {one["metadata"]["name"] for one in await world.kube.list("v1", "Pod", namespace=SYSTEM)}
    assert (old["metadata"]["name"] not in left) is steps
    assert new["metadata"]["name"] in left


@pytest.mark.parametrize("component", [KUBELET, "kube-proxy"])
@pytest.mark.parametrize(
    ("says", "steps"), [(State.WAITING, True), (State.FAILED, False), (State.PROVING, False), (None, False)]
)
async def test_of_workers_one_may_have_failed_and_any_number_wait(world, component, says, steps):
    """What is said of hosted kubelets excuses no other DaemonSet, nor another pod of the kubelet's."""
    wanted, before = (template(component, f"autarky.dev/{component}:{tag}") for tag in ("v1.36.4", "v1.36.3"))
    for one in (wanted, before):
        one["spec"]["nodeSelector"] = {}
    live = world.daemon_set(component, wanted)
    counted(world, live, desiredNumberScheduled=5, numberUnavailable=3)
    pod(world, live, "n1", wanted)
    for name, state in (("w1", State.FAILED), ("w2", says), ("w3", says)):
        uid = pod(world, live, name, wanted, ready=False)["metadata"]["uid"] if state else "0" * 8
        if state is None:
            pod(world, live, name, wanted, ready=False)
        said = hosted_report.text(Report(uid, Version(1, 36, 4), state or State.WAITING))
        world.node(name, control=False, **{hosted_report.ANNOTATION: said})
    world.node("w4", control=False)
    pod(world, live, "w4", before)
    async with operator(world) as duty:
        await rounds(duty, 85)
        assert "w4" in await left(world), "each is to be tried first"
        await rounds(duty, 10)
    assert ("w4" not in await left(world)) is (steps and component == KUBELET)
