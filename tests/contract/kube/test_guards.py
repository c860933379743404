"""What the policies let through and what not, asked of a real API server: RBAC gives everybody here more than they get
in a cluster, so that what is refused is refused by a policy."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import string
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autarky.kube import KubeClient
from autarky.ports import Object
from autarky.render import guards, node, standby
from autarky.render.access import inventory_with
from autarky.render.etcd_members import GUARD, guard_budget
from autarky.render.guards import FLANNEL_USER, PUBLIC_IP, TUNNEL
from autarky.render.objects import agent_parts, parts
from autarky.render.policies import OPERATOR_USER
from autarky.render.values import CONTROL_PLANE_FACT, CONTROL_PLANE_WISH, WITHDRAWN
from contract.acting import acting, is_refused, until
from contract.servers import Server
from fakes.clusters import a_cluster, inputs_of

pytestmark = pytest.mark.contract

LETTERS = string.ascii_lowercase
_RBAC = "rbac.authorization.k8s.io"
_ADDRESSES = {"n1": "10.0.0.1", "w1": "10.0.0.4"}
_MAC = '{"VNI":1,"VtepMAC":"96:0a:00:00:00:%02x"}'
_FLANNEL_CONDITION = {"type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp", "message": "up"}


class Clients:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin = server.kube()
        self._made: dict[tuple[str, str, str], KubeClient] = {("", "", ""): self.admin}

    def _as(self, user: str, group: str = "", node: str = "") -> KubeClient:
        if (user, group, node) not in self._made:
            self._made[user, group, node] = acting(self.server, user, group, node)
        return self._made[user, group, node]

    def kubelet(self, node: str) -> KubeClient:
        return self._as(f"system:node:{node}", "system:nodes")

    def returning(self, node: str) -> KubeClient:
        """By the credential that may only ask for its kubelet's certificate."""
        return self._as(f"renew:node:{node}", "autarky:kubelet-renewals")

    def flannel(self, node: str) -> KubeClient:
        return self._as(FLANNEL_USER, "system:serviceaccounts:kube-system", node)

    def operator(self) -> KubeClient:
        return self._as(OPERATOR_USER, "system:serviceaccounts:kube-system")

    def stranger(self) -> KubeClient:
        """Of kube-system, with every right but that over the control plane."""
        return self._as("system:serviceaccount:kube-system:stranger", "system:serviceaccounts:kube-system")

    async def close(self) -> None:
        for client in self._made.values():
            await client.close()


@pytest.fixture(scope="module")
def guarded(own_server: Server) -> Server:
    """The policies are in force, and everybody may write nearly all."""
    asyncio.run(_with_clients(own_server, _guard))
    return own_server


@pytest.fixture
async def clients(guarded: Server) -> AsyncIterator[Clients]:
    """Nodes n1 and w1 are there and in the inventory."""
    clients = Clients(guarded)
    try:
        await _begin_anew(clients)
        yield clients
    finally:
        await clients.close()


async def _with_clients(server: Server, do: Callable[[Clients], Awaitable[None]]) -> None:
    clients = Clients(server)
    try:
        await do(clients)
    finally:
        await clients.close()


async def _begin_anew(clients: Clients) -> None:
    await clients.admin.apply(inventory_with(_inventory()), manager="test")
    for name in (*_ADDRESSES, "w2"):
        await clients.admin.delete("v1", "Node", name)
    for number, name in enumerate(_ADDRESSES):
        await clients.admin.create(_node(name, annotations={TUNNEL: _MAC % number}))
    await _until_they_are_in_force(clients)


