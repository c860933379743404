"""Clusters, host facts and credentials as values, for tests of what renders, decides and acts on them."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.model.cluster import Cluster, HostRef, Level, Network, Node
from autarky.model.facts import HostFacts
from autarky.model.versions import Version
from autarky.render.values import Credentials, Inputs

NETWORK = Network(ipaddress.IPv4Network("10.244.0.0/16"), ipaddress.IPv4Network("10.96.0.0/12"), "cluster.local")
FACTS = HostFacts(
    address="192.0.2.11",
    hostname="n1",
    boot_id="0e6b2f0c",
    kernel="6.1.0",
    os_name="Debian GNU/Linux 12",
    architecture="x86_64",
    cgroup_version=2,
    cpus=4,
    memory_total=8 * 1024**3,
    swap_total=0,
    disk_free=50 * 1024**3,
    clock=1_800_000_000.0,
    listening_ports=frozenset({22}),
    networks=("192.0.2.0/24",),
    missing_features=(),
    missing_programs=(),
    init="systemd",
    addresses=("192.0.2.11",),
)
"""An ordinary machine with which nothing is wrong."""
IMAGES = {
    name: f"registry.example/{name}:v1"
    for name in (
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "etcd",
        "coredns",
        "flannel",
        "haproxy",
        "pause",
        "agent",
        "kubelet",
    )
}


def a_cluster(self_hosted: Level = Level.API_SERVER, *, controls: int = 1, workers: int = 0, **changes: Any) -> Cluster:
    """Nodes n1, n2, …, control nodes first, at 192.0.2.11, .12, …"""
    nodes = tuple(
        Node(f"n{number}", HostRef("lab", f"n{number}"), number <= controls, address=f"192.0.2.{10 + number}")
        for number in range(1, controls + workers + 1)
    )
    cluster = Cluster("demo", Version(1, 36, 4), self_hosted, nodes, NETWORK)
    return replace(cluster, **changes)


def facts_of(cluster: Cluster, **changes: Any) -> dict[str, HostFacts]:
    """What a healthy host says, for every node; `changes` are those of the first node's host."""
    facts = {
        node.name: replace(
            FACTS,
            hostname=node.name,
            boot_id=f"{FACTS.boot_id}-{node.name}",
            address=node.known_address(),
            addresses=(node.known_address(),),
        )
        for node in cluster.nodes
    }
    first = cluster.nodes[0].name
    return {**facts, first: replace(facts[first], **changes)}


def credentials_of(cluster: Cluster) -> Credentials:
    """Readable words where keys and certificates would be; a key is marked as PRIVATE."""
    first = [spec for spec, _ in leaves.first_specs(cluster, cluster.nodes)]
    names = [spec.name for spec in [*certificate_specs(cluster), *first]] + ["ca", "front-proxy-ca", "etcd/ca", "sa"]
    files: dict[str, bytes] = {}
    for name in dict.fromkeys([*names, "apiserver-etcd-client"]):
        files[f"{name}.crt"] = f"certificate of {name}\n".encode()
        files[f"{name}.pub"] = f"public key of {name}\n".encode()
        files[f"{name}.key"] = f"PRIVATE key of {name}\n".encode()
    return Credentials(files)


def inputs_of(cluster: Cluster, facts: dict[str, HostFacts] | None = None) -> Inputs:
    return Inputs(cluster, IMAGES, credentials_of(cluster), facts or {})
