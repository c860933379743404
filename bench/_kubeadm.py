"""A kubeadm cluster on lab hosts, with the same binaries and images: the yardstick."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autarky.cli.wiring import Silence, lab_supplies
from autarky.config import default_cluster
from autarky.hosts import LabHost
from autarky.lab import Lab
from autarky.model.files import File
from autarky.payload import Payload, known_versions
from autarky.render import node as render_node
from autarky.render.values import Credentials, Inputs

INIT_SECONDS = 180
KUBELET_UNIT = """\
[Unit]
After=containerd.service
[Service]
Environment=PATH=/var/lib/autarky/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
 --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=10
[Install]
WantedBy=multi-user.target
"""


def kubeadm_config(version: str, endpoint: str = "") -> str:
    """Only what this kind of host needs (cgroup v1, no CAP_SYS_RESOURCE) and the images that are there. `endpoint`:
    of a cluster with several control nodes."""
    documents = [
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "nodeRegistration": {"name": "n1", "criSocket": "unix:///run/containerd/containerd.sock", "taints": []},
        },
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": version,
            **({"controlPlaneEndpoint": endpoint} if endpoint else {}),
            "networking": {"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/16"},
            # flannel runs as autarky's manifest has it, which dials the node's own port.
            "apiServer": {"certSANs": ["127.0.0.1"]},
            "etcd": {"local": {"imageTag": "3.6.16-0"}},
            "dns": {"imageRepository": "registry.k8s.io/coredns", "imageTag": "v1.14.7"},
        },
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
        },
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "conntrack": {"maxPerCore": 0},
            "oomScoreAdj": 0,
        },
    ]
    return "---\n".join(json.dumps(document) + "\n" for document in documents)


def join_config(name: str, joining: Joining, *, control: bool) -> str:
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": joining.endpoint,
                "token": joining.token,
                "caCertHashes": [joining.ca_hash],
            }
        },
        "nodeRegistration": {"name": name, "criSocket": "unix:///run/containerd/containerd.sock", "taints": []},
    }
    if control:
        document["controlPlane"] = {"certificateKey": joining.certificate_key}
    return json.dumps(document) + "\n"


@dataclass(frozen=True)
class Joining:
    """What `kubeadm init` prints for those that join."""

    endpoint: str
    token: str
    ca_hash: str
    certificate_key: str

    @classmethod
    def parse(cls, said: str) -> Joining:
        words = said.replace("\\", " ").split()
        command = words[next(at for at in range(1, len(words)) if words[at - 1 : at + 1] == ["kubeadm", "join"]) :]

        def after(word: str) -> str:
            return command[command.index(word) + 1]

        return cls(after("join"), after("--token"), after("--discovery-token-ca-cert-hash"), after("--certificate-key"))


@dataclass(frozen=True)
class KubeadmCluster:
    """begin, returned: monotonic seconds when `init` was started and when it returned."""

    host: LabHost
    kubectl: list[str]
    begin: float
    returned: float


async def kubeadm_cluster(payload: Payload, lab: Lab, directory: Path) -> KubeadmCluster:
    """Made anew. `init` with flannel applied the moment it returns; its kubeconfig goes into the directory."""
    await lab.down()
    runc, seed = await lab_supplies(payload.release, Silence())
    await lab.ensure(["n1"], runc=runc, seed=seed, progress=Silence())
    host = lab_host(lab.name)
    await prepare_kubeadm_host(host, payload)
    flannel = directory / "flannel.yaml"
    flannel.write_text(flannel_manifests())
    begin = time.monotonic()
    ignored = "--ignore-preflight-errors=all"
    await host.run(["/usr/bin/kubeadm", "init", "--config=/root/kubeadm.yaml", ignored], timeout=INIT_SECONDS)
    returned = time.monotonic()
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_bytes(await host.read("/etc/kubernetes/admin.conf") or b"")
    kubectl = [str(payload.binaries["kubectl"].path), f"--kubeconfig={kubeconfig}"]
    subprocess.run([*kubectl, "apply", "-f", str(flannel)], check=True, stdout=subprocess.DEVNULL)
    return KubeadmCluster(host, kubectl, begin, returned)


async def kubeadm_ha_cluster(
    payload: Payload, lab: Lab, directory: Path, control_nodes: Sequence[str], workers: Sequence[str]
) -> KubeadmCluster:
    """Made anew, as its documentation says: `init` on the first node, flannel, then one join after the other. The
    endpoint is the first node's own address, which costs least: no load balancer has to come up."""
    await lab.down()
    names = [*control_nodes, *workers]
    runc, seed = await lab_supplies(payload.release, Silence())
    await lab.ensure(names, runc=runc, seed=seed, progress=Silence())
    hosts = {name: lab_host(lab.name, name) for name in names}
    first = hosts[control_nodes[0]]
    endpoint = f"{first.address}:6443"
    await asyncio.gather(*(prepare_kubeadm_host(host, payload, endpoint) for host in hosts.values()))
    flannel = directory / "flannel.yaml"
    flannel.write_text(flannel_manifests())
    begin = time.monotonic()
    ignored = "--ignore-preflight-errors=all"
    init = ["/usr/bin/kubeadm", "init", "--config=/root/kubeadm.yaml", "--upload-certs", ignored]
    joining = Joining.parse((await first.run(init, timeout=INIT_SECONDS)).text)
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_bytes(await first.read("/etc/kubernetes/admin.conf") or b"")
    kubectl = [str(payload.binaries["kubectl"].path), f"--kubeconfig={kubeconfig}"]
    subprocess.run([*kubectl, "apply", "-f", str(flannel)], check=True, stdout=subprocess.DEVNULL)
    for name in names[1:]:
        content = join_config(name, joining, control=name in control_nodes).encode()
        await hosts[name].write_files([File("/root/join.yaml", content, 0o600)])
        await hosts[name].run(["/usr/bin/kubeadm", "join", "--config=/root/join.yaml", ignored], timeout=INIT_SECONDS)
    return KubeadmCluster(first, kubectl, begin, time.monotonic())


