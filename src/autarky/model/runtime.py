"""What the container runtime of a node reports: pods, containers, images, and events about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One run of a pod: what its containers share. All times are seconds since 1970.

    A pod whose sandbox died has several, distinguished by `attempt`. `uid` is that of the pod; of a static pod
    it is the hash of its manifest, as in the annotation kubernetes.io/config.hash.
    """

    id: str
    name: str
    namespace: str
    uid: str
    attempt: int
    ready: bool
    created: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


ContainerState = Literal["created", "running", "exited", "unknown"]


@dataclass(frozen=True, slots=True)
class Container:
    """One run of a container. `image` is as the pod names it, `image_id` the digest of its configuration.

    The pod's name, namespace and uid are from the kubelet's labels: empty if something else created it.
    """

    id: str
    sandbox_id: str
    name: str
    attempt: int
    state: ContainerState
    created: float
    image: str
    image_id: str
    pod_name: str
    pod_namespace: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """`started` and `finished` are None before the event; `exit_code` is None unless it has exited.

    `reason` is one word of the runtime ("Completed", "Error", "OOMKilled"); `log_path` is absolute on the node.
    """

    id: str
    name: str
    attempt: int
    state: ContainerState
    created: float
    started: float | None
    finished: float | None
    exit_code: int | None
    reason: str
    message: str
    log_path: str


@dataclass(frozen=True, slots=True)
class NodeImage:
    """An image on the node: names with tags and names with digests. The kubelet removes no pinned one."""

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    size: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """Which runtime it is ("containerd", "v2.3.7") and which version of CRI it speaks ("v1")."""

    name: str
    version: str
    api_version: str


ContainerEventType = Literal["created", "started", "stopped", "deleted"]


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """Something happened to a container, or to a sandbox (`container_id` is then the sandbox's id).

    Sandbox and pod are empty when the runtime did not know them any more.
    """

    type: ContainerEventType
    time: float
    container_id: str
    sandbox_id: str
    pod_name: str
    pod_namespace: str
    pod_uid: str
