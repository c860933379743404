"""A real API server where our policies about nodes are in force, and clients in the name of all whom they are about."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

from autarky.control.addons.flannel import policies
from autarky.control.addons.flannel.policies import PUBLIC_IP, TUNNEL, USER
from autarky.control.guards.manifests import nodes as guards
from autarky.control.guards.manifests.policies import OPERATOR_USER
from autarky.kube import KubeClient
from autarky.ports import Object
from autarky.render.access import inventory_with
from autarky.render.values import CONTROL_PLANE_ACTIVE
from contract.acting import acting, is_refused, until
from contract.servers import Server

_RBAC = "rbac.authorization.k8s.io"
ADDRESSES = {"n1": "10.0.0.1", "w1": "10.0.0.4"}
MAC = '{"VNI":1,"VtepMAC":"96:0a:00:00:00:%02x"}'


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
        return self._as(USER, "system:serviceaccounts:kube-system", node)

    def operator(self) -> KubeClient:
        return self._as(OPERATOR_USER, "system:serviceaccounts:kube-system")

    def stranger(self) -> KubeClient:
        """Of kube-system, with every right but that over the control plane."""
        return self._as("system:serviceaccount:kube-system:stranger", "system:serviceaccounts:kube-system")

    async def close(self) -> None:
        for client in self._made.values():
            await client.close()


async def with_clients(server: Server, do: Callable[[Clients], Awaitable[None]]) -> None:
    clients = Clients(server)
    try:
        await do(clients)
    finally:
        await clients.close()


async def start_from_scratch(clients: Clients) -> None:
    await clients.admin.apply(inventory_with(the_inventory()), manager="test")
    for name in (*ADDRESSES, "w2"):
        await clients.admin.delete("v1", "Node", name)
    for number, name in enumerate(ADDRESSES):
        await clients.admin.create(a_node(name, annotations={TUNNEL: MAC % number}))
    await _until_they_are_in_force(clients)


async def guard(clients: Clients) -> None:
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
    for obj in (role, binding, *guards.objects(), *policies.objects()):
        await admin.apply(obj, manager="test")


def the_inventory() -> dict[str, str]:
    return {name: json.dumps({"addresses": [address]}) for name, address in ADDRESSES.items()}


def a_node(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


async def _until_they_are_in_force(clients: Clients) -> None:
    """The policies, and what they compare with: the API server hears of both by watches of its own."""
    stranger, numbers = clients.stranger(), itertools.count(1)
    tries: dict[str, Callable[[], Awaitable[Any]]] = {
        guards.ORDERS: lambda: changes(stranger, "n1", labels={CONTROL_PLANE_ACTIVE: f"x{next(numbers)}"}),
        policies.REPORT: lambda: changes(clients.flannel("n1"), "w1", annotations={PUBLIC_IP: None}),
        policies.ADDRESSES: lambda: changes(stranger, "n1", annotations={PUBLIC_IP: f"10.9.0.{next(numbers)}"}),
        policies.TUNNELS: lambda: changes(stranger, "w1", annotations={TUNNEL: MAC % 0}),
        guards.TOKENS: lambda: stranger.create(a_token("aaaaaa")),
        guards.NODES: lambda: clients.kubelet("w9").create(a_node("w9")),
        guards.MIRRORS: lambda: clients.kubelet("w1").create(a_mirror("tried", {"k8s-app": "kube-dns"})),
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
    await changes(clients.admin, "n1", labels={CONTROL_PLANE_ACTIVE: None}, annotations={PUBLIC_IP: None})
    await changes(clients.admin, "w1", annotations={TUNNEL: MAC % 1})
    await clients.admin.delete("v1", "Secret", "bootstrap-token-aaaaaa", "kube-system")
    await clients.admin.delete("v1", "Node", "w9")
    await clients.admin.delete("v1", "Pod", "tried", "kube-system", grace_seconds=0)


def changes(kube: KubeClient, node: str, *, sub: Any = "status", **metadata: Any) -> Any:
    return kube.patch("v1", "Node", node, {"metadata": metadata}, subresource=sub)


def a_token(identity: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"bootstrap-token-{identity}", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": identity, "token-secret": "0123456789abcdef"},
    }


def a_mirror(name: str, labels: dict[str, str], namespace: str = "kube-system") -> Object:
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
