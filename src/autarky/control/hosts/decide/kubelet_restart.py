"""Whether a kubelet that was started anew with other settings is well. Pure.

Contract: well is what was seen to be well after the restart: the process runs and says that it is healthy, the API has
a heartbeat of it, and its Node is Ready if it was so before (what ailed the node before is not the settings' fault).
It has failed when it ends again and again: systemd starts it anew each time. Whoever sees neither goes on waiting; how
long is the caller's matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.common.restarted import Verdict

MOST_RESTARTS = 3
"""A kubelet that cannot read its settings ends within a second, each time. One end may be something else's doing."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Since the restart. active: systemd says that it runs; restarts: how often systemd has started it anew; healthy:
    its own word, None where nobody may ask for it; heartbeat: whether its lease was renewed; ready: its Node's word."""

    active: bool
    restarts: int
    healthy: bool | None
    heartbeat: bool
    ready: bool


def judge(seen: Seen, *, was_ready: bool) -> Verdict:
    if seen.restarts >= MOST_RESTARTS:
        return Verdict(well=False, failed=True, missing=f"it has ended {seen.restarts} times")
    missing = [
        *([] if seen.active else ["it does not run"]),
        *(["it does not say that it is healthy"] if seen.healthy is False else []),
        *([] if seen.heartbeat else ["the API has no heartbeat of it"]),
        *([] if seen.ready or not was_ready else ["its Node is not Ready"]),
    ]
    return Verdict(well=not missing, failed=False, missing=" and ".join(missing))
