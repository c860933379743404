"""`up` ends only when `status` shows its static pods as Ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.common.pods import MIRROR
from autarky.model.cluster import Level
from autarky.model.components import (
    API_SERVER,
    COMPONENTS,
    ETCD,
    HOSTED,
    KUBE_PROXY,
    LOAD_BALANCER,
    NAME_LABEL,
    SLOT_LABEL,
    STANDBY,
)
from autarky.phases import available
from autarky.phases.available import unavailable
from autarky.phases.static_pods import unready_static_pods
from autarky.ports import Object
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime
CLUSTER = a_cluster(controls=2, workers=1)


def static_pod(component: str, node: str, *, ready: bool, revision: str = "", slot: str = "") -> Object:
    labels = {NAME_LABEL: COMPONENTS[component].label_value, **({SLOT_LABEL: slot} if slot else {})}
    name = f"{component}{revision}-{node}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels, "annotations": {MIRROR: "x"}},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


async def said(make_context, *pods: Object, level: Level = Level.ADD_ONS, kube: FakeKube | None = None) -> list[str]:
    kube = kube or FakeKube()
    for pod in pods:
        kube.put(pod)
    return await unready_static_pods(make_context(replace(CLUSTER, self_hosted=level), kube=kube))


@pytest.mark.parametrize(("component", "node"), [(ETCD, "n1"), (LOAD_BALANCER, "n2"), (LOAD_BALANCER, "n3")])
async def test_one_that_is_not_ready_is_waited_for(make_context, component, node):
    pod = static_pod(component, node, ready=False)
    assert await said(make_context, pod) == [f"static pod {component} of {node} is not Ready"]
    assert await said(make_context, static_pod(component, node, ready=True)) == []


async def test_a_ready_one_of_another_revision_is_enough(make_context):
    pods = [static_pod(ETCD, "n1", ready=ready, revision=name) for name, ready in (("-a", False), ("-b", True))]
    assert await said(make_context, *pods) == []


@pytest.mark.parametrize(
    ("level", "waits"), [(Level.ADD_ONS, True), (Level.CONTROLLERS, True), (Level.API_SERVER, False)]
)
async def test_a_standby_is_waited_for_where_its_level_is_not_hosted(make_context, level, waits):
    pod = static_pod(API_SERVER, "n1", ready=False, slot=STANDBY)
    assert bool(await said(make_context, pod, level=level)) is waits


async def test_nothing_that_only_poses_as_one_is_waited_for(make_context):
    by_a_worker = static_pod(ETCD, "n3", ready=False)
    posing = static_pod(KUBE_PROXY, "n1", ready=False, slot=HOSTED)
    elsewhere = static_pod(ETCD, "n9", ready=False)
    ended = static_pod(ETCD, "n1", ready=False)
    ended["status"]["phase"] = "Failed"
    assert await said(make_context, by_a_worker, posing, elsewhere, ended) == []


class Flooded(FakeKube):
    """A worker makes pods without end."""

    async def each(self, api_version: str, kind: str, **asked: Any) -> AsyncGenerator[Object, None]:
        while "n3" in (asked["fields"] or ""):
            await asyncio.sleep(0.1)
            yield static_pod(LOAD_BALANCER, "n3", ready=True)
        async for obj in super().each(api_version, kind, **asked):
            yield obj


async def test_a_worker_that_floods_the_api_keeps_nobody_waiting(make_context):
    assert await said(make_context, kube=Flooded()) == []


async def test_the_end_of_up_waits_for_them(make_context, monkeypatch):
    monkeypatch.setattr(available, "rendered_workloads", lambda _: [])
    kube = FakeKube()
    for name in ("n1", "n2", "n3"):
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
    kube.put(static_pod(ETCD, "n2", ready=False))
    context = make_context(CLUSTER, kube=kube)
    waiting = await unavailable(context)
    assert waiting is not None
    assert waiting.sentence == "static pod etcd of n2 is not Ready"
    kube.put(static_pod(ETCD, "n2", ready=True))
    assert await unavailable(context) is None
