"""Release of stale leases, whose holder died with its machine: after a reboot of this node nobody has to wait for them
to expire.

Contract: pure. A lease is freed only where its holder cannot be alive: the host part of the holder's identity is
exactly this host's name, and this very identity was noted in an earlier boot of this host. An identity belongs to one
process (it ends with a unique id), and no process outlives its boot. No clock is used: clocks can be set back or
forward. A lease is freed by emptying `holderIdentity` under its resourceVersion; it is never deleted.

Danger: a wrong yes lets two controllers act at once. A lease whose holder was not noted in time stays: it expires.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Noted:
    """The process of this host that held a lease when it was last noted, and the boot in which that was."""

    holder: str
    boot: str


def is_of(holder: str, hostname: str) -> bool:
    """Whether a process of that host holds it. `holder` is its holderIdentity: HOST_UUID, as client-go makes it."""
    host, separator, _ = holder.rpartition("_")
    return bool(separator) and host == hostname


def holder_is_dead(holder: str, noted: Noted | None, hostname: str, boot: str) -> bool:
    """`boot`: the id of the current boot."""
    return is_of(holder, hostname) and noted is not None and noted.holder == holder and noted.boot != boot


def to_note(holder: str, noted: Noted | None, hostname: str, boot: str) -> Noted | None:
    """What to write down now; None where nothing changes. A holder that was noted keeps its boot."""
    if not is_of(holder, hostname) or (noted is not None and noted.holder == holder):
        return None
    return Noted(holder, boot)
