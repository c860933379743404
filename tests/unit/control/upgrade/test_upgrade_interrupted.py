"""An upgrade in whose middle the ControlPlane is made again, another version is asked for, an operator comes that knows
little yet, or a control node is off: what is not complete is not called so, and nothing is done that nobody asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from autarky.control.control_nodes.manifests import RECORD
from autarky.control.etcd.manifests import members
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.reported import State
from autarky.control.upgrade.decide.steps import ORDER
from autarky.kube import Reflector
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, SCHEDULER
from autarky.model.versions import Version
from autarky.render.values import SYSTEM, metadata
from fakes.clock import LoopClock
from unit.control.upgrade.test_soak_controller import asks, until_it_soaks
from unit.control.upgrade.test_soak_controller import state as state_of
from unit.control.upgrade.upgrade_scene import NEW, OLD, PLANE, Scene, until_complete, watched

pytestmark = pytest.mark.looptime
CORRECTED = replace(NEW, patch=NEW.patch + 1)


async def is_made_again(scene: Scene) -> None:
    """As `kubectl replace --force` does it, with the same spec."""
    plane = await scene.plane()
    said = {"conditions": scene.said(plane["metadata"].get("generation", 0))}
    scene.kube.put({**plane, "status": said})


def soaked(scene: Scene) -> float:
    return scene.upgrade.soak.soaked(NEW, scene.upgrade.clock.monotonic())


async def half_way(scene: Scene, wanted: Version) -> None:
    """The API servers are of another version than the rest."""
    for _ in range(60):
        await scene.one_pass()
        versions = await scene.versions()
        if versions[API_SERVER] == NEW and versions[SCHEDULER] == OLD:
            return
        await scene.settles()
    raise AssertionError(f"not half way to {wanted}: {scene.upgrade.unapplied}")


@pytest.mark.parametrize("up", [True, False])
async def test_one_whose_object_is_made_again_half_way_is_not_complete_and_goes_on(*, up: bool) -> None:
    """Else kubelets would follow to a minor that not all API servers have."""
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.wants(NEW)
        wanted = NEW
        if not up:
            await until_complete(scene)
            await scene.wants(OLD)
            wanted = OLD
        await half_way(scene, wanted)
        await is_made_again(scene)
        for _ in range(10):
            await scene.one_pass()
            status = (await scene.plane())["status"]
            assert status["version"] == str(OLD)
            assert str(NEW) in status["upgrade"]["versions"]
            assert reported.lowest_version(await scene.plane()) == OLD
        for _ in range(60):
            await scene.settles()
            await scene.one_pass()
        assert "upgrade" not in (await scene.plane())["status"]
        assert set((await scene.versions()).values()) == {wanted}


async def test_while_it_soaks_nobody_knows_what_an_object_that_is_made_again_has_had() -> None:
    async with watched(scene := Scene()):
        await scene.settles()
        await asks(scene, 1000)
        await until_it_soaks(scene)
        emulated, versions = await scene.emulated(), await scene.versions()
        await is_made_again(scene)
        for _ in range(10):
            await asyncio.sleep(1)
            await scene.upgrade.reconcile()
            assert scene.upgrade.version is None
        assert (await scene.emulated(), await scene.versions()) == (emulated, versions)


async def test_of_a_new_object_what_the_file_has_servers_emulate_is_no_plans() -> None:
    """Else a cluster that was made so would never have a version."""
    async with watched(scene := Scene()):
        live = await scene.live(API_SERVER)
        live["spec"]["template"]["spec"]["containers"][0]["command"].append("--emulated-version=1.36")
        scene.kube.put(live)
        await scene.settles()
        await scene.upgrade.reconcile()
        assert scene.upgrade.version is None
        asked = {"componentArguments": {API_SERVER: {"emulated-version": "1.36"}}}
        await scene.kube.patch(*PLANE, {"spec": asked})
        await asyncio.sleep(1)
        await scene.upgrade.reconcile()
        assert (scene.upgrade.version, scene.upgrade.versions) == (OLD, frozenset())


async def test_of_a_new_object_whose_servers_have_an_image_of_no_version_the_record_counts() -> None:
    async with watched(scene := Scene()):
        live = await scene.live(API_SERVER)
        container = live["spec"]["template"]["spec"]["containers"][0]
        container["image"] = f"{container['image'].rpartition(':')[0]}:of-my-own"
        scene.kube.put(live)
        await asyncio.sleep(1)
        await scene.upgrade.reconcile()
        assert scene.upgrade.version == OLD


async def test_a_corrected_version_soaks_as_well() -> None:
    """What the plan has had components emulate is no flag of somebody else's."""
    async with watched(scene := Scene()):
        await scene.settles()
        await asks(scene, 1000)
        await until_it_soaks(scene)
        emulated = await scene.emulated()
        await scene.wants(CORRECTED)
        for _ in range(5):
            await scene.one_pass()
        await until_it_soaks(scene)
        assert await scene.emulated() == emulated
        versions = await scene.versions()
        assert {name: versions[name] for name in emulated} == dict.fromkeys(emulated, CORRECTED)


async def test_what_is_refused_ends_no_soak() -> None:
    async with watched(scene := Scene()):
        await scene.settles()
        await asks(scene, 1000)
        await until_it_soaks(scene)
        for _ in range(20):
            await scene.one_pass()
        counted = soaked(scene)
        assert counted >= 10
        await scene.wants(Version(NEW.major, NEW.minor + 1, 0))
        for _ in range(5):
            await scene.one_pass()
        assert await state_of(scene) is State.STOPPED
        await scene.kube.patch(*PLANE, {"spec": {"version": str(NEW)}})
        for _ in range(3):
            await scene.one_pass()
        assert soaked(scene) >= counted


