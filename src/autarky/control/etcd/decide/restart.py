"""Restarting etcd's members when their arguments change: which one is next, whether it may stop, and whether it is
healthy again.

Contract: pure. One member at a time; the next only when the one before is healthy. A mistake in the arguments affects
one member, and those that keep the quorum are not touched.

Invariants: no healthy voter is stopped while another voter is missing and the rest would be no quorum (rule 3). Where
all others serve, it may stop: with three or more members they are a quorum, and with one or two a short outage of etcd
cannot be avoided in any order. Members that are unhealthy anyway come first, the leader last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autarky.control.common.restarted import Verdict

STARTS = 3
"""After this many exits it is considered failed: the kubelet starts it again after 10 s, and then after 20."""


@dataclass(frozen=True, slots=True)
class Member:
    """As etcd itself reports it. name: of its node. healthy: it answers a read that needs the quorum."""

    name: str
    voter: bool
    healthy: bool
    leader: bool = False


def following(waiting: Collection[str], members: Sequence[Member]) -> str:
    """Which of the waiting nodes is next. Those whose member is not listed have nothing to lose."""
    known = {member.name: member for member in members}

    def cost(name: str) -> tuple[int, str]:
        member = known.get(name)
        if member is None or not member.healthy:
            return 0, name
        return (1 if not member.voter else 3 if member.leader else 2), name

    return min(waiting, key=cost)


def against(name: str, members: Sequence[Member]) -> str | None:
    """Why this node's member must not be stopped for a moment; None where it may."""
    if not any(member.name == name and member.voter and member.healthy for member in members):
        return None
    others = [member for member in members if member.voter and member.name != name]
    missing = [member.name for member in others if not member.healthy]
    quorum = (len(others) + 1) // 2 + 1
    if not missing or len(others) - len(missing) >= quorum:
        return None
    count = len(others) + 1
    return f"of etcd's {count} members {', '.join(missing)} does not serve, and without {name} there is no quorum"


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one node. former: whether the member's process with the old arguments still runs; new: the one with the new
    arguments; starts: how often that has been started; answers: what its health check answers, "" if nothing."""

    former: bool
    new: bool
    starts: int
    answers: str


def judge(seen: Seen) -> Verdict:
    """An answer counts only when the old process has exited: otherwise it may come from that one."""
    if seen.former:
        return Verdict(well=False, failed=False, missing="the previous process has not exited")
    if seen.new and seen.answers == "200":
        return Verdict(well=True, failed=False, missing="")
    if not seen.new and seen.starts >= STARTS:
        return Verdict(well=False, failed=True, missing=f"it was started {seen.starts} times, and exited each time")
    if not seen.new:
        return Verdict(well=False, failed=False, missing="it does not run")
    return Verdict(well=False, failed=False, missing=f"its health check answers {seen.answers or 'nothing'}")
