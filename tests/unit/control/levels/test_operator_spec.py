"""The operator applies the ControlPlane's spec: levels, arguments; and reports what it does not apply."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.agents.manifests.operator import retired_name
from autarky.control.base.operator_view import View
from autarky.control.drift.decide import applied
from autarky.control.kubelet.decide import hosted_report
from autarky.control.levels import act as hosting
from autarky.control.levels.decide import moves as levels
from autarky.control.levels.operator import Spec
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.slots.decide import report as node_slots
from autarky.model.components import COMPONENTS
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render.crds import control_plane_crd
from autarky.render.objects import agent_parts, parts
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from fakes.kube import FakeKube

API = "kube-apiserver"
SYSTEM = "kube-system"
READY = [{"type": "Ready", "status": "True"}]


def ignored(*_: object, **__: object) -> None:
    """What is said and counted is tested elsewhere."""


class Scene:
    """One control node with everything hosted."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.kube.put(control_plane_crd())
        for part in parts(inputs_of(a_cluster())):
            for obj in part.objects:
                if applied.is_recorded(obj):
                    self.kube.put(applied.with_record(obj, obj))
        self.node(level=2)
        self.view = View(self.kube, LoopClock(), lambda: None, print)
        self.rollouts = Rollouts(ignored, self.view, self.kube, LoopClock(), lambda: True, ignored)
        self.spec = Spec(ignored, self.view, self.kube, LoopClock(), self.rollouts)

    def node(self, *, level: int, serves: bool = False, conditions: list[Object] = READY) -> None:
        slots = {component: node_slots.Slots("standby", serves=serves) for component in levels_of()}
        self.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": "n1",
                    "labels": {CONTROL_PLANE_ACTIVE: ""},
                    "annotations": {node_slots.ANNOTATION: node_slots.text(level, slots)},
                },
                "status": {"conditions": conditions},
            }
        )

    def pod(self, component: str, slot: str, node: str = "n1", **annotations: str) -> None:
        self.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{component}-{slot}" if node == "n1" else f"{component}-{slot}-{node}",
                    "annotations": annotations,
                    "namespace": SYSTEM,
                    "labels": {"k8s-app": component, "autarky.dev/slot": slot},
                },
                "spec": {"nodeName": node},
                "status": {"conditions": READY},
            }
        )

    async def plane(self, **spec: object) -> None:
        await self.kube.patch("autarky.dev/v1alpha1", "ControlPlane", "cluster", {"spec": spec})

    async def rounds(self, number: int = 1) -> None:
        for _ in range(number):
            await asyncio.sleep(1)
            await self.spec.reconcile()

    async def workload(self, component: str = API) -> Object | None:
        return await self.kube.get(hosting.APPS, COMPONENTS[component].kind, component, SYSTEM)

    def unapplied(self) -> list[str]:
        return [one.sentence for one in self.spec.unapplied.values()]


def levels_of() -> tuple[str, ...]:
    return (API, "kube-controller-manager", "kube-scheduler")


@pytest.fixture
async def scene():
    scene = Scene()
    watching = asyncio.create_task(scene.view.run())
    yield scene
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


LONG_ENOUGH = int(levels.SETTLE_SECONDS) + 2


@pytest.mark.looptime
async def test_a_spec_that_is_carried_out_changes_nothing(scene):
    before = await scene.workload()
    await scene.rounds(3)
    assert await scene.workload() == before
    assert scene.unapplied() == []


@pytest.mark.looptime
async def test_a_hosted_workload_goes_only_with_both_witnesses_of_its_standby(scene):
    await scene.plane(selfHosted="4")
    await scene.rounds(LONG_ENOUGH)
    assert await scene.workload() is not None  # nobody says that the standby serves
    scene.node(level=4, serves=True)
    await scene.rounds(LONG_ENOUGH)
    assert await scene.workload() is not None  # the agent says so, and there is no pod
    assert scene.unapplied() == ["kube-apiserver: its standby does not serve yet on n1"]
    scene.pod(API, "standby")
    await scene.rounds(LONG_ENOUGH)
    assert await scene.workload() is None
    assert await scene.workload("kube-scheduler") is not None


@pytest.mark.looptime
async def test_what_an_agent_said_of_another_level_lets_nothing_go(scene):
    scene.node(level=2, serves=True)
    scene.pod(API, "standby")
    await scene.plane(selfHosted="4")
    await scene.rounds(LONG_ENOUGH)
    assert await scene.workload() is not None


