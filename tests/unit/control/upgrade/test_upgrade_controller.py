"""The operator's controller: what it writes, step by step, and what it leaves alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest

from autarky.control.common.shapes import image_of
from autarky.control.drift.decide import applied
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.upgrade.decide import checks_of_nodes, reported
from autarky.control.upgrade.decide.absent import LAGS_SECONDS
from autarky.control.upgrade.decide.checks_of_plane import REQUIRED
from autarky.control.upgrade.decide.observed import PASSES, Seen
from autarky.control.upgrade.decide.reported import State
from autarky.control.upgrade.decide.steps import ORDER
from autarky.control.upgrade.decide.templates import with_tag
from autarky.control.upgrade.observe import observe
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, KUBELET, SCHEDULER
from autarky.model.versions import Version
from autarky.ports import Kube
from fakes.clock import LoopClock
from unit.control.upgrade.upgrade_scene import NEW, OLD, PLANE, Scene, of_version, until_complete, watched

pytestmark = pytest.mark.looptime


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    async with watched(scene):
        yield scene


async def test_where_the_status_is_lost_the_servers_say_which_version_there_is(scene: Scene) -> None:
    """Somebody has made the object again, of a saved one: what was applied before the upgrade is in that."""
    await scene.settles()
    await scene.wants(NEW)
    await until_complete(scene)
    plane = await scene.plane()
    scene.kube.put({**plane, "spec": {**plane["spec"], "version": str(OLD)}, "status": {}})
    await asyncio.sleep(0.1)
    await scene.upgrade.reconcile()
    assert scene.upgrade.version == NEW


@pytest.mark.parametrize("up", [True, False])
async def test_each_component_follows_in_its_order_and_the_version_is_that_of_the_cluster_at_the_end(
    scene: Scene, up: bool
) -> None:
    await scene.settles()
    await scene.wants(NEW)
    seen = await until_complete(scene)
    wanted, order = NEW, list(ORDER)
    if not up:
        await scene.wants(OLD)
        seen, wanted, order = await until_complete(scene), OLD, list(reversed(ORDER))
    assert [[name for name in order if one[name] == wanted] for one in seen] == [
        order[:n] for n in range(len(ORDER) + 1)
    ]
    former = OLD if up else NEW
    status = (await scene.plane())["status"]
    assert (status["version"], status["formerVersion"], "upgrade" in status) == (str(wanted), str(former), False)
    for name in ORDER:
        live = await scene.live(name)
        comparison = applied.drift_of(live)
        assert comparison is not None
        assert not comparison.drifted


async def test_nothing_is_changed_before_it_is_in_the_status_what_is_wanted(scene: Scene) -> None:
    await scene.settles()
    await scene.wants(NEW)
    await scene.one_pass()
    assert set((await scene.versions()).values()) == {OLD}
    said = (await scene.plane())["status"]["upgrade"]
    assert (said["versions"], said["state"], said["component"]) == ([str(NEW)], "Upgrading", API_SERVER)


async def test_one_that_is_given_up_half_way_goes_back_by_another_operator(scene: Scene) -> None:
    await scene.settles()
    await scene.wants(NEW)
    for _ in range(5):
        await scene.one_pass()
    assert (await scene.versions())[API_SERVER] == NEW
    scene.begins()
    async with watched(scene):
        await scene.settles()
        await scene.wants(OLD)
        await until_complete(scene)
    assert set((await scene.versions()).values()) == {OLD}


@pytest.mark.parametrize("passes", [1, 5], ids=["before its first step", "half way"])
async def test_one_that_was_given_up_leaves_nothing_more_to_go_back_to(scene: Scene, passes: int) -> None:
    """Else a rollback that is asked for twice would go on to the version from before the last complete upgrade."""
    await scene.settles()
    scene.upgrade.former = Version(OLD.major, OLD.minor - 1, 9)
    await scene.one_pass()
    assert reported.goes_back_to(await scene.plane()) == scene.upgrade.former, "as long as nothing was given up"
    await scene.wants(NEW)
    for _ in range(passes):
        await scene.one_pass()
    assert reported.goes_back_to(await scene.plane()) == OLD
    await scene.wants(OLD)
    for _ in range(60):
        await scene.one_pass()
        await scene.settles()
    assert set((await scene.versions()).values()) == {OLD}
    assert not (await scene.plane())["status"].get("upgrade"), "it is complete"
    assert reported.goes_back_to(await scene.plane()) is None
    await scene.wants(NEW)
    await until_complete(scene)
    assert reported.goes_back_to(await scene.plane()) == OLD


async def test_an_operator_that_does_not_see_everything_yet_forgets_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that was given up half way would stay there: the status is written in the same pass."""
    await scene.settles()
    await scene.wants(NEW)
    for _ in range(5):
        await scene.one_pass()
    await scene.wants(OLD)
    scene.begins()
    async with watched(scene):
        with monkeypatch.context() as patched:
            patched.setattr("autarky.control.upgrade.operator.upgrade.current", lambda _: False)
            await scene.one_pass()
        status = (await scene.plane())["status"]
        assert (status["version"], status["upgrade"]) == (str(OLD), {"versions": [str(NEW)]})
        await scene.settles()
        await until_complete(scene)
    assert set((await scene.versions()).values()) == {OLD}


