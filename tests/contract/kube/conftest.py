from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from autarky.kube import Lister
from contract.servers import Server
from fakes.kube import FakeKube


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