@pytest.mark.looptime
async def test_a_workers_static_pods_hold_up_no_level_that_moves(scene):
    """They pass for hosted pods that have not ended yet."""
    scene.node(level=4, serves=True)
    for name in levels_of():
        scene.pod(name, "standby")
        scene.pod(name, "hosted", "w1", **{"kubernetes.io/config.mirror": "0f3a"})
    await scene.plane(selfHosted="4")
    await scene.rounds(3 * LONG_ENOUGH)
    assert [await scene.workload(name) for name in levels_of()] == [None, None, None]
    await scene.plane(selfHosted="2-4")
    await scene.rounds(3)
    assert await scene.workload() is not None
    assert await scene.workload("kube-scheduler") is None, "no API server serves yet, whatever the worker says"


@pytest.mark.looptime
async def test_levels_go_one_after_the_other_and_come_back_as_they_were(scene):
    before = {name: (await scene.workload(name))["spec"] for name in levels_of()}
    scene.node(level=4, serves=True)
    for name in levels_of():
        scene.pod(name, "standby")
    scene.pod(API, "hosted")
    await scene.plane(selfHosted="4")
    await scene.rounds(LONG_ENOUGH)
    assert await scene.workload() is None
    assert await scene.workload("kube-controller-manager") is not None  # the API server's pod still drains
    await scene.kube.delete("v1", "Pod", f"{API}-hosted", SYSTEM)
    await scene.rounds(3 * LONG_ENOUGH)
    assert [await scene.workload(name) for name in levels_of()] == [None, None, None]
    assert scene.unapplied() == []
    await scene.plane(selfHosted="2-4")
    await scene.rounds(3)
    assert await scene.workload() is not None
    assert await scene.workload("kube-scheduler") is None  # its turn comes when the API server serves
    for name in levels_of():
        scene.pod(name, "hosted")
        await scene.rounds(3)
    assert {name: (await scene.workload(name))["spec"] for name in levels_of()} == before


class Killed(Exception):
    pass


class Mortal:
    """The API of an operator that dies before its Nth call."""

    def __init__(self, kube: FakeKube, lives: int) -> None:
        self.kube, self.lives = kube, lives

    def __getattr__(self, name: str) -> Any:
        self.lives -= 1
        if self.lives < 0:
            raise Killed
        return getattr(self.kube, name)


async def retired_api_server(scene: Scene) -> None:
    scene.node(level=4, serves=True)
    scene.pod(API, "standby")
    await scene.plane(selfHosted="4")
    await scene.rounds(LONG_ENOUGH)
    assert await scene.workload() is None


@pytest.mark.looptime
@pytest.mark.parametrize("new_term", [True, False])
@pytest.mark.parametrize("lives", range(7))
async def test_a_return_that_was_cut_is_finished(scene, lives, new_term):
    """Else its budget would be missing, and a stale copy would come back in place of what somebody deletes later."""
    api_version, kind = hosting.BUDGET
    meta, spec = {"name": API, "namespace": SYSTEM}, {"maxUnavailable": 1}
    scene.kube.put({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec})
    await retired_api_server(scene)
    await scene.plane(selfHosted="2-4")
    scene.spec.kube = Mortal(scene.kube, lives)
    with suppress(Killed):
        await scene.rounds(1)
    scene.spec.kube = scene.kube
    if new_term:
        scene.spec.begin_term()
    await scene.rounds(3)
    assert await scene.workload() is not None
    assert (await scene.kube.get(*hosting.BUDGET, API, SYSTEM))["spec"] == spec
    assert await scene.kube.get("v1", "ConfigMap", retired_name(API), SYSTEM) is None


@pytest.mark.looptime
async def test_a_copy_for_a_retirement_that_did_not_happen_is_forgotten(scene):
    scene.node(level=4, serves=True)
    scene.pod(API, "standby")
    await scene.plane(selfHosted="4")
    await scene.rounds(int(levels.SETTLE_SECONDS))
    live = await scene.workload()
    scene.spec.kube = Mortal(scene.kube, 5)
    with pytest.raises(Killed):
        await scene.rounds(2)
    assert await scene.kube.get("v1", "ConfigMap", retired_name(API), SYSTEM) is not None
    scene.spec.kube = scene.kube
    await scene.plane(selfHosted="2-4")
    await scene.rounds(3)
    assert await scene.workload() == live
    assert await scene.kube.get("v1", "ConfigMap", retired_name(API), SYSTEM) is None


@pytest.mark.looptime
async def test_a_copy_is_looked_for_once_for_each_workload(scene):
    await scene.rounds(2)
    scene.spec.kube = Mortal(scene.kube, 0)
    await scene.rounds(3)


@pytest.mark.looptime
async def test_a_workload_that_somebody_deleted_is_left_to_them_and_told(scene):
    await scene.kube.delete(hosting.APPS, "DaemonSet", API, SYSTEM)
    await scene.rounds(2)
    assert await scene.workload() is None
    assert scene.unapplied() == [
        "kube-apiserver should be hosted, but its workload is missing: run `autarky up` to apply it"
    ]


