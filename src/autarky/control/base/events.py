"""Events: how operator and node agents explain on an object what they have done, and why."""

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
    """An event on the object; about one without a namespace it is kept in `default`.

    by: the component that tells it. `token` tells one occasion from another: an event of the same occasion that is
    there already stays, so that a repeated round writes no second one. `now`: Unix time in seconds.
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
