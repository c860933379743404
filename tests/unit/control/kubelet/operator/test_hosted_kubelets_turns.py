"""The operator's controller of hosted kubelets: the turns that it writes on Nodes, and the DaemonSet's image."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import pytest

from autarky.control.drift.decide import applied
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted_report import TURN, Report, State
from autarky.control.kubelet.decide.report import State as OfOrder
from autarky.control.kubelet.decide.takeovers import Following
from autarky.control.kubelet.decide.telling import Hosted as ReportedOfHosted
from autarky.control.kubelet.operator.hosted import FOUGHT_TIMES, HostedKubelets
from autarky.control.rollout.decide.failures import Failure, Record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.upgrade.decide.templates import with_tag
from autarky.errors import ApiError
from autarky.kube.fenced import Fenced
from autarky.model.components import API_SERVER, KUBELET
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from unit.control.kubelet.operator.kubelets_scene import PLANE, V36, V37, Scene, watched

pytestmark = pytest.mark.looptime
DAEMON_SET = ("apps/v1", "DaemonSet", KUBELET, SYSTEM)


class Hosted(Scene):
    """Level 0 is hosted, and each node has a pod of its DaemonSet, of which its agent says that it waits."""

    def __init__(self, kubelets: Version = V37, image: str = f"autarky.dev/kubelet:{V37}", **spec: Any) -> None:
        super().__init__(V37, kubelets, **{"selfHosted": "02-4"} | spec)
        template = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": KUBELET, "image": image}]}}
        live: Object = {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": template}}
        live["metadata"] = {"name": KUBELET, "namespace": SYSTEM}
        self.kube.put(applied.with_record(live, deepcopy(live)))
        self.uids = {name: self.pod(name) for name in ("c1", "w1", "w2")}

    def begins(self) -> None:
        super().begins()
        fenced = Fenced(self.kube, lambda: self.leads)
        rollouts = Rollouts(self._say, self.view, fenced, LoopClock(), lambda: True, lambda _: None)
        rollouts.kept[KUBELET] = LastGood(Record())
        self.hosted = HostedKubelets(
            *(self._say, self.view, fenced, LoopClock(), self.kubelets, rollouts, lambda: self.busy)
        )
        self.kubelets.at_work = lambda nodes: self.busy or self.hosted.at_work(nodes)

    def pod(self, node: str, number: int = 1, revision: str = "a") -> str:
        live = self.kube._objects["apps/v1", "DaemonSet", SYSTEM, KUBELET]  # it is ours
        meta = {
            "name": f"{KUBELET}-{node}-{number}",
            "namespace": SYSTEM,
            "labels": {"controller-revision-hash": revision},
            "ownerReferences": [{"kind": "DaemonSet", "uid": live["metadata"]["uid"]}],
        }
        spec = {"nodeName": node, "containers": []}
        made = self.kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {}})
        return str(made["metadata"]["uid"])

    async def says(self, node: str, state: State, why: str = "", pod: str = "") -> None:
        said = Report(pod or self.uids[node], V37, state, why)
        await self.annotate(node, {hosted_report.ANNOTATION: hosted_report.text(said)})

    async def all_wait(self) -> None:
        for name in self.uids:
            await self.says(name, State.WAITING)

    async def turns(self) -> dict[str, str]:
        found = {name: await self.annotations(name) for name in self.uids}
        return {name: annotations[TURN] for name, annotations in found.items() if TURN in annotations}

    async def passes(self, times: int = 1) -> None:
        for _ in range(times):
            await super().passes()
            await self.hosted.reconcile()
            await asyncio.sleep(0.1)

    async def image(self) -> str:
        live = await self.kube.get(*DAEMON_SET)
        assert live is not None
        return str(live["spec"]["template"]["spec"]["containers"][0]["image"])


@pytest.fixture
async def scene() -> AsyncIterator[Hosted]:
    async with watched(Hosted()) as scene:
        assert isinstance(scene, Hosted)
        yield scene


# --- turns --------------------------------------------------------------------------------------------------


async def test_a_turn_is_the_uid_of_the_pod_and_the_next_one_goes_when_the_trial_has_ended(scene: Hosted) -> None:
    await scene.passes()
    assert await scene.turns() == {}, "nobody has asked"
    await scene.all_wait()
    await scene.passes(5)
    first = {name: scene.uids[name] for name in ("c1", "w1")}
    assert await scene.turns() == first
    assert await scene.hosted.reconcile() == 1.0, "clocks run"
    assert scene.hosted.waits == {"w2": "w1 has its turn"}
    await scene.says("w1", State.IN_FORCE)
    await scene.passes()
    assert await scene.turns() == {**first, "w2": scene.uids["w2"]}


async def test_what_has_failed_with_a_former_template_stops_nobody(scene: Hosted) -> None:
    for name, revision in (("c1", "former"), ("w1", "wanted"), ("w2", "wanted")):
        scene.uids[name] = scene.pod(name, 2, revision)
        await scene.says(name, State.WAITING)
    await scene.says("c1", State.FAILED)
    await scene.passes(2)
    assert set(await scene.turns()) == {"w1"}
    scene.uids["c1"] = scene.pod("c1", 3, "wanted")
    await scene.says("c1", State.FAILED)
    await scene.says("w1", State.IN_FORCE)
    await scene.passes(2)
    assert set(await scene.turns()) == {"w1"}
    assert scene.hosted.waits == {"w2": "c1 failed before"}


async def test_a_pod_that_is_not_the_daemon_sets_gets_none(scene: Hosted) -> None:
    await scene.says("w1", State.WAITING, pod="0" * 8)
    await scene.says("w2", State.WAITING, pod=scene.uids["w1"])
    (server,) = await scene.kube.list("v1", "Pod", labels=f"k8s-app={API_SERVER}")
    await scene.says("c1", State.WAITING, pod=server["metadata"]["uid"])
    await scene.passes(3)
    assert await scene.turns() == {}


async def test_a_turn_is_written_once_and_by_whoever_leads(scene: Hosted) -> None:
    scene.leads = False
    await scene.says("w1", State.WAITING)
    await scene.passes(2)
    assert await scene.turns() == {}
    scene.leads = True
    await scene.passes()
    before = await scene.live("w1")
    await scene.passes(3)
    assert await scene.live("w1") == before


async def test_a_node_that_changes_meanwhile_is_looked_at_again(scene: Hosted) -> None:
    async def fails() -> None:
        del scene.kube.before["c1"]
        await scene.says("c1", State.FAILED)

    await scene.says("c1", State.WAITING)
    scene.kube.before["c1"] = fails
    await scene.passes(3)
    assert await scene.turns() == {}


async def test_a_turn_that_was_not_written_is_nobodys(scene: Hosted) -> None:
    async def falls_silent() -> None:
        del scene.kube.before["w1"]
        scene.kube.put({**(live := await scene.live("w1")), "status": {**live["status"], "conditions": []}})

    await scene.says("w1", State.WAITING)
    await scene.says("w2", State.WAITING)
    scene.kube.before["w1"] = falls_silent
    await scene.passes(2)
    assert set(await scene.turns()) == {"w2"}


async def test_a_control_node_that_is_back_just_when_its_turn_would_be_taken_back_keeps_it() -> None:
    scene = Hosted()
    for name in ("c2", "c3"):
        scene.node(name, V37)
        scene.uids[name] = scene.pod(name)

    async def is_back() -> None:
        del scene.kube.before["c1"]
        await scene.annotate("c1", {"heard": "again"})

    async with watched(scene):
        await scene.says("c1", State.WAITING)
        await scene.passes(2)
        assert set(await scene.turns()) == {"c1"}
        scene.node("c1", V37, ready=False)
        await scene.says("c1", State.PROVING)
        await scene.annotate("c1", {TURN: scene.uids["c1"]})
        await scene.time_goes_by(1200)
        scene.kube.before["c1"] = is_back
        await scene.says("c2", State.WAITING)
        await scene.passes()
        assert set(await scene.turns()) == {"c1"}
        await scene.passes()
        assert set(await scene.turns()) == {"c2"}, "it is away still"


async def test_turns_are_taken_back_where_the_level_is_not_hosted(scene: Hosted) -> None:
    await scene.all_wait()
    await scene.passes()
    assert await scene.turns() != {}
    await scene.wants(selfHosted="2-4")
    await scene.passes(2)
    assert await scene.turns() == {}


@pytest.mark.parametrize("bad", [{"pools": "x"}, {"paused": True}])
async def test_what_is_not_understood_or_paused_gives_no_turn(scene: Hosted, bad: Object) -> None:
    await scene.wants(**bad)
    await scene.all_wait()
    await scene.passes(3)
    assert await scene.turns() == {}


async def test_no_control_node_is_ordered_beside_a_trial_and_none_is_tried_beside_an_order() -> None:
    scene = Hosted()
    scene.node("c2", V36)
    async with watched(scene):
        await scene.says("c1", State.WAITING)
        scene.busy = "something is at work"
        await scene.passes(2)
        assert (await scene.turns(), await scene.ordered()) == ({}, {})
        scene.busy = ""
        await scene.passes(3)
        assert (await scene.turns(), set(await scene.ordered())) == ({}, {"c2"})
        await scene.reports("c2", OfOrder.DONE)
        await scene.passes(15)
        assert set(await scene.turns()) == {"c1"}
        await scene.annotate("c2", {"autarky.dev/kubelet-version": str(V36)})
        await scene.passes(3)
        assert (await scene.ordered())["c2"] == V37
        await scene.says("c1", State.IN_FORCE)
        await scene.passes(3)
        assert (await scene.ordered())["c2"] == V36


async def test_that_one_has_failed_is_said_once_on_the_control_plane(scene: Hosted) -> None:
    await scene.says("w1", State.FAILED, "it said nothing before")
    await scene.passes(2)
    assert await scene.events() == [], "an operator that has just begun does not know whether that was said"
    await scene.says("c1", State.FAILED, "it exits")
    await scene.passes(3)
    message = f"Node c1: the hosted kubelet {V37} is not tried any more: it exits."
    assert await scene.events() == [("cluster", "KubeletHostedFailed", message)]
    assert scene.hosted.failed == {"c1": "it exits", "w1": "it said nothing before"}
    await scene.says("w2", State.WAITING)
    await scene.passes(2)
    assert scene.kubelets.to_report is not None
    assert scene.kubelets.to_report.hosted == ReportedOfHosted("", scene.hosted.failed, {"w2": "c1, w1 failed before"})
    await scene.wants(selfHosted="2-4")
    await scene.passes(2)
    assert scene.kubelets.to_report.hosted == ReportedOfHosted()


# --- the image ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [422, 413, 500])
async def test_it_follows_also_where_a_worker_lets_nobody_write_its_node(status: int) -> None:
    async def takes_nothing() -> None:
        raise ApiError(status, "Invalid", "Too long: may not be more than 262144 bytes")

    async with watched(Hosted(image=f"autarky.dev/kubelet:{V36}")) as scene:
        assert isinstance(scene, Hosted)
        await scene.says("w1", State.WAITING)
        scene.kube.before["w1"] = takes_nothing
        with nullcontext() if status != 500 else pytest.raises(ApiError):
            await scene.passes()
        assert await scene.image() == f"autarky.dev/kubelet:{V37}"
        assert await scene.turns() == {}


@pytest.mark.parametrize("image", [f"autarky.dev/kubelet:{V36}", "autarky.dev/kubelet:v1.38.0"])
async def test_the_image_follows_and_nobody_has_changed_it_against_the_file(image: str) -> None:
    async with watched(Hosted(image=image)) as scene:
        assert isinstance(scene, Hosted)
        await scene.passes(2)
        assert await scene.image() == f"autarky.dev/kubelet:{V37}"
        live = await scene.kube.get(*DAEMON_SET)
        assert live is not None
        compared = applied.drift_of(live)
        assert compared is not None
        assert not compared.drifted
        before = live["metadata"]["resourceVersion"]
        await scene.passes(3)
        live = await scene.kube.get(*DAEMON_SET)
        assert live is not None
        assert live["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize(
    ("image", "spec"),
    [
        ("mine.example/kubelet:v1.36.4", {}),
        ("autarky.dev/kubelet:mine", {}),
        (f"autarky.dev/kubelet:{V36}", {"kubelets": {"follow": False}}),
        (f"autarky.dev/kubelet:{V36}", {"paused": True}),
        (f"autarky.dev/kubelet:{V36}", {"selfHosted": "2-4"}),
    ],
)
async def test_it_stays_where_it_is_somebodys_own_or_nothing_follows(image: str, spec: Object) -> None:
    scene = Hosted(image=image)
    await scene.wants(**spec)
    async with watched(scene):
        await scene.passes(3)
        assert await scene.image() == image


async def test_the_kubelets_of_hosts_change_first() -> None:
    image = f"autarky.dev/kubelet:{V36}"
    async with watched(Hosted(V36, image=image)) as scene:
        assert isinstance(scene, Hosted)
        for name in ("w1", "w2", "c1"):
            await scene.passes(15)
            assert await scene.image() == image
            await scene.reports(name, OfOrder.DONE)
        await scene.passes(15)
        assert await scene.image() == f"autarky.dev/kubelet:{V37}"


BACK = (
    f"the hosted kubelets do not get {V37}: it was rolled back;"
    " to try again: kubectl -n kube-system annotate ds/kubelet autarky.dev/try-again=now"
)


async def test_it_does_not_follow_down_to_what_the_operator_has_not_taken_up() -> None:
    """As where somebody has made the ControlPlane again, of an old file, and it has no status."""
    async with watched(Hosted()) as scene:
        assert isinstance(scene, Hosted)
        plane = await scene.kube.get(*PLANE)
        assert plane is not None
        scene.kube.put({**plane, "spec": {**plane["spec"], "version": str(V36)}, "status": {}})
        await scene.passes(3)
        assert await scene.image() == f"autarky.dev/kubelet:{V37}"
        assert await scene.ordered() == {}


@pytest.mark.parametrize(("by_skew", "follows"), [(False, False), (True, True)])
async def test_what_was_rolled_back_stays_back(by_skew: bool, follows: bool) -> None:
    image = f"autarky.dev/kubelet:{V36}"
    async with watched(Hosted(image=image)) as scene:
        assert isinstance(scene, Hosted)
        live = await scene.kube.get(*DAEMON_SET)
        assert live is not None
        failed = revision_of(with_tag(live["spec"]["template"], KUBELET, V37))
        record = Record(failures=(Failure(failed, 1, "it exits", by_skew=by_skew),))
        scene.hosted.rollouts.kept[KUBELET] = LastGood(record)
        await scene.passes(3)
        assert (await scene.image() != image) is follows
        reported = scene.kubelets.to_report
        assert reported is not None
        assert reported.hosted.behind == ("" if follows else BACK)
        scene.hosted.rollouts.kept[KUBELET] = LastGood(Record())  # somebody has done as it says
        await scene.passes(2)
        assert scene.kubelets.to_report is not None
        assert (await scene.image(), scene.kubelets.to_report.hosted.behind) == (f"autarky.dev/kubelet:{V37}", "")
        assert scene.kubelets.to_report.is_current


async def test_a_tool_that_keeps_it_at_something_else_is_answered_later_each_time(scene: Hosted) -> None:
    former, follows = f"autarky.dev/kubelet:{V36}", f"autarky.dev/kubelet:{V37}"
    loop, took = asyncio.get_running_loop(), list[float]()
    for _ in range(6):
        live = await scene.kube.get(*DAEMON_SET)
        assert live is not None
        live["spec"]["template"]["spec"]["containers"][0]["image"] = former
        scene.kube.put(live)
        began, told = loop.time(), ""
        await scene.passes()
        while await scene.image() != follows:
            told = scene.hosted.behind or told
            await asyncio.sleep(3)
            await scene.passes()
        took.append(round(loop.time() - began, -1))
        assert bool(told) is (len(took) > FOUGHT_TIMES), told
    assert took == [0.0, 0.0, 10.0, 20.0, 40.0, 80.0]
    await scene.passes()
    assert scene.hosted.behind == ""


async def test_what_somebody_did_to_another_version_delays_nothing() -> None:
    async with watched(Hosted(image=f"autarky.dev/kubelet:{V36}")) as scene:
        assert isinstance(scene, Hosted)
        scene.hosted._following = Following(V36, 9, asyncio.get_running_loop().time())
        await scene.passes(2)
        assert await scene.image() == f"autarky.dev/kubelet:{V37}"


async def test_nothing_is_set_before_it_is_known_what_was_rolled_back() -> None:
    image = f"autarky.dev/kubelet:{V36}"
    async with watched(Hosted(image=image)) as scene:
        assert isinstance(scene, Hosted)
        scene.hosted.rollouts.kept.clear()
        await scene.passes(3)
        assert await scene.image() == image