@pytest.mark.looptime
async def test_changed_arguments_reach_the_workload_once_and_edits_stand(scene):
    live = await scene.workload("kube-scheduler")
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "edited"
    await scene.kube.replace(live)
    await scene.plane(componentArguments={"kube-scheduler": {"v": "4"}})
    await scene.rounds(2)
    live = await scene.workload("kube-scheduler")
    container = live["spec"]["template"]["spec"]["containers"][0]
    assert "--v=4" in container["command"]
    assert container["image"] == "edited"
    assert [one.field.rpartition(".")[2] for one in applied.drift_of(live).drifted] == ["image"]
    container["command"].remove("--v=4")  # taken out by hand, or by a rollback
    await scene.kube.replace(live)
    await scene.rounds(2)
    command = (await scene.workload("kube-scheduler"))["spec"]["template"]["spec"]["containers"][0]["command"]
    assert "--v=4" not in command


@pytest.mark.looptime
async def test_an_argument_that_was_rolled_back_is_not_told_as_applied(scene):
    name, good = "kube-scheduler", await scene.workload("kube-scheduler")
    await scene.plane(componentArguments={name: {"v": "4", "no-such-flag": "1"}})
    await scene.rounds(2)
    assert scene.unapplied() == []
    record = Record("good").with_failure("bad", "pod p on n1 was not healthy within 90 s", by_skew=False)
    scene.rollouts.kept[name] = LastGood(record)
    await scene.rounds(2)
    assert scene.unapplied() == []  # it is still there
    live = await scene.workload(name)
    await scene.kube.replace({**live, "spec": {**live["spec"], "template": good["spec"]["template"]}})
    await scene.rounds(2)
    assert scene.unapplied() == [
        "kube-scheduler was rolled back and runs without --no-such-flag, --v: pod p on n1 was not healthy within 90 s"
    ]
    await scene.plane(componentArguments={name: None})
    await scene.rounds(2)
    assert scene.unapplied() == []


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"componentArguments": {API: {"secure-port": "1"}}}, "--secure-port of kube-apiserver may not be set"),
        (
            {"componentArguments": {"kube-proxy": {"v": "4"}, "kubelet": {"v": "4"}}},
            "the arguments of kube-proxy come from the cluster file: set them there and run `autarky up`",
        ),
        (
            {"defaults": 3},
            "the defaults of edition 3 come from the cluster file: set them there and run `autarky up`",
        ),
    ],
)
async def test_what_is_not_carried_out_is_said_and_changes_nothing(scene, spec, sentence):
    before = await scene.workload()
    await scene.plane(**spec)
    await scene.rounds(2)
    assert scene.unapplied() == [sentence]
    assert await scene.workload() == before


@pytest.mark.looptime
@pytest.mark.parametrize(("levels", "hosted"), [("0-4", True), ("02-4", False)])
async def test_the_arguments_of_etcd_come_from_here_only_where_it_is_hosted(scene, hosted, levels):
    await scene.plane(selfHosted=levels, componentArguments={"etcd": {"v": "4"}})
    await scene.rounds(2)
    assert ("etcd arguments" in scene.spec.unapplied) == (not hosted)


# --- level 0 --------------------------------------------------------------------------------------------------


KUBELET = "kubelet"


@pytest.fixture
async def with_kubelet(scene):
    """Levels 0 and 2-4 are hosted."""
    inputs = inputs_of(a_cluster(hosts_kubelet=True))
    [part] = [part for part in agent_parts(inputs) if part.name == KUBELET]
    for obj in part.objects:
        scene.kube.put(applied.with_record(obj, obj))
    await scene.plane(selfHosted="02-4")
    for name in (*levels_of(), KUBELET):
        scene.pod(name, "hosted")
    await scene.rounds(1)
    return scene


@pytest.mark.looptime
async def test_the_kubelets_go_at_once_when_their_level_does_and_come_back_as_they_were(with_kubelet):
    """Nobody serves as a standby of theirs."""
    scene, before = with_kubelet, (await with_kubelet.workload(KUBELET))["spec"]
    assert scene.unapplied() == []
    await scene.plane(selfHosted="2-4")
    await scene.rounds(2)
    assert await scene.workload(KUBELET) is None
    assert scene.unapplied() == ["kubelet: 1 hosted pods are still terminating"]
    await scene.kube.delete("v1", "Pod", "kubelet-hosted", SYSTEM)
    await scene.rounds(2)
    assert scene.unapplied() == []
    await scene.plane(selfHosted="02-4")
    await scene.rounds(2)
    assert (await scene.workload(KUBELET))["spec"] == before


