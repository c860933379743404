"""The schema of the cluster file, v1alpha1: its fields, their defaults and what they mean.

Contract: the descriptions here are the reference documentation: they are published in the JSON Schema, and
docs/cluster-file.md repeats them (a test keeps it so). Kinds of values are in `syntax`; what must hold
between values is in `rules`. Changes are additive: what a v1alpha1 file says keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)

from autarky.config import rules, syntax
from autarky.config.part import Part
from autarky.config.pools import KubeletsPart, PoolPart, judge_all
from autarky.config.syntax import raise_all, refused
from autarky.model import defaults
from autarky.model.cluster import MOST_DAYS, UNNAMED_CNI, CniName, Taint

NEW: Mapping[str, Any] = defaults.edition(defaults.newest()).file
"""Path in the spec → the default of a new cluster. (A cluster that is there: `filling`.)"""


class TaintPart(Part):
    """A taint that keeps pods off the node unless they tolerate it."""

    key: syntax.TaintKey = Field(description="The taint's key: NAME or DOMAIN/NAME.")
    value: syntax.LabelValue = Field(default="", description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        description="What it does to pods that do not tolerate it: not started here, if possible not, or evicted."
    )

    def as_taint(self) -> Taint:
        return Taint(self.key, self.value, self.effect)


class NodePart(Part):
    """One node and the machine it runs on."""

    name: syntax.Name = Field(description="The node's name in Kubernetes; a DNS label.")
    host: syntax.HostName = Field(
        default="lab",
        description="The machine: `lab` (a test host named as the node), `lab:NAME` (a test host of that name), "
        "`local` (this machine) or `ssh://[USER@]HOST[:PORT]`, where HOST may be an alias of ssh_config. "
        "`up` makes test hosts and `down` removes them; other machines must be there and stay.",
    )
    roles: Annotated[list[Literal["control-plane", "worker"]], Field(min_length=1)] | None = Field(
        default=None,
        description="`control-plane` and `worker`. Default: a single node has both, of several each is a worker. "
        "A control node runs workloads as well, unless a taint keeps them off.",
    )
    labels: dict[syntax.LabelKey, syntax.LabelValue] = Field(
        default_factory=dict, description="Labels of the Node object. Role labels follow from `roles`."
    )
    taints: list[TaintPart] = Field(
        default_factory=list, description="Taints that the Node gets when it joins. A single node is never tainted."
    )
    address: syntax.Address | None = Field(
        default=None,
        description="The IPv4 address that other nodes reach it at. Default: that of its default route.",
    )


class NetworkPart(Part):
    """The cluster's networks. They must not overlap each other or the hosts' networks."""

    pod_cidr: syntax.Cidr = Field(
        default="10.244.0.0/16", alias="podCIDR", description="Pods' addresses; every node gets a /24 of it."
    )
    service_cidr: syntax.Cidr = Field(default="10.96.0.0/16", alias="serviceCIDR", description="Services' addresses.")
    dns_domain: syntax.Domain = Field(
        default="cluster.local", alias="dnsDomain", description="The domain of Services' names."
    )
    cni: CniName = Field(
        default=UNNAMED_CNI.value,
        description="Who gives pods their network. `none`: you do, by a manifest of your own; until it is applied, "
        "nodes are NotReady. It cannot be changed later.",
    )

    @model_validator(mode="after")
    def _judge(self) -> Self:
        raise_all(rules.judge_network(self), self)
        return self


class ExternalEtcdPart(Part):
    """etcd that runs outside of the cluster: a test host (`lab`), or your own (the other four fields)."""

    lab: syntax.Name | None = Field(
        default=None,
        description="The name of a test host of its own, which `up` makes, with etcd as a systemd service and "
        "certificates from the cluster's etcd CA.",
    )
    endpoints: list[syntax.EtcdUrl] = Field(
        default_factory=list, description="The members' client URLs: `https://ADDRESS:2379`."
    )
    ca_file: syntax.LocalPath | None = Field(
        default=None, alias="caFile", description="The CA of the members' server certificates."
    )
    cert_file: syntax.LocalPath | None = Field(
        default=None, alias="certFile", description="The API servers' client certificate."
    )
    key_file: syntax.LocalPath | None = Field(default=None, alias="keyFile", description="The key of `certFile`.")

    @model_validator(mode="after")
    def _judge(self) -> Self:
        raise_all(rules.judge_external_etcd(self), self)
        return self


class EtcdPart(Part):
    """Where etcd runs. Default: on the control nodes."""

    external: ExternalEtcdPart | None = Field(
        default=None,
        description="etcd outside of the cluster; needs selfHosted 2-4, 3-4 or 4. Paths are relative to this file.",
    )
    version: syntax.EtcdVersion | None = Field(
        default=None,
        description='Of etcd, in quotes, such as `"3.7.3"`; `autarky payload etcd list` shows the known ones.'
        " Default: that of the cluster; of a new one the one that belongs to kubernetesVersion. A running etcd gets"
        " another one member by member.",
    )


class CertificatesPart(Part):
    """Keys and certificates that autarky issues."""

    key_algorithm: Literal["EC", "RSA"] = Field(
        default=NEW["certificates.keyAlgorithm"],
        alias="keyAlgorithm",
        description="The kind of new keys: EC (P-256) or RSA (2048 bits).",
    )
    ca_days: StrictInt = Field(
        default=NEW["certificates.caDays"],
        alias="caDays",
        ge=30,
        le=MOST_DAYS,
        description="Lifetime of new CAs, in days.",
    )
    leaf_days: StrictInt = Field(
        default=NEW["certificates.leafDays"],
        alias="leafDays",
        ge=1,
        le=MOST_DAYS,
        description="Lifetime of all other certificates that autarky issues, in days.",
    )
    leaf_lifetime: syntax.Lifetime | None = Field(
        default=NEW["certificates.leafLifetime"],
        alias="leafLifetime",
        description="Lifetime of the certificates that the node agents keep and renew (of API servers, controllers and "
        "etcd), such as `720h` or `90m`; at least `6m`, which is for tests: below an hour a node that is off for a "
        "while comes back with certificates that have expired. Default: `leafDays`.",
    )
    kubelet_lifetime: syntax.Lifetime | None = Field(
        default=NEW["certificates.kubeletLifetime"],
        alias="kubeletLifetime",
        description="Lifetime of kubelets' certificates, such as `720h`; at least `10m`, the least that Kubernetes "
        "signs. Default: that of the controller-manager, a year.",
    )
    ca_directory: syntax.LocalPath | None = Field(
        default=None,
        alias="caDirectory",
        description="A directory with your own ca.crt and ca.key, and optionally front-proxy-ca and etcd/ca pairs; "
        "relative to this file.",
    )

    @model_validator(mode="after")
    def _judge(self) -> Self:
        raise_all(rules.judge_certificates(self), self)
        return self


class RollbackPart(Part):
    """When a bad rollout of a control plane component goes back by itself."""

    enabled: StrictBool = Field(default=NEW["rollback.enabled"], description="Whether it does.")
    limit_seconds: StrictInt = Field(
        default=NEW["rollback.limitSeconds"],
        alias="limitSeconds",
        ge=10,
        le=3600,
        description="A new revision must be healthy within this time, or later where starts are slow.",
    )


class UpgradePart(Part):
    """How the control plane gets another version."""

    soak: syntax.Lifetime | None = Field(
        default=None,
        description="For how long the components of a later minor emulate the minor before it, such as `24h`, before "
        "they are raised to their own; at most `720h`. Default: not at all.",
    )

    @model_validator(mode="after")
    def _judge(self) -> Self:
        raise_all(rules.judge_upgrade(self), self)
        return self


def _known_edition(value: int) -> int:
    if not defaults.is_known(value):
        first, last = defaults.FIRST, defaults.newest()
        known = str(first) if first == last else f"{first} to {last}"
        raise refused(
            f"there is no edition {value} of defaults", f"known: {known}; a newer autarky may know more of them"
        )
    return value


def _judge_nodes(nodes: list[NodePart]) -> list[NodePart]:
    raise_all(rules.judge_nodes(nodes), nodes)
    return nodes


class SpecPart(Part):
    """What the cluster should be."""

    kubernetes_version: syntax.KubernetesVersion | None = Field(
        default=None,
        alias="kubernetesVersion",
        description='The Kubernetes version, quoted: "1.36.4". Default: that of the cluster; of a new one the default '
        "release of this autarky.",
    )
    defaults: Annotated[StrictInt, AfterValidator(_known_edition)] | None = Field(
        default=None,
        description="The edition of defaults, a number: what the fields below amount to that the file leaves out. "
        "Default: that of the cluster; of a new one the newest of this autarky.",
    )
    self_hosted: Literal["0-4", "02-4", "1-4", "2-4", "3-4", "4"] = Field(
        default=NEW["selfHosted"],
        alias="selfHosted",
        description="Which levels run from API objects: 0 kubelet, 1 etcd, 2 API server, "
        "3 scheduler, controller-manager and kube-proxy, 4 add-ons.",
    )
    nodes: Annotated[list[NodePart], Field(min_length=1), AfterValidator(_judge_nodes)] = Field(
        description="The nodes. Those with the role control-plane run it: one, three or five."
    )
    ssh_config: syntax.LocalPath | None = Field(
        default=None,
        alias="sshConfig",
        description="An ssh_config for `ssh://` hosts, relative to this file. Default: the user's and the system's.",
    )
    network: NetworkPart = Field(default_factory=NetworkPart, description="The cluster's networks.")
    etcd: EtcdPart = Field(default_factory=EtcdPart, description="Where etcd runs.")
    control_plane_endpoint: syntax.Endpoint | None = Field(
        default=None,
        alias="controlPlaneEndpoint",
        description="host:port of your own load balancer or virtual address before the control nodes.",
    )
    extra_args: dict[syntax.Component, dict[syntax.ArgumentName, syntax.ArgumentValue]] = Field(
        default_factory=dict,
        alias="extraArgs",
        description="By component (kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet, "
        "etcd): more command-line arguments, without dashes; for kube-proxy fields of its configuration. "
        "They win over autarky's own.",
    )
    certificates: CertificatesPart = Field(default_factory=CertificatesPart, description="Keys and certificates.")
    rollback: RollbackPart = Field(
        default_factory=RollbackPart,
        description="Rollback of bad rollouts. It is kept in the ControlPlane object, where the operator reads it.",
    )
    upgrade: UpgradePart = Field(
        default_factory=UpgradePart,
        description="Upgrades of the control plane. It is kept in the ControlPlane object, too.",
    )
    kubelets: KubeletsPart = Field(
        default_factory=KubeletsPart, description="How kubelets change. It is kept in the ControlPlane object, too."
    )
    pools: Annotated[list[PoolPart], AfterValidator(judge_all)] = Field(
        default_factory=list,
        description="Pools of nodes whose kubelets change together, at most 50. They are kept in the ControlPlane "
        "object, too.",
    )

    @model_validator(mode="after")
    def _judge(self) -> Self:
        raise_all(rules.judge_spec(self), self)
        return self


class MetadataPart(Part):
    """The cluster's name."""

    name: syntax.Name = Field(description="A DNS label; names the cluster's directory and its lab.")


class ClusterFile(Part):
    """A cluster, as `autarky up -f FILE` brings it up."""

    api_version: Literal["autarky.dev/v1alpha1"] = Field(alias="apiVersion", description="The file's version.")
    kind: Literal["Cluster"] = Field(description="Always Cluster.")
    metadata: MetadataPart = Field(description="The cluster's name.")
    spec: SpecPart = Field(description="What the cluster should be.")
