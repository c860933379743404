"""What a pass over all controllers takes grows with the number of nodes, not faster."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from autarky.agents.operator.wiring import Operator
from autarky.control.backup.manifests import definitions
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.model.cluster import Level
from autarky.model.components import KUBE_PROXY, NODE_AGENT
from autarky.render import access
from autarky.render.values import CONTROL_PLANE_REQUESTED
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from unit.control.growth import MOST, counting
from unit.control.world import World, revision_label, template

pytestmark = pytest.mark.looptime

CLUSTER = replace(a_cluster(controls=3), self_hosted=Level.ETCD)
FEW = 50


def a_world(workers: int) -> World:
    """Three control nodes, whose etcd is described by EtcdMembers, and as many workers; two DaemonSets on all."""
    world = World()
    for obj in (etcd_members.crd(), *definitions.objects(), access.inventory(CLUSTER)):
        world.kube.put(obj)
    world.kube.put(etcd.template_object(inputs_of(CLUSTER)))
    names = [f"n{number}" for number in range(1, workers + 4)]
    for name in names:
        node = world.node(name, control=name in ("n1", "n2", "n3"))
        if node["metadata"]["labels"]:
            node["metadata"]["labels"][CONTROL_PLANE_REQUESTED] = ""
            world.kube.put(node)
    for component in (KUBE_PROXY, NODE_AGENT):
        wanted = template(component, f"registry.example/{component}:v1.36.4")
        owner = world.daemon_set(component, {**wanted, "spec": {**wanted["spec"], "nodeSelector": {}}})
        labels = {"autarky.dev/slot": "hosted", "controller-revision-hash": revision_label(owner["spec"]["template"])}
        for name in names:
            world.pod(component, name, labels, owner=owner)
    return world


async def steps(workers: int) -> int:
    """Of a pass in which nothing has changed."""
    world = a_world(workers)
    operator = Operator(world.kube, LoopClock(), world.say, "me")  # type: ignore[arg-type]
    acting = asyncio.create_task(operator.run())
    await asyncio.sleep(10)
    with counting() as found:
        await operator.loop._pass()
    acting.cancel()
    await asyncio.gather(acting, return_exceptions=True)
    assert [sentence for sentence, _ in world.said if "failed, retrying in" in sentence] == []
    return found.steps


async def test_a_pass_takes_steps_that_grow_with_the_number_of_nodes() -> None:
    none, few, many = [await steps(workers) for workers in (0, FEW, 4 * FEW)]
    assert (many - none) / (few - none) < MOST
