"""Rollouts of CoreDNS and flannel, from what Kubernetes writes to what the operator does about them."""

from __future__ import annotations

from typing import Any

import pytest

from autarky.control.drift.decide import applied as applied_last
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.rollout.manifests import secret_name, template_in
from autarky.control.rollout.operator import last_good
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.rollout.operator.workloads import JUDGED
from autarky.control.status.operator import _failures
from autarky.model.components import COMPONENTS, KUBE_PROXY
from autarky.phases.ownership import judge
from autarky.ports import Object
from autarky.render.values import MANAGED_BY, SYSTEM
from unit.control.world import World, revision_label, rounds

pytestmark = pytest.mark.looptime

DNS, NETWORK = "coredns", "kube-flannel"
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": DNS, "namespace": SYSTEM, "labels": dict(MANAGED_BY)},
    "data": {"Corefile": ".:53 {}"},
}
PULLING = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}


def template(component: str, version: str) -> Object:
    """Its version looks like none of a Kubernetes that could be beside the API servers."""
    return {
        "metadata": {"labels": {"k8s-app": COMPONENTS[component].label_value, "autarky.dev/slot": "hosted"}},
        "spec": {
            "containers": [{"name": component, "image": f"registry.example/{component}:{version}"}],
            "volumes": [{"name": "config", "configMap": {"name": DNS}}],
        },
    }


def labels_of(component: str, wanted: Object) -> dict[str, str]:
    kind = COMPONENTS[component].kind
    label = "controller-revision-hash" if kind == "DaemonSet" else "pod-template-hash"
    return {**wanted["metadata"]["labels"], label: revision_label(wanted)}


def applied(world: World, component: str, wanted: Object, *, replicas: int = 2, ours: bool = True) -> Object:
    """By `up`, or by somebody who brings an add-on of that name."""
    kind = COMPONENTS[component].kind
    live = world.kube._objects.get(("apps/v1", kind, SYSTEM, component))  # it is ours
    labels = {"labels": dict(MANAGED_BY) if ours else {}}
    meta = dict(live["metadata"]) if live is not None else {"name": component, "namespace": SYSTEM, **labels}
    world.kube.put({"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": {"template": wanted}})
    live = world.daemon_set(component, wanted) if kind == "DaemonSet" else world.deployment(component, wanted)
    if kind == "Deployment":
        live = world.kube.put({**live, "spec": {**live["spec"], "replicas": replicas}})
        world.controllers_look(live)
    return live


def runs(world: World, component: str, wanted: Object, node: str, **more: Any) -> Object:
    live = world.kube._objects["apps/v1", COMPONENTS[component].kind, SYSTEM, component]
    owner = live if live["kind"] == "DaemonSet" else None
    return world.pod(component, node, labels_of(component, wanted), owner=owner, **more)


async def rolls_out(
    world: World,
    component: str,
    version: str,
    *nodes: str,
    unready: tuple[str, ...] = (),
    wanted: Object | None = None,
) -> Object:
    """Returns the template."""
    world.kube.put(CONFIG)
    wanted = wanted or template(component, version)
    for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM):
        await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
    applied(world, component, wanted)
    waiting = {"containerStatuses": [{"name": component, "image": "i", **PULLING}]}
    for node in nodes:
        ill = node in unready
        runs(world, component, wanted, node, ready=not ill, status=waiting if ill else None)
    return wanted


async def with_good(world: World, component: str, *nodes: str) -> Object:
    """What was rolled out, and an operator found to be healthy."""
    wanted = await rolls_out(world, component, "v1.1.0", *nodes)
    async with world.operator() as duty:
        await rounds(duty, 14)
        assert duty.verdicts[component][0] is Verdict.HEALTHY
    return wanted


def test_all_that_the_api_has_of_every_level_is_judged():
    assert [one.name for one in JUDGED] == [
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", NETWORK, DNS),
        *("node-agent", "autarky-operator"),
    ]


