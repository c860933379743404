"""What Backups and the pods that work for them say, as the decisions take it: pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from autarky.control.backup.decide.schedule import made_of, phase_of, since_1970
from autarky.control.backup.decide.step import Asked, Phase, Verb, Worker
from autarky.control.backup.manifests.definitions import KEPT
from autarky.control.backup.manifests.pods import VERB
from autarky.control.common.pods import has_ended
from autarky.render.values import Object


def asked_of(obj: Object, now: float) -> Asked:
    spec, status = obj["spec"], obj.get("status") or {}
    return Asked(
        name=obj["metadata"]["name"],
        phase=phase_of(obj),
        kept=spec.get("state", KEPT) == KEPT,
        on=spec.get("node"),
        local="s3" not in spec["target"],
        node=status.get("node"),
        attempt=int(status.get("attempt") or 0),
        idle=0.0 if "started" not in status else abs(now - since_1970(status["started"])),
    )


def waits(obj: Object) -> bool:
    """Its pod is gone, and it says what it waits for: nothing works for it."""
    return bool((obj.get("status") or {}).get("message"))


def beside(obj: Object, backups: Iterable[Object]) -> list[str]:
    """Archives that should lie in the same directory of the same node; a server that speaks S3 has no disk of ours."""
    if "s3" in obj["spec"]["target"]:
        return []
    complete = [one for one in backups if made_of(one).kept and phase_of(one) is Phase.COMPLETE]
    target, node = obj["spec"]["target"], obj["status"].get("node")
    same = [one["status"] for one in complete if one["spec"]["target"] == target and one["status"].get("node") == node]
    return sorted(one["file"] for one in same if "file" in one)


def worker_of(pod: Object, age: float) -> Worker:
    meta, status = pod["metadata"], pod.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    state = containers[0].get("state") or {}
    phase = status.get("phase")
    ended = has_ended(pod)
    waiting = state.get("waiting") or {}
    return Worker(
        verb=Verb(meta["labels"][VERB]),
        node=pod["spec"]["nodeName"],
        ended=ended,
        said=_said((state.get("terminated") or {}).get("message"), phase) if ended else None,
        running=phase == "Running",
        age=age,
        overlong=status.get("reason") == "DeadlineExceeded",
        stuck=": ".join(str(waiting[key])[:300] for key in ("reason", "message") if waiting.get(key)),
    )


def _said(message: str | None, phase: str | None) -> Mapping[str, Any] | None:
    """None unless it is an object; one that ended well says something."""
    try:
        found = json.loads(message or "")
    except ValueError:
        return None
    if not isinstance(found, dict) or (phase == "Failed" and "error" not in found):
        return None
    return found
