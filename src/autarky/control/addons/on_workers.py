"""On which workers a DaemonSet of an add-on lacks pods, or on which one a Deployment does, where it lacks them nowhere
else. Pure.

Contract: workers are named only where everything that is missing is known to be on them: every pod that it should have
is there, and those on all other nodes are ready and of its present template. Where that is not known, nothing is
excused. What is on a worker is that worker's word: a pod there that is never ready proves nothing about the add-on, and
must not keep the next one from being applied.

A Deployment may have all of its pods on workers. So it is excused on one of them only, and must be ready elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from autarky.control.common.pods import has_ended, is_owned_by, is_ready, node_of

Object = Mapping[str, Any]
HASH = "controller-revision-hash"
REVISION = "deployment.kubernetes.io/revision"
MOST_DIGITS = 18
"""Whoever may write a ReplicaSet may write any number there."""


def lacking(
    live: Object,
    pods: Iterable[Object],
    revisions: Iterable[Object],
    workers: Collection[str],
    absent: Collection[str],
    *,
    nodes: Collection[str] = (),
) -> list[str]:
    """pods, revisions: those of its namespace. absent: nodes that are off, which are not waited for. nodes: all that
    there are, by which it is known where a pod is missing: a worker may end each one as soon as it is made."""
    status, wanted = live.get("status") or {}, current_hash(live, revisions)
    if wanted is None or status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return []
    of_nodes: dict[str | None, bool] = {}
    for pod in pods:
        if is_owned(pod, live):
            node = node_of(dict(pod))
            of_nodes[node] = of_nodes.get(node, False) or _is_well(pod, wanted)
    missing = max(0, status.get("desiredNumberScheduled", 0) - len(of_nodes))
    bare = {*nodes} - of_nodes.keys() if missing else set()
    lacks = {*(node for node, well in of_nodes.items() if not well), *bare} - {*absent}
    is_known_where = missing == len(bare)
    return sorted(str(node) for node in lacks) if is_known_where and lacks <= {*workers} else []


def lacking_on_one(live: Object, pods: Iterable[Object], sets: Iterable[Object], workers: Collection[str]) -> list[str]:
    """The same of a Deployment. sets: the ReplicaSets of its namespace."""
    spec, status, current = live.get("spec") or {}, live.get("status") or {}, current_set(live, sets)
    if current is None or status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return []
    own = [pod for pod in pods if is_owned(pod, current) and _may_serve(pod)]
    ready = {node_of(dict(pod)) for pod in own if is_ready(dict(pod))}
    lacks = {node_of(dict(pod)) for pod in own if not is_ready(dict(pod))}
    is_elsewhere = len(own) >= spec.get("replicas", 1) and bool(ready - lacks)
    return sorted(map(str, lacks)) if len(lacks) == 1 and lacks <= {*workers} and is_elsewhere else []


def current_set(live: Object, sets: Iterable[Object]) -> Object | None:
    """The ReplicaSet of the Deployment's template: the newest."""
    return max((one for one in sets if is_owned(one, live)), key=_number_of, default=None)


def _number_of(owned: Object) -> int:
    text = (owned["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdecimal() and len(text) < MOST_DIGITS else 0


def _may_serve(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and not has_ended(dict(pod))


def current_hash(live: Object, revisions: Iterable[Object]) -> str | None:
    """What its controller calls its template: the newest revision's, also after one was taken back."""
    owned = [one for one in revisions if is_owned(one, live)]
    newest = max(owned, key=lambda one: one.get("revision", 0), default=None)
    return None if newest is None else (newest["metadata"].get("labels") or {}).get(HASH)


def is_owned(obj: Object, live: Object) -> bool:
    uid = live["metadata"].get("uid")
    return uid is not None and is_owned_by(obj, {uid})


def _is_well(pod: Object, wanted: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return labels.get(HASH) == wanted and "deletionTimestamp" not in pod["metadata"] and is_ready(dict(pod))