@pytest.mark.parametrize(("component", "nodes"), [(DNS, ("n1", "n1")), (NETWORK, ("n1",))])
async def test_a_bad_image_goes_back_with_an_event_and_the_next_good_one_is_the_last_good(world, component, nodes):
    good = await with_good(world, component, *nodes)
    bad = await rolls_out(world, component, "v1.99.0", *nodes, unready=("n1",))
    async with world.operator() as duty:
        await rounds(duty, 88)
        assert await world.image(COMPONENTS[component].kind, component) == bad["spec"]["containers"][0]["image"]
        await rounds(duty, 7)
        [told] = _failures(duty)
        assert (told.component, told.rolled_back) == (component, True)
        assert await world.image(COMPONENTS[component].kind, component) == good["spec"]["containers"][0]["image"]
        [event] = await world.explanations()
        assert f"container {component} is waiting: ImagePullBackOff (not found)" in event
        assert world.counted == [component]
        better = await rolls_out(world, component, "v1.2.0", *nodes)
        await rounds(duty, 45)
        assert _failures(duty) == []
    assert template_in(await world.kube.get("v1", "Secret", secret_name(component), SYSTEM)) == better


@pytest.mark.parametrize("component", [DNS, NETWORK, KUBE_PROXY])
async def test_after_a_way_back_no_two_releases_are_mixed(world, component):
    """Of the failed release the next one shares all but the image. What went back with it is no edit of anybody's."""
    nodes = ("n1", "n1") if component == DNS else ("n1",)
    releases = {
        version: {"spec": {"template": _with_grace(template(component, version), seconds)}}
        for version, seconds in (("v1.1.0", 10), ("v1.99.0", 20), ("v1.2.0", 20))
    }
    async with world.operator() as duty:
        for version, ready in (("v1.1.0", True), ("v1.99.0", False)):
            wanted = releases[version]["spec"]["template"]
            await rolls_out(world, component, version, *nodes, unready=() if ready else nodes, wanted=wanted)
            live = await _live(world, component)
            world.kube.put(applied_last.with_record(live, {**live, **releases[version]}))
            await rounds(duty, 95)
    live = await _live(world, component)
    assert live["spec"]["template"] == releases["v1.1.0"]["spec"]["template"], "it went back"
    found = judge({**live, **releases["v1.2.0"]}, live, take_ownership=False)
    assert [edit.sentence for edit in found.kept] == []
    assert found.to_apply is not None
    assert found.to_apply["spec"]["template"] == releases["v1.2.0"]["spec"]["template"]


def _with_grace(wanted: Object, seconds: int) -> Object:
    return {**wanted, "spec": {**wanted["spec"], "terminationGracePeriodSeconds": seconds}}


async def _live(world: World, component: str) -> Object:
    live = await world.kube.get("apps/v1", COMPONENTS[component].kind, component, SYSTEM)
    assert live is not None
    return live


async def test_the_failed_pods_of_a_deployment_are_left_to_its_controller(world):
    await with_good(world, DNS, "n1", "n1")
    await rolls_out(world, DNS, "v1.99.0", "n1", unready=("n1",))
    pods = {pod["metadata"]["name"] for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM)}
    async with world.operator() as duty:
        await rounds(duty, 95)
    assert world.counted == [DNS]
    assert {pod["metadata"]["name"] for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM)} == pods


@pytest.mark.parametrize(("ill", "goes_back"), [(("w1",), False), (("n1",), True), (("w1", "w2"), True)])
async def test_one_worker_takes_no_flannel_back_and_blocks_none(world, ill, goes_back):
    for name in ("w1", "w2"):
        world.node(name, control=False)
    await with_good(world, NETWORK, "n1", "w1", "w2")
    await rolls_out(world, NETWORK, "v1.2.0", "n1", "w1", "w2", unready=ill)
    async with world.operator() as duty:
        await rounds(duty, 95)
    assert (await world.image("DaemonSet", NETWORK)).endswith("v1.1.0" if goes_back else "v1.2.0")
    assert duty.verdicts[NETWORK][0] is Verdict.HEALTHY


