"""Which nodes become control nodes and which cease to be ones: by a label, in safe order. Pure.

Three things on a Node tell how far it is:
- the wish, a label that users set and take away (kubelets may not: NodeRestriction);
- the fact, a label that only the operator (or `up`) sets: workloads select it;
- what its agent tells (an annotation): `ready-HASH` when everything that a control node needs is on its disk,
  `joining: …` on the way there, nothing on a worker. The operator writes `leave` in its place, which is the only
  thing that ever makes an agent take a control node's parts away: a label that is gone may just be one of a Node
  object that was deleted and made anew.

Becoming one:  wish → grant → the agent makes ready → fact.
Ceasing:       no wish → its etcd member is removed → `leave` for the fact, in one write → the agent takes everything
               away and says nothing any more → what was granted is taken back, and it is forgotten.

`decide` looks at all nodes at once and gives each its next step; carrying one out again is harmless. The rules it
keeps, whatever order observations, failures and crashes come in:
- the fact is never taken from the last control node, nor while no other one was seen to serve, for a while and lately
  (`seen_to_serve`), by its own API servers: a Node is Ready through its neighbours' (rules 2, 10);
- nothing is taken away before its etcd member is known to be gone, or never to have been one (rule 3): REMOVE_MEMBER is
  the one decision by which a member goes because of its node, and `etcd_wanted` follows it;
- one node leaves at a time;
- what has been recorded of a control node is given back to its Node when that was deleted and made anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

ANNOTATION = "autarky.dev/control-node"
READY = "ready-"
"""What the annotation of a node that has everything begins with; a hash of what it has follows."""
JOINING = "joining: "
"""What it begins with while its agent is at it; a sentence follows."""
LEAVE = "leave"


class Member(Enum):
    """Of a node's etcd member. NONE: it has none, or has it no more."""

    NONE = "none"
    THERE = "there"
    UNKNOWN = "unknown"


class State(Enum):
    """What is recorded of a node. MADE: it has been a control node. DISMISSED: its agent was told to leave."""

    JOINING = "joining"
    MADE = "made"
    DISMISSED = "dismissed"


@dataclass(frozen=True, slots=True)
class Record:
    """uid: of the Node that was recorded."""

    uid: str
    state: State = State.MADE


class Step(Enum):
    """What the operator does next for a node; the record is written before anything else.

    REMEMBER: record that it is a control node. GRANT: record it (one that was made stays so), and let its agent read
    what it needs. MARK: record it, and set the fact. RESTORE: set the wish again. REMOVE_MEMBER: its etcd member is to
    go (its EtcdMember follows). DISMISS: record it, then take the fact away and write `leave`, at once. FORGET: take
    back what was granted, and the record.
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
    """One Node object as it was seen.

    told: the annotation, None where there is none. ready: None when nobody knows. fits: whether its address is that
    of the join inventory, None when that is not known. recorded: None when nothing was under this name. obstacle: why
    it does not count as serving, None when it was seen to serve.
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
        """Whether its agent says that it has everything."""
        return self.told is not None and self.told.startswith(READY)

    @property
    def stays(self) -> bool:
        """Whether it is a control node with everything, and is to remain one."""
        return self.requested and self.active and self.is_ready_to_serve

    @property
    def is_to_go(self) -> bool:
        """Whether it has, or may have, something of a control node, and is to be none."""
        return not self.requested and self.recorded is not None


@dataclass(frozen=True, slots=True)
class Decision:
    step: Step
    sentence: str


def decide(nodes: Iterable[Node], *, unfit: str = "") -> dict[str, Decision]:
    """Node name → its next step. `unfit`: why no node can become a control node now; empty when one can.

    Of several that are to go the first is one whose member is gone already, then one that is down: while it is, the
    members of the others may be needed.
    """
    all_of_them = sorted(nodes, key=lambda node: (node.member is Member.THERE, node.ready is True, node.name))
    decisions: dict[str, Decision] = {}
    for node in all_of_them:
        someone_leaves = any(one.step in (Step.REMOVE_MEMBER, Step.DISMISS) for one in decisions.values())
        decisions[node.name] = _one(node, all_of_them, unfit, someone_leaves=someone_leaves)
    return decisions


