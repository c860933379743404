"""Who writes under a name that autarky believes, asked of a real API server: `anna` has all rights over ConfigMaps and
Secrets in kube-system, and so has the account of an add-on there."""

from __future__ import annotations

import base64
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autarky.control.agents.manifests import operator
from autarky.control.agents.manifests.operator import retired_name
from autarky.control.control_nodes.decide.observed import Record, State
from autarky.control.control_nodes.manifests import RECORD
from autarky.control.control_nodes.operator import record as node_record
from autarky.control.guards.manifests import reserved
from autarky.control.guards.manifests.policies import OPERATOR_USER
from autarky.control.levels import act as hosting
from autarky.control.rollout.decide.failures import Record as Revisions
from autarky.control.rollout.manifests import secret_name
from autarky.control.rollout.operator import last_good
from autarky.ports import Object
from autarky.render.objects import parts
from autarky.render.values import SYSTEM, is_ours
from contract.acting import acting, is_refused, until
from contract.servers import Server
from fakes.clusters import a_cluster, inputs_of

pytestmark = pytest.mark.contract

_RBAC = "rbac.authorization.k8s.io"
_RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_ACCOUNTS = f"system:serviceaccounts:{SYSTEM}"
_ADD_ON = f"system:serviceaccount:{SYSTEM}:add-on"
_PUBLISHER = f"system:serviceaccount:{SYSTEM}:root-ca-cert-publisher"
_OURS = (
    "autarky-retired-kube-apiserver",
    "autarky-last-good-kube-scheduler",
    "autarky-control-nodes",
    "autarky-whatever-comes",
    "etcd-member-template",
    "kube-apiserver-0123456789",
    "kube-proxy-abcdefabcd",
)
_OTHERS = ("kube-proxy", "coredns-custom", "of-autarky", "kube-apiserver-audit")
_numbers = itertools.count(1)
SCHEDULER = "kube-scheduler"


class Actors:
    def __init__(self, server: Server) -> None:
        self.admin = server.kube()
        self.anna = acting(server, "anna")
        self.add_on = acting(server, _ADD_ON, _ACCOUNTS)
        self.operator = acting(server, OPERATOR_USER, _ACCOUNTS)
        self.publisher = acting(server, _PUBLISHER, _ACCOUNTS)
        """Of the controller-manager's controllers the one whose name it is, with more rights than it has by itself."""

    async def close(self) -> None:
        for client in (self.admin, self.anna, self.add_on, self.operator, self.publisher):
            await client.close()


@pytest.fixture
async def actors(own_server: Server) -> AsyncIterator[Actors]:
    """The policy is in force, and the operator has its rights and no others."""
    actors = Actors(own_server)
    try:
        await _prepare(actors)
        yield actors
    finally:
        await actors.close()


async def _prepare(actors: Actors) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]}]
    meta = {"name": "writers", "namespace": SYSTEM}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "writers"},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": name} for name in ("anna", _ADD_ON, _PUBLISHER)],
    }
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules}
    rights = [obj for obj in operator.objects(inputs_of(a_cluster())) if obj["kind"] in _RIGHTS]
    for obj in (role, binding, *rights, *reserved.objects()):
        await actors.admin.apply(obj, manager="test")

    async def refuses() -> bool:
        return await is_refused(actors.anna.create(_config_map(f"autarky-tried-{next(_numbers)}")))

    await until("the policy is in force", refuses)


def _config_map(name: str, **fields: Any) -> Object:
    meta = {"name": name, "namespace": fields.pop("namespace", SYSTEM)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b"}, **fields}


def _secret(name: str, **fields: Any) -> Object:
    return {**_config_map(name), "kind": "Secret", "data": {"a": base64.b64encode(b"b").decode()}, **fields}


async def _gone(actors: Actors, obj: Object) -> None:
    await actors.admin.delete("v1", obj["kind"], obj["metadata"]["name"], obj["metadata"]["namespace"])


async def test_nobody_makes_what_has_a_name_of_ours_but_administrators_and_the_operator(actors: Actors) -> None:
    for name, make in itertools.product(_OURS, (_config_map, _secret)):
        obj = make(name)
        for client in (actors.anna, actors.add_on):
            assert await is_refused(client.create(obj)), name
            assert await is_refused(client.apply(obj, manager="x")), name
        for trusted in (actors.admin, actors.operator):
            await trusted.create(obj)
            await _gone(actors, obj)


async def test_a_name_that_the_server_completes_is_looked_at_when_it_is_complete(actors: Actors) -> None:
    for prefix in ("autarky-retired-", "autarky-"):
        obj = _config_map("x")
        obj["metadata"] = {"generateName": prefix, "namespace": SYSTEM}
        assert await is_refused(actors.anna.create(obj))


async def test_other_names_and_other_namespaces_are_everybodys(actors: Actors) -> None:
    for name, make, client in itertools.product(_OTHERS, (_config_map, _secret), (actors.anna, actors.add_on)):
        obj = make(name)
        await client.create(obj)
        await client.patch("v1", obj["kind"], name, {"metadata": {"labels": {"c": "d"}}}, namespace=SYSTEM)
        await _gone(actors, obj)
    elsewhere = _config_map("autarky-retired-kube-apiserver", namespace="default")
    await actors.admin.create(elsewhere)
    await _gone(actors, elsewhere)


CHANGES: dict[str, Object] = {
    "data": {"data": {"a": "Yw=="}},
    "more data": {"data": {"c": "Yw=="}},
    "freezing it": {"immutable": True},
    "no label": {"metadata": {"labels": None}},
    "an annotation": {"metadata": {"annotations": {"a": "b"}}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}},
    "a finalizer": {"metadata": {"finalizers": ["example.org/x"]}},
}


