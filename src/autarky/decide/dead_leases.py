"""Leases whose holder died with the power: after a reboot of this node nobody needs to wait them out.

Contract: pure. A lease is freed only where its holder cannot live (design §10): this host has booted since,
the host part of the holder's identity is exactly this host's name, and the last renewal is older than this
boot. Freed by emptying `holderIdentity` under the resourceVersion; never deleted.

Danger: a wrong yes lets two controllers act at once. Times are compared on one machine's clock only, since
both the renewal and the boot were stamped by this host.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

SILENT_SECONDS = 2.0
"""A clock that is set back after the boot began makes renewals of this boot look older than it. So the lease must also
have been silent while it was watched: a living holder renews every 0.8 s."""


@dataclass(frozen=True, slots=True)
class Boot:
    """This boot: its id, when it began (by this host's clock), and the id of the last boot that was seen
    to act here (None: never)."""

    id: str
    began: datetime
    last_id: str | None


def holder_may_be_dead(holder: str, renewed: datetime | None, hostname: str, boot: Boot) -> bool:
    """Whether the lease says so. `holder` is its holderIdentity, of the form HOST_UUID as client-go makes it."""
    if boot.last_id is None or boot.last_id == boot.id or renewed is None:
        return False
    host, separator, _ = holder.rpartition("_")
    return bool(separator) and host == hostname and renewed < boot.began


def holder_is_dead(holder: str, renewed: datetime | None, hostname: str, boot: Boot, silent: float) -> bool:
    """`silent`: seconds for which the lease was seen unchanged while the API answered."""
    return holder_may_be_dead(holder, renewed, hostname, boot) and silent >= SILENT_SECONDS
