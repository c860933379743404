"""Upgrades of a cluster whose kubelets follow: after it on the way up, before it on the way down. Those that follow
before it is complete: `test_kubelets_follow_early`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace

import pytest

from autarky.control.base import operator_view
from autarky.control.kubelet.decide import down, order, report
from autarky.control.kubelet.decide.order import CORDONED, Order
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.upgrade.decide import reported
from autarky.model.components import API_SERVER, KUBELET
from autarky.model.versions import Version
from unit.control.upgrade.upgrade_scene import NEW, OLD, Scene, until_complete, watched

pytestmark = pytest.mark.looptime
CAN_CHANGE = {report.ANNOTATION: report.text(Report(base="base", version=OLD))}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Up completely, with its kubelet."""
    async with watched(scene := Scene()):
        scene.said_of_kubelet = CAN_CHANGE
        await scene.settles()
        await scene.wants(NEW)
        await until_complete(scene)
        yield scene


async def ordered(scene: Scene, name: str = "n1") -> Order | None:
    node = await scene.kube.get("v1", "Node", name)
    assert node is not None
    return order.read(node["metadata"])


async def done(scene: Scene, name: str, version: Version) -> dict[str, str]:
    """What its agent says when the kubelet has what is ordered."""
    found = await ordered(scene, name)
    assert found is not None
    assert found.target.version == version
    said = Report(found.id, found.number, found.attempt, State.DONE, base="base", version=version)
    return {report.ANNOTATION: report.text(replace(said, target=found.target.digest))}


async def changes(scene: Scene, version: Version, watched: Collection[str] = ()) -> None:
    """Its kubelet gets what is ordered."""
    scene.kubelet, scene.said_of_kubelet = version, await done(scene, "n1", version)
    await scene.settles(watched=watched)
    for _ in range(15):
        await scene.one_pass()


async def passes(scene: Scene, times: int) -> None:
    for _ in range(times):
        await scene.one_pass()
        await scene.settles()


async def told(scene: Scene) -> reported.Report:
    found = reported.read(await scene.plane())
    assert found is not None
    return found


async def test_kubelets_are_ordered_when_the_version_is_complete(scene: Scene) -> None:
    """Where level 3 was found good at once."""
    assert (await scene.plane())["status"]["version"] == str(NEW)
    assert await ordered(scene) is None
    await scene.one_pass()
    found = await ordered(scene)
    assert found is not None
    assert found.target.version == NEW
    assert "upgrade" not in (await scene.plane())["status"]


async def test_the_way_down_waits_for_the_kubelets_and_then_goes(scene: Scene) -> None:
    await scene.one_pass()
    await changes(scene, NEW)
    await scene.wants(OLD)
    await scene.one_pass()
    assert (await scene.plane())["status"]["upgrade"]["versions"] == [str(OLD)], "noted first"
    assert (await told(scene)).component == KUBELET, "and nothing else is begun with"
    await passes(scene, 20)
    assert set((await scene.versions()).values()) == {NEW}, "nothing is lowered yet"
    found = await told(scene)
    assert (found.state, found.component, found.nodes) == (reported.State.UPGRADING, KUBELET, ("n1",))
    assert "n1 go down first (rule 4)" in found.message
    await scene.one_pass()
    await changes(scene, OLD)
    await until_complete(scene)
    assert set((await scene.versions()).values()) == {OLD}
    assert (await scene.plane())["status"]["formerVersion"] == str(NEW)


async def test_a_control_node_that_did_not_go_down_is_named_with_what_to_do(scene: Scene) -> None:
    await scene.one_pass()
    await changes(scene, NEW)
    await scene.wants(OLD)
    await passes(scene, 20)
    found = await ordered(scene)
    assert found is not None
    said = Report(found.id, found.number, found.attempt, State.WENT_BACK, why="it exits", base="base", version=NEW)
    scene.said_of_kubelet = {report.ANNOTATION: report.text(said)}
    await scene.settles()
    await passes(scene, 10)
    assert (await told(scene)).message == (
        "the kubelets of n1 go down first (rule 4); n1: it exits;"
        " once the cause is removed: `autarky up`, or another text in spec.kubelets.asked"
    )


async def test_one_that_is_given_up_before_a_kubelet_has_changed_waits_for_none() -> None:
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.wants(NEW)
        for _ in range(5):
            await scene.one_pass()
        assert (await scene.versions())[API_SERVER] == NEW
        scene.worker("w1", kubelet="v1.99.0")  # whatever a worker says
        await scene.wants(OLD)
        components = set[str]()
        for _ in range(40):
            await passes(scene, 1)
            components.add((await told(scene)).component)
        assert KUBELET not in components
        assert set((await scene.versions()).values()) == {OLD}
        assert (await scene.plane())["status"]["version"] == str(OLD)


