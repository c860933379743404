"""Level 1, etcd: a static pod with hostPath data on each member's node, on the node's own address.

No Service, DNS or pod network is involved: what the API server needs must not need the API server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky import places
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.render import pods
from autarky.render.values import Inputs, Object, flags

COMPONENT = "etcd"
PKI = f"{places.PKI}/etcd"


def pki_files(inputs: Inputs, node: Node) -> list[File]:
    """The member's own certificates, root only."""
    credentials = inputs.credentials
    names = {
        "ca.crt": "etcd/ca.crt",
        "server.crt": f"etcd/server-{node.name}.crt",
        "server.key": f"etcd/server-{node.name}.key",
        "peer.crt": f"etcd/peer-{node.name}.crt",
        "peer.key": f"etcd/peer-{node.name}.key",
    }
    return [File(f"{PKI}/{name}", credentials[source], 0o600) for name, source in names.items()]


@dataclass(frozen=True, slots=True)
class Founding:
    """What a member is told of the cluster for its very first start. Afterwards its own log knows better, so it
    stays on the command line as it was: a member whose neighbours change goes on undisturbed."""

    cluster: str
    state: str


def founders(nodes: Sequence[Node]) -> Founding:
    """A new cluster of these nodes."""
    urls = {node.name: f"https://{node.known_address()}:{ports.ETCD_PEER}" for node in nodes}
    return Founding(",".join(f"{name}={url}" for name, url in urls.items()), "new")


def founding_of(pod: Object) -> Founding | None:
    """What the member of this static pod was told; None where that cannot be read."""
    try:
        words = [word.partition("=") for word in pod["spec"]["containers"][0]["command"]]
        found = {name: value for name, _, value in words}
        return Founding(found["--initial-cluster"], found["--initial-cluster-state"])
    except (KeyError, IndexError, TypeError, AttributeError):
        return None


def arguments(inputs: Inputs, node: Node, founding: Founding) -> list[str]:
    """The command line of a member."""
    address = node.known_address()
    client = f"https://{address}:{ports.ETCD_CLIENT}"
    peer = f"https://{address}:{ports.ETCD_PEER}"
    ours = {
        "name": node.name,
        "data-dir": places.ETCD_DATA,
        "listen-client-urls": f"https://127.0.0.1:{ports.ETCD_CLIENT},{client}",
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": founding.cluster,
        "initial-cluster-state": founding.state,
        "initial-cluster-token": inputs.cluster.name,
        # Health for the kubelet, which has no client certificate. Metrics for others: /metrics on 2379 with one.
        "listen-metrics-urls": f"http://127.0.0.1:{ports.ETCD_HEALTH}",
        "client-cert-auth": "true",
        "trusted-ca-file": f"{PKI}/ca.crt",
        "cert-file": f"{PKI}/server.crt",
        "key-file": f"{PKI}/server.key",
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": f"{PKI}/ca.crt",
        "peer-cert-file": f"{PKI}/peer.crt",
        "peer-key-file": f"{PKI}/peer.key",
        "snapshot-count": "10000",
        "watch-progress-notify-interval": "5s",
        "feature-gates": "InitialCorruptCheck=true",
    }
    return flags(ours, inputs.cluster.extra_args.get(COMPONENT, {}))


def member_pod(inputs: Inputs, node: Node, founding: Founding | None = None) -> Object:
    """The member's static pod; `founding` as the one that is there has it, None for a founder of the cluster."""
    founding = founding or founders(inputs.cluster.founders)
    container = pods.command_container(
        COMPONENT,
        inputs.image(COMPONENT),
        ["etcd", *arguments(inputs, node, founding)],
        resources=pods.requests("100m", "100Mi"),
        startupProbe=pods.http_probe("/readyz", ports.ETCD_HEALTH, period=2, failures=90),
        # Generous: restarting a member that is merely slow makes a slow cluster a dead one.
        livenessProbe=pods.http_probe("/livez", ports.ETCD_HEALTH, period=10, failures=12, timeout=15),
        readinessProbe=pods.http_probe("/readyz", ports.ETCD_HEALTH, period=2, failures=3, timeout=15),
        volumeMounts=[pods.mount("data", places.ETCD_DATA, read_only=False), pods.mount("pki", PKI)],
        securityContext=pods.restricted_container(user=0),
    )
    spec: Object = {
        "containers": [container],
        "volumes": [
            pods.host_volume("data", places.ETCD_DATA, "DirectoryOrCreate"),
            pods.host_volume("pki", PKI, "Directory"),
        ],
    }
    return pods.generation(COMPONENT, node, spec)


UNIT_PATH = "/etc/systemd/system/etcd.service"
_UNIT = """\
[Unit]
Description=etcd (external to the Kubernetes cluster)
After=network-online.target

[Service]
Type=notify
ExecStart={binary} {arguments}
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


def external_unit_files(inputs: Inputs, node: Node) -> list[File]:
    """etcd as a systemd service on a host that is no node: the `lab` form of external etcd."""
    unit = _UNIT.format(binary=f"{places.BIN}/etcd", arguments=" ".join(arguments(inputs, node, founders((node,)))))
    return [*pki_files(inputs, node), File(UNIT_PATH, unit.encode())]
