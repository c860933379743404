"""What the API says about the health of a pod or a node: pure, objects as on the wire."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from autarky.control.common.shapes import condition, conditions
from autarky.control.slots.decide.pivot import Health
from autarky.model.components import HOSTED, SLOT_LABEL

Object = dict[str, Any]
MIRROR = "kubernetes.io/config.mirror"
_MOST_PRESSING, _LONGEST = 3, 200
"""How many conditions of a node are reported, and characters of each: a kubelet may write any number and length."""


def is_mirror(pod: Object) -> bool:
    """Whether a kubelet created it for a static pod: then everything in it (labels, images, readiness) is only that
    node's claim, and the node may be a worker. (Its only owner is its own Node: the API admits no other.)"""
    meta = pod["metadata"]
    owners = {owner.get("kind") for owner in meta.get("ownerReferences") or ()}
    return MIRROR in (meta.get("annotations") or {}) or "Node" in owners


def has_ended(pod: Object) -> bool:
    """Whether all of its containers have ended, and none will be started again."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_what_it_says(pod: Object, control_nodes: Collection[str]) -> bool:
    """Whether the pod really has the slot that its labels name: hosted pods come from a controller, and a standby is a
    static pod of a control node."""
    if not is_mirror(pod):
        return True
    hosted = (pod["metadata"].get("labels") or {}).get(SLOT_LABEL) == HOSTED
    return not hosted and pod["spec"].get("nodeName") in control_nodes


def is_owned_by(obj: Mapping[str, Any], owners: Collection[str]) -> bool:
    """owners: uids."""
    return any(one.get("uid") in owners for one in obj["metadata"].get("ownerReferences") or ())


def node_of(pod: Object) -> str | None:
    """The node that it is on, or that its DaemonSet has made it for while it is not scheduled yet; None for any other
    that has no node."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    names = list({_field_of(term) for term in terms})
    return names[0] if len(names) == 1 else None


def _field_of(term: Object) -> str | None:
    """The only node's name that a term of node affinity allows."""
    for one in term.get("matchFields") or ():
        values = one.get("values") or []
        if one.get("key") == "metadata.name" and one.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return None


NO_NETWORK = "NetworkPluginNotReady"
"""In the message of the node's Ready condition while containerd has no CNI configuration."""


def lacks_network(node: Object) -> bool:
    """Whether the node is not Ready because nothing gives its pods a network."""
    ready = condition(node, "Ready")
    return ready.get("status") == "False" and NO_NETWORK in (ready.get("message") or "")


def is_ready(obj: Object) -> bool:
    """Whether a pod's or a node's Ready condition is True."""
    return condition(obj, "Ready").get("status") == "True"


def internal_address(node: Object | None) -> str | None:
    """The InternalIP that its kubelet claims; None while there is none."""
    addresses = ((node or {}).get("status") or {}).get("addresses") or ()
    return next((str(one["address"]) for one in addresses if one["type"] == "InternalIP"), None)


def pressure(node: Object) -> str:
    """What the node runs out of, in its kubelet's words; empty when of nothing.

    Such a node is Ready and yet takes no new pods (the taint `node.kubernetes.io/…-pressure`).
    """
    said = conditions(node).items()
    pressing = [(kind, one) for kind, one in said if kind.endswith("Pressure") and one.get("status") == "True"]
    clauses = [(kind, one.get("message") or "no message") for kind, one in pressing[:_MOST_PRESSING]]
    return ", ".join(f"{_cut(name)} ({_cut(message)})" for name, message in clauses)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def pod_health(pod: Object, *, runs: bool | None = True) -> Health:
    """As its kubelet saw it on its own port.

    runs: whether what the status says to run is what the container runtime of its node runs; None when that could not
    be asked. After a power cut the API shows the state from before it, a Ready pod of which nothing runs, until the
    kubelet has updated it. Timestamps cannot show that, since a clock may have been set back or forth.
    """
    if "deletionTimestamp" in pod["metadata"]:
        return Health.TERMINATING
    if not is_ready(pod) or runs is False:
        return Health.NOT_READY
    return Health.READY if runs else Health.UNKNOWN


def said_to_run(pod: Object) -> frozenset[str]:
    """The container runtime's ids of its containers that run according to the API."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = [one.get("containerID") or "" for one in statuses if (one.get("state") or {}).get("running") is not None]
    return frozenset(found.rpartition("//")[2] for found in running if found)
