"""What the objects of the API say about a hosted pod's run and about the age of its content.

Contract: pure; objects as on the wire. What cannot be told is None, never a guess. All times are Unix
seconds; the API's stamps are whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from autarky.decide.checkpoint import Instance, Source

Object = dict[str, Any]


def instance_of(pod: Object) -> Instance | None:
    """The run of a pod's containers, sidecars included; None while not all of them run."""
    status = pod.get("status") or {}
    long_lived = list(_long_lived(pod["spec"]))
    states = {
        state["name"]: state
        for group in ("containerStatuses", "initContainerStatuses")
        for state in status.get(group) or ()
    }
    runs = [states.get(name, {}).get("state", {}).get("running") for name in long_lived]
    starts = [seconds(run["startedAt"]) for run in runs if run and run.get("startedAt")]
    if len(starts) != len(long_lived) or not status.get("startTime"):
        return None
    restarts = sum(int(states[name].get("restartCount", 0)) for name in long_lived)
    return Instance(pod["metadata"]["uid"], restarts, min(starts), seconds(status["startTime"]))


def _long_lived(spec: Object) -> Iterator[str]:
    yield from (container["name"] for container in spec["containers"])
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield container["name"]


def source_of(obj: Object) -> Source:
    """A Secret or ConfigMap and when it was written last. Every writer counts, whatever it wrote."""
    meta = obj["metadata"]
    name = f"the {obj['kind']} {meta['name']}"
    created = meta.get("creationTimestamp")
    if created is None:
        return Source(name, None)
    if obj.get("immutable") is True:
        return Source(name, seconds(created), immutable=True)
    stamps = [entry.get("time") for entry in meta.get("managedFields") or ()]
    if not stamps or None in stamps:
        return Source(name, None)
    return Source(name, max(seconds(stamp) for stamp in (created, *stamps)))


def seconds(stamp: str) -> float:
    """RFC 3339 as the API writes it."""
    return datetime.fromisoformat(stamp).timestamp()