def lab_host(lab: str, name: str = "n1") -> LabHost:
    record = Lab.open(lab).records()[name]
    return LabHost(name, record.pid, record.start_time, address=record.address)


async def prepare_kubeadm_host(host: LabHost, payload: Payload, endpoint: str = "") -> None:
    """Binaries, containerd as autarky configures it, the kubelet's unit as kubeadm's packages have it."""
    cluster = default_cluster(default_version=payload.release.kubernetes, known_versions=known_versions())
    facts = await host.facts()
    images = {name: image.reference for name, image in payload.images.items()}
    inputs = Inputs(cluster.with_addresses({"n1": facts.address}), images, Credentials({}), {"n1": facts})
    node = inputs.cluster.nodes[0]
    for name, path in render_node.BINARIES.items():
        await host.push(payload.binaries[name].path, path, mode=0o755)
    for name in ("kubeadm", "kubelet", "kubectl"):
        await host.push(payload.binaries[name].path, f"/usr/bin/{name}", mode=0o755)
    files = [
        *render_node.system_files(inputs, node),
        File("/etc/systemd/system/kubelet.service", KUBELET_UNIT.encode()),
    ]
    await host.write_files(
        [*files, File("/root/kubeadm.yaml", kubeadm_config(str(payload.release.kubernetes), endpoint).encode())]
    )
    await host.run(["sysctl", "--quiet", "--load", render_node.SYSCTLS], check=False)
    await host.run(["systemctl", "daemon-reload"])
    await host.run(["systemctl", "enable", "--now", "containerd"])
    await host.run(["systemctl", "enable", "kubelet"])


def flannel_manifests() -> str:
    """The same flannel, as `autarky render` writes it; it reaches the API through kubeadm's own port."""
    with tempfile.TemporaryDirectory() as directory:
        rendered = Path(directory) / "rendered"
        command = [sys.executable, "-m", "autarky", "render", "-f", "examples/lab-1.yaml", str(rendered)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return next(rendered.glob("manifests/*-flannel.yaml")).read_text()
