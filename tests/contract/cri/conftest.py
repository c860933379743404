"""A node whose runtime is asked: once the fake, once a real containerd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Protocol

import pytest

from autarky.cri.client import CriClient
from autarky.ports import Cri
from contract.cri.containerd import SMALL, Containerd, running_containerd
from contract.cri.making import Maker
from fakes.cri import FakeCri


class Node(Protocol):
    """What a test does to the node. It has two images: `pause` (pinned) and SMALL (not)."""

    cri: Cri
    pause: str

    async def run_sandbox(self, name: str, uid: str = "uid", *, attempt: int = 0) -> str:
        """A pod of the namespace `tests`."""
        ...

    async def create_container(self, sandbox_id: str, name: str, *, attempt: int = 0) -> str: ...

    async def start_container(self, container_id: str) -> None: ...

    async def kill_container(self, container_id: str) -> None: ...

    async def pin(self, reference: str) -> None: ...

    async def stop_runtime(self) -> None: ...

    async def start_runtime(self) -> None: ...


@dataclass
class FakeNode:
    cri: FakeCri
    pause: str = "registry.k8s.io/pause:3.10.2"

    async def run_sandbox(self, name: str, uid: str = "uid", *, attempt: int = 0) -> str:
        static = {"kubernetes.io/config.source": "file"}
        return self.cri.run_sandbox(name, "tests", uid, attempt=attempt, annotations=static)

    async def create_container(self, sandbox_id: str, name: str, *, attempt: int = 0) -> str:
        return self.cri.create_container(sandbox_id, name, self.pause, attempt=attempt, log_path=f"/logs/{name}.log")

    async def start_container(self, container_id: str) -> None:
        self.cri.start_container(container_id)

    async def kill_container(self, container_id: str) -> None:
        self.cri.exit_container(container_id)

    async def pin(self, reference: str) -> None:
        self.cri.pin_image(reference)

    async def stop_runtime(self) -> None:
        self.cri.set_outage("the runtime is stopped")

    async def start_runtime(self) -> None:
        self.cri.set_outage(None)


@dataclass
class RealNode:
    cri: CriClient
    containerd: Containerd
    maker: Maker

    @property
    def pause(self) -> str:
        return self.containerd.pause

    async def run_sandbox(self, name: str, uid: str = "uid", *, attempt: int = 0) -> str:
        return await self.maker.run_sandbox(name, "tests", uid, attempt=attempt)

    async def create_container(self, sandbox_id: str, name: str, *, attempt: int = 0) -> str:
        return await self.maker.create_container(sandbox_id, name, self.pause, attempt=attempt)

    async def start_container(self, container_id: str) -> None:
        await self.maker.start_container(container_id)

    async def kill_container(self, container_id: str) -> None:
        await self.maker.kill_container(container_id)

    async def pin(self, reference: str) -> None:
        await asyncio.to_thread(self.containerd.images, "label", reference, "io.cri-containerd.pinned=pinned")

    async def stop_runtime(self) -> None:
        await asyncio.to_thread(self.containerd.tell, "stop")

    async def start_runtime(self) -> None:
        await asyncio.to_thread(self.containerd.tell, "start")
        await self.containerd.wait_until_it_answers()


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    with running_containerd() as server:
        yield server


@pytest.fixture
async def real_node(containerd: Containerd) -> AsyncIterator[RealNode]:
    """Without pods and with its two images, before and after; SMALL is not pinned."""
    logs = str(containerd.directory / "logs")
    maker = Maker(containerd.socket, cgroup=containerd.cgroup, logs=logs)
    cri = CriClient(containerd.socket)
    try:
        yield RealNode(cri, containerd, maker)
        for sandbox in await cri.pods():
            await cri.remove_sandbox(sandbox.id)
        await asyncio.to_thread(containerd.images, "label", SMALL, "io.cri-containerd.pinned=")
        await containerd.keep_only_its_images()
    finally:
        await maker.close()
        await cri.close()


@pytest.fixture
def fake_node() -> FakeNode:
    node = FakeNode(FakeCri())
    node.cri.put_image(node.pause, pinned=True)
    node.cri.put_image(SMALL)
    return node


@pytest.fixture(params=["fake_node", "real_node"])
def node(request: pytest.FixtureRequest) -> Node:
    found: Node = request.getfixturevalue(request.param)
    return found
