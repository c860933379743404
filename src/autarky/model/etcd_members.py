"""etcd's members: as etcd lists them, as they are requested, the steps, and the status that users see.

A member is recognized by its address: that of its node, and for a second member on the same node with its peer port.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from autarky.model import ports

OWN_FLAGS = frozenset(
    {
        "name",
        "data-dir",
        "wal-dir",
        "config-file",
        "force-new-cluster",
        "listen-client-urls",
        "listen-client-http-urls",
        "listen-peer-urls",
        "advertise-client-urls",
    }
)
"""etcd's flags (v3.6, `etcd --help`) of member and clustering that say who and where."""


def is_own_flag(name: str) -> bool:
    """Whether the agents rely on this flag of a member: who it is, with whom, and where its data is."""
    return name in OWN_FLAGS or name.startswith(("initial-", "discovery"))


ETCD_VERSION = r"^3\.\d{1,3}\.\d{1,3}$"
"""As in `spec.etcd.version`."""
SECOND_SUFFIX = ":second"
"""Of the name of a second member on a node: no node has a colon in its name."""


def is_plain(name: str) -> bool:
    """Whether a member's name can stand in a configuration as it is: the owner of an etcd outside may choose any text,
    and a member that was added and has never started has none."""
    return re.fullmatch(rf"[A-Za-z0-9][-A-Za-z0-9._]{{0,252}}({SECOND_SUFFIX})?", name) is not None


def unusable_names(names: Iterable[str]) -> frozenset[str]:
    """Those that the list of members in an argument (`--initial-cluster`) cannot contain, or only once."""
    return frozenset(name for name, times in Counter(names).items() if times > 1 or not is_plain(name))


def second(address: str) -> str:
    """The address of the second member on the node with this address."""
    return f"{address}:{ports.ETCD_SECOND_PEER}"


def is_second(address: str) -> bool:
    return address.endswith(f":{ports.ETCD_SECOND_PEER}")


def host_of(address: str) -> str:
    return address.partition(":")[0]


def peer_url(address: str) -> str:
    return f"https://{address if is_second(address) else f'{address}:{ports.ETCD_PEER}'}"


def client_url(address: str) -> str:
    port = ports.ETCD_SECOND_CLIENT if is_second(address) else ports.ETCD_CLIENT
    return f"https://{host_of(address)}:{port}"


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
    TURN = "let it change"


@dataclass(frozen=True, slots=True)
class Member:
    """As in etcd's own list. address: of its peer URL. started: it has published its name, which it does once.
    serves: it answered as this member just now; None if it was not asked. connected: whether the leader is connected to
    it, as a peer; None if that is not known."""

    id: int
    address: str
    learner: bool = False
    started: bool = True
    serves: bool | None = None
    connected: bool | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """An EtcdMember. asked: when it was requested, in any form that sorts. lost: the id of the member whose data is
    gone, according to its node. reachable: whether its node accepted a connection. reported: whether its status already
    reports Leaving. disconnected: the id of the member that nothing is connected to any more. uses: ids of members on
    other nodes that leave, to which the API server of this node is still connected.

    revision: of the template that its static pod should be made from; "" where that is not known. As its node reports:
    outdated: it is made from another one (silence does not say that); failed: it was not healthy with this one;
    has_turn: it was asked to change.
    """

    name: str
    address: str
    present: bool = True
    asked: str = ""
    lost: int | None = None
    reachable: bool = False
    reported: bool = False
    disconnected: int | None = None
    uses: tuple[int, ...] = ()
    revision: str = ""
    outdated: bool = False
    failed: bool = False
    has_turn: bool = False

    @property
    def should_change(self) -> bool:
        return self.outdated and not self.failed


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
    """member: its id, 0 for ADD and TURN. target: the new leader. revision: what a TURN is for."""

    verb: Verb
    name: str
    address: str
    member: int = 0
    target: int = 0
    revision: str = ""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """The wanted status of an EtcdMember. The message contains no running times: they would cause constant writes."""

    phase: Phase
    member: int | None = None
    message: str = ""