async def test_a_rollback_stops_it_and_is_said_until_the_spec_changes(scene: Scene) -> None:
    await scene.settles()
    await scene.wants(NEW)
    await until_the_api_server_is(scene, NEW)
    await goes_back(scene, "it did not start")
    for _ in range(30):
        await scene.one_pass()
    assert set((await scene.versions()).values()) == {OLD}
    [told] = scene.upgrade.unapplied
    assert told.reason == "UpgradeStopped"
    assert f"{API_SERVER} {NEW} was rolled back: it did not start" in told.sentence
    assert "`autarky upgrade 1.37.1`" in told.sentence
    report = reported.read(await scene.plane())
    assert report is not None
    assert (report.state, report.component) == (State.STOPPED, API_SERVER)
    await scene.wants(OLD)
    await scene.settles()
    await scene.one_pass()
    assert scene.upgrade.unapplied == []


@pytest.mark.parametrize("how", [{}, {"by_skew": True}, {"never_ran": True}])
async def test_what_was_rolled_back_before_a_plan_is_tried_again_by_it_once(scene: Scene, how: dict[str, bool]) -> None:
    """Whatever the reason was: by hand in the wrong order, an image that was not there, a crash."""
    await scene.settles()
    template = (await scene.live(API_SERVER))["spec"]["template"]
    wanted = with_tag(template, API_SERVER, NEW)
    record = Record(good=revision_of(template)).with_failure(revision_of(wanted), "before", **{"by_skew": False, **how})
    scene.rollouts.kept[API_SERVER] = LastGood(record, template)
    await scene.wants(NEW)
    await until_the_api_server_is(scene, NEW)
    await goes_back(scene, "again")
    for _ in range(10):
        await scene.one_pass()
    assert (await scene.versions())[API_SERVER] == OLD
    assert [told.reason for told in scene.upgrade.unapplied] == ["UpgradeStopped"]


async def test_a_step_against_the_skew_that_somebody_has_made_in_the_middle_does_not_stop_it(scene: Scene) -> None:
    """It was judged by what ran then."""
    await scene.settles()
    await scene.wants(NEW)
    await until_the_api_server_is(scene, NEW)
    template = (await scene.live(SCHEDULER))["spec"]["template"]
    wanted = with_tag(template, SCHEDULER, NEW)
    record = Record(good=revision_of(template)).with_failure(revision_of(wanted), "too new", by_skew=True)
    await scene.settles()
    scene.rollouts.kept[SCHEDULER] = LastGood(record, template)
    for _ in range(10):
        await scene.one_pass()
    assert (await scene.versions())[SCHEDULER] == NEW


async def until_the_api_server_is(scene: Scene, version: Version) -> None:
    for _ in range(30):
        await scene.one_pass()
        if (await scene.versions())[API_SERVER] == version:
            return
    raise AssertionError(f"{scene.upgrade.unapplied}")


async def goes_back(scene: Scene, why: str) -> None:
    """The API server, as what judges rollouts does it."""
    live = await scene.live(API_SERVER)
    failed = live["spec"]["template"]
    good = with_tag(failed, API_SERVER, OLD)
    scene.kube.put({**live, "spec": {**live["spec"], "template": good}})
    record = Record(good=revision_of(good)).with_failure(revision_of(failed), why, by_skew=False)
    scene.rollouts.kept[API_SERVER] = LastGood(record, good)


async def test_paused_it_takes_no_further_step_and_goes_on_when_it_is_resumed(scene: Scene) -> None:
    await scene.settles()
    await scene.kube.patch(*PLANE, {"spec": {"version": str(NEW), "paused": True}})
    for _ in range(5):
        await scene.one_pass()
    assert set((await scene.versions()).values()) == {OLD}
    report = reported.read(await scene.plane())
    assert report is not None
    assert (report.state, report.message) == (State.PAUSED, f"before {API_SERVER}: from {OLD} to {NEW}")
    assert report.to_come == (CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY, KUBELET)
    await scene.kube.patch(*PLANE, {"spec": {"paused": None, "kubelets": {"follow": False}}})
    await scene.one_pass()
    report = reported.read(await scene.plane())
    assert report is not None
    assert report.to_come == (CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY)
    await until_complete(scene)
    assert set((await scene.versions()).values()) == {NEW}