@pytest.mark.looptime
async def test_the_kubelets_stay_until_those_of_control_nodes_have_stepped_aside(with_kubelet):
    """Where the host's does not wait, none would be in force."""
    scene = with_kubelet

    async def says(said):
        change = {"metadata": {"annotations": {hosted_report.ANNOTATION: said}}}
        await scene.kube.patch("v1", "Node", "n1", change)
        await scene.rounds(2)

    scene.node(level=2)
    await scene.plane(selfHosted="2-4")
    said = hosted_report.Report("1f", Version(1, 37, 1), hosted_report.State.IN_FORCE)
    await says(hosted_report.text(said))
    assert await scene.workload(KUBELET) is not None
    assert scene.unapplied() == ["kubelet: it has yet to step aside for the host's on n1"]
    await says(hosted_report.text(replace(said, state=hosted_report.State.REFUSED)))
    assert await scene.workload(KUBELET) is None


@pytest.mark.looptime
async def test_kubelets_stay_while_their_level_is_hosted_whatever_else_moves(with_kubelet):
    scene = with_kubelet
    await scene.plane(selfHosted="0-4")
    await scene.rounds(LONG_ENOUGH)
    assert await scene.workload(KUBELET) is not None


@pytest.mark.looptime
async def test_kubelets_go_before_the_others(with_kubelet):
    scene = with_kubelet
    scene.node(level=4, serves=True)
    for name in levels_of():
        scene.pod(name, "standby")
        await scene.kube.delete("v1", "Pod", f"{name}-hosted", SYSTEM)
    await scene.plane(selfHosted="4")
    await scene.rounds(4 * LONG_ENOUGH)
    assert await scene.workload(KUBELET) is None
    assert await scene.workload() is not None, "a kubelet of a control node has not ended yet"
    await scene.kube.delete("v1", "Pod", "kubelet-hosted", SYSTEM)
    await scene.rounds(4 * LONG_ENOUGH)
    assert [await scene.workload(name) for name in levels_of()] == [None, None, None]


@pytest.mark.looptime
@pytest.mark.parametrize("conditions", [READY, [{"type": "Ready", "status": "False"}]])
async def test_only_ready_control_nodes_hold_up_levels_while_their_kubelets_end(with_kubelet, conditions):
    scene = with_kubelet
    scene.pod(KUBELET, "hosted", "w1")
    scene.node(level=2, conditions=conditions)
    await scene.plane(selfHosted="2-4")
    await scene.rounds(3)
    assert bool(scene.unapplied()) == (conditions is READY)
    await scene.kube.delete("v1", "Pod", "kubelet-hosted", SYSTEM)
    await scene.rounds(3)
    assert scene.unapplied() == [], "the worker's is still there"


@pytest.mark.looptime
async def test_kubelets_come_after_the_others(with_kubelet):
    scene = with_kubelet
    await scene.plane(selfHosted="2-4")
    await scene.rounds(2)
    for name in (*levels_of(), KUBELET):
        await scene.kube.delete("v1", "Pod", f"{name}-hosted", SYSTEM)
    await scene.plane(selfHosted="02-4")
    await scene.rounds(3)
    assert await scene.workload(KUBELET) is None
    assert scene.unapplied() == ["kubelet: it comes back once the components before it serve"]
    for name in levels_of():
        scene.pod(name, "hosted")
    await scene.rounds(3)
    assert await scene.workload(KUBELET) is not None


@pytest.mark.looptime
async def test_kubelets_come_last_where_nothing_is_hosted(with_kubelet):
    scene = with_kubelet
    for name in (*levels_of(), KUBELET):
        await hosting.retire(scene.kube, name)
        await scene.kube.delete("v1", "Pod", f"{name}-hosted", SYSTEM)
    await scene.rounds(1)
    there = [name for name in (*levels_of(), KUBELET) if await scene.workload(name) is not None]
    assert there == [API]
    for name in levels_of():
        scene.pod(name, "hosted")
        await scene.rounds(3)
    assert await scene.workload(KUBELET) is not None


@pytest.mark.looptime
async def test_kubelets_that_somebody_deleted_are_left_to_them_and_told(with_kubelet):
    scene = with_kubelet
    await scene.kube.delete(hosting.APPS, "DaemonSet", KUBELET, SYSTEM)
    await scene.rounds(2)
    assert await scene.workload(KUBELET) is None
    assert scene.unapplied() == ["kubelet should be hosted, but its workload is missing: run `autarky up` to apply it"]


NO_NETWORK = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin"


@pytest.mark.looptime
@pytest.mark.parametrize(("why", "goes"), [(NO_NETWORK, True), ("PLEG is not healthy", False)])
async def test_a_control_node_that_waits_only_for_the_users_pod_network_keeps_no_level(scene, why, goes):
    """Both slots run on the host's network."""
    not_ready = [{"type": "Ready", "status": "False", "message": why}]
    scene.node(level=4, serves=True, conditions=not_ready)
    for component in levels_of():
        scene.pod(component, "standby")
    await scene.plane(selfHosted="4")
    await scene.rounds(6 * LONG_ENOUGH)
    assert (await scene.workload() is None) is goes
