"""Which nodes become control nodes and which stop being ones: by a label, in a safe order. Pure.

Three things on a Node show how far it is:
- the requested label, which users set and remove (kubelets may not: NodeRestriction);
- the active label, which only the operator (or `up`) sets: workloads select it;
- what its agent reports (an annotation): `ready-HASH` when everything that a control node needs is on its disk,
  `joining: …` on the way there, no annotation on a worker. The operator writes `leave` in its place. Only that makes an
  agent remove a control node's parts: a missing label may just mean that the Node object was deleted and created again.

Becoming one:  requested → permissions are granted → the agent prepares the node → active.
Ceasing:       not requested → its etcd member is removed → `leave` replaces the active label, in one write → the agent
               removes everything and its annotation → the permissions and the record are deleted.

`decide` looks at all nodes together and gives each its next step; carrying one out again is harmless. The rules it
keeps, in whatever order observations, failures and crashes come:
- the active label is never removed from the last control node, nor while no other one was seen to serve, for a while
  and lately (`serving`), by its own API servers: a Node can be Ready through another node's (rules 2, 10);
- nothing is removed before the node's etcd member is known to be gone, or never to have existed (rule 3): REMOVE_MEMBER
  is the only decision by which a member leaves because of its node, and `control.etcd.decide.wanted` follows it;
- one node leaves at a time;
- a recorded control node whose Node was deleted and created again gets its labels back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

ANNOTATION = "autarky.dev/control-node"
READY = "ready-"
"""Prefix of the annotation of a node that has everything; a hash of what it has follows."""
JOINING = "joining: "
"""Prefix while its agent prepares the node; a sentence follows."""
LEAVE = "leave"


class Member(Enum):
    """Of a node's etcd member. NONE: it has none (any more)."""

    NONE = "none"
    THERE = "there"
    UNKNOWN = "unknown"


class State(Enum):
    """What is recorded of a node. MADE: it has become a control node. DISMISSED: its agent was told to leave."""

    JOINING = "joining"
    MADE = "made"
    DISMISSED = "dismissed"


@dataclass(frozen=True, slots=True)
class Record:
    """uid: of the recorded Node."""

    uid: str
    state: State = State.MADE


class Step(Enum):
    """What the operator does next for a node; the record is written before anything else.

    REMEMBER: record that it is a control node. GRANT: record it (MADE stays MADE), and let its agent read what it
    needs. MARK: record it, and set the active label. RESTORE: set the requested label again. REMOVE_MEMBER: its etcd
    member should leave (its EtcdMember follows). DISMISS: record it, then remove the active label and write `leave`, in
    one write. FORGET: revoke what was granted, and delete the record.
    """

    NOTHING = "nothing"
    WAIT = "wait"
    REFUSE = "refuse"
    REMEMBER = "remember"
    GRANT = "grant"
    MARK = "mark"
    RESTORE = "restore"
    REMOVE_MEMBER = "remove its etcd member"
    DISMISS = "dismiss"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Node:
    """One Node object as observed.

    told: the annotation, None where there is none. ready: None when unknown. fits: whether the join inventory has its
    address, None when that is not known. recorded: None when there is no record under this name. obstacle: why it does
    not count as serving, None when it was seen to serve.
    """

    name: str
    uid: str
    requested: bool
    active: bool
    told: str | None = None
    ready: bool | None = True
    fits: bool | None = True
    member: Member = Member.NONE
    recorded: Record | None = None
    obstacle: str | None = "its API servers have not been asked"

    @property
    def is_recorded(self) -> bool:
        """Whether this very Node is recorded as a control node."""
        return self.recorded == Record(self.uid, State.MADE)

    @property
    def is_ready_to_serve(self) -> bool:
        """Whether its agent reports that it has everything."""
        return self.told is not None and self.told.startswith(READY)

    @property
    def stays(self) -> bool:
        """Whether it is a control node with everything, and should remain one."""
        return self.requested and self.active and self.is_ready_to_serve

    @property
    def is_to_go(self) -> bool:
        """Whether it has, or may have, parts of a control node, and should not be one."""
        return not self.requested and self.recorded is not None


@dataclass(frozen=True, slots=True)
class Decision:
    step: Step
    sentence: str


def decide(nodes: Iterable[Node], *, unfit: str = "") -> dict[str, Decision]:
    """Node name → its next step. `unfit`: why no node can become a control node now; empty when one can.

    Of several that should leave, first comes one whose member is gone already, then one that is down: as long as it is
    a member, those of the others may be needed.
    """
    all_of_them = sorted(nodes, key=lambda node: (node.member is Member.THERE, node.ready is True, node.name))
    decisions: dict[str, Decision] = {}
    for node in all_of_them:
        someone_leaves = any(one.step in (Step.REMOVE_MEMBER, Step.DISMISS) for one in decisions.values())
        decisions[node.name] = _one(node, all_of_them, unfit, someone_leaves=someone_leaves)
    return decisions


def asked_whether_they_serve(nodes: Iterable[Node]) -> frozenset[str]:
    """The nodes whose API servers must be asked now: those that stay and are Ready, while another one should leave."""
    all_of_them = list(nodes)
    if not any(node.is_to_go for node in all_of_them):
        return frozenset()
    return frozenset(node.name for node in all_of_them if node.stays and node.ready)


