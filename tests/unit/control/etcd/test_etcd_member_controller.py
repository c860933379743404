"""The operator says which nodes have an etcd member, and guards the quorum."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.base.operator_view import View
from autarky.control.control_nodes.decide.procedure import Step
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import GUARD, IDEA, KIND
from autarky.control.etcd.operator.members import GUARDED, EtcdMembers
from autarky.control.status import decide as plane_status
from autarky.model.cluster import Level
from autarky.ports import Object
from autarky.render import access, crds
from autarky.render.crds import API_VERSION
from autarky.render.values import CONTROL_PLANE_REQUESTED, SYSTEM, content_hash
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from unit.control.world import World

pytestmark = pytest.mark.looptime


@pytest.fixture
def world() -> World:
    found = World()
    found.kube.put(etcd_members.crd())
    found.kube.put(access.inventory(a_cluster(controls=9)))
    found.kube.put(crds.control_plane(replace(a_cluster(), self_hosted=Level.ETCD)))
    found.kube.put(etcd.template_object(inputs_of(a_cluster())))
    return found


@asynccontextmanager
async def duty_of(world: World, steps: dict[str, Step] | None = None) -> AsyncIterator[EtcdMembers]:
    """steps: what is decided for the nodes meanwhile, as the controller of control nodes decides it."""
    view = View(world.kube, LoopClock(), lambda: None, print)
    watching = asyncio.create_task(view.run())
    await asyncio.sleep(1)
    try:
        yield EtcdMembers(world.say, view, world.kube, lambda: steps or {})
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def rounds(duty: EtcdMembers, count: int = 3) -> None:
    for _ in range(count):
        await duty.reconcile()
        await asyncio.sleep(1)


def control(world: World, name: str, *, requested: bool = True, taints: list[Object] | None = None) -> None:
    node = world.node(name)
    node["metadata"]["labels"] |= {CONTROL_PLANE_REQUESTED: ""} if requested else {}
    node["metadata"]["labels"] = {
        k: v for k, v in node["metadata"]["labels"].items() if requested or k != CONTROL_PLANE_REQUESTED
    }
    world.kube.put({**node, "spec": {"taints": taints or []}})


async def member(world: World, name: str) -> Object:
    found = await world.kube.get(API_VERSION, KIND, name)
    assert found is not None
    return found


async def says(world: World, name: str, phase: str) -> None:
    world.kube.put({**await member(world, name), "status": {"phase": phase}})


async def all_vote(world: World, duty: EtcdMembers, names: Iterable[str]) -> None:
    """Their members have joined, and the controller has seen it."""
    await rounds(duty)
    for name in names:
        await says(world, name, "Member")
    await rounds(duty)


async def guard(world: World) -> tuple[Any, Any]:
    """(the nodes that it is for, how many may be unavailable), or (None, None)."""
    live = await world.kube.get("apps/v1", "Deployment", GUARD, SYSTEM)
    budget = await world.kube.get("policy/v1", "PodDisruptionBudget", GUARD, SYSTEM)
    if live is None or budget is None:
        return None, None
    terms = live["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    required = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    names = [name for term in required for field in term["matchFields"] for name in field["values"]]
    by_name = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names]
    assert required == by_name, "a node says its labels itself"
    return names, budget["spec"]["maxUnavailable"]


async def test_each_control_node_gets_an_etcdmember_and_its_agent_what_it_needs(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        control(world, name)
    async with duty_of(world) as duty:
        await rounds(duty)
    found = {obj["metadata"]["name"]: obj["spec"] for obj in await world.kube.list(API_VERSION, KIND)}
    assert found["n2"] == {"nodeName": "n2", "address": "192.0.2.12", "state": "Member"}
    assert sorted(found) == ["n1", "n2", "n3"]
    binding = await world.kube.get("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", etcd_members.AGENTS_ROLE)
    assert binding is not None
    assert [subject["name"] for subject in binding["subjects"]] == [f"system:node:n{n}" for n in (1, 2, 3)]


async def test_what_a_user_sets_stands_and_the_decision_that_its_node_leaves_removes(world: World) -> None:
    control(world, "n1")
    control(world, "n2")
    steps: dict[str, Step] = {"n1": Step.NOTHING}
    async with duty_of(world, steps) as duty:
        await rounds(duty)
        await world.kube.patch(API_VERSION, KIND, "n2", {"spec": {"state": "Removed"}})
        await rounds(duty)
        assert (await member(world, "n2"))["spec"]["state"] == "Removed"
        await world.kube.patch(API_VERSION, KIND, "n2", {"spec": {"state": "Member"}})
        control(world, "n2", requested=False)
        await rounds(duty)
        assert (await member(world, "n2"))["spec"]["state"] == "Member"
        await says(world, "n1", "Member")
        steps["n2"] = Step.REMOVE_MEMBER
        await rounds(duty)
        live = await member(world, "n2")
        assert (live["spec"]["state"], live["metadata"]["annotations"][IDEA]) == ("Removed", "Removed")


async def test_a_nodes_etcdmember_and_the_right_to_read_it_stay_until_the_node_is_a_worker_again(world: World) -> None:
    """Its agent needs both to stop a process that etcd no longer lists, however slow its machine is."""
    for name in ("n1", "n2"):
        control(world, name)
    steps: dict[str, Step] = {}
    async with duty_of(world, steps) as duty:
        await all_vote(world, duty, ("n1", "n2"))
        control(world, "n2", requested=False)
        steps["n2"] = Step.REMOVE_MEMBER
        await rounds(duty)
        await says(world, "n2", "Removed")
        node = world.node("n2")
        world.kube.put({**node, "metadata": {**node["metadata"], "labels": {}}})
        for step in (Step.DISMISS, Step.WAIT, Step.FORGET):
            steps["n2"] = step
            await rounds(duty)
            assert await agents_that_may_read(world) == {"system:node:n1", "system:node:n2"}, step
        steps.clear()  # nothing was decided
        await rounds(duty)
        assert await states(world) == {"n1": "Member", "n2": "Removed"}
        steps["n2"] = Step.NOTHING
        await rounds(duty)
        assert await states(world) == {"n1": "Member"}
        assert await agents_that_may_read(world) == {"system:node:n1"}


async def agents_that_may_read(world: World) -> set[str]:
    binding = await world.kube.get("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", etcd_members.AGENTS_ROLE)
    assert binding is not None
    return {subject["name"] for subject in binding["subjects"]}


async def states(world: World) -> dict[str, str]:
    return {obj["metadata"]["name"]: obj["spec"]["state"] for obj in await world.kube.list(API_VERSION, KIND)}


@pytest.mark.parametrize("step", [None, Step.REFUSE, Step.WAIT, Step.NOTHING])
async def test_labels_that_go_from_all_nodes_at_once_remove_no_member(world: World, step: Step | None) -> None:
    names = ("n1", "n2", "n3")
    for name in names:
        control(world, name)
    steps: dict[str, Step] = {}
    async with duty_of(world, steps) as duty:
        await rounds(duty)
        for name in names:
            control(world, name, requested=False)
            if step is not None:
                steps[name] = step
        await rounds(duty)
    assert await states(world) == dict.fromkeys(names, "Member")


async def test_a_typo_in_the_list_is_told_with_the_near_name_and_removes_no_member(world: World) -> None:
    names = ("n1", "n2", "n3")
    for name in names:
        control(world, name)
    async with duty_of(world) as duty:
        await rounds(duty)
        plane = await world.kube.get(API_VERSION, "ControlPlane", "cluster")
        assert plane is not None
        world.kube.put({**plane, "spec": {**plane["spec"], "etcd": {"members": ["n1", "n9"]}}})
        await rounds(duty)
        assert isinstance(duty.seen, plane_status.EtcdMembers)
        assert "n9 is no control node (did you mean" in duty.seen.refused
    assert await states(world) == dict.fromkeys(names, "Member")
    status = plane_status.status([], [], [], [], [], [], duty.seen, generation=1, before={}, now="now")
    [applied] = [one for one in status["conditions"] if one["type"] == "SpecApplied"]
    assert (applied["status"], applied["reason"]) == ("False", "EtcdMembersRefused")


async def test_the_list_that_is_followed_is_kept_in_the_status_and_goes_on_while_another_is_refused(
    world: World,
) -> None:
    for name in ("n1", "n2", "n3"):
        control(world, name)
    plane = await world.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    spec = {**plane["spec"], "etcd": {"members": ["n2", "n1"]}}
    world.kube.put({**plane, "spec": spec})
    async with duty_of(world) as duty:
        await rounds(duty)
    status = plane_status.status([], [], [], [], [], [], duty.seen, generation=1, before={}, now="now")
    assert status["etcd"] == {"members": ["n1", "n2"]}
    world.kube.put({**plane, "spec": {**spec, "etcd": {"members": ["n1", "n9"]}}, "status": status})
    await world.kube.delete(API_VERSION, KIND, "n2")
    async with duty_of(world) as another_operator:
        await rounds(another_operator)
    assert await states(world) == {"n1": "Member", "n2": "Member"}


async def test_of_two_that_a_list_does_not_name_the_second_is_asked_when_the_first_is_confirmed(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        control(world, name)
    async with duty_of(world) as duty:
        await rounds(duty)
        plane = await world.kube.get(API_VERSION, "ControlPlane", "cluster")
        assert plane is not None
        world.kube.put({**plane, "spec": {**plane["spec"], "etcd": {"members": ["n3"]}}})
        await says(world, "n3", "Learner")
        await rounds(duty)
        assert await states(world) == dict.fromkeys(("n1", "n2", "n3"), "Member"), "n3 does not vote yet"
        await says(world, "n3", "Member")
        await rounds(duty)
        assert await states(world) == {"n1": "Removed", "n2": "Member", "n3": "Member"}
        await says(world, "n1", "Removed")
        await rounds(duty)
    assert await states(world) == {"n1": "Removed", "n2": "Removed", "n3": "Member"}


async def test_rule_10_all_etcdmembers_that_are_deleted_are_created_again_though_the_labels_are_gone_too(
    world: World,
) -> None:
    names = ("n1", "n2", "n3")
    for name in names:
        control(world, name)
    steps: dict[str, Step] = {}
    async with duty_of(world, steps) as duty:
        await rounds(duty)
        for name in names:
            await world.kube.delete(API_VERSION, KIND, name)
            control(world, name, requested=False)
            steps[name] = Step.REFUSE
        await rounds(duty)
    assert await states(world) == dict.fromkeys(names, "Member")


async def test_rule_10_a_deleted_etcdmember_is_created_again(world: World) -> None:
    control(world, "n1")
    async with duty_of(world) as duty:
        await rounds(duty)
        await world.kube.delete(API_VERSION, KIND, "n1")
        await rounds(duty)
        assert (await member(world, "n1"))["spec"]["state"] == "Member"


async def test_rule_10_a_node_that_is_gone_keeps_its_etcdmember(world: World) -> None:
    control(world, "n1")
    control(world, "n2")
    async with duty_of(world) as duty:
        await rounds(duty)
        await world.kube.delete("v1", "Node", "n2")
        await rounds(duty)
        assert (await member(world, "n2"))["spec"]["state"] == "Member"


async def test_members_that_vote_are_guarded_with_the_taints_of_their_nodes(world: World) -> None:
    names = ("n1", "n2", "n3")
    for name in names:
        control(world, name, taints=[{"key": "mine", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready"}])
    async with duty_of(world) as duty:
        await rounds(duty)
        assert await guard(world) == (None, None)
        await all_vote(world, duty, names)
        assert await guard(world) == (["n1", "n2", "n3"], 1)
        live = await world.kube.get("apps/v1", "Deployment", GUARD, SYSTEM)
        assert live is not None
        tolerated = [one["key"] for one in live["spec"]["template"]["spec"]["tolerations"]]
        assert "mine" in tolerated
        assert "node.kubernetes.io/unschedulable" not in tolerated
        await says(world, "n3", "Removed")
        await says(world, "n2", "Removed")
        await rounds(duty)
        assert await guard(world) == (None, None)


async def test_a_guard_whose_budget_was_deleted_is_complete_again(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        control(world, name)
    async with duty_of(world) as duty:
        await all_vote(world, duty, ("n1", "n2", "n3"))
        await world.kube.delete("policy/v1", "PodDisruptionBudget", GUARD, SYSTEM)
        await rounds(duty)
        assert await guard(world) == (["n1", "n2", "n3"], 1)


async def budget(world: World) -> Object | None:
    found = await world.kube.get("policy/v1", "PodDisruptionBudget", GUARD, SYSTEM)
    return (
        None
        if found is None
        else {key: deepcopy(found[key]) for key in ("apiVersion", "kind", "spec")}
        | {"metadata": {"name": GUARD, "namespace": SYSTEM}}
    )


@pytest.mark.parametrize("gone", [("n1", "n2", "n3"), ("n2", "n3")])
async def test_rule_10_etcdmembers_that_are_deleted_take_no_guard_away_before_their_agents_have_said_anything(
    world: World, gone: tuple[str, ...]
) -> None:
    names = ("n1", "n2", "n3")
    for name in names:
        control(world, name)
    async with duty_of(world) as duty:
        await all_vote(world, duty, names)
        for name in gone:
            await world.kube.delete(API_VERSION, KIND, name)
        for _ in range(4):
            await rounds(duty, 1)
            assert await guard(world) == (["n1", "n2", "n3"], 1)
        for name in gone:
            await says(world, name, "Removed" if name == "n3" else "Member")
        await rounds(duty)
        assert await guard(world) == (["n1", "n2"], 0), "what is said counts"


async def test_rule_10_a_guard_stays_where_nobody_is_seen_to_have_a_member(world: World) -> None:
    names = ("n1", "n2", "n3")
    for name in names:
        control(world, name)
    async with duty_of(world) as duty:
        await all_vote(world, duty, names)
        for name in names:
            await world.kube.delete("v1", "Node", name)
            await world.kube.delete(API_VERSION, KIND, name)
        await asyncio.sleep(1)
        await rounds(duty)
        assert await world.kube.list(API_VERSION, KIND) == []
        assert await guard(world) == (["n1", "n2", "n3"], 1)


async def test_a_guard_of_an_earlier_release_is_rendered_again(world: World) -> None:
    """Whatever it was rendered from: the marks of earlier releases were of that only."""
    for name in ("n1", "n2", "n3"):
        control(world, name)
    async with duty_of(world) as duty:
        await all_vote(world, duty, ("n1", "n2", "n3"))
        live = await world.kube.get("apps/v1", "Deployment", GUARD, SYSTEM)
        assert live is not None
        before, complete = deepcopy(live), await budget(world)
        assert complete is not None
        world.kube.put({**complete, "spec": {"maxUnavailable": 1}})
        live["metadata"]["annotations"] = {GUARDED: content_hash([["n1", "n2", "n3"], [], 1])}
        del live["spec"]["template"]["spec"]["affinity"]
        world.kube.put(live)
        await rounds(duty)
        assert await budget(world) == complete
        after = await world.kube.get("apps/v1", "Deployment", GUARD, SYSTEM)
        assert after is not None
        assert (after["spec"], after["metadata"]["annotations"]) == (before["spec"], before["metadata"]["annotations"])


async def test_a_budget_that_another_release_renders_in_another_way_is_rendered_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same number in it, and beside a Deployment that is the same."""
    for name in ("n1", "n2", "n3"):
        control(world, name)
    render = etcd_members.guard_budget

    def otherwise(unavailable: int) -> Object:
        found = render(unavailable)
        return {**found, "spec": {**found["spec"], "unhealthyPodEvictionPolicy": "IfHealthyBudget"}}

    async with duty_of(world) as duty:
        with monkeypatch.context() as other_release:
            other_release.setattr(etcd_members, "guard_budget", otherwise)
            await all_vote(world, duty, ("n1", "n2", "n3"))
        await rounds(duty)
        found = await budget(world)
        assert found is not None
        assert found["spec"] == render(1)["spec"]


