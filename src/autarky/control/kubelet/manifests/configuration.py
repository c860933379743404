"""What a node's kubelet is configured by: what follows from its host and from autarky (its base), and the generation
that a new node starts with.

Contract: pure. A few settings depend on what the host supports; without facts an ordinary machine (cgroup v2, all
capabilities) is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping

from autarky import places
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.manifests.credentials import KUBELET_KUBECONFIG
from autarky.control.kubelet.manifests.generation import Base, Generation, base_digest, base_file, made
from autarky.model.cluster import Node
from autarky.model.components import KUBELET
from autarky.render.values import Inputs, Object

FORMER_KUBELET_CONFIG = "/var/lib/kubelet/config.json"
"""Where earlier releases had the kubelet's configuration."""

RESTART_PERIOD = "20s"
"""On control nodes: the reason why etcd or the API server exited (a full disk, say) may go away at any moment, and they
should be back soon after. The kubelet's default of 5 minutes would prolong the outage."""

# A test host sees the disk of the complete machine: with the kubelet's default thresholds, which are percentages, pods
# would be evicted and images removed because of other data there, with tens of GB free.
_TEST_HOST_DISK: Object = {
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "1Gi",
        "nodefs.inodesFree": "1%",
        "imagefs.available": "1Gi",
        "imagefs.inodesFree": "1%",
    },
    "imageGCHighThresholdPercent": 100,
}


def kubelet_config(inputs: Inputs, node: Node) -> Object:
    facts = inputs.facts_of(node)
    config: Object = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": places.MANIFESTS,
        "containerRuntimeEndpoint": f"unix://{places.CONTAINERD_SOCKET}",
        "clusterDNS": [inputs.cluster.network.dns_service_ip],
        "clusterDomain": inputs.cluster.network.dns_domain,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{places.PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "rotateCertificates": True,
        "serverTLSBootstrap": True,
        "readOnlyPort": 0,
        "failSwapOn": False,
        "cgroupDriver": "systemd",
        # The control plane's images were imported by autarky and must not need a registry again.
        "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
        "fileCheckFrequency": "20s",
    }
    if node.host.driver == "lab":
        config |= _TEST_HOST_DISK
    if facts is not None and facts.cgroup_version == 1:
        config |= {"cgroupDriver": "cgroupfs", "failCgroupV1": False}
    if not inputs.may_lower_oom_score(node):
        config["oomScoreAdj"] = 0
    if facts is not None and facts.upstream_resolv_conf is not None:
        # Pods would get the host's stub resolver: they cannot reach it, and CoreDNS would ask itself.
        config["resolvConf"] = facts.upstream_resolv_conf
    if node.control_plane:
        config["crashLoopBackOff"] = {"maxContainerRestartPeriod": RESTART_PERIOD}
    if node.taints:
        config["registerWithTaints"] = [
            {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints
        ]
    return config


def base_of(inputs: Inputs, node: Node) -> Base:
    """What follows from the host and from autarky for the node's kubelet."""
    arguments = {
        "kubeconfig": KUBELET_KUBECONFIG,
        "hostname-override": node.name,
        "node-ip": node.known_address(),
    }
    return Base(kubelet_config(inputs, node), arguments)


def first_generation(inputs: Inputs, node: Node, links: Mapping[str, str]) -> Generation:
    """That with which a new node starts. links: its programs."""
    base = base_of(inputs, node)
    return Generation(links, made(base, target_of(inputs, base_digest(base_file(base).content))))


def target_of(inputs: Inputs, base: str) -> Target:
    """What the operator will want of a node that has just been brought up. base: the digest of its own one."""
    given = inputs.cluster.extra_args.get(KUBELET, {})
    return Target(inputs.cluster.kubernetes_version, base, arguments={name: str(one) for name, one in given.items()})
