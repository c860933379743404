"""From apiVersion and kind to a URL path: a table for what Kubernetes ships, discovery for the rest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    api_version: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        parts = [root]
        if self.namespaced and namespace is not None:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)


_CLUSTER_SCOPED = {
    "v1": {"Namespace": "namespaces", "Node": "nodes", "PersistentVolume": "persistentvolumes"},
    "rbac.authorization.k8s.io/v1": {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"},
    "apiextensions.k8s.io/v1": {"CustomResourceDefinition": "customresourcedefinitions"},
    "certificates.k8s.io/v1": {"CertificateSigningRequest": "certificatesigningrequests"},
    "scheduling.k8s.io/v1": {"PriorityClass": "priorityclasses"},
}
_NAMESPACED = {
    "v1": {
        "ConfigMap": "configmaps",
        "Endpoints": "endpoints",
        "Event": "events",
        "Pod": "pods",
        "Secret": "secrets",
        "Service": "services",
        "ServiceAccount": "serviceaccounts",
    },
    "apps/v1": {
        "ControllerRevision": "controllerrevisions",
        "DaemonSet": "daemonsets",
        "Deployment": "deployments",
        "ReplicaSet": "replicasets",
        "StatefulSet": "statefulsets",
    },
    "coordination.k8s.io/v1": {"Lease": "leases"},
    "discovery.k8s.io/v1": {"EndpointSlice": "endpointslices"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "rbac.authorization.k8s.io/v1": {"Role": "roles", "RoleBinding": "rolebindings"},
}
KNOWN = {
    (api_version, kind): Resource(api_version, plural, namespaced)
    for table, namespaced in ((_CLUSTER_SCOPED, False), (_NAMESPACED, True))
    for api_version, kinds in table.items()
    for kind, plural in kinds.items()
}
