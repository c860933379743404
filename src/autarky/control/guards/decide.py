"""Which workloads get no new pods, since a policy for tenants (`manifests/tenants`) refuses what is in their templates.

The policies apply to pods, and a workload's pods are created by a controller, which is no administrator: the API
accepts a Deployment or a DaemonSet from anybody, and refuses its pods once the old ones terminate, maybe weeks later.

Contract: pure; objects as on the wire. Templates are judged as the policies judge pods, and exceptions that an
administrator has made on a binding count: its actions and selectors. An absent binding counts as rendered: the
operator, or the next `up`, creates it.

Not considered: changes of a pod by an admission webhook, other rules of a binding (`excludeResourceRules`), and edits
of a policy itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from autarky.model import ports

Object = dict[str, Any]
Labels = Mapping[str, str]

PRIORITIES, ANTI_AFFINITY, HOST_PORTS = "autarky-priorities", "autarky-anti-affinity", "autarky-host-ports"
POLICIES = (PRIORITIES, ANTI_AFFINITY, HOST_PORTS)
"""Those that refuse what is in templates, in the order in which they are reported."""
MOST_IMPORTANT = 1_000_000_000
"""The highest priority of a user-defined class. Above it are Kubernetes' own two, which our pods have."""
NOT_ASKED = "kube-system"
"""The namespace that is exempt from the policies, except for HOST_PORTS, which applies to all."""
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The API server sets it on every namespace, and nobody can remove it."""
EXCEPTED_BY_NAMESPACE = frozenset({PRIORITIES, ANTI_AFFINITY})
"""Policies for which a message may suggest to except the namespace. Not HOST_PORTS: the namespace, which may belong to
a tenant who provoked the message, would get the API's port on every node, and etcd's and the kubelet's."""
_EXCEPT = "or except the namespace (docs/security.md)"
INSTEAD = {
    PRIORITIES: f"choose another priority class in the template, move it to {NOT_ASKED}, {_EXCEPT}",
    ANTI_AFFINITY: f"leave out namespaces and namespaceSelector in the template, move it to {NOT_ASKED}, {_EXCEPT}",
    HOST_PORTS: (
        "choose another hostPort in the template, or a Service of type NodePort; if you do not know the workload, find"
        " out whose it is"
    ),
}
"""What to do instead, for each policy."""
MOST_OTHERS = 3
"""Names or ports in a reason: in a template their number is limited only by the object's size."""
MOST_OF_A_NAMESPACE, MOST_NAMESPACES = 3, 20
"""What `sentences_beforehand` names of each policy."""
KINDS = {
    "Deployment": "apps/v1",
    "DaemonSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "CronJob": "batch/v1",
    "Job": "batch/v1",
}
"""The kinds that are judged: kind → apiVersion."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The policy, and the workload. why: what the policy refuses in its template."""

    policy: str
    namespace: str
    workload: str
    why: str


@dataclass(frozen=True)
class Rules:
    """The objects besides templates that decide, as the API lists them."""

    classes: Collection[Object]
    namespaces: Collection[Object]
    bindings: Collection[Object]

    @cached_property
    def classes_by_name(self) -> Mapping[str, Object]:
        return {one["metadata"]["name"]: one for one in self.classes}

    @cached_property
    def labels_of_namespaces(self) -> Mapping[str, Labels]:
        return {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in self.namespaces}


def refused(workloads: Iterable[Object], rules: Rules) -> list[Refused]:
    """In order. A workload that belongs to another one of KINDS is reported as that one."""
    found = []
    for workload in workloads:
        namespace, template = workload["metadata"]["namespace"], _template(workload)
        if _is_made_by_another(workload) or _is_over(workload):
            continue
        around = {**rules.labels_of_namespaces.get(namespace, {}), NAMESPACE_LABEL: namespace}
        own = (template.get("metadata") or {}).get("labels") or {}
        for policy, why in _reasons(template.get("spec") or {}, namespace, rules.classes_by_name):
            if _is_denied(policy, rules.bindings, around, own):
                found.append(Refused(policy, namespace, f"{workload['kind']} {workload['metadata']['name']}", why))
    return in_order(found)


def in_order(found: Iterable[Refused]) -> list[Refused]:
    """By policy, namespace and workload."""
    return sorted(found, key=lambda one: (POLICIES.index(one.policy), one.namespace, one.workload))


def _template(workload: Object) -> Object:
    spec = workload["spec"]
    job = (spec.get("jobTemplate") or {}).get("spec") or {} if workload["kind"] == "CronJob" else spec
    return job.get("template") or {}


