"""Who leads, and what is judged, as the operator reads it from the watched objects."""

from __future__ import annotations

import pytest

from autarky.control.rollout.decide.observed import Leader
from autarky.control.rollout.operator.workloads import JUDGED, TWO_SLOTS, observe, workload
from autarky.control.status.operator import _by_slot
from unit.control.world import GOOD, SCHEDULER, World, revision_label, template

pytestmark = pytest.mark.looptime


async def leader(world: World) -> Leader:
    component = next(one for one in TWO_SLOTS if one.name == SCHEDULER)
    async with world.operator() as duty:
        live = workload(duty.view, component)
        assert live is not None
        found = observe(duty.view, component, live, etcd_up=True).lease
    assert found is not None
    return found.leader


async def with_pods(world: World, *, new: str = "", old: str = "", standby: str = "", ends: bool = False) -> Leader:
    """Who leads on n1 by its lease, with pods on these nodes."""
    world.node("n2")
    world.deployment(SCHEDULER, GOOD)
    hosted = {"autarky.dev/slot": "hosted"}
    if new:
        world.pod(SCHEDULER, new, {**hosted, "pod-template-hash": revision_label(GOOD)})
    if old:
        world.pod(SCHEDULER, old, {**hosted, "pod-template-hash": "old"}, ends=ends)
    if standby:
        world.pod(SCHEDULER, standby, {"autarky.dev/slot": "standby"})
    world.lease(SCHEDULER, "n1_6f0c", 1)
    return await leader(world)


async def test_the_new_pod_leads_when_no_other_is_left_on_the_holders_node(world):
    assert await with_pods(world, new="n1", old="n2", standby="n2") is Leader.NEW


async def test_the_old_pod_may_lead_while_it_is_on_the_holders_node(world):
    assert await with_pods(world, new="n1", old="n1") is Leader.OLD


async def test_an_old_pod_that_ends_excuses_nobody_and_proves_nothing(world):
    assert await with_pods(world, new="n1", old="n1", ends=True) is Leader.OTHER


@pytest.mark.parametrize("new", ["n1", "n2"])
async def test_a_standby_on_the_holders_node_may_lead(world, new: str):
    assert await with_pods(world, new=new, standby="n1") is Leader.STANDBY


async def test_a_holder_whose_node_has_no_pod_of_the_component_is_nobody(world):
    assert await with_pods(world, new="n2") is Leader.OTHER


async def test_a_new_pod_that_is_on_no_node_or_not_looked_at_is_not_judged(world):
    live = world.deployment(SCHEDULER, GOOD)
    world.kube.put({**live, "status": {"observedGeneration": 0}})
    component = next(one for one in TWO_SLOTS if one.name == SCHEDULER)
    async with world.operator() as duty:
        seen = workload(duty.view, component)
        assert not observe(duty.view, component, seen, etcd_up=True).known


@pytest.mark.parametrize(
    ("pods", "spec", "due"),
    [
        ({"old": "n1"}, {}, True),
        ({"old": "n1", "new": "n1"}, {}, False),
        ({"old": "n1", "ends": True}, {}, False),
        ({"old": "n1"}, {"replicas": 0}, False),
        ({"old": "n1"}, {"updateStrategy": {"type": "OnDelete"}}, False),
    ],
)
async def test_a_pod_is_due_where_its_controller_makes_them_and_nothing_has_to_end_before(world, pods, spec, due):
    component = next(one for one in TWO_SLOTS if one.name == SCHEDULER)
    await with_pods(world, **pods)
    live = await world.kube.get("apps/v1", "Deployment", SCHEDULER, "kube-system")
    world.kube.put({**live, "spec": {**live["spec"], **spec}})
    async with world.operator() as duty:
        assert observe(duty.view, component, workload(duty.view, component), etcd_up=True).due is due


@pytest.mark.parametrize(("on_n1", "due"), [("nothing", True), ("an old one", False)])
async def test_a_pod_that_never_ends_on_a_worker_hides_no_control_node_without_any(world, on_n1: str, due: bool):
    """Else one worker would keep a revision from going back of which admission refuses the pods."""
    world.node("w1", control=False)
    wanted = template("kube-proxy", "registry.example/kube-proxy:v1.36.5")
    wanted["spec"]["nodeSelector"] = {}
    live = world.daemon_set("kube-proxy", wanted)
    former = {"autarky.dev/slot": "hosted", "controller-revision-hash": "old"}
    world.pod("kube-proxy", "w1", former, owner=live, ends=True)
    if on_n1 != "nothing":
        world.pod("kube-proxy", "n1", former, owner=live)
    component = next(one for one in JUDGED if one.name == "kube-proxy")
    async with world.operator() as duty:
        assert observe(duty.view, component, workload(duty.view, component), etcd_up=True).due is due