async def test_a_step_waits_until_it_is_known_whether_it_was_rolled_back_before() -> None:
    """A new operator may not have been able to read that yet."""
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.wants(NEW)
        await half_way(scene, NEW)
        await scene.settles()
        kept = scene.rollouts.kept.pop(CONTROLLER_MANAGER)
        for _ in range(10):
            await scene.one_pass()
        assert (await scene.versions())[CONTROLLER_MANAGER] == OLD
        found = reported.read(await scene.plane())
        assert found is not None
        assert "it is not known yet whether kube-controller-manager" in found.message
        scene.rollouts.kept[CONTROLLER_MANAGER] = kept
        await until_complete(scene)


async def test_up_a_minor_a_control_node_that_is_off_is_waited_for() -> None:
    """It would come back with a standby of before, beside a scheduler of the next minor (rule 11)."""
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.wants(NEW)
        await half_way(scene, NEW)
        await scene.second_control_node(ready=False)
        for _ in range(200):
            await scene.one_pass()
            await scene.settles(lacking={API_SERVER: 1, KUBE_PROXY: 1})
        assert await scene.versions() == dict.fromkeys(ORDER, OLD) | {API_SERVER: NEW}


def _member(scene: Scene, *, there: bool) -> None:
    member = members.member("n2", "10.0.0.2", present=True)
    scene.kube.put(members.crd())
    scene.kube.put({**member, "status": {"phase": "Member" if there else "Removed"}})


def _record(scene: Scene, *, there: bool) -> None:
    """Of a cluster whose etcd is not hosted, or whose EtcdMember is gone."""
    data = {"n2": '{"uid": "7", "state": "made"}'} if there else {}
    scene.kube.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(RECORD, SYSTEM), "data": data})


@pytest.mark.parametrize("known", [_member, _record])
async def test_so_is_one_whose_node_somebody_has_deleted_and_that_was_not_removed(known: Callable[..., None]) -> None:
    """Its machine comes back with its standbys, which would be too old, and on the way down with its kubelet, which
    would be too new, whoever has forgotten it."""
    known(scene := Scene(), there=False)
    async with watched(scene):
        await scene.settles()
        await scene.wants(NEW)
        await half_way(scene, NEW)
        known(scene, there=True)
        await scene.settles()
        for _ in range(50):
            await scene.one_pass()
        assert (await scene.versions())[CONTROLLER_MANAGER] == OLD
        found = reported.read(await scene.plane())
        assert found is not None
        assert "n2 may come back as it was (rules 4 and 11)" in found.message
        assert "`autarky node remove n2`" in found.message
        known(scene, there=False)
        await until_complete(scene)
        known(scene, there=True)
        await scene.wants(OLD)
        for _ in range(50):
            await scene.one_pass()
            await scene.settles()
        assert (await scene.versions())[API_SERVER] == NEW
        known(scene, there=False)
        for _ in range(50):
            await scene.one_pass()
            await scene.settles()
        assert set((await scene.versions()).values()) == {OLD}
        assert "upgrade" not in (await scene.plane())["status"]


@pytest.mark.parametrize("known", [_member, _record])
async def test_one_that_is_forgotten_before_the_first_step_has_nothing_changed(known: Callable[..., None]) -> None:
    """Else the upgrade would stand in its middle. A way back is only warned of it, and within a minor it is nothing."""
    known(scene := Scene(), there=True)
    async with watched(scene):
        await scene.settles()
        await scene.wants(NEW)
        for _ in range(50):
            await scene.one_pass()
            await scene.settles()
        assert set((await scene.versions()).values()) == {OLD}
        found = reported.read(await scene.plane())
        assert found is not None
        assert found.state is State.REFUSED
        assert "n2 may come back as it was (rules 4 and 11)" in found.message
        assert "`autarky node remove n2`" in found.message
        await scene.wants(patched := replace(OLD, patch=OLD.patch + 1))
        await until_complete(scene)
        assert set((await scene.versions()).values()) == {patched}


async def test_no_step_is_taken_while_nobody_knows_who_is_a_control_node() -> None:
    """One whose Node is gone would be missing there."""
    async with watched(scene := Scene()):
        await scene.settles()
        known, scene.view.control_nodes = (
            scene.view.control_nodes,
            Reflector(scene.kube, LoopClock(), "v1", "ConfigMap"),
        )
        await scene.wants(NEW)
        for _ in range(10):
            await scene.one_pass()
            await scene.settles()
        assert set((await scene.versions()).values()) == {OLD}
        scene.view.control_nodes = known
        await until_complete(scene)


@pytest.mark.parametrize("wanted", [NEW, OLD])
async def test_a_flag_that_the_new_version_lacks_stops_nothing_that_has_begun(wanted: Version) -> None:
    """Neither on nor back: what is begun is not checked again."""
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.wants(NEW)
        await half_way(scene, NEW)
        live = await scene.live(CONTROLLER_MANAGER)
        live["spec"]["template"]["spec"]["containers"][0]["command"].append("--concurrent-service-syncs=2")
        scene.kube.put(live)
        await scene.settles()
        await scene.wants(wanted)
        for _ in range(60):
            await scene.one_pass()
            await scene.settles()
        assert "upgrade" not in (await scene.plane())["status"]
        assert set((await scene.versions()).values()) == {wanted}
