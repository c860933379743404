from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from autarky.kube import Lister
from contract.kube.guarded import Clients, guard, start_from_scratch, with_clients
from contract.servers import Server, running_api_server, running_etcd
from fakes.kube import FakeKube


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of one module only: for rights and policies that others would meet."""
    with (
        running_etcd(tmp_path_factory.mktemp("etcd")) as etcd,
        running_api_server(etcd, tmp_path_factory.mktemp("kube-apiserver")) as api,
    ):
        yield api


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.contract)])
def backend(request: pytest.FixtureRequest) -> Server | None:
    """A real API server, or None for the fake."""
    return request.getfixturevalue("api_server") if request.param == "real" else None


@pytest.fixture
async def kube(backend: Server | None) -> AsyncIterator[Lister]:
    client: Lister = backend.kube() if backend is not None else FakeKube()
    yield client
    await client.close()


@pytest.fixture
async def namespace(kube: Lister) -> str:
    """A namespace that nobody else uses."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture(scope="module")
def guarded(own_server: Server) -> Server:
    """The policies are in force, and everybody may write nearly all."""
    asyncio.run(with_clients(own_server, guard))
    return own_server


@pytest.fixture
async def clients(guarded: Server) -> AsyncIterator[Clients]:
    """Nodes n1 and w1 are there and in the inventory."""
    clients = Clients(guarded)
    try:
        await start_from_scratch(clients)
        yield clients
    finally:
        await clients.close()
