"""How long a rollout may take before it is rolled back: by the ControlPlane, or longer where starts are slow. Pure.

A machine may be twenty times slower than usual: its kubelet allows STARTS for a start, and the limit would condemn a
good revision. So a revision gets at least FACTOR times as long as the last good one took to start, where that is known.

Contract: the length of a start is the difference of two timestamps of one kubelet. It extends the limit and never
shortens it, to SLOW_ROLLOUT at most: so a clock that is stepped, or a kubelet that lies, does no harm beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from autarky.control.common.shapes import condition
from autarky.model.patience import SLOW_ROLLOUT

OWN_SECONDS = 60.0
"""Minimum time for which a pod is judged, from its own start: its predecessor drains for 15 s and more before that.
Where starts fit into it, as they usually do, the configured limit applies."""
UNMADE_SECONDS = 120.0
"""How long there may be no pod at all of a revision that the controllers have seen. They make the first within seconds,
or, while nodes are away, when the operator goes on without these (`decide.stepping.AWAY_SECONDS`)."""
FACTOR = 2.0
"""Starts differ, and the kubelet's work before the container's start is not in the figure."""


@dataclass(frozen=True, slots=True)
class Policy:
    """`limit` in seconds, of ControlPlane.spec.rollback. slow: seconds that each pod gets where starts are slow; 0
    where they are not."""

    enabled: bool = True
    limit: float = 90.0
    slow: float = 0.0

    @property
    def own(self) -> float:
        """Minimum seconds for which a pod is judged, from its own start."""
        return max(min(self.limit, OWN_SECONDS), self.slow)

    @property
    def longest(self) -> float:
        """Seconds within which a revision must be healthy on a node."""
        return max(self.limit, self.slow)

    def after(self, start: float | None) -> Policy:
        """The policy where the last good revision took so many seconds to start; None: unknown."""
        granted = 0.0 if start is None else min(FACTOR * start, SLOW_ROLLOUT)
        return replace(self, slow=granted if granted > OWN_SECONDS else 0.0)


def seconds_to_ready(pod: dict[str, Any], component: str) -> float | None:
    """Seconds from the container's start until the pod was Ready; None where it is not, or where its kubelet's
    timestamps are missing or make no sense."""
    status = pod.get("status") or {}
    began: list[Any] = [
        ((one.get("state") or {}).get("running") or {}).get("startedAt")
        for one in status.get("containerStatuses") or ()
        if one.get("name") == component
    ]
    ready = condition(pod, "Ready")
    end: Any = ready.get("lastTransitionTime") if ready.get("status") == "True" else None
    try:
        [begin] = began
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None
