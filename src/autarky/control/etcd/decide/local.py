"""What one node's agent does about its own etcd member: start it, stop it, or report that its data is lost. Pure.

Contract: the member list is a linearizable read, from this member or another. Nothing is done while the API does not
answer, or while any of disk, runtime and member list is unknown (rule 2).
- A member is started with an empty directory only under an id that has never run (rule 3): one that has cast votes
  and lost the record of them must not vote again under its old id. Nor does one whose data is there and of no use
  (`unusable`): that counts as gone.
- A member is stopped, and its data moved aside, only when etcd itself says that this very id is not a member (any
  more): ids are never reused. Absent objects mean nothing (rule 10).
- While a recovery has fenced this node, nothing is done: its data may be what the recovery needs. Nor while another
  part of this agent replaces the static pod.
- Each step is visible in the next look, so the agent may be killed between two steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LOST_SECONDS = 30.0
"""For how long the data must be missing from the directory: a disk may be mounted late."""
JUDGED_SECONDS = 60.0
"""A member whose data was of no use may be started once more: it is well again if it runs for so long."""


class Action(Enum):
    NOTHING = "nothing"
    STOP = "remove the static pod"
    MOVE_ASIDE = "move the data aside"
    START = "put the static pod in place"
    CLAIM_LOST = "report that the data is gone"


@dataclass(frozen=True, slots=True)
class Listed:
    """This node's member in etcd's list."""

    id: int
    started: bool


@dataclass(frozen=True, slots=True)
class Data:
    """What the data directory contains. member, cluster: whose log it is, None where there is no log. anything:
    whether there is anything at all."""

    member: int | None = None
    cluster: int | None = None
    anything: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """The static pod in place. written_for: the member that the agent wrote it for; None where `up` did."""

    written_for: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """api: whether the view of the EtcdMembers is current. cluster: the id of the cluster that the list is of, None
    where there is no list. ids: all its members. mine: the one with this node's address; None where there is none,
    or the address is not known. data None: unreadable. running: whether an etcd process runs here; pod: whether
    there is a pod in which the kubelet may start one at any moment; None: unknown.
    certificates: whether all of its files exist. fenced: whether a recovery of etcd has fenced this node. changing:
    whether its static pod is being replaced. unusable: why its data is of no use, as its process said before it ended
    again; "" while it runs, or where that is not clear."""

    api: bool
    cluster: int | None
    ids: frozenset[int]
    mine: Listed | None
    data: Data | None
    manifests: tuple[Manifest, ...] | None
    running: bool | None
    pod: bool | None
    certificates: bool
    fenced: bool = False
    changing: bool = False
    unusable: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Since when (monotonic seconds) the data of this member has been missing; when it was last seen to be of no
    use."""

    missed: tuple[int, float] | None = None
    unusable: tuple[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """settled: there is nothing to wait for."""

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
        return _as_it_should_be(seen, seen.manifests, seen.mine.id, memory, now)
    if seen.mine.started:
        return _missing(seen, seen.mine.id, memory, now)
    return _first_start(seen, seen.data, seen.manifests, seen.mine.id)


def _unknown(seen: Seen) -> str | None:
    if seen.fenced:
        return "a recovery of etcd is under way: this node's member waits for it"
    if seen.changing:
        return "this node's etcd member is changed"
    if not seen.api:
        return "the API does not answer: the etcd member stays as it is"
    if seen.cluster is None:
        return "no etcd member answers with the member list"
    if seen.data is None or seen.manifests is None:
        return "etcd's data directory or the static pod manifests cannot be read"
    return None


def _rest(sentence: str, memory: Memory | None = None, *, settled: bool = False) -> Decision:
    return Decision(memory or Memory(), Action.NOTHING, sentence, settled)


def _do(action: Action, sentence: str) -> Decision:
    return Decision(Memory(), action, sentence)


def _as_it_should_be(seen: Seen, manifests: tuple[Manifest, ...], member: int, memory: Memory, now: float) -> Decision:
    if manifests and seen.unusable:
        sentence = (
            f"the member's data is of no use: it will be removed and join again as a new member ({seen.unusable})"
        )
        return Decision(Memory(unusable=(member, now)), Action.CLAIM_LOST, sentence)
    before = memory.unusable
    if manifests and before is not None and before[0] == member and now - before[1] < JUDGED_SECONDS:
        return _rest("the member's data was of no use, and it was started again", Memory(unusable=before))
    if manifests:
        return _rest("this node's etcd member is in place", settled=True)
    if not seen.certificates:
        return _rest("the member's certificates do not exist yet")
    return _do(Action.START, "its data exists, but its static pod does not")


def _first_start(seen: Seen, data: Data, manifests: tuple[Manifest, ...], member: int) -> Decision:
    """A learner that has never run: whatever is in its way belongs to an earlier member."""
    if any(manifest.written_for != member for manifest in manifests):
        return _do(Action.STOP, "the static pod belongs to an earlier member")
    if manifests:
        return _rest("the member's static pod is in place: waiting for it to start")
    if data.anything:
        return _moved_aside(seen, "the data belongs to an earlier member")
    if not seen.certificates:
        return _rest("the member's certificates do not exist yet")
    return _do(Action.START, "etcd lists this node's new member: it may start")


def _not_a_member(seen: Seen, data: Data, manifests: tuple[Manifest, ...]) -> Decision:
    if data.member is not None and data.cluster != seen.cluster:
        return _rest("the data belongs to another cluster: it stays where it is", settled=True)
    if not manifests and not data.anything:
        return _rest("this node has no etcd member", settled=True)
    if manifests:
        return _do(Action.STOP, "etcd no longer lists this node's member")
    return _moved_aside(seen, "etcd no longer lists this node's member")


def _moved_aside(seen: Seen, reason: str) -> Decision:
    if seen.running is not False or seen.pod is not False:
        return _rest(f"{reason}: waiting for its pod to stop before the data is moved aside")
    return _do(Action.MOVE_ASIDE, reason)


def _missing(seen: Seen, member: int, memory: Memory, now: float) -> Decision:
    """It has run before and its log is missing. It can never be started again, and only its own node can know that."""
    since = memory.missed[1] if memory.missed is not None and memory.missed[0] == member else now
    kept = Memory((member, since))
    if seen.running is not False:  # a running process has its data, even if we do not see it: do not start the timer
        return _rest("the member's data is not where it should be, but an etcd process runs")
    if now - since < LOST_SECONDS:
        return _rest("the member's data is missing; its disk may be mounted late", kept)
    return Decision(
        kept, Action.CLAIM_LOST, "the member's data is gone: it will be removed and join again as a new member"
    )
