"""Looking at a lab cluster's certificates, and putting such in place that are near their end, or past it."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from harness import TestCluster
from reissue import end_of, good_until

from autarky import places
from autarky.control.certificates.manifests import leaves
from autarky.model.files import CertSpec
from autarky.pki.check import authority_of
from autarky.pki.issue import Authority, Pair, alternative_names, issue_leaf

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
    return issue_leaf(spec, _authority(cluster, spec.ca), "EC", datetime.now(UTC), life)


def _authority(cluster: TestCluster, name: str) -> Authority:
    certificate, key = (cluster.directory / "pki" / f"{name}.{end}" for end in ("crt", "key"))
    pair = Pair(certificate.read_bytes(), key.read_bytes())
    return authority_of(pair, str(certificate), str(key), datetime.now(UTC))


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


# --- all certificates of a node ---------------------------------------------------------------------------


@dataclass(frozen=True)
class OnDisk:
    """Where a certificate is, maybe with its key in the same file, and the name of the CA that signs it."""

    path: str
    authority: str = "ca"


KUBELET_CERTIFICATES = {
    f"kubelet-{kind}": OnDisk(f"{KUBELET_PKI}/kubelet-{kind}-current.pem") for kind in ("client", "server")
}
"""By the names that agents give them."""


def leaves_on(cluster: TestCluster, node: str) -> dict[str, OnDisk]:
    """What the agent of a control node keeps, by the names that it gives them."""
    plan = leaves.read(cluster.shell(node, f"cat {places.LEAVES_PLAN}"))
    return {leaf.name_on(node): OnDisk(leaf.certificate, leaf.spec.ca) for leaf in leaves.leaves_of(node, plan)}


def ends_of(cluster: TestCluster, node: str, certificates: Mapping[str, OnDisk]) -> dict[str, datetime]:
    return {name: end_of(pem) for name, pem in _read(cluster, node, certificates).items()}


def reissued(
    cluster: TestCluster,
    node: str,
    certificates: Mapping[str, OnDisk],
    ends: Mapping[str, datetime],
    *,
    begin: datetime | None = None,
) -> str:
    """The script that puts the same certificates in place, each with another end: in one rename, to its owner and its
    readers, and with the key that is there. (It holds no key.)"""
    pems = _read(cluster, node, certificates)
    again = {
        name: good_until(pem, _authority(cluster, certificates[name].authority), ends[name], begin=begin)
        for name, pem in pems.items()
    }
    return "set -e; " + "; ".join(_put(certificates[name].path, pem) for name, pem in again.items())


def _read(cluster: TestCluster, node: str, certificates: Mapping[str, OnDisk]) -> dict[str, bytes]:
    """No key leaves the node."""
    show = "; ".join(f"echo =; sed -n '/BEGIN CERT/,/END CERT/p' {one.path}" for one in certificates.values())
    _, *pems = cluster.shell(node, show).split("=\n-----BEGIN CERT")
    return dict(zip(certificates, (f"-----BEGIN CERT{pem}".encode() for pem in pems), strict=True))


def _put(path: str, pem: bytes) -> str:
    text = base64.b64encode(pem).decode()
    return (
        f"f=$(readlink -f {path}); cp -p $f $f.again"
        f"; {{ echo {text} | base64 -d; sed -n '/BEGIN .*PRIVATE KEY/,$p' $f; }} > $f.again"
        "; sync $f.again; mv $f.again $f; sync $(dirname $f)"
    )
