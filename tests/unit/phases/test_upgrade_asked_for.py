"""Asking for another version: what is refused before the first change, and how the wait for the operator ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.drift.decide import applied
from autarky.control.kubelet.decide import report as kubelet_report
from autarky.control.rollout.decide.failures import TRY_AGAIN
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.observed import PASSES
from autarky.control.upgrade.decide.reported import Report, Soaking, State, images_are_placed
from autarky.engine.phase import Warn
from autarky.errors import Problems, UserError
from autarky.model.cluster import Level
from autarky.model.components import IMAGES, SCHEDULER
from autarky.model.versions import Version
from autarky.payload import image_reference, load_release
from autarky.phases.objects import ApplyObjects
from autarky.phases.ownership import FollowControlPlane
from autarky.phases.upgrade import (
    LOOKS_AGAIN,
    UpgradeControlPlane,
    _have_it_tried_again,
    _said_against,
    ask_for,
    come_to,
    follow,
)
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

PLANE = ("autarky.dev/v1alpha1", "ControlPlane", "cluster")
OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)


async def says(kube: FakeKube, version: Version, report: Report | None = None, **conditions: str) -> None:
    """The operator, in the status."""
    plane = await kube.get(*PLANE)
    assert plane is not None
    soaks = report is not None and report.state is State.SOAKING
    soaking = ("1.36", Soaking(NEW, 1.8e9, 1.8e9 + 3600, 0.0)) if soaks else ()
    part = reported.status(report, {NEW} if report is not None else (), *soaking)
    generation = plane["metadata"]["generation"]
    rest = {"reason": "Because", "message": "why", "observedGeneration": generation}
    kinds = {"Ready": "True", "RolloutsSettled": "True", "NodesAsLabelled": "True"} | conditions
    shown = [{"type": kind, "status": value, **rest} for kind, value in kinds.items()]
    status = {"version": str(version), "observedGeneration": generation, "conditions": shown} | (
        {"upgrade": part} if part else {}
    )
    await kube.replace({**plane, "status": status}, subresource="status")


@pytest.fixture
async def kube(make_context, notes) -> FakeKube:
    kube = FakeKube()
    await ApplyObjects().run(make_context(kube=kube), notes)
    await says(kube, OLD)
    return kube


async def test_the_plan_has_the_images_that_lack_and_the_upgrade(make_context, kube):
    context = make_context(kube=kube)
    for host in context.machines.hosts.values():
        host.active_units.add("containerd")
        host.images |= dict.fromkeys(image_reference(load_release(NEW), name) for name in IMAGES if name != SCHEDULER)
    found = [one.sentence for one in await UpgradeControlPlane(NEW).plan(context)]
    assert f"upgrade the control plane from {OLD} to {NEW}" in found
    assert f"import 2 images of Kubernetes {NEW} on n1" in found, "the scheduler, and the kubelet"


async def test_nothing_is_planned_where_the_control_plane_has_the_version(make_context, kube):
    assert await UpgradeControlPlane(OLD).plan(make_context(kube=kube)) == []


async def test_kubelets_that_have_yet_to_follow_are_waited_for_again(make_context, kube):
    """One may have failed when the command ran before."""
    context = make_context(kube=kube)
    plane = await kube.get(*PLANE)
    kube.put({**plane, "spec": {**plane["spec"], "kubelets": {"follow": True}}})
    said = kubelet_report.text(kubelet_report.Report(base="0" * 16, version=OLD))
    meta = {"name": context.first.name, "annotations": {kubelet_report.ANNOTATION: said}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": meta}

    async def planned(kubelet: Version) -> list[str]:
        kube.put({**node, "status": {"nodeInfo": {"kubeletVersion": str(kubelet)}}})
        return [one.sentence for one in await UpgradeControlPlane(OLD).plan(context)]

    assert await planned(Version(1, 35, 4)) == [f"have the kubelet of {context.first.name} changed: Kubernetes {OLD}"]
    assert await planned(OLD) == [f"have the kubelet of {context.first.name} changed: its new settings"]
    await do_not_follow(kube)
    assert await planned(Version(1, 35, 4)) == []


async def test_without_a_version_only_a_file_that_asks_for_another_one_plans_anything(make_context, kube):
    context = make_context(kube=kube)
    assert await UpgradeControlPlane().plan(context) == []
    context.upgrade_from, context.cluster = OLD, a_cluster()
    assert context.cluster.kubernetes_version == OLD
    assert await UpgradeControlPlane().plan(context) == [], "the control plane has that of the file"


async def test_a_control_plane_that_is_not_hosted_is_refused_with_nothing_written(make_context, notes):
    kube = FakeKube()
    await ApplyObjects().run(make_context(a_cluster(Level.ADD_ONS), kube=kube), notes)
    await says(kube, OLD)
    with pytest.raises(Problems, match=r"kube-apiserver, .* does not run from the API"):
        await UpgradeControlPlane(NEW).plan(make_context(a_cluster(Level.ADD_ONS), kube=kube))
    plane = await kube.get(*PLANE)
    assert plane is not None
    assert plane["spec"]["version"] == str(OLD)


async def do_not_follow(kube) -> None:
    """As a release left it that had no orders for kubelets."""
    plane = await kube.get(*PLANE)
    kube.put({**plane, "spec": {key: value for key, value in plane["spec"].items() if key != "kubelets"}})


async def test_a_kubelet_that_would_be_too_new_is_refused_where_it_does_not_follow(make_context, kube):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}}
    kube.put({**node, "status": {"nodeInfo": {"kubeletVersion": "v1.38.0"}}})
    await UpgradeControlPlane(NEW).plan(make_context(kube=kube))
    await do_not_follow(kube)
    with pytest.raises(Problems, match=r"the kubelet of w1 is v1\.38\.0, and none may be newer"):
        await UpgradeControlPlane(NEW).plan(make_context(kube=kube))


@pytest.mark.parametrize("by_name", [True, False])
async def test_kubelets_that_follow_go_down_by_themselves_and_the_plan_is_the_control_planes(
    make_context, kube, by_name
):
    await says(kube, NEW)
    context = make_context(kube=kube)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": context.first.name}}
    kube.put({**node, "status": {"nodeInfo": {"kubeletVersion": str(NEW)}}})
    context.upgrade_from = None if by_name else NEW
    phase = UpgradeControlPlane(OLD if by_name else None)
    sentences = [one.sentence for one in await phase.plan(context) if not isinstance(one, Warn)]
    assert sentences[-1] == f"upgrade the control plane from {NEW} to {OLD}"
    assert not [one for one in sentences if "bring the kubelet" in one]
    await do_not_follow(kube)
    with pytest.raises(Problems, match=r"with that version in the cluster file and `autarky up`"):
        await phase.plan(context)


@pytest.mark.parametrize(
    ("former", "spec", "recorded", "fix"),
    [
        (OLD, NEW, OLD, "ask for it first, by `autarky upgrade rollback`; then `autarky up`"),
        (None, NEW, OLD, 'by `kubectl patch controlplane cluster --type=merge -p \'{"spec":{"version":"v1.36.4"}}\'`'),
        (OLD, OLD, OLD, ""),
        (OLD, NEW, NEW, ""),
    ],
)
async def test_the_way_to_bring_kubelets_back_is_one_that_up_takes(make_context, kube, former, spec, recorded, fix):
    """A file that has not changed is followed by what was asked for through the API: it brings no kubelet back."""
    await says(kube, NEW)
    plane = await kube.get(*PLANE)
    assert plane is not None
    status = {**plane["status"], **({} if former is None else {"formerVersion": str(former)})}
    plane = {**plane, "status": status, "spec": {**plane["spec"], "version": str(spec)}}
    kube.put(applied.with_record(plane, {**plane, "spec": {**plane["spec"], "version": str(recorded)}}))
    await do_not_follow(kube)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}}
    kube.put({**node, "status": {"nodeInfo": {"kubeletVersion": str(NEW)}}})
    with pytest.raises(Problems, match="none may be newer") as caught:
        await UpgradeControlPlane(OLD).plan(make_context(kube=kube))
    [problem] = caught.value.problems
    assert fix in problem.fix
    assert bool(problem.fix) == bool(fix)


async def test_a_flag_that_the_new_version_lacks_is_refused(make_context, kube):
    live = await kube.get("apps/v1", "Deployment", "kube-controller-manager", "kube-system")
    assert live is not None
    live["spec"]["template"]["spec"]["containers"][0]["command"].append("--concurrent-service-syncs=2")
    kube.put(live)
    with pytest.raises(Problems, match="--concurrent-service-syncs"):
        await UpgradeControlPlane(NEW).plan(make_context(kube=kube))


async def test_a_kind_of_configuration_file_that_the_new_version_lacks_is_refused_with_the_fix(make_context, kube):
    [config_map] = [
        one for one in await kube.list("v1", "ConfigMap", namespace="kube-system") if "config.json" in one["data"]
    ]
    odd = config_map["data"]["config.json"].replace("config.k8s.io/v1alpha1", "config.k8s.io/v1alpha0")
    kube.put({**config_map, "data": {"config.json": odd}, "immutable": False})
    with pytest.raises(Problems, match=r"does not understand kubeproxy\.config\.k8s\.io/v1alpha0") as caught:
        await UpgradeControlPlane(NEW).plan(make_context(kube=kube))
    [problem] = caught.value.problems
    assert problem.fix == "write it as kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration first"
    kube.put(config_map)
    assert await UpgradeControlPlane(NEW).plan(make_context(kube=kube))


@pytest.mark.looptime
async def test_everything_that_is_wrong_in_the_cluster_is_said_with_its_fix_after_the_time_to_pass(make_context, kube):
    context = make_context(kube=kube)
    await says(kube, OLD, Ready="False", RolloutsSettled="False")
    asked = asyncio.create_task(UpgradeControlPlane(NEW).plan(context))
    await asyncio.sleep(PASSES - 1)
    assert not asked.done()
    with pytest.raises(Problems) as caught:
        await asked
    assert [str(one).split(":")[0] for one in caught.value.problems] == ["health"] * 2
    assert "the control plane is not ready: why\n    fix: `autarky doctor` says what to do" in str(caught.value)
    assert "a rollout is not judged yet: why" in str(caught.value)
    plane = await kube.get(*PLANE)
    assert plane is not None
    assert plane["spec"]["version"] == str(OLD)


@pytest.mark.looptime
async def test_what_passes_meanwhile_refuses_nothing_and_warnings_are_shown(make_context, kube):
    await says(kube, OLD, RolloutsSettled="False")
    asked = asyncio.create_task(UpgradeControlPlane(NEW).plan(make_context(kube=kube)))
    await asyncio.sleep(10)
    await says(kube, OLD)
    found = await asked
    assert [one.sentence.split(":")[0] for one in found if isinstance(one, Warn)] == ["backup"]


async def test_back_to_the_version_before_it_may_go_from_a_cluster_that_is_not_well(make_context, kube):
    await says(kube, NEW, Ready="False")
    plane = await kube.get(*PLANE)
    assert plane is not None
    await kube.replace({**plane, "status": {**plane["status"], "formerVersion": str(OLD)}}, subresource="status")
    found = await UpgradeControlPlane(OLD).plan(make_context(kube=kube))
    assert [one.sentence for one in found if one.sentence.startswith("upgrade")] == [
        f"upgrade the control plane from {NEW} to {OLD}"
    ]


@pytest.mark.looptime
async def test_the_version_that_it_came_back_from_is_an_upgrade_again(make_context, kube):
    await says(kube, OLD, Ready="False")
    plane = await kube.get(*PLANE)
    await kube.replace({**plane, "status": {**plane["status"], "formerVersion": str(NEW)}}, subresource="status")
    with pytest.raises(UserError, match="the control plane is not ready"):
        await UpgradeControlPlane(NEW).plan(make_context(kube=kube))


def created(name: str, at: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "creationTimestamp": at}}


async def test_the_edit_says_which_nodes_have_the_images_only_where_none_was_left_out(make_context, kube):
    context = make_context(kube=kube)
    names = [node.name for node in context.cluster.nodes]
    nodes = [created(name, f"2026-11-0{number}T08:00:00Z") for number, name in enumerate(names, 1)]
    for node in nodes:
        kube.put(node)

    async def asked() -> dict[str, Any]:
        await ask_for(context, NEW)
        plane = await kube.get(*PLANE)
        assert plane is not None
        assert plane["spec"]["version"] == str(NEW)
        return plane

    plane = await asked()
    assert all(images_are_placed(plane, NEW, node) for node in nodes)
    assert not images_are_placed(plane, OLD, nodes[0])
    assert not images_are_placed(plane, NEW, created(names[0], "2026-11-20T08:00:00Z")), "another machine of that name"
    context.absent = {names[-1]: "it is off"}
    assert not images_are_placed(await asked(), NEW, nodes[0])
    context.absent = {}
    assert images_are_placed(await asked(), NEW, nodes[0])
    kube.put(created("not-in-the-file", "2026-11-01T08:00:00Z"))
    assert not images_are_placed(await asked(), NEW, nodes[0])


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (State.REFUSED, "version v1.37.1 is refused, and nothing was changed: because"),
        (State.STOPPED, "the upgrade to v1.37.1 has stopped: because"),
        (State.PAUSED, "the upgrade is paused because"),
    ],
)
@pytest.mark.looptime
async def test_the_wait_ends_where_the_operator_goes_no_further(make_context, notes, kube, state, sentence):
    context = make_context(kube=kube)
    await kube.patch(*PLANE, {"spec": {"version": str(NEW)}})
    waiting = asyncio.create_task(follow(context, NEW, notes))
    await says(kube, OLD, Report(NEW, State.UPGRADING, "kube-apiserver: from it to it", "kube-apiserver"))
    await asyncio.sleep(5)
    assert not waiting.done()
    await says(kube, OLD, Report(NEW, state, "because"))
    with pytest.raises(UserError, match=sentence):
        await waiting
    assert notes.notes == ["kube-apiserver: from it to it"]


@pytest.mark.parametrize(("state", "again"), [(State.STOPPED, True), (State.REFUSED, False)])
async def test_asked_for_again_the_step_that_was_rolled_back_is_tried_again(make_context, kube, state, again):
    """The component's record says that it failed: the operator forgets that where it is told to."""
    context = make_context(kube=kube)
    await kube.patch(*PLANE, {"spec": {"version": str(NEW)}})
    await says(kube, OLD, Report(NEW, state, "kube-scheduler was rolled back", SCHEDULER))
    plane = await kube.get(*PLANE)
    await _have_it_tried_again(context, plane, NEW)
    live = await kube.get("apps/v1", "Deployment", SCHEDULER, "kube-system")
    assert (live["metadata"].get("annotations", {}).get(TRY_AGAIN) == "now") is again
    assert _said_against(plane, NEW) == "kube-scheduler was rolled back"
    assert _said_against(plane, OLD) == ""