async def test_a_flag_that_the_new_version_lacks_is_refused_before_the_first_step(
    scene: Scene,
) -> None:
    await scene.settles()
    live = await scene.live(CONTROLLER_MANAGER)
    live["spec"]["template"]["spec"]["containers"][0]["command"].append("--concurrent-service-syncs=2")
    scene.kube.put(live)
    await scene.wants(NEW)
    for _ in range(3):
        await scene.one_pass()
    assert set((await scene.versions()).values()) == {OLD}
    report = reported.read(await scene.plane())
    assert report is not None
    assert report.state is State.REFUSED
    assert "concurrent-service-syncs" in report.message


async def test_a_gate_in_a_file_that_the_new_version_lacks_is_refused_until_it_is_gone(scene: Scene) -> None:
    await scene.settles()
    live = await scene.live(KUBE_PROXY)
    volumes = {one["name"]: one for one in live["spec"]["template"]["spec"]["volumes"]}
    name = volumes["config"]["configMap"]["name"]
    config_map = await scene.kube.get("v1", "ConfigMap", name, "kube-system")
    assert config_map is not None
    file = json.loads(config_map["data"]["config.json"])
    odd = json.dumps({**file, "featureGates": {"SidecarContainers": True}})
    scene.kube.put({**config_map, "data": {**config_map["data"], "config.json": odd}})
    await scene.wants(NEW)
    for _ in range(3):
        await scene.one_pass()
    report = reported.read(await scene.plane())
    assert report is not None
    assert report.state is State.REFUSED
    assert "does not know the feature gate SidecarContainers, and does not start with it: remove" in report.message
    assert f"featureGates in config.json of the ConfigMap {name}, in a copy that is mounted instead" in report.message
    assert set((await scene.versions()).values()) == {OLD}
    scene.kube.put(config_map)
    await until_complete(scene)
    assert set((await scene.versions()).values()) == {NEW}


async def test_a_cluster_that_is_not_well_is_not_upgraded_until_it_is(scene: Scene) -> None:
    await scene.settles()
    scene.conditions["NodesAsLabelled"] = "False"
    await scene.one_pass()
    await scene.wants(NEW)
    for _ in range(int(PASSES) - 5):
        await scene.one_pass()
    report = reported.read(await scene.plane())
    assert report is not None
    assert (report.state, report.message.split(": ")[0]) == (State.UPGRADING, "not begun yet"), "it may pass by itself"
    for _ in range(15):
        await scene.one_pass()
    report = reported.read(await scene.plane())
    assert report is not None
    assert report.state is State.REFUSED
    assert "control nodes are changing" in report.message
    assert "kubectl wait --for=condition=NodesAsLabelled" in report.message
    assert "versions" not in (await scene.plane())["status"]["upgrade"], "nothing was changed for it"
    assert set((await scene.versions()).values()) == {OLD}
    scene.conditions["NodesAsLabelled"] = "True"
    await until_complete(scene)
    assert set((await scene.versions()).values()) == {NEW}


async def test_one_that_has_begun_goes_on_and_back_whatever_is_wrong(scene: Scene) -> None:
    await scene.settles()
    await scene.wants(NEW)
    for _ in range(5):
        await scene.one_pass()
    assert (await scene.versions())[API_SERVER] == NEW
    scene.conditions = dict.fromkeys(REQUIRED, "False")
    await until_complete(scene)
    await scene.wants(OLD)  # complete now, and this is the way back from it
    await until_complete(scene)
    assert set((await scene.versions()).values()) == {OLD}


async def test_after_a_way_back_the_later_version_is_an_upgrade_again(scene: Scene) -> None:
    """It is the former one of the two then, and was taken for a way back, which is checked for almost nothing."""
    await scene.settles()
    await scene.wants(NEW)
    await until_complete(scene)
    await scene.wants(OLD)
    await until_complete(scene)
    scene.conditions["NodesAsLabelled"] = "False"
    await scene.one_pass()  # which writes that
    await scene.wants(NEW)
    for _ in range(15):
        await scene.one_pass()
    assert set((await scene.versions()).values()) == {OLD}


