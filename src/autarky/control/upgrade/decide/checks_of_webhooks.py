"""Check before an upgrade: admission webhooks that refuse everything, since nothing answers for them. Pure.

One with failurePolicy Fail (the default) whose Service has no ready endpoint refuses each request that it matches. That
may go unnoticed while nothing is written, and then stop an upgrade in the middle: no new pod, no new revision, and an
API server that does not become ready, since at its start it brings its own roles, priority classes and APIServices up
to its version through the same admission.

Contract: errors for those that could match what an upgrade writes, warnings for the others. Where it is not clear
whether one matches (its matchConditions are not evaluated) it does: it answers nobody, and is better repaired first.
One behind a URL is not judged. Admission never asks webhooks about webhook configurations: these can always be deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autarky.control.common.shapes import items, labels_of, mapping, name_of, plain, some, text, texts, within
from autarky.control.upgrade.decide.observed import PASSES, Finding, Seen, Service
from autarky.model.components import NAME_LABEL, SLOT_LABEL
from autarky.render.crds import GROUP
from autarky.render.values import MANAGED_BY, SYSTEM

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_WRITES = ("CREATE", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class Target:
    """What an upgrade writes. resource: "pods" or "nodes/status". namespaced: then in kube-system."""

    group: str
    resource: str
    versions: tuple[str, ...] = ("v1",)
    operations: tuple[str, ...] = _WRITES
    namespaced: bool = True


_RBAC, _FLOW = "rbac.authorization.k8s.io", "flowcontrol.apiserver.k8s.io"
TARGETS = (
    # The new revisions and their pods; what the kubelets need and report for these.
    *(Target("apps", name) for name in ("daemonsets", "deployments", "replicasets", "controllerrevisions")),
    *(
        Target("apps", f"{name}/status", operations=("UPDATE",))
        for name in ("daemonsets", "deployments", "replicasets")
    ),
    Target("", "pods"),
    Target("", "pods/status", operations=("UPDATE",)),
    *(Target("", name, operations=("CREATE",)) for name in ("pods/binding", "serviceaccounts/token")),
    *(Target("", name) for name in ("configmaps", "secrets", "events")),
    Target("events.k8s.io", "events"),
    *(Target("", name, operations=("UPDATE",), namespaced=False) for name in ("nodes", "nodes/status")),
    # Who leads, and how far the upgrade is.
    Target("coordination.k8s.io", "leases"),
    *(
        Target(GROUP, name, ("v1alpha1",), ("UPDATE",), namespaced=False)
        for name in ("controlplanes", "controlplanes/status")
    ),
    # What an API server brings up to its version before it is ready.
    *(Target(_RBAC, name, namespaced=False) for name in ("clusterroles", "clusterrolebindings")),
    *(Target(_RBAC, name) for name in ("roles", "rolebindings")),
    Target("scheduling.k8s.io", "priorityclasses", namespaced=False),
    *(Target(_FLOW, name, namespaced=False) for name in ("flowschemas", "prioritylevelconfigurations")),
    *(Target("apiregistration.k8s.io", name, namespaced=False) for name in ("apiservices", "apiservices/status")),
)


def webhooks(seen: Seen) -> Iterator[Finding]:
    refused = defaultdict[tuple[str, str, Service], set[str]](set)
    for configuration in map(mapping, seen.webhooks):
        for webhook in _failing_closed(configuration):
            service = service_of(webhook)
            if service is not None and seen.services.get(service) is not None:
                found = {one.resource for one in TARGETS if _could_match(webhook, one, seen)}
                refused[plain(configuration.get("kind")), name_of(configuration), service] |= found
    for (kind, name, service), resources in refused.items():
        yield _finding(kind, name, service, seen.services[service] or "", resources)


def _finding(kind: str, name: str, service: Service, why: str, resources: Collection[str]) -> Finding:
    namespace, service_name = (plain(part) for part in service)
    what = f"an upgrade ({some(resources)})" if resources else "nothing of an upgrade, but of others"
    sentence = f"{kind} {name} refuses requests of {what}: its Service {namespace}/{service_name} {plain(why)}"
    fix = f"repair {namespace}/{service_name}, or `kubectl delete {kind.lower()} {name}` if nothing needs it any more"
    return Finding("webhooks", sentence, fix, warning=not resources, patience=PASSES)


def services_of(configurations: Iterable[Mapping[str, Any]]) -> set[Service]:
    """Those whose state matters."""
    failing = (webhook for one in configurations for webhook in _failing_closed(one))
    return {service for webhook in failing if (service := service_of(webhook)) is not None}


def service_of(webhook: Mapping[str, Any]) -> Service | None:
    found = mapping(within(webhook, "clientConfig", "service"))
    namespace, name = text(found.get("namespace")), text(found.get("name"))
    return (namespace, name) if namespace and name else None


def has_ready_endpoint(endpoint_slice: Mapping[str, Any]) -> bool:
    """As the API defines it, one that says nothing of itself is ready."""
    endpoints = (mapping(one) for one in items(within(endpoint_slice, "endpoints")))
    return any(within(one, "conditions", "ready") is not False for one in endpoints)


def _failing_closed(configuration: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for webhook in map(mapping, items(mapping(configuration).get("webhooks"))):
        if (webhook.get("failurePolicy") or "Fail") == "Fail":
            yield webhook


# --- matching ----------------------------------------------------------------------------------------------


def _could_match(webhook: Mapping[str, Any], target: Target, seen: Seen) -> bool:
    # Webhooks that match equivalent requests get those for another version of the same resource, too.
    exact = webhook.get("matchPolicy") == "Exact"
    if not any(_rule_matches(mapping(rule), target, exact=exact) for rule in items(webhook.get("rules"))):
        return False
    labels = {NAMESPACE_LABEL: SYSTEM, **seen.system_labels}
    # A namespaceSelector says nothing of requests for what is in no namespace.
    if target.namespaced and not selects(webhook.get("namespaceSelector"), labels):
        return False
    return any(selects(webhook.get("objectSelector"), one) for one in _labels_of(target, seen))


def _rule_matches(rule: Mapping[str, Any], target: Target, *, exact: bool) -> bool:
    scope = rule.get("scope") or "*"
    return (
        scope in ("*", "Namespaced" if target.namespaced else "Cluster")
        and _has(rule.get("apiGroups"), (target.group,))
        and (not exact or _has(rule.get("apiVersions"), target.versions))
        and _has(rule.get("operations"), target.operations)
        and any(_resource_matches(one, target.resource) for one in texts(rule.get("resources")))
    )


def _has(given: object, wanted: Collection[str]) -> bool:
    return any(one == "*" or one in wanted for one in texts(given))


def _resource_matches(pattern: str, resource: str) -> bool:
    """ "*" is for all resources without subresources, "pods/*" for pods and all their subresources."""
    (name, _, part), (of, _, subresource) = pattern.partition("/"), resource.partition("/")
    return name in ("*", of) and part in ("*", subresource)


def _labels_of(target: Target, seen: Seen) -> Iterator[Mapping[str, Any]]:
    """The labels that such objects may have: those of a webhook's objectSelector are looked for among these."""
    if target.resource.partition("/")[0] == "nodes":
        yield from map(labels_of, seen.nodes)
        return
    yield {}
    yield MANAGED_BY
    if not target.namespaced:
        yield {"kubernetes.io/bootstrapping": "rbac-defaults"}
        return
    for component, live in seen.workloads.items():
        yield {**MANAGED_BY, NAME_LABEL: component}
        yield labels_of(live)
        # The controllers add the revision; its value is not known before.
        added = {"controller-revision-hash": "", "pod-template-hash": "", "pod-template-generation": ""}
        yield {**added, SLOT_LABEL: "", **labels_of(within(live, "spec", "template"))}


def selects(selector: object, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector could select these labels. What cannot be understood of it excludes nothing."""
    expected = mapping(mapping(selector).get("matchLabels"))
    if any(labels.get(key) != value for key, value in expected.items()):
        return False
    return all(_holds(mapping(one), labels) for one in items(mapping(selector).get("matchExpressions")))


def _holds(expression: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = text(expression.get("key")), texts(expression.get("values"))
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return True