@pytest.mark.looptime
async def test_what_was_refused_before_the_command_has_changed_anything_is_looked_at_again(make_context, notes, kube):
    """Kubelets, say, which it has just brought back."""
    context, refused = make_context(kube=kube), Report(NEW, State.REFUSED, "a kubelet is newer")
    await kube.patch(*PLANE, {"spec": {"version": str(NEW)}})
    await says(kube, OLD, refused)
    waiting = asyncio.create_task(follow(context, NEW, notes, refused.message))
    await asyncio.sleep(LOOKS_AGAIN / 2)
    assert not waiting.done()
    await says(kube, NEW)
    assert await waiting is State.COMPLETE
    await says(kube, OLD, refused)
    waiting = asyncio.create_task(follow(context, NEW, notes, refused.message))
    await asyncio.sleep(LOOKS_AGAIN + 1)
    with pytest.raises(UserError, match="is refused, and nothing was changed: a kubelet is newer"):
        await waiting


@pytest.mark.looptime
async def test_the_wait_ends_with_the_version_or_when_somebody_asks_for_another_one(make_context, notes, kube):
    context = make_context(kube=kube)
    await kube.patch(*PLANE, {"spec": {"version": str(NEW)}})
    waiting = asyncio.create_task(follow(context, NEW, notes))
    await asyncio.sleep(5)
    assert not waiting.done(), "the status is from before the edit"
    await says(kube, NEW)
    await waiting
    waiting = asyncio.create_task(follow(context, NEW, notes))
    await kube.patch(*PLANE, {"spec": {"version": str(OLD)}})
    with pytest.raises(UserError, match=r"somebody has asked for version v1.36.4 meanwhile"):
        await waiting


