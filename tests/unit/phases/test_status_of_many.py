"""What `autarky status` asks of the API: each Node and each pod of ours once, and of other pods none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from autarky.control.common.pods import MIRROR
from autarky.doctor.evidence import evidence
from autarky.model.components import COMPONENTS
from autarky.phases.hosts import observe
from autarky.ports import Object
from autarky.render.values import SYSTEM
from autarky.status.look import gather
from unit.phases.seen import WITH_A_WORKER, LeavingKube, MakeContext, a_context, a_kube

pytestmark = pytest.mark.looptime


@dataclass
class CountingKube(LeavingKube):
    """given: how often each object was read, by its kind and name, in lists of all."""

    given: Counter[str] = field(default_factory=Counter)

    async def list(self, api_version: str, kind: str, **asked: Any) -> list[Object]:
        found = await super().list(api_version, kind, **asked)
        if kind != "Node" or asked.get("labels") is None:
            self.given.update(f"{kind} {one['metadata']['name']}" for one in found)
        return found


def a_pod(name: str, label: str, node: str = "n1", *, mirror: bool = False) -> Object:
    meta: Object = {"name": name, "namespace": SYSTEM, "labels": {"k8s-app": label}}
    if mirror:
        meta["annotations"] = {MIRROR: "0f3a"}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    spec = {"nodeName": node, "containers": [{"name": "x", "image": "x:v1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


@pytest.fixture
def kube() -> CountingKube:
    kube = CountingKube()
    a_kube(WITH_A_WORKER, kube=kube)
    for component in COMPONENTS.values():
        kube.put(a_pod(f"of-{component.name}", component.label_value))
    kube.put(a_pod("of-somebody", "somebody"))
    kube.put(a_pod("etcd-n1", "etcd", mirror=True))
    kube.put(a_pod("etcd-n2", "etcd", "n2", mirror=True))
    return kube


async def lists_of_nodes_by_observing(make_context: MakeContext) -> int:
    """Of the hosts, which each command begins with."""
    kube = CountingKube()
    a_kube(WITH_A_WORKER, kube=kube)
    await observe(a_context(make_context, WITH_A_WORKER, kube))
    return kube.given["Node n1"]


async def test_nodes_and_pods_of_ours_are_read_once_and_no_other_pods(
    make_context: MakeContext, kube: CountingKube
) -> None:
    found = await gather(a_context(make_context, WITH_A_WORKER, kube))
    by_observing = await lists_of_nodes_by_observing(make_context)
    assert [kube.given[f"Node {name}"] - by_observing for name in ("n1", "n2")] == [1, 1]
    own = [f"Pod of-{component.name}" for component in COMPONENTS.values() if component.image]
    pods = {name: often for name, often in kube.given.items() if name.startswith("Pod ")}
    assert pods == dict.fromkeys([*own, "Pod etcd-n1", "Pod etcd-n2"], 1)
    shown = {row.component for row in found.rows}
    assert shown == {component.name for component in COMPONENTS.values() if component.image}
    assert {row.node for row in found.rows if row.component == "etcd"} == {"n1"}, "a worker's only poses as one"


async def test_doctor_lists_the_nodes_once(make_context: MakeContext, kube: CountingKube) -> None:
    await evidence(a_context(make_context, WITH_A_WORKER, kube))
    by_observing = await lists_of_nodes_by_observing(make_context)
    assert [kube.given[f"Node {name}"] - 2 * by_observing for name in ("n1", "n2")] == [1, 1]
