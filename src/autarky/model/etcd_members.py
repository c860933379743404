"""etcd's members: as etcd lists them, as they are requested, the steps, and the status that users see."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """As users see it in EtcdMember.status.phase."""

    PENDING = "Pending"
    JOINING = "Joining"
    LEARNER = "Learner"
    MEMBER = "Member"
    LEAVING = "Leaving"
    REMOVED = "Removed"
    BLOCKED = "Blocked"


class Verb(Enum):
    ADD = "add as learner"
    PROMOTE = "promote"
    MOVE_LEADER = "move the leadership"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Member:
    """As in etcd's own list. address: of its peer URL. started: it has published its name, which it does once.
    serves: it answered as this member just now; None if it was not asked."""

    id: int
    address: str
    learner: bool = False
    started: bool = True
    serves: bool | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """An EtcdMember. asked: when it was requested, in any form that sorts. lost: the id of the member whose data is
    gone, according to its node. reachable: whether its node accepted a connection. reported: whether its status already
    reports Leaving. disconnected: the id of the member that nothing is connected to any more."""

    name: str
    address: str
    present: bool = True
    asked: str = ""
    lost: int | None = None
    reachable: bool = False
    reported: bool = False
    disconnected: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """own: the member of this node. None for what could not be observed now. alarms: etcd's own, as sentences.
    replace_after: seconds of silence after which another node may take a member's place."""

    own: int | None
    leader: int | None
    members: tuple[Member, ...] | None
    desired: tuple[Desired, ...] | None
    alarms: tuple[str, ...] = ()
    replace_after: float = 600.0


@dataclass(frozen=True, slots=True)
class Action:
    """member: its id, 0 for ADD. target: the new leader."""

    verb: Verb
    name: str
    address: str
    member: int = 0
    target: int = 0


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """The wanted status of an EtcdMember. The message contains no running times: they would cause constant writes."""

    phase: Phase
    member: int | None = None
    message: str = ""
