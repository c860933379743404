"""Whether a node may be taken out of the cluster.

Contract: pure. `refuse` says which safety rule forbids it, what was seen and what goes on; None where nothing does.
What is not known to be well counts as down: a removal can wait, a lost quorum cannot be taken back.

Invariant: after a removal that was not refused a control node is left, which was seen to serve, and of etcd's members
those that were healthy still are a majority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LAST_CONTROL_NODE = "the last control node stays"
SERVES = "the last control node that serves stays"
QUORUM = "etcd keeps its quorum"
UNKNOWN_IS_NOT_DOWN = "unknown is not down"


@dataclass(frozen=True, slots=True)
class Seen:
    """node: whose removal is asked for. control_nodes: all that are control nodes or will be. members: etcd's voting
    members, and whether each was seen to be healthy. answers: whether its machine was heard of just now; dead: whether
    the user says that the machine is gone; renewed: whether somebody renews its lease meanwhile; worker: whether it is
    no control node, was none and becomes none."""

    node: str
    control_nodes: frozenset[str]
    members: Mapping[str, bool]
    answers: bool
    dead: bool = False
    renewed: bool = False
    worker: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    rule: str
    seen: str
    go_on: str


def refuse(seen: Seen) -> Refusal | None:
    """See the module's contract. Of a control node, `refuse_unserved` has to be asked as well."""
    return _life(seen) or _last(seen) or _quorum(seen)


def refuse_unserved(node: str, others: Mapping[str, str | None]) -> Refusal | None:
    """others: the control nodes that stay, and what stands against it that each serves; None where it was seen to, by
    its own API servers, for a while and lately (`seen_to_serve`)."""
    if None in others.values():
        return None
    seen = "; ".join(f"{name}: {obstacle}" for name, obstacle in sorted(others.items()))
    what = f"without node {node} no control node is left that was seen to serve ({seen or 'there is no other one'})"
    return Refusal(SERVES, what, "bring their API servers back first: autarky doctor")


def _life(seen: Seen) -> Refusal | None:
    if seen.dead and (seen.answers or (seen.renewed and not _holds_nothing_up(seen))):
        what = f"node {seen.node} was said to be gone, and something answers in its name"
        return Refusal(UNKNOWN_IS_NOT_DOWN, what, f"autarky node remove {seen.node}, or power that machine off first")
    if not seen.dead and not seen.answers:
        what = f"the host of node {seen.node} does not answer"
        go_on = f"power it on; or, if it is gone for good: autarky node remove {seen.node} --dead"
        return Refusal(UNKNOWN_IS_NOT_DOWN, what, go_on)
    return None


def _holds_nothing_up(seen: Seen) -> bool:
    """A worker has no vote. Whoever has its certificate renews its lease from anywhere, and would keep it in the
    cluster for as long as that is taken for a sign of life."""
    return seen.worker and seen.node not in seen.control_nodes and seen.node not in seen.members


def _last(seen: Seen) -> Refusal | None:
    if seen.control_nodes == {seen.node}:
        what = f"node {seen.node} is the only control node"
        return Refusal(LAST_CONTROL_NODE, what, "add another control node first; or all of it: autarky down")
    return None


def _quorum(seen: Seen) -> Refusal | None:
    """The removal has to be agreed to by the members as they are, and those that are left must be able to go on."""
    if seen.node not in seen.members:
        return None
    left = {name: well for name, well in seen.members.items() if name != seen.node}
    healthy_now, healthy_then = sum(seen.members.values()), sum(left.values())
    down = ", ".join(sorted(name for name, well in left.items() if not well)) or "none"
    if healthy_now >= majority(len(seen.members)) and healthy_then >= majority(len(left)):
        return None
    what = (
        f"of {len(seen.members)} members {healthy_now} are healthy now; without {seen.node} it would be "
        f"{healthy_then} of {len(left)}, and {majority(len(left))} are needed; not healthy among them: {down}"
    )
    return Refusal(QUORUM, what, "bring those back first: autarky doctor")


def majority(members: int) -> int:
    """How many of so many members must agree."""
    return members // 2 + 1
