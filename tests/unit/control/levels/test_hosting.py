"""A retired workload comes back unchanged, wherever the operation was interrupted."""

from __future__ import annotations

import json

import pytest

from autarky.control.agents.manifests.operator import retired_name
from autarky.control.levels import act as hosting
from autarky.model.components import COMPONENTS, KUBELET, MOVED
from autarky.render.objects import agent_parts, parts
from autarky.render.values import metadata
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

    async def delete(self, *args, **options):
        await self._one()
        return await super().delete(*args, **options)


@pytest.fixture
def kube() -> Mortal:
    kube = Mortal()
    inputs = inputs_of(a_cluster(hosts_kubelet=True))
    for part in [*parts(inputs), *agent_parts(inputs)]:
        for obj in part.objects:
            if obj["kind"] in ("DaemonSet", "Deployment", "PodDisruptionBudget"):
                kube.put(obj)
    return kube


async def workload(kube, component=API):
    return await kube.get(hosting.APPS, COMPONENTS[component].kind, component, SYSTEM)


async def record(kube, component=API):
    return await kube.get("v1", "ConfigMap", retired_name(component), SYSTEM)


@pytest.mark.parametrize("component", MOVED)
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


async def test_of_the_kubelets_there_is_no_budget_to_take_away(kube):
    """Nor has the operator the right to read one of that name."""
    kube.put(of("policy/v1", "PodDisruptionBudget", KUBELET))
    await hosting.retire(kube, KUBELET)
    assert await kube.get(*hosting.BUDGET, KUBELET, SYSTEM) is not None


async def test_kubelets_that_were_retired_are_known_until_they_are_there_again(kube):
    live = await workload(kube, KUBELET)
    assert await hosting.retired_workload(kube, live) is None
    await hosting.retire(kube, KUBELET)
    assert (await hosting.retired_workload(kube, live))["spec"] == live["spec"]
    await hosting.forget_retired(kube, live)
    assert await hosting.retired_workload(kube, live) is None


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


# --- what others put there ----------------------------------------------------------------------------------


def planted(kube, objects, *, labels=None, **fields):
    meta = metadata(retired_name(API), SYSTEM)
    text = objects if isinstance(objects, str) else json.dumps(objects)
    kube.put(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**meta, "labels": meta["labels"] if labels is None else labels},
            "data": {"objects.json": text},
            **fields,
        }
    )


def of(api, kind, name=API, namespace=SYSTEM):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": {"x": 1}}


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "Helm"}, {"k8s-app": API}], ids=str)
async def test_what_somebody_else_has_put_in_its_place_is_not_brought_back(kube, labels):
    await kube.delete(hosting.APPS, "DaemonSet", API, SYSTEM)
    planted(kube, [of("apps/v1", "DaemonSet")], labels=labels)
    assert not await hosting.bring_back(kube, API)
    assert await hosting.retired_workload(kube, of("apps/v1", "DaemonSet")) is None
    assert await workload(kube) is None
    assert await record(kube) is not None, "it is not ours to delete"


@pytest.mark.parametrize(
    "foreign",
    [
        of("apps/v1", "Deployment"),
        of("apps/v1", "DaemonSet", "kube-proxy"),
        of("apps/v1", "DaemonSet", namespace="default"),
        of("extensions/v1", "DaemonSet"),
        of("policy/v1", "PodDisruptionBudget", "coredns"),
        of("rbac.authorization.k8s.io/v1", "RoleBinding"),
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": None},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": [API], "namespace": SYSTEM}},
        {"apiVersion": ["apps/v1"], "kind": {}, "metadata": {"name": API, "namespace": SYSTEM}},
        "DaemonSet",
        None,
    ],
    ids=str,
)
async def test_nothing_but_the_components_own_workload_and_budget_is_brought_back(kube, foreign):
    await kube.delete(hosting.APPS, "DaemonSet", API, SYSTEM)
    planted(kube, [foreign, of("apps/v1", "DaemonSet"), of("policy/v1", "PodDisruptionBudget")])
    before = set(kube._objects)
    assert await hosting.bring_back(kube, API)
    assert {key[:2] for key in set(kube._objects) - before} == {(hosting.APPS, "DaemonSet"), hosting.BUDGET}
    assert (await workload(kube))["spec"] == {"x": 1}


@pytest.mark.parametrize("text", ["", "{}", "null", "7", '"x"', "[", "[[]]"])
async def test_what_is_no_list_of_objects_brings_nothing_back(kube, text):
    planted(kube, text)
    assert not await hosting.bring_back(kube, API)


@pytest.mark.parametrize("immutable", [False, True])
async def test_a_strangers_object_in_its_place_is_overwritten_completely(kube, immutable):
    """Else it would stay theirs to change, or take ours with its owner."""
    planted(kube, [], labels={"x": "y"}, immutable=immutable)
    there = await record(kube)
    there["metadata"] |= {"annotations": {"a": "b"}, "ownerReferences": [{"kind": "Pod", "name": "x", "uid": "y"}]}
    kube.put(there)
    before = (await workload(kube))["spec"]
    await hosting.retire(kube, API)
    kept = await record(kube)
    assert kept["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "autarky", "k8s-app": API}
    assert not {"annotations", "ownerReferences"} & kept["metadata"].keys()
    assert not kept.get("immutable")
    assert await hosting.bring_back(kube, API)
    assert (await workload(kube))["spec"] == before
