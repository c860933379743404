"""How a real API server names the keys of its objects: what `autarky restore` says of a loss is read from them."""

from __future__ import annotations

import asyncio
import uuid
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator

import pytest

from autarky.control.backup.decide.loss import ALIVE, FLEETING, PREFIX, kind_of
from autarky.etcd import EtcdClient
from autarky.kube import KubeClient
from autarky.ports import Object
from contract.kube.objects import config_map, defined, deployment
from contract.servers import Server

pytestmark = pytest.mark.contract


@pytest.fixture
async def kube(api_server: Server) -> AsyncIterator[KubeClient]:
    client = api_server.kube()
    yield client
    await client.close()


def of(api_version: str, kind: str, name: str, namespace: str | None = None, **content: object) -> Object:
    meta = {"name": name, **({} if namespace is None else {"namespace": namespace})}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **content}


async def keys_in(etcd: EtcdClient) -> list[str]:
    """Those of all objects."""
    first, last = PREFIX.encode(), PREFIX[:-1].encode() + bytes([ord(PREFIX[-1]) + 1])
    wanted = {"key": b64encode(first).decode(), "range_end": b64encode(last).decode(), "keys_only": True}
    return [b64decode(found["key"]).decode() for found in (await etcd._read("/v3/kv/range", wanted)).get("kvs", ())]


async def test_each_key_is_read_as_the_kind_and_the_name_of_its_object(kube: KubeClient, etcd_server: Server) -> None:
    name = f"k-{uuid.uuid4().hex[:8]}"
    gadgets = await defined(kube)
    about = {"involvedObject": {"kind": "Pod", "namespace": name, "name": "x"}}
    slice_ = {"addressType": "IPv4", "endpoints": [], "ports": []}
    objects = {
        "namespaces": of("v1", "Namespace", name),
        "nodes": of("v1", "Node", name),
        "configmaps": config_map(name, name),
        "services": of("v1", "Service", name, name, spec={"ports": [{"port": 80}]}),
        "endpoints": of("v1", "Endpoints", name, name),
        "endpointslices": of("discovery.k8s.io/v1", "EndpointSlice", name, name, **slice_),
        "leases": of("coordination.k8s.io/v1", "Lease", name, name),
        "events": of("v1", "Event", name, name, **about),
        "deployments": deployment(name, name),
        f"gadgets.{gadgets.partition('/')[0]}": of(gadgets, "Gadget", name, name, spec={}),
    }
    for obj in objects.values():
        await kube.create(obj)
    etcd = etcd_server.etcd()
    keys = await keys_in(etcd)
    await etcd.close()
    await kube.delete("v1", "Node", name)  # others count Nodes
    found = dict(kind_of(key) for key in keys if name in key and "kube-root-ca" not in key)
    cluster_wide = {"namespaces", "nodes"}
    assert found == {kind: name if kind in cluster_wide else f"{name}/{name}" for kind in objects}
    assert {"endpoints", "endpointslices", "leases", "events"} <= FLEETING
    assert "nodes" in ALIVE


async def test_the_api_server_writes_its_own_keys_all_the_time_and_none_of_them_is_listed_as_a_loss(
    etcd_server: Server, api_server: Server
) -> None:
    """Its identity: the only lease that is there without any other component."""
    etcd = etcd_server.etcd()
    own: set[str] = set()
    async with asyncio.timeout(30):
        while not own:
            keys = await keys_in(etcd)
            own = {kind_of(key)[0] for key in keys if "/apiserver-" in key}
    await etcd.close()
    assert own <= FLEETING