async def test_a_worker_without_the_former_image_does_not_keep_a_complete_one_from_going_back(scene: Scene) -> None:
    """A worker's root may have removed it, or only say so."""
    await scene.settles()
    await scene.wants(NEW)
    await until_complete(scene)
    runs = image_of((await scene.live(KUBE_PROXY))["spec"]["template"], KUBE_PROXY)
    scene.kube.put(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "w1"},
            "status": {
                "nodeInfo": {"kubeletVersion": str(OLD)},
                "conditions": [{"type": "Ready", "status": "True"}],
                "images": [{"names": [runs]}],
            },
        }
    )
    seen = await observe(scene.kube, NEW, OLD)
    assert [one.warning for one in checks_of_nodes.images(seen)] == [True], "it is seen that w1 lacks it"
    await scene.wants(OLD)
    await until_complete(scene)
    assert set((await scene.versions()).values()) == {OLD}


async def test_it_looks_at_the_cluster_every_few_seconds_at_most(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[float]()

    async def counted(kube: Kube, *versions: Version) -> Seen:
        looks.append(asyncio.get_running_loop().time())
        return await observe(kube, *versions)

    monkeypatch.setattr("autarky.control.upgrade.operator.upgrade.observe", counted)
    await scene.settles()
    scene.conditions["NodesAsLabelled"] = "False"
    await scene.one_pass()
    await scene.wants(NEW)
    for _ in range(120):
        await scene.one_pass()
    between = [round(later - earlier) for earlier, later in pairwise(looks)]
    assert {5, 6} >= set(between[:5])
    assert {30, 31} >= set(between[7:])


async def test_what_only_warns_is_in_an_event(scene: Scene) -> None:
    await scene.settles()
    await scene.wants(NEW)
    await scene.one_pass()
    assert set((await scene.versions()).values()) == {OLD}
    events = await scene.kube.list("v1", "Event", namespace="default")
    [warned] = [one for one in events if one["reason"] == "UpgradeWarnings"]
    assert "no backup schedule" in warned["message"]


async def test_an_image_that_somebody_has_set_is_left_alone_where_nothing_is_upgraded(scene: Scene) -> None:
    await scene.settles()
    scene.kube.put(of_version(await scene.live(SCHEDULER), NEW))
    for _ in range(5):
        await scene.one_pass()
    assert (await scene.versions())[SCHEDULER] == NEW
    assert scene.upgrade.unapplied == []


async def test_a_way_that_is_not_allowed_is_refused_and_changes_nothing(scene: Scene) -> None:
    await scene.settles()
    await scene.wants(Version(OLD.major, OLD.minor + 2, 0))
    await scene.one_pass()
    [told] = scene.upgrade.unapplied
    assert (told.reason, told.refused) == ("UpgradeRefused", True)
    assert set((await scene.versions()).values()) == {OLD}
    await scene.wants(NEW)
    await scene.kube.delete("apps/v1", "DaemonSet", KUBE_PROXY, "kube-system")
    await scene.one_pass()
    assert "kube-proxy does not run from the API" in scene.upgrade.unapplied[0].sentence


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("registry.k8s.io/kube-apiserver:v1.36.4", "registry.k8s.io/kube-apiserver:v1.37.1"),
        ("mirror:5000/kube-apiserver", "mirror:5000/kube-apiserver:v1.37.1"),
        ("mirror:5000/k/kube-apiserver:v1.36.4@sha256:00", "mirror:5000/k/kube-apiserver:v1.37.1"),
    ],
)
def test_an_image_keeps_the_place_that_it_comes_from(image: str, wanted: str) -> None:
    template = {"spec": {"containers": [{"name": API_SERVER, "image": image}, {"name": "other", "image": "x:1"}]}}
    changed = with_tag(template, API_SERVER, Version(1, 37, 1))
    assert [one["image"] for one in changed["spec"]["containers"]] == [wanted, "x:1"]


# --- nodes that are not there ----------------------------------------------------------------------------


@pytest.mark.parametrize("ready", [True, False])
async def test_neither_a_worker_that_is_off_nor_one_that_lags_holds_up_an_upgrade_or_the_way_back(ready: bool) -> None:
    async with watched(scene := Scene()):
        scene.worker("w1", ready=ready)
        lacking = {KUBE_PROXY: 1}
        await scene.settles(lacking=lacking)
        for wanted in (NEW, OLD):
            await scene.wants(wanted)
            await until_complete(scene, lacking)
            assert set((await scene.versions()).values()) == {wanted}
        told = [one["message"] for one in await scene.kube.list("v1", "Event")]
        assert [text for text in told if "kube-proxy on w1 gets it when it can" in text]