def forgotten(recorded: Iterable[str], live: Collection[str], inventory: Collection[str]) -> frozenset[str]:
    """The recorded nodes that have no Node object and may not join again either: they will not come back."""
    return frozenset(name for name in recorded if name not in live and name not in inventory)


def _one(node: Node, nodes: list[Node], unfit: str, *, someone_leaves: bool) -> Decision:
    if node.requested and node.active:
        return _stays(node)
    if node.requested:
        return _joins(node, unfit)
    if node.recorded is None:
        return Decision(Step.NOTHING, "autarky has no record of it" if node.active else "it is a worker")
    dismissed = node.recorded.state is State.DISMISSED
    if node.recorded.uid != node.uid and not dismissed:
        return _is_new(node)
    if dismissed and not node.active and node.told in (None, LEAVE) and node.recorded.uid == node.uid:
        return _has_left(node)
    return _leaves(node, nodes, someone_leaves=someone_leaves)


def _is_new(node: Node) -> Decision:
    if node.active:
        return Decision(Step.REMEMBER, "its Node was created again")
    return Decision(Step.RESTORE, "the Node of a control node was created again: its label is restored")


def _has_left(node: Node) -> Decision:
    """Without an annotation nothing is left, if the agent was told to leave: before, it may not have reported yet."""
    if node.told == LEAVE:
        return Decision(Step.WAIT, "its agent is removing the parts of a control node")
    return Decision(Step.FORGET, "it is a worker again")


def _stays(node: Node) -> Decision:
    if not node.is_recorded:
        return Decision(Step.REMEMBER, "it is a control node")
    if node.told is not None and not node.is_ready_to_serve:
        return Decision(Step.GRANT, _what_the_agent_does(node))
    return Decision(Step.NOTHING, "it is a control node")


def _joins(node: Node, unfit: str) -> Decision:
    if unfit:
        return Decision(Step.REFUSE, unfit)
    if node.fits is None:
        return Decision(Step.WAIT, "its address is not known yet")
    if not node.fits:
        return Decision(Step.REFUSE, "its address is not the one in the join inventory")
    if node.is_ready_to_serve:
        return Decision(Step.MARK, "it has everything that a control node needs, and becomes one")
    return Decision(Step.GRANT, _what_the_agent_does(node))


def _what_the_agent_does(node: Node) -> str:
    told = node.told or ""
    return f"its agent reports: {told.removeprefix(JOINING)}" if told.startswith(JOINING) else "its agent prepares it"


def _leaves(node: Node, nodes: list[Node], *, someone_leaves: bool) -> Decision:
    stay = [one for one in nodes if one.name != node.name and one.stays]
    if not stay and node.active:
        return Decision(Step.REFUSE, "no control node would be left: it stays one")
    if not stay and node.recorded is not None and node.recorded.state is not State.JOINING:
        return Decision(Step.RESTORE, "no control node would be left: its label is restored")
    if waits := _what_it_waits_for(node, stay, someone_leaves=someone_leaves):
        return Decision(Step.WAIT, waits)
    if node.member is Member.THERE:
        return Decision(Step.REMOVE_MEMBER, "its etcd member leaves first")
    return Decision(Step.DISMISS, "it should not be a control node any more")


def _what_it_waits_for(node: Node, stay: list[Node], *, someone_leaves: bool) -> str:
    if someone_leaves:
        return "another control node leaves first"
    if stay and not any(one.ready and one.obstacle is None for one in stay):
        seen = "; ".join(f"{one.name}: {_why_not(one)}" for one in sorted(stay, key=lambda one: one.name))
        return f"no other control node has been seen to serve, for a while and lately: {seen}"
    return "it is not known whether it has an etcd member" if node.member is Member.UNKNOWN else ""


def _why_not(node: Node) -> str:
    return "its Node is not known to be Ready" if not node.ready else node.obstacle or ""


# --- the node's own side -----------------------------------------------------------------------------------


class OwnStep(Enum):
    """What a node's agent does next. ANNOUNCE: report `ready-HASH`."""

    NOTHING = "nothing"
    BECOME = "become"
    ANNOUNCE = "announce"
    CEASE = "cease"


@dataclass(frozen=True, slots=True)
class OwnNode:
    """requested, active, told: as on the Node. ready: what to report now, None when the disk does not have all."""

    requested: bool
    active: bool
    told: str | None
    ready: str | None


def own_step(node: OwnNode) -> OwnStep:
    """Only `leave`, on a Node with neither label, makes an agent remove anything."""
    if is_dismissed(node.requested, node.active, node.told):
        return OwnStep.CEASE
    if node.ready is not None:
        return OwnStep.NOTHING if node.told == node.ready else OwnStep.ANNOUNCE
    return OwnStep.BECOME if node.requested else OwnStep.NOTHING


def is_dismissed(requested: bool, active: bool, told: str | None) -> bool:  # three facts of one Node
    return told == LEAVE and not requested and not active


def labels_and_told(metadata: Mapping[str, object], requested: str, active: str) -> tuple[bool, bool, str | None]:
    """(requested, active, told) of a Node's metadata."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if not isinstance(labels, Mapping) or not isinstance(annotations, Mapping):
        return False, False, None
    told = annotations.get(ANNOTATION)
    return requested in labels, active in labels, told if isinstance(told, str) else None
