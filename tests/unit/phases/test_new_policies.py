"""Policies that refuse pods come to a cluster that has workloads: `plan` and `up` say which ones lose their pods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from autarky.control.cluster_file.decide.records import API, Record
from autarky.control.control_nodes.decide.initial import Memory
from autarky.control.guards.decide import ANTI_AFFINITY, HOST_PORTS, KINDS, POLICIES, PRIORITIES
from autarky.control.guards.manifests import tenants
from autarky.control.guards.manifests.policies import BINDING
from autarky.engine.events import Event, Warned
from autarky.engine.phase import Change, Warn
from autarky.engine.runner import run_operation
from autarky.errors import ApiError, Unreachable
from autarky.kube.listing import Listing
from autarky.model import ports
from autarky.phases.looking import LOOK_SECONDS
from autarky.phases.objects import ApplyObjects
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime
PHASE = ApplyObjects()
REPORTED = "[namespace storage] DaemonSet csi has priorityClassName system-node-critical (2000001000)."


@dataclass
class AskedKube(FakeKube):
    """Keeps which kinds were listed. spoiled: kind → what its list comes to, an error or seconds without an answer."""

    listed: list[str] = field(default_factory=list)
    spoiled: dict[str, Exception | float] = field(default_factory=dict)

    async def list_at(self, api_version: str, kind: str, **more: Any) -> Listing:
        self.listed.append(kind)
        match self.spoiled.get(kind):
            case Exception() as error:
                raise error
            case float() as seconds:
                await asyncio.sleep(seconds)
        return await super().list_at(api_version, kind, **more)


def a_kube(*bound: str) -> AskedKube:
    """With a storage driver that is as important as the control plane, and these bindings."""
    kube, apps = AskedKube(), "apps/v1"
    metadata = {"name": "system-node-critical"}
    kube.put({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 2000001000})
    kube.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "storage"}})
    spec = {"template": {"spec": {"priorityClassName": "system-node-critical"}}}
    kube.put(
        {"apiVersion": apps, "kind": "DaemonSet", "metadata": {"name": "csi", "namespace": "storage"}, "spec": spec}
    )
    for one in tenants.objects():
        if one["kind"] == BINDING and one["metadata"]["name"] in bound:
            kube.put(one)
    return kube


def that_is_there(context):
    """The cluster of the context, by what its first node remembers."""
    context.memories = {"n1": Memory(frozenset({"n1"}), founded=True)}
    return context


async def warned(context) -> list[Warn]:
    return [found for found in await PHASE.plan(context) if isinstance(found, Warn)]


@pytest.mark.parametrize("bound", [(), (ANTI_AFFINITY,)], ids=["no policy is there yet", "another one is there"])
async def test_the_plan_ends_with_what_loses_its_pods_by_a_policy_that_comes(make_context, bound):
    kube = a_kube(*bound)
    [found] = await warned(that_is_there(make_context(kube=kube)))
    assert found.in_plan
    assert REPORTED in found.sentence
    assert f"the policy {PRIORITIES} is new" in found.sentence


@pytest.mark.parametrize("namespace", ["web", "kube-system"])
async def test_the_plan_ends_with_what_wants_a_port_of_the_control_plane_wherever_it_is(make_context, namespace):
    kube = a_kube(PRIORITIES, ANTI_AFFINITY)
    container = {"name": "x", "image": "x", "ports": [{"containerPort": 80, "hostPort": ports.NLLB_API}]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "proxy", "namespace": namespace}}
    kube.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    kube.put({**deployment, "spec": {"template": {"spec": {"containers": [container]}}}})
    [found] = await warned(that_is_there(make_context(kube=kube)))
    assert f"the policy {HOST_PORTS} is new" in found.sentence
    assert f"[namespace {namespace}] Deployment proxy has " in found.sentence


async def test_a_record_in_the_api_is_enough_where_no_host_says_that_the_cluster_is_there(make_context):
    context = make_context(kube=a_kube())
    context.records = {API: Record({}, {})}
    assert len(await warned(context)) == 1


@pytest.mark.parametrize("bound", [(PRIORITIES,), POLICIES])
async def test_what_a_policy_refuses_that_is_there_already_is_left_to_doctor(make_context, bound):
    assert await warned(that_is_there(make_context(kube=a_kube(*bound)))) == []


async def test_with_all_policies_there_no_workload_is_looked_at(make_context):
    kube = a_kube(*POLICIES)
    await PHASE.plan(that_is_there(make_context(kube=kube)))
    assert kube.listed == [BINDING]


async def test_a_new_cluster_is_asked_nothing(make_context):
    kube = a_kube()
    assert await warned(make_context(kube=kube)) == []
    assert kube.listed == []


async def test_up_goes_on_and_tells_it_once(make_context):
    kube = a_kube()
    context = make_context(kube=kube)
    events: list[Event] = []

    for outcome in ("changed", "unchanged"):
        found = that_is_there(context)
        result = await run_operation("up", "x", [PHASE], found, clock=context.clock, events=[events.append])
        assert result.outcome == outcome
    reported = [event.sentence for event in events if isinstance(event, Warned)]
    assert [REPORTED in sentence for sentence in reported] == [True]
    assert await kube.get("admissionregistration.k8s.io/v1", BINDING, PRIORITIES) is not None


ERRORS = [
    Unreachable("the connection broke"),
    ApiError(403, "Forbidden", "no"),
    ApiError(404, "NotFound", "not served"),
    ApiError(503, "Timeout", "too much"),
    10_000.0,
]


@pytest.mark.parametrize("kind", [BINDING, "PriorityClass", "Namespace", *KINDS])
@pytest.mark.parametrize("spoiled", ERRORS, ids=str)
async def test_an_api_that_does_not_list_them_refuses_nothing_and_that_is_told(make_context, kind, spoiled):
    kube = a_kube()
    kube.spoiled[kind] = spoiled
    found = await PHASE.plan(that_is_there(make_context(kube=kube)))
    assert [one for one in found if isinstance(one, Change)]
    [warning] = [one for one in found if isinstance(one, Warn)]
    assert "could not check" in warning.sentence
    assert (str(spoiled) if isinstance(spoiled, Exception) else "more than 20 s") in warning.sentence
    assert asyncio.get_running_loop().time() <= LOOK_SECONDS + 1 < PHASE.timeout / 2


async def test_an_api_that_does_not_answer_is_asked_nothing(make_context):
    kube = a_kube()
    kube.unhealthy = "connection refused"
    assert await PHASE.plan(that_is_there(make_context(kube=kube))) == [
        Change("apply all objects, once the API answers")
    ]
    assert kube.listed == []
