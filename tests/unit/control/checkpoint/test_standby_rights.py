"""Which nodes may read what the standbys of level 3 are made of, and what their agents are sent."""

from __future__ import annotations

import asyncio
import json

import pytest

from autarky.control.checkpoint.operator import StandbyRights
from autarky.control.control_nodes.manifests import RECORD, STANDBYS
from autarky.control.rollout.decide.good_revision import content_of, revision_of
from autarky.control.status.operator import reported_of_level_3
from autarky.render.values import SYSTEM, metadata
from unit.control.world import GOOD, SCHEDULER, SECRET, World, becomes_good, revision_label, rounds

pytestmark = pytest.mark.looptime
RBAC = "rbac.authorization.k8s.io/v1"


def recorded(world: World, *names: str) -> None:
    nodes = {name: world.kube._objects["v1", "Node", None, name]["metadata"]["uid"] for name in names}
    data = {name: json.dumps({"uid": uid, "state": "made"}) for name, uid in nodes.items()}
    world.kube.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(RECORD, SYSTEM), "data": data})


async def given(world: World) -> tuple[list[str], list[dict]]:
    """The users of the binding, and the rules of the role, after a round of the operator."""
    async with world.operator() as rollouts:
        await rounds(rollouts, 1)
        await asyncio.sleep(1)
        await StandbyRights(world.say, rollouts.view, world.kube, rollouts).reconcile()
    binding = await world.kube.get(RBAC, "RoleBinding", STANDBYS, SYSTEM)
    role = await world.kube.get(RBAC, "Role", STANDBYS, SYSTEM)
    if binding is None or role is None:
        return [], []
    return [subject["name"] for subject in binding["subjects"]], role["rules"]


async def test_control_nodes_may_read_exactly_what_the_last_good_revision_names(world):
    await becomes_good(world)
    world.node("n2")
    world.node("w1", control=False)
    recorded(world, "n1", "n2", "w1")
    users, rules = await given(world)
    assert users == ["system:node:n1", "system:node:n2"]
    assert [rule["resourceNames"] for rule in rules if rule["resources"] == ["secrets"]] == [
        [SECRET["metadata"]["name"]]
    ]
    assert all(rule["verbs"] == ["get"] for rule in rules)


async def test_a_node_with_the_label_that_the_operator_has_not_recorded_may_read_nothing(world):
    await becomes_good(world)
    world.node("w1")
    recorded(world, "n1")
    assert (await given(world))[0] == ["system:node:n1"]


async def test_a_node_that_is_a_control_node_no_more_loses_it(world):
    await becomes_good(world)
    world.node("n2")
    recorded(world, "n1", "n2")
    assert len((await given(world))[0]) == 2
    live = await world.kube.get("v1", "Node", "n2")
    world.kube.put({**live, "metadata": {**live["metadata"], "labels": {}}})
    assert (await given(world))[0] == ["system:node:n1"]


async def test_agents_are_told_of_ready_pods_and_of_what_was_seen_to_lead(world):
    await becomes_good(world)
    world.node("n2")
    labels = {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(GOOD)}
    pod = world.pod(SCHEDULER, "n2", labels)
    world.pod(SCHEDULER, "w1", labels)
    world.node("w1", control=False)
    async with world.operator() as rollouts:
        await rounds(rollouts, 1)
        [reported] = reported_of_level_3(rollouts.view, rollouts).values()
    assert [one.uid for one in reported.candidates] == [pod["metadata"]["uid"]]
    live = await world.kube.get("apps/v1", "Deployment", SCHEDULER, SYSTEM)
    assert reported.last_good == revision_of(live["spec"]["template"])
    secret = await world.kube.get("v1", "Secret", SECRET["metadata"]["name"], SYSTEM)
    assert reported.content == content_of(GOOD, [secret])


async def test_a_pod_on_a_node_that_is_not_ready_is_not_told_of(world):
    await becomes_good(world)
    world.node("n2", ready="Unknown")
    world.pod(SCHEDULER, "n2", {"autarky.dev/slot": "hosted"})
    async with world.operator() as rollouts:
        [reported] = reported_of_level_3(rollouts.view, rollouts).values()
    assert reported.candidates == ()
