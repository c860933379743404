"""An object of ours with an invalid value: every controller continues, and the ControlPlane reports what is invalid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from autarky.agents.operator.wiring import WRITE_IS_FRESH, Operator
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import KIND
from autarky.kube.elector import Elector
from autarky.model.cluster import Level
from autarky.ports import Object
from autarky.render import access, crds
from autarky.render.crds import API_VERSION
from autarky.render.values import CONTROL_PLANE_REQUESTED
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from unit.control.world import World

pytestmark = pytest.mark.looptime

CLUSTER = replace(a_cluster(controls=3), self_hosted=Level.ETCD)
PLANE = crds.control_plane(CLUSTER)


@pytest.fixture
def world() -> World:
    """Three control nodes, whose etcd is described by EtcdMembers."""
    world = World()
    for obj in (etcd_members.crd(), access.inventory(CLUSTER), PLANE, etcd.template_object(inputs_of(CLUSTER))):
        world.kube.put(obj)
    for name in ("n1", "n2", "n3"):
        node = world.node(name)
        node["metadata"]["labels"][CONTROL_PLANE_REQUESTED] = ""
        world.kube.put(node)
    return world


@asynccontextmanager
async def the_operator(world: World) -> AsyncIterator[None]:
    """All of it; no controller may fail."""
    acting = asyncio.create_task(Operator(world.kube, LoopClock(), world.say, "me").run())  # type: ignore[arg-type]
    await asyncio.sleep(5)
    try:
        yield
    finally:
        assert not acting.done()
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)
    assert [sentence for sentence, _ in world.said if "failed, retrying in" in sentence] == []


async def condition(world: World, kind: str) -> Object:
    await asyncio.sleep(5)
    plane = await world.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    return next((one for one in plane["status"]["conditions"] if one["type"] == kind), {})


def lies(world: World, plane: Object) -> None:
    """As somebody has written it while the definition took anything; its status stays."""
    live = world.kube._objects[API_VERSION, "ControlPlane", None, "cluster"]  # it is ours
    world.kube.put({**live, **plane})


@pytest.mark.parametrize(
    ("field", "odd"),
    [
        ("version", "banana"),
        ("selfHosted", "banana"),
        ("componentArguments", {"kube-scheduler": "banana"}),
        ("rollback", {"limitSeconds": "banana"}),
        ("etcd", {"members": "banana"}),
        ("defaults", "banana"),
    ],
)
async def test_an_odd_control_plane_ends_no_round_and_its_condition_names_the_field(
    world: World, field: str, odd: Any
) -> None:
    async with the_operator(world):
        assert (await condition(world, "SpecApplied"))["reason"] != "NotUnderstood"
        before = await condition(world, "EtcdMembersSettled")
        lies(world, {"spec": {**PLANE["spec"], field: odd}})
        found = await condition(world, "SpecApplied")
        assert (found["status"], found["reason"]) == ("False", "NotUnderstood")
        assert f"spec.{field} is " in found["message"]
        assert "banana" in found["message"]
        assert await condition(world, "EtcdMembersSettled") == before, "what else was said stands"
        lies(world, {"spec": PLANE["spec"]})
        assert (await condition(world, "SpecApplied"))["reason"] != "NotUnderstood"


async def test_an_operator_that_begins_beside_an_odd_control_plane_keeps_what_its_status_says(world: World) -> None:
    """The list of members that was followed last is kept there, and nowhere else."""
    followed = {"members": ["n1", "n2", "n3"]}
    lies(world, {"spec": {**PLANE["spec"], "rollback": "banana"}, "status": {"etcd": followed}})
    async with the_operator(world):
        assert (await condition(world, "SpecApplied"))["reason"] == "NotUnderstood"
    plane = await world.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    assert plane["status"]["etcd"] == followed


async def test_a_status_that_means_nothing_is_written_again(world: World) -> None:
    lies(world, {"status": {"conditions": ["banana"]}})
    async with the_operator(world):
        assert (await condition(world, "SpecApplied"))["reason"] != "NotUnderstood"


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        ({"spec": {"nodeName": "n2", "address": "banana"}}, "spec.address is not an IPv4 address"),
        ({"spec": {"nodeName": "n2", "address": "192.0.2.12", "state": "banana"}}, "spec.state is 'banana'"),
        ({"status": {"memberID": "banana"}}, "status.memberID is 'banana'"),
        ({"spec": None}, "spec.address is not an IPv4 address"),
    ],
)
async def test_an_odd_member_of_etcd_ends_no_round_and_the_condition_names_it_and_the_field(
    world: World, odd: Object, named: str
) -> None:
    member = etcd_members.member("n2", "192.0.2.12", present=True)
    world.kube.put({**member, **odd})
    async with the_operator(world):
        found = await condition(world, "EtcdMembersSettled")
        assert found["status"] == "False"
        assert f"n2 is ignored: {named}; correct it with `kubectl edit etcdmember n2`" in found["message"]
        there = {obj["metadata"]["name"] for obj in await world.kube.list(API_VERSION, KIND)}
        assert there == {"n1", "n2", "n3"}, "the others are seen to"
        world.kube.put(member)
        assert "n2 is ignored" not in (await condition(world, "EtcdMembersSettled"))["message"]


@pytest.mark.parametrize(("age", "up"), [(WRITE_IS_FRESH - 1, True), (WRITE_IS_FRESH + 1, False)])
async def test_etcd_is_up_while_it_takes_the_operators_own_writes(
    world: World, monkeypatch: pytest.MonkeyPatch, age: float, up: bool
) -> None:
    """Rule 9 rests on it: the clocks of rollouts stand still where it is not."""
    monkeypatch.setattr(Elector, "renewal_age", property(lambda _: age))
    operator = Operator(world.kube, LoopClock(), world.say, "me")  # type: ignore[arg-type]
    assert operator._rollouts.etcd_up() is up


async def test_each_controller_is_told_that_its_operator_leads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it has seen in an earlier term would count, as the seconds of a soak that another one has counted."""
    told: list[str] = []
    operator = Operator(world.kube, LoopClock(), world.say, "me")  # type: ignore[arg-type]
    for controller in operator.controllers:
        monkeypatch.setattr(type(controller), "begin_term", lambda self: told.append(self.name))
    acting = asyncio.create_task(operator.run())
    await asyncio.sleep(5)
    acting.cancel()
    await asyncio.gather(acting, return_exceptions=True)
    assert told == [controller.name for controller in operator.controllers]
    assert "upgrade" in told
