"""The leaf certificates that node agents renew: what each is, where its files are, and what is needed to issue them.

A control node signs its own leaves with the CA keys on its disk. So they are renewed without the API and without an
administrator; both slots read the same files, and Kubernetes and etcd reload a changed file without a restart.

    /var/lib/autarky/leaves/COMPONENT/…     of the API server, the controller-manager and the scheduler
    /etc/kubernetes/pki/etcd/…              of the node's member of etcd
    /var/lib/autarky/nllb/etcd-client.pem   of the load balancer, for etcd's health

The parent directory is accessible to root only. What is in it belongs to root as well, and to the group that the hosted
pods run as: a hostPath has no fsGroup. A directory is mounted, not a file, so that pods see a rename.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from autarky import places
from autarky.control.certificates.manifests.specs import (
    KUBELET_CLIENT,
    etcd_certificate,
    kubelet_specs,
    serving_certificate,
    serving_names,
)
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.errors import UserError
from autarky.model.cluster import MOST_DAYS, Cluster, Node
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, SCHEDULER, WITH_STANDBY
from autarky.model.files import CertSpec
from autarky.render import pods
from autarky.render.values import SYSTEM, Object, metadata

GROUP = pods.NONROOT
VOLUME = "leaves"
"""The volume with the leaves of a pod's component."""
CONFIG_MAP = "autarky-leaves"
PLAN_KEY = "plan"
NAMES_KEY = "control-nodes"
"""In the ConfigMap: what the cluster file says, and the names and addresses of the existing control nodes."""
LEAST_OF_CLIENT_GO = 18 * 60
"""client-go checks every 5 minutes whether a certificate file has changed (and at each new connection), and servers
check at each request whether it has expired: if it lives less than three times that, its last third is too short."""


@dataclass(frozen=True, slots=True)
class Plan:
    """life: seconds. names: host names and addresses that the API servers are reached at. etcd: whether it is ours.
    address: the node's own, on its disk; empty in the ConfigMap for all nodes."""

    life: int
    algorithm: Literal["EC", "RSA"]
    names: tuple[str, ...]
    etcd: bool
    address: str = ""

    def with_names(self, names: Iterable[str]) -> Plan:
        return replace(self, names=tuple(dict.fromkeys((*self.names, *names))))

    def at(self, address: str) -> Plan:
        return replace(self, address=address)


@dataclass(frozen=True, slots=True)
class Leaf:
    """certificate, key: paths; the same for a file with both. shared: the components' group reads them.
    least: its shortest life in seconds. unless: while this file exists, it is somebody else's, and stays."""

    spec: CertSpec
    certificate: str
    key: str
    shared: bool = False
    least: int = 0
    unless: str = ""

    def life(self, plan: Plan) -> int:
        return max(plan.life, self.least)

    def name_on(self, node: str) -> str:
        """Without the node's name, which is known there."""
        return self.spec.name.removesuffix(f"-{node}")


def directory_of(component: str) -> str:
    return f"{places.LEAVES}/{component}"


DIRECTORIES: Mapping[str, int] = {places.LEAVES: 0o700, **{directory_of(one): 0o750 for one in WITH_STANDBY}}
"""With their modes: the group may enter the directories of the components."""


def plan_of(cluster: Cluster) -> Plan:
    settings = cluster.certificates
    names = serving_names(cluster)
    return Plan(settings.kept_seconds, settings.key_algorithm, tuple(names), cluster.external_etcd is None)


def leaves_of(node: str, plan: Plan) -> list[Leaf]:
    """All leaves of one control node. Its own names are always among those of its API server."""
    address = plan.address
    found = [
        _of_component(API_SERVER, "apiserver", serving_certificate(node, plan.with_names([node, address]).names)),
        _of_component(
            API_SERVER,
            "kubelet-client",
            CertSpec(f"apiserver-kubelet-client-{node}", "ca", KUBELET_CLIENT),
            LEAST_OF_CLIENT_GO,
        ),
        _of_component(
            API_SERVER,
            "front-proxy-client",
            CertSpec(f"front-proxy-client-{node}", "front-proxy-ca", "front-proxy-client"),
        ),
        _of_component(
            CONTROLLER_MANAGER,
            "client",
            CertSpec(f"controller-manager-{node}", "ca", "system:kube-controller-manager"),
            LEAST_OF_CLIENT_GO,
        ),
        _of_component(
            SCHEDULER, "client", CertSpec(f"scheduler-{node}", "ca", "system:kube-scheduler"), LEAST_OF_CLIENT_GO
        ),
    ]
    return [*found, *_of_etcd(node, address)] if plan.etcd else found


