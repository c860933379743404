"""`up`, `status` and `doctor` get along with control nodes that a label has made: workers in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autarky import places
from autarky.model.files import File
from autarky.phases.context import Context
from autarky.phases.labelled import find_labelled
from autarky.phases.prepare import missing_leaves, write_leaves
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

CLUSTER = a_cluster(controls=1, workers=1)


async def test_one_of_an_earlier_release_gets_its_first_leaves_before_its_api_server_needs_them(
    make_context: Callable[..., Context],
):
    """Its agent knows nothing of them yet. What it has stays."""
    context = make_context(CLUSTER)
    host, node = context.host(CLUSTER.node("n2")), CLUSTER.node("n2")
    assert await missing_leaves(context, host, node) == []
    await host.write_files([File(places.CONTROL_NODE_STATE, b'{"state": "ready"}')])
    kept = File(f"{places.ETCD_PKI}/peer.crt", b"its own"), File(f"{places.ETCD_PKI}/peer.key", b"its own")
    await host.write_files(kept)
    missing = {file.path for file in await missing_leaves(context, host, node)}
    assert f"{places.LEAVES}/kube-apiserver/apiserver.key" in missing
    assert not missing & {file.path for file in kept}
    await write_leaves(host, await missing_leaves(context, host, node))
    assert await missing_leaves(context, host, node) == []


async def test_a_certificate_without_its_key_is_written_with_another_one(make_context: Callable[..., Context]):
    context = make_context(CLUSTER)
    host, node = context.host(CLUSTER.node("n1")), CLUSTER.node("n1")
    await write_leaves(host, await missing_leaves(context, host, node))
    await host.remove([f"{places.ETCD_PKI}/peer.key"])
    missing = [file.path for file in await missing_leaves(context, host, node)]
    assert missing == [f"{places.ETCD_PKI}/peer.key", f"{places.ETCD_PKI}/peer.crt", places.LEAVES_PLAN]


async def test_labelled_nodes_are_found_by_the_label(make_context: Callable[..., Context]):
    kube = FakeKube()
    for name in ("n1", "n2"):
        kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {CONTROL_PLANE_ACTIVE: ""}}})
    context = make_context(CLUSTER, kube=kube)
    await find_labelled(context, api=True)
    assert context.labelled == {"n2"}
    assert [node.name for node in context.control_nodes] == ["n1", "n2"]


@pytest.mark.parametrize(("state", "found"), [("ready", {"n2"}), ("joining", set()), ("leaving", set())])
async def test_without_the_api_they_are_found_on_their_disks(
    make_context: Callable[..., Context], state: str, found: set[str]
):
    context = make_context(CLUSTER)
    noted = File(places.CONTROL_NODE_STATE, f'{{"state": "{state}"}}'.encode())
    await context.host(CLUSTER.node("n2")).write_files([noted])
    await find_labelled(context, api=False)
    assert context.labelled == found


async def test_a_machine_that_is_off_says_nothing(make_context: Callable[..., Context]):
    context = make_context(CLUSTER)
    context.machines.hosts.pop("n2")  # type: ignore[attr-defined]
    await find_labelled(context, api=False)
    assert context.labelled == frozenset()


async def test_before_anything_is_known_the_control_nodes_are_those_of_the_file(make_context: Callable[..., Context]):
    context = make_context(replace(CLUSTER))
    assert [node.name for node in context.control_nodes] == ["n1"]
