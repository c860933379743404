"""What the API says about the health of a pod or a node: pure, objects as on the wire."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from autarky.decide.slots import Health

Object = dict[str, Any]
STAMPS = timedelta(seconds=1)
"""The API's stamps are whole seconds, cut off."""


def is_ready(obj: Object) -> bool:
    """Whether a pod's or a node's Ready condition is True."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def pressure(node: Object) -> str:
    """What its kubelet runs out of, in its own words; empty when of nothing.

    Such a node is Ready and yet takes no new pods (the taint `node.kubernetes.io/…-pressure`).
    """
    conditions = node.get("status", {}).get("conditions") or ()
    pressing = [c for c in conditions if c["type"].endswith("Pressure") and c["status"] == "True"]
    return ", ".join(f"{c['type']} ({c.get('message') or 'no message'})" for c in pressing)


def pod_health(pod: Object, booted: datetime | None = None) -> Health:
    """As its kubelet saw it on its own port.

    booted: when this boot of the pod's node began, where that is known. Until the kubelet has looked at a pod
    anew the API shows what it saw before the power went: a Ready pod of which nothing runs.
    """
    if "deletionTimestamp" in pod["metadata"]:
        return Health.TERMINATING
    if booted is not None and _is_of_an_earlier_boot(pod, booted):
        return Health.NOT_READY
    return Health.READY if is_ready(pod) else Health.NOT_READY


def _is_of_an_earlier_boot(pod: Object, booted: datetime) -> bool:
    """Whether a container that is said to run was started before the node was."""
    runs = [state.get("state", {}).get("running") for state in pod.get("status", {}).get("containerStatuses") or ()]
    starts = [datetime.fromisoformat(run["startedAt"]) for run in runs if run and run.get("startedAt")]
    return any(start + STAMPS <= booted for start in starts)