def asked_whether_they_serve(nodes: Iterable[Node]) -> frozenset[str]:
    """The nodes whose API servers are to be asked now: those that stay and are Ready, while another one is to go."""
    all_of_them = list(nodes)
    if not any(node.is_to_go for node in all_of_them):
        return frozenset()
    return frozenset(node.name for node in all_of_them if node.stays and node.ready)


def forgotten(recorded: Iterable[str], live: Collection[str], inventory: Collection[str]) -> frozenset[str]:
    """The recorded nodes that have no Node object and may not join again either: nothing will come of them."""
    return frozenset(name for name in recorded if name not in live and name not in inventory)


def _one(node: Node, nodes: list[Node], unfit: str, *, someone_leaves: bool) -> Decision:
    if node.requested and node.active:
        return _stays(node)
    if node.requested:
        return _joins(node, unfit)
    if node.recorded is None:
        return Decision(Step.NOTHING, "it is none of ours" if node.active else "it is a worker")
    dismissed = node.recorded.state is State.DISMISSED
    if node.recorded.uid != node.uid and not dismissed:
        return _is_new(node)
    if dismissed and not node.active and node.told in (None, LEAVE) and node.recorded.uid == node.uid:
        return _has_left(node)
    return _leaves(node, nodes, someone_leaves=someone_leaves)


def _is_new(node: Node) -> Decision:
    if node.active:
        return Decision(Step.REMEMBER, "its Node was made anew")
    return Decision(Step.RESTORE, "its Node was made anew and is that of a control node: its label is restored")


def _has_left(node: Node) -> Decision:
    """Silence means that nothing is left only once the agent was told to leave: before, it may just not have spoken."""
    if node.told == LEAVE:
        return Decision(Step.WAIT, "its agent takes away what a control node has")
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
        return Decision(Step.REFUSE, "its address is not the one that the join inventory has for it")
    if node.is_ready_to_serve:
        return Decision(Step.MARK, "it has everything that a control node needs, and becomes one")
    return Decision(Step.GRANT, _what_the_agent_does(node))


def _what_the_agent_does(node: Node) -> str:
    told = node.told or ""
    return f"its agent says: {told.removeprefix(JOINING)}" if told.startswith(JOINING) else "its agent is to make ready"


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
    return Decision(Step.DISMISS, "it is not to be a control node any more")


def _what_it_waits_for(node: Node, stay: list[Node], *, someone_leaves: bool) -> str:
    if someone_leaves:
        return "another control node leaves first"
    if stay and not any(one.ready and one.obstacle is None for one in stay):
        seen = "; ".join(f"{one.name}: {_why_not(one)}" for one in sorted(stay, key=lambda one: one.name))
        return f"no other control node has been seen to serve, for a while and lately: {seen}"
    return "whether it has an etcd member is not known" if node.member is Member.UNKNOWN else ""


def _why_not(node: Node) -> str:
    return "its Node is not known to be Ready" if not node.ready else node.obstacle or ""


# --- the node's own side -----------------------------------------------------------------------------------


class OwnStep(Enum):
    """What a node's agent does next. ANNOUNCE: tell `ready-HASH`."""

    NOTHING = "nothing"
    BECOME = "become"
    ANNOUNCE = "announce"
    CEASE = "cease"


@dataclass(frozen=True, slots=True)
class OwnNode:
    """wish, fact, told: as on the Node. ready: what would be told now, None when not all is on the disk."""

    requested: bool
    active: bool
    told: str | None
    ready: str | None


def own_step(node: OwnNode) -> OwnStep:
    """Only `leave`, on a Node with neither label, makes an agent take anything away."""
    if is_dismissed(node.requested, node.active, node.told):
        return OwnStep.CEASE
    if node.ready is not None:
        return OwnStep.NOTHING if node.told == node.ready else OwnStep.ANNOUNCE
    return OwnStep.BECOME if node.requested else OwnStep.NOTHING


def is_dismissed(requested: bool, active: bool, told: str | None) -> bool:  # three facts of one Node
    return told == LEAVE and not requested and not active


def labels_and_told(metadata: Mapping[str, object], requested: str, active: str) -> tuple[bool, bool, str | None]:
    """(wish, fact, told) of a Node's metadata."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if not isinstance(labels, Mapping) or not isinstance(annotations, Mapping):
        return False, False, None
    told = annotations.get(ANNOTATION)
    return requested in labels, active in labels, told if isinstance(told, str) else None
