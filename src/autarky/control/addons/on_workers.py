"""On which workers a DaemonSet of an add-on lacks pods, where it lacks them nowhere else. Pure.

Contract: `lacking` names workers only where everything that is missing is known to be on them: every pod that it should
have is there, and those on all other nodes are ready and of its present template. Where that is not known, nothing is
excused. What is on a worker is that worker's word: a pod there that is never ready proves nothing about the add-on, and
must not keep the next one from being applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from autarky.control.common.pods import is_ready, node_of

Object = Mapping[str, Any]
HASH = "controller-revision-hash"


def lacking(
    live: Object, pods: Iterable[Object], revisions: Iterable[Object], workers: Collection[str], absent: Collection[str]
) -> list[str]:
    """pods, revisions: those of its namespace. absent: nodes that are off, which are not waited for."""
    status, wanted = live.get("status") or {}, current_hash(live, revisions)
    if wanted is None or status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return []
    of_nodes: dict[str | None, bool] = {}
    for pod in pods:
        if is_owned(pod, live):
            node = node_of(dict(pod))
            of_nodes[node] = of_nodes.get(node, False) or _is_well(pod, wanted)
    lacks = {node for node, well in of_nodes.items() if not well} - {*absent}
    all_there = len(of_nodes) >= status.get("desiredNumberScheduled", 0)
    return sorted(str(node) for node in lacks) if all_there and lacks <= {*workers} else []


def current_hash(live: Object, revisions: Iterable[Object]) -> str | None:
    """What its controller calls its template: the newest revision's, also after one was taken back."""
    owned = [one for one in revisions if is_owned(one, live)]
    newest = max(owned, key=lambda one: one.get("revision", 0), default=None)
    return None if newest is None else (newest["metadata"].get("labels") or {}).get(HASH)


def is_owned(obj: Object, live: Object) -> bool:
    uid = live["metadata"].get("uid")
    return uid is not None and any(one.get("uid") == uid for one in obj["metadata"].get("ownerReferences") or ())


def _is_well(pod: Object, wanted: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return labels.get(HASH) == wanted and "deletionTimestamp" not in pod["metadata"] and is_ready(dict(pod))
