"""What makes a control node of a worker, and a worker of a control node, as one table: who acts, when, what is written,
and what follows. Pure.

For each node the first row that applies is its next step (`roles.decide`, `roles.own_row`). The operator and the
agent carry out the writes of a row in their order; the status and the events say its sentence; the table in
docs/control-nodes.md is this one, word for word.

Contract: a step may be interrupted after any of its writes, and doing it again is harmless: what stands for the others
is written first, and deleted last.

- The active label is never removed from the last control node, nor while no other one was seen to serve, for a while
  and lately (`serving`), by its own API servers: a Node can be Ready through another node's (rules 2, 10).
- Nothing is removed before the node's etcd member is known to be gone, or never to have existed (rule 3): REMOVE_MEMBER
  is the only step by which a member leaves because of its node, and `control.etcd.decide.wanted` follows it.
- One node leaves at a time.
- A recorded control node whose Node was deleted and created again gets its labels back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from autarky.control.control_nodes.decide.observed import (
    JOINING,
    LEAVE,
    Member,
    Node,
    OwnNode,
    Situation,
)


class Step(Enum):
    """What the operator does next for a node. REMOVE_MEMBER: its etcd member should leave (its EtcdMember follows).
    DISMISS: it stops being a control node. FORGET: it is a worker again."""

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


class OwnStep(Enum):
    """What a node's agent does next. ANNOUNCE: report `ready-HASH`."""

    NOTHING = "nothing"
    BECOME = "become"
    ANNOUNCE = "announce"
    CEASE = "cease"


S = TypeVar("S")
T = TypeVar("T", Step, OwnStep)


class Write(Enum):
    """What is written, in the words of the document."""

    RECORD_JOINING = "records the node, as joining if it is new"
    RECORD_CONTROL_NODE = "records the node as a control node"
    RECORD_DISMISSED = "records the node as dismissed"
    GRANT_READING = "lets its agent read the workloads' templates, what they name, the CA keys, and leases of level 3"
    GRANT_LEASES = "lets its agent read the leases of level 3"
    REVOKE_READING = "revokes what a node may read only while it joins"
    REVOKE_ALL = "revokes all that it granted"
    SET_REQUESTED = "sets the requested label"
    SET_ACTIVE = "sets the active label"
    SAY_LEAVE = "removes the active label and writes `leave`, in one write"
    LET_MEMBER_LEAVE = "lets its etcd member leave"
    END_PODS = "ends pods that need a control node, one at a time"
    FORGET = "deletes the record"
    EXPLAIN = "says why, by an event"

    REPORT = "reports `ready-…`"
    STANDBYS = "writes complete standbys"
    KEYS = "fetches the CA keys and signs its certificates"
    BALANCE_AS_CONTROL_NODE = "makes the load balancer that of a control node"
    USE_STANDBYS = "makes the standbys current"
    BALANCE_AS_WORKER = "when nothing of the control plane listens any more, makes the load balancer that of a worker"
    REMOVE_PARTS = "removes standbys, the standby agent, keys and certificates"
    REPORT_NOTHING = "removes its report"


class Actor(Enum):
    OPERATOR = "the operator"
    AGENT = "its node agent"


@dataclass(frozen=True, slots=True)
class Row(Generic[S, T]):
    """One of the operator's, or of the node agent's. step: what is done where `applies`, which `when` says in words.
    says: the sentence of the status; writes: in this order; then: what follows, in words."""

    step: T
    when: str
    applies: Callable[[S], bool]
    says: Callable[[S], str] | str = ""
    writes: tuple[Write, ...] = ()
    then: str = ""

    @property
    def does(self) -> str:
        """In the words of the document."""
        nothing = "waits" if self.step is Step.WAIT else "nothing"
        return "; ".join(write.value for write in self.writes) or nothing

    def sentence(self, seen: S) -> str:
        return self.says if isinstance(self.says, str) else self.says(seen)


@dataclass(frozen=True, slots=True)
class Decision:
    """Of the operator, on one node. writes: what carries it out, in this order."""

    step: Step
    sentence: str
    writes: tuple[Write, ...] = field(default=(), compare=False)


def table() -> str:
    """All rows, as the document shows them."""
    return "\n\n".join(
        (
            _part("With the requested label", Actor.OPERATOR, (*BECOMES, *STAYS)),
            _part("Without it", Actor.OPERATOR, LEAVES),
            _part("On the node itself", Actor.AGENT, OWN),
        )
    )


