"""A node's files, of all subjects: those that must exist before containerd starts, and those before the kubelet does;
containerd itself and what it needs of the host.

A few settings depend on what the host supports (cgroup version, whether oom scores may be lowered), so these are
rendered with the host's facts; without facts an ordinary machine (cgroup v2, all capabilities) is assumed, as for
`autarky render` before the hosts exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from autarky import places
from autarky.control.addons import ADD_ONS
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.certificates.manifests import leaves
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.kubelet.manifests import configuration as kubelet_configuration
from autarky.control.kubelet.manifests import files as generations
from autarky.control.kubelet.manifests import hosted
from autarky.control.kubelet.manifests import service as kubelet_service
from autarky.control.kubelet.manifests.generation import base_file
from autarky.control.kubelet.manifests.units import units as change_units
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots import manifests as standby
from autarky.model.cluster import Cluster, Node
from autarky.model.components import ETCD, LOAD_BALANCER
from autarky.model.files import File
from autarky.render.values import Inputs, Object, pretty_json

CONTAINERD_CONFIG = "/etc/containerd/config.toml"
CNI_BIN = "/opt/cni/bin"
CNI_CONF = "/etc/cni/net.d"
SYSCTLS = "/etc/sysctl.d/90-autarky.conf"
MODULES_FILE = "/etc/modules-load.d/autarky.conf"
MODULES = ("overlay", "br_netfilter", *(one for addon in reversed(ADD_ONS) for one in addon.modules))
"""Required kernel modules; preflight refuses a host that cannot have them. Nothing loads br_netfilter by itself, and
its sysctl does not exist without it; the others would be loaded on first use, if that is still allowed then."""
CONTAINERD_UNIT = "/etc/systemd/system/containerd.service"

ETCD_TOOLS: Mapping[str, str] = {
    "etcd": f"{places.BIN}/etcd",
    "etcdctl": f"{places.BIN}/etcdctl",
    "etcdutl": f"{places.BIN}/etcdutl",
}
"""etcd itself, which a snapshot is tried with before it counts as a backup; members run from the image."""
BINARIES: Mapping[str, str] = {
    "containerd": f"{places.BIN}/containerd",
    "containerd-shim-runc-v2": f"{places.BIN}/containerd-shim-runc-v2",
    "ctr": f"{places.BIN}/ctr",
    "runc": f"{places.BIN}/runc",
    "kubelet": f"{places.BIN}/kubelet",
    "kubectl": f"{places.BIN}/kubectl",
    "bridge": f"{CNI_BIN}/bridge",
    "loopback": f"{CNI_BIN}/loopback",
    "host-local": f"{CNI_BIN}/host-local",
    "portmap": f"{CNI_BIN}/portmap",
    **ETCD_TOOLS,
}
"""Every node's binaries and where they go, by their name in the payload: a label makes any node a control node."""

STATS_PERIOD = "10s"
"""How often containerd reads the CPU time of all containers, for `UsageNanoCores` in its answers. The kubelet requests
that only with the feature PodAndContainerStatsFromCRI, and then every 10 s. containerd's default (2.3) of one second
takes 2 % of a core on a node with ten pods."""

# tcp_migrate_req: a closing listener passes its queued connections to its SO_REUSEPORT sibling (Linux 5.14).
SYSCTL_SETTINGS = """\
net.ipv4.ip_forward = 1
net.ipv4.tcp_migrate_req = 1
-net.bridge.bridge-nf-call-iptables = 1
"""

# No start limit: after five failures in ten seconds, as on a full disk, systemd would never try again.
_CONTAINERD_UNIT = """\
[Unit]
Description=containerd
After=network.target
StartLimitIntervalSec=0

[Service]
Type=notify
Environment=PATH={bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStartPre=-{slots} boot
ExecStart={bin}/containerd --config {config}
Delegate=yes
KillMode=process
Restart=always
RestartSec=1
OOMPolicy=continue
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"""


def system_files(inputs: Inputs, node: Node) -> list[File]:
    """The files that must exist before containerd starts."""
    unit = _CONTAINERD_UNIT.format(bin=places.BIN, config=CONTAINERD_CONFIG, slots=generations.SCRIPT_PATH)
    return [
        generations.script(),
        hosted.script(),
        File(MODULES_FILE, "".join(f"{name}\n" for name in MODULES).encode()),
        File(SYSCTLS, SYSCTL_SETTINGS.encode()),
        File(CONTAINERD_CONFIG, containerd_config(inputs, node).encode()),
        File(CONTAINERD_UNIT, unit.encode()),
    ]


