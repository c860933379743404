"""The operator publishes which names the API servers' certificates must have; each node's agent signs its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autarky.control.base.operator_view import View
from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.operator import Serving
from autarky.ports import Object
from autarky.render import access
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED, SYSTEM
from fakes.clock import LoopClock
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

CLUSTER = a_cluster(controls=1, workers=2)


class Scene:
    def __init__(self) -> None:
        self.kube, self.said = FakeKube(), list[str]()
        self.kube.put(access.inventory(CLUSTER))
        self.kube.put(leaves.config_map(CLUSTER))
        self.node("n1", CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE)
        self.view = View(self.kube, LoopClock(), lambda: None, print)
        self.serving = Serving(lambda sentence, **_: self.said.append(sentence), self.view, self.kube)

    def node(self, name: str, *labels: str, address: str = "") -> None:
        addresses = [{"type": "InternalIP", "address": address or f"192.0.2.1{name[1:]}"}]
        meta: Object = {"name": name, "labels": dict.fromkeys(labels, "")}
        self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"addresses": addresses}})

    async def reconcile(self) -> frozenset[str]:
        """The names that agents read afterwards."""
        for _ in range(60):
            await asyncio.sleep(0)
        await self.serving.reconcile()
        live: Any = await self.kube.get("v1", "ConfigMap", leaves.CONFIG_MAP, SYSTEM)
        return frozenset(leaves.plan_in(live).names)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    watching = asyncio.create_task(scene.view.run())
    yield scene
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_what_the_file_names_is_enough_while_no_other_is_a_control_node(scene: Scene):
    before = await scene.kube.get("v1", "ConfigMap", leaves.CONFIG_MAP, SYSTEM)
    await scene.reconcile()
    assert await scene.kube.get("v1", "ConfigMap", leaves.CONFIG_MAP, SYSTEM) == before


@pytest.mark.parametrize("label", [CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE])
async def test_a_node_is_named_from_when_it_is_labelled_before_anybody_reaches_it(scene: Scene, label: str):
    scene.node("n2", label)
    names = await scene.reconcile()
    assert {"n1", "192.0.2.11", "kubernetes", "n2", "192.0.2.12"} <= names
    assert "n3" not in names


async def test_an_address_that_is_not_the_one_of_the_inventory_is_not_named(scene: Scene):
    scene.node("n2", CONTROL_PLANE_REQUESTED, address="192.0.2.200")
    assert not {"n2", "192.0.2.200"} & await scene.reconcile()


async def test_a_plan_that_cannot_be_understood_is_told_and_left_alone(scene: Scene):
    scene.kube.put({**leaves.config_map(CLUSTER), "data": {leaves.PLAN_KEY: "{"}})
    for _ in range(60):
        await asyncio.sleep(0)
    await scene.serving.reconcile()
    assert "is malformed" in scene.said[-1]


async def test_a_cluster_of_an_earlier_release_has_no_plan_and_gets_none_from_the_operator(scene: Scene):
    await scene.kube.delete("v1", "ConfigMap", leaves.CONFIG_MAP, SYSTEM)
    scene.node("n2", CONTROL_PLANE_REQUESTED)
    for _ in range(60):
        await asyncio.sleep(0)
    await scene.serving.reconcile()
    assert await scene.kube.get("v1", "ConfigMap", leaves.CONFIG_MAP, SYSTEM) is None
