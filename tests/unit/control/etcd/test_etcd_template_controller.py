"""The operator makes the template of etcd's members from the ControlPlane, and gives its revision to the members."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.base.operator_view import View
from autarky.control.etcd.decide.template import revision
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import KIND
from autarky.control.etcd.operator.template import EtcdTemplate
from autarky.model.cluster import Level
from autarky.render import crds
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from unit.control.world import World

pytestmark = pytest.mark.looptime
NODES = ("n1", "n2", "n3")


@pytest.fixture
def world() -> World:
    found = World()
    found.kube.put(etcd_members.crd())
    found.kube.put(crds.control_plane(replace(a_cluster(), self_hosted=Level.ETCD)))
    found.kube.put(etcd.template_object(inputs_of(a_cluster())))
    for number, name in enumerate(NODES, 1):
        found.kube.put(etcd_members.member(name, f"192.0.2.1{number}", present=True))
    return found


@asynccontextmanager
async def controller_of(world: World) -> AsyncIterator[EtcdTemplate]:
    view = View(world.kube, LoopClock(), lambda: None, print)
    watching = asyncio.create_task(view.run())
    await asyncio.sleep(1)
    try:
        yield EtcdTemplate(world.say, view, world.kube)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def passes(controller: EtcdTemplate, count: int = 4) -> None:
    for _ in range(count):
        await controller.reconcile()
        await asyncio.sleep(1)


async def asks(world: World, **spec: Any) -> None:
    plane = await world.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    world.kube.put({**plane, "spec": {**plane["spec"], **spec}})


async def report(world: World, name: str, **status: str) -> None:
    live = await world.kube.get(API_VERSION, KIND, name)
    assert live is not None
    world.kube.put({**live, "status": {**(live.get("status") or {}), **status}})


async def wanted(world: World) -> set[str | None]:
    return {obj["spec"].get("revision") for obj in await world.kube.list(API_VERSION, KIND)}


async def template(world: World, key: str = etcd.IN_FORCE_KEY) -> Any:
    live = await world.kube.get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
    assert live is not None
    return json.loads(live["data"][key]) if key in live["data"] else None


async def all_run(world: World, controller: EtcdTemplate) -> str:
    """What is in force; all members run it."""
    await passes(controller)
    now = revision(await template(world))
    for name in NODES:
        await report(world, name, revision=now)
    await passes(controller)
    assert await template(world, etcd.SETTLED_KEY) == await template(world)
    return now


async def test_all_members_are_given_the_revision_of_what_is_asked_for(world: World) -> None:
    async with controller_of(world) as controller:
        first = await all_run(world, controller)
        assert await wanted(world) == {first}
        await asks(world, componentArguments={"etcd": {"v": "1"}}, etcd={"quotaBytes": 2**30})
        await passes(controller)
        command = (await template(world))["containers"][0]["command"]
        assert command[-2:] == ["--v=1", f"--quota-backend-bytes={2**30}"]
        assert await wanted(world) == {revision(await template(world))} != {first}
        assert controller.unapplied == []


async def test_one_that_a_member_is_not_healthy_with_is_taken_back_and_said(world: World) -> None:
    async with controller_of(world) as controller:
        first = await all_run(world, controller)
        await asks(world, componentArguments={"etcd": {"nonsense": "1"}})
        await passes(controller)
        (bad,) = await wanted(world)
        await report(world, "n2", failedRevision=str(bad), failure="it exited")
        await passes(controller)
        assert await wanted(world) == {first}
        (said,) = controller.unapplied
        assert (said.reason, said.refused) == ("EtcdRolledBack", True)
        assert "the member of n2: it exited" in said.sentence
        assert "ask for the former one, and then for this one again" in said.sentence
    async with controller_of(world) as another:
        await passes(another)
        assert await wanted(world) == {first}
        assert another.unapplied == [said], "another operator goes on where this one ended"
        await asks(world, componentArguments={})
        await passes(another)
        assert another.unapplied == []


async def test_what_went_back_is_given_again_once_the_former_one_was_asked_for_and_no_member_reports_it(
    world: World,
) -> None:
    async with controller_of(world) as controller:
        first = await all_run(world, controller)
        await asks(world, componentArguments={"etcd": {"nonsense": "1"}})
        await passes(controller)
        (bad,) = await wanted(world)
        await report(world, "n2", failedRevision=str(bad), failure="no image")
        await passes(controller)
        await asks(world, componentArguments={})
        await passes(controller)
        assert (await template(world, etcd.CONDEMNED_KEY), controller.unapplied) == (None, [])
    async with controller_of(world) as another:
        await asks(world, componentArguments={"etcd": {"nonsense": "1"}})
        await passes(another)
        assert await wanted(world) == {first}
        (said,) = another.unapplied
        assert (said.reason, said.refused) == ("EtcdTemplateWaits", False)
        assert "the member of n2: no image" in said.sentence
        await report(world, "n2", failedRevision="", failure="")
        await passes(another)
        assert await wanted(world) == {bad}
        assert another.unapplied == []


async def test_what_is_refused_is_said_and_changes_nothing(world: World) -> None:
    async with controller_of(world) as controller:
        first = await all_run(world, controller)
        await asks(world, componentArguments={"etcd": {"data-dir": "/tmp"}})
        await passes(controller)
        assert await wanted(world) == {first}
        assert [one.reason for one in controller.unapplied] == ["EtcdTemplateRefused"]


async def test_where_level_1_is_not_hosted_nothing_is_written(world: World) -> None:
    await asks(world, selfHosted="2-4")
    async with controller_of(world) as controller:
        await passes(controller)
        assert await template(world) is None
        assert await wanted(world) == {None}


@pytest.mark.parametrize(("levels", "follows"), [("0-4", True), ("02-4", False)])
async def test_with_the_kubelet_hosted_etcd_follows_only_where_it_is_as_well(
    world: World, levels: str, follows: bool
) -> None:
    async with controller_of(world) as controller:
        first = await all_run(world, controller)
        await asks(world, selfHosted=levels, componentArguments={"etcd": {"v": "1"}})
        await passes(controller)
        assert (await wanted(world) != {first}) == follows


async def test_a_member_that_should_leave_neither_gets_a_revision_nor_is_waited_for(world: World) -> None:
    live = await world.kube.get(API_VERSION, KIND, "n3")
    assert live is not None
    world.kube.put({**live, "spec": {**live["spec"], "state": "Removed"}})
    async with controller_of(world) as controller:
        await passes(controller)
        now = revision(await template(world))
        for name in ("n1", "n2"):
            await report(world, name, revision=now)
        await passes(controller)
        assert await template(world, etcd.SETTLED_KEY) == await template(world)
        assert await wanted(world) == {now, None}
