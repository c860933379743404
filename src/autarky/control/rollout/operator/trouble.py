"""What is wrong with an unhealthy pod, in a clause; the last lines of its log, or the last warning about it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from autarky.control.common.shapes import plain
from autarky.errors import AutarkyError
from autarky.ports import Kube, Object

LOG_LINES = 5
LOG_CHARACTERS = 500
LOG_SECONDS = 10.0
"""A log comes from the node's kubelet, which may be slow; the rollback waits for it."""
LINE_CHARACTERS = 160
"""An Event holds 1,024 characters in all."""
STARTING = ("ContainerCreating", "PodInitializing")


def trouble_of(pod: Object) -> str:
    """As the kubelet reports it: why the pod failed, what its container waits for, how it last exited. In one line: the
    kubelet may be somebody else's, and a line of its own could pass for one of ours (`fix: …`)."""
    return plain(_trouble(pod))


def _trouble(pod: Object) -> str:
    status = pod.get("status", {})
    if status.get("phase") == "Failed":
        return _clause("the pod has failed", status)
    statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    for container in statuses:
        found = _of_container(container)
        if found:
            return found
    return ""


def has_never_run(pod: Object | None) -> bool:
    """Whether the kubelet reports that no container was ever created; False when it has reported nothing."""
    status = (pod or {}).get("status", {})
    own = status.get("containerStatuses", [])
    each = [*status.get("initContainerStatuses", []), *own]
    return bool(own) and not any(one.get("containerID") or one.get("lastState") for one in each)


def _of_container(container: Object) -> str:
    waiting = container.get("state", {}).get("waiting") or {}
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
    name, reason = container["name"], waiting.get("reason", "")
    parts = []
    if reason in STARTING:
        parts.append(f"container {name} is still being created from image {container.get('image', '?')}")
    elif reason:
        parts.append(f"container {name} is waiting: {_clause(reason, {} if ended else waiting)}")
    if ended:
        parts.append(f"it last exited with code {ended.get('exitCode', '?')} ({ended.get('reason', 'no reason')})")
    if not parts and not container.get("ready", False) and container.get("state", {}).get("running"):
        parts.append(f"container {name} runs and is not ready")
    return ", ".join(parts)


def _clause(what: str, said: Object) -> str:
    words = [str(said[key]) for key in ("reason", "message") if said.get(key) and said[key] != what]
    return f"{what} ({': '.join(words)})"[:300] if words else what


async def last_words(kube: Kube, pod: Object) -> str:
    """What the failed container logged, or the kubelet's warning about one that never ran, as a sentence; empty when
    there is neither, or when the kubelet does not answer in time."""
    try:
        async with asyncio.timeout(LOG_SECONDS):
            said = await _of_the_container(kube, pod)
    except TimeoutError:
        said = ""
    if said:
        return f"Its last words: {said}"
    warning = await _of_the_kubelet(kube, pod)
    return f"The last warning about it: {warning}" if warning else ""


async def _of_the_container(kube: Kube, pod: Object) -> str:
    """The termination message, or the end of the log of the container's last run (of this one, when it is the
    first)."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    for container in statuses:
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
        if ended.get("message"):
            return _one_line(ended["message"])
    meta = pod["metadata"]
    container = _first_name(pod)
    for previous in (True, False):
        try:
            text = await kube.logs(
                meta["namespace"], meta["name"], container=container, previous=previous, tail=LOG_LINES
            )
        except AutarkyError:
            continue
        if text.strip():
            return _one_line(text)
    return ""


async def _of_the_kubelet(kube: Kube, pod: Object) -> str:
    """The newest warning: a volume that cannot be mounted or an image that cannot be pulled is reported nowhere else.
    Any kubelet may write as many as it likes, so the search ends after LOG_SECONDS."""
    about = f"involvedObject.uid={pod['metadata']['uid']},type=Warning"
    newest: Object = {}
    with suppress(AutarkyError, TimeoutError):
        async with asyncio.timeout(LOG_SECONDS):
            async for event in kube.each("v1", "Event", namespace=pod["metadata"]["namespace"], fields=about):
                newest = max(newest, event, key=lambda one: one.get("lastTimestamp") or "")
    return _one_line(newest.get("message", ""))


def _first_name(pod: Object) -> str | None:
    return next((str(container["name"]) for container in pod["spec"].get("containers", [])), None)


def _one_line(text: str) -> str:
    """The end of a text, as one line."""
    lines = [shown[:LINE_CHARACTERS] for line in text.splitlines() if (shown := plain(line))]
    return " | ".join(lines[-LOG_LINES:])[-LOG_CHARACTERS:]
