"""Events: how the operator and the node agents explain, on an object, what they have done and why."""

from __future__ import annotations

import socket
from datetime import UTC, datetime

from autarky.errors import Conflict
from autarky.ports import Kube, Object
from autarky.render.values import content_hash

LONGEST_MESSAGE = 1024
"""Characters; the API refuses longer ones."""


async def report(
    kube: Kube, obj: Object, reason: str, message: str, *, by: str, token: str, now: float, warning: bool = True
) -> None:
    """Create an event on the object; for a cluster-scoped object, in the namespace `default`.

    by: the reporting component. `token` identifies the occasion: if its event exists already, that one stays, so that
    a repeated reconcile creates no second one. `now`: Unix time in seconds.
    """
    meta = obj["metadata"]
    namespace = {"namespace": meta["namespace"]} if "namespace" in meta else {}
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{content_hash([meta['uid'], reason, token], 16)}",
            "namespace": meta.get("namespace", "default"),
        },
        "involvedObject": {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": meta["name"],
            **namespace,
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "reason": reason,
        "message": message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…",
        "type": "Warning" if warning else "Normal",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "source": {"component": by, "host": socket.gethostname()},
        "reportingComponent": by,
        "reportingInstance": socket.gethostname(),
    }
    try:
        await kube.create(event)
    except Conflict:
        return