async def _guard(clients: Clients) -> None:
    admin = clients.admin
    groups = [{"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"}]
    rules = [
        {"apiGroups": ["", "certificates.k8s.io", "coordination.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    ]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "guarded"}, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "guarded"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "guarded"},
        "subjects": groups,
    }
    for obj in (role, binding, *guards.objects()):
        await admin.apply(obj, manager="test")


def _inventory() -> dict[str, str]:
    return {name: json.dumps({"addresses": [address]}) for name, address in _ADDRESSES.items()}


def _node(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


async def _until_they_are_in_force(clients: Clients) -> None:
    """The policies, and what they compare with: the API server hears of both by watches of its own."""
    stranger, numbers = clients.stranger(), itertools.count(1)
    tries: dict[str, Callable[[], Awaitable[Any]]] = {
        guards.ORDERS: lambda: _changes(stranger, "n1", labels={CONTROL_PLANE_FACT: f"x{next(numbers)}"}),
        guards.FLANNEL_REPORT: lambda: _changes(clients.flannel("n1"), "w1", annotations={PUBLIC_IP: None}),
        guards.ADDRESSES: lambda: _changes(stranger, "n1", annotations={PUBLIC_IP: f"10.9.0.{next(numbers)}"}),
        guards.TUNNELS: lambda: _changes(stranger, "w1", annotations={TUNNEL: _MAC % 0}),
        guards.TOKENS: lambda: stranger.create(_token("aaaaaa")),
        guards.NODES: lambda: clients.kubelet("w9").create(_node("w9")),
        guards.MIRRORS: lambda: clients.kubelet("w1").create(_mirror("tried", {"k8s-app": "kube-dns"})),
    }
    for policy, write in tries.items():

        async def refuses(write: Callable[[], Awaitable[Any]] = write) -> bool:
            if await is_refused(write()):
                return True
            await _undo(clients)
            return False

        await until(f"{policy} is in force", refuses)


async def _undo(clients: Clients) -> None:
    """What a try has written that was let through."""
    await _changes(clients.admin, "n1", labels={CONTROL_PLANE_FACT: None}, annotations={PUBLIC_IP: None})
    await _changes(clients.admin, "w1", annotations={TUNNEL: _MAC % 1})
    await clients.admin.delete("v1", "Secret", "bootstrap-token-aaaaaa", "kube-system")
    await clients.admin.delete("v1", "Node", "w9")
    await clients.admin.delete("v1", "Pod", "tried", "kube-system", grace_seconds=0)


def _changes(kube: KubeClient, node: str, *, sub: str | None = "status", **metadata: Any) -> Any:
    return kube.patch("v1", "Node", node, {"metadata": metadata}, subresource=sub)


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


def _token(identity: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"bootstrap-token-{identity}", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": identity, "token-secret": "0123456789abcdef"},
    }


def _mirror(name: str, labels: dict[str, str], namespace: str = "kube-system") -> Object:
    """As the kubelet of w1 shows a static pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"},
        },
        "spec": {"nodeName": "w1", "hostNetwork": True, "containers": [{"name": "x", "image": "example.org/x:1"}]},
    }


ORDERS: dict[str, dict[str, Any]] = {
    "the fact": {"labels": {CONTROL_PLANE_FACT: ""}},
    "the wish": {"labels": {CONTROL_PLANE_WISH: ""}},
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
            assert await is_refused(_changes(client, "w1", sub=sub, **metadata)), what
        gone = {part: dict.fromkeys(values) for part, values in metadata.items()}
        for client in (clients.admin, clients.operator()):
            await _changes(client, "w1", sub=sub, **metadata)
            if what != "leave":  # the node says when it has left
                assert await is_refused(_changes(clients.kubelet("w1"), "w1", sub=sub, **gone)), what
            await _changes(client, "w1", sub=sub, **gone)


async def test_a_kubelet_reports_of_its_node_with_or_without_labels_and_annotations(clients: Clients) -> None:
    kubelet = clients.kubelet("w1")
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "x"}]}
    await kubelet.patch("v1", "Node", "w1", {"status": ready}, subresource="status")
    for told in ("joining: x", "ready-1", None):
        await _changes(kubelet, "w1", sub=None, annotations={"autarky.dev/control-node": told})
    await _changes(kubelet, "w1", annotations=dict.fromkeys(guards.REPORTS, "x"), labels={"example.org/a": "b"})
    await _changes(clients.admin, "w1", annotations={"autarky.dev/control-node": "leave"})
    await _changes(kubelet, "w1", annotations={"autarky.dev/control-node": None})
    for part in ("annotations", "labels"):
        await _changes(clients.admin, "w1", sub=None, **{part: None})
        await kubelet.patch("v1", "Node", "w1", {"status": ready}, subresource="status")


async def test_a_kubelet_ties_its_node_to_nothing_and_takes_no_pod_network(clients: Clients) -> None:
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "5b2f1c0e-0000-4000-8000-000000000000"}
    kubelet = clients.kubelet("w1")
    assert await is_refused(_changes(kubelet, "w1", finalizers=["example.org/x"]))
    assert await is_refused(_changes(kubelet, "w1", ownerReferences=[owner]))
    await clients.admin.delete("v1", "Node", "w1")
    taken = {**_node("w1"), "spec": {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}}
    assert await is_refused(kubelet.create(taken))
    await kubelet.create(_node("w1"))


async def test_flannel_reports_of_its_own_node_and_nothing_else_of_it(clients: Clients) -> None:
    flannel = clients.flannel("w1")
    report = {PUBLIC_IP: "10.0.0.4", TUNNEL: _MAC % 7, "flannel.alpha.coreos.com/backend-type": "vxlan"}
    ready = {"type": "Ready", "status": "True", "reason": "x", "message": "x"}
    await clients.admin.patch("v1", "Node", "w1", {"status": {"conditions": [ready]}}, subresource="status")
    await _changes(flannel, "w1", annotations={**report, "flannel.alpha.coreos.com/kube-subnet-manager": "true"})
    conditions = {"status": {"conditions": [ready, _FLANNEL_CONDITION]}}
    await flannel.patch("v1", "Node", "w1", conditions, subresource="status")
    for other in (clients.flannel("n1"), clients.flannel("")):
        assert await is_refused(_changes(other, "w1", annotations={PUBLIC_IP: None}))
    for metadata in (
        {"labels": {"example.org/a": "b"}},
        {"annotations": {"example.org/a": "b"}},
        {"annotations": {WITHDRAWN: "x"}},
        {"finalizers": ["example.org/x"]},
    ):
        assert await is_refused(_changes(flannel, "w1", **metadata)), metadata
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
            refused = await is_refused(_changes(client, "w1", annotations={PUBLIC_IP: address}))
            assert refused is (address != ""), address
        await _changes(client, "w1", annotations={PUBLIC_IP: "10.0.0.4"})
        await _changes(client, "w1", annotations={PUBLIC_IP: None})


async def test_a_tunnel_has_no_other_nodes_hardware_address(clients: Clients) -> None:
    for client in (clients.flannel("w1"), clients.kubelet("w1")):
        for said in (_MAC % 0, (_MAC % 0).upper(), (_MAC % 9).replace(":", ": "), "x"):
            assert await is_refused(_changes(client, "w1", annotations={TUNNEL: said})), said
        for said in (_MAC % 9, _MAC % 1):
            await _changes(client, "w1", annotations={TUNNEL: said})


async def test_join_tokens_are_made_by_who_may_update_the_control_plane(clients: Clients) -> None:
    await clients.admin.create(_token("bbbbbb"))
    for client in (clients.stranger(), clients.kubelet("w1")):
        assert await is_refused(client.create(_token("cccccc")))
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
    assert await is_refused(removed.create(_node("w2")))
    assert await is_refused(removed.create(lease))
    for user in (removed, clients.returning("w2")):
        assert await is_refused(user.create(_request("w2")))
    for number, user in enumerate((clients.kubelet("w1"), clients.returning("w1"))):
        await user.create(_request(f"w1-{number}"))
        await clients.admin.delete("certificates.k8s.io/v1", "CertificateSigningRequest", f"w1-{number}")
    for data in ({}, None):
        await clients.admin.apply(inventory_with(_inventory()), manager="test")
        await until("who is not in the inventory is refused", lambda: _is_refused_anew(clients, "w2"))
        if data is None:
            await clients.admin.delete("v1", "ConfigMap", "autarky-join-inventory", "kube-system")
        else:
            await clients.admin.apply(inventory_with(data), manager="test")
        await until("who is not in an empty inventory is let in", lambda: _is_allowed(removed.create(_node("w2"))))
        await clients.admin.delete("v1", "Node", "w2")
    await _changes(removed, "w1", annotations={PUBLIC_IP: "10.0.0.7"})


async def test_no_mirror_pod_in_kube_system_passes_for_a_hosted_pod(clients: Clients) -> None:
    """All that a disruption budget of ours selects."""
    inputs = inputs_of(a_cluster())
    rendered = [obj for part in (*parts(inputs), *agent_parts(inputs)) for obj in part.objects]
    hosted = [obj for obj in rendered if obj["kind"] == "PodDisruptionBudget"]
    selected = [budget["spec"]["selector"]["matchLabels"] for budget in (*hosted, guard_budget(1))]
    assert {labels["k8s-app"] for labels in selected} >= {"kube-scheduler", "autarky-operator", "kube-dns", GUARD}
    kubelet = clients.kubelet("w1")
    for labels in (*selected, {"autarky.dev/slot": "hosted"}):
        assert await is_refused(kubelet.create(_mirror("passes", {**labels, "x": "y"}))), labels
    elsewhere = _mirror("passes", {"k8s-app": "kube-dns", "autarky.dev/slot": "hosted"}, "default")
    for client, pod in ((kubelet, elsewhere), (clients.stranger(), _mirror("passes", {"k8s-app": "kube-dns"}))):
        await client.create(pod)
        await clients.admin.delete("v1", "Pod", "passes", pod["metadata"]["namespace"], grace_seconds=0)


async def test_every_static_pod_of_ours_has_its_mirror_pod(clients: Clients) -> None:
    inputs = inputs_of(a_cluster())
    [n1] = inputs.cluster.nodes
    manifests = [file.content for part in (node.static_pods, node.agent_pod) for file in part(inputs, n1).values()]
    manifests += [standby.revision(inputs, name).files[-1].content for name in standby.COMPONENTS]
    assert len(manifests) > 5
    for content in manifests:
        await clients.kubelet("w1").create(_mirror("ours", json.loads(content)["metadata"]["labels"]))
        await clients.admin.delete("v1", "Pod", "ours", "kube-system", grace_seconds=0)


@pytest.mark.parametrize("namespace", ["kube-system", "default"])
async def test_no_mirror_pod_keeps_pods_off_nodes(clients: Clients, namespace: str) -> None:
    """The scheduler heeds what a pod that runs does not want beside it, also on all nodes that are like its own."""
    alone: Object = {"labelSelector": {}, "topologyKey": "kubernetes.io/os"}
    for term in (alone, {**alone, "namespaceSelector": {}}, {**alone, "namespaces": ["default"]}):
        pod = _mirror("alone", {}, namespace)
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        assert await is_refused(clients.kubelet("w1").create(pod)), term
    wished = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": alone}]}
    pod["spec"]["affinity"] = {"podAntiAffinity": wished}
    await clients.kubelet("w1").create(pod)
    await clients.admin.delete("v1", "Pod", "alone", namespace, grace_seconds=0)


MANY = [first + second + third for first in LETTERS for second in LETTERS for third in LETTERS]
FULL: dict[str, dict[str, Any]] = {
    "annotations of three letters": {"annotations": dict.fromkeys((a + b for a in MANY for b in "123"), "")},
    "labels of three letters": {"labels": dict.fromkeys(MANY, "")},
    "more labels than one looks through": {"labels": dict.fromkeys(MANY[: guards.MOST + 1], "")},
    "keys as long as they may be": {"labels": {f"{'x' * 61}.{key}/{key}{'x' * 60}": "" for key in MANY[:2000]}},
}


@pytest.mark.parametrize("what", FULL)
@pytest.mark.parametrize("sub", [None, "status"])
async def test_no_node_has_so_much_written_on_it_that_nobody_can_write_to_it(
    clients: Clients, what: str, sub: str | None
) -> None:
    """What judging a write may cost is limited: beyond that it is refused, whoever's it is."""
    for client in (clients.kubelet("w1"), clients.flannel("w1"), clients.stranger()):
        assert await is_refused(_changes(client, "w1", sub=sub, **FULL[what]))
    await _cordons(clients)


@pytest.mark.parametrize("what", FULL)
async def test_a_node_that_is_full_is_written_to_all_the_same(clients: Clients, what: str) -> None:
    """Filled under an earlier release, or by an administrator."""
    admin, kubelet = clients.admin, clients.kubelet("w1")
    await _changes(admin, "w1", **FULL[what])
    await _cordons(clients)
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "x"}]}
    await kubelet.patch("v1", "Node", "w1", {"status": ready}, subresource="status")
    assert await is_refused(_changes(kubelet, "w1", annotations={"autarky.dev/slots": "x"}, labels={"a": "b"}))
    await _changes(admin, "w1", annotations={"a": "b"}, labels={"a": "b", CONTROL_PLANE_FACT: ""})
    [(part, values)] = FULL[what].items()
    await _changes(admin, "w1", **{part: dict.fromkeys(values)})
    await _changes(kubelet, "w1", annotations={"autarky.dev/slots": "x"})