async def test_two_workers_that_end_each_pod_at_once_take_flannel_back_and_it_may_be_applied_again(world):
    for name in ("w1", "w2"):
        world.node(name, control=False)
    await with_good(world, NETWORK, "n1", "w1", "w2")
    await rolls_out(world, NETWORK, "v1.2.0", "n1")
    async with world.operator() as duty:
        await rounds(duty, 88)
        assert (await world.image("DaemonSet", NETWORK)).endswith("v1.2.0")
        await rounds(duty, 7)
        assert (await world.image("DaemonSet", NETWORK)).endswith("v1.1.0")
        [event] = await world.explanations()
        assert "it was not healthy on w1, w2 within 90 s: no pod of it is made, or stays, there" in event
        await rolls_out(world, NETWORK, "v1.2.0", "n1", "w1", "w2")
        await rounds(duty, 45)
    assert (await world.image("DaemonSet", NETWORK)).endswith("v1.2.0"), "it was not condemned"


@pytest.mark.parametrize(("wanted_on", "is_kept"), [(1, True), (3, False)])
async def test_workers_that_an_affinity_keeps_it_from_are_no_evidence_against_it(world, wanted_on, is_kept):
    """Its controller says on how many nodes it wants one, and an affinity of somebody's is nothing of ours."""
    for name in ("w1", "w2"):
        world.node(name, control=False)
    await with_good(world, NETWORK, "n1", "w1", "w2")
    wanted = await rolls_out(world, NETWORK, "v1.2.0", "n1")
    live = world.kube._objects["apps/v1", "DaemonSet", SYSTEM, NETWORK]
    world.kube.put({**live, "status": {**live["status"], "desiredNumberScheduled": wanted_on}})
    async with world.operator() as duty:
        await rounds(duty, 95)
    assert (duty.kept[NETWORK].template == wanted) is is_kept
    assert (await world.image("DaemonSet", NETWORK)).endswith("v1.2.0" if is_kept else "v1.1.0")


async def test_a_worker_that_ends_its_pod_at_once_blocks_no_flannel_and_one_with_a_former_pod_is_waited_for(world):
    world.node("w1", control=False)
    good = await with_good(world, NETWORK, "n1", "w1")
    wanted = await rolls_out(world, NETWORK, "v1.2.0", "n1")
    former = runs(world, NETWORK, good, "w1")
    async with world.operator() as duty:
        await rounds(duty, 120)
        assert duty.kept[NETWORK].template == good
        await world.kube.delete("v1", "Pod", former["metadata"]["name"], SYSTEM)
        await rounds(duty, 95)
        assert duty.kept[NETWORK].template == wanted


@pytest.mark.parametrize("component", [DNS, NETWORK])
async def test_an_add_on_of_somebody_else_by_that_name_is_not_judged(world, component):
    world.kube.put(CONFIG)
    wanted = template(component, "v1.1.0")
    applied(world, component, wanted, ours=False)
    runs(world, component, wanted, "n1")
    async with world.operator() as duty:
        await rounds(duty, 14)
        assert duty.verdicts == {}
    assert await world.kube.get("v1", "Secret", secret_name(component), SYSTEM) is None


async def test_an_add_on_that_is_gone_leaves_no_condition_behind(world):
    await with_good(world, NETWORK, "n1")
    await rolls_out(world, NETWORK, "v1.99.0", "n1", unready=("n1",))
    async with world.operator() as duty:
        await rounds(duty, 95)
        assert [told.component for told in _failures(duty)] == [NETWORK]
        await world.kube.delete("apps/v1", "DaemonSet", NETWORK, SYSTEM)
        await rounds(duty, 2)
        assert _failures(duty) == []
        assert duty.verdicts == {}


async def test_pods_that_no_node_takes_and_pods_that_have_ended_are_not_judged(world):
    """Those that have ended (evicted, or refused by a kubelet) stay, and their controller has made others."""
    world.kube.put(CONFIG)
    wanted = template(DNS, "v1.1.0")
    applied(world, DNS, wanted)
    runs(world, DNS, wanted, "n1", ready=False, status={"phase": "Failed"})
    waits = runs(world, DNS, wanted, "n1", ready=False)
    world.kube.put({**waits, "spec": {key: value for key, value in waits["spec"].items() if key != "nodeName"}})
    async with world.operator() as duty:
        await rounds(duty, 100)
        assert duty.verdicts[DNS][0] is Verdict.WAIT
        runs(world, DNS, wanted, "n1")
        await rounds(duty, 14)
        assert duty.verdicts[DNS][0] is Verdict.HEALTHY


