"""What is said of etcd's members: as etcd lists them, as they are asked for, what is done, and what users are told."""

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
    """As etcd's own list has it. address: of its peer URL. started: it has published its name, which it does once.
    serves: it answered as this member just now; None when it was not asked."""

    id: int
    address: str
    learner: bool = False
    started: bool = True
    serves: bool | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """An EtcdMember. asked: when, in any form that sorts. lost: the member of which its node says that the data is
    gone. reachable: whether its node accepted a connection. told: whether its status says Leaving.
    vacated: the member to which nobody is connected any more."""

    name: str
    address: str
    present: bool = True
    asked: str = ""
    lost: int | None = None
    reachable: bool = False
    told: bool = False
    disconnected: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """own: the member of this node. None where something could not be seen now. alarms: etcd's own, as sentences."""

    own: int | None
    leader: int | None
    members: tuple[Member, ...] | None
    desired: tuple[Desired, ...] | None
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """member: its id, 0 for ADD. target: who gets the leadership."""

    verb: Verb
    name: str
    address: str
    member: int = 0
    target: int = 0


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What an EtcdMember's status is to say. The message holds no counting seconds: it would be written again and
    again."""

    phase: Phase
    member: int | None = None
    message: str = ""