def _part(title: str, actor: Actor, rows_of_it: tuple[Row[S, T], ...]) -> str:
    lines = [f"**{title}**", "", "| who | when | what it does, in this order | then |", "|---|---|---|---|"]
    lines += [f"| {actor.value} | {row.when} | {row.does} | {row.then} |" for row in rows_of_it]
    return "\n".join(line.replace("|  |", "| |") for line in lines)


def first(rows: tuple[Row[S, T], ...], seen: S) -> Row[S, T]:
    """The row that applies; the last of each table always does."""
    return next(row for row in rows if row.applies(seen))


# --- sentences ---------------------------------------------------------------------------------------


def _what_the_agent_does(seen: Situation) -> str:
    reported = seen.node.reported or ""
    if not reported.startswith(JOINING):
        return "its agent prepares it"
    return f"its agent reports: {reported.removeprefix(JOINING)}"


def _who_does_not_serve(seen: Situation) -> str:
    others = sorted(seen.others, key=lambda one: one.name)
    what = "; ".join(f"{one.name}: {_why_not(one)}" for one in others)
    return f"no other control node has been seen to serve, for a while and lately: {what}"


def _why_not(node: Node) -> str:
    return "its Node is not known to be Ready" if not node.ready else node.obstacle or ""


# --- the operator's side -----------------------------------------------------------------------------


def _row(
    step: Step,
    when: str,
    applies: Callable[[Situation], bool],
    says: Callable[[Situation], str] | str,
    *writes: Write,
    then: str = "",
) -> Row[Situation, Step]:
    return Row(step, when, applies, says, writes, then)


_GRANTS = (Write.RECORD_JOINING, Write.GRANT_READING)

STAYS = (
    _row(
        Step.REMEMBER,
        "both labels are there, and it is not recorded",
        lambda seen: not seen.node.is_recorded,
        "it is a control node",
        Write.RECORD_CONTROL_NODE,
    ),
    _row(
        Step.GRANT,
        "both labels are there, and its agent reports that something is missing",
        lambda seen: seen.node.reported is not None and not seen.node.is_ready_to_serve,
        _what_the_agent_does,
        *_GRANTS,
        then="its agent completes it",
    ),
    _row(
        Step.NOTHING,
        "both labels are there",
        lambda _seen: True,
        "it is a control node",
        Write.REVOKE_READING,
    ),
)
"""Both labels are there."""

BECOMES = (
    _row(
        Step.WAIT,
        "the requested label is there, and its address is not known",
        lambda seen: seen.node.fits is None,
        "its address is not known yet",
    ),
    _row(
        Step.REFUSE,
        "the requested label is there, and the join inventory has another address",
        lambda seen: not seen.node.fits,
        "its address is not the one in the join inventory",
        Write.EXPLAIN,
        then="it stays a worker",
    ),
    _row(
        Step.MARK,
        "the requested label is there, its agent reports `ready-…`, and no hosted level is missing or it is recorded as"
        " a control node",
        lambda seen: seen.node.is_ready_to_serve and (seen.was_made or not seen.unfit),
        "it has everything that a control node needs, and becomes one",
        *(Write.RECORD_CONTROL_NODE, Write.GRANT_LEASES, Write.SET_ACTIVE),
        then="hosted components start there, all load balancers use its API server, its etcd member joins",
    ),
    _row(
        Step.REFUSE,
        "the requested label is there, and a hosted level is missing (`selfHosted` 3-4 or 4)",
        lambda seen: bool(seen.unfit),
        lambda seen: seen.unfit,
        Write.EXPLAIN,
        then="it stays a worker",
    ),
    _row(
        Step.GRANT,
        "the requested label is there",
        lambda _seen: True,
        _what_the_agent_does,
        *_GRANTS,
        then="its agent prepares it",
    ),
)
"""The requested label is there, the active one is not."""

