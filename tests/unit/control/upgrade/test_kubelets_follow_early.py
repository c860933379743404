"""Kubelets that follow before the version is complete: while kube-proxy, Ready everywhere, is still watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import replace

import pytest

from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.steps import ORDER
from autarky.control.upgrade.decide.templates import with_tag
from autarky.control.upgrade.operator import upgrade
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, KUBELET, WITH_STANDBY
from autarky.model.versions import Version
from unit.control.upgrade.test_upgrade_and_kubelets import CAN_CHANGE, changes, done, ordered, told
from unit.control.upgrade.upgrade_scene import NEW, OLD, PLANE, Scene, of_version, watched

pytestmark = pytest.mark.looptime
LEVEL_3 = ORDER[1:]
ON_TRIAL = (KUBE_PROXY,)
POOLS = [
    {"name": "workers", "drain": "Never"},
    {"name": "control-nodes", "nodes": {"controlPlane": True}, "drain": "Never"},
]
"""Those that are drained wait until it is complete."""


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.kube.patch(*PLANE, {"spec": {"pools": POOLS}})
        yield scene


async def goes_up(scene: Scene, on_trial: Collection[str] = ON_TRIAL, unready: Collection[str] = ()) -> None:
    """Until everything is of the wanted version, and nothing is left but to find these good."""
    await scene.wants(NEW)
    for _ in range(15):
        await scene.one_pass()
        if await runs(scene) == {NEW}:
            break
        await scene.settles(watched=on_trial)
    await scene.settles(watched=on_trial, unready=unready)
    assert await runs(scene) == {NEW}


async def runs(scene: Scene) -> set[Version | None]:
    return set((await scene.versions()).values())


async def noted(scene: Scene) -> str | None:
    """The version that kubelets may have, as another operator reads it."""
    found = (await scene.plane())["status"].get("upgrade", {}).get("kubelets")
    return None if found is None else str(found)


async def until_ordered(scene: Scene, name: str = "n1") -> None:
    for _ in range(20):
        before = await noted(scene)
        assert await ordered(scene, name) is None
        await scene.one_pass()
        assert (await scene.plane())["status"]["version"] == str(OLD), "it is complete"
        if found := await ordered(scene, name):
            assert (found.target.version, before) == (NEW, str(NEW)), "noted before anything is ordered"
            return
    raise AssertionError(f"{name} gets no order: {scene.kubelets.to_report}")


async def worker_changes(scene: Scene, name: str, version: Version) -> None:
    node = await scene.kube.get("v1", "Node", name)
    assert node is not None
    annotations = {**node["metadata"]["annotations"], **await done(scene, name, version)}
    scene.worker(name, kubelet=str(version), annotations=annotations)


async def goes_back(scene: Scene, name: str) -> None:
    """A new revision, as what judges rollouts does it."""
    live = await scene.live(name)
    failed = live["spec"]["template"]
    good = with_tag(failed, name, OLD)
    scene.kube.put({**live, "spec": {**live["spec"], "template": good}})
    record = Record(good=revision_of(good)).with_failure(revision_of(failed), "it crashed", by_skew=False)
    scene.rollouts.kept[name] = LastGood(record, good)


async def test_kubelets_are_ordered_while_kube_proxy_is_only_watched_and_after_the_status_says_so(scene: Scene) -> None:
    scene.said_of_kubelet = CAN_CHANGE
    await goes_up(scene)
    assert await noted(scene) is None
    await until_ordered(scene)
    await changes(scene, NEW, watched=ON_TRIAL)
    status = (await scene.plane())["status"]
    assert (status["version"], status["upgrade"]["kubelets"]) == (str(OLD), str(NEW)), "for as long as it is watched"
    await scene.settles()
    for _ in range(5):
        await scene.one_pass()
    status = (await scene.plane())["status"]
    assert (status["version"], status["formerVersion"], "upgrade" in status) == (str(NEW), str(OLD), False)


@pytest.mark.parametrize("name", LEVEL_3)
async def test_level_3_that_is_not_found_good_or_a_kube_proxy_that_is_not_ready_everywhere_holds_all_kubelets(
    scene: Scene, name: str
) -> None:
    scene.said_of_kubelet = CAN_CHANGE
    scene.worker("w1", annotations=CAN_CHANGE)
    await goes_up(scene, on_trial={KUBE_PROXY, name}, unready=[name] if name == KUBE_PROXY else [])
    for _ in range(10):
        await scene.one_pass()
        assert (await noted(scene), await ordered(scene), await ordered(scene, "w1")) == (None, None, None)
    await scene.settles(watched=ON_TRIAL)
    await until_ordered(scene, "w1")


async def test_a_control_nodes_kubelet_waits_for_what_is_on_trial_again(scene: Scene) -> None:
    await goes_up(scene)
    for _ in range(3):
        await scene.one_pass()
    assert await noted(scene) == str(NEW)
    scene.said_of_kubelet = CAN_CHANGE
    await scene.settles(watched=[KUBE_PROXY, CONTROLLER_MANAGER])
    for _ in range(10):
        await scene.one_pass()
        assert await ordered(scene) is None
    await scene.settles(watched=ON_TRIAL)
    await until_ordered(scene)


async def test_none_is_ordered_after_kube_proxy_was_rolled_back(scene: Scene) -> None:
    for name in ("w1", "w2"):
        scene.worker(name, annotations=CAN_CHANGE)
    await goes_up(scene)
    await until_ordered(scene, "w1")
    await goes_back(scene, KUBE_PROXY)
    await scene.one_pass()
    assert (await told(scene)).state is reported.State.STOPPED
    await worker_changes(scene, "w1", NEW)
    for _ in range(40):
        await scene.one_pass()
        assert await ordered(scene, "w2") is None
    assert await noted(scene) == str(NEW), "the one that has changed may stay"


async def test_given_up_in_the_middle_all_that_were_ordered_go_down_first(scene: Scene) -> None:
    scene.said_of_kubelet = CAN_CHANGE
    scene.worker("w1", annotations=CAN_CHANGE)
    await goes_up(scene)
    await until_ordered(scene, "w1")
    await worker_changes(scene, "w1", NEW)
    await until_ordered(scene)
    await changes(scene, NEW, watched=ON_TRIAL)
    scene.worker("w2", kubelet="v1.99.0")
    await scene.wants(OLD)
    for waits_for in (("n1", "w1"), ("n1",)):
        for _ in range(15):
            await scene.one_pass()
            assert await runs(scene) == {NEW}, "a component is lowered while a kubelet is above"
            await scene.settles()
        found = await told(scene)
        assert (found.state, found.component, found.nodes) == (reported.State.UPGRADING, KUBELET, waits_for)
        if "w1" in waits_for:
            await worker_changes(scene, "w1", OLD)
    await changes(scene, OLD)
    for _ in range(30):
        await scene.one_pass()
        await scene.settles()
    assert await runs(scene) == {OLD}, "who only says that it is above is not waited for"
    status = (await scene.plane())["status"]
    assert (status["version"], "upgrade" in status) == (str(OLD), False)


async def test_given_up_while_an_order_is_under_way_its_kubelet_is_waited_for(scene: Scene) -> None:
    scene.worker("w1", annotations=CAN_CHANGE)
    await goes_up(scene)
    await until_ordered(scene, "w1")
    await scene.wants(OLD)
    for _ in range(15):
        await scene.one_pass()
        assert await runs(scene) == {NEW}
        await scene.settles()
    found = await ordered(scene, "w1")
    assert found is not None
    assert found.target.version == OLD
    assert (await told(scene)).nodes == ("w1",)


async def test_what_was_said_before_it_was_given_up_never_counts_with_api_servers_that_are_lowered(
    scene: Scene,
) -> None:
    """Up, back, up, back, and up again while API servers are of before. No kubelet can change until then."""
    await goes_up(scene)
    for version, passes in ((OLD, 3), (NEW, 1), (OLD, 3)):
        for _ in range(passes):
            await scene.one_pass()
        assert await noted(scene) == (str(NEW) if version == OLD else None)
        assert await runs(scene) == {NEW}
        await scene.wants(version)
    assert str(OLD) in (await scene.plane())["status"]["upgrade"]["versions"], (
        "else the first pass takes no step anyway"
    )
    for _ in range(5):  # the status is not written
        await asyncio.sleep(1)
        await scene.kubelets.reconcile()
        await scene.upgrade.reconcile()
        assert (await runs(scene), await noted(scene)) == ({NEW}, str(NEW))
    while (await scene.versions())[API_SERVER] == NEW:
        before = await noted(scene)
        await scene.one_pass()
        assert before is None or await runs(scene) == {NEW}
        await scene.settles()
    scene.said_of_kubelet = CAN_CHANGE
    await scene.settles()
    await scene.wants(NEW)
    for _ in range(5):
        await scene.one_pass()
        assert (await noted(scene), await ordered(scene)) == (None, None)
    for _ in range(15):
        await scene.settles(watched=ON_TRIAL)
        await scene.one_pass()
    found = await ordered(scene)
    assert found is not None
    assert found.target.version == NEW


async def test_another_operator_goes_on_with_it_and_gives_it_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await goes_up(scene)
    for _ in range(3):
        await scene.one_pass()
    assert await noted(scene) == str(NEW)
    scene.begins()
    async with watched(scene):
        with monkeypatch.context() as patched:
            patched.setattr(upgrade, "current", lambda _: False)
            await scene.one_pass()
        assert await noted(scene) == str(NEW), "one that does not see everything yet forgets nothing"
        scene.said_of_kubelet = CAN_CHANGE
        await scene.settles(watched=ON_TRIAL)
        await until_ordered(scene)
    await scene.wants(OLD)
    scene.begins()
    async with watched(scene):
        await scene.settles()
        for _ in range(10):
            await scene.one_pass()
            assert await runs(scene) == {NEW}
        found = await told(scene)
        assert (found.component, found.nodes) == (KUBELET, ("n1",))


async def test_api_servers_that_somebody_lowers_make_it_void(scene: Scene) -> None:
    await goes_up(scene)
    for _ in range(3):
        await scene.one_pass()
    assert await noted(scene) == str(NEW)
    scene.kube.put(of_version(await scene.live(API_SERVER), OLD))
    scene.said_of_kubelet = CAN_CHANGE
    await scene.one_pass()
    assert await noted(scene) is None
    for _ in range(5):
        await scene.one_pass()
        assert (await noted(scene), await ordered(scene)) == (None, None)


async def a_pod_is_of(scene: Scene, version: Version) -> None:
    live = await scene.live(API_SERVER)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True, **live["metadata"]}
    meta = {"name": "one", "namespace": "kube-system", "ownerReferences": [owner]}
    spec = {**of_version(live, version)["spec"]["template"]["spec"], "nodeName": "n1"}
    scene.kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


async def the_standby_is_of(scene: Scene, version: Version) -> None:
    scene.node({**dict.fromkeys(WITH_STANDBY, NEW), API_SERVER: version})


@pytest.mark.parametrize("one_is_of", [a_pod_is_of, the_standby_is_of])
async def test_so_does_one_that_is_still_of_before(
    scene: Scene, one_is_of: Callable[[Scene, Version], Awaitable[None]]
) -> None:
    await goes_up(scene)
    for _ in range(3):
        await scene.one_pass()
    for version, said in ((NEW, str(NEW)), (OLD, None)):
        await one_is_of(scene, version)
        await scene.one_pass()
        assert await noted(scene) == said


@pytest.mark.parametrize("wanted", [Version(NEW.major, NEW.minor + 1, 1), Version(OLD.major, OLD.minor - 1, 1)])
async def test_a_version_that_is_refused_in_the_middle_takes_no_kubelet_down(scene: Scene, wanted: Version) -> None:
    scene.said_of_kubelet = CAN_CHANGE
    await goes_up(scene)
    await until_ordered(scene)
    await changes(scene, NEW, watched=ON_TRIAL)
    await scene.wants(wanted)
    for _ in range(10):
        await scene.one_pass()
    assert (await told(scene)).state is reported.State.STOPPED
    found = await ordered(scene)
    assert found is not None
    assert found.target.version == NEW


async def test_hosted_kubelets_wait_until_it_is_complete(scene: Scene) -> None:
    """They would all leave at once."""
    await scene.kube.patch(*PLANE, {"spec": {"selfHosted": "0-4"}})
    scene.said_of_kubelet = CAN_CHANGE
    await goes_up(scene)
    for _ in range(10):
        await scene.one_pass()
    assert (await noted(scene), await ordered(scene)) == (None, None)


async def test_nor_does_a_patch_of_the_former_minor_before_the_way_there_has_begun(scene: Scene) -> None:
    scene.said_of_kubelet = CAN_CHANGE
    await goes_up(scene)
    await until_ordered(scene)
    await changes(scene, NEW, watched=ON_TRIAL)
    scene.conditions = dict.fromkeys(scene.conditions, "False")
    await scene.one_pass()
    patched = replace(OLD, patch=OLD.patch + 1)
    await scene.wants(patched)
    for _ in range(10):
        await scene.one_pass()
    found = await ordered(scene)
    assert found is not None
    assert found.target.version == NEW
    scene.conditions = dict.fromkeys(scene.conditions, "True")
    for _ in range(50):
        await scene.one_pass()
    found = await ordered(scene)
    assert found is not None
    assert found.target.version == OLD
