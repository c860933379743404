"""What a tenant's Service or pod may take, asked of a real API server: tenants have Kubernetes' own roles `edit` and
`admin`, and one has all rights over Services."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autarky.errors import ApiError
from autarky.kube import KubeClient
from autarky.model import ports
from autarky.ports import Object
from autarky.render import tenants
from autarky.render.policies import OPERATOR_USER
from contract.acting import acting, is_refused, until
from contract.servers import Server

pytestmark = pytest.mark.contract

_RBAC = "rbac.authorization.k8s.io"
_NODES = "192.0.2.11"
"""An address of a control node, as far as anybody can tell."""
_AGGREGATED = {"edit": ("view", "edit"), "admin": ("view", "edit", "admin")}
"""Of what the controller-manager, which does not run here, makes the roles for tenants."""
_TENANTS = [(user, f"system:aggregate-to-{role}") for user, roles in _AGGREGATED.items() for role in roles]
_CONTROLLERS = ("replicaset-controller", "daemon-set-controller", "job-controller")
"""They make the pods of what a tenant may make."""
_numbers = itertools.count(1)


class Actors:
    def __init__(self, server: Server) -> None:
        self.admin = server.kube()
        self.tenants = {name: acting(server, name) for name in ("edit", "admin")}
        self.services = acting(server, "services")
        """All rights over Services and their status, in the whole cluster, and no other."""
        self.operator = acting(server, OPERATOR_USER)
        self.controllers = [
            acting(server, f"system:serviceaccount:kube-system:{name}", "system:serviceaccounts:kube-system")
            for name in _CONTROLLERS
        ]

    async def close(self) -> None:
        for client in (self.admin, *self.tenants.values(), self.services, self.operator, *self.controllers):
            await client.close()


@pytest.fixture
async def actors(own_server: Server) -> AsyncIterator[Actors]:
    """The policies are in force."""
    actors = Actors(own_server)
    try:
        await _prepare(actors)
        yield actors
    finally:
        await actors.close()


async def _prepare(actors: Actors) -> None:
    services = {"apiGroups": [""], "resources": ["services", "services/status"], "verbs": ["*"]}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "services"}, "rules": [services]}
    bound = [*_TENANTS, ("services", "services"), (OPERATOR_USER, "services")]
    bindings = [_binding(number, user, name) for number, (user, name) in enumerate(bound)]
    for obj in (role, *bindings, *tenants.objects()):
        await actors.admin.apply(obj, manager="test")

    async def refuses() -> bool:
        return await is_refused(actors.services.create(_service(externalIPs=[_NODES]))) and await is_refused(
            actors.tenants["edit"].create(_pod({"hostPort": ports.NLLB_API}))
        )

    await until("the policies are in force", refuses)


def _binding(number: int, user: str, role: str) -> Object:
    """Of a tenant in its namespace only, as far as one can tell here: `default`."""
    whole = role == "services"
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding" if whole else "RoleBinding",
        "metadata": {"name": f"tenants-{number}", **({} if whole else {"namespace": "default"})},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
    }


def _service(name: str = "", **spec: Any) -> Object:
    metadata = {"name": name or f"s{next(_numbers)}", "namespace": "default"}
    ports = [{"name": "https", "port": 6443, "protocol": "TCP"}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports, **spec}}


async def _change(kube: KubeClient, name: str, **spec: Any) -> None:
    await kube.patch("v1", "Service", name, {"spec": spec}, namespace="default")


async def test_only_administrators_and_the_operator_give_a_service_an_external_address(actors: Actors) -> None:
    for client in (*actors.tenants.values(), actors.services):
        assert await is_refused(client.create(_service(externalIPs=[_NODES])))
        bare = _service()
        name = bare["metadata"]["name"]
        await client.create(bare)
        assert await is_refused(_change(client, name, externalIPs=[_NODES]))
        assert await is_refused(client.apply({**_service(name, externalIPs=[_NODES])}, manager="x"))
        await _change(client, name, selector={"a": "b"})
    for client in (actors.admin, actors.operator):
        await client.create(_service(externalIPs=[_NODES]))


async def test_a_service_that_has_an_address_is_changed_and_loses_it_by_anybody_and_gets_no_other(
    actors: Actors,
) -> None:
    there = _service(externalIPs=[_NODES, "192.0.2.12"])
    name = there["metadata"]["name"]
    await actors.admin.create(there)
    client = actors.tenants["edit"]
    await _change(client, name, selector={"a": "b"})
    assert await is_refused(_change(client, name, externalIPs=[_NODES, "192.0.2.12", "192.0.2.13"]))
    assert await is_refused(_change(client, name, externalIPs=["192.0.2.13"]))
    await _change(client, name, externalIPs=["192.0.2.12"])
    assert await is_refused(_change(client, name, externalIPs=[_NODES, "192.0.2.12"]))
    await _change(client, name, externalIPs=None)


async def test_no_role_for_tenants_writes_the_addresses_of_load_balancers(actors: Actors) -> None:
    """kube-proxy does with these what it does with external addresses, and no policy is asked."""
    balanced = _service(type="LoadBalancer")
    name = balanced["metadata"]["name"]
    await actors.tenants["admin"].create(balanced)
    taken = {"status": {"loadBalancer": {"ingress": [{"ip": _NODES}]}}}
    for client in actors.tenants.values():
        for sub in ("status", None):
            write = client.patch("v1", "Service", name, taken, namespace="default", subresource=sub)
            assert await is_refused(write) is (sub == "status")
    live = await actors.admin.get("v1", "Service", name, "default")
    assert live is not None
    assert not live["status"]["loadBalancer"]
    await actors.services.patch("v1", "Service", name, taken, namespace="default", subresource="status")


# --- ports of nodes -----------------------------------------------------------------------------------------


def _pod(*declared: Object, where: str = "containers", **spec: Any) -> Object:
    container: Object = {"name": "x", "image": "example.org/x:1"}
    with_ports: Object = {**container, "name": "y", "ports": [{"containerPort": 80, **port} for port in declared]}
    metadata = {"name": f"p{next(_numbers)}", "namespace": "default"}
    containers = {"containers": [container], "initContainers": [container | {"name": "z"}]}
    containers[where] = [*containers[where], with_ports]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**containers, **spec}}


async def test_no_pod_of_a_tenant_nor_one_that_a_controller_makes_for_it_takes_a_port_of_the_control_plane(
    actors: Actors,
) -> None:
    clients = itertools.cycle([*actors.tenants.values(), *actors.controllers])
    for port in sorted(ports.ON_HOSTS):
        for client in (next(clients), actors.controllers[0]):
            assert await is_refused(client.create(_pod({"hostPort": port}))), port


@pytest.mark.parametrize(
    "declared",
    [
        {"hostPort": ports.ETCD_HEALTH, "hostIP": "127.0.0.1"},
        {"hostPort": ports.FLANNEL_VXLAN, "protocol": "UDP"},
        {"hostPort": ports.KUBELET, "containerPort": ports.KUBELET, "name": "kubelet"},
    ],
    ids=str,
)
async def test_it_does_not_matter_how_the_port_is_declared(actors: Actors, declared: Object) -> None:
    harmless = {"hostPort": 8080}
    for where in ("containers", "initContainers"):
        for client in (actors.tenants["edit"], actors.controllers[0]):
            assert await is_refused(client.create(_pod(harmless, declared, where=where)))


async def test_no_pod_hides_a_port_behind_thousands_of_others(actors: Actors) -> None:
    """What an expression may cost is limited, and what fails is refused."""
    many = [{"hostPort": number} for number in range(30000, 50000)]
    assert await is_refused(actors.tenants["edit"].create(_pod(*many, {"hostPort": ports.NLLB_API})))


async def test_pods_with_other_ports_or_on_the_hosts_network_and_those_of_administrators_are_made(
    actors: Actors,
) -> None:
    tenant, own = actors.tenants["edit"], {"containerPort": ports.NLLB_API}
    hundreds = [{"containerPort": number, "hostPort": number} for number in range(30000, 30500)]
    for client in (tenant, actors.controllers[0]):
        await client.create(_pod())
        await client.create(_pod(own, {"hostPort": 443}, {"hostPort": 8443}))
        await client.create(_pod(*hundreds))
        await client.create(_pod({**own, "hostPort": ports.NLLB_API}, hostNetwork=True))
    await actors.admin.create(_pod({"hostPort": ports.NLLB_API}))


async def test_ephemeral_containers_have_no_ports(actors: Actors) -> None:
    """The API takes none: the policy need not be asked."""
    pod = _pod()
    name = pod["metadata"]["name"]
    await actors.admin.create(pod)
    added = {"name": "e", "image": "x", "ports": [{"containerPort": 80, "hostPort": ports.NLLB_API}]}
    body = {"spec": {"ephemeralContainers": [added]}}
    with pytest.raises(ApiError) as refused:
        await actors.admin.patch("v1", "Pod", name, body, namespace="default", subresource="ephemeralcontainers")
    assert refused.value.status == 422
