"""The calls of CRI with which a kubelet makes pods: the tests need them, autarky does not.

The messages are put together at run time; names, numbers and types are those on the wire.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from autarky.cri import runtime_pb2
from autarky.cri.connection import Connection, Method

_HOST_NETWORK = 2
_MAP = "map"
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "NamespaceOption": {"network": (1, "int32")},
    "LinuxSandboxSecurityContext": {"namespace_options": (1, "NamespaceOption")},
    "LinuxPodSandboxConfig": {
        "cgroup_parent": (1, "string"),
        "security_context": (2, "LinuxSandboxSecurityContext"),
    },
    "PodSandboxConfig": {
        "metadata": (1, "PodSandboxMetadata"),
        "log_directory": (3, "string"),
        "labels": (6, _MAP),
        "annotations": (7, _MAP),
        "linux": (8, "LinuxPodSandboxConfig"),
    },
    "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig")},
    "RunPodSandboxResponse": {"pod_sandbox_id": (1, "string")},
    "ContainerConfig": {
        "metadata": (1, "ContainerMetadata"),
        "image": (2, "ImageSpec"),
        "labels": (9, _MAP),
        "log_path": (11, "string"),
    },
    "CreateContainerRequest": {
        "pod_sandbox_id": (1, "string"),
        "config": (2, "ContainerConfig"),
        "sandbox_config": (3, "PodSandboxConfig"),
    },
    "CreateContainerResponse": {"container_id": (1, "string")},
    "StartContainerRequest": {"container_id": (1, "string")},
    "StartContainerResponse": {},
    "StopContainerRequest": {"container_id": (1, "string"), "timeout": (2, "int64")},
    "StopContainerResponse": {},
}
"""Message → field → (number, type)."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="contract/cri/making.proto",
        package="runtime.v1",
        syntax="proto3",
        dependency=[runtime_pb2.DESCRIPTOR.name],
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, type_) in fields.items():
            _add_field(message, field, number, type_)
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, type_: str) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    scalar = {"string": kinds.TYPE_STRING, "int32": kinds.TYPE_INT32, "int64": kinds.TYPE_INT64}.get(type_)
    if scalar is not None:
        message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL, type=scalar)
        return
    label, target = kinds.LABEL_OPTIONAL, type_
    if type_ == _MAP:
        entry = message.nested_type.add(name=f"{name.title()}Entry", options={"map_entry": True})
        for number_in_entry, part in enumerate(("key", "value"), start=1):
            _add_field(entry, part, number_in_entry, "string")
        label, target = kinds.LABEL_REPEATED, f"{message.name}.{entry.name}"
    message.field.add(name=name, number=number, label=label, type=kinds.TYPE_MESSAGE, type_name=f".runtime.v1.{target}")


_POOL = descriptor_pool.Default()
_POOL.Add(_file())


def _class(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"runtime.v1.{name}"))


class Maker:
    """Makes pods of host network, as a kubelet would, in the given cgroup."""

    def __init__(self, socket: str, *, cgroup: str, logs: str) -> None:
        self._connection = Connection(socket)
        self._cgroup = cgroup
        self._logs = logs
        self._pods: dict[str, dict[str, Any]] = {}

    async def run_sandbox(self, name: str, namespace: str, uid: str, *, attempt: int = 0) -> str:
        config = {
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "attempt": attempt},
            "log_directory": self._logs,
            "labels": _labels(name, namespace, uid),
            "annotations": {"kubernetes.io/config.source": "file"},
            "linux": {
                "cgroup_parent": self._cgroup,
                "security_context": {"namespace_options": {"network": _HOST_NETWORK}},
            },
        }
        made = await self._call("RunPodSandbox", {"config": config})
        self._pods[made.pod_sandbox_id] = config
        return str(made.pod_sandbox_id)

    async def create_container(self, sandbox_id: str, name: str, image: str, *, attempt: int = 0) -> str:
        pod = self._pods[sandbox_id]
        metadata = pod["metadata"]
        config = {
            "metadata": {"name": name, "attempt": attempt},
            "image": {"image": image},
            "labels": _labels(metadata["name"], metadata["namespace"], metadata["uid"]),
            "log_path": f"{name}.log",
        }
        request = {"pod_sandbox_id": sandbox_id, "config": config, "sandbox_config": pod}
        made = await self._call("CreateContainer", request)
        return str(made.container_id)

    async def start_container(self, container_id: str) -> None:
        await self._call("StartContainer", {"container_id": container_id})

    async def kill_container(self, container_id: str) -> None:
        await self._call("StopContainer", {"container_id": container_id, "timeout": 0})

    async def close(self) -> None:
        await self._connection.close()

    async def _call(self, name: str, request: dict[str, Any]) -> Any:
        asked = _class(f"{name}Request")
        method = Method(f"/runtime.v1.RuntimeService/{name}", asked, _class(f"{name}Response"))
        return await self._connection.call(method, asked(**request), timeout=30)


def _labels(name: str, namespace: str, uid: str) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": name,
        "io.kubernetes.pod.namespace": namespace,
        "io.kubernetes.pod.uid": uid,
    }