# --- a soak ------------------------------------------------------------------------------------------------

SOAKS = Report(NEW, State.SOAKING, "it emulates 1.36")


async def spec_of(kube: FakeKube) -> dict[str, object]:
    plane = await kube.get(*PLANE)
    assert plane is not None
    return dict(plane["spec"])


async def test_the_plan_says_what_emulates_for_how_long_and_where_nothing_does(make_context, kube):
    context = make_context(kube=kube)
    for seconds, shown in ((86400, "24 h"), (5400, "90 min"), (45, "45 s")):
        found = [one.sentence for one in await UpgradeControlPlane(NEW, seconds).plan(context)]
        assert f"upgrade the control plane from {OLD} to {NEW}, which emulates 1.36 for {shown} first" in found
    await says(kube, NEW)
    found = [one.sentence for one in await UpgradeControlPlane(OLD, 60).plan(context) if isinstance(one, Warn)]
    assert f"there is no soak: from {NEW} to {OLD} there is nothing to emulate" in found


async def test_a_flag_of_somebody_else_is_refused_by_the_command_that_asks_for_a_soak(make_context, kube):
    live = await kube.get("apps/v1", "Deployment", "kube-scheduler", "kube-system")
    assert live is not None
    live["spec"]["template"]["spec"]["containers"][0]["command"].append("--emulated-version=1.36")
    kube.put(live)
    with pytest.raises(Problems, match=r"--emulated-version=1\.36, which somebody has set"):
        await UpgradeControlPlane(NEW, 60).plan(make_context(kube=kube))
    assert await UpgradeControlPlane(NEW).plan(make_context(kube=kube))


