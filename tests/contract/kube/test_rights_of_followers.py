"""Who may read what the standbys of level 3 are made of, as a real API server's RBAC judges it."""

from __future__ import annotations

import asyncio
import time

import pytest

from autarky.control.control_nodes.manifests import standby_rights
from autarky.kube import Lister
from autarky.render.values import SYSTEM
from contract.servers import Server

pytestmark = pytest.mark.contract
MANAGER = "autarky-test"


@pytest.fixture
def backend(api_server: Server) -> Server:
    """Only the real one: what it lets through is what this is about."""
    return api_server


async def may_read(kube: Lister, node: str, resource: str, name: str, group: str = "") -> bool:
    attributes = {"namespace": SYSTEM, "verb": "get", "group": group, "resource": resource, "name": name}
    user = {"user": f"system:node:{node}", "groups": ["system:nodes", "system:authenticated"]}
    answer = await kube.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": attributes, **user},
        }
    )
    return bool(answer["status"]["allowed"])


async def becomes(wanted: bool, kube: Lister, *asked: str) -> bool:
    """RBAC follows its own watches."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if await may_read(kube, *asked) is wanted:
            return True
        await asyncio.sleep(0.2)
    return False


async def give(kube: Lister, *nodes: str, secret: str) -> None:
    for obj in standby_rights(nodes, [secret], ["policy"]):
        await kube.apply(obj, manager=MANAGER)


async def test_exactly_the_control_nodes_may_read_exactly_what_is_named_and_lose_it_again(kube):
    await give(kube, "n1", "n2", secret="one")
    assert await becomes(True, kube, "n2", "secrets", "one")
    assert await may_read(kube, "n1", "configmaps", "policy")
    assert await may_read(kube, "n1", "deployments", "kube-scheduler", "apps")
    assert not await may_read(kube, "w1", "secrets", "one")
    assert not await may_read(kube, "n1", "secrets", "another")
    assert not await may_read(kube, "n1", "deployments", "coredns", "apps")
    await give(kube, "n1", secret="two")
    assert await becomes(False, kube, "n2", "secrets", "one")
    assert await becomes(True, kube, "n1", "secrets", "two")
    assert not await may_read(kube, "n1", "secrets", "one")
    await give(kube, secret="two")
    assert await becomes(False, kube, "n1", "secrets", "two")
