"""Who may do what: roles and bindings, the join inventory, Pod Security. No component gets cluster-admin."""

from __future__ import annotations

import json
from collections.abc import Mapping

from autarky.control.admission.decide.approval import RENEWERS
from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.manifests.specs import CLUSTER_ADMINS, KUBELET_CLIENT
from autarky.model.cluster import Cluster, Node
from autarky.render.values import SYSTEM, Object, metadata

INVENTORY = "autarky-join-inventory"
RENEWALS = "autarky-kubelet-renewals"
"""Node → SHA-256 of the credential by which its kubelet may renew (`control.admission.decide.approval`)."""
BOOTSTRAPPERS = "system:bootstrappers:autarky"
"""The group of join tokens. It may only request a certificate. The operator approves that by the inventory, since the
built-in approval does not check names."""
TOKEN_NODE = "autarky.dev/node"  # noqa: S105 # a name, not a token
"""Annotation on a join token's Secret: the one node name that it is valid for."""
_RBAC = "rbac.authorization.k8s.io"
FORMER = ((f"{_RBAC}/v1", "ClusterRoleBinding", "autarky:node-renewal"),)
"""Applied by an earlier release, and deleted: by that binding the built-in approval renewed the certificates of all
nodes forever, also of removed ones."""


def objects(cluster: Cluster) -> list[Object]:
    return [
        _system_namespace(),
        _bind_group("autarky:cluster-admins", "cluster-admin", CLUSTER_ADMINS),
        _bind_user("autarky:kubelet-api", "system:kubelet-api-admin", KUBELET_CLIENT),
        _bind_group("autarky:node-bootstrapper", "system:node-bootstrapper", BOOTSTRAPPERS),
        # A kubelet whose certificate has expired may only request a new one, which is approved like all such requests.
        _bind_group("autarky:kubelet-renewal", "system:node-bootstrapper", RENEWERS),
        inventory(cluster),
        leaves.config_map(cluster),
    ]


def inventory(cluster: Cluster) -> Object:
    """Which nodes may join, under which name and with which addresses."""
    return inventory_with({node.name: json.dumps({"addresses": [node.known_address()]}) for node in cluster.nodes})


def inventory_with(entries: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(INVENTORY, SYSTEM),
        "data": dict(entries),
    }


def renewals(entries: Mapping[str, str]) -> Object:
    """Written when nodes get their credentials; not rendered."""
    return {**inventory_with(entries), "metadata": metadata(RENEWALS, SYSTEM)}


def join_token(node: Node, token_id: str, secret: str, expires: str) -> Object:
    """A bootstrap token that names the one node it is for; `expires` is RFC 3339. kube-controller-manager deletes it
    when it has expired, autarky when the node has joined."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            **metadata(f"bootstrap-token-{token_id}", SYSTEM),
            "annotations": {TOKEN_NODE: node.name},
        },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": token_id,
            "token-secret": secret,
            "expiration": expires,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": BOOTSTRAPPERS,
            "description": f"join token of node {node.name}",
        },
    }


def _system_namespace() -> Object:
    """kube-system has host-network and privileged pods by its nature."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": labels}}


def _bind_group(name: str, role: str, group: str) -> Object:
    return _binding(name, role, {"kind": "Group", "name": group})


def _bind_user(name: str, role: str, user: str) -> Object:
    return _binding(name, role, {"kind": "User", "name": user})


def _binding(name: str, role: str, subject: Object) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(name),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, **subject}],
    }
