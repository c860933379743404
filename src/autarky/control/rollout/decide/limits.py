"""How long a rollout is given before it goes back: what the ControlPlane says, or more where starts are slow. Pure.

A machine may be twenty times slower than usual: its kubelet grants a start of STARTS there, and the limit would condemn
what is good. So a revision has at least FACTOR times what the last good one took to start, where that is known.

Contract: a start is the difference of two stamps of one kubelet. It lengthens patience and never shortens it, to
SLOW_ROLLOUT at the most: so a clock that is stepped, or a kubelet that lies, does no harm beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from autarky.model.patience import SLOW_ROLLOUT

OWN_SECONDS = 60.0
"""How long a pod is judged at least, from its own start: an API server drains for 15 s and more before that. Ordinary
starts are well within it, and where they are the limit is as it was asked for."""
FACTOR = 2.0
"""No two starts are alike, and the kubelet's work before the container's start is not in the figure."""


@dataclass(frozen=True, slots=True)
class Policy:
    """`limit` in seconds, of ControlPlane.spec.rollback. slow: seconds that a pod has for itself where starts are slow;
    0 where they are not."""

    enabled: bool = True
    limit: float = 90.0
    slow: float = 0.0

    @property
    def own(self) -> float:
        """Seconds for which a pod is judged at least, from its own start."""
        return max(min(self.limit, OWN_SECONDS), self.slow)

    @property
    def longest(self) -> float:
        """Seconds within which a revision must be healthy on a node."""
        return max(self.limit, self.slow)

    def after(self, start: float | None) -> Policy:
        """Where the last good revision took so many seconds to start; None: nobody knows."""
        granted = 0.0 if start is None else min(FACTOR * start, SLOW_ROLLOUT)
        return replace(self, slow=granted if granted > OWN_SECONDS else 0.0)


def seconds_to_ready(pod: dict[str, Any], component: str) -> float | None:
    """How long the pod took from its container's start until it was Ready; None where it is not, or where its kubelet
    does not say it in a way that means something."""
    status = pod.get("status") or {}
    began: list[Any] = [
        ((one.get("state") or {}).get("running") or {}).get("startedAt")
        for one in status.get("containerStatuses") or ()
        if one.get("name") == component
    ]
    ready: list[Any] = [
        one.get("lastTransitionTime")
        for one in status.get("conditions") or ()
        if one["type"] == "Ready" and one["status"] == "True"
    ]
    try:
        [begin], [end] = began, ready
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None