def kubelet_files(inputs: Inputs, node: Node) -> list[File]:
    """The files that must exist before the kubelet starts, except a worker's bootstrap token."""
    files = [
        File(f"{places.PKI}/ca.crt", inputs.credentials["ca.crt"]),
        base_file(kubelet_configuration.base_of(inputs, node)),
        *kubelet_service.given_units(),
        *change_units(),
        kubelet_service.kubelet_unit(),
        standby.script(),
        *nllb.files(inputs, node),
    ]
    if node.control_plane:
        files += ca_files(inputs)
    return files


def leaf_paths(cluster: Cluster, node: Node) -> list[str]:
    """The paths of `leaf_files`, without the need for any key."""
    found = leaves.leaves_of(node.name, leaves.plan_of(cluster).at(node.known_address()))
    return [*dict.fromkeys(path for leaf in found for path in (leaf.key, leaf.certificate)), places.LEAVES_PLAN]


def leaf_files(inputs: Inputs, node: Node) -> list[File]:
    """The first leaf certificates of a control node: written where there are none; from then on its agent renews them.
    The plan by which it does comes last."""
    plan = leaves.plan_of(inputs.cluster).at(node.known_address())
    files = []
    for leaf in leaves.leaves_of(node.name, plan):
        certificate, key = (inputs.credentials[f"{leaf.spec.name}.{end}"] for end in ("crt", "key"))
        mode = 0o640 if leaf.shared else 0o600
        if leaf.key == leaf.certificate:
            files.append(File(leaf.certificate, certificate + key, mode))
        else:
            files += [File(leaf.key, key, mode), File(leaf.certificate, certificate, mode)]
    return [*files, File(places.LEAVES_PLAN, leaves.written(plan).encode(), 0o600)]


def static_pods(inputs: Inputs, node: Node) -> dict[str, File]:
    """Component → manifest of the permanent static pods of this node, as `up` first writes them."""
    result = {LOAD_BALANCER: manifest(nllb.pod(inputs, node))}
    if has_etcd(inputs, node):
        result[ETCD] = manifest(etcd.member_pod(inputs, node))
    return result


def has_etcd(inputs: Inputs, node: Node) -> bool:
    return node.control_plane and inputs.cluster.external_etcd is None


def agent_pod(inputs: Inputs, node: Node) -> dict[str, File]:
    """The standby agent: from the pivot on if something has to pivot, else from after it."""
    return {agent.STANDBY_POD: manifest(agent.static_pod(inputs, node))} if node.control_plane else {}


def manifest(pod: Object) -> File:
    """A static pod's file, for the kubelet, readable by root only."""
    return File(f"{places.MANIFESTS}/{pod['metadata']['name']}.json", pretty_json(pod), 0o600)


RECOVERY = (
    *("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key"),
    *("etcd/ca.crt", "etcd/ca.key"),
)
"""Below /etc/kubernetes/pki of every control node: CAs and service account keys. A recovery starts from them, and a
control node signs its certificates with them. (An external etcd has its own CA.)"""


def recovery_files(inputs: Inputs) -> dict[str, bytes]:
    ours = inputs.cluster.external_etcd is None
    return {name: inputs.credentials[name] for name in RECOVERY if ours or not name.startswith("etcd/")}


def ca_files(inputs: Inputs) -> list[File]:
    """Readable by root only; the cluster's CA certificate itself is on every node, readable by all."""
    found = recovery_files(inputs).items()
    return [File(f"{places.PKI}/{name}", content, 0o600) for name, content in found if name != "ca.crt"]


def containerd_config(inputs: Inputs, node: Node) -> str:
    """containerd 2.x, configuration version 3."""
    facts = inputs.facts_of(node)
    systemd_cgroup = "false" if facts is not None and facts.cgroup_version == 1 else "true"
    restrict_oom = "false" if inputs.may_lower_oom_score(node) else "true"
    return f"""\
version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{inputs.image("pause")}'

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = {restrict_oom}
stats_collect_period = '{STATS_PERIOD}'

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{CNI_BIN}']
conf_dir = '{CNI_CONF}'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{places.BIN}/runc'
SystemdCgroup = {systemd_cgroup}
"""
