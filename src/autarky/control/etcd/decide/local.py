"""What one node's agent does about its own member of etcd: start it, end it, or say that its data is gone. Pure.

Contract: the member list that counts is a linearizable one of other members or of this one. Nothing is done while
the API does not answer, or while any of disk, runtime and member list is unknown (rule 2).
- A member is started with an empty directory only under an id that has never run (rule 3): one that has promised
  votes and lost them must not vote again under its old name.
- A member is ended, and its data moved aside, only when etcd itself says that this very id is no member (any more):
  ids never come back. Objects that are absent mean nothing (rule 10).
- Each step is seen in the next look, so that a kill between two steps costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LOST_SECONDS = 30.0
"""For how long the directory must be seen without the data: a disk may be mounted late."""


class Action(Enum):
    NOTHING = "nothing"
    STOP = "take the static pod away"
    MOVE_ASIDE = "move the data aside"
    START = "put the static pod in place"
    CLAIM_LOST = "say that the data is gone"


@dataclass(frozen=True, slots=True)
class Listed:
    """This node's member in etcd's list."""

    id: int
    started: bool


@dataclass(frozen=True, slots=True)
class Data:
    """What the data directory holds. member, cluster: whose log it is, None where there is no log. anything: whether
    there is anything at all."""

    member: int | None = None
    cluster: int | None = None
    anything: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """The static pod in place. written_for: the member that the agent wrote it for; None where `up` did."""

    written_for: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """api: whether the EtcdMembers are seen as they are now. cluster: the id of the cluster that the list is of, None
    where there is no list. ids: all its members. mine: the one with this node's address; None where there is none,
    or the address is not known. data None: unreadable. running: whether a process of etcd runs here; pod: whether
    there is a pod in which the kubelet may start one at any moment; None: unknown.
    certificates: whether all of its files are there."""

    api: bool
    cluster: int | None
    ids: frozenset[int]
    mine: Listed | None
    data: Data | None
    manifests: tuple[Manifest, ...] | None
    running: bool | None
    pod: bool | None
    certificates: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """Since when (monotonic seconds) the data of this member is missed."""

    missed: tuple[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """settled: nothing is to be waited for."""

    memory: Memory
    action: Action
    sentence: str
    settled: bool = False


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """The next step. `now`: monotonic seconds."""
    if (unknown := _unknown(seen)) is not None or seen.data is None or seen.manifests is None:
        return _rest(unknown or "")
    if seen.data.member in seen.ids and (seen.mine is None or seen.mine.id != seen.data.member):
        return _rest("this node's member has another address in etcd's list: it stays as it is", settled=True)
    if seen.mine is None:
        return _not_a_member(seen, seen.data, seen.manifests)
    if seen.data.member == seen.mine.id and seen.data.cluster == seen.cluster:
        return _as_it_should_be(seen, seen.manifests)
    if seen.mine.started:
        return _missing(seen, seen.mine.id, memory, now)
    return _first_start(seen, seen.data, seen.manifests, seen.mine.id)


def _unknown(seen: Seen) -> str | None:
    if not seen.api:
        return "the API does not answer: etcd's member stays as it is"
    if seen.cluster is None:
        return "no member of etcd says who its members are"
    if seen.data is None or seen.manifests is None:
        return "etcd's directory or the manifests cannot be read"
    return None


def _rest(sentence: str, memory: Memory | None = None, *, settled: bool = False) -> Decision:
    return Decision(memory or Memory(), Action.NOTHING, sentence, settled)


def _do(action: Action, sentence: str) -> Decision:
    return Decision(Memory(), action, sentence)


def _as_it_should_be(seen: Seen, manifests: tuple[Manifest, ...]) -> Decision:
    if manifests:
        return _rest("this node's member of etcd is in place", settled=True)
    if not seen.certificates:
        return _rest("the member's certificates are not there yet")
    return _do(Action.START, "its data is there and its static pod is not")


def _first_start(seen: Seen, data: Data, manifests: tuple[Manifest, ...], member: int) -> Decision:
    """A learner that has never run: everything that is in its way is of an earlier life."""
    if any(manifest.written_for != member for manifest in manifests):
        return _do(Action.STOP, "the static pod is that of an earlier member")
    if manifests:
        return _rest("the member's static pod is in place: it is to start")
    if data.anything:
        return _moved_aside(seen, "the data is that of an earlier member")
    if not seen.certificates:
        return _rest("the member's certificates are not there yet")
    return _do(Action.START, "etcd knows this node's new member: it may start")


def _not_a_member(seen: Seen, data: Data, manifests: tuple[Manifest, ...]) -> Decision:
    if data.member is not None and data.cluster != seen.cluster:
        return _rest("the data is that of another cluster: it stays where it is", settled=True)
    if not manifests and not data.anything:
        return _rest("this node has no member of etcd", settled=True)
    if manifests:
        return _do(Action.STOP, "etcd has this node's member no more")
    return _moved_aside(seen, "etcd has this node's member no more")


def _moved_aside(seen: Seen, reason: str) -> Decision:
    if seen.running is not False or seen.pod is not False:
        return _rest(f"{reason}: its pod is to end before the data is moved aside")
    return _do(Action.MOVE_ASIDE, reason)


def _missing(seen: Seen, member: int, memory: Memory, now: float) -> Decision:
    """It has run and its log is not here. It can never be started again, and only its own node can know that."""
    since = memory.missed[1] if memory.missed is not None and memory.missed[0] == member else now
    kept = Memory((member, since))
    if seen.running is not False:  # it has its data: who does not see it has no reason to count
        return _rest("the member's data is not where it should be, and a process of etcd runs")
    if now - since < LOST_SECONDS:
        return _rest("the member's data is not there; perhaps its disk comes late", kept)
    return Decision(kept, Action.CLAIM_LOST, "the member's data is gone: it is to be removed and to join anew")
