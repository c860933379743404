"""Who leads, and what is judged, as the operator reads it from the live copies."""

from __future__ import annotations

import pytest

from autarky.agents.operator.workloads import COMPONENTS, observe, workload
from autarky.decide.rollback import Leader
from unit.agents.operator.world import GOOD, SCHEDULER, World, revision_label, template

pytestmark = pytest.mark.looptime


async def leader(world: World) -> Leader:
    component = next(one for one in COMPONENTS if one.name == SCHEDULER)
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


async def test_a_standby_on_the_holders_node_proves_nothing(world):
    assert await with_pods(world, new="n1", standby="n1") is Leader.OTHER


async def test_a_holder_whose_node_has_no_pod_of_the_component_is_nobody(world):
    assert await with_pods(world, new="n2") is Leader.OTHER


async def test_a_new_pod_that_is_on_no_node_or_not_looked_at_is_not_judged(world):
    live = world.deployment(SCHEDULER, GOOD)
    world.kube.put({**live, "status": {"observedGeneration": 0}})
    component = next(one for one in COMPONENTS if one.name == SCHEDULER)
    async with world.operator() as duty:
        seen = workload(duty.view, component)
        assert not observe(duty.view, component, seen, etcd_up=True).known


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
    component = next(one for one in COMPONENTS if one.name == SCHEDULER)
    async with world.operator() as duty:
        live = workload(duty.view, component)
        assert live is not None
        skew = observe(duty.view, component, live, etcd_up=True).skew
    assert skew.endswith(breaks)
    assert bool(skew) == bool(breaks)