@pytest.mark.parametrize("make", [_config_map, _secret])
async def test_nobody_else_changes_what_is_there_but_whoever_may_write_may_write_the_same(
    actors: Actors, make: Any
) -> None:
    """The same: so that everything is stored again, encrypted by another key."""
    name = "autarky-there"
    obj = make(name)
    obj["metadata"]["labels"] = {"a": "b"}
    await actors.admin.create(obj)
    for what, change in CHANGES.items():
        for client in (actors.anna, actors.add_on):
            write = client.patch("v1", obj["kind"], name, change, namespace=SYSTEM)
            assert await is_refused(write), what
    live = await actors.admin.get("v1", obj["kind"], name, SYSTEM)
    assert live is not None
    for client in (actors.anna, actors.add_on):
        await client.replace(live)
        await client.patch("v1", obj["kind"], name, {}, namespace=SYSTEM)
    await _gone(actors, obj)


# --- the CA that pods believe --------------------------------------------------------------------------------


async def test_nobody_but_its_publisher_says_which_ca_the_pods_of_kube_system_believe(actors: Actors) -> None:
    """With another one, operator, flannel and cluster DNS would not start; an immutable one nobody could put right."""
    name = "kube-root-ca.crt"
    for client in (actors.anna, actors.add_on):
        assert await is_refused(client.create(_config_map(name)))
    obj = _config_map(name, data={"ca.crt": "x"})
    obj["metadata"] |= {"annotations": {"kubernetes.io/description": "x"}, "labels": {"a": "b"}}
    await actors.publisher.create(obj)
    for change in CHANGES.values():
        for client in (actors.anna, actors.add_on):
            assert await is_refused(client.patch("v1", "ConfigMap", name, change, namespace=SYSTEM))
    live = await actors.admin.get("v1", "ConfigMap", name, SYSTEM)
    assert live is not None
    await actors.anna.replace(live)
    await actors.publisher.replace({**live, "data": {"ca.crt": "y"}})
    await actors.admin.patch("v1", "ConfigMap", name, {"data": {"ca.crt": "x"}}, namespace=SYSTEM)
    await _gone(actors, obj)


async def test_the_publisher_puts_right_what_was_changed_before_there_was_a_policy(actors: Actors) -> None:
    obj = _config_map("kube-root-ca.crt", data={"ca.crt": "a stranger's"})
    await actors.admin.create(obj)
    live = await actors.admin.get("v1", "ConfigMap", "kube-root-ca.crt", SYSTEM)
    assert live is not None
    annotations = {"kubernetes.io/description": "x"}
    await actors.publisher.replace(
        {**live, "data": {"ca.crt": "x"}, "metadata": {**live["metadata"], "annotations": annotations}}
    )
    await _gone(actors, obj)


async def test_the_publisher_writes_under_no_other_name_of_ours(actors: Actors) -> None:
    for name, make in itertools.product(_OURS, (_config_map, _secret)):
        assert await is_refused(actors.publisher.create(make(name))), name
    assert await is_refused(actors.publisher.create(_secret("kube-root-ca.crt")))


async def test_kube_root_ca_in_other_namespaces_is_everybodys_as_ever(actors: Actors) -> None:
    elsewhere = _config_map("kube-root-ca.crt", namespace="default")
    for client in (actors.publisher, actors.admin):
        await client.create(elsewhere)
        await _gone(actors, elsewhere)


# --- the operator, where a stranger was first ---------------------------------------------------------------


@pytest.mark.parametrize("immutable", [False, True])
async def test_the_operator_believes_nothing_that_a_stranger_has_put_there_and_overwrites_it(
    actors: Actors, immutable: bool
) -> None:
    """In a cluster of an earlier release, which had no such policy."""
    kube = actors.operator
    for obj in (_config_map(retired_name(SCHEDULER)), _config_map(RECORD), _secret(secret_name(SCHEDULER))):
        await actors.admin.create({**obj, "immutable": immutable})
    workload, budget = _scheduler()
    for obj in (workload, budget):
        await actors.admin.create(obj)
    assert not await hosting.bring_back(kube, SCHEDULER)
    assert await last_good.load(kube, SCHEDULER) == last_good.LastGood()
    await hosting.retire(kube, SCHEDULER)
    assert await actors.admin.get(workload["apiVersion"], workload["kind"], SCHEDULER, SYSTEM) is None
    kept = await actors.admin.get("v1", "ConfigMap", retired_name(SCHEDULER), SYSTEM)
    assert kept is not None
    assert is_ours(kept)
    assert await hosting.bring_back(kube, SCHEDULER)
    good = last_good.LastGood(Revisions("1"), {"spec": {"containers": []}})
    for _ in range(2):
        await last_good.save(kube, SCHEDULER, good)
        assert await last_good.load(kube, SCHEDULER) == good
        await node_record.remember(kube, "n1", Record("5b2f1c0e", State("made")))
    noted = await actors.admin.get("v1", "ConfigMap", RECORD, SYSTEM)
    assert noted is not None
    assert set(noted["data"]) == {"n1"}
    for obj in (workload, budget, _config_map(RECORD), _secret(secret_name(SCHEDULER))):
        meta = obj["metadata"]
        await actors.admin.delete(obj["apiVersion"], obj["kind"], meta["name"], meta["namespace"])


def _scheduler() -> tuple[Object, Object]:
    rendered = [obj for part in parts(inputs_of(a_cluster())) for obj in part.objects]
    named = {obj["kind"]: obj for obj in rendered if obj["metadata"]["name"] == SCHEDULER}
    return named["Deployment"], named["PodDisruptionBudget"]