async def test_the_edit_has_the_soak_only_where_that_changes(make_context, kube):
    context = make_context(kube=kube)
    await ask_for(context, NEW, 0)
    assert "upgrade" not in await spec_of(kube)
    for seconds in (60, None, 60, 0):
        await ask_for(context, NEW, seconds)
        assert (await spec_of(kube))["upgrade"] == {"soakSeconds": 60 if seconds is None else seconds}


@pytest.mark.looptime
async def test_the_wait_ends_when_a_soak_begins_and_goes_on_where_it_is_set_to_nothing(make_context, notes, kube):
    context = make_context(kube=kube)
    await ask_for(context, NEW, 3600)
    waiting = asyncio.create_task(follow(context, NEW, notes))
    await asyncio.sleep(5)
    assert not waiting.done()
    await says(kube, OLD, SOAKS)
    assert await waiting is State.SOAKING
    await ask_for(context, NEW, 0)
    waiting = asyncio.create_task(follow(context, NEW, notes))
    await asyncio.sleep(5)
    assert not waiting.done(), "the status is from before the edit"
    await says(kube, OLD, SOAKS)
    await asyncio.sleep(5)
    assert not waiting.done(), "it is raised"
    await says(kube, NEW)
    assert await waiting is State.COMPLETE


async def test_a_second_run_while_it_soaks_changes_nothing_and_says_every_way_on(make_context, kube):
    context = make_context(kube=kube)
    await ask_for(context, NEW, 3600)
    await says(kube, OLD, SOAKS)
    [warned] = await UpgradeControlPlane(NEW).plan(context)
    assert isinstance(warned, Warn)
    assert warned.sentence == context.soaks
    for part in ("emulates 1.36 until about 2027-01-15T09:00:00Z", "`autarky upgrade 1.37.1 --soak 0`", "rollback`"):
        assert part in context.soaks
    changes = [one.sentence for one in await UpgradeControlPlane(NEW, 0).plan(context) if not isinstance(one, Warn)]
    assert changes[-1:] == [f"upgrade the control plane from {OLD} to {NEW}"]


