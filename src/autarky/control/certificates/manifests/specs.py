"""Which leaf certificates a cluster needs: identities, names and usages. No keys here."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from autarky.control.admission.decide.approval import RENEWERS, renewal_user
from autarky.model.cluster import Cluster
from autarky.model.files import CertSpec

CLUSTER_ADMINS = "autarky:cluster-admins"
"""The group of the user's kubeconfig, bound to cluster-admin by RBAC, so that it can be revoked;
`super-admin` (system:masters, which RBAC cannot revoke) stays on the machine that ran `up`."""
ADMINISTRATORS = ("admin", "super-admin")
"""Certificates of people: each state directory has its own, and no machine of the cluster has one."""
KUBELET_CLIENT = "autarky:kube-apiserver-kubelet-client"


def certificate_specs(cluster: Cluster) -> list[CertSpec]:
    """The leaves in the cluster's directory, for nodes whose addresses are known by now: those of administrators, and
    those of an etcd on a test host of its own, where no agent runs."""
    return [
        *(administrator(name) for name in ADMINISTRATORS),
        *_external_etcd_specs(cluster),
    ]


def authorities(cluster: Cluster) -> tuple[str, ...]:
    """The CAs that the cluster needs: an external etcd has its own."""
    ours = cluster.external_etcd is None or cluster.etcd_host is not None
    return ("ca", "front-proxy-ca", "etcd/ca") if ours else ("ca", "front-proxy-ca")


def kubelet_specs(cluster: Cluster) -> list[CertSpec]:
    """What kubelets start with: the first certificate of an initial member, which its kubelet renews, and for each node
    a certificate to rejoin with when its own has expired."""
    first = [
        CertSpec(f"kubelet-{node.name}", "ca", f"system:node:{node.name}", ("system:nodes",))
        for node in cluster.initial_members
    ]
    return [*first, *(renewal_certificate(node.name) for node in cluster.nodes)]


def renewal_certificate(node: str) -> CertSpec:
    return CertSpec(f"kubelet-renewal-{node}", "ca", renewal_user(node), (RENEWERS,), lasting=True)


def administrator(name: str) -> CertSpec:
    """One of ADMINISTRATORS."""
    if name == "admin":
        return CertSpec("admin", "ca", "kubernetes-admin", (CLUSTER_ADMINS,))
    return CertSpec("super-admin", "ca", "autarky:super-admin", ("system:masters",))


def certificates_of(node: str) -> list[str]:
    """The names that one control node's leaves have, or had, in the cluster's directory."""
    return [f"kubelet-{node}", f"etcd/server-{node}", f"etcd/peer-{node}"]


def serving_names(cluster: Cluster) -> list[str]:
    """What the API servers are reached at. One certificate covers all control nodes, since any load balancer leads to
    any of them."""
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names += [f"kubernetes.default.svc.{cluster.network.dns_domain}", "localhost"]
    names += ["127.0.0.1", cluster.network.kubernetes_service_ip]
    for node in cluster.control_nodes:
        names += [node.name, node.known_address()]
    if cluster.control_plane_endpoint is not None:
        names.append(cluster.control_plane_endpoint.rpartition(":")[0])
    return list(_unique(names))


def serving_certificate(node: str, names: Sequence[str]) -> CertSpec:
    """The API server's, on one node."""
    addresses = [name for name in names if _is_address(name)]
    hosts = tuple(name for name in names if not _is_address(name))
    return CertSpec(f"apiserver-{node}", "ca", "kube-apiserver", (), hosts, tuple(addresses), usages=("server",))


def _external_etcd_specs(cluster: Cluster) -> list[CertSpec]:
    own_host = cluster.etcd_host
    if own_host is None:
        return []
    return [
        CertSpec("apiserver-etcd-client", "etcd/ca", "kube-apiserver-etcd-client"),
        *(etcd_certificate(role, own_host.name, own_host.known_address()) for role in ("server", "peer")),
    ]


def etcd_certificate(role: str, node: str, address: str) -> CertSpec:
    """For the role "server", "peer" or "client" on a control node. A server's is valid for clients too: etcd's own
    JSON gateway connects to the member with it."""
    name, common_name = f"etcd/{role}-{node}", f"etcd-{role}-{node}"
    if role == "client":
        return CertSpec(name, "etcd/ca", common_name)
    addresses = _unique(["127.0.0.1", address])
    return CertSpec(name, "etcd/ca", common_name, (), ("localhost", node), addresses, usages=("server", "client"))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _unique(items: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