async def test_a_worker_is_waited_for_as_long_as_the_rollout_may_need_it() -> None:
    async with watched(scene := Scene()):
        scene.worker("w1")
        lacking = {KUBE_PROXY: 1}
        await scene.settles(lacking=lacking)
        await scene.wants(NEW)
        began: float | None = None
        for _ in range(800):
            await scene.one_pass()
            await scene.settles(lacking=lacking)
            if (await scene.plane())["status"]["version"] == str(NEW):
                break
            if began is None and set((await scene.versions()).values()) == {NEW}:
                began = asyncio.get_running_loop().time()
        assert began is not None
        assert asyncio.get_running_loop().time() - began >= LAGS_SECONDS - 5


async def goes_back_with_a_control_node_that_lacks_the_proxy(scene: Scene, passes: int) -> None:
    await scene.settles()
    await scene.wants(NEW)
    await until_complete(scene)
    await scene.second_control_node()
    await scene.wants(OLD)
    for _ in range(passes):
        await scene.one_pass()
        await scene.settles(lacking={KUBE_PROXY: 1})


async def test_no_control_node_may_lag() -> None:
    """Of the one that is ready and lacks it nobody knows whether it would work."""
    async with watched(scene := Scene()):
        await goes_back_with_a_control_node_that_lacks_the_proxy(scene, 600)
        assert (await scene.versions()) == dict.fromkeys(ORDER, OLD) | {API_SERVER: NEW}


async def test_it_names_the_nodes_that_a_step_waits_for_and_until_when() -> None:
    async with watched(scene := Scene()):
        await goes_back_with_a_control_node_that_lacks_the_proxy(scene, 20)
        scene.rollouts.left[KUBE_PROXY] = 30.0
        shown = []
        for _ in range(4):
            await scene.one_pass()
            scene.rollouts.left[KUBE_PROXY] -= 1.0
            shown.append(reported.read(await scene.plane()))
        assert {one.nodes for one in shown if one is not None} == {("n2",)}
        [until] = {one.until for one in shown if one is not None}
        assert until is not None
        assert 25 <= until - LoopClock().time() <= 30


async def test_a_control_node_that_is_off_does_not_hold_up_the_way_back() -> None:
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.wants(NEW)
        await until_complete(scene)
        await scene.second_control_node(ready=False)
        await scene.wants(OLD)
        await until_complete(scene, {KUBE_PROXY: 1, API_SERVER: 1})
        assert set((await scene.versions()).values()) == {OLD}


@pytest.mark.parametrize("says", ["v1.99.0", "v1.20.0", "no version"])
async def test_what_a_worker_says_of_its_kubelet_stops_no_plan_in_the_middle(says: str) -> None:
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.wants(NEW)
        for _ in range(5):
            await scene.one_pass()
        assert (await scene.versions())[API_SERVER] == NEW
        scene.worker("w1", kubelet=says)
        await scene.wants(OLD)
        await until_complete(scene)
        assert set((await scene.versions()).values()) == {OLD}


async def test_nor_does_it_keep_an_upgrade_within_the_minor_from_beginning() -> None:
    async with watched(scene := Scene()):
        await scene.settles()
        scene.worker("w1", kubelet="v1.20.0")
        patched = replace(OLD, patch=OLD.patch + 1)
        await scene.wants(patched)
        await until_complete(scene)
        assert set((await scene.versions()).values()) == {patched}


async def test_up_a_minor_it_does_until_that_worker_is_removed() -> None:
    async with watched(scene := Scene()):
        await scene.settles()
        scene.worker("w1", kubelet="v1.20.0")
        await scene.wants(NEW)
        for _ in range(5):
            await scene.one_pass()
        assert set((await scene.versions()).values()) == {OLD}
        found = reported.read(await scene.plane())
        assert found is not None
        assert (found.state, "node remove w1" in found.message) == (State.REFUSED, True)


async def test_another_target_in_the_middle_is_another_plan_that_is_checked() -> None:
    """What a plan itself has made of the cluster is no reason to refuse the corrected one."""
    async with watched(scene := Scene()):
        await scene.settles()
        await scene.wants(NEW)
        for _ in range(5):
            await scene.one_pass()
        assert (await scene.versions())[API_SERVER] == NEW
        scene.conditions["NodesAsLabelled"] = "False"
        await scene.one_pass()
        corrected = replace(NEW, patch=NEW.patch + 1)
        await scene.wants(corrected)
        for _ in range(60):
            await scene.one_pass()
            await scene.settles()
        assert (await scene.versions())[API_SERVER] == NEW, "it was not checked"
        found = reported.read(await scene.plane())
        assert found is not None
        assert found.state is State.STOPPED
        scene.conditions["NodesAsLabelled"] = "True"
        await until_complete(scene)
        assert set((await scene.versions()).values()) == {corrected}
