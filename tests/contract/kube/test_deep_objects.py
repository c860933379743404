"""What lies deep in an object that somebody wrote, asked of a real API server: it takes it, and it blinds nobody."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from autarky.clock import SystemClock
from autarky.kube import KubeClient, Reflector
from autarky.net.http import Answer, Request
from autarky.ports import Object
from contract.kube.guarded import Clients, changes

pytestmark = pytest.mark.contract

DEEP = 1500
"""More than Python allows calls."""
_HERE = "@here@"


def nested(levels: int) -> str:
    return '{"f:a":' * levels + "{}" + "}" * levels


async def writes_deep(kube: KubeClient, node: Object, levels: int) -> Answer:
    """Its Node, with one more manager of its fields. Its body is put together as text, too deep for json.dumps."""
    entry = {
        "manager": "intruder",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": _HERE}},
    }
    meta = {**node["metadata"], "managedFields": [*node["metadata"]["managedFields"], entry]}
    body = json.dumps({**node, "metadata": meta}).replace(json.dumps(_HERE), nested(levels)).encode()
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    return await kube._call(Request("PUT", path, {}, {"content-type": "application/json"}, body))


def managers(node: Object) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in node["metadata"]["managedFields"]}


async def heard_of(kube: KubeClient, since: str) -> list[Object]:
    """Nodes of the events from that version to the first one of n1."""
    found: list[Object] = []
    watch = kube.watch("v1", "Node", resource_version=since)
    async with asyncio.timeout(60), aclosing(watch) as events:
        async for event in events:
            if event.type != "BOOKMARK":
                found.append(event.object)
                if event.object["metadata"]["name"] == "n1":
                    break
    return found


async def test_a_node_that_is_nested_without_end_is_listed_watched_and_written_as_others_are(clients: Clients) -> None:
    admin = clients.admin
    before = await admin.list_at("v1", "Node")
    changed = asyncio.Event()
    copy = Reflector(admin, SystemClock(), "v1", "Node", on_change=changed.set)
    following = asyncio.create_task(copy.run())
    own = next(node for node in before.items if node["metadata"]["name"] == "w1")
    answer = await writes_deep(clients.kubelet("w1"), own, DEEP)
    assert answer.status == 200, answer.body[:500]
    assert nested(DEEP - 1) in answer.body.decode(), "the server keeps all of it"
    await changes(admin, "n1", sub=None, annotations={"example.org/seen": "x"})

    listed = {node["metadata"]["name"]: node for node in await admin.list("v1", "Node")}
    got = await admin.get("v1", "Node", "w1")
    watched = {node["metadata"]["name"]: node for node in await heard_of(admin, before.resource_version)}
    assert got is not None
    for found in (listed["w1"], got, watched["w1"]):
        assert managers(found).keys() == managers(own).keys() | {"intruder"}
        assert managers(found)["intruder"]["f:metadata"]["f:annotations"]["f:a"]["f:a"]
        assert found["metadata"]["uid"] == own["metadata"]["uid"]
    assert watched["n1"]["metadata"]["annotations"]["example.org/seen"] == "x"
    await _until_it_shows(copy, changed)
    assert not following.done()
    following.cancel()
    await changes(admin, "w1", sub=None, annotations={"example.org/seen": "x"})
    cut = await admin.get("v1", "Node", "w1")
    assert cut is not None
    written = await admin.replace({**cut, "spec": {"unschedulable": True}})  # it is taken with what was cut
    assert written["spec"]["unschedulable"]

    put_back = await changes(admin, "w1", sub=None, managedFields=own["metadata"]["managedFields"])
    assert "intruder" not in managers(put_back)


async def _until_it_shows(copy: Reflector, changed: asyncio.Event) -> None:
    async with asyncio.timeout(60):
        while "example.org/seen" not in _annotations(copy, "n1"):
            await changed.wait()
            changed.clear()
    assert {"n1", "w1"} <= {name for _, name in copy.items}
    assert copy.error is None


def _annotations(copy: Reflector, node: str) -> Object:
    found: Object = copy.items.get((None, node), {"metadata": {}})["metadata"].get("annotations") or {}
    return found
