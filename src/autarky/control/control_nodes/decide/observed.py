"""What is observed of a Node and recorded of it, while labels make control nodes and workers. Pure.

Three things on a Node show how far it is:
- the requested label, which users set and remove (kubelets may not: NodeRestriction);
- the active label, which only the operator (or `up`) sets: workloads select it;
- what its agent reports (an annotation): `ready-HASH` when everything that a control node needs is on its disk,
  `joining: …` on the way there, no annotation on a worker. The operator writes `leave` in its place. Only that makes an
  agent remove a control node's parts: a missing label may just mean that the Node object was deleted and created again.
  (What is unfinished on its disk is not in use yet, or not any more: there the missing label is enough.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

ANNOTATION = "autarky.dev/control-node"
READY = "ready-"
"""Prefix of the annotation of a node that has everything; a hash of what it has follows."""
JOINING = "joining: "
"""Prefix while its agent prepares the node; a sentence follows."""
LEAVE = "leave"


class Member(Enum):
    """Of a node's etcd member. NONE: it has none (any more). UNMANAGED: no EtcdMember describes it."""

    NONE = "none"
    THERE = "there"
    UNMANAGED = "unmanaged"
    UNKNOWN = "unknown"

    @property
    def exists(self) -> bool:
        return self in (Member.THERE, Member.UNMANAGED)


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


@dataclass(frozen=True, slots=True)
class Node:
    """One Node object as observed.

    reported: the annotation, None where there is none. ready: None when unknown. fits: whether the join inventory has
    its address, None when that is not known. recorded: None when there is no record under this name. obstacle: why it
    does not count as serving, None when it was seen to serve.
    """

    name: str
    uid: str
    requested: bool
    active: bool
    reported: str | None = None
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
        return self.reported is not None and self.reported.startswith(READY)

    @property
    def stays(self) -> bool:
        """Whether it is a control node with everything, and should remain one."""
        return self.requested and self.active and self.is_ready_to_serve

    @property
    def is_to_go(self) -> bool:
        """Whether it has, or may have, parts of a control node, and should not be one."""
        return not self.requested and self.recorded is not None


@dataclass(frozen=True, slots=True)
class Situation:
    """One node, as the operator decides on it. others: those that stay control nodes. unfit: why no node can become
    one now; empty when one can. someone_leaves: whether another one leaves just now."""

    node: Node
    others: tuple[Node, ...]
    unfit: str = ""
    someone_leaves: bool = False

    @property
    def is_dismissed(self) -> bool:
        return self.node.recorded is not None and self.node.recorded.state is State.DISMISSED

    @property
    def was_made(self) -> bool:
        """Whether it has become a control node, and was not dismissed; its Node may be another one by now."""
        return self.node.recorded is not None and self.node.recorded.state is State.MADE

    @property
    def has_begun(self) -> bool:
        """Whether it was ever a control node, as far as is recorded."""
        return self.node.recorded is not None and self.node.recorded.state is not State.JOINING

    @property
    def is_new(self) -> bool:
        """Whether its Node was created again since it became a control node."""
        recorded = self.node.recorded
        return recorded is not None and recorded.uid != self.node.uid and not self.is_dismissed

    @property
    def is_this_node(self) -> bool:
        return self.node.recorded is not None and self.node.recorded.uid == self.node.uid

    @property
    def others_serve(self) -> bool:
        return any(one.ready and one.obstacle is None for one in self.others)


@dataclass(frozen=True, slots=True)
class OwnNode:
    """A node as its own agent sees it. requested, active, reported: as on the Node. ready: what to report now, None
    when the disk does not have all. unfinished: whether its disk says that the parts are being made, or removed."""

    requested: bool
    active: bool
    reported: str | None
    ready: str | None
    unfinished: bool = False

    @property
    def is_labelled(self) -> bool:
        return self.requested or self.active

    @property
    def is_dismissed(self) -> bool:
        return self.reported == LEAVE and not self.is_labelled


def labels_and_report(metadata: Mapping[str, object], requested: str, active: str) -> tuple[bool, bool, str | None]:
    """(requested, active, reported) of a Node's metadata."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if not isinstance(labels, Mapping) or not isinstance(annotations, Mapping):
        return False, False, None
    reported = annotations.get(ANNOTATION)
    return requested in labels, active in labels, reported if isinstance(reported, str) else None
