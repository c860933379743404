"""Control nodes made by a label: the operator's record of them, and what their agents may do meanwhile.

The operator has every permission that it grants here (RBAC requires that), and revokes one by deleting its objects.
"""

from __future__ import annotations

from collections.abc import Iterable

from autarky.control.agents.manifests.node_agent import LEASES
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, NODE_AGENT, SCHEDULER
from autarky.render.values import SYSTEM, Object, metadata

RECORD = "autarky-control-nodes"
"""The ConfigMap with the operator's record: node → JSON {"uid": of its Node}."""
STANDBYS = "autarky:standbys"
"""The role, and its binding, that let the agents of control nodes read the sources of their level 3 standbys."""
AUTHORITIES = "autarky-authorities"
"""The Secret with the CAs and the service account keys."""
_RBAC = "rbac.authorization.k8s.io"


def authority_key(name: str) -> str:
    """The key in that Secret of a file below /etc/kubernetes/pki: "etcd/ca.key" is etcd-ca.key."""
    return name.replace("/", "-")


def leases_name(node: str) -> str:
    """The binding that lets the agent of a control node read the leases of level 3 and the plan of its certificates."""
    return f"autarky:control-node-leases:{node}"


def joining_name(node: str) -> str:
    """The role, and its binding, that let an agent read what it needs to make its node a control node."""
    return f"autarky:joining:{node}"


def leases_binding(node: str) -> Object:
    return _binding(leases_name(node), LEASES, node)


def joining_rights(node: str, secrets: Iterable[str], config_maps: Iterable[str]) -> list[Object]:
    """The templates of the hosted control plane, only the Secrets and ConfigMaps that they name, and the CAs."""
    rules = [
        _readable("apps", "daemonsets", [API_SERVER, NODE_AGENT]),
        _readable("apps", "deployments", [CONTROLLER_MANAGER, SCHEDULER]),
        _readable("", "secrets", sorted({*secrets, AUTHORITIES})),
        *(_readable("", "configmaps", names) for names in [sorted(set(config_maps))] if names),
    ]
    name = joining_name(node)
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata(name, SYSTEM), "rules": rules}
    return [role, _binding(name, name, node)]


def standby_rights(nodes: Iterable[str], secrets: Iterable[str], config_maps: Iterable[str]) -> list[Object]:
    """What the agents of control nodes need to follow the last good revisions of level 3: the Deployments, and only the
    Secrets and ConfigMaps that those revisions name. Not for any other node."""
    rules = [
        _readable("apps", "deployments", [CONTROLLER_MANAGER, SCHEDULER]),
        *(_readable("", "secrets", names) for names in [sorted(set(secrets))] if names),
        *(_readable("", "configmaps", names) for names in [sorted(set(config_maps))] if names),
    ]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata(STANDBYS, SYSTEM), "rules": rules}
    return [role, _binding(STANDBYS, STANDBYS, *sorted(nodes))]


def _readable(group: str, resource: str, names: list[str]) -> Object:
    return {"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": ["get"]}


def _binding(name: str, role: str, *nodes: str) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(name, SYSTEM),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": f"system:node:{node}"} for node in nodes],
    }