def _is_made_by_another(workload: Object) -> bool:
    owners = workload["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and KINDS.get(owner["kind"]) == owner["apiVersion"] for owner in owners)


def _is_over(workload: Object) -> bool:
    """A finished Job, or a ReplicaSet scaled to zero (an old revision): neither creates pods any more."""
    if workload["kind"] == "ReplicaSet":
        return bool(workload["spec"].get("replicas") == 0)
    conditions = (workload.get("status") or {}).get("conditions") or ()
    ends = {"Complete", "Failed"}
    return workload["kind"] == "Job" and any(c["type"] in ends and c["status"] == "True" for c in conditions)


# --- what is in a template ----------------------------------------------------------------------------


def _reasons(pod: Object, namespace: str, classes: Mapping[str, Object]) -> Iterator[tuple[str, str]]:
    """(policy, what it refuses in a pod's spec in this namespace)."""
    if why := _takes_ports(pod):
        yield HOST_PORTS, why
    if namespace == NOT_ASKED:
        return
    if why := _too_important(pod, classes):
        yield PRIORITIES, why
    if why := _reaches_others(pod, namespace):
        yield ANTI_AFFINITY, why


def _too_important(pod: Object, classes: Mapping[str, Object]) -> str:
    """By its class: the API server ignores the template's own `priority`."""
    named = pod.get("priorityClassName")
    found = classes.get(named) if named else _default(classes.values())
    if found is None or found["value"] <= MOST_IMPORTANT:
        return ""
    said = f"priorityClassName {named}" if named else f"no priorityClassName, and the default is {_name(found)}"
    return f"{said} ({found['value']})"


def _default(classes: Iterable[Object]) -> Object | None:
    """If there are several, the API server takes the lowest."""
    return min((one for one in classes if one.get("globalDefault")), key=lambda one: int(one["value"]), default=None)


def _reaches_others(pod: Object, namespace: str) -> str:
    anti = (pod.get("affinity") or {}).get("podAntiAffinity") or {}
    for term in anti.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        others = [name for name in term.get("namespaces") or () if name != namespace]
        if term.get("namespaceSelector") is not None:
            return "required podAntiAffinity with a namespaceSelector"
        if others:
            return f"required podAntiAffinity with pods of namespace {_first(MOST_OTHERS, others)}"
    return ""


def _takes_ports(pod: Object) -> str:
    """A pod in its node's network declares its own ports as hostPorts: nothing is forwarded to it."""
    if pod.get("hostNetwork"):
        return ""
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    wanted = {port.get("hostPort") for container in containers for port in container.get("ports") or ()}
    taken = sorted(wanted & ports.ON_HOSTS)
    return f"hostPort {_first(MOST_OTHERS, list(map(str, taken)))}" if taken else ""


def _first(most: int, names: list[str], between: str = ", ") -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


# --- warnings about new policies ------------------------------------------------------------------------


def sentences_beforehand(found: Iterable[Refused], new: Collection[str]) -> list[str]:
    """A sentence for each of the policies that are new to a cluster and would refuse something in it. found: in the
    order of `refused`."""
    about_new = [one for one in found if one.policy in new]
    return [_beforehand(policy, list(group)) for policy, group in groupby(about_new, key=lambda one: one.policy)]


def _beforehand(policy: str, found: list[Refused]) -> str:
    """By namespace, so that many workloads in one do not hide those in others."""
    places = []
    for namespace, group in groupby(found, key=lambda one: one.namespace):
        workloads = _first(MOST_OF_A_NAMESPACE, [f"{one.workload} has {one.why}" for one in group], "; ")
        places.append(f"[namespace {namespace}] {workloads}")
    return (
        f"the policy {policy} is new to this cluster, and refuses new pods of workloads that are there; running pods"
        f" stay until they terminate: {_first(MOST_NAMESPACES, places, ', ')}. Before they do, {INSTEAD[policy]}"
    )


# --- exceptions ---------------------------------------------------------------------------------------


def _is_denied(policy: str, bindings: Iterable[Object], namespace: Labels, pod: Labels) -> bool:
    """By any binding of the policy: a second one denies what the first one excepts."""
    bound = {_name(one): one["spec"] for one in bindings if one["spec"].get("policyName") == policy}
    bound.setdefault(policy, {"validationActions": ["Deny"]})
    return any(
        "Deny" in (spec.get("validationActions") or ()) and _is_about(spec.get("matchResources") or {}, namespace, pod)
        for spec in bound.values()
    )


def _is_about(matched: Object, namespace: Labels, pod: Labels) -> bool:
    return _selects(matched.get("namespaceSelector"), namespace) and _selects(matched.get("objectSelector"), pod)


def _selects(selector: Object | None, labels: Labels) -> bool:
    """Without a selector: everything."""
    wanted = (selector or {}).get("matchLabels") or {}
    expressions = (selector or {}).get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(one["key"], one["operator"], one.get("values") or (), labels) for one in expressions
    )


def _holds(key: str, operator: str, values: Collection[str], labels: Labels) -> bool:
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
