"""Level 0 and below: containerd and the kubelet as systemd units, their configuration and credentials.

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
from autarky.control.certificates.manifests.specs import renewal_certificate
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.manifests import files as generations
from autarky.control.kubelet.manifests import hosted
from autarky.control.kubelet.manifests.generation import Base, Generation, base_digest, base_file, made
from autarky.control.kubelet.manifests.units import UNIT as CHANGE_UNIT
from autarky.control.kubelet.manifests.units import units as change_units
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots import manifests as standby
from autarky.model.cluster import Cluster, Node
from autarky.model.components import ETCD, KUBELET, LOAD_BALANCER
from autarky.model.files import File
from autarky.render.kubeconfig import RENEWER, file_kubeconfig, pair_kubeconfig
from autarky.render.values import Inputs, Object, pretty_json

FORMER_KUBELET_CONFIG = "/var/lib/kubelet/config.json"
"""Where earlier releases had the kubelet's configuration."""
KUBELET_KUBECONFIG = f"{places.KUBERNETES}/kubelet.conf"
BOOTSTRAP_KUBECONFIG = f"{places.KUBERNETES}/bootstrap-kubelet.conf"
CURRENT = "kubelet-client-current.pem"
"""The kubelet's link to its newest certificate and key."""
SERVING = "kubelet-server-current.pem"
"""The same for its serving certificate."""
FIRST_CERTIFICATE = f"{agent.KUBELET_PKI}/kubelet-client-first.pem"
CURRENT_PATH = f"{agent.KUBELET_PKI}/{CURRENT}"
FIRST_LINK = {CURRENT_PATH: FIRST_CERTIFICATE}
GIVEN = f"{agent.KUBELET_PKI}/given"
"""Mark: exists from when the agent has issued the kubelet a certificate until the kubelet is restarted with it."""
CONTAINERD_CONFIG = "/etc/containerd/config.toml"
CNI_BIN = "/opt/cni/bin"
CNI_CONF = "/etc/cni/net.d"
SYSCTLS = "/etc/sysctl.d/90-autarky.conf"
MODULES_FILE = "/etc/modules-load.d/autarky.conf"
MODULES = ("overlay", "br_netfilter", *(one for addon in reversed(ADD_ONS) for one in addon.modules))
"""Required kernel modules; preflight refuses a host that cannot have them. Nothing loads br_netfilter by itself, and
its sysctl does not exist without it; the others would be loaded on first use, if that is still allowed then."""
CONTAINERD_UNIT = "/etc/systemd/system/containerd.service"
KUBELET_UNIT = "/etc/systemd/system/kubelet.service"
GIVEN_UNIT = "autarky-kubelet-certificate"
GIVEN_UNITS = tuple(f"/etc/systemd/system/{GIVEN_UNIT}.{kind}" for kind in ("path", "service"))

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

RESTART_PERIOD = "20s"
"""On control nodes: the reason why etcd or the API server exited (a full disk, say) may go away at any moment, and they
should be back soon after. The kubelet's default of 5 minutes would prolong the outage."""

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

# A kubelet whose certificate has expired requests a new one with its bootstrap kubeconfig, and waits for the operator
# to approve it: it never reads its files again. Where the CA's key is, the agent signs a certificate without an
# operator, and the kubelet is restarted to load it (`_GIVEN_PATH`). A label may change which kind of node this is, so
# the script tests that at each start. A kubelet never starts with a damaged certificate, nor with a kubeconfig that a
# power cut has left empty, since it does not sync that file.
_KUBELET_UNIT = """\
[Unit]
Description=kubelet
Wants=containerd.service {given}.path {change}.path
After=containerd.service network.target
StartLimitIntervalSec=0

[Service]
Environment=PATH={bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStartPre=-/bin/sh -c '{without_damaged}'
ExecStartPre=-{slots} boot
ExecStartPre=-{standby} boot
ExecStart={slots} start
ExecStop=-{slots} stop $MAINPID
ExecStartPost=-/bin/sh -c "{standby} boot-rest &"
KillMode=process
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""

# A kubelet without a valid certificate requests one with what its agent has put on the disk by then, waits a quarter of
# an hour for an operator that waits for this kubelet, and does not read its files again. The agent is in a container
# and cannot start anything on the host, so systemd watches for its mark. The mark is removed last: if the host goes
# down in between, there is one more restart.
_GIVEN_PATH = """\
[Unit]
Description=the kubelet's agent has given it a certificate

