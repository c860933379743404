"""From apiVersion and kind to a URL path: a table for what Kubernetes ships, discovery for the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from autarky.errors import ApiError
from autarky.ports import Object


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def collection(self, namespace: str | None) -> str:
        """The path of all objects, or of those of one namespace. ValueError: the kind has no namespaces."""
        if namespace is None:
            return f"{root(self.api_version)}/{self.plural}"
        if not self.namespaced:
            raise ValueError(f"{self.kind} is not namespaced, but namespace {namespace} was given")
        return f"{root(self.api_version)}/namespaces/{_quoted(namespace)}/{self.plural}"

    def object(self, name: str, namespace: str | None, subresource: str | None = None) -> str:
        """The path of one object. ValueError: a namespace is missing, or there may be none."""
        if self.namespaced and namespace is None:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        path = f"{self.collection(namespace)}/{_quoted(name)}"
        return f"{path}/{subresource}" if subresource is not None else path


def root(api_version: str) -> str:
    """Where an API group's version is served."""
    return f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"


def _quoted(name: str) -> str:
    return quote(name, safe=":")  # names of roles have colons, which mean nothing in a path


@dataclass(slots=True)
class Resources:
    """Finds the resource of a kind. `fetch` gets the resource list at a path, or None where there is none."""

    fetch: Callable[[str], Awaitable[Object | None]]
    _discovered: dict[tuple[str, str], Resource] = field(default_factory=dict)

    async def find(self, api_version: str, kind: str) -> Resource:
        """ApiError 404 when the API does not serve the kind (now: the next call asks again)."""
        key = (api_version, kind)
        known = BUILT_IN.get(key) or self._discovered.get(key)
        if known is not None:
            return known
        await self._discover(api_version)
        try:
            return self._discovered[key]
        except KeyError:
            raise ApiError(404, "NotFound", f"the API serves no {kind} in {api_version}") from None

    def forget(self, api_version: str, kind: str) -> None:
        """Ask again next time: the definition may have been removed or recreated."""
        self._discovered.pop((api_version, kind), None)

    async def _discover(self, api_version: str) -> None:
        found = await self.fetch(root(api_version)) or {}
        for entry in found.get("resources", []):
            if "/" not in entry["name"]:  # those with a slash are subresources
                resource = Resource(api_version, entry["kind"], entry["name"], entry["namespaced"])
                self._discovered[(api_version, entry["kind"])] = resource


_CLUSTER_SCOPED = {
    "v1": "Namespace Node PersistentVolume",
    "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingAdmissionPolicy "
    "ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apiregistration.k8s.io/v1": "APIService",
    "certificates.k8s.io/v1": "CertificateSigningRequest",
    "networking.k8s.io/v1": "IngressClass",
    "node.k8s.io/v1": "RuntimeClass",
    "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding",
    "scheduling.k8s.io/v1": "PriorityClass",
    "storage.k8s.io/v1": "CSIDriver CSINode StorageClass VolumeAttachment",
}
_NAMESPACED = {
    "v1": "ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate ReplicationController "
    "ResourceQuota Secret Service ServiceAccount",
    "apps/v1": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "batch/v1": "CronJob Job",
    "coordination.k8s.io/v1": "Lease",
    "discovery.k8s.io/v1": "EndpointSlice",
    "events.k8s.io/v1": "Event",
    "networking.k8s.io/v1": "Ingress NetworkPolicy",
    "policy/v1": "PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding",
}


def _plural(kind: str) -> str:
    """As Kubernetes forms the plurals of its own kinds; a contract test compares with a real API server."""
    word = kind.lower()
    if word == "endpoints":
        return word
    if word.endswith("s"):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


BUILT_IN = {
    (api_version, kind): Resource(api_version, kind, _plural(kind), namespaced)
    for table, namespaced in ((_CLUSTER_SCOPED, False), (_NAMESPACED, True))
    for api_version, kinds in table.items()
    for kind in kinds.split()
}