async def test_scaled_to_nothing_it_keeps_nothing_from_being_settled(world):
    await with_good(world, DNS, "n1", "n1")
    applied(world, DNS, template(DNS, "v1.99.0"), replicas=0)
    async with world.operator() as duty:
        assert await duty.reconcile() is None, "nothing is looked at again"
        assert duty.verdicts[DNS][0] is Verdict.HEALTHY


async def test_an_edited_corefile_is_no_failure_of_what_went_back_and_a_lost_one_is_made_again(world):
    await with_good(world, DNS, "n1", "n1")
    await rolls_out(world, DNS, "v1.99.0", "n1", unready=("n1",))
    world.kube.put({**CONFIG, "data": {"Corefile": "edited"}})
    async with world.operator() as duty:
        await rounds(duty, 95)
        assert [told.rolled_back for told in _failures(duty)] == [True]
    await rolls_out(world, DNS, "v1.98.0", "n1", unready=("n1",))
    await world.kube.delete("v1", "ConfigMap", DNS, SYSTEM)
    async with world.operator() as duty:
        await rounds(duty, 95)
    assert world.counted == [DNS, DNS]
    restored = await world.kube.get("v1", "ConfigMap", DNS, SYSTEM)
    assert restored is not None
    assert restored["data"] == CONFIG["data"]


async def test_rule_4_is_not_about_the_versions_of_add_ons(world):
    api = {**template("kube-proxy", "v1"), "spec": {"containers": [{"name": "kube-apiserver", "image": "a:v1.36.4"}]}}
    await last_good.save(world.kube, "kube-apiserver", LastGood(Record(revision_of(api)), api))
    world.daemon_set("kube-apiserver", api)
    await rolls_out(world, DNS, "v1.14.0", "n1", "n1")
    world.pod("kube-apiserver", "n1", {"autarky.dev/slot": "standby"}, image="registry.example/kube-apiserver:v1.36.4")
    async with world.operator() as duty:
        await rounds(duty, 14)
        assert duty.verdicts[DNS][0] is Verdict.HEALTHY
    assert world.counted == []


async def test_a_revision_that_failed_with_an_edited_corefile_may_be_tried_again_and_the_edit_is_named(world):
    """CoreDNS that runs keeps the former one; a pod that starts, of whatever revision, cannot."""
    await with_good(world, DNS, "n1", "n1")
    crashed = {"waiting": {"reason": "CrashLoopBackOff"}}
    ran = {"containerStatuses": [{"name": DNS, "containerID": "c://1", "restartCount": 3, "state": crashed}]}

    async def fails(duty: Rollouts, seconds: int) -> None:
        applied(world, DNS, template(DNS, "v1.2.0"))
        for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM):
            await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
        runs(world, DNS, template(DNS, "v1.2.0"), "n1", ready=False, status=ran)
        runs(world, DNS, template(DNS, "v1.2.0"), "n1", ready=False, status=ran)
        await rounds(duty, seconds)

    world.kube.put({**CONFIG, "data": {"Corefile": "nonsense"}})
    async with world.operator() as duty:
        await fails(duty, 95)
        [told] = _failures(duty)
        assert "its configuration has been edited, which may be the cause: to try it again, apply it" in told.sentence
        [event] = await world.explanations()
        assert "ConfigMap coredns has been edited since that revision was found healthy" in event
        world.kube.put(CONFIG)
        await fails(duty, 60)
        assert duty.verdicts[DNS][0] is Verdict.WAIT, "it has its full time"
        await rounds(duty, 35)
        assert world.counted == [DNS, DNS]
        await fails(duty, 14)
        assert world.counted == [DNS, DNS, DNS], "with the Corefile of the good one it is its own fault"