[Path]
PathExists={mark}
"""
_GIVEN_SERVICE = """\
[Unit]
Description=restart the kubelet with the certificate that its agent has given it

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'systemctl try-restart kubelet; {slots} aside; rm -f {mark}'
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
        base_file(base_of(inputs, node)),
        *_given_units(),
        *change_units(),
        File(KUBELET_UNIT, _kubelet_unit().encode()),
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


def renewal_kubeconfig(inputs: Inputs, node: Node) -> File:
    """With this a worker's kubelet whose certificate has expired requests a new one. Control nodes have it for the case
    that they become workers."""
    name = renewal_certificate(node.name).name
    certificate, key = (inputs.credentials[f"{name}.{end}"] for end in ("crt", "key"))
    content = pair_kubeconfig(inputs.credentials["ca.crt"], inputs.cluster.name, RENEWER, certificate, key)
    return File(BOOTSTRAP_KUBECONFIG, content, 0o600)


def first_credentials(inputs: Inputs, node: Node) -> list[File]:
    """A control node's kubelet starts with this certificate, and rotates it by itself later.

    Written only where there is none. The kubeconfig names the file with the kubelet's newest certificate (a link,
    initially FIRST_LINK): the kubelet requests the next one with the certificate of the kubeconfig, and an embedded one
    would expire, however often the kubelet has rotated its own.
    """
    pair = b"".join(inputs.credentials[f"kubelet-{node.name}.{end}"] for end in ("crt", "key"))
    return [File(FIRST_CERTIFICATE, pair, 0o600), kubelet_kubeconfig(inputs, node)]


def kubelet_kubeconfig(inputs: Inputs, node: Node) -> File:
    current = f"{agent.KUBELET_PKI}/{CURRENT}"
    content = file_kubeconfig(inputs, f"system:node:{node.name}", current, current)
    return File(KUBELET_KUBECONFIG, content, 0o600)


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
    restrict_oom = "true" if _cannot_lower_oom_score(inputs, node) else "false"
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


def _cannot_lower_oom_score(inputs: Inputs, node: Node) -> bool:
    """Without CAP_SYS_RESOURCE (test hosts) a process with a negative oom score fails to start."""
    facts = inputs.facts_of(node)
    return facts is not None and not facts.may_lower_oom_score


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
    if _cannot_lower_oom_score(inputs, node):
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


# The file has a certificate and then its key. A file that cannot be read stays, since it may be good.
_WITHOUT_DAMAGED = (
    f"cd {agent.KUBELET_PKI} && for one in {CURRENT} {SERVING}; do [ -L $$one ] || continue;"
    " if [ -e $$one ]; then last=$$(tail -n 1 $$one) || continue;"
    " case $$last in -----END*KEY-----) continue;; esac; fi; rm $$one; done"
)


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


def _kubelet_unit() -> str:
    return _KUBELET_UNIT.format(
        bin=places.BIN,
        given=GIVEN_UNIT,
        change=CHANGE_UNIT,
        slots=generations.SCRIPT_PATH,
        standby=standby.SCRIPT_PATH,
        without_damaged=_WITHOUT_DAMAGED,
    )


def _given_units() -> list[File]:
    """The units that restart the kubelet with a certificate that its agent has issued."""
    contents = (_GIVEN_PATH, _GIVEN_SERVICE)
    values = {"mark": GIVEN, "slots": generations.SCRIPT_PATH}
    return [File(path, content.format(**values).encode()) for path, content in zip(GIVEN_UNITS, contents, strict=True)]
