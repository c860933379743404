"""Everything that is rendered for a cluster, taken apart for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from autarky.control.etcd.manifests import pods as etcd
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.control.slots import manifests as standby
from autarky.model.cluster import ExternalEtcd, Level
from autarky.model.components import WITH_STANDBY
from autarky.model.files import File
from autarky.render import node
from autarky.render.objects import agent_parts, parts
from autarky.render.values import Inputs, Object
from fakes.clusters import FACTS, a_cluster, inputs_of
from fakes.hosted_pods import pod_of_revision

EXTERNAL = ExternalEtcd(("https://198.51.100.1:2379",), "ca.crt", "client.crt", "client.key")
HOSTED_LEVELS = [Level.ETCD, Level.API_SERVER, Level.CONTROLLERS, Level.ADD_ONS]


@dataclass(frozen=True)
class Pod:
    """A pod spec and where it comes from: "hosted", "standby" or "static" (etcd, the load balancer)."""

    name: str
    slot: str
    spec: Object

    def __str__(self) -> str:
        return f"{self.slot} {self.name}"

    @property
    def containers(self) -> list[Object]:
        return list(self.spec["containers"])


def objects(inputs: Inputs) -> list[Object]:
    return [obj for part in [*parts(inputs), *agent_parts(inputs)] for obj in part.objects]


def host_files(inputs: Inputs) -> Iterator[tuple[str, File]]:
    """(node, file) of all files on all nodes, those of the standbys included."""
    for member in inputs.cluster.nodes:
        files = [*node.system_files(inputs, member), *node.kubelet_files(inputs, member)]
        files += [*node.static_pods(inputs, member).values(), *node.agent_pod(inputs, member).values()]
        if member.control_plane:
            files += kubelet_credentials.first_credentials(inputs, member)
            files += node.leaf_files(inputs, member)
            files += [file for name in WITH_STANDBY for file in standby.revision(inputs, name).files]
        yield from ((member.name, file) for file in files)
    if inputs.cluster.etcd_host is not None:
        for file in etcd.external_unit_files(inputs, inputs.cluster.etcd_host):
            yield inputs.cluster.etcd_host.name, file


def static_pods(inputs: Inputs) -> list[Object]:
    """Of all nodes, the standbys among them, as their kubelets read them."""
    return [json.loads(file.content) for _, file in host_files(inputs) if standby.is_complete(file.content)]


def all_pods(inputs: Inputs) -> list[Pod]:
    hosted = [
        Pod(obj["metadata"]["name"], "hosted", obj["spec"]["template"]["spec"])
        for obj in objects(inputs)
        if obj["kind"] in ("DaemonSet", "Deployment")
    ]
    standbys = [Pod(name, "standby", pod_of_revision(standby.revision(inputs, name))["spec"]) for name in STANDBYS]
    static = [
        Pod(component, "static", json.loads(file.content)["spec"])
        for member in inputs.cluster.nodes
        for component, file in node.static_pods(inputs, member).items()
    ]
    return hosted + standbys + static


STANDBYS = WITH_STANDBY


def arguments(container: Object) -> dict[str, str]:
    """The command line as flag → value."""
    return dict(argument.removeprefix("--").partition("=")[::2] for argument in container["command"][1:])


def strings(value: Any) -> Iterator[str]:
    """All strings in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


@st.composite
def some_inputs(draw: st.DrawFn) -> Inputs:
    """Clusters of every level and size, with or without external etcd and facts."""
    level = draw(st.sampled_from(HOSTED_LEVELS))
    external = draw(st.booleans()) and level is not Level.ETCD
    cluster = a_cluster(
        level,
        controls=draw(st.integers(1, 3)),
        workers=draw(st.integers(0, 2)),
        external_etcd=EXTERNAL if external else None,
        control_plane_endpoint=draw(st.sampled_from([None, "api.example.org:6443", "192.0.2.200:6443"])),
    )
    seen = {cluster.nodes[0].name: FACTS} if draw(st.booleans()) else {}
    return inputs_of(cluster, seen)


EVERY_LEVEL = [
    *(inputs_of(a_cluster(level, controls=3, workers=1)) for level in HOSTED_LEVELS),
    inputs_of(a_cluster(Level.ETCD, controls=3, workers=1, hosts_kubelet=True)),
]
"""Three control nodes and a worker, at each level."""
