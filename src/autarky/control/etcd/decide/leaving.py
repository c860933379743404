"""How a node's API server disconnects from the node's own etcd member before that member leaves. Pure.

A write that is in flight in a member when the member is removed fails. So its clients are moved first: the load
balancers open no new connections to a leaving member, and the API server beside it, whose connections would stay open,
is replaced by a new one. As in any rollout, its standby serves meanwhile and no request is cut off.

Contract: level-triggered; progress is noted on the EtcdMember, so the agent may be killed at any point. This is best
effort: after `etcd_members.LONGEST_NOTICE` the member is removed anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

RELOAD_SECONDS = 15.0
"""From reporting that a member leaves until the node's load balancer surely knows: it looks every two seconds and
reloads at most every ten."""


class Step(Enum):
    WAIT = "wait"
    NOTE = "note which API server is to be replaced"
    RESTART = "delete the API server's pod, so that a new one starts"
    CLAIM = "report that nobody writes there any more"


@dataclass(frozen=True, slots=True)
class Seen:
    """Of a voting member that should leave. reported_for: seconds since it was reported as leaving. noted: the uid of
    the API server pod to be replaced, None while nothing is noted for this member. pod: the uid of the hosted pod on
    this node, None where there is none; ends: it is terminating; ready: it serves."""

    reported_for: float
    noted: str | None
    pod: str | None
    ends: bool
    ready: bool


def decide(seen: Seen) -> tuple[Step, str]:
    """The next step, and a sentence that explains it."""
    if seen.reported_for < RELOAD_SECONDS:
        return Step.WAIT, "waiting for the load balancers to notice that this member leaves"
    if seen.noted is None:
        return _not_begun(seen)
    if seen.pod == seen.noted and not seen.ends:
        return Step.RESTART, "the API server that uses this member is replaced by a new one"
    if seen.pod not in (None, seen.noted) and seen.ready and not seen.ends:
        return Step.CLAIM, "a new API server serves and uses other members"
    return Step.WAIT, "waiting for the new API server that replaces the one that used this member"


def _not_begun(seen: Seen) -> tuple[Step, str]:
    if seen.pod is None:
        return Step.CLAIM, "there is no hosted API server beside this member"
    return Step.NOTE, "the API server beside this member disconnects from it first"
