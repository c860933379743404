"""The node's container runtime through its CRI socket: implements ports.Cri.

Contract: looking never changes anything; stopping and removing may be done twice. Ids must be complete:
containerd accepts a unique prefix of an id.

An image is pinned by a label, on the node, while containerd runs; CRI shows it at once, and the kubelet's
garbage collection then leaves the image alone (CRI itself has no call for it):
`ctr -n k8s.io images label REFERENCE io.cri-containerd.pinned=pinned`.

Danger: whoever may use the socket is root on the node.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from autarky import places
from autarky.cri import runtime_pb2 as pb
from autarky.cri.connection import Connection, Method
from autarky.errors import ApiError
from autarky.model import patience
from autarky.model.runtime import (
    Container,
    ContainerEvent,
    ContainerEventType,
    ContainerState,
    ContainerStatus,
    NodeImage,
    RuntimeVersion,
    Sandbox,
)

CALL_TIMEOUT: Final = patience.RUNTIME
"""Seconds for a call that only looks; a busy containerd answers in milliseconds."""
_NOT_FOUND = "NotFound"
_RUNTIME = "/runtime.v1.RuntimeService"
_IMAGES = "/runtime.v1.ImageService"
_VERSION = Method(f"{_RUNTIME}/Version", pb.VersionRequest, pb.VersionResponse)
_PODS = Method(f"{_RUNTIME}/ListPodSandbox", pb.ListPodSandboxRequest, pb.ListPodSandboxResponse)
_STOP = Method(f"{_RUNTIME}/StopPodSandbox", pb.StopPodSandboxRequest, pb.StopPodSandboxResponse)
_REMOVE = Method(f"{_RUNTIME}/RemovePodSandbox", pb.RemovePodSandboxRequest, pb.RemovePodSandboxResponse)
_CONTAINERS = Method(f"{_RUNTIME}/ListContainers", pb.ListContainersRequest, pb.ListContainersResponse)
_REMOVE_CONTAINER = Method(f"{_RUNTIME}/RemoveContainer", pb.RemoveContainerRequest, pb.RemoveContainerResponse)
_CONTAINER = Method(f"{_RUNTIME}/ContainerStatus", pb.ContainerStatusRequest, pb.ContainerStatusResponse)
_EVENTS = Method(f"{_RUNTIME}/GetContainerEvents", pb.GetEventsRequest, pb.ContainerEventResponse)
_LIST_IMAGES = Method(f"{_IMAGES}/ListImages", pb.ListImagesRequest, pb.ListImagesResponse)
_IMAGE = Method(f"{_IMAGES}/ImageStatus", pb.ImageStatusRequest, pb.ImageStatusResponse)
_PULL = Method(f"{_IMAGES}/PullImage", pb.PullImageRequest, pb.PullImageResponse)
_STATES: Mapping[int, ContainerState] = {
    pb.CONTAINER_CREATED: "created",
    pb.CONTAINER_RUNNING: "running",
    pb.CONTAINER_EXITED: "exited",
}
_EVENT_TYPES: Mapping[int, ContainerEventType] = {
    pb.CONTAINER_CREATED_EVENT: "created",
    pb.CONTAINER_STARTED_EVENT: "started",
    pb.CONTAINER_STOPPED_EVENT: "stopped",
    pb.CONTAINER_DELETED_EVENT: "deleted",
}


class CriClient:
    """socket: the path of the runtime's Unix socket. timeout: seconds for each call that only looks.

    One connection, made at the first call and again after a restart of the runtime. Use it in one event loop.
    """

    def __init__(self, socket: str = places.CONTAINERD_SOCKET, *, timeout: float = CALL_TIMEOUT) -> None:
        self._connection = Connection(socket)
        self._timeout = timeout

    async def close(self) -> None:
        await self._connection.close()

    # --- pods and containers ---

    async def pods(self) -> tuple[Sandbox, ...]:
        found = await self._connection.call(_PODS, pb.ListPodSandboxRequest(), timeout=self._timeout)
        return tuple(sorted(map(_sandbox, found.items), key=lambda sandbox: (sandbox.created, sandbox.id)))

    async def containers(self) -> tuple[Container, ...]:
        found = await self._connection.call(_CONTAINERS, pb.ListContainersRequest(), timeout=self._timeout)
        return tuple(sorted(map(_container, found.containers), key=lambda container: (container.created, container.id)))

    async def container_status(self, container_id: str) -> ContainerStatus | None:
        request = pb.ContainerStatusRequest(container_id=container_id)
        try:
            found = await self._connection.call(_CONTAINER, request, timeout=self._timeout)
        except ApiError as error:
            if error.reason == _NOT_FOUND:
                return None
            raise
        return _container_status(found.status)

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float = 30.0) -> None:
        await self._connection.call(_STOP, pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id), timeout=timeout)

    async def remove_sandbox(self, sandbox_id: str, *, timeout: float = 30.0) -> None:
        await self._connection.call(_REMOVE, pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id), timeout=timeout)

    async def remove_container(self, container_id: str, *, timeout: float = 30.0) -> None:
        request = pb.RemoveContainerRequest(container_id=container_id)
        await self._connection.call(_REMOVE_CONTAINER, request, timeout=timeout)

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        stream = self._connection.stream(_EVENTS, pb.GetEventsRequest(), timeout=self._timeout)
        async with aclosing(stream):
            async for event in stream:
                if event.container_event_type in _EVENT_TYPES:
                    yield _event(event)

    # --- images ---

    async def images(self) -> tuple[NodeImage, ...]:
        found = await self._connection.call(_LIST_IMAGES, pb.ListImagesRequest(), timeout=self._timeout)
        return tuple(sorted(map(_image, found.images), key=lambda image: image.id))

    async def has_image(self, reference: str) -> bool:
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=reference))
        found = await self._connection.call(_IMAGE, request, timeout=self._timeout)
        return found.HasField("image")

    async def pull_image(self, reference: str, *, timeout: float = 300.0) -> None:
        request = pb.PullImageRequest(image=pb.ImageSpec(image=reference))
        await self._connection.call(_PULL, request, timeout=timeout)

    # --- the runtime ---

    async def version(self) -> RuntimeVersion:
        found = await self._connection.call(_VERSION, pb.VersionRequest(), timeout=self._timeout)
        return RuntimeVersion(found.runtime_name, found.runtime_version, found.runtime_api_version)


def _sandbox(found: pb.PodSandbox) -> Sandbox:
    return Sandbox(
        id=found.id,
        name=found.metadata.name,
        namespace=found.metadata.namespace,
        uid=found.metadata.uid,
        attempt=found.metadata.attempt,
        ready=found.state == pb.SANDBOX_READY,
        created=_seconds(found.created_at),
        labels=dict(found.labels),
        annotations=dict(found.annotations),
    )


def _container(found: pb.Container) -> Container:
    return Container(
        id=found.id,
        sandbox_id=found.pod_sandbox_id,
        name=found.metadata.name,
        attempt=found.metadata.attempt,
        state=_STATES.get(found.state, "unknown"),
        created=_seconds(found.created_at),
        image=found.image.user_specified_image or found.image.image,
        image_id=found.image_id or found.image_ref,
        pod_name=found.labels.get("io.kubernetes.pod.name", ""),
        pod_namespace=found.labels.get("io.kubernetes.pod.namespace", ""),
        pod_uid=found.labels.get("io.kubernetes.pod.uid", ""),
    )


def _container_status(found: pb.ContainerStatus) -> ContainerStatus:
    state = _STATES.get(found.state, "unknown")
    return ContainerStatus(
        id=found.id,
        name=found.metadata.name,
        attempt=found.metadata.attempt,
        state=state,
        created=_seconds(found.created_at),
        started=_seconds(found.started_at) if found.started_at else None,
        finished=_seconds(found.finished_at) if found.finished_at else None,
        exit_code=found.exit_code if state == "exited" else None,
        reason=found.reason,
        message=found.message,
        log_path=found.log_path,
    )


def _image(found: pb.Image) -> NodeImage:
    return NodeImage(found.id, tuple(found.repo_tags), tuple(found.repo_digests), found.size, found.pinned)


def _event(found: pb.ContainerEventResponse) -> ContainerEvent:
    sandbox = found.pod_sandbox_status
    return ContainerEvent(
        type=_EVENT_TYPES[found.container_event_type],
        time=_seconds(found.created_at),
        container_id=found.container_id,
        sandbox_id=sandbox.id,
        pod_name=sandbox.metadata.name,
        pod_namespace=sandbox.metadata.namespace,
        pod_uid=sandbox.metadata.uid,
    )


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / 1e9
