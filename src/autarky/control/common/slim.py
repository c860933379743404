"""What live copies keep of objects that kubelets create or write: pods, certificate requests and Nodes.

Contract: pure; objects as on the wire, and not changed. What is kept is all that readers of the copy use. But for a
Node's annotations, labels and conditions a kubelet cannot influence its size. Of pods that controllers create from
templates the spec is kept complete while they may run, but for those of DaemonSets, of which each node has some: their
status is the kubelet's, and their labels and annotations may be written with it.

Why: a kubelet can create any number of mirror pods, each of up to 1.5 MB, and fill the status of as many that are bound
to it, of which a ReplicaSet makes another one for each that has failed. Python takes 20 times as much: 200 from one
worker exceed a control node's memory.

Danger: a reduced copy must not be written back, except through a subresource that uses only what is kept (the
`approval` of requests).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from autarky.control.common.pods import MIRROR, has_ended, is_mirror, is_ready
from autarky.control.common.shapes import condition, items, mapping
from autarky.model.components import NAME_LABEL, SLOT_LABEL

Object = dict[str, Any]
LABELS = (NAME_LABEL, SLOT_LABEL)
"""The labels of static pods that are used."""
MOST_CONTAINERS = 10
"""A static pod of ours has one."""
MOST_LETTERS = 512
"""Of an image's name: a registry accepts no tag longer than 128."""
LONGEST_TEXT, MOST_ITEMS = 4096, 30
"""Of what a kubelet writes of a pod: what a container says at its end has at most 4096 bytes, and no pod of ours has as
many conditions, containers, labels or annotations."""
MOST_OF_A_REQUEST = 64 * 1024
"""Characters of a request; usual ones have about a thousand. A longer one is dropped, so that it cannot be parsed and
is denied: a part of it could mean something else."""
_OF_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_OF_CONTAINERS = ("name", "ready", "started", "restartCount", "state", "lastState", "image", "containerID")
"""Of the statuses of containers."""
_OF_REQUESTS = ("signerName", "username", "groups", "extra", "usages")
"""The requester cannot make these long: the API server sets the identity, and knows some twenty usages."""


def slim_pod(pod: Object) -> Object:
    """A mirror pod without what nobody reads; of others what a kubelet writes within bounds, and when they have ended
    nothing else of their spec than a mirror pod has."""
    if not is_mirror(pod):
        return _with_bounds(pod)
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    labels = meta.get("labels") or {}
    containers = (spec.get("containers") or ())[:MOST_CONTAINERS]
    return {
        **_kind(pod),
        "metadata": {
            **_of(meta, _OF_METADATA),
            "labels": _of(labels, LABELS),
            "annotations": {MIRROR: ""},
            "ownerReferences": [
                _of(owner, ("kind", "name", "uid")) for owner in (meta.get("ownerReferences") or ())[:1]
            ],
        },
        "spec": {
            **_of(spec, ("nodeName",)),
            "containers": [
                {"name": one["name"], "image": str(one.get("image", ""))[:MOST_LETTERS]} for one in containers
            ],
        },
        "status": {
            **_of(status, ("phase",)),
            "conditions": [{"type": "Ready", "status": str(is_ready(pod))}],
        },
    }


def _with_bounds(pod: Object) -> Object:
    meta, spec = pod["metadata"], pod["spec"]
    written = {name: bounded(meta[name]) for name in ("labels", "annotations") if name in meta}
    rest = {name: value for name, value in meta.items() if name != "managedFields"}
    found = {**pod, "metadata": {**rest, **written}, "status": bounded(_ready_within(pod.get("status") or {}))}
    if has_ended(pod):
        containers = [_of(one, ("name", "image")) for one in (spec.get("containers") or ())[:MOST_CONTAINERS]]
        found["spec"] = {**_of(spec, ("nodeName",)), "containers": containers}
    elif _is_of_daemon_set(pod):
        found["spec"], found["status"] = _spec_of_daemon_set(spec), _as_read(found["status"])
    return found


def _is_of_daemon_set(pod: Object) -> bool:
    return any(owner.get("kind") == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ())


def _spec_of_daemon_set(spec: Object) -> Object:
    """Where it is, or is to be while it is not scheduled, and what it runs: the rest is its DaemonSet's."""
    where = ("nodeName",) if spec.get("nodeName") else ("affinity",)
    return {**_of(spec, where), "containers": [_of(one, ("name", "image")) for one in spec.get("containers") or ()]}


def _as_read(status: Object) -> Object:
    kept = {name: status[name] for name in ("containerStatuses", "initContainerStatuses") if status.get(name)}
    slim = {name: [_of(one, _OF_CONTAINERS) for one in found] for name, found in kept.items()}
    return {**_of(status, ("phase", "reason", "message", "conditions", "startTime")), **slim}


def _ready_within(status: Object) -> Object:
    """With the condition that its controller goes by within bounds, wherever its kubelet has put it."""
    found, ready = items(status.get("conditions")), condition({"status": status}, "Ready")
    if len(found) <= MOST_ITEMS or not ready:
        return status
    return {**status, "conditions": [ready, *found]}


def bounded(value: Any) -> Any:
    """Without what goes beyond any honest status: long texts are cut, of long lists and maps the rest is dropped."""
    match value:
        case str():
            return value[:LONGEST_TEXT]
        case list():
            return [bounded(one) for one in value[:MOST_ITEMS]]
        case dict():
            return {name[:LONGEST_TEXT]: bounded(value[name]) for name in list(value)[:MOST_ITEMS]}
    return value


def slim_request(csr: Object) -> Object:
    """A certificate request with everything that decides about it, and whether it has been decided."""
    spec, status = csr["spec"], csr.get("status") or {}
    request = str(spec.get("request", ""))
    return {
        **bare(csr),
        "spec": {
            **_of(spec, _OF_REQUESTS),
            "request": request if len(request) <= MOST_OF_A_REQUEST else "",
        },
        "status": {"conditions": [_of(one, ("type", "status")) for one in (status.get("conditions") or ())[:1]]},
    }


def slim_node(node: Object) -> Object:
    """Without its images, volumes and capacities, and when its kubelet wrote each condition last, which is all that is
    new in most of its writes. Labels, annotations, spec and conditions are complete: pools go by any label, agents
    report in annotations."""
    meta, status = node["metadata"], mapping(node.get("status"))
    kept = _of(status, ("addresses", "conditions"))
    if isinstance(kept.get("conditions"), list):
        kept["conditions"] = [_but_heartbeat(one) for one in kept["conditions"]]
    if isinstance(info := status.get("nodeInfo"), dict):
        kept["nodeInfo"] = _of(info, ("kubeletVersion",))
    metadata = {**_of(meta, _OF_METADATA), **_of(meta, ("labels", "annotations"))}
    return {**_kind(node), "metadata": metadata, **_of(node, ("spec",)), "status": kept}


def _but_heartbeat(found: Any) -> Any:
    is_odd = not isinstance(found, dict)
    return found if is_odd else {name: value for name, value in found.items() if name != "lastHeartbeatTime"}


def bare(obj: Object) -> Object:
    """Its identity, and whether it is being deleted."""
    return {**_kind(obj), "metadata": _of(obj["metadata"], _OF_METADATA)}


def _kind(obj: Object) -> Object:
    return _of(obj, ("apiVersion", "kind"))


def _of(found: Mapping[str, Any], names: Collection[str]) -> Object:
    return {name: found[name] for name in names if name in found}
