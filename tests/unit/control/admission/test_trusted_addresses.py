"""An address that a node says counts only if the join inventory has it for the node; and the guards come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from autarky.control.addons import add_ons_of
from autarky.control.addons.flannel import policies
from autarky.control.base.controller import ClusterController
from autarky.control.base.operator_view import View
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.operator.members import EtcdMembers
from autarky.control.guards.manifests import all as admission
from autarky.control.guards.manifests.nodes import ORDERS
from autarky.control.guards.manifests.policies import POLICY
from autarky.control.guards.operator import Guards
from autarky.control.load_balancer.manifests.endpoints import KIND, NAME, NAMESPACE, slice_endpoints
from autarky.control.load_balancer.operator import Endpoints, agreed_address
from autarky.model.cluster import Cni, Level
from autarky.model.components import FLANNEL
from autarky.ports import Object
from autarky.render import access, crds
from autarky.render.crds import API_VERSION
from autarky.render.values import CONTROL_PLANE_REQUESTED, SYSTEM
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from unit.control.world import World

pytestmark = pytest.mark.looptime

FOREIGN = "192.0.2.99"


@pytest.fixture
def world() -> World:
    """Three control nodes of the inventory."""
    found = World()
    found.kube.put(access.inventory(a_cluster(controls=3)))
    for name in ("n1", "n2", "n3"):
        found.node(name)
    return found


@asynccontextmanager
async def duty_of(world: World, make: Callable[[View], ClusterController]) -> AsyncIterator[ClusterController]:
    view = View(world.kube, LoopClock(), lambda: None, print)
    watching = asyncio.create_task(view.run())
    await asyncio.sleep(1)
    try:
        yield make(view)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def round_of(duty: ClusterController) -> None:
    await duty.reconcile()
    await asyncio.sleep(1)


def says(world: World, name: str, address: str) -> None:
    node = world.node(name)
    node["metadata"]["labels"] |= {CONTROL_PLANE_REQUESTED: ""}
    world.kube.put({**node, "status": {**node["status"], "addresses": [{"type": "InternalIP", "address": address}]}})


async def addresses(world: World) -> dict[str, str]:
    live: Object = await world.kube.get(*KIND, NAME, NAMESPACE) or {}
    return {endpoint.node: endpoint.address for endpoint in slice_endpoints(live)}


OWN = {"n1": "192.0.2.11", "n2": "192.0.2.12", "n3": "192.0.2.13"}


async def test_default_kubernetes_leads_to_what_the_inventory_has_whatever_a_node_says(world: World) -> None:
    says(world, "n2", FOREIGN)
    async with duty_of(world, lambda view: Endpoints(world.say, view, world.kube)) as duty:
        await round_of(duty)
        assert await addresses(world) == OWN
        says(world, "n3", OWN["n1"])
        await round_of(duty)
        assert await addresses(world) == OWN


@pytest.mark.parametrize("left", [{}, {"n1": '{"addresses": ["192.0.2.11"]}'}], ids=["empty", "without two of them"])
async def test_nodes_that_the_inventory_lacks_keep_the_address_that_they_had(
    world: World, left: dict[str, str]
) -> None:
    async with duty_of(world, lambda view: Endpoints(world.say, view, world.kube)) as duty:
        await round_of(duty)
        world.kube.put(access.inventory_with(left))
        says(world, "n2", FOREIGN)
        says(world, "n4", "192.0.2.14")
        await asyncio.sleep(1)
        await round_of(duty)
        assert await addresses(world) == OWN


async def test_no_member_of_etcd_is_made_at_an_address_that_the_inventory_does_not_have(world: World) -> None:
    world.kube.put(etcd_members.crd())
    world.kube.put(crds.control_plane(replace(a_cluster(controls=3), self_hosted=Level.ETCD)))
    world.kube.put(etcd.template_object(inputs_of(a_cluster())))
    for name, address in OWN.items():
        says(world, name, address if name != "n2" else FOREIGN)
    async with duty_of(world, lambda view: EtcdMembers(world.say, view, world.kube, dict)) as duty:
        await round_of(duty)
        found = {obj["metadata"]["name"] for obj in await world.kube.list(API_VERSION, "EtcdMember")}
        assert found == {"n1", "n3"}


def test_a_node_chooses_among_its_addresses_and_no_others() -> None:
    inventory = {"n1": frozenset({"10.0.0.1", "10.0.0.2"})}

    def node(address: str, name: str = "n1") -> Object:
        return {"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}}

    assert agreed_address(node("10.0.0.2"), inventory) == "10.0.0.2"
    assert agreed_address(node("10.0.0.3"), inventory) == "10.0.0.1"
    assert agreed_address({"metadata": {"name": "n1"}}, inventory) == "10.0.0.1"
    assert agreed_address(node("10.0.0.1", "n2"), inventory) is None


FLANNEL_RUNS = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": FLANNEL, "namespace": SYSTEM}}


async def test_with_a_pod_network_of_the_users_own_the_policies_for_ours_do_not_come(world: World) -> None:
    async with duty_of(world, lambda view: Guards(world.say, view, world.kube)) as duty:
        await round_of(duty)
        found = await world.kube.list("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
    names = {obj["metadata"]["name"] for obj in found}
    without = replace(a_cluster(), network=replace(a_cluster().network, cni=Cni.NONE))
    assert {policies.REPORT, policies.ADDRESSES, policies.TUNNELS}.isdisjoint(names)
    wanted = [obj for obj in admission.objects(add_ons_of(without)) if obj["kind"] == POLICY]
    assert names == {obj["metadata"]["name"] for obj in wanted}
    [orders] = [obj for obj in found if obj["metadata"]["name"] == ORDERS]
    assert policies.ORDERS not in orders["spec"]["matchConditions"][0]["expression"]


async def test_policies_that_were_deleted_come_back_and_edited_ones_stand(world: World) -> None:
    restored = admission.objects()
    policy, binding = restored[:2]
    world.kube.put(FLANNEL_RUNS)
    edited = {**binding, "spec": {**binding["spec"], "validationActions": ["Audit"]}}
    world.kube.put(edited)
    async with duty_of(world, lambda view: Guards(world.say, view, world.kube)) as duty:
        await round_of(duty)
        for obj in restored:
            assert await world.kube.get(obj["apiVersion"], obj["kind"], obj["metadata"]["name"]), obj["metadata"]
        live = await world.kube.get(binding["apiVersion"], binding["kind"], binding["metadata"]["name"])
        assert live is not None
        assert live["spec"]["validationActions"] == ["Audit"]
        await world.kube.delete(policy["apiVersion"], policy["kind"], policy["metadata"]["name"])
        await asyncio.sleep(1)
        await round_of(duty)
        assert await world.kube.get(policy["apiVersion"], policy["kind"], policy["metadata"]["name"])
