"""A hosted workload that goes comes back as it was, wherever one is killed between."""

from __future__ import annotations

import pytest

from autarky.duties import hosting
from autarky.render.objects import parts
from autarky.render.operator import retired_name
from fakes.clusters import a_cluster, inputs_of
from fakes.kube import FakeKube

API = "kube-apiserver"
SYSTEM = "kube-system"


class Killed(Exception):
    pass


class Mortal(FakeKube):
    """Dies before its Nth write."""

    lives: int = 1000

    async def _one(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise Killed

    async def create(self, obj):
        await self._one()
        return await super().create(obj)

    async def replace(self, obj, *, subresource=None):
        await self._one()
        return await super().replace(obj, subresource=subresource)

    async def delete(self, *args):
        await self._one()
        return await super().delete(*args)


@pytest.fixture
def kube() -> Mortal:
    kube = Mortal()
    for part in parts(inputs_of(a_cluster())):
        for obj in part.objects:
            if obj["kind"] in ("DaemonSet", "Deployment", "PodDisruptionBudget"):
                kube.put(obj)
    return kube


async def workload(kube, component=API):
    return await kube.get(hosting.APPS, hosting.kind_of(component), component, SYSTEM)


async def record(kube, component=API):
    return await kube.get("v1", "ConfigMap", retired_name(component), SYSTEM)


@pytest.mark.parametrize("component", [API, "kube-controller-manager", "kube-scheduler"])
async def test_what_was_retired_comes_back_with_its_edits(kube, component):
    live = await workload(kube, component)
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "edited"
    await kube.replace(live)
    budget = await kube.get(*hosting.BUDGET, component, SYSTEM)
    await hosting.retire(kube, component)
    assert await workload(kube, component) is None
    assert await kube.get(*hosting.BUDGET, component, SYSTEM) is None
    assert await hosting.bring_back(kube, component)
    assert (await workload(kube, component))["spec"] == live["spec"]
    assert ((await kube.get(*hosting.BUDGET, component, SYSTEM)) is None) == (budget is None)
    assert await record(kube, component) is None


@pytest.mark.parametrize("lives", range(4))
async def test_retiring_may_be_killed_anywhere_and_done_again(kube, lives):
    before = (await workload(kube))["spec"]
    kube.lives = lives
    try:
        await hosting.retire(kube, API)
    except Killed:
        kube.lives = 1000
        await hosting.retire(kube, API)
    kube.lives = 1000
    assert await workload(kube) is None
    assert await hosting.bring_back(kube, API)
    assert (await workload(kube))["spec"] == before


@pytest.mark.parametrize("lives", range(3))
async def test_bringing_back_may_be_killed_anywhere_and_done_again(kube, lives):
    before = (await workload(kube))["spec"]
    await hosting.retire(kube, API)
    kube.lives = lives
    try:
        await hosting.bring_back(kube, API)
    except Killed:
        kube.lives = 1000
        await hosting.bring_back(kube, API)
    assert (await workload(kube))["spec"] == before
    assert await record(kube) is None


async def test_a_workload_that_somebody_deleted_is_not_brought_back(kube):
    await kube.delete(hosting.APPS, "DaemonSet", API, SYSTEM)
    assert not await hosting.bring_back(kube, API)
    assert await workload(kube) is None


async def test_what_is_there_again_meanwhile_is_left_as_it_is(kube):
    await hosting.retire(kube, API)
    kube.put({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": API, "namespace": SYSTEM}, "spec": {}})
    assert await hosting.bring_back(kube, API)
    assert (await workload(kube))["spec"] == {}