async def test_what_moves_and_an_even_count_are_seen(world: World) -> None:
    control(world, "n1")
    control(world, "n2")
    async with duty_of(world) as duty:
        await rounds(duty)
        assert isinstance(duty.seen, plane_status.EtcdMembers)
        assert duty.seen.moving == ("n1 is Pending", "n2 is Pending")
        assert duty.seen.even is not None
        for name in ("n1", "n2"):
            await says(world, name, "Member")
        await rounds(duty)
        assert isinstance(duty.seen, plane_status.EtcdMembers)
        assert not duty.seen.moving


@pytest.mark.parametrize(("message", "changes"), [("it does not answer", False), ("is replaced by n4", True)])
async def test_a_member_that_only_does_not_answer_is_not_changing(world: World, message: str, changes: bool) -> None:
    control(world, "n1")
    async with duty_of(world) as duty:
        await rounds(duty)
        world.kube.put({**await member(world, "n1"), "status": {"phase": "Member", "message": message}})
        await rounds(duty)
        assert isinstance(duty.seen, plane_status.EtcdMembers)
        assert duty.seen.moving == (f"n1 is Member: {message}",)
        assert bool(duty.seen.changing) is changes


async def test_where_etcd_is_not_hosted_nothing_is_written(world: World) -> None:
    control(world, "n1")
    plane = await world.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    world.kube.put({**plane, "spec": {**plane["spec"], "selfHosted": "2-4"}})
    async with duty_of(world) as duty:
        await rounds(duty)
        assert duty.seen is None
    assert await world.kube.list(API_VERSION, KIND) == []


@pytest.mark.parametrize(("levels", "members"), [("0-4", 2), ("02-4", 0)])
async def test_with_the_kubelet_hosted_there_are_members_only_where_etcd_is_as_well(
    world: World, levels: str, members: int
) -> None:
    control(world, "n1")
    plane = await world.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    world.kube.put({**plane, "spec": {**plane["spec"], "selfHosted": levels}})
    async with duty_of(world) as duty:
        await rounds(duty)
        control(world, "n2")
        await asyncio.sleep(1)
        await rounds(duty)
        assert (duty.seen is not None) == bool(members)
    assert len(await world.kube.list(API_VERSION, KIND)) == members
