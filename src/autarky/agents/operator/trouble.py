"""What a pod that is not healthy has met, in a clause, and the last lines of its log. Pure but for the log."""

from __future__ import annotations

from autarky.errors import AutarkyError
from autarky.ports import Kube, Object

LOG_LINES = 5
LOG_CHARACTERS = 500
"""An Event holds 1,024 characters in all."""


def trouble_of(pod: Object) -> str:
    """The kubelet's word on it: why the pod was not taken, what its container waits for, how it ended last."""
    status = pod.get("status", {})
    if status.get("phase") == "Failed":
        return _clause("the kubelet gave the pod up", status)
    statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    for container in statuses:
        found = _of_container(container)
        if found:
            return found
    return ""


def _of_container(container: Object) -> str:
    waiting = container.get("state", {}).get("waiting") or {}
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
    parts = []
    if waiting.get("reason") and waiting["reason"] not in ("ContainerCreating", "PodInitializing"):
        parts.append(_clause(f"container {container['name']} waits: {waiting['reason']}", {**waiting, "reason": ""}))
    if ended:
        parts.append(f"it ended last with exit code {ended.get('exitCode', '?')} ({ended.get('reason', 'no reason')})")
    if not parts and not container.get("ready", False) and container.get("state", {}).get("running"):
        parts.append(f"container {container['name']} runs and is not ready")
    return ", ".join(parts)


def _clause(what: str, said: Object) -> str:
    words = [str(said[key]) for key in ("reason", "message") if said.get(key)]
    return f"{what} ({': '.join(words)})"[:300] if words else what


async def last_words(kube: Kube, pod: Object) -> str:
    """The termination message, or the end of the log of the container's last run (of this one, when it is the
    first); empty when there is none, or the kubelet does not answer."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    for container in statuses:
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
        if ended.get("message"):
            return str(ended["message"])[-LOG_CHARACTERS:]
    meta = pod["metadata"]
    for previous in (True, False):
        try:
            text = await kube.logs(meta["namespace"], meta["name"], previous=previous, tail=LOG_LINES)
        except AutarkyError:
            continue
        if text.strip():
            return text.strip()[-LOG_CHARACTERS:]
    return ""
