"""etcd's members as values, from the JSON of its gateway or of `etcdctl`, which have the same names. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ALARM = re.compile(r"\balarm:(\w+)")


@dataclass(frozen=True, slots=True)
class Member:
    """As the cluster knows it. `name` is empty until the member has started for the first time."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    is_learner: bool


@dataclass(frozen=True, slots=True)
class Membership:
    """All members of the cluster with that id, as its quorum sees them."""

    cluster: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What one member says of itself. `leader` is 0 while it knows none. Sizes in bytes. `errors` has a sentence
    for each alarm, and one when there is no leader."""

    member: int
    cluster: int
    leader: int
    version: str
    raft_term: int
    raft_index: int
    raft_applied_index: int
    db_size: int
    db_size_in_use: int
    is_learner: bool
    errors: tuple[str, ...]
    quota: int = 0
    """Most bytes of the database; 0 where etcd does not say (before 3.6)."""
    revision: int = 0
    """The newest revision that it has applied."""

    @property
    def alarms(self) -> tuple[str, ...]:
        """The kinds of all that there are, sorted."""
        return tuple(sorted({kind for one in self.errors for kind in _ALARM.findall(one)}))


@dataclass(frozen=True, slots=True)
class Alarm:
    """kind: NOSPACE or CORRUPT. member: which has raised it, or is accused; it may not be a member any more, and 0 is
    none in particular."""

    member: int
    kind: str


@dataclass(frozen=True, slots=True)
class KeysHash:
    """Of all keys at one revision, with their history since the one to which this member was compacted (-1: never).
    Comparable where the latter are equal as well."""

    hash: int
    revision: int
    compacted: int


def status_of(found: Mapping[str, Any]) -> MemberStatus:
    """From the answer of the gateway, or of `etcdctl`, which has the same names."""
    return MemberStatus(
        member=number(found["header"], "member_id"),
        cluster=number(found["header"], "cluster_id"),
        leader=number(found, "leader"),
        version=found.get("version", ""),
        raft_term=number(found, "raftTerm"),
        raft_index=number(found, "raftIndex"),
        raft_applied_index=number(found, "raftAppliedIndex"),
        db_size=number(found, "dbSize"),
        db_size_in_use=number(found, "dbSizeInUse"),
        is_learner=found.get("isLearner", False),
        errors=tuple(found.get("errors", ())),
        quota=number(found, "dbSizeQuota"),
        revision=number(found["header"], "revision"),
    )


def member_of(found: Mapping[str, Any]) -> Member:
    """The same."""
    return Member(
        id=number(found, "ID"),
        name=found.get("name", ""),
        peer_urls=tuple(found.get("peerURLs", ())),
        client_urls=tuple(found.get("clientURLs", ())),
        is_learner=found.get("isLearner", False),
    )


def number(found: Mapping[str, Any], name: str) -> int:
    """0 where it is left out, as protobuf does. The gateway writes text, `etcdctl` a number."""
    return int(found.get(name, 0))