@pytest.mark.parametrize(
    ("hosted_is_ready", "breaks"),
    [(True, ""), (False, "is newer than the oldest API server that runs (v1.36.4) (rule 4)")],
)
async def test_a_standby_api_server_counts_where_no_hosted_one_serves(world, hosted_is_ready: bool, breaks: str):
    """Right after the API server's rollout its standby, still of the version before, is about to go."""
    world.deployment(SCHEDULER, template(SCHEDULER, "registry.example/kube-scheduler:v1.37.1"))
    new, old = "registry.example/kube-apiserver:v1.37.1", "registry.example/kube-apiserver:v1.36.4"
    world.pod("kube-apiserver", "n1", {"autarky.dev/slot": "hosted"}, image=new, ready=hosted_is_ready)
    world.pod("kube-apiserver", "n1", {"autarky.dev/slot": "standby"}, image=old)
    component = next(one for one in TWO_SLOTS if one.name == SCHEDULER)
    async with world.operator() as duty:
        live = workload(duty.view, component)
        assert live is not None
        skew = observe(duty.view, component, live, etcd_up=True).skew
    assert skew.endswith(breaks)
    assert bool(skew) == bool(breaks)


# --- what a worker's kubelet says ------------------------------------------------------------------------


@pytest.mark.parametrize("slot", ["hosted", "standby"])
async def test_a_workers_static_pod_that_passes_for_an_api_server_vetoes_no_version(world, slot):
    world.node("w1", control=False)
    world.pod("kube-apiserver", "n1", {"autarky.dev/slot": "hosted"}, image="registry.example/kube-apiserver:v1.36.4")
    forged = {"image": "registry.example/kube-apiserver:v1.30.0", "mirror": True}
    world.pod("kube-apiserver", "w1", {"autarky.dev/slot": slot}, **forged)
    world.deployment(SCHEDULER, GOOD)
    component = next(one for one in TWO_SLOTS if one.name == SCHEDULER)
    async with world.operator() as duty:
        live = workload(duty.view, component)
        assert live is not None
        assert observe(duty.view, component, live, etcd_up=True).skew == ""


@pytest.mark.parametrize("node", ["n1", "w1"])
async def test_a_static_pod_that_passes_for_one_of_the_new_revision_is_not_judged(world, node):
    world.node("w1", control=False)
    world.deployment(SCHEDULER, GOOD)
    labels = {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(GOOD)}
    world.pod(SCHEDULER, node, labels, ready=False, mirror=True)
    world.pod(SCHEDULER, node, labels, ready=False, mirror=True, ends=True)
    own = world.pod(SCHEDULER, "n1", labels)
    component = next(one for one in TWO_SLOTS if one.name == SCHEDULER)
    async with world.operator() as duty:
        live = workload(duty.view, component)
        assert live is not None
        seen = observe(duty.view, component, live, etcd_up=True)
    assert [pod.name for pod in seen.pods] == [own["metadata"]["name"]]


async def test_only_control_nodes_say_how_long_a_start_takes(world):
    """A worker's kubelet may be somebody's who wants no rollout to end."""
    world.node("w1", control=False)
    everywhere = template("kube-proxy", "registry.example/kube-proxy:v1.36.4")
    everywhere["spec"]["nodeSelector"] = {}
    live = world.daemon_set("kube-proxy", everywhere)
    labels = {"autarky.dev/slot": "hosted", "controller-revision-hash": revision_label(everywhere)}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:02:00Z"}
    runs = {"name": "kube-proxy", "state": {"running": {"startedAt": "2026-11-21T10:00:00Z"}}}
    for node in ("n1", "w1"):
        world.pod("kube-proxy", node, labels, owner=live, status={"conditions": [ready], "containerStatuses": [runs]})
    component = next(one for one in JUDGED if one.name == "kube-proxy")
    async with world.operator() as duty:
        live = workload(duty.view, component)
        assert live is not None
        seen = observe(duty.view, component, live, etcd_up=True)
    assert {pod.node: pod.start for pod in seen.pods} == {"n1": 120.0, "w1": None}


async def test_a_pod_with_the_hash_of_a_revision_and_another_owner_is_not_judged(world):
    world.deployment(SCHEDULER, GOOD)
    labels = {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(GOOD)}
    somebody = {"kind": "ReplicaSet", "metadata": {"uid": "another"}}
    world.pod(SCHEDULER, "n1", labels, owner=somebody, ready=False)
    component = next(one for one in TWO_SLOTS if one.name == SCHEDULER)
    async with world.operator() as duty:
        live = workload(duty.view, component)
        assert live is not None
        assert observe(duty.view, component, live, etcd_up=True).pods == ()


async def test_a_workers_static_pod_is_no_layer_of_the_control_plane(world):
    world.node("w1", control=False)
    world.pod("kube-apiserver", "n1", {"autarky.dev/slot": "hosted"})
    world.pod("kube-scheduler", "n1", {"autarky.dev/slot": "standby"})
    world.pod("etcd", "n1", {}, mirror=True)
    for component, slot in (("kube-apiserver", "hosted"), ("kube-scheduler", "standby"), ("kube-proxy", "hosted")):
        world.pod(component, "w1", {"autarky.dev/slot": slot}, ready=False, mirror=True)
    world.pod("etcd", "w1", {}, ready=False, mirror=True)
    world.pod("node-load-balancer", "w1", {}, mirror=True)
    async with world.operator() as duty:
        found = {key: len(pods) for key, pods in _by_slot(duty.view).items()}
    assert found == {
        ("kube-apiserver", "hosted"): 1,
        ("kube-scheduler", "standby"): 1,
        ("etcd", "static"): 1,
        ("node-load-balancer", "static"): 1,
    }
