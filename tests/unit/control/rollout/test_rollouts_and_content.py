"""The objects that the last good revision needs, and what is reported to the user when they have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from autarky.control.backup.operator import Schedules
from autarky.control.control_nodes.operator.roles import ControlNodes
from autarky.control.etcd.operator.members import EtcdMembers
from autarky.control.etcd.operator.template import EtcdTemplate
from autarky.control.kubelet.operator.kubelets import Kubelets
from autarky.control.levels.operator import Spec
from autarky.control.rollout.operator.rollouts import CONTENT_SECONDS, Rollouts
from autarky.control.status.operator import PlaneStatus
from autarky.control.upgrade.operator.upgrade import Upgrade
from autarky.ports import Object
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.kube import FakeKube
from unit.control.world import BAD, GOOD, SCHEDULER, SECRET, World, becomes_good, revision_label, rounds

pytestmark = pytest.mark.looptime

NAME = SECRET["metadata"]["name"]
OTHER = {**SECRET, "data": {"kubeconfig": "R0FSQkFHRQ=="}}
DIFFERS = f"the content of Secret {NAME} differs from that of the last good revision: restore it"


@asynccontextmanager
async def status_of(world: World, kube: FakeKube | None = None) -> AsyncIterator[tuple[Rollouts, PlaneStatus]]:
    async with world.operator(kube) as duty:
        view, clock = duty.view, LoopClock()
        spec = Spec(world.say, view, world.kube, clock, duty)
        etcd = EtcdMembers(world.say, view, world.kube, dict)
        control_nodes = ControlNodes(world.say, view, world.kube, clock, dict, _serves)
        schedules = Schedules(world.say, view, world.kube, clock)
        template = EtcdTemplate(world.say, view, world.kube)
        upgrade = Upgrade(world.say, view, world.kube, clock, duty)
        shown = PlaneStatus(
            *(world.say, view, world.kube, clock, duty, spec, etcd, template, control_nodes, schedules, upgrade),
            Kubelets(world.say, view, world.kube, clock, lambda _: ""),
        )
        yield duty, shown


async def _serves(_url: str) -> None:
    """Nobody is asked here."""


async def failed(status: PlaneStatus) -> tuple[str, str]:
    """The condition RolloutFailed."""
    await asyncio.sleep(1)
    await status.reconcile()
    plane = await status.kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    assert plane is not None
    found: Object = next(one for one in plane["status"]["conditions"] if one["type"] == "RolloutFailed")
    return found["status"], found["message"]


async def goes_bad_with(world: World, content: Object | None) -> None:
    """The user applies a bad template, and changes (or deletes) what the good one needs."""
    await becomes_good(world)
    world.deployment(SCHEDULER, BAD)
    labels = {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(BAD)}
    world.pod(SCHEDULER, "n1", labels, ready=False)
    await world.kube.delete("v1", "Secret", NAME, SYSTEM)
    if content is not None:
        world.kube.put(content)


async def test_an_object_that_is_not_what_it_was_is_told_in_the_event_and_the_condition_until_it_is_put_back(world):
    await goes_bad_with(world, OTHER)
    async with status_of(world) as (duty, status):
        await rounds(duty, 95)
        assert await world.image("Deployment", SCHEDULER) == "registry.example/kube-scheduler:v1.36.4"
        assert DIFFERS in (await world.explanations())[0]
        assert await failed(status) == ("True", f"kube-scheduler: {DIFFERS}")
        assert await duty.reconcile() == CONTENT_SECONDS
        world.kube.put(SECRET)
        await rounds(duty, int(CONTENT_SECONDS) + 1)
        assert (await failed(status))[0] == "False"
        assert await duty.reconcile() is None
    assert not any("GARBAGE" in sentence or "R0FS" in sentence for sentence, _ in world.said)


async def test_another_operator_goes_on_telling_it(world):
    await goes_bad_with(world, OTHER)
    async with world.operator() as duty:
        await rounds(duty, 95)
    async with status_of(world) as (duty, status):
        await rounds(duty, 2)
        assert await failed(status) == ("True", f"kube-scheduler: {DIFFERS}")
        await world.kube.delete("v1", "Secret", NAME, SYSTEM)
        await rounds(duty, int(CONTENT_SECONDS) + 1)
        assert await failed(status) == ("True", f"kube-scheduler: Secret {NAME} is missing: restore it")


async def test_a_revision_that_is_healthy_ends_it(world):
    await goes_bad_with(world, OTHER)
    async with status_of(world) as (duty, status):
        await rounds(duty, 95)
        again = {**GOOD, "metadata": {**GOOD["metadata"], "annotations": {"restarted": "now"}}}
        world.deployment(SCHEDULER, again)
        for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM):
            await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
        world.pod(SCHEDULER, "n1", {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(again)})
        for second in range(4):
            world.lease(SCHEDULER, "n1_uuid", second)
            await rounds(duty, 1)
        assert (await failed(status))[0] == "False"


async def test_what_was_restored_is_as_it_was(world):
    await goes_bad_with(world, None)
    async with status_of(world) as (duty, status):
        await rounds(duty, 95)
        assert (await failed(status))[0] == "False"
    assert "restore it" not in (await world.explanations())[0]


class Counting:
    """How often somebody reads the Secret."""

    def __init__(self, api: FakeKube) -> None:
        self.api, self.reads = api, 0

    def __getattr__(self, name: str):
        return getattr(self.api, name)

    async def get(self, api_version, kind, name, namespace=None):
        self.reads += name == NAME
        return await self.api.get(api_version, kind, name, namespace)


@pytest.mark.parametrize(("content", "most"), [(None, 4), (OTHER, 4 + 10)])
async def test_it_is_read_rarely_and_only_while_it_is_not_what_it_was(world, content, most):
    await goes_bad_with(world, content)
    kube = Counting(world.kube)
    async with world.operator(kube) as duty:
        await rounds(duty, 95 + 100)
    assert 0 < kube.reads <= most
