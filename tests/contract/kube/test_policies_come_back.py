"""The operator by its own rights: it puts back every policy that was deleted, and reads what it watches, and nothing
that it need not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from autarky.clock import SystemClock
from autarky.control.addons import flannel
from autarky.control.agents.manifests import operator
from autarky.control.backup.manifests import definitions as backups
from autarky.control.base.operator_view import View, current
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.guards.manifests import all as admission
from autarky.control.guards.manifests.policies import BINDING, OPERATOR_USER, POLICY
from autarky.control.guards.operator import Guards
from autarky.control.upgrade.decide.checks_of_apis import METRICS
from autarky.control.upgrade.observe import observe
from autarky.errors import ApiError
from autarky.kube import KubeClient
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render import access, crds
from contract.acting import acting, is_refused, until
from contract.servers import Server
from fakes.clusters import a_cluster, inputs_of

pytestmark = pytest.mark.contract
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@pytest.fixture
async def admin(own_server: Server) -> AsyncIterator[KubeClient]:
    client = own_server.kube()
    for obj in operator.objects(inputs_of(a_cluster())):
        if obj["kind"] in RIGHTS:
            await client.apply(obj, manager="test")
    await client.apply(access.inventory_with({}), manager="test")
    yield client
    await client.close()


@pytest.fixture
async def as_operator(own_server: Server, admin: KubeClient) -> AsyncIterator[KubeClient]:
    client = acting(own_server, OPERATOR_USER, "system:serviceaccounts:kube-system")
    yield client
    await client.close()


def _names(objects: list[Object], kind: str) -> set[str]:
    return {obj["metadata"]["name"] for obj in objects if obj["kind"] == kind}


async def test_the_operator_makes_every_policy_and_binding_again(admin: KubeClient, as_operator: KubeClient) -> None:
    wanted = admission.objects()
    view = View(as_operator, SystemClock(), lambda: None, print)
    said: list[str] = []
    [network] = [obj for obj in flannel.ADD_ON.objects(inputs_of(a_cluster())) if obj["kind"] == "DaemonSet"]
    await admin.apply(network, manager="test")
    duty = Guards(lambda sentence, **_: said.append(sentence), view, as_operator)

    async def all_are_there() -> bool:
        try:
            await duty.reconcile()
        except ApiError as error:  # RBAC follows its own watches; by the end nothing is refused
            said.append(str(error))
        there = [await admin.get(obj["apiVersion"], obj["kind"], obj["metadata"]["name"]) for obj in wanted]
        return all(there)

    watching = [asyncio.create_task(source.run()) for source in (view.policies, view.policy_bindings, view.daemon_sets)]
    try:
        await until("every policy and binding is there", all_are_there)
        for obj in wanted:
            await admin.delete(obj["apiVersion"], obj["kind"], obj["metadata"]["name"])
        await until("they are there again", all_are_there)
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    assert _names(wanted, POLICY) == _names(wanted, BINDING), said


async def test_what_the_operator_needs_for_it_reads_no_config_map(admin: KubeClient, as_operator: KubeClient) -> None:
    await admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}})

    async def has_its_rights() -> bool:
        return not await is_refused(as_operator.get("v1", "ConfigMap", access.INVENTORY, "kube-system"))

    await until("the operator has its rights", has_its_rights)
    assert await is_refused(as_operator.get("v1", "ConfigMap", "x", "default"))
    assert await is_refused(as_operator.list("v1", "ConfigMap", namespace="default"))
    assert await is_refused(as_operator.list("v1", "ConfigMap"))


async def test_the_operator_may_list_and_watch_every_one_of_its_sources(
    admin: KubeClient, as_operator: KubeClient
) -> None:
    for definition in (crds.control_plane_crd(), etcd_members.crd(), *backups.objects()):
        await admin.apply(definition, manager="test")
    view = View(as_operator, SystemClock(), lambda: None, print)
    watching = asyncio.create_task(view.run())

    async def all_are_current() -> bool:
        return current(view.sources)

    try:
        await until("every source is current", all_are_current)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_the_operator_may_look_at_all_that_is_checked_before_an_upgrade(
    admin: KubeClient, as_operator: KubeClient
) -> None:
    """Also behind webhooks, of which there is one, and what the metrics say of a request that is made here."""
    await admin.apply(crds.control_plane_crd(), manager="test")
    gate = {"namespace": "default", "name": "no-such-gate"}
    hook = {
        "name": "a.gate.example",
        "clientConfig": {"service": gate},
        "rules": [{"apiGroups": ["gate.example"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gate"},
        "webhooks": [hook],
    }
    await admin.apply(configuration, manager="test")
    await admin.list("v1", "Endpoints")  # deprecated, and never removed

    async def all_is_seen() -> bool:
        seen = await observe(as_operator, Version(1, 36, 4), Version(1, 37, 1))
        assert "endpoints" not in [one.resource for one in seen.requested]
        return not seen.unseen and dict(seen.services) == {("default", "no-such-gate"): "does not exist"}

    try:
        await until("everything is seen", all_is_seen)
        lines = await as_operator.lines("/metrics", METRICS)
        assert any(line.startswith(METRICS[0]) and 'resource="endpoints"' in line for line in lines), lines
        assert any(line.startswith('apiserver_resource_objects{group="",resource="namespaces"} ') for line in lines)
    finally:
        await admin.delete(configuration["apiVersion"], configuration["kind"], "gate")  # type: ignore[arg-type]