@pytest.mark.parametrize("take_ownership", [False, True])
async def test_up_goes_on_with_the_version_from_before_while_it_soaks(make_context, notes, kube, take_ownership):
    context = make_context(kube=kube)
    context.take_ownership = take_ownership
    await ask_for(context, NEW, 3600)
    await says(kube, OLD, SOAKS)
    context.cluster = replace(context.cluster, kubernetes_version=NEW, soak_seconds=3600)
    context.upgrade_from = OLD
    plane = await kube.get(*PLANE)
    assert plane is not None
    recorded = {**plane, "spec": {**plane["spec"], "upgrade": {"soakSeconds": 3600}}}
    kube.put(applied.with_record(plane, recorded))
    [warned] = await UpgradeControlPlane().plan(context)
    assert "run `autarky up` again then" in warned.sentence
    assert (context.cluster.kubernetes_version, context.version_in_file, context.upgrade_from) == (OLD, NEW, None)
    assert await UpgradeControlPlane().plan(context) == []
    await FollowControlPlane().plan(context)
    await ApplyObjects().run(context, notes)
    assert (await spec_of(kube))["version"] == str(NEW), "nobody has given the soak up"


@pytest.mark.parametrize(
    ("in_file", "recorded", "live", "counts"),
    [
        (3600, None, None, 3600),
        (3600, 3600, 60, 60),
        (7200, 3600, 60, 7200),
        (None, 3600, 3600, 0),
        (None, None, 60, 60),
        (None, None, None, 0),
    ],
)
async def test_up_asks_for_the_soak_of_a_file_that_has_changed(make_context, kube, in_file, recorded, live, counts):
    context = make_context(kube=kube)
    context.cluster = replace(context.cluster, soak_seconds=in_file)
    plane = await kube.get(*PLANE)
    assert plane is not None

    def with_soak(seconds: int | None) -> dict[str, object]:
        part = {} if seconds is None else {"upgrade": {"soakSeconds": seconds}}
        return {**plane, "spec": {**plane["spec"], **part}}

    assert UpgradeControlPlane()._soak(context, applied.with_record(with_soak(live), with_soak(recorded))) == counts


def test_each_kubelet_that_has_come_down_is_progress() -> None:
    """The component is the kubelet all the while, for hours in a cluster with many workers."""

    def plane(*done: int) -> dict[str, object]:
        pools = [{"name": f"pool-{number}", "wanted": [], "done": one, "total": 40} for number, one in enumerate(done)]
        return {"status": {"kubelets": {"pools": pools}}}

    come = [come_to(found, "kubelet") for found in (plane(0, 0), plane(1, 0), plane(1, 1), {})]
    assert come == [("kubelet", 0), ("kubelet", 1), ("kubelet", 2), ("kubelet", 0)]
