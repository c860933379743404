"""The desired cluster: cluster.yaml with all defaults filled in, as frozen values.

Contract: built by `config` (from the file) and by `agents` (from the ControlPlane object); read by
`render`, `decide` and `phases`. Holds no secrets and does no I/O.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Literal

from autarky.model import defaults as editions
from autarky.model.levels import HostedLevels
from autarky.model.levels import Level as Level  # noqa: PLC0414 # for those who use it with a Cluster
from autarky.model.versions import Version

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
NO_ARGS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
NO_LABELS: Mapping[str, str] = MappingProxyType({})
CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"
"""Kubernetes' own name for the role: the key of a label and of a taint."""


Driver = Literal["local", "lab", "ssh"]


@dataclass(frozen=True, slots=True)
class HostRef:
    """Where a node's machine is: `local`, `lab:NAME` or `ssh://[USER@]HOST[:PORT]`."""

    driver: Driver
    target: str = ""

    @classmethod
    def parse(cls, text: str) -> HostRef:
        """What `str` gives; raises ValueError for anything else."""
        if text == "local":
            return cls("local")
        if text.startswith("lab:"):
            return cls("lab", text.removeprefix("lab:"))
        if text.startswith("ssh://"):
            return cls("ssh", text.removeprefix("ssh://"))
        raise ValueError(f"{text!r} is not a host")

    def __str__(self) -> str:
        return {"local": "local", "lab": f"lab:{self.target}", "ssh": f"ssh://{self.target}"}[self.driver]


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

    @property
    def repels_dns(self) -> bool:
        """Whether it keeps cluster DNS off its node. DNS tolerates the taint of control nodes, as with kubeadm."""
        return self.key != CONTROL_PLANE_ROLE and self.effect != "PreferNoSchedule"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `address` is None until the host was asked for it (or the file gives it). `initial_member`: of a
    control node, whether the cluster starts with it; others join as workers and become control nodes by their label."""

    name: str
    host: HostRef
    control_plane: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    taints: tuple[Taint, ...] = ()
    address: str | None = None
    initial_member: bool = True

    def known_address(self) -> str:
        """The address, which must be known by now; raises ValueError if it is not."""
        if self.address is None:
            raise ValueError(f"the address of node {self.name} is not known yet")
        return self.address


class Cni(Enum):
    """The network plugin. NONE: the user applies one; until then nodes are NotReady."""

    FLANNEL = "flannel"
    NONE = "none"


CniName = Literal["flannel", "none"]
"""As the cluster file has it."""
UNNAMED_CNI: Final = Cni.FLANNEL
"""What a file means that names none, as all did before there was a choice."""


@dataclass(frozen=True, slots=True)
class Network:
    pod_cidr: ipaddress.IPv4Network
    service_cidr: ipaddress.IPv4Network
    dns_domain: str
    cni: Cni = UNNAMED_CNI

    @property
    def kubernetes_service_ip(self) -> str:
        """The first address of the service network: the Service default/kubernetes."""
        return str(self.service_cidr[1])

    @property
    def dns_service_ip(self) -> str:
        """The tenth address of the service network, as kubeadm does."""
        return str(self.service_cidr[10])


@dataclass(frozen=True, slots=True)
class ExternalEtcd:
    """etcd that somebody else runs. Paths are on the machine that runs the CLI.

    With `lab_host` it is a test host of its own that `up` prepares; then the endpoints follow from that
    host's address, and the certificates are issued by us.
    """

    endpoints: tuple[str, ...]
    ca_file: str
    cert_file: str
    key_file: str
    lab_host: str | None = None
    lab_address: str | None = None


MOST_DAYS = 36500
"""Longest lifetime of a certificate: a hundred years. It must end before the year 9999."""


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """Key type, lifetimes in days, and a directory with the user's own CA pairs (or None).

    leaf_seconds: lifetime of the certificates that the node agents keep, if it differs from `leaf_days`.
    kubelet_seconds: lifetime of kubelets' certificates; None leaves it to the controller-manager, which signs them.
    """

    key_algorithm: Literal["EC", "RSA"] = "EC"
    ca_days: int = 3650
    leaf_days: int = 365
    ca_directory: str | None = None
    leaf_seconds: int | None = None
    kubelet_seconds: int | None = None

    @property
    def kept_seconds(self) -> int:
        """The lifetime of the leaves that the node agents keep."""
        return self.leaf_days * 86400 if self.leaf_seconds is None else self.leaf_seconds


@dataclass(frozen=True, slots=True)
class Rollback:
    enabled: bool = True
    limit_seconds: int = 90


MOST_SOAK_SECONDS = 30 * 86400
"""Longest time for which a later minor emulates the one before it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The complete desired state. `self_hosted` is the lowest hosted level apart from the kubelet, `hosted_levels` has
    both; `external_etcd` is None when etcd runs on the control nodes; `ssh_config` is a path on the machine that runs
    the CLI, or None for the user's own; `defaults` the number of an edition; `etcd_version` that of etcd, None for the
    one that belongs to the version of Kubernetes; `soak_seconds`: for how long a later minor emulates the one before
    it, None where the file does not say; `kubelets_follow`: whether kubelets get the control plane's version;
    `container_runtime`: the image with containerd and runc, empty where those of each node stay; `pools` as
    `spec.pools` of the ControlPlane has them, where they may be invalid."""

    name: str
    kubernetes_version: Version
    self_hosted: Level
    nodes: tuple[Node, ...]
    network: Network
    external_etcd: ExternalEtcd | None = None
    etcd_version: Version | None = None
    control_plane_endpoint: str | None = None
    ssh_config: str | None = None
    extra_args: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: NO_ARGS)
    certificates: CertificateSettings = field(default_factory=CertificateSettings)
    rollback: Rollback = field(default_factory=Rollback)
    soak_seconds: int | None = None
    kubelets_follow: bool = True
    container_runtime: str = ""
    pools: tuple[Mapping[str, Any], ...] = ()
    hosts_kubelet: bool = False
    defaults: int = field(default_factory=editions.newest)

    @property
    def control_nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.control_plane)

    @property
    def initial_members(self) -> tuple[Node, ...]:
        """The control nodes that the cluster starts with: etcd's initial members."""
        return tuple(node for node in self.nodes if node.control_plane and node.initial_member)

    @property
    def workers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.control_plane)

    def node(self, name: str) -> Node:
        """The node of that name; raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def etcd_host(self) -> Node | None:
        """The test host of an external etcd, in the form of a node; None for every other etcd."""
        external = self.external_etcd
        if external is None or external.lab_host is None:
            return None
        return Node(external.lab_host, HostRef("lab", external.lab_host), address=external.lab_address)

    def hosts_level(self, level: Level) -> bool:
        """Whether that level runs from API objects."""
        return self.hosted_levels.hosts(level)

    def default_arguments(self, component: str) -> Mapping[str, str]:
        """The component's flags in its edition of defaults."""
        return editions.edition(self.defaults).arguments.get(component, {})

    @property
    def hosted_levels(self) -> HostedLevels:
        return HostedLevels(self.self_hosted, self.hosts_kubelet)

    @property
    def self_hosted_text(self) -> str:
        """The levels as users write them: "1-4", and "4" for add-ons only."""
        return str(self.hosted_levels)

    def with_addresses(self, addresses: Mapping[str, str]) -> Cluster:
        """The same cluster with the given addresses set, of nodes and of the test host of an external etcd."""
        nodes = tuple(replace(node, address=addresses.get(node.name, node.address)) for node in self.nodes)
        external = self.external_etcd
        if external is not None and external.lab_host is not None and external.lab_host in addresses:
            address = addresses[external.lab_host]
            external = replace(external, lab_address=address, endpoints=(f"https://{address}:2379",))
        return replace(self, nodes=nodes, external_etcd=external)
