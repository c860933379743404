"""Workers make pods and certificate requests, tenants workloads, as many and as long as they like: no command ends by
it, waits for all of it, or holds more than one of them at a time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autarky.cli.status import table
from autarky.control.guards.decide import PRIORITIES
from autarky.doctor.diagnosis import diagnose
from autarky.doctor.evidence import evidence
from autarky.errors import AutarkyError, Unreachable
from autarky.phases import admit, forget, pivot
from autarky.phases.context import Context
from autarky.phases.looking import LOOK_SECONDS
from autarky.phases.refused import find_refused
from autarky.phases.removal import DrainNode
from autarky.ports import Object
from autarky.render.values import SYSTEM
from autarky.status.look import gather
from unit.phases.seen import WITH_A_WORKER, LeavingKube, MakeContext, a_context, a_kube, whats

pytestmark = pytest.mark.looptime

NEVER_ENDS = 10**9


class _Long(dict[str, Any]):
    """Of which one can tell whether it is still held."""


@dataclass
class FloodedKube(LeavingKube):
    """Of some kinds it gives one made-up object after the other before its own, each after a pause."""

    floods: dict[str, Callable[[int], Object]] = field(default_factory=dict)
    length: int = 50
    pause: float = 0.0
    error: AutarkyError | None = None
    """After the flood."""
    most_held: int = 0
    _held: list[weakref.ref[_Long]] = field(default_factory=list)

    async def each(self, api_version: str, kind: str, **asked: Any) -> AsyncGenerator[Object, None]:
        for number in range(self.length if kind in self.floods else 0):
            await asyncio.sleep(self.pause)
            yield self._made(kind, number)
        if kind in self.floods and self.error is not None:
            raise self.error
        async for obj in super().each(api_version, kind, **asked):
            yield obj

    def _made(self, kind: str, number: int) -> Object:
        made = _Long(self.floods[kind](number))
        self._held = [one for one in self._held if one() is not None]
        self._held.append(weakref.ref(made))
        self.most_held = max(self.most_held, len(self._held))
        return made


def a_pod(number: int) -> Object:
    labels = {"k8s-app": "node-load-balancer"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"a{number}", "namespace": SYSTEM, "labels": labels, "annotations": {}},
        "spec": {"nodeName": "n2", "containers": [{"name": "x", "image": "x:" + "y" * 5000}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "z" * 5000}]},
    }


def a_job(number: int) -> Object:
    pod = {"priorityClassName": "system-node-critical"}
    metadata = {"name": f"a{number}", "namespace": "tenant"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def a_request(number: int) -> Object:
    signer, user = "kubernetes.io/kubelet-serving", "system:node:n2"
    spec = {"signerName": signer, "username": user, "usages": [], "request": "eA=="}
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    return {**kind, "metadata": {"name": f"a{number}"}, "spec": spec}


def a_flooded(**kinds: Callable[[int], Object]) -> FloodedKube:
    kube = FloodedKube(floods=kinds)
    a_kube(WITH_A_WORKER, kube=kube)
    value = {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}
    kube.put({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **value})
    pod = a_pod(0)
    own = {**pod["metadata"], "name": "own", "labels": {"k8s-app": "kube-proxy"}}
    kube.put({**pod, "metadata": own, "spec": {"nodeName": "n1", "containers": [{"name": "x", "image": "x:v1"}]}})
    return kube


LOOKS: dict[str, tuple[Callable[[int], Object], Callable[[Context], Awaitable[Any]]]] = {
    "Pod": (a_pod, gather),
    "Job": (a_job, find_refused),
    "Pod of a node that goes": (a_pod, lambda context: forget.left_of(context.kube(), "n2")),
    "Pod of a node that is drained": (
        a_pod,
        lambda context: DrainNode(WITH_A_WORKER.node("n2"), evict=True)._pods(context),
    ),
    "Pod of a standby that was withdrawn": (a_pod, pivot.withdrawn_pods),
    "CertificateSigningRequest": (a_request, lambda context: forget.left_of(context.kube(), "n2")),
    "CertificateSigningRequest to judge": (a_request, lambda context: admit.pending_requests(context.kube(), {"n2"})),
    "CertificateSigningRequest that was denied": (a_request, lambda context: admit._denied_joins(context.kube(), "n2")),
    "CertificateSigningRequest to wait for": (
        a_request,
        lambda context: admit._serving_requests(context.kube(), "n2"),
    ),
}


@pytest.mark.parametrize("look", LOOKS)
async def test_whoever_looks_holds_no_more_than_one_of_them(make_context: MakeContext, look: str):
    made, do = LOOKS[look]
    kube = a_flooded(**{look.split(maxsplit=1)[0]: made})
    context = a_context(make_context, WITH_A_WORKER, kube)
    gc.disable()
    try:
        await do(context)
    finally:
        gc.enable()
    assert 1 <= kube.most_held <= 3


# --- status ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Unreachable("not answered within 30 s"), None], ids=["an error", "no end"])
async def test_pods_that_cannot_be_listed_are_told_apart_from_an_api_that_does_not_answer(
    make_context: MakeContext, error: AutarkyError | None
):
    kube = a_flooded(Pod=a_pod)
    kube.error = error
    kube.length, kube.pause = (3, 0.0) if error else (NEVER_ENDS, 1.0)
    began = asyncio.get_running_loop().time()
    found = await gather(a_context(make_context, WITH_A_WORKER, kube))
    why = "not answered within 30 s" if error else "it takes more than 20 s"
    assert found.api == "ready"
    assert found.unseen == why
    assert not replace(found, rows=()).healthy
    assert replace(found, rows=(), unseen="").healthy
    assert {row.health for row in found.rows if row.component == "kubelet"} == {"ready"}
    assert sum(row.component == "node-load-balancer" for row in found.rows) >= 3, "what was seen stays"
    assert f"not all pods could be looked at: {why}\n" in table(found)
    assert asyncio.get_running_loop().time() - began <= LOOK_SECONDS + 1


async def test_what_a_pods_kubelet_says_is_shown_as_far_as_it_fits(make_context: MakeContext):
    found = await gather(a_context(make_context, WITH_A_WORKER, a_flooded(Pod=a_pod)))
    assert found.unseen == ""
    rows = [row for row in found.rows if row.component == "node-load-balancer"]
    assert len(rows) == 50
    assert {len(row.version) for row in rows} == {len(row.detail) for row in rows} == {200}


# --- doctor ------------------------------------------------------------------------------------------------


async def test_doctor_waits_for_neither_workloads_nor_pods_without_end(make_context: MakeContext):
    kube = a_flooded(Job=a_job, Pod=a_pod)
    kube.length, kube.pause = NEVER_ENDS, 6.0
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no heartbeat"}]}}
    await kube.patch("v1", "Node", "n2", unready, subresource="status")
    seen = await evidence(a_context(make_context, WITH_A_WORKER, kube))
    assert seen.api == ""
    reported = whats(seen)
    assert reported[0] == "n2: the node is not Ready"
    assert reported[-2:] == ["pods: not all of them could be looked at", "workloads: they could not be looked at"]
    assert {finding.evidence for finding in diagnose(seen)[-2:]} == {"it takes more than 20 s"}
    assert asyncio.get_running_loop().time() <= 2 * LOOK_SECONDS + 30


# --- workloads ----------------------------------------------------------------------------------------------


async def test_workloads_of_all_kinds_are_told_in_one_order(make_context: MakeContext):
    """They come kind by kind."""

    def a_deployment(number: int) -> Object:
        job = a_job(number)
        return {**job, "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**job["metadata"], "namespace": "z"}}

    kube = a_flooded(Job=a_job, Deployment=a_deployment)
    kube.length = 2
    found = await find_refused(a_context(make_context, WITH_A_WORKER, kube))
    assert {one.policy for one in found} == {PRIORITIES}
    assert [one.workload for one in found] == ["Job a0", "Job a1", "Deployment a0", "Deployment a1"]


# --- a node that goes -------------------------------------------------------------------------------------------


async def test_a_removal_that_was_broken_off_among_very_many_pods_has_less_to_do_the_next_time():
    kube = a_flooded()
    for number in range(20):
        pod = a_pod(number)
        kube.put({**pod, "metadata": {**pod["metadata"], "namespace": "default"}})
    listed = kube.each

    async def breaks(api_version: str, kind: str, **asked: Any) -> AsyncGenerator[Object, None]:
        number = 0
        async for obj in listed(api_version, kind, **asked):
            number += 1
            if number > 5 and kind == "Pod":
                raise Unreachable("not answered within 30 s")
            yield obj

    kube.each = breaks  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        await forget.forget(kube, "n2")
    assert len(await kube.list("v1", "Pod", namespace="default")) == 15
    kube.each = listed  # type: ignore[method-assign]
    await forget.forget(kube, "n2")
    assert await kube.list("v1", "Pod", namespace="default") == []
