"""A kubeadm cluster on lab hosts, with the same binaries and images: the yardstick.

What autarky does before its clock starts, kubeadm has done before its own: binaries, containerd, images, and
certificates and keys of the same kind (ECDSA P-256), by the phases of `kubeadm init` that make them. Other control
nodes get the CAs and keys that all share as its documentation has it (manual certificate distribution), and make their
own with them. `init` and `join` use what they find. (For some of the files they make a key and throw it away, which
takes less than a millisecond for keys of this kind.) On the clock, on both sides, is what kubelets begin with: `init`
makes the first one's, the others ask for theirs.

Danger: a control node joins by its configuration alone. With `--control-plane` on the command line as well, `join`
would take the admin.conf that it finds for the way into the cluster, and discover nothing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _product import THIS_TREE
from _tree import ROOT

from autarky.cli.wiring import Silence, lab_supplies
from autarky.config import default_cluster
from autarky.hosts import LabHost
from autarky.lab import Lab
from autarky.model.files import File
from autarky.payload import Payload, known_versions
from autarky.ports import Host
from autarky.render import node as render_node
from autarky.render.values import Credentials, Inputs

KUBEADM = "/usr/bin/kubeadm"
CONFIG = "/root/kubeadm.yaml"
IGNORED = "--ignore-preflight-errors=all"
INIT_SECONDS = 180
PKI = "/etc/kubernetes/pki"
SHARED = (
    *("ca.crt", "ca.key", "sa.pub", "sa.key", "front-proxy-ca.crt", "front-proxy-ca.key"),
    *("etcd/ca.crt", "etcd/ca.key"),
)
"""Below PKI, the same on all control nodes."""
OWN = (
    *("apiserver", "apiserver-kubelet-client", "apiserver-etcd-client", "front-proxy-client"),
    *("etcd/server", "etcd/peer", "etcd/healthcheck-client"),
)
"""Below PKI, each with .crt and .key: a control node's own."""
KUBECONFIGS = ("admin", "super-admin", "controller-manager", "scheduler")
"""Not the kubelet's."""
ISSUED = (
    *(f"{PKI}/{name}" for name in SHARED),
    *(f"{PKI}/{name}.{end}" for name in OWN for end in ("crt", "key")),
    *(f"/etc/kubernetes/{name}.conf" for name in KUBECONFIGS),
)
"""What a control node has before the clock starts."""
EXAMPLE = ROOT / "examples" / "lab-1.yaml"
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


def kubeadm_config(version: str, name: str, endpoint: str = "") -> str:
    """Only what this kind of host needs (cgroup v1, no CAP_SYS_RESOURCE), the images that are there and keys of
    autarky's kind. `name`: the node's. `endpoint`: of a cluster with several control nodes."""
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "nodeRegistration": {"name": name, "criSocket": "unix:///run/containerd/containerd.sock", "taints": []},
        },
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": version,
            "encryptionAlgorithm": "ECDSA-P256",
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
    document: dict[str, Any] = {
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
        document["controlPlane"] = {}
    return json.dumps(document) + "\n"


@dataclass(frozen=True)
class Joining:
    """What `kubeadm init` prints for those that join."""

    endpoint: str
    token: str
    ca_hash: str

    @classmethod
    def parse(cls, said: str) -> Joining:
        words = said.replace("\\", " ").split()
        command = words[next(at for at in range(1, len(words)) if words[at - 1 : at + 1] == ["kubeadm", "join"]) :]

        def after(word: str) -> str:
            return command[command.index(word) + 1]

        return cls(after("join"), after("--token"), after("--discovery-token-ca-cert-hash"))


Digests = Mapping[str, Mapping[str, tuple[str, int]]]
"""Control node → path → what is there."""


@dataclass(frozen=True)
class KubeadmCluster:
    """begin, returned: monotonic seconds when `init` was started and when the last command returned, that for flannel
    among them. issued: what the control nodes had when `init` was started."""

    hosts: Mapping[str, LabHost]
    kubectl: list[str]
    begin: float
    returned: float
    issued: Digests


async def kubeadm_cluster(payload: Payload, lab: Lab, directory: Path) -> KubeadmCluster:
    """Made from scratch. `init` with flannel applied the moment it returns; its kubeconfig goes into the directory."""
    hosts = await _hosts(payload, lab, ["n1"])
    await _prepare(payload, hosts)
    issued = await issue_certificates(hosts)
    flannel = _flannel(directory, "127.0.0.1")
    begin = time.monotonic()
    await _init(hosts["n1"])
    kubectl = await _apply(payload, hosts["n1"], directory, flannel)
    return KubeadmCluster(hosts, kubectl, begin, time.monotonic(), issued)


async def kubeadm_ha_cluster(
    payload: Payload, lab: Lab, directory: Path, control_nodes: Sequence[str], workers: Sequence[str]
) -> KubeadmCluster:
    """Made from scratch, as its documentation says: `init` on the first node, flannel, then one join after the other.
    The endpoint is the first node's own address, which costs least: no load balancer has to come up."""
    names = [*control_nodes, *workers]
    hosts = await _hosts(payload, lab, names)
    first = hosts[names[0]]
    await _prepare(payload, hosts, endpoint=f"{first.address}:6443")
    issued = await issue_certificates({name: hosts[name] for name in control_nodes})
    flannel = _flannel(directory, first.address)
    begin = time.monotonic()
    joining = Joining.parse(await _init(first))
    kubectl = await _apply(payload, first, directory, flannel)
    for name in names[1:]:
        await _join(name, hosts[name], joining, control=name in control_nodes)
    return KubeadmCluster(hosts, kubectl, begin, time.monotonic(), issued)


# --- before the clock starts ----------------------------------------------------------------------


async def _hosts(payload: Payload, lab: Lab, names: Sequence[str]) -> dict[str, LabHost]:
    await lab.down()
    runc, seed = await lab_supplies(payload.release, Silence())
    await lab.ensure(names, runc=runc, seed=seed, progress=Silence())
    return {name: lab_host(lab.name, name) for name in names}


def lab_host(lab: str, name: str = "n1") -> LabHost:
    record = Lab.open(lab).records()[name]
    return LabHost(name, record.pid, record.start_time, address=record.address)


async def _prepare(payload: Payload, hosts: Mapping[str, LabHost], endpoint: str = "") -> None:
    version = str(payload.release.kubernetes)

    async def one(name: str, host: LabHost) -> None:
        await prepare_kubeadm_host(host, payload, kubeadm_config(version, name, endpoint))

    await asyncio.gather(*(one(name, host) for name, host in hosts.items()))


async def prepare_kubeadm_host(host: LabHost, payload: Payload, config: str) -> None:
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
        File(CONFIG, config.encode()),
    ]
    await host.write_files(files)
    await host.run(["sysctl", "--quiet", "--load", render_node.SYSCTLS], check=False)
    await host.run(["systemctl", "daemon-reload"])
    await host.run(["systemctl", "enable", "--now", "containerd"])
    await host.run(["systemctl", "enable", "kubelet"])


