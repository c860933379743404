"""What is looked at before an upgrade, and what becomes of a source that cannot be read."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from autarky.control.control_nodes.manifests import RECORD
from autarky.control.etcd.manifests import members
from autarky.control.upgrade.decide.checks import Requested, Source, Stored, findings
from autarky.control.upgrade.decide.steps import ORDER
from autarky.control.upgrade.observe import BUDGETS_SECONDS, SECONDS, observe
from autarky.errors import ApiError
from autarky.model.components import API_SERVER, COMPONENTS, KUBE_PROXY
from autarky.render.crds import control_plane_crd
from autarky.render.values import metadata
from fakes.kube import FakeKube
from unit.control.upgrade.healthy import RUNS, WANTED, Object, a_node, a_plane, a_workload
from unit.control.upgrade.test_checks_of_apis import api_service, budget, line
from unit.control.upgrade.test_checks_of_webhooks import SERVICE, configuration, rule

pytestmark = pytest.mark.looptime
ADMISSION = "admissionregistration.k8s.io/v1"
PROXY_FILE = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
featureGates:
  SidecarContainers: true
"""
OTHERS = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3")
"""In which v1.37.1 serves what it cannot read of v1.36.4."""


@dataclass(slots=True)
class Barred(FakeKube):
    """Some kinds are not to be read, and some take forever."""

    forbidden: set[str] = field(default_factory=set)
    endless: set[str] = field(default_factory=set)

    async def _pass(self, what: str) -> None:
        if what in self.forbidden:
            raise ApiError(403, "Forbidden", f"{what} is not for you")
        if what in self.endless:
            await asyncio.sleep(10 * SECONDS)

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        await self._pass(kind)
        await self._pass(f"{kind} {name}")
        return await FakeKube.get(self, api_version, kind, name, namespace)

    async def list(self, api_version: str, kind: str, **asked: Any) -> list[Object]:
        await self._pass(kind)
        return await FakeKube.list(self, api_version, kind, **asked)

    async def each(self, api_version: str, kind: str, **asked: Any) -> AsyncGenerator[Object, None]:
        await self._pass(kind)
        for obj in await FakeKube.list(self, api_version, kind, **asked):
            yield obj

    async def lines(self, path: str, beginnings: Collection[str]) -> Sequence[str]:
        await self._pass(path)
        return await FakeKube.lines(self, path, beginnings)


def put(kube: FakeKube, api_version: str, kind: str, obj: Object, namespace: str | None = None) -> None:
    meta = {**obj["metadata"], **({"namespace": namespace} if namespace else {})}
    kube.put({**obj, "apiVersion": api_version, "kind": kind, "metadata": meta})


@pytest.fixture
def kube() -> Barred:
    kube = Barred()
    kube.put(control_plane_crd())
    plane = a_plane()
    plane["status"]["conditions"] = [{**one, "observedGeneration": 1} for one in plane["status"]["conditions"]]
    put(kube, "autarky.dev/v1alpha1", "ControlPlane", plane)
    for node in (a_node("n1"), a_node("w1", control=False)):
        put(kube, "v1", "Node", node)
    for component in ORDER:
        put(kube, "apps/v1", COMPONENTS[component].kind, a_workload(component), "kube-system")
    put(kube, "v1", "Namespace", {"metadata": {"name": "policy"}})
    return kube


def with_gate(kube: FakeKube, **webhook: Any) -> None:
    """Only its configuration."""
    obj = configuration(rule(["pods"]), **webhook)
    put(kube, ADMISSION, "ValidatingWebhookConfiguration", obj)


def with_service(kube: FakeKube, kind: str = "ClusterIP") -> None:
    put(kube, "v1", "Service", {"metadata": {"name": SERVICE[1]}, "spec": {"type": kind}}, SERVICE[0])


def with_endpoint(kube: FakeKube, name: str, *, ready: bool, service: str = SERVICE[1]) -> None:
    meta = {"name": name, "labels": {"kubernetes.io/service-name": service}}
    endpoints = [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]
    put(kube, "discovery.k8s.io/v1", "EndpointSlice", {"metadata": meta, "endpoints": endpoints}, SERVICE[0])


def with_file(kube: FakeKube, component: str, flag: str, source: Object, kind: str, data: dict[str, str]) -> None:
    """The component is started with the only file in that object, from a volume of that source."""
    live = a_workload(component)
    pod = live["spec"]["template"]["spec"]
    pod["containers"][0] |= {
        "command": [component, f"--{flag}=/etc/x/c"],
        "volumeMounts": [{"name": "v", "mountPath": "/etc/x"}],
    }
    pod["volumes"] = [{"name": "v", **source}]
    put(kube, "apps/v1", COMPONENTS[component].kind, live, "kube-system")
    put(kube, "v1", kind, {"metadata": {"name": "conf"}, "data": data}, "kube-system")


