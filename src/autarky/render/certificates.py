"""Which leaf certificates a cluster needs: identities, names and usages. No keys here."""

from __future__ import annotations

import ipaddress

from autarky.model.cluster import Cluster
from autarky.model.files import CertSpec

CLUSTER_ADMINS = "autarky:cluster-admins"
"""The group of the user's kubeconfig, bound to cluster-admin by RBAC, so that it can be withdrawn;
`super-admin` (system:masters, which RBAC cannot withdraw) stays on the machine that ran `up`."""
KUBELET_CLIENT = "autarky:kube-apiserver-kubelet-client"


def certificate_specs(cluster: Cluster) -> list[CertSpec]:
    """All leafs, for nodes whose addresses are known by now."""
    return [*_cluster_specs(cluster), *_front_proxy_specs(), *_etcd_specs(cluster)]


def certificates_of(node: str) -> list[str]:
    """The names of the leafs that are one control node's own."""
    return [f"kubelet-{node}", f"etcd/server-{node}", f"etcd/peer-{node}"]


def _cluster_specs(cluster: Cluster) -> list[CertSpec]:
    return [
        _api_server(cluster),
        CertSpec("apiserver-kubelet-client", "ca", KUBELET_CLIENT),
        CertSpec("controller-manager", "ca", "system:kube-controller-manager"),
        CertSpec("scheduler", "ca", "system:kube-scheduler"),
        CertSpec("admin", "ca", "kubernetes-admin", (CLUSTER_ADMINS,)),
        CertSpec("super-admin", "ca", "autarky:super-admin", ("system:masters",)),
        *(
            CertSpec(f"kubelet-{node.name}", "ca", f"system:node:{node.name}", ("system:nodes",))
            for node in cluster.founders
        ),
    ]


def _api_server(cluster: Cluster) -> CertSpec:
    """One serving certificate covers all control nodes; it is issued anew when they change."""
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names += [f"kubernetes.default.svc.{cluster.network.dns_domain}", "localhost"]
    addresses = ["127.0.0.1", cluster.network.kubernetes_service_ip]
    for node in cluster.control_nodes:
        names.append(node.name)
        addresses.append(node.known_address())
    if cluster.control_plane_endpoint is not None:
        host = cluster.control_plane_endpoint.rpartition(":")[0]
        (addresses if _is_address(host) else names).append(host)
    return CertSpec("apiserver", "ca", "kube-apiserver", (), _unique(names), _unique(addresses), usages=("server",))


def _front_proxy_specs() -> list[CertSpec]:
    return [CertSpec("front-proxy-client", "front-proxy-ca", "front-proxy-client")]


def _etcd_specs(cluster: Cluster) -> list[CertSpec]:
    own_host = cluster.etcd_host
    if cluster.external_etcd is not None and own_host is None:
        return []  # the user's own etcd: the file names the certificates
    members = cluster.founders if own_host is None else (own_host,)
    specs = [
        CertSpec("apiserver-etcd-client", "etcd/ca", "kube-apiserver-etcd-client"),
        CertSpec("etcd/healthcheck-client", "etcd/ca", "etcd-healthcheck-client"),
    ]
    for node in members:
        specs += [etcd_certificate(role, node.name, node.known_address()) for role in ("server", "peer")]
    return specs


def etcd_certificate(role: str, node: str, address: str) -> CertSpec:
    """Of the role "server", "peer" or "client" on a control node. That of a server is for clients too: etcd's own
    JSON gateway dials the member with it."""
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
