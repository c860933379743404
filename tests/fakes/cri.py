"""A container runtime in memory, for tests of what uses ports.Cri. The contract tests (tests/contract/cri) hold
it to what containerd does.

For tests: the synchronous methods do what a kubelet or a user of `ctr` does to the node; `set_outage` makes
every call fail and every stream of events break off; `irremovable` says what the
removal of a sandbox or container raises, by its id.
Events reach those who listen; what nobody hears is lost (containerd keeps it for some minutes).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from autarky.errors import ApiError, Unreachable
from autarky.model.runtime import (
    Container,
    ContainerEvent,
    ContainerEventType,
    ContainerStatus,
    NodeImage,
    RuntimeVersion,
    Sandbox,
)

KILLED = 137
"""The exit code of a container that got SIGKILL."""


@dataclass(slots=True)
class FakeCri:
    now: Callable[[], float] = time.time
    outage: str | None = None
    irremovable: dict[str, Exception] = field(default_factory=dict)
    _sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    _containers: dict[str, Container] = field(default_factory=dict)
    _statuses: dict[str, ContainerStatus] = field(default_factory=dict)
    _images: dict[str, NodeImage] = field(default_factory=dict)
    _listeners: list[asyncio.Queue[ContainerEvent | None]] = field(default_factory=list)
    _made: int = 0

    # --- for tests ---

    def run_sandbox(
        self,
        name: str,
        namespace: str,
        uid: str,
        *,
        attempt: int = 0,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> str:
        """A sandbox as the kubelet makes it; its id."""
        own = {
            "io.kubernetes.pod.name": name,
            "io.kubernetes.pod.namespace": namespace,
            "io.kubernetes.pod.uid": uid,
        }
        made = Sandbox(
            self._new_id(), name, namespace, uid, attempt, True, self.now(), own | {**(labels or {})}, annotations or {}
        )
        self._sandboxes[made.id] = made
        self._tell("created", made.id, made)
        self._tell("started", made.id, made)
        return made.id

    def create_container(self, sandbox_id: str, name: str, image: str, *, attempt: int = 0, log_path: str = "") -> str:
        """A container that does not run yet; its id. The image must be there."""
        pod = self._sandboxes[sandbox_id]
        (image_id,) = (found.id for found in self._images.values() if image in _names(found))
        made = Container(
            id=self._new_id(),
            sandbox_id=sandbox_id,
            name=name,
            attempt=attempt,
            state="created",
            created=self.now(),
            image=image,
            image_id=image_id,
            pod_name=pod.name,
            pod_namespace=pod.namespace,
            pod_uid=pod.uid,
        )
        self._containers[made.id] = made
        self._statuses[made.id] = ContainerStatus(
            made.id, name, attempt, "created", made.created, None, None, None, "", "", log_path
        )
        self._tell("created", made.id, pod)
        return made.id

    def runs_of(self, sandbox_id: str) -> int:
        """How many containers the sandbox has had."""
        return len(list(self._containers_of(sandbox_id)))

    def start_container(self, container_id: str) -> None:
        self._change(container_id, started=self.now(), state="running")
        self._tell("started", container_id, self._pod_of(container_id))

    def exit_container(self, container_id: str, exit_code: int = KILLED) -> None:
        """It ends; its sandbox goes on."""
        reason = "Error" if exit_code else "Completed"
        self._change(container_id, finished=self.now(), state="exited", exit_code=exit_code, reason=reason)
        self._tell("stopped", container_id, self._pod_of(container_id))

    def end_sandbox(self, sandbox_id: str) -> None:
        """It dies with its containers, as by a power cut or by stop_sandbox."""
        for container in self._containers_of(sandbox_id):
            if container.state == "running":
                self.exit_container(container.id)
        sandbox = self._sandboxes[sandbox_id]
        if sandbox.ready:
            self._sandboxes[sandbox_id] = replace(sandbox, ready=False)
            self._tell("stopped", sandbox_id, sandbox)

    def put_image(self, *tags: str, pinned: bool = False) -> str:
        """An image of these names; its id."""
        made = NodeImage(f"sha256:{self._new_id()}", tags, (), 1_000_000, pinned)
        self._images[made.id] = made
        return made.id

    def pin_image(self, reference: str) -> None:
        """As `ctr images label` does."""
        for image in list(self._images.values()):
            if reference in _names(image):
                self._images[image.id] = replace(image, pinned=True)

    def set_outage(self, sentence: str | None) -> None:
        """Begin (or with None end) an outage; what runs, runs on."""
        self.outage = sentence
        if sentence is not None:
            for listener in self._listeners:
                listener.put_nowait(None)

    # --- ports.Cri ---

    async def pods(self) -> Sequence[Sandbox]:
        await self._arrive()
        return sorted(self._sandboxes.values(), key=lambda sandbox: (sandbox.created, sandbox.id))

    async def containers(self) -> Sequence[Container]:
        await self._arrive()
        return sorted(self._containers.values(), key=lambda container: (container.created, container.id))

    async def container_status(self, container_id: str) -> ContainerStatus | None:
        await self._arrive()
        return self._statuses.get(container_id)

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float = 30.0) -> None:
        await self._arrive()
        if sandbox_id in self._sandboxes:
            self.end_sandbox(sandbox_id)

    async def remove_sandbox(self, sandbox_id: str, *, timeout: float = 30.0) -> None:
        await self.stop_sandbox(sandbox_id)
        self._may_go(sandbox_id)
        if sandbox_id not in self._sandboxes:
            return
        for container in self._containers_of(sandbox_id):
            await self.remove_container(container.id)
        self._tell("deleted", sandbox_id, self._sandboxes.pop(sandbox_id))

    async def remove_container(self, container_id: str, *, timeout: float = 30.0) -> None:
        await self._arrive()
        self._may_go(container_id)
        if container_id not in self._containers:
            return
        if self._containers[container_id].state == "running":
            self.exit_container(container_id)
        self._tell("deleted", container_id, self._pod_of(container_id))
        del self._containers[container_id], self._statuses[container_id]

    async def images(self) -> Sequence[NodeImage]:
        await self._arrive()
        return sorted(self._images.values(), key=lambda image: image.id)

    async def has_image(self, reference: str) -> bool:
        await self._arrive()
        return any(reference in _names(image) for image in self._images.values())

    async def pull_image(self, reference: str, *, timeout: float = 300.0) -> None:
        """There is no registry."""
        await self._arrive()
        if not await self.has_image(reference):
            raise ApiError(0, "NotFound", f"{reference}: not found")

    async def version(self) -> RuntimeVersion:
        await self._arrive()
        return RuntimeVersion("containerd", "v2.3.7", "v1")

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        await self._arrive()
        heard: asyncio.Queue[ContainerEvent | None] = asyncio.Queue()
        self._listeners.append(heard)
        try:
            while (event := await heard.get()) is not None:
                yield event
            raise Unreachable(self.outage or "the runtime broke off")
        finally:
            self._listeners.remove(heard)

    async def close(self) -> None:
        pass

    # --- inside ---

    async def _arrive(self) -> None:
        await asyncio.sleep(0)
        if self.outage is not None:
            raise Unreachable(self.outage)

    def _may_go(self, any_id: str) -> None:
        if any_id in self.irremovable:
            raise self.irremovable[any_id]

    def _new_id(self) -> str:
        self._made += 1
        return sha256(str(self._made).encode()).hexdigest()

    def _containers_of(self, sandbox_id: str) -> list[Container]:
        return [container for container in self._containers.values() if container.sandbox_id == sandbox_id]

    def _pod_of(self, container_id: str) -> Sandbox:
        return self._sandboxes[self._containers[container_id].sandbox_id]

    def _change(self, container_id: str, **changes: object) -> None:
        status = replace(self._statuses[container_id], **changes)  # type: ignore[arg-type] # by field name
        self._statuses[container_id] = status
        self._containers[container_id] = replace(self._containers[container_id], state=status.state)

    def _tell(self, type_: ContainerEventType, container_id: str, pod: Sandbox) -> None:
        event = ContainerEvent(type_, self.now(), container_id, pod.id, pod.name, pod.namespace, pod.uid)
        for listener in self._listeners:
            listener.put_nowait(event)


def _names(image: NodeImage) -> tuple[str, ...]:
    return (image.id, *image.tags, *image.digests)
