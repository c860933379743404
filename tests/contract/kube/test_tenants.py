"""What a tenant's Service or pod may take, asked of a real API server: tenants have Kubernetes' own roles `edit` and
`admin`, and one has all rights over Services."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from autarky.control.guards import decide as refused
from autarky.control.guards.manifests import tenants
from autarky.control.guards.manifests.policies import BINDING, OPERATOR_USER
from autarky.errors import ApiError
from autarky.kube import KubeClient
from autarky.model import ports
from autarky.ports import Object
from autarky.render.pods import CLUSTER_CRITICAL, NODE_CRITICAL
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
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_numbers = itertools.count(1)


class Actors:
    def __init__(self, server: Server) -> None:
        self.admin = server.kube()
        self.tenants = {name: acting(server, name) for name in ("edit", "admin")}
        self.services = acting(server, "services")
        """All rights over Services and their status, in all of the cluster, and no other."""
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

    for what, write in _refused(actors).items():

        async def refuses(write: Callable[[], Awaitable[Any]] = write) -> bool:
            return await is_refused(write())

        await until(f"{what} is in force", refuses)


def _refused(actors: Actors) -> dict[str, Callable[[], Awaitable[Any]]]:
    """By each policy: the API server hears of each by itself. What is let through before harms no test."""
    edit, numbered = actors.tenants["edit"], {"annotations": {"a": str(next(_numbers))}}
    return {
        tenants.EXTERNAL: lambda: actors.services.create(_service(externalIPs=[_NODES])),
        refused.HOST_PORTS: lambda: edit.create(_pod({"hostPort": ports.NLLB_API})),
        refused.PRIORITIES: lambda: edit.create(_pod(priorityClassName=NODE_CRITICAL)),
        refused.ANTI_AFFINITY: lambda: edit.create(_pod(**_away([{**ALL, "namespaceSelector": {}}]))),
        tenants.API_SERVICE: lambda: edit.patch(
            "v1", "Service", "kubernetes", {"metadata": numbered}, namespace="default"
        ),
    }


def _binding(number: int, user: str, role: str) -> Object:
    """Of a tenant in its namespace only, as far as one can tell here: `default`."""
    complete = role == "services"
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding" if complete else "RoleBinding",
        "metadata": {"name": f"tenants-{number}", **({} if complete else {"namespace": "default"})},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
    }


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


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
    for trusted in (actors.admin, actors.operator):
        await trusted.create(_service(externalIPs=[_NODES]))


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
    own = _pod({"hostPort": ports.NLLB_API})
    assert await is_refused(actors.controllers[0].create(_in_kube_system(own))), "all namespaces, ours as well"


@pytest.mark.parametrize(
    "declared",
    [
        {"hostPort": ports.ETCD_HEALTH, "hostIP": "127.0.0.1"},
        {"hostPort": ports.POD_NETWORK_VXLAN, "protocol": "UDP"},
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


# --- what else leads to control nodes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [NODE_CRITICAL, CLUSTER_CRITICAL])
async def test_no_pod_outside_kube_system_is_as_important_as_the_control_plane(actors: Actors, name: str) -> None:
    """The kubelet evicts others for such a pod that is bound to its node."""
    bound = {"priorityClassName": name, "nodeName": "n1"}
    for client in (*actors.tenants.values(), *actors.controllers):
        assert await is_refused(client.create(_pod(**bound)))
    await actors.admin.create(_pod(**bound))
    own = _pod(priorityClassName=name)
    await actors.controllers[0].create(_in_kube_system(own))


async def test_pods_are_as_important_as_any_class_of_ones_own_makes_them(actors: Actors) -> None:
    highest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "highest"},
        "value": 1_000_000_000,
    }
    await actors.admin.apply(highest, manager="test")

    async def is_known() -> bool:
        return not await is_refused(actors.admin.create(_pod(priorityClassName="highest")))

    await until("the class is known", is_known)
    for client in (*actors.tenants.values(), *actors.controllers):
        await client.create(_pod(priorityClassName="highest"))


async def test_an_administrator_excepts_a_namespace_and_up_leaves_it_at_that(actors: Actors) -> None:
    """For add-ons whose pods have such a class and a namespace of their own."""
    metadata = {"name": "add-on"}
    await actors.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, manager="test")
    expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["add-on"]}
    excepted = {"spec": {"matchResources": {"namespaceSelector": {"matchExpressions": [expression]}}}}
    binding = next(obj for obj in tenants.objects() if obj["kind"] == BINDING and _name(obj) == refused.PRIORITIES)
    await actors.admin.patch(binding["apiVersion"], BINDING, refused.PRIORITIES, excepted)
    await actors.admin.apply(binding, manager="test")

    async def is_made() -> bool:
        pod = _pod(priorityClassName=NODE_CRITICAL)
        pod["metadata"]["namespace"] = "add-on"
        return not await is_refused(actors.controllers[1].create(pod))

    await until("the namespace is excepted", is_made)
    assert await is_refused(actors.controllers[1].create(_pod(priorityClassName=NODE_CRITICAL)))


ALL: Object = {"labelSelector": {}, "topologyKey": "kubernetes.io/os"}
KEEPS_AWAY: dict[str, list[Object]] = {
    "every pod": [{**ALL, "namespaceSelector": {}}],
    "those of namespaces with a label": [{**ALL, "namespaceSelector": {"matchLabels": {"a": "b"}}}],
    "those of a named namespace": [{**ALL, "namespaces": ["kube-system"]}],
    "its own and those of another": [{**ALL, "namespaces": ["default", "kube-system"]}],
    "by its last term": [ALL, ALL, {**ALL, "namespaceSelector": {}}],
    "by one of thousands": [*[ALL] * 10_000, {**ALL, "namespaceSelector": {}}],
}


@pytest.mark.parametrize("what", KEEPS_AWAY)
async def test_no_pod_keeps_those_of_other_namespaces_off_nodes(actors: Actors, what: str) -> None:
    """The scheduler asks the pods that are there as well: whom they do not want beside them goes nowhere."""
    spec = _away(KEEPS_AWAY[what])
    for client in (*actors.tenants.values(), *actors.controllers):
        assert await is_refused(client.create(_pod(**spec)))
    await actors.controllers[0].create(_in_kube_system(_pod(**spec)))
    await actors.admin.create(_pod(**spec))


async def test_pods_keep_those_of_their_own_namespace_away_and_prefer_what_they_like(actors: Actors) -> None:
    elsewhere = {**ALL, "namespaceSelector": {}}
    requested = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": elsewhere}]}
    spec: Object
    for spec in (
        _away([ALL, {**ALL, "namespaces": ["default"]}]),
        _away([ALL] * 500),
        {"affinity": {"podAntiAffinity": requested, "podAffinity": {_REQUIRED: [elsewhere], **requested}}},
        {"affinity": {}},
    ):
        for client in (actors.tenants["edit"], actors.controllers[0]):
            await client.create(_pod(**spec))


def _away(terms: list[Object]) -> Object:
    return {"affinity": {"podAntiAffinity": {_REQUIRED: terms}}}


def _in_kube_system(pod: Object) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "namespace": "kube-system"}}


# --- the Service of the API ---------------------------------------------------------------------------------

CHANGES: dict[str, Object] = {
    "the name of its port": {"spec": {"ports": [{"port": 443, "name": "other"}]}},
    "where its port leads": {"spec": {"ports": [{"port": 443, "targetPort": 1, "name": "https"}]}},
    "a selector": {"spec": {"selector": {"a": "b"}}},
    "a policy of traffic": {"spec": {"internalTrafficPolicy": "Local"}},
    "its kind": {"spec": {"type": "NodePort"}},
    "no proxy": {"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": "x"}}},
    "an annotation": {"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.org/x"]}},
}


@pytest.mark.parametrize("what", CHANGES)
async def test_nobody_else_changes_the_service_of_the_api(actors: Actors, what: str) -> None:
    """By default/kubernetes all pods find the API."""
    for client in (*actors.tenants.values(), actors.services):
        assert await is_refused(client.patch("v1", "Service", "kubernetes", CHANGES[what], namespace="default"))


async def test_nobody_else_takes_the_service_of_the_api_away_and_the_api_server_makes_it_again(actors: Actors) -> None:
    for client in (*actors.tenants.values(), actors.services):
        assert await is_refused(client.delete("v1", "Service", "kubernetes", "default"))
        assert await is_refused(client.delete_all("v1", "Service", "default"))
    there = await actors.admin.get("v1", "Service", "kubernetes", "default")
    assert there is not None
    assert "deletionTimestamp" not in there["metadata"]
    await actors.admin.delete("v1", "Service", "kubernetes", "default")
    for client in (*actors.tenants.values(), actors.services):
        assert await is_refused(client.create(_service("kubernetes")))

    async def is_back() -> bool:
        return await actors.admin.get("v1", "Service", "kubernetes", "default") is not None

    await until("the API server has made it again", is_back)


async def test_the_service_of_the_api_is_written_as_it_is_by_whoever_may_and_changed_by_administrators(
    actors: Actors,
) -> None:
    """The same: so that everything is stored again, in another version."""
    live = await actors.admin.get("v1", "Service", "kubernetes", "default")
    assert live is not None
    await actors.tenants["edit"].replace(live)
    for labels in ({"a": "b"}, {"a": None}):
        await actors.admin.patch("v1", "Service", "kubernetes", {"metadata": {"labels": labels}}, namespace="default")
    named = _service("kubernetes")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    await actors.admin.apply(namespace, manager="test")
    named["metadata"]["namespace"] = "other"
    await actors.services.create(named)
    await actors.services.delete("v1", "Service", "kubernetes", "other")
