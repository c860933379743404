"""What the policies let through and what not, asked of a real API server: RBAC gives everybody here more than they get
in a cluster, so that what is refused is refused by a policy."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autarky.control.addons.flannel.policies import PUBLIC_IP, TUNNEL
from autarky.control.etcd.manifests.members import GUARD, guard_budget
from autarky.control.guards.manifests import nodes as guards
from autarky.control.slots import manifests as standby
from autarky.model.components import WITH_STANDBY
from autarky.ports import Object
from autarky.render import node
from autarky.render.access import inventory_with
from autarky.render.objects import agent_parts, parts
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED, WITHDRAWN
from contract.acting import is_refused, until
from contract.kube.guarded import MAC, Clients, a_mirror, a_node, a_token, changes, the_inventory
from fakes.clusters import a_cluster, inputs_of

pytestmark = pytest.mark.contract

_FLANNEL_CONDITION = {"type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp", "message": "up"}


def _request(name: str) -> Object:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode(),
            "signerName": "example.org/tests",
            "usages": ["client auth"],
        },
    }


ORDERS: dict[str, dict[str, Any]] = {
    "active": {"labels": {CONTROL_PLANE_ACTIVE: ""}},
    "requested": {"labels": {CONTROL_PLANE_REQUESTED: ""}},
    "another restriction": {"labels": {"a.node-restriction.kubernetes.io/x": ""}},
    "leave": {"annotations": {"autarky.dev/control-node": "leave"}},
    "an order nobody knows yet": {"annotations": {"autarky.dev/new": "x"}},
    "an overwrite": {"annotations": {"flannel.alpha.coreos.com/public-ip-overwrite": "10.0.0.1"}},
    "an address to keep": {"annotations": {"flannel.alpha.coreos.com/node-public-ip": "10.0.0.1"}},
}


@pytest.mark.parametrize("sub", [None, "status"])
async def test_orders_on_a_node_are_for_administrators_and_the_operator(clients: Clients, sub: str | None) -> None:
    for what, metadata in ORDERS.items():
        for client in (clients.kubelet("w1"), clients.flannel("w1"), clients.stranger()):
            assert await is_refused(changes(client, "w1", sub=sub, **metadata)), what
        gone = {part: dict.fromkeys(values) for part, values in metadata.items()}
        for client in (clients.admin, clients.operator()):
            await changes(client, "w1", sub=sub, **metadata)
            if what != "leave":  # the node says when it has left
                assert await is_refused(changes(clients.kubelet("w1"), "w1", sub=sub, **gone)), what
            await changes(client, "w1", sub=sub, **gone)


async def test_a_kubelet_reports_of_its_node_with_or_without_labels_and_annotations(clients: Clients) -> None:
    kubelet = clients.kubelet("w1")
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "x"}]}
    await kubelet.patch("v1", "Node", "w1", {"status": ready}, subresource="status")
    for reported in ("joining: x", "ready-1", None):
        await changes(kubelet, "w1", sub=None, annotations={"autarky.dev/control-node": reported})
    await changes(kubelet, "w1", annotations=dict.fromkeys(guards.REPORTS, "x"), labels={"example.org/a": "b"})
    await changes(clients.admin, "w1", annotations={"autarky.dev/control-node": "leave"})
    await changes(kubelet, "w1", annotations={"autarky.dev/control-node": None})
    for part in ("annotations", "labels"):
        await changes(clients.admin, "w1", sub=None, **{part: None})
        await kubelet.patch("v1", "Node", "w1", {"status": ready}, subresource="status")


async def test_a_kubelet_ties_its_node_to_nothing_and_takes_no_pod_network(clients: Clients) -> None:
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "5b2f1c0e-0000-4000-8000-000000000000"}
    kubelet = clients.kubelet("w1")
    assert await is_refused(changes(kubelet, "w1", finalizers=["example.org/x"]))
    assert await is_refused(changes(kubelet, "w1", ownerReferences=[owner]))
    await clients.admin.delete("v1", "Node", "w1")
    taken = {**a_node("w1"), "spec": {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}}
    assert await is_refused(kubelet.create(taken))
    await kubelet.create(a_node("w1"))


@pytest.mark.parametrize("sub", [None, "status"])
async def test_the_agent_of_any_pod_network_reports_for_no_node_and_ties_none(
    clients: Clients, sub: str | None
) -> None:
    """Every worker has its token, which may write the status of all Nodes."""
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "5b2f1c0e-0000-4000-8000-000000000000"}
    agent = clients.stranger()
    await changes(agent, "n1", sub=sub, annotations={"projectcalico.org/IPv4Address": "10.0.0.1/24"})
    for key in guards.REPORTS:
        await changes(clients.kubelet("n1"), "n1", annotations={key: "x"})
        for value in ("y", None):
            assert await is_refused(changes(agent, "n1", sub=sub, annotations={key: value})), key
    assert await is_refused(changes(agent, "n1", sub=sub, finalizers=["example.org/x"]))
    assert await is_refused(changes(agent, "n1", sub=sub, ownerReferences=[owner]))


async def test_flannel_reports_of_its_own_node_and_nothing_else_of_it(clients: Clients) -> None:
    flannel = clients.flannel("w1")
    report = {PUBLIC_IP: "10.0.0.4", TUNNEL: MAC % 7, "flannel.alpha.coreos.com/backend-type": "vxlan"}
    ready = {"type": "Ready", "status": "True", "reason": "x", "message": "x"}
    await clients.admin.patch("v1", "Node", "w1", {"status": {"conditions": [ready]}}, subresource="status")
    await changes(flannel, "w1", annotations={**report, "flannel.alpha.coreos.com/kube-subnet-manager": "true"})
    conditions = {"status": {"conditions": [ready, _FLANNEL_CONDITION]}}
    await flannel.patch("v1", "Node", "w1", conditions, subresource="status")
    for other in (clients.flannel("n1"), clients.flannel("")):
        assert await is_refused(changes(other, "w1", annotations={PUBLIC_IP: None}))
    for metadata in (
        {"labels": {"example.org/a": "b"}},
        {"annotations": {"example.org/a": "b"}},
        {"annotations": {WITHDRAWN: "x"}},
        {"finalizers": ["example.org/x"]},
    ):
        assert await is_refused(changes(flannel, "w1", **metadata)), metadata
    for status in (
        {"conditions": [{**ready, "status": "False"}, _FLANNEL_CONDITION]},
        {"conditions": [_FLANNEL_CONDITION]},
        {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
        {"capacity": {"cpu": "100"}},
    ):
        assert await is_refused(flannel.patch("v1", "Node", "w1", {"status": status}, subresource="status")), status


async def test_flannels_public_address_is_that_of_the_join_inventory(clients: Clients) -> None:
    for client in (clients.flannel("w1"), clients.kubelet("w1")):
        for address in ("10.0.0.1", "10.0.0", "addresses", '10.0.0.4", "x', ""):
            refused = await is_refused(changes(client, "w1", annotations={PUBLIC_IP: address}))
            assert refused is (address != ""), address
        await changes(client, "w1", annotations={PUBLIC_IP: "10.0.0.4"})
        await changes(client, "w1", annotations={PUBLIC_IP: None})


async def test_a_tunnel_has_no_other_nodes_hardware_address(clients: Clients) -> None:
    for client in (clients.flannel("w1"), clients.kubelet("w1")):
        for said in (MAC % 0, (MAC % 0).upper(), (MAC % 9).replace(":", ": "), "x"):
            assert await is_refused(changes(client, "w1", annotations={TUNNEL: said})), said
        for said in (MAC % 9, MAC % 1):
            await changes(client, "w1", annotations={TUNNEL: said})


async def test_join_tokens_are_made_by_who_may_update_the_control_plane(clients: Clients) -> None:
    await clients.admin.create(a_token("bbbbbb"))
    for client in (clients.stranger(), clients.kubelet("w1")):
        assert await is_refused(client.create(a_token("cccccc")))
        named = {"metadata": {"annotations": {"autarky.dev/node": "n1"}}}
        assert await is_refused(client.patch("v1", "Secret", "bootstrap-token-bbbbbb", named, namespace="kube-system"))
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": "kube-system"}}
    await clients.stranger().create(other)
    for name in ("other", "bootstrap-token-bbbbbb"):
        await clients.admin.delete("v1", "Secret", name, "kube-system")


async def test_a_node_that_the_inventory_lacks_creates_nothing_and_an_absent_inventory_refuses_nobody(
    clients: Clients,
) -> None:
    removed = clients.kubelet("w2")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "w2", "namespace": "default"},
        "spec": {},
    }
    assert await is_refused(removed.create(a_node("w2")))
    assert await is_refused(removed.create(lease))
    for user in (removed, clients.returning("w2")):
        assert await is_refused(user.create(_request("w2")))
    for number, user in enumerate((clients.kubelet("w1"), clients.returning("w1"))):
        await user.create(_request(f"w1-{number}"))
        await clients.admin.delete("certificates.k8s.io/v1", "CertificateSigningRequest", f"w1-{number}")
    data: Object | None
    for data in ({}, None):
        await clients.admin.apply(inventory_with(the_inventory()), manager="test")
        await until("who is not in the inventory is refused", lambda: _creating_is_refused(clients, "w2"))
        if data is None:
            await clients.admin.delete("v1", "ConfigMap", "autarky-join-inventory", "kube-system")
        else:
            await clients.admin.apply(inventory_with(data), manager="test")
        await until("who is not in an empty inventory is let in", lambda: _is_allowed(removed.create(a_node("w2"))))
        await clients.admin.delete("v1", "Node", "w2")
    await changes(removed, "w1", annotations={PUBLIC_IP: "10.0.0.7"})


async def test_no_mirror_pod_in_kube_system_passes_for_a_hosted_pod(clients: Clients) -> None:
    """All that a disruption budget of ours selects."""
    inputs = inputs_of(a_cluster())
    rendered = [obj for part in (*parts(inputs), *agent_parts(inputs)) for obj in part.objects]
    hosted = [obj for obj in rendered if obj["kind"] == "PodDisruptionBudget"]
    selected = [budget["spec"]["selector"]["matchLabels"] for budget in (*hosted, guard_budget(1))]
    assert {labels["k8s-app"] for labels in selected} >= {"kube-scheduler", "autarky-operator", "kube-dns", GUARD}
    kubelet = clients.kubelet("w1")
    for labels in (*selected, {"autarky.dev/slot": "hosted"}):
        assert await is_refused(kubelet.create(a_mirror("passes", {**labels, "x": "y"}))), labels
    elsewhere = a_mirror("passes", {"k8s-app": "kube-dns", "autarky.dev/slot": "hosted"}, "default")
    for client, pod in ((kubelet, elsewhere), (clients.stranger(), a_mirror("passes", {"k8s-app": "kube-dns"}))):
        await client.create(pod)
        await clients.admin.delete("v1", "Pod", "passes", pod["metadata"]["namespace"], grace_seconds=0)


async def test_every_static_pod_of_ours_has_its_mirror_pod(clients: Clients) -> None:
    inputs = inputs_of(a_cluster())
    [n1] = inputs.cluster.nodes
    manifests = [file.content for part in (node.static_pods, node.agent_pod) for file in part(inputs, n1).values()]
    manifests += [standby.revision(inputs, name).files[-1].content for name in WITH_STANDBY]
    assert len(manifests) > 5
    for content in manifests:
        await clients.kubelet("w1").create(a_mirror("ours", json.loads(content)["metadata"]["labels"]))
        await clients.admin.delete("v1", "Pod", "ours", "kube-system", grace_seconds=0)


@pytest.mark.parametrize("namespace", ["kube-system", "default"])
async def test_no_mirror_pod_keeps_pods_off_nodes(clients: Clients, namespace: str) -> None:
    """The scheduler heeds what a pod that runs does not want beside it, also on all nodes that are like its own."""
    alone: Object = {"labelSelector": {}, "topologyKey": "kubernetes.io/os"}
    for term in (alone, {**alone, "namespaceSelector": {}}, {**alone, "namespaces": ["default"]}):
        pod = a_mirror("alone", {}, namespace)
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        assert await is_refused(clients.kubelet("w1").create(pod)), term
    requested = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": alone}]}
    pod["spec"]["affinity"] = {"podAntiAffinity": requested}
    await clients.kubelet("w1").create(pod)
    await clients.admin.delete("v1", "Pod", "alone", namespace, grace_seconds=0)


async def _creating_is_refused(clients: Clients, node: str) -> bool:
    """Whether the kubelet may not create its Node, which is absent."""
    if await is_refused(clients.kubelet(node).create(a_node(node))):
        return True
    await clients.admin.delete("v1", "Node", node)
    return False


async def _is_allowed(write: Awaitable[Any]) -> bool:
    return not await is_refused(write)
