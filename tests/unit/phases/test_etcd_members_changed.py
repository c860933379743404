"""`up` waits until etcd's members are made from the template that is asked for, and changes none itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.etcd.decide.template import Request, effective, revision
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.phase import Warn
from autarky.errors import UserError
from autarky.model.cluster import Level
from autarky.phases.context import Context
from autarky.phases.etcd_template import AwaitEtcd, is_changed_by_agents
from autarky.ports import Object
from autarky.render import crds
from fakes.clusters import a_cluster, inputs_of
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime
CLUSTER = replace(a_cluster(controls=3), self_hosted=Level.ETCD, extra_args={"etcd": {"v": "1"}})
BASE = etcd.template(inputs_of(CLUSTER), requested=False)
OLD, NEW = effective(BASE, Request({})), effective(BASE, Request({"v": "1"}))


class World:
    """The API, with what the operator and the agents have done so far."""

    def __init__(self, context: Context, kube: FakeKube) -> None:
        self.context, self.kube = context, kube
        for definition in (crds.control_plane_crd(), etcd_members.crd()):
            kube.put(definition)
        kube.put({**crds.control_plane(CLUSTER), "status": {}})
        for number in (1, 2, 3):
            member = etcd_members.member(f"n{number}", f"192.0.2.1{number}", present=True)
            kube.put({**member, "status": {"revision": revision(OLD)}})
        self.has(OLD)

    def has(self, in_force: Object, **more: str) -> None:
        """In the ConfigMap."""
        found = etcd.template_object(inputs_of(CLUSTER))
        data = {**found["data"], etcd.IN_FORCE_KEY: json.dumps(in_force), **more}
        self.kube.put({**found, "data": data})

    async def says(self, name: str, **status: str) -> None:
        live = await self.kube.get(crds.API_VERSION, etcd_members.KIND, name)
        assert live is not None
        self.kube.put({**live, "status": {**(live.get("status") or {}), **status}})

    async def planned(self) -> list[Any]:
        return list(await AwaitEtcd().plan(self.context))


@pytest.fixture
def world(make_context: Callable[..., Context]) -> World:
    kube = FakeKube()
    return World(make_context(CLUSTER, kube=kube), kube)


async def test_it_waits_for_the_operator_and_then_for_each_member(world: World, notes: Any) -> None:
    waiting = asyncio.create_task(AwaitEtcd().run(world.context, notes))
    await asyncio.sleep(5)
    assert [one.sentence for one in await world.planned()] == [
        "wait: the operator has not taken the template of etcd's members over"
    ]
    world.has(NEW)
    for name in ("n1", "n2", "n3"):
        await asyncio.sleep(5)
        assert not waiting.done()
        await world.says(name, revision=revision(NEW))
    await asyncio.sleep(5)
    assert waiting.done()
    await waiting
    assert await world.planned() == []


async def test_a_member_whose_agent_has_said_nothing_yet_is_not_waited_for(world: World, notes: Any) -> None:
    """Right after a first `up`: the second one finds nothing to do."""
    world.has(NEW)
    for name in ("n1", "n2"):
        await world.says(name, revision=revision(NEW))
    live = await world.kube.get(crds.API_VERSION, etcd_members.KIND, "n3")
    assert live is not None
    world.kube.put({**live, "status": {"phase": "Member"}})
    assert await world.planned() == []
    await AwaitEtcd().run(world.context, notes)


async def test_a_second_member_that_stood_in_for_the_only_one_is_waited_for_until_it_is_gone(world: World) -> None:
    """The first one is made from the template before it has its vote and the leadership back."""
    world.has(NEW)
    for name in ("n1", "n2", "n3"):
        await world.says(name, revision=revision(NEW))
    live = await world.kube.get(crds.API_VERSION, etcd_members.KIND, "n2")
    assert live is not None
    world.kube.put({**live, "status": {**live["status"], "second": {"phase": "Leaving"}}})
    assert [one.sentence for one in await world.planned()] == ["wait: a second member still stands in for n2"]
    world.kube.put({**live, "status": {**live["status"], "second": None}})
    assert await world.planned() == []


async def test_what_was_rolled_back_is_an_error_with_the_reason(world: World, notes: Any) -> None:
    world.has(OLD, **{etcd.CONDEMNED_KEY: json.dumps(NEW), etcd.WHY_KEY: "the member of n2: it exited"})
    with pytest.raises(UserError, match="rolled back, and runs as before: the member of n2: it exited") as failed:
        await AwaitEtcd().run(world.context, notes)
    assert "run `autarky up` with the former ones, and then with these again" in str(failed.value.fix)


async def test_a_member_that_is_not_healthy_with_the_only_template_there_was_is_an_error(
    world: World, notes: Any
) -> None:
    world.has(NEW)
    await world.says("n3", failedRevision=revision(NEW), failure="it exited")
    with pytest.raises(UserError, match="the member of etcd on n3 runs as before: it exited"):
        await AwaitEtcd().run(world.context, notes)


async def test_what_the_operator_refuses_is_an_error(world: World, notes: Any) -> None:
    plane = await world.kube.get(crds.API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    condition = {
        "type": "SpecApplied",
        "status": "False",
        "reason": "EtcdTemplateRefused",
        "message": "minors are not skipped",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": plane["metadata"].get("generation", 0),
    }
    world.kube.put({**plane, "status": {"conditions": [condition]}})
    with pytest.raises(UserError, match="minors are not skipped"):
        await AwaitEtcd().run(world.context, notes)


async def test_while_a_member_is_off_the_others_are_not_changed_and_not_waited_for(world: World, notes: Any) -> None:
    world.has(NEW)
    world.context.absent["n3"] = "it does not answer"
    [said] = await world.planned()
    assert isinstance(said, Warn)
    assert "no member is changed while n3 does not answer" in said.sentence
    await AwaitEtcd().run(world.context, notes)


async def test_where_level_1_is_not_hosted_nothing_is_waited_for(make_context: Callable[..., Context]) -> None:
    kube = FakeKube()
    context = make_context(replace(CLUSTER, self_hosted=Level.API_SERVER), kube=kube)
    World(context, kube)
    assert await AwaitEtcd().plan(context) == []
    assert not await is_changed_by_agents(context)


async def test_the_agents_change_the_members_once_the_operator_has_a_template_in_force(world: World) -> None:
    assert await is_changed_by_agents(world.context)
    world.kube.put(etcd.template_object(inputs_of(CLUSTER)))
    assert not await is_changed_by_agents(world.context)