async def issue_certificates(hosts: Mapping[str, Host]) -> Digests:
    """Of these control nodes, which share what the first of them makes."""
    first, *others = hosts.values()
    await _issue(first)
    shared = [await _shared(first, name) for name in SHARED]
    for host in others:
        await host.write_files(shared)
        await _issue(host)
    issued = {name: await host.digests(ISSUED) for name, host in hosts.items()}
    if lacking := [f"{path} on {name}" for name, seen in issued.items() for path in ISSUED if path not in seen]:
        raise SystemExit(f"kubeadm has not issued {', '.join(lacking)}")
    return issued


async def _issue(host: Host) -> None:
    """What is there already is kept."""
    await host.run([KUBEADM, "init", "phase", "certs", "all", f"--config={CONFIG}"])
    for name in KUBECONFIGS:
        await host.run([KUBEADM, "init", "phase", "kubeconfig", name, f"--config={CONFIG}"])


async def _shared(host: Host, name: str) -> File:
    path = f"{PKI}/{name}"
    content = await host.read(path)
    if content is None:
        raise SystemExit(f"kubeadm has not issued {path}")
    return File(path, content, 0o600 if name.endswith(".key") else 0o644)


def _flannel(directory: Path, server: str) -> Path:
    """The same flannel, as `autarky render` writes it; it reaches the API through kubeadm's own port, at this address:
    a worker has no server of its own."""
    rendered = directory / "rendered"
    command = [*THIS_TREE.command, "render", "-f", str(EXAMPLE), str(rendered)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **THIS_TREE.where)
    manifest = next(rendered.glob("manifests/*-flannel.yaml"))
    text, here = manifest.read_text(), "value: 127.0.0.1\n"
    if text.count(here) != 1:
        raise SystemExit(f"{manifest} does not say once where the API is")
    manifest.write_text(text.replace(here, f"value: {server}\n"))
    return manifest


# --- on the clock ---------------------------------------------------------------------------------


async def _init(host: LabHost) -> str:
    return (await host.run([KUBEADM, "init", f"--config={CONFIG}", IGNORED], timeout=INIT_SECONDS)).text


async def _apply(payload: Payload, host: LabHost, directory: Path, flannel: Path) -> list[str]:
    """flannel, by a kubectl that is returned."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_bytes(await host.read("/etc/kubernetes/admin.conf") or b"")
    kubectl = [str(payload.binaries["kubectl"].path), f"--kubeconfig={kubeconfig}"]
    subprocess.run([*kubectl, "apply", "-f", str(flannel)], check=True, stdout=subprocess.DEVNULL)
    return kubectl


async def _join(name: str, host: LabHost, joining: Joining, *, control: bool) -> None:
    content = join_config(name, joining, control=control).encode()
    await host.write_files([File("/root/join.yaml", content, 0o600)])
    await host.run([KUBEADM, "join", "--config=/root/join.yaml", IGNORED], timeout=INIT_SECONDS)


# --- afterwards -----------------------------------------------------------------------------------


async def refuse_others(hosts: Mapping[str, Host], issued: Digests) -> None:
    """SystemExit when kubeadm has made on the clock what it had: then it was not measured as it is said to be."""
    for name, had in issued.items():
        seen = await hosts[name].digests(ISSUED)
        if other := [path for path in ISSUED if seen.get(path) != had[path]]:
            raise SystemExit(f"kubeadm has not used what it had on {name}: {', '.join(other)}")
