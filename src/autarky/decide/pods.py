"""What the API says about the health of a pod or a node: pure, objects as on the wire."""

from __future__ import annotations

from typing import Any

from autarky.decide.slots import Health

Object = dict[str, Any]


def is_ready(obj: Object) -> bool:
    """Whether a pod's or a node's Ready condition is True."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def pod_health(pod: Object) -> Health:
    """As its kubelet saw it on its own port."""
    if "deletionTimestamp" in pod["metadata"]:
        return Health.TERMINATING
    return Health.READY if is_ready(pod) else Health.NOT_READY
