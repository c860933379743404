"""What keeps a running etcd in shape, in which order, and what is refused. Pure.

Contract: one member at a time, the leader last, and none while another one is not healthy: a member that is
defragmented answers nothing meanwhile, so each step must leave a quorum of the others (rule 3). A single member is
defragmented all the same: clients wait for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KEPT_REVISIONS = 1000
"""Of history, by default. Watches that are behind by more begin again with a list. The API server itself forgets what
is older than five minutes."""
MOST_BEHIND = 1000
"""Entries of the log that a member may lack. etcd makes learners voters within a tenth of the leader's log, and sends a
snapshot to one that lacks more than 5000 (its `snapshot-catchup-entries`)."""
NEARLY_FULL = 0.8
"""Of the quota. At all of it etcd raises NOSPACE and refuses writes."""


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """One member. error: why it is not healthy, None if it is. applied: of the log. Sizes in bytes, quota 0 where it is
    not known. A member that did not answer has a name, an address and an error only."""

    name: str
    address: str
    id: int = 0
    learner: bool = False
    leads: bool = False
    version: str = ""
    term: int = 0
    applied: int = 0
    size: int = 0
    in_use: int = 0
    quota: int = 0
    alarms: tuple[str, ...] = ()
    error: str | None = None
    url: str = ""
    """Where clients reach it. A second member on a node has another port."""

    @property
    def healthy(self) -> bool:
        return self.error is None and not self.alarms


@dataclass(frozen=True, slots=True)
class EtcdSeen:
    """All members. cluster: etcd's id of it; 0 where nobody answered. quorum: whether most of the voters answer."""

    members: tuple[MemberSeen, ...]
    cluster: int = 0
    quorum: bool = False

    @property
    def healthy(self) -> bool:
        return self.quorum and all(one.healthy for one in self.members)

    @property
    def leader(self) -> MemberSeen | None:
        return next((one for one in self.members if one.leads), None)


def findings(seen: EtcdSeen) -> list[str]:
    """What deserves attention, as sentences, the worst first."""
    if not seen.members:
        return ["no etcd member is known"]
    found = []
    if not seen.quorum:
        found.append("etcd has no quorum: nothing can be written, and the API does not answer")
    found += [f"{one.name}: {one.error}" for one in seen.members if one.error is not None]
    found += [f"{one.name}: alarm {alarm}" for one in seen.members for alarm in one.alarms]
    newest = max(one.applied for one in seen.members)
    for one in seen.members:
        if one.error is None and newest - one.applied > MOST_BEHIND:
            found.append(f"{one.name} is {newest - one.applied:,} entries behind")
        if one.quota and one.size > NEARLY_FULL * one.quota:
            found.append(f"{one.name}: its database has {one.size / one.quota:.0%} of its quota")
    voters = [one for one in seen.members if not one.learner]
    if len(voters) % 2 == 0:
        found.append(f"{len(voters)} voters tolerate no more failures than {len(voters) - 1} would")
    if len({one.version for one in seen.members if one.version}) > 1:
        found.append("its members run different versions")
    return found


def defragmentation(seen: EtcdSeen, wanted: Sequence[str] = ()) -> list[MemberSeen]:
    """The members to defragment, in this order: `wanted` by name, else all. Learners first, the leader last."""
    chosen = [one for one in seen.members if not wanted or one.name in wanted]
    return sorted(chosen, key=lambda one: (one.leads, not one.learner, one.name))


def obstacle(seen: EtcdSeen) -> str | None:
    """Why no member may stop answering now, even for a while; None if one may."""
    if not seen.quorum:
        return "etcd has no quorum"
    if seen.leader is None:
        return "etcd has no leader"
    sick = [f"{one.name}: {one.error}" for one in seen.members if one.error is not None]
    return "; ".join(sick) if sick else None


def compaction(newest: int, keep: int) -> int | None:
    """The revision to compact to; None if there is less history than what is to be kept."""
    target = newest - keep
    return target if target > 0 else None


def unknown_names(seen: EtcdSeen, names: Iterable[str]) -> list[str]:
    known = {one.name for one in seen.members}
    return sorted(set(names) - known)
