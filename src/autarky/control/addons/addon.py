"""The interface of an add-on: everything that rendering, the choice of images, preflight, policies and `down` have to
know of one.

A new add-on is a module or a folder here, and a line in `ADD_ONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autarky.model import ports
from autarky.model.cluster import Cni
from autarky.render.values import SYSTEM, Inputs, Object, metadata

TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 # a path, not a token
LOCAL_API = [
    {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
    {"name": "KUBERNETES_SERVICE_PORT", "value": str(ports.NLLB_API)},
]
NODE_NAME = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


@dataclass(frozen=True, slots=True)
class AddOn:
    """name: of its part, whose field manager is `autarky-NAME`. component: its name in the table of components.

    cni: its name in the cluster file if it is a pod network, of which a cluster has at most one.
    On every host: its images, by their names in a release; its ports; the kernel modules that it needs; and what `down`
    removes (nftables tables, paths). pod_range: shell that prints the node's range of pod addresses, as ADDRESS/BITS;
    renumber: shell that removes what there is of it, where the node gets another one.
    policies: admission policies that it needs. node_annotations: prefix of the Node annotations that configure it →
    those of them that it only reports with.
    """

    name: str
    component: str
    objects: Callable[[Inputs], list[Object]]
    cni: Cni | None = None
    images: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    modules: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    pod_range: str = ""
    renumber: str = ""
    policies: Callable[[], list[Object]] = list
    node_annotations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def service_account(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, SYSTEM)}


def cluster_role(name: str, rules: list[Object]) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata(name),
        "rules": rules,
    }


def bind(name: str, role: str, account: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}],
    }