def with_a_config_map(kube: FakeKube, text: str) -> None:
    with_file(kube, KUBE_PROXY, "config", {"configMap": {"name": "conf"}}, "ConfigMap", {"c": text})


def with_a_secret(kube: FakeKube, text: str) -> None:
    data = {"c": base64.b64encode(text.encode()).decode()}
    flag = "encryption-provider-config"
    with_file(kube, API_SERVER, flag, {"secret": {"secretName": "conf"}}, "Secret", data)


async def names(kube: FakeKube) -> list[tuple[str, bool]]:
    return [(one.name, one.warning) for one in findings(await observe(kube, RUNS, WANTED))]


async def test_a_healthy_cluster_is_seen_as_it_is(kube: Barred) -> None:
    seen = await observe(kube, RUNS, WANTED)
    assert seen.unseen == {}
    assert findings(seen) == []
    assert [node["metadata"]["name"] for node in seen.nodes] == ["n1", "w1"]
    assert set(seen.workloads) == set(ORDER)
    assert seen.plane is not None
    assert (seen.runs, seen.wanted) == (RUNS, WANTED)


async def test_everything_is_read(kube: Barred) -> None:
    """Each of these is a finding, which none would be if it were not looked at."""
    with_gate(kube)
    put(kube, "policy/v1", "PodDisruptionBudget", budget("cart", 0, 2, "policy"))
    put(kube, "apiregistration.k8s.io/v1", "APIService", api_service("v1.metrics", "False"))
    kube.metrics += "\n".join(
        [line(), 'apiserver_resource_objects{group="scheduling.k8s.io",resource="workloads"} 3', "other 1"]
    )
    seen = await observe(kube, RUNS, WANTED)
    assert seen.budgets == ["policy/cart"]
    assert seen.requested == [Requested("batch", "v1beta1", "cronjobs", (1, 37))]
    assert seen.stored == [Stored("scheduling.k8s.io", "v1alpha2", "workloads", 3, OTHERS)]
    assert [one.name for one in findings(seen)] == ["webhooks", "apis", "apis", "budgets", "apiservices"]
    assert (await observe(kube, RUNS, RUNS)).stored == []


async def test_control_nodes_are_known_by_the_record_and_by_the_members_of_etcd(kube: Barred) -> None:
    """Also where the API serves none of either."""
    assert (await observe(kube, RUNS, WANTED)).control_nodes == frozenset()
    states = {"n1": "made", "n2": "joining", "n3": "odd"}
    data = {name: json.dumps({"uid": "7", "state": state}) for name, state in states.items()}
    kube.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(RECORD, "kube-system"), "data": data})
    kube.put(members.crd())
    for name, phase in (("n4", "Member"), ("n5", "Removed"), ("n6", None)):
        kube.put({**members.member(name, "10.0.0.2", present=True), "status": {"phase": phase} if phase else {}})
    assert (await observe(kube, RUNS, WANTED)).control_nodes == {"n1", "n4", "n6"}


async def test_configuration_files_are_read_where_the_workloads_have_them_from(kube: Barred) -> None:
    with_a_config_map(kube, PROXY_FILE)
    with_a_secret(kube, "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources: []\n")
    assert [(one.component, one.what, one.gates) for one in (await observe(kube, RUNS, WANTED)).files] == [
        (API_SERVER, "apiserver.config.k8s.io/v1 EncryptionConfiguration", {}),
        (KUBE_PROXY, "kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration", {"SidecarContainers": "true"}),
    ]
    assert await names(kube) == [("configurations", False)]


async def test_a_file_that_is_not_there_is_seen_as_that(kube: Barred) -> None:
    with_a_config_map(kube, PROXY_FILE)
    await kube.delete("v1", "ConfigMap", "conf", "kube-system")
    assert [one.missing for one in (await observe(kube, RUNS, WANTED)).files] == [True]


@pytest.mark.parametrize(("kind", "put_one"), [("ConfigMap conf", with_a_config_map), ("Secret", with_a_secret)])
async def test_files_that_cannot_be_read_are_a_finding_and_the_workloads_are_seen(
    kube: Barred, kind: str, put_one: Callable[[FakeKube, str], None]
) -> None:
    put_one(kube, PROXY_FILE)
    kube.forbidden = {kind}
    seen = await observe(kube, RUNS, WANTED)
    assert seen.unseen == {Source.FILES: f"403 Forbidden: {kind} is not for you"}
    assert set(seen.workloads) == set(ORDER)
    assert [(one.name, one.warning) for one in findings(seen)] == [("configurations", False)]