LEAVES = (
    _row(
        Step.NOTHING,
        "it is not recorded, and carries the active label",
        lambda seen: seen.node.recorded is None and seen.node.active,
        "autarky has no record of it",
        Write.REVOKE_READING,
    ),
    _row(
        Step.NOTHING,
        "it is not recorded",
        lambda seen: seen.node.recorded is None,
        "it is a worker",
    ),
    _row(
        Step.REMEMBER,
        "its Node was created again, and carries the active label",
        lambda seen: seen.is_new and seen.node.active,
        "its Node was created again",
        Write.RECORD_CONTROL_NODE,
    ),
    _row(
        Step.RESTORE,
        "its Node was created again",
        lambda seen: seen.is_new,
        "the Node of a control node was created again: its label is restored",
        Write.SET_REQUESTED,
        then="it becomes a control node again",
    ),
    _row(
        Step.WAIT,
        "it is dismissed, and the Node says `leave`",
        lambda seen: seen.is_dismissed and seen.is_this_node and not seen.node.active and seen.node.reported == LEAVE,
        "its agent is removing the parts of a control node",
        Write.END_PODS,
    ),
    _row(
        Step.FORGET,
        "it is dismissed, and its agent has removed its report",
        lambda seen: seen.is_dismissed and seen.is_this_node and not seen.node.active and seen.node.reported is None,
        "it is a worker again",
        *(Write.REVOKE_ALL, Write.FORGET),
    ),
    _row(
        Step.REFUSE,
        "it is the last control node",
        lambda seen: not seen.others and seen.node.active,
        "no control node would be left: it stays one",
        Write.EXPLAIN,
    ),
    _row(
        Step.RESTORE,
        "it was the last control node, and has lost both labels",
        lambda seen: not seen.others and seen.has_begun,
        "no control node would be left: its label is restored",
        Write.SET_REQUESTED,
    ),
    _row(
        Step.WAIT,
        "another control node is leaving",
        lambda seen: seen.someone_leaves,
        "another control node leaves first",
    ),
    _row(
        Step.WAIT,
        "no other control node was seen to serve, for a while and lately",
        lambda seen: bool(seen.others) and not seen.others_serve,
        _who_does_not_serve,
    ),
    _row(
        Step.WAIT,
        "it is not known whether it has an etcd member",
        lambda seen: seen.node.member is Member.UNKNOWN,
        "it is not known whether it has an etcd member",
    ),
    _row(
        Step.REFUSE,
        "it has an etcd member that no EtcdMember describes (`selfHosted` 2-4 or higher)",
        lambda seen: seen.node.member is Member.UNMANAGED,
        "it has an etcd member that no EtcdMember describes: it stays a control node",
        Write.EXPLAIN,
    ),
    _row(
        Step.REMOVE_MEMBER,
        "it has an etcd member",
        lambda seen: seen.node.member is Member.THERE,
        "its etcd member leaves first",
        Write.LET_MEMBER_LEAVE,
        then="the member leaves in safe order; until then the node stays a control node",
    ),
    _row(
        Step.DISMISS,
        "none of these",
        lambda _seen: True,
        "it should not be a control node any more",
        *(Write.RECORD_DISMISSED, Write.REVOKE_READING, Write.SAY_LEAVE),
        then="its API server drains and stops, load balancers follow",
    ),
)
"""The requested label is not there."""


def rows(node: Node) -> tuple[Row[Situation, Step], ...]:
    """The part of the operator's table that is for such a node."""
    if not node.requested:
        return LEAVES
    return STAYS if node.active else BECOMES


# --- the node's own side -----------------------------------------------------------------------------------


def _own(
    step: OwnStep, when: str, applies: Callable[[OwnNode], bool], *writes: Write, then: str = ""
) -> Row[OwnNode, OwnStep]:
    return Row(step, when, applies, "", writes, then)


_CEASES = (Write.BALANCE_AS_WORKER, Write.REMOVE_PARTS, Write.REPORT_NOTHING)

OWN = (
    _own(
        OwnStep.CEASE,
        "the Node says `leave`, and has neither label",
        lambda node: node.is_dismissed,
        *_CEASES,
        then="the operator forgets it",
    ),
    _own(
        OwnStep.CEASE,
        "its disk says that the parts are being made or removed (`joining`, `prepared`, `ceasing`), and the Node has"
        " neither label",
        lambda node: node.unfinished and not node.is_labelled,
        *_CEASES,
        then="it is a worker",
    ),
    _own(
        OwnStep.NOTHING,
        "its disk has everything, and the Node says so",
        lambda node: node.ready is not None and node.reported == node.ready,
    ),
    _own(
        OwnStep.ANNOUNCE,
        "its disk has everything",
        lambda node: node.ready is not None,
        Write.REPORT,
        then="the operator sets the active label",
    ),
    _own(
        OwnStep.BECOME,
        "the requested label is there",
        lambda node: node.requested,
        *(Write.STANDBYS, Write.KEYS, Write.BALANCE_AS_CONTROL_NODE, Write.USE_STANDBYS, Write.REPORT),
        then="the operator sets the active label; until then the node reports what is missing, `joining: …`",
    ),
    _own(OwnStep.NOTHING, "none of these", lambda _node: True),
)
"""Where a label is there, an agent removes nothing. Where none is, only `leave` makes it remove what is in use; what is
unfinished goes without: a request that was withdrawn may never have been recorded, and of a node that has ceased a
power cut may bring parts back that nobody remembers."""
