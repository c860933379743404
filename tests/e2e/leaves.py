"""Looking at a lab cluster's certificates, and putting one in place that is near its end."""

from __future__ import annotations

import base64
import json
import ssl
import time
from datetime import UTC, datetime, timedelta

from cryptography import x509
from harness import TestCluster

from autarky.model.files import CertSpec
from autarky.pki.check import authority_of
from autarky.pki.issue import Pair, alternative_names, issue_leaf

DIRECTORY = "/var/lib/autarky/leaves/kube-apiserver"
KUBELET_PKI = "/var/lib/kubelet/pki"
ANNOTATION = "autarky.dev/certificates"


def put_short_lived(cluster: TestCluster, node: str, stem: str, *, life: timedelta) -> None:
    """Another pair for the same subject and names, in place of the one that is there."""
    found = x509.load_pem_x509_certificate(cluster.shell(node, f"cat {DIRECTORY}/{stem}.crt").encode())
    named = alternative_names(found)
    spec = CertSpec(
        stem,
        "ca",
        "kube-apiserver",
        dns_names=tuple(name.value for name in named if isinstance(name, x509.DNSName)),
        ip_addresses=tuple(str(name.value) for name in named if isinstance(name, x509.IPAddress)),
        usages=("server",),
    )
    pair = _issued(cluster, spec, life)
    for end, content in (("key", pair.key), ("crt", pair.certificate)):
        text = base64.b64encode(content).decode()
        cluster.shell(node, f"echo {text} | base64 -d > {DIRECTORY}/{stem}.{end}")


def end_certificate_of_kubelet(cluster: TestCluster, node: str) -> None:
    """As if its host had been off for a year: the one that it keeps has ended. Its kubelet is stopped by that."""
    life = timedelta(seconds=2)
    pair = _issued(cluster, CertSpec("kubelet", "ca", f"system:node:{node}", ("system:nodes",)), life)
    text = base64.b64encode(pair.certificate + pair.key).decode()
    time.sleep(life.total_seconds() + 1)
    cluster.shell(
        node,
        f"set -e; systemctl stop kubelet; cd {KUBELET_PKI}; umask 077"
        f"; echo {text} | base64 -d > kubelet-client-ended.pem"
        f"; ln -sfn {KUBELET_PKI}/kubelet-client-ended.pem kubelet-client-current.pem; sync -f .",
    )


def _issued(cluster: TestCluster, spec: CertSpec, life: timedelta) -> Pair:
    pki, now = cluster.directory / "pki", datetime.now(UTC)
    ca = Pair((pki / "ca.crt").read_bytes(), (pki / "ca.key").read_bytes())
    return issue_leaf(spec, authority_of(ca, "ca.crt", "ca.key", now), "EC", now, life)


def ends_on_disk(cluster: TestCluster, node: str, stem: str = "apiserver") -> datetime:
    pem = cluster.shell(node, f"cat {DIRECTORY}/{stem}.crt")
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc


def end_served(cluster: TestCluster, node: str) -> datetime:
    """Of the certificate that a client meets at the node's load balancer."""
    path = "jsonpath={.status.addresses[?(@.type=='InternalIP')].address}"
    address = cluster.kubectl("get", "node", node, "-o", path)
    return x509.load_pem_x509_certificate(ssl.get_server_certificate((address, 6443)).encode()).not_valid_after_utc


def told_ends(cluster: TestCluster) -> dict[str, dict[str, str]]:
    """Node → certificate → its end, as the agents tell it."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    said = {node["metadata"]["name"]: (node["metadata"].get("annotations") or {}).get(ANNOTATION) for node in nodes}
    return {name: json.loads(text)["ends"] if text else {} for name, text in said.items()}


def restarts(cluster: TestCluster) -> dict[str, int]:
    """Pod → how often its containers were restarted, of all of the system. Standbys come and go under names of their
    own, the parked agent's among them."""
    no_standby = ("-l", "autarky.dev/slot!=standby")
    pods = json.loads(cluster.kubectl("-n", "kube-system", "get", "pods", *no_standby, "-o", "json"))["items"]
    return {
        pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses") or ())
        for pod in pods
    }
