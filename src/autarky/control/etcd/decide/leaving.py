"""How a node's API server lets go of the node's own member of etcd before that leaves. Pure.

A write that is under way in a member when it is removed is answered with an error. So who would write there is moved
first: the load balancers send nobody new to a member that leaves, and the API server beside it, whose connections
stay where they are, is replaced by a new one, as in any rollout: its standby covers, nothing is cut.

Contract: level-triggered; what was done is noted on the EtcdMember, so that a kill costs nothing. It is a courtesy,
not a condition: the removal goes on without it after a while (`etcd_members.LONGEST_NOTICE`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

RELOAD_SECONDS = 15.0
"""From the moment at which a member is said to leave until the node's load balancer surely knows: it looks every
two seconds and reloads every ten at most."""


class Step(Enum):
    WAIT = "wait"
    NOTE = "note which API server is to go"
    RESTART = "end the API server, for a new one"
    CLAIM = "say that nobody writes there any more"


@dataclass(frozen=True, slots=True)
class Seen:
    """Of a member that is to go and votes. told_for: seconds for which it has been said that it leaves. noted: the uid
    of the API server's pod that is to go, None while nothing is noted for this member. pod: the uid of the hosted pod
    on this node, None where there is none; ends: it is about to end; ready: it serves."""

    told_for: float
    noted: str | None
    pod: str | None
    ends: bool
    ready: bool


def decide(seen: Seen) -> tuple[Step, str]:
    """What comes next, and a sentence that says so."""
    if seen.told_for < RELOAD_SECONDS:
        return Step.WAIT, "the load balancers are told that this member leaves"
    if seen.noted is None:
        return _not_begun(seen)
    if seen.pod == seen.noted and not seen.ends:
        return Step.RESTART, "the API server that uses this member makes way for a new one"
    if seen.pod not in (None, seen.noted) and seen.ready and not seen.ends:
        return Step.CLAIM, "a new API server serves, and uses other members"
    return Step.WAIT, "a new API server takes the place of the one that used this member"


def _not_begun(seen: Seen) -> tuple[Step, str]:
    if seen.pod is None:
        return Step.CLAIM, "no hosted API server is beside this member"
    return Step.NOTE, "the API server beside this member lets go of it first"
