"""What API objects show about a hosted pod's run and about the age of its content.

Contract: pure; objects as on the wire. What cannot be determined is None, never a guess. Order is judged by
`metadata.resourceVersion`, which counts the writes of one etcd across all objects: clocks of API servers and nodes get
changed, and timestamps have a resolution of one second.

Danger: API servers that keep some kinds in another etcd (`--etcd-servers-overrides`) have another count for these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autarky.control.checkpoint.decide.revisions import Instance, Source

Object = dict[str, Any]


def instance_of(pod: Object, version: int | None) -> Instance | None:
    """The current run of a pod's containers, sidecars included; None while not all of them run. version: from
    `version_unstarted`."""
    status = pod.get("status") or {}
    long_lived = list(_long_lived(pod["spec"]))
    states = {
        state["name"]: state
        for group in ("containerStatuses", "initContainerStatuses")
        for state in status.get(group) or ()
    }
    runs = [states.get(name, {}).get("state", {}).get("running") for name in long_lived]
    starts = [str(run["startedAt"]) for run in runs if run and run.get("startedAt")]
    if len(starts) != len(long_lived):
        return None
    restarts = sum(int(states[name].get("restartCount", 0)) for name in long_lived)
    return Instance(pod["metadata"]["uid"], restarts, min(starts), version)


def version_unstarted(pod: Object) -> int | None:
    """The pod's version, if its kubelet has not yet acknowledged the pod; None if it has."""
    return None if (pod.get("status") or {}).get("startTime") else version_of(pod)


def _long_lived(spec: Object) -> Iterator[str]:
    yield from (container["name"] for container in spec["containers"])
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield container["name"]


def source_of(obj: Object, *, by_content: bool) -> Source:
    """A Secret or ConfigMap and the version of its last change. Every write counts, whatever it changed."""
    return Source(f"the {obj['kind']} {obj['metadata']['name']}", version_of(obj), by_content)


def version_of(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
