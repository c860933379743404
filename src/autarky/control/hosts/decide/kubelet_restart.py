"""Whether a kubelet that was restarted with other settings is healthy. Pure.

Contract: it is healthy once this was seen after the restart: the process runs and reports itself healthy, the API has a
heartbeat from it, and its Node is Ready if it was before (an earlier problem of the node is not caused by the
settings). It has failed when it keeps exiting: systemd restarts it each time. Otherwise the caller keeps waiting, and
decides for how long.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.common.restarted import Verdict

MOST_RESTARTS = 3
"""A kubelet that cannot read its settings exits within a second, each time. A single exit may have another cause."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Since the restart. active: systemd says that it runs; restarts: how often systemd has restarted it; healthy: as
    it reports itself, None where that cannot be queried; heartbeat: whether its lease was renewed; ready: its Node's
    condition."""

    active: bool
    restarts: int
    healthy: bool | None
    heartbeat: bool
    ready: bool


def judge(seen: Seen, *, was_ready: bool) -> Verdict:
    if seen.restarts >= MOST_RESTARTS:
        return Verdict(well=False, failed=True, missing=f"it has exited {seen.restarts} times")
    missing = [
        *([] if seen.active else ["it is not running"]),
        *(["it does not report that it is healthy"] if seen.healthy is False else []),
        *([] if seen.heartbeat else ["the API has no heartbeat from it"]),
        *([] if seen.ready or not was_ready else ["its Node is not Ready"]),
    ]
    return Verdict(well=not missing, failed=False, missing=" and ".join(missing))
