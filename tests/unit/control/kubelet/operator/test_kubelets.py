"""The operator's controller for kubelets: what it writes on Nodes, and what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from autarky.control.kubelet.decide import order, report, telling
from autarky.control.kubelet.decide.order import CORDONED
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.decide.turns import STEADY_SECONDS
from autarky.errors import ApiError
from autarky.model.versions import Version
from autarky.ports import Object
from unit.control.kubelet.operator.kubelets_scene import V36, V37, Scene, kubelet_in, watched

pytestmark = pytest.mark.looptime
STEADY = int(STEADY_SECONDS) + 2


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with watched(Scene()) as scene:
        yield scene


async def versions(scene: Scene) -> dict[str, str]:
    return {node["metadata"]["name"]: kubelet_in(node) for node in await scene.kube.list("v1", "Node")}


async def test_one_after_the_other_gets_its_order_and_the_control_node_last(scene: Scene) -> None:
    seen: list[str] = []
    for _ in range(100):
        await scene.passes()
        for name in await scene.ordered():
            if name not in seen:
                has = await versions(scene)
                assert all(has[other] == str(V37) for other in seen)
                seen.append(name)
            if kubelet_in(await scene.live(name)) == str(V36):
                await scene.reports(name, State.DONE)
        if len(seen) == 3 and scene.kubelets.to_report is not None and scene.kubelets.to_report.is_current:
            break
    assert seen == ["w1", "w2", "c1"]
    assert set((await versions(scene)).values()) == {str(V37)}
    assert [one.number for name in seen if (one := await scene.order(name)) is not None] == [1, 1, 1]
    for name in seen:
        assert await scene.is_cordoned(name) == (False, False)
    assert await scene.kubelets.reconcile() is None, "it need not look again by itself"


async def test_an_order_is_written_once_and_its_cordon_with_it(scene: Scene) -> None:
    await scene.passes()
    first = await scene.live("w1")
    found = order.read(first["metadata"])
    assert found is not None
    assert (found.target.version, found.request.image) == (V37, f"autarky.dev/kubelet:{V37}")
    assert (await scene.annotations("w1"))[CORDONED] == found.id
    assert first["spec"] == {"unschedulable": True}
    await scene.passes(5)
    assert await scene.live("w1") == first
    assert await scene.ordered() == {"w1": V37}
    assert await scene.kubelets.reconcile() == 1.0, "clocks run"


async def test_another_operator_goes_on_and_writes_nothing_again(scene: Scene) -> None:
    await scene.passes()
    first = await scene.live("w1")
    scene.begins()
    async with watched(scene):
        await scene.passes(3)
        assert await scene.live("w1") == first
        assert await scene.ordered() == {"w1": V37}
        await scene.reports("w1", State.DONE)
        await scene.passes(STEADY)
        assert set(await scene.ordered()) == {"w1", "w2"}


async def test_who_does_not_lead_writes_nothing(scene: Scene) -> None:
    scene.leads = False
    await scene.passes(3)
    assert await scene.ordered() == {}
    scene.leads = True
    await scene.passes()
    assert await scene.ordered() == {"w1": V37}


@pytest.mark.parametrize(
    "spec",
    [{"paused": True}, {"kubelets": {"follow": False}}, {"kubelets": None}, {"version": "v1.38.0"}],
)
async def test_nothing_is_ordered_where_nothing_may_be(spec: Object) -> None:
    scene = Scene()
    await scene.wants(**spec)
    async with watched(scene):
        await scene.passes(3)
        assert await scene.ordered() == {}


async def test_a_cluster_that_asks_for_nothing_is_left_alone(scene: Scene) -> None:
    await scene.wants(kubelets=None)
    for name in ("w1", "w2", "c1"):
        await scene.annotate(name, {"autarky.dev/kubelet-version": str(V37)})
    before = await scene.kube.list("v1", "Node")
    await scene.passes(3)
    assert await scene.kube.list("v1", "Node") == before
    assert scene.kubelets.to_report is None
    await scene.wants(pools=[])
    await scene.passes()
    assert await scene.ordered() == {"w1": V37}, "with pools, a pin is followed"


@pytest.mark.parametrize(
    "bad",
    [{"pools": [{"name": "A B"}]}, {"pools": "x"}, {"kubelets": {"follow": True, "asked": "a b"}}, {"kubelets": 7}],
)
async def test_what_cannot_be_understood_changes_no_kubelet_and_is_said(scene: Scene, bad: Object) -> None:
    plane = await scene.kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    assert plane is not None
    scene.kube.put({**plane, "spec": {**plane["spec"], **bad}})
    await scene.passes(3)
    assert await scene.ordered() == {}
    reported = scene.kubelets.to_report
    assert reported is not None
    assert reported.trouble.startswith("spec.")
    assert scene.kubelets.decision is None, "nobody knows what the control plane may do"
    assert scene.view.control_plane is not None, "all the rest of the operator goes on"


async def test_pools_that_become_invalid_in_the_middle_leave_no_cordon_behind(scene: Scene) -> None:
    await scene.passes()
    assert await scene.is_cordoned("w1") == (True, True)
    await scene.reports("w1", State.REFUSED)
    await scene.wants(pools="x")
    await scene.passes(2)
    assert await scene.is_cordoned("w1") == (False, False)
    assert set(await scene.ordered()) == {"w1"}


async def test_a_persons_cordon_stays(scene: Scene) -> None:
    await scene.annotate("w1", {}, unschedulable=True)
    await scene.passes(2)
    assert await scene.ordered() == {"w1": V37}
    assert await scene.is_cordoned("w1") == (True, False)
    await scene.reports("w1", State.DONE)
    await scene.passes(STEADY)
    assert await scene.is_cordoned("w1") == (True, False)


async def test_what_a_person_changes_in_the_same_moment_is_not_lost(scene: Scene) -> None:
    async def a_person() -> None:
        scene.kube.before.clear()
        await scene.annotate("w1", {"x": "y"}, unschedulable=True)

    await asyncio.sleep(1)
    scene.kube.before["w1"] = a_person
    scene.kubelets.begin_pass()
    await scene.kubelets.reconcile()
    assert await scene.ordered() == {}
    assert await scene.is_cordoned("w1") == (True, False)
    await scene.passes(2)
    assert await scene.ordered() == {"w1": V37}
    assert await scene.is_cordoned("w1") == (True, False), "it is the person's still"


async def refused() -> None:
    raise ApiError(403, "Forbidden", "by a policy of somebody")


async def test_one_node_that_cannot_be_written_keeps_no_other_from_its_order(scene: Scene) -> None:
    await scene.wants(pools=[{"name": "workers", "atOnce": 2}])
    scene.kube.before["w1"] = refused
    await asyncio.sleep(1)
    scene.kubelets.begin_pass()
    with pytest.raises(ApiError):
        await scene.kubelets.reconcile()
    assert await scene.ordered() == {"w2": V37}


async def test_one_node_that_can_never_be_written_keeps_no_other_cordoned(scene: Scene) -> None:
    """It has filled its own Node's annotations. How the other's order has ended is said all the same."""
    await scene.passes()
    assert await scene.is_cordoned("w1") == (True, True)
    await scene.reports("w1", State.DONE)
    scene.kube.before["w2"] = refused
    for _ in range(STEADY):
        await asyncio.sleep(1)
        scene.kubelets.begin_pass()
        with suppress(ApiError):
            await scene.kubelets.reconcile()
    assert await scene.ordered() == {"w1": V37}
    assert await scene.is_cordoned("w1") == (False, False)
    assert any("w1" in text for on, _, text in await scene.events() if on == "cluster")


async def test_how_it_ends_is_an_event_and_so_is_the_order(scene: Scene) -> None:
    await scene.passes()
    await scene.reports("w1", State.WENT_BACK, why="no\npods " + "x" * 10_000)
    await scene.passes(3)
    found = await scene.events()
    expected = {("w1", "KubeletOrdered"), ("c1", "KubeletOrdered"), ("cluster", "KubeletWentBack")}
    assert {one[:2] for one in found} == expected
    (message,) = [text for on, _, text in found if on == "cluster"]
    assert message.startswith(f"Node w1: the kubelet went back to what was there before {V37}: no pods xxx")
    assert len(message) < 500
    for event in await scene.kube.list("v1", "Event", namespace="default"):  # as they are after an hour
        await scene.kube.delete("v1", "Event", event["metadata"]["name"], "default")
    scene.begins()
    async with watched(scene):
        await scene.passes(3)
    assert await scene.events() == [], "an operator that comes later does not say it again"


async def test_an_event_that_cannot_be_written_stops_nothing(scene: Scene) -> None:
    scene.kube.before["Event"] = refused
    await scene.passes()
    await scene.reports("w1", State.DONE)
    await scene.passes(STEADY)
    assert set(await scene.ordered()) == {"w1", "w2"}


async def test_a_control_node_waits_for_what_is_at_work_and_for_the_others_to_serve(scene: Scene) -> None:
    for name in ("w1", "w2"):
        scene.node(name, V37)
    scene.node("c2", V37)
    scene.server("c2", ready=False)
    await scene.passes(2)
    assert await scene.ordered() == {}
    scene.server("c2")
    scene.busy = "etcd changes"
    await scene.passes(2)
    assert await scene.ordered() == {}
    assert scene.kubelets.to_report is not None
    assert scene.kubelets.to_report.waits == {"c1": "etcd changes"}
    scene.busy = ""
    await scene.passes()
    assert await scene.ordered() == {"c1": V37}


async def test_an_api_server_of_a_worker_is_none(scene: Scene) -> None:
    """Whoever has a worker has mirror pods of any labels."""
    for name in ("w1", "w2"):
        scene.node(name, V37)
    scene.node("c2", V37)
    await scene.kube.delete("v1", "Pod", "kube-apiserver-c2", "kube-system")
    pod = await scene.kube.get("v1", "Pod", "kube-apiserver-c1", "kube-system")
    assert pod is not None
    meta = {"name": "fake", "namespace": "kube-system", "labels": pod["metadata"]["labels"]}
    meta["annotations"] = {"kubernetes.io/config.mirror": "x"}
    scene.kube.put({**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": "c2"}})
    await scene.passes(2)
    assert await scene.ordered() == {}


async def test_a_control_node_that_is_off_for_long_holds_up_no_other(scene: Scene) -> None:
    for name in ("w1", "w2"):
        scene.node(name, V37)
    scene.node("c2", V37)
    scene.node("c3", V36, ready=False)
    await scene.passes(30)
    assert await scene.ordered() == {}
    await scene.passes(60)
    assert await scene.ordered() == {"c1": V37}


async def test_a_spec_of_a_lower_minor_that_is_not_noted_orders_nothing(scene: Scene) -> None:
    for name in ("c1", "w1", "w2"):
        scene.node(name, V37)
    await scene.wants(version=str(V36))
    await scene.passes(3)
    assert await scene.ordered() == {}
    assert scene.kubelets.down(V36) is not None
    await scene.shows(V37, upgrade={"versions": [str(V36)]})
    await scene.passes(2)
    assert await scene.ordered() == {"c1": V36, "w1": V36}


async def test_an_upgrade_that_is_refused_does_not_keep_kubelets_behind(scene: Scene) -> None:
    """They may be why it is: too old for it."""
    await scene.wants(version="v1.38.0")
    await scene.passes(2)
    assert await scene.ordered() == {}
    await scene.shows(V37, upgrade={"wanted": "v1.38.0", "state": "Refused", "message": "kubelets are too old"})
    await scene.passes(2)
    assert await scene.ordered() == {"w1": V37}


# --- the way down ------------------------------------------------------------------------------------------


async def test_whom_the_way_down_waits_for(scene: Scene) -> None:
    for name in ("c1", "w1", "w2"):
        scene.node(name, V37)
    assert scene.kubelets.down(V36) is None, "nobody has looked yet"
    await scene.wants(version=str(V36))
    await scene.shows(V37, upgrade={"versions": [str(V36)]})
    await scene.passes()
    found = scene.kubelets.down(V36)
    assert found is not None
    assert found.waits == ("c1", "w1", "w2")
    scene.kubelets.begin_pass()
    assert scene.kubelets.down(V36) is None, "that was another pass"


async def test_a_decision_from_before_the_version_was_noted_says_nothing_of_the_way_down(scene: Scene) -> None:
    """The view may change between two controllers of one pass."""
    for name in ("c1", "w1", "w2"):
        scene.node(name, V37)
    await scene.passes()
    assert scene.kubelets.decision is not None
    assert scene.kubelets.decision.above == frozenset()
    assert scene.kubelets.down(V36) is None


async def test_a_second_way_down_gives_workers_their_time_again(scene: Scene) -> None:
    scene.node("c1", V36)
    for name in ("w1", "w2"):
        scene.node(name, V37)
        await scene.annotate(name, {report.ANNOTATION: None})

    async def wants(version: Version, *noted: Version) -> None:
        await scene.wants(version=str(version))
        await scene.shows(V37, upgrade={"versions": [str(one) for one in noted]} if noted else None)
        await scene.passes()

    def waits() -> tuple[str, ...]:
        found = scene.kubelets.down(V36)
        assert found is not None
        return found.waits

    for _ in range(2):
        await wants(V36, V36)
        assert waits() == ("w1", "w2")
        await scene.time_goes_by(3600.0)
        assert waits() == ()
        await wants(V37, V36, V37)


# --- what nodes say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["", "{}", "x" * 9000, "[" * 5000, '{"order": 7}', '{"state": "Done"}', '{"base": 7}'])
async def test_a_report_that_cannot_be_understood_concerns_its_node_alone(scene: Scene, said: str) -> None:
    await scene.annotate("w1", {report.ANNOTATION: said})
    await scene.passes(2)
    assert await scene.ordered() == {"w2": V37}


@pytest.mark.parametrize("part", ["metadata", "spec", "status"])
async def test_a_malformed_node_stops_nobody(scene: Scene, part: str) -> None:
    """As a client that the API has let through would see it."""
    live = await scene.live("w1")
    odd = {"metadata": {"name": "w1", "annotations": {order.ANNOTATION: "{"}}, "spec": {"taints": 7}, "status": {}}
    scene.kube.put({**live, part: odd[part]})
    await scene.passes(2)
    assert await scene.ordered()


async def test_what_is_told_stays_small_however_many_nodes_there_are(scene: Scene) -> None:
    for number in range(60):
        scene.node(f"w{number}", V36)
        await scene.annotate(f"w{number}", {"autarky.dev/kubelet-version": "x" * 5000})
    await scene.passes()
    assert scene.kubelets.to_report is not None
    assert len(str(telling.status(scene.kubelets.to_report))) < 5000