@pytest.mark.parametrize("kind", ["DaemonSet", "ConfigMap conf"])
async def test_workloads_or_files_that_take_for_ever_are_given_up(kube: Barred, kind: str) -> None:
    """Both wait for the workloads, and none of them takes the other along."""
    with_a_config_map(kube, PROXY_FILE)
    kube.endless = {kind}
    seen = await observe(kube, RUNS, WANTED)
    assert (Source.WORKLOADS in seen.unseen) == (kind == "DaemonSet")
    assert seen.unseen.keys() <= {Source.WORKLOADS, Source.FILES}
    assert seen.unseen
    assert len(seen.nodes) == 2


async def test_the_labels_of_the_system_namespace_count(kube: Barred) -> None:
    with_gate(kube, namespaceSelector={"matchExpressions": [{"key": "gate", "operator": "DoesNotExist"}]})
    assert await names(kube) == [("webhooks", False)]
    put(kube, "v1", "Namespace", {"metadata": {"name": "kube-system", "labels": {"gate": "off"}}})
    assert await names(kube) == [("webhooks", True)]


async def test_mutating_ones_count_as_well(kube: Barred) -> None:
    put(kube, ADMISSION, "MutatingWebhookConfiguration", configuration(rule(["pods"])))
    assert await names(kube) == [("webhooks", False)]


async def test_a_service_is_away_that_has_no_ready_endpoint(kube: Barred) -> None:
    with_gate(kube)
    assert (await observe(kube, RUNS, WANTED)).services == {SERVICE: "does not exist"}
    with_service(kube)
    with_endpoint(kube, "a", ready=False)
    with_endpoint(kube, "of-another", ready=True, service="other")
    assert (await observe(kube, RUNS, WANTED)).services == {SERVICE: "has no ready endpoint"}
    with_endpoint(kube, "b", ready=True)
    assert (await observe(kube, RUNS, WANTED)).services == {SERVICE: None}


async def test_a_service_that_is_only_a_name_may_answer(kube: Barred) -> None:
    with_gate(kube)
    with_service(kube, "ExternalName")
    assert await names(kube) == []


@pytest.mark.parametrize("name", ["gate,other=1", "Gate", "gate/..", "-", "a" * 64])
async def test_a_reference_that_is_no_name_is_asked_for_nowhere(kube: Barred, name: str) -> None:
    with_gate(kube, clientConfig={"service": {"namespace": "policy", "name": name}})
    kube.forbidden = {"EndpointSlice", "Service"}
    assert (await observe(kube, RUNS, WANTED)).services == {("policy", name): "does not exist"}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("ControlPlane", Source.PLANE),
        ("Node", Source.NODES),
        (f"ConfigMap {RECORD}", Source.CONTROL_NODES),
        ("EtcdMember", Source.CONTROL_NODES),
        ("DaemonSet", Source.WORKLOADS),
        ("Deployment", Source.WORKLOADS),
        ("ValidatingWebhookConfiguration", Source.WEBHOOKS),
        ("MutatingWebhookConfiguration", Source.WEBHOOKS),
        ("EndpointSlice", Source.WEBHOOKS),
        ("Service", Source.WEBHOOKS),
        ("Namespace", Source.WEBHOOKS),
        ("PodDisruptionBudget", Source.BUDGETS),
        ("/metrics", Source.METRICS),
        ("APIService", Source.API_SERVICES),
    ],
)
async def test_a_source_that_cannot_be_read_is_a_finding_and_fails_no_other(
    kube: Barred, kind: str, source: Source
) -> None:
    with_gate(kube)
    kube.forbidden = {kind}
    seen = await observe(kube, RUNS, WANTED)
    assert seen.unseen == {source: f"403 Forbidden: {kind} is not for you"}
    assert f"{source} could not be looked at: 403 Forbidden: {kind} is not for you" in [
        one.sentence for one in findings(seen)
    ]


async def test_an_api_that_does_not_answer_is_so_for_every_source(kube: Barred) -> None:
    kube.set_outage("no API server answers")
    seen = await observe(kube, RUNS, WANTED)
    others = [one for one in Source if one is not Source.FILES]  # without the workloads none is known
    assert dict(seen.unseen) == dict.fromkeys(others, "no API server answers")
    assert {one.name for one in findings(seen) if not one.warning} == {"health", "images", "webhooks", "apis"}


async def test_a_source_that_takes_for_ever_is_given_up(kube: Barred) -> None:
    kube.endless = {"PodDisruptionBudget"}
    begun = asyncio.get_running_loop().time()
    seen = await observe(kube, RUNS, WANTED)
    assert seen.unseen == {Source.BUDGETS: f"not read within {BUDGETS_SECONDS:g} s"}
    assert asyncio.get_running_loop().time() - begun < 2 * SECONDS
    assert await names(kube) == [("budgets", True)]