async def test_another_operator_waits_too_and_before_it_has_looked(scene: Scene) -> None:
    await scene.one_pass()
    await changes(scene, NEW)
    await scene.wants(OLD)
    await passes(scene, 3)
    scene.begins()
    async with watched(scene):
        await asyncio.sleep(1)
        await scene.upgrade.reconcile()  # before the other controller of its pass
        assert set((await scene.versions()).values()) == {NEW}
        assert scene.upgrade.report is not None
        assert "it is not known yet" in scene.upgrade.report.message
        await passes(scene, 5)
        assert set((await scene.versions()).values()) == {NEW}


async def test_pools_that_cannot_be_understood_hold_up_the_way_down_and_nothing_else(scene: Scene) -> None:
    await scene.one_pass()
    await changes(scene, NEW)
    await scene.kube.patch("autarky.dev/v1alpha1", "ControlPlane", "cluster", {"spec": {"pools": [{"name": "A B"}]}})
    await scene.wants(OLD)
    await passes(scene, 10)
    assert set((await scene.versions()).values()) == {NEW}
    patched = replace(NEW, patch=NEW.patch + 1)
    await scene.wants(patched)
    await until_complete(scene)
    assert set((await scene.versions()).values()) == {patched}


async def test_a_patch_down_waits_for_no_kubelet(scene: Scene) -> None:
    patched = replace(NEW, patch=NEW.patch + 1)
    await scene.wants(patched)
    await until_complete(scene)
    await scene.one_pass()
    await changes(scene, patched)
    await scene.wants(NEW)
    await until_complete(scene)
    assert set((await scene.versions()).values()) == {NEW}


async def test_a_worker_that_says_that_it_is_above_is_waited_for_only_so_long(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down, "LAGS_SECONDS", 60.0)
    monkeypatch.setattr(operator_view, "STALE_SECONDS", 1000.0)  # the fake sends no bookmarks
    await scene.one_pass()
    await changes(scene, NEW)
    scene.worker("w1", kubelet="v1.99.0")
    await scene.wants(OLD)
    await passes(scene, 3)
    await scene.one_pass()
    await changes(scene, OLD)
    await passes(scene, 300)
    assert set((await scene.versions()).values()) == {NEW}
    assert (await told(scene)).nodes == ("w1",)
    told_of = set[str]()
    for _ in range(100):
        await passes(scene, 1)
        found = reported.read(await scene.plane())
        told_of |= {found.message} if found is not None else set()
    assert set((await scene.versions()).values()) == {OLD}
    passed = "not waited for: the kubelets of w1 (rule 4): until they come down, they may be newer than the API servers"
    assert any(message.endswith(passed) for message in told_of)
    events = [one for one in await scene.kube.list("v1", "Event") if one["reason"] == "KubeletsPassedOver"]
    assert [(one["type"], one["message"]) for one in events] == [
        ("Warning", f"Upgrade to {OLD}: {passed}: `autarky node remove w1`, if it does not come down.")
    ]


async def test_nobody_is_said_to_be_passed_over_where_nobody_is(scene: Scene) -> None:
    await scene.one_pass()
    await changes(scene, NEW)
    await scene.wants(OLD)
    await passes(scene, 3)
    await scene.one_pass()
    await changes(scene, OLD)
    await until_complete(scene)
    assert "KubeletsPassedOver" not in {one["reason"] for one in await scene.kube.list("v1", "Event")}


async def test_where_kubelets_do_not_follow_a_newer_one_refuses_the_way_down(scene: Scene) -> None:
    plane = ("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    scene.kubelet = NEW
    await scene.settles()
    await scene.kube.patch(*plane, {"spec": {"kubelets": {"follow": False}}})
    await scene.wants(OLD)
    await passes(scene, 3)
    found = await told(scene)
    assert found.state is reported.State.REFUSED
    assert "bring it back first" in found.message
    assert await ordered(scene) is None
    assert set((await scene.versions()).values()) == {NEW}


async def test_a_version_that_is_refused_takes_no_kubelet_down(scene: Scene) -> None:
    """Two minors down, or typed wrong."""
    await scene.one_pass()
    await changes(scene, NEW)
    before = await ordered(scene)
    await scene.wants(Version(1, OLD.minor - 1, 3))
    for _ in range(10):
        await scene.one_pass()
    assert (await told(scene)).state is reported.State.REFUSED
    assert await ordered(scene) == before


async def test_its_cordon_is_part_of_the_same_write(scene: Scene) -> None:
    scene.worker("w1", kubelet=str(NEW))
    await scene.one_pass()
    node = await scene.kube.get("v1", "Node", "n1")
    found = await ordered(scene)
    assert node is not None
    assert found is not None
    assert node["metadata"]["annotations"][CORDONED] == found.id
    assert node["spec"]["unschedulable"] is True
