"""What an add-on is to the rest: everything that rendering, preflight, policies and `down` have to know of one.

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

    cni: what the cluster file calls it where it is the pods' network, of which a cluster has one at most.
    On every host: its ports, the kernel modules that it needs, and what `down` takes away (tables of nftables, paths).
    policies: what holds others to what is theirs, because of it. node_annotations: prefix of annotations by which it is
    ordered → those of them that are no orders but reports.
    """

    name: str
    component: str
    objects: Callable[[Inputs], list[Object]]
    cni: Cni | None = None
    ports: tuple[int, ...] = ()
    modules: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
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
