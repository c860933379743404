"""Leases whose holder died with the power: after a reboot of this node nobody needs to wait them out.

Contract: pure. A lease is freed only where its holder cannot live (design §10): the host part of the holder's identity
is exactly this host's name, and this very identity was noted in another boot of this host. An identity is one process's
(it ends with an id of its own), and no process outlives its boot. No clock is asked: any may be set, back or forth.
Freed by emptying `holderIdentity` under the resourceVersion; never deleted.

Danger: a wrong yes lets two controllers act at once. What was not noted in time is not freed: it runs out by itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Noted:
    """Who held a lease when it was noted last, of the processes of this host, and in which boot that was."""

    holder: str
    boot: str


def is_of(holder: str, hostname: str) -> bool:
    """Whether a process of that host has it. `holder` is its holderIdentity: HOST_UUID, as client-go makes it."""
    host, separator, _ = holder.rpartition("_")
    return bool(separator) and host == hostname


def holder_is_dead(holder: str, noted: Noted | None, hostname: str, boot: str) -> bool:
    """`boot`: the id of this one."""
    return is_of(holder, hostname) and noted is not None and noted.holder == holder and noted.boot != boot


def to_note(holder: str, noted: Noted | None, hostname: str, boot: str) -> Noted | None:
    """What is to be written down now; None where nothing changes. One that was noted keeps its boot."""
    if not is_of(holder, hostname) or (noted is not None and noted.holder == holder):
        return None
    return Noted(holder, boot)
