"""One hosted workload and its pods, read from the live copies into what `decide.rollback` judges.

The pods of a revision are found by the name that the controllers gave it: of the ControllerRevision or
ReplicaSet whose template is the wanted one. While there is none, the controllers have not looked yet.

Which pod leads is told by its host and by who is left: the identity in a lease is the host's name and a random
part, and both slots of a component on one node have the same host name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autarky.agents.operator.trouble import trouble_of
from autarky.agents.operator.view import View, current, node_is_ready
from autarky.decide import rollback
from autarky.decide.pods import is_ready
from autarky.decide.skew import NO_IMAGES, breaks_skew
from autarky.ports import Object
from autarky.render import api_server, controllers
from autarky.render.addons import KUBE_PROXY
from autarky.render.values import SYSTEM, content_hash

COMPONENT_LABEL = "k8s-app"
SLOT_LABEL = "autarky.dev/slot"
_HASH_LABELS = {"DaemonSet": "controller-revision-hash", "Deployment": "pod-template-hash"}


@dataclass(frozen=True, slots=True)
class Component:
    """A hosted workload of levels 2 and 3."""

    name: str
    kind: str

    @property
    def leads_by_lease(self) -> bool:
        return self.kind == "Deployment"

    @property
    def is_api_server(self) -> bool:
        return self.name == api_server.COMPONENT


COMPONENTS = (
    Component(api_server.COMPONENT, "DaemonSet"),
    *(Component(name, "Deployment") for name in controllers.CONTROLLERS),
)
"""Of the control plane: each has two slots."""
JUDGED = (*COMPONENTS, Component(KUBE_PROXY, "DaemonSet"))
"""Whose rollouts go back: all of levels 2 and 3."""


def revision_of(template: Object) -> str:
    """The operator's own name for a template, whatever the controllers call it."""
    return content_hash(template, 16)


def workload(view: View, component: Component) -> Object | None:
    source = view.daemon_sets if component.kind == "DaemonSet" else view.deployments
    return source.items.get((SYSTEM, component.name))


def observe(
    view: View, component: Component, live: Object, *, etcd_up: bool, level_3: Mapping[str, str] = NO_IMAGES
) -> rollback.Observed:
    """The workload and its pods as they are now. level_3: component → image, beside which an API server must fit."""
    template = live["spec"]["template"]
    name = _controllers_name(view, component, live)
    pods = _of(view, component)
    new = [pod for pod in pods if _is_of(pod, live, component, name) and not _ends(pod)]
    nodes = _ready_nodes(view, template)
    seen = [pod for pod in new if pod["spec"].get("nodeName") in nodes]
    return rollback.Observed(
        revision=revision_of(template),
        known=name is not None and _is_current(view, component),
        etcd_up=etcd_up,
        nodes=nodes,
        pods=tuple(_judged(pod) for pod in seen),
        skew=_skew(view, component, template, level_3),
        lease=_lease(view, component, pods, new) if component.leads_by_lease else None,
        ending=frozenset() if component.leads_by_lease else _ending(pods),
    )


def _is_current(view: View, component: Component) -> bool:
    kind = (
        [view.daemon_sets, view.daemon_set_revisions]
        if component.kind == "DaemonSet"
        else [view.deployments, view.replica_sets, view.leases[component.name]]
    )
    return current([view.nodes, view.pods, *kind])


# --- revisions -----------------------------------------------------------------------------------------


def _controllers_name(view: View, component: Component, live: Object) -> str | None:
    """What the controllers call the wanted template, as a label of its pods; None while they have not looked."""
    if live.get("status", {}).get("observedGeneration", 0) < live["metadata"]["generation"]:
        return None
    label, wanted = _HASH_LABELS[component.kind], _essence(live["spec"]["template"])
    source = view.daemon_set_revisions if component.kind == "DaemonSet" else view.replica_sets
    for owned in source.items.values():
        if _owned_by(owned, live) and _essence(_template_in(owned)) == wanted:
            name: str | None = owned["metadata"].get("labels", {}).get(label)
            return name
    return None


def _template_in(owned: Object) -> Object:
    spec = owned["data"]["spec"] if owned["kind"] == "ControllerRevision" else owned["spec"]
    template: Object = spec["template"]
    return template


def _essence(template: Any) -> Any:
    """A template without what the controllers add to it, and without empty fields, which come and go."""
    labels = {
        key: value
        for key, value in (template.get("metadata", {}).get("labels") or {}).items()
        if key not in _HASH_LABELS.values()
    }
    annotations = template.get("metadata", {}).get("annotations")
    return _without_nothing({"labels": labels, "annotations": annotations, "spec": template["spec"]})


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(item) for key, item in value.items() if item not in (None, {}, [])}
    return [_without_nothing(item) for item in value] if isinstance(value, list) else value


# --- pods and nodes ------------------------------------------------------------------------------------


def _of(view: View, component: Component) -> list[Object]:
    """All pods of the component, of both slots and all revisions."""
    return [pod for pod in view.pods.items.values() if _label(pod, COMPONENT_LABEL) == component.name]