def _of_component(component: str, stem: str, spec: CertSpec, least: int = 0) -> Leaf:
    path = f"{directory_of(component)}/{stem}"
    return Leaf(spec, f"{path}.crt", f"{path}.key", shared=True, least=least)


def _of_etcd(node: str, address: str) -> list[Leaf]:
    client = CertSpec(f"apiserver-etcd-client-{node}", "etcd/ca", "kube-apiserver-etcd-client")
    pki = places.ETCD_PKI
    member = [
        Leaf(etcd_certificate("server", node, address), f"{pki}/server.crt", f"{pki}/server.key"),
        Leaf(
            etcd_certificate("peer", node, address), f"{pki}/peer.crt", f"{pki}/peer.key", unless=places.ETCD_PEERS_CA
        ),
    ]
    balancer = Leaf(etcd_certificate("client", node, address), nllb.ETCD_CLIENT_PATH, nllb.ETCD_CLIENT_PATH)
    return [_of_component(API_SERVER, "etcd-client", client), *member, balancer]


def first_specs(cluster: Cluster, nodes: Iterable[Node]) -> list[tuple[CertSpec, int]]:
    """What hosts start with, and for how many seconds: certificates of kubelets, and all leaves of these nodes. Agents
    and kubelets renew them from then on."""
    plan = plan_of(cluster)
    kept = [leaf for node in nodes for leaf in leaves_of(node.name, plan.at(node.known_address()))]
    return [
        *((spec, plan.life) for spec in kubelet_specs(cluster)),
        *((leaf.spec, leaf.life(plan)) for leaf in kept),
    ]


# --- the plan for the agents ----------------------------------------------------------------------------


def config_map(cluster: Cluster) -> Object:
    """The part of the plan from the cluster file. The operator adds the control nodes made by a label."""
    return _object({PLAN_KEY: written(plan_of(cluster))})


def with_control_nodes(names: Iterable[str]) -> Object:
    """The operator's part, for server-side apply."""
    return _object({NAMES_KEY: json.dumps(sorted(names))})


def _object(data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(CONFIG_MAP, SYSTEM), "data": data}


def plan_in(obj: Object) -> Plan:
    """The plan in a live ConfigMap. UserError where it cannot be parsed."""
    data = obj.get("data") or {}
    try:
        more = json.loads(data.get(NAMES_KEY) or "[]")
    except (ValueError, RecursionError) as error:
        raise UserError(f"ConfigMap {SYSTEM}/{CONFIG_MAP}: {error}", fix="delete it and run `autarky up`") from error
    if not isinstance(more, list):
        more = []
    return read(data.get(PLAN_KEY) or "").with_names(name for name in more if is_name(name))


def written(plan: Plan) -> str:
    document: dict[str, object] = {
        "lifeSeconds": plan.life,
        "keyAlgorithm": plan.algorithm,
        "names": list(plan.names),
        "etcd": plan.etcd,
    }
    if plan.address:
        document["address"] = plan.address
    return json.dumps(document, indent=2) + "\n"


def read(text: str) -> Plan:
    """What `written` wrote. UserError where it cannot be parsed: nothing is issued from an incomplete plan."""
    try:
        return _plan(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"the plan of the leaf certificates is malformed: {error!r}",
            where=f"ConfigMap {SYSTEM}/{CONFIG_MAP}, or {places.LEAVES_PLAN}",
            fix="delete the ConfigMap and run `autarky up`",
        ) from error


def _plan(document: Mapping[str, object]) -> Plan:
    life, algorithm, names = document["lifeSeconds"], document["keyAlgorithm"], document["names"]
    if not isinstance(life, int) or isinstance(life, bool) or not 60 <= life <= MOST_DAYS * 86400:
        raise ValueError(f"a life of {life} seconds")
    if not isinstance(names, list) or not all(is_name(name) for name in names):
        raise ValueError(f"names {names}")
    address = document.get("address", "")
    if not isinstance(address, str) or (address and not is_name(address)):
        raise ValueError(f"address {address}")
    return Plan(life, "RSA" if algorithm == "RSA" else "EC", tuple(names), bool(document["etcd"]), address)


def is_name(value: object) -> bool:
    """Whether a certificate can have it as a name: an address or a DNS name in its ASCII form."""
    if not isinstance(value, str) or not 0 < len(value) <= 253 or not value.isascii():
        return False
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return all(part and part.replace("-", "").isalnum() for part in value.removeprefix("*.").split("."))
    return True