@pytest.mark.parametrize("part", ["labels", "annotations"])
async def test_a_node_with_as_many_as_one_looks_through_is_judged_and_gets_no_more(clients: Clients, part: str) -> None:
    """With keys as long as they may be: looking through them costs less than is allowed."""
    prefix = ".".join("x" * 60 for _ in range(3))
    room = guards.MOST - len((await clients.admin.get("v1", "Node", "w1"))["metadata"].get(part, {}))
    keys = [f"{prefix}.{key}/{key}{'x' * 60}" for key in MANY[:room]]
    kubelet, forbidden = clients.kubelet("w1"), {"autarky.dev/new": "", CONTROL_PLANE_FACT: ""}
    await _changes(kubelet, "w1", **{part: dict.fromkeys(keys, "")})
    await _changes(kubelet, "w1", **{part: {keys[0]: "x"}})
    assert await is_refused(_changes(kubelet, "w1", **{part: {keys[0]: None, keys[1]: None, **forbidden}}))
    assert await is_refused(_changes(kubelet, "w1", **{part: {"one": "more"}}))
    await _changes(kubelet, "w1", **{part: {keys[0]: None, "another": "instead"}})


async def _cordons(clients: Clients) -> None:
    for unschedulable in (True, None):
        await clients.admin.patch("v1", "Node", "w1", {"spec": {"unschedulable": unschedulable}})


async def _is_refused_anew(clients: Clients, node: str) -> bool:
    """Whether the kubelet may not create its Node, which is absent."""
    if await is_refused(clients.kubelet(node).create(_node(node))):
        return True
    await clients.admin.delete("v1", "Node", node)
    return False


async def _is_allowed(write: Awaitable[Any]) -> bool:
    return not await is_refused(write)