def _is_of(pod: Object, live: Object, component: Component, name: str | None) -> bool:
    if name is None or _label(pod, _HASH_LABELS[component.kind]) != name:
        return False
    # A Deployment's pods belong to its ReplicaSet; the hash tells them apart well enough.
    return component.kind == "Deployment" or _owned_by(pod, live)


def _owned_by(obj: Object, owner: Object) -> bool:
    references = obj["metadata"].get("ownerReferences", [])
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def _label(obj: Object, key: str) -> str | None:
    return (obj["metadata"].get("labels") or {}).get(key)


def _ending(pods: Iterable[Object]) -> frozenset[str]:
    """The nodes on which a hosted pod ends: the next one of a DaemonSet is made when it has gone."""
    return frozenset(
        pod["spec"].get("nodeName", "") for pod in pods if _ends(pod) and _label(pod, SLOT_LABEL) != "standby"
    )


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _judged(pod: Object) -> rollback.Pod:
    return rollback.Pod(pod["metadata"]["name"], pod["spec"]["nodeName"], is_ready(pod), trouble_of(pod))


def _ready_nodes(view: View, template: Object) -> frozenset[str]:
    """The Ready nodes that the template's selector admits. (Ours tolerates every taint.)"""
    selector = template["spec"].get("nodeSelector") or {}
    return frozenset(
        node["metadata"]["name"]
        for node in view.nodes.items.values()
        if node_is_ready(node) and selector.items() <= (node["metadata"].get("labels") or {}).items()
    )


# --- versions ------------------------------------------------------------------------------------------


def image_of(template: Object, component: str) -> str:
    """The image of the component's container; empty when the template has none of that name."""
    containers = template["spec"].get("containers", [])
    return next((str(container["image"]) for container in containers if container["name"] == component), "")


def _skew(view: View, component: Component, template: Object, level_3: Mapping[str, str]) -> str:
    """How the template breaks rule 4 beside the API servers that serve now, and beside level 3."""
    running = [image_of(pod, api_server.COMPONENT) for pod in _that_serve(view)]
    image = image_of(template, component.name)
    return breaks_skew(component.name, image, running, is_api_server=component.is_api_server, level_3=level_3)


def is_in_place(view: View, component: Component, image: str) -> bool:
    """Whether that image is wanted, or runs in a hosted pod that is to stay; False while that is not known."""
    live = workload(view, component)
    if live is None or not current([view.deployments, view.pods]):
        return False
    stay = [pod for pod in _of(view, component) if _label(pod, SLOT_LABEL) == "hosted" and not _ends(pod)]
    return image in {image_of(one, component.name) for one in (live["spec"]["template"], *stay)}


def _that_serve(view: View) -> list[Object]:
    """The API servers to which requests go. A standby beside a hosted one that is Ready gets none: right after a
    rollout it is on its way out, and of the version before. Who upgrades the next component then breaks nothing."""
    ready = [
        pod
        for pod in view.pods.items.values()
        if _label(pod, COMPONENT_LABEL) == api_server.COMPONENT and is_ready(pod)
    ]
    hosted = [pod for pod in ready if _label(pod, SLOT_LABEL) == "hosted"]
    covered = {pod["spec"].get("nodeName") for pod in hosted}
    return hosted + [pod for pod in ready if pod["spec"].get("nodeName") not in covered]


# --- leases --------------------------------------------------------------------------------------------


def _lease(view: View, component: Component, pods: Iterable[Object], new: Iterable[Object]) -> rollback.Lease:
    spec = view.leases[component.name].items.get((SYSTEM, component.name), {}).get("spec", {})
    holder, version = spec.get("holderIdentity") or "", f"{spec.get('holderIdentity')} {spec.get('renewTime')}"
    there = _on_host(view, holder.rpartition("_")[0], [pod for pod in pods if _has_processes(pod)])
    names = {pod["metadata"]["name"] for pod in new}
    others = [pod for pod in there if pod["metadata"]["name"] not in names]
    if not holder or not there:
        return rollback.Lease(rollback.Leader.OTHER, version)
    if not others:
        return rollback.Lease(rollback.Leader.NEW, version)
    old_stay = any(_label(pod, SLOT_LABEL) == "hosted" and not _ends(pod) for pod in others)
    return rollback.Lease(rollback.Leader.OLD if old_stay else rollback.Leader.OTHER, version)


def _has_processes(pod: Object) -> bool:
    """Whether the pod may have a process that leads: also when it is terminating, or its state is not known."""
    return pod.get("status", {}).get("phase") in (None, "Running", "Unknown")


def _on_host(view: View, host: str, pods: list[Object]) -> list[Object]:
    """The pods on the node of that host name; all of them, when no node is known by it."""
    if not any(name.casefold() == host.casefold() for _, name in view.nodes.items):
        return pods
    return [pod for pod in pods if pod["spec"].get("nodeName", "").casefold() == host.casefold()]
