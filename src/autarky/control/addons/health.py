"""Whether an object of an add-on is healthy, so that the next file may be applied. Pure.

Contract: `lacking` says what is missing, as a clause, and None where nothing is; `failed` whether waiting is of no use
any more. Kinds that have no health of their own are healthy as soon as they are there. What a status lacks is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autarky.control.common.shapes import condition

Object = Mapping[str, Any]
_HEALTHY = {
    "Job": ("Complete", "is not complete"),
    "CustomResourceDefinition": ("Established", "is not established"),
    "APIService": ("Available", "is not available"),
    "Pod": ("Ready", "is not Ready"),
}
"""Kind → the condition that it must have, and what to say where it has none that says more."""
_REFUSED = {"CustomResourceDefinition": "NamesAccepted"}
"""The condition that says why, where it is another one."""


def lacking(live: Object | None, *, absent: int = 0) -> str | None:
    """absent: how many nodes are off, whose pods of a DaemonSet are not waited for."""
    if live is None:
        return "does not exist"
    if "deletionTimestamp" in live["metadata"]:
        return "is being deleted"
    if live["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
        return _of_workload(live, absent)
    if live["kind"] not in _HEALTHY or _is_done(live):
        return None
    needed, otherwise = _HEALTHY[live["kind"]]
    return None if _is(live, needed) else _said(live, _REFUSED.get(live["kind"], needed)) or otherwise


def failed(live: Object | None) -> str | None:
    """Why it will not become healthy by itself, as a clause."""
    if live is None:
        return None
    if live["kind"] == "Job" and _is(live, "Failed"):
        return f"has failed: {_said(live, 'Failed') or 'its status says no more'}"
    if live["kind"] == "Pod" and (live.get("status") or {}).get("phase") == "Failed":
        return "has failed"
    return None


def come(live: Object | None) -> int:
    """How far it has come: a number that grows while it makes progress."""
    status = (live or {}).get("status") or {}
    names = ("updatedReplicas", "availableReplicas", "updatedNumberScheduled", "numberAvailable", "succeeded")
    return sum(_number(status, name) for name in names)


def _is_done(live: Object) -> bool:
    """Whether there is nothing to wait for: a Job that is suspended, a pod that has ended well."""
    suspended = live["kind"] == "Job" and (live.get("spec") or {}).get("suspend") is True
    return suspended or (live["kind"] == "Pod" and (live.get("status") or {}).get("phase") == "Succeeded")


def _of_workload(live: Object, absent: int) -> str | None:
    spec, status = live.get("spec") or {}, live.get("status") or {}
    if _number(status, "observedGeneration") < _number(live["metadata"], "generation"):
        return "its last change was not observed by its controller yet"
    if live["kind"] == "DaemonSet":
        want, have = _number(status, "desiredNumberScheduled"), _number(status, "numberAvailable")
        updated = _number(status, "updatedNumberScheduled")
        want = max(want - absent, min(want, 1))
    else:
        want, have = _number(spec, "replicas", 1), _number(status, "availableReplicas")
        updated = _number(status, "updatedReplicas")
    updated = updated if _rolls(live) else want
    old = _number(status, "replicas") > updated if live["kind"] == "Deployment" else False
    if have < want or updated < want:
        return f"has {have} of {want} pods available, {updated} updated{_stuck(live)}"
    return "has pods of its former template" if old else None


def _rolls(live: Object) -> bool:
    """Whether its pods are replaced by themselves, all of them."""
    strategy = (live.get("spec") or {}).get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    return strategy.get("type") != "OnDelete" and not partition


def _stuck(live: Object) -> str:
    found = condition(live, "Progressing")
    stuck = found.get("reason") == "ProgressDeadlineExceeded"
    return f" ({found.get('message') or found['reason']})" if stuck else ""


def _is(live: Object, kind: str) -> bool:
    return condition(live, kind).get("status") == "True"


def _said(live: Object, kind: str) -> str:
    found = condition(live, kind)
    return " ".join(str(found.get("message") or found.get("reason") or "").split())


def _number(values: Mapping[str, Any], name: str, default: int = 0) -> int:
    found = values.get(name, default)
    return found if isinstance(found, int) else default
