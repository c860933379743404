"""The schema of the cluster file, v1alpha1. Descriptions here are the reference documentation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, field_validator

from autarky.model.versions import Version

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=DNS_LABEL, max_length=63)]
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "etcd")


class Part(BaseModel):
    """No unknown keys, anywhere: a misspelt key must not be passed over."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class TaintPart(Part):
    """A taint that keeps pods off the node unless they tolerate it."""

    key: str = Field(min_length=1, description="The taint's key.")
    value: str = Field(default="", description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(description="What it does to pods.")


class NodePart(Part):
    """One node and the machine it runs on."""

    name: Name = Field(description="The node's name in Kubernetes; a DNS label.")
    host: str = Field(
        default="lab",
        description="The machine: `lab` (a test host named as the node), `lab:NAME`, `local` (this machine), or `ssh://…`.",
    )
    roles: list[Literal["control-plane", "worker"]] | None = Field(
        default=None,
        description="`control-plane` and `worker`. Default: a single node has both, else `worker`. "
        "A control node runs workloads as well, unless a taint keeps them off.",
    )
    labels: dict[str, StrictStr] = Field(default_factory=dict, description="Labels of the Node object.")
    taints: list[TaintPart] = Field(default_factory=list, description="Taints of the Node object.")
    address: str | None = Field(
        default=None,
        pattern=r"^\d{1,3}(\.\d{1,3}){3}$",
        description="The IPv4 address that other nodes reach it at. Default: that of its default route.",
    )

    @field_validator("host")
    @classmethod
    def _known_driver(cls, value: str) -> str:
        if value in {"lab", "local"} or value.startswith(("lab:", "ssh://")):
            return value
        raise ValueError("must be lab, lab:NAME, local or ssh://…")


class NetworkPart(Part):
    """The cluster's networks; they must not overlap each other or the hosts' networks."""

    pod_cidr: str = Field(default="10.244.0.0/16", alias="podCIDR", description="Pods' addresses, /24 per node.")
    service_cidr: str = Field(default="10.96.0.0/16", alias="serviceCIDR", description="Services' addresses.")
    dns_domain: str = Field(
        default="cluster.local",
        alias="dnsDomain",
        description="The domain of Services' names.",
        pattern=r"^[a-z0-9.-]+$",
    )


class ExternalEtcdPart(Part):
    """etcd that runs outside of the cluster: either a lab host, or endpoints with certificates."""

    lab: Name | None = Field(
        default=None, description="A test host of its own that `up` prepares with etcd as a systemd service."
    )
    endpoints: list[str] = Field(default_factory=list, description="https URLs of the members' client ports.")
    ca_file: str | None = Field(default=None, alias="caFile", description="The CA of etcd's server certificates.")
    cert_file: str | None = Field(default=None, alias="certFile", description="The API servers' client certificate.")
    key_file: str | None = Field(default=None, alias="keyFile", description="Its key. Paths are relative to this file.")


class EtcdPart(Part):
    """Where etcd runs. Default: on the control nodes."""

    external: ExternalEtcdPart | None = Field(default=None, description="etcd outside of the cluster.")


class CertificatesPart(Part):
    """Keys and certificates."""

    key_algorithm: Literal["EC", "RSA"] = Field(default="EC", alias="keyAlgorithm", description="P-256 or RSA 2048.")
    ca_days: StrictInt = Field(default=3650, alias="caDays", ge=30, description="Lifetime of new CAs, in days.")
    leaf_days: StrictInt = Field(default=365, alias="leafDays", ge=1, description="Lifetime of other certificates.")
    ca_directory: str | None = Field(
        default=None,
        alias="caDirectory",
        description="A directory with your own ca.crt and ca.key, and optionally front-proxy-ca and etcd/ca pairs.",
    )


class RollbackPart(Part):
    """When a rollout of a control plane component goes back by itself."""

    enabled: StrictBool = Field(default=True, description="Whether it does.")
    limit_seconds: StrictInt = Field(default=90, alias="limitSeconds", ge=10, description="Healthy within this time.")


class SpecPart(Part):
    """What the cluster should be."""

    kubernetes_version: str | None = Field(
        default=None, alias="kubernetesVersion", description='The Kubernetes version, quoted: "1.36.4".'
    )
    self_hosted: Literal["0-4", "1-4", "2-4", "3-4", "4"] = Field(
        default="1-4",
        alias="selfHosted",
        description="Which levels run from API objects: 0 kubelet, 1 etcd, 2 API server, 3 controllers, 4 add-ons.",
    )
    nodes: list[NodePart] = Field(min_length=1, description="The nodes.")
    network: NetworkPart = Field(default_factory=NetworkPart, description="The cluster's networks.")
    etcd: EtcdPart = Field(default_factory=EtcdPart, description="Where etcd runs.")
    control_plane_endpoint: str | None = Field(
        default=None,
        alias="controlPlaneEndpoint",
        pattern=r"^[^/:\s]+:\d+$",
        description="host:port of your own load balancer or virtual address before the control nodes.",
    )
    extra_args: dict[str, dict[str, StrictStr]] = Field(
        default_factory=dict,
        alias="extraArgs",
        description="Extra command-line arguments (for kube-proxy: fields of its configuration), by component.",
    )
    certificates: CertificatesPart = Field(default_factory=CertificatesPart, description="Keys and certificates.")
    rollback: RollbackPart = Field(default_factory=RollbackPart, description="Rollback of bad rollouts.")

    @field_validator("kubernetes_version", mode="before")
    @classmethod
    def _quoted(cls, value: Any) -> Any:
        if isinstance(value, int | float):
            raise ValueError(f'a number, because it is not quoted; write "{value}…" in quotes, such as "1.36.4"')  # noqa: TRY004
        return value

    @field_validator("kubernetes_version")
    @classmethod
    def _version(cls, value: str | None) -> str | None:
        if value is not None:
            Version.parse(value)
        return value


class MetadataPart(Part):
    """The cluster's name."""

    name: Name = Field(description="A DNS label; names the cluster's directory and its lab.")


class ClusterFile(Part):
    """A cluster, as `autarky up -f FILE` brings it up."""

    api_version: Literal["autarky.dev/v1alpha1"] = Field(alias="apiVersion", description="The file's version.")
    kind: Literal["Cluster"] = Field(description="Always Cluster.")
    metadata: MetadataPart = Field(description="The cluster's name.")
    spec: SpecPart = Field(description="What the cluster should be.")
