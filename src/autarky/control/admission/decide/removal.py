"""Whether a node may be removed from the cluster.

Contract: pure. `refuse` says which safety rule forbids it, what was seen and how to continue; None where none does.
What is not known to be healthy counts as down: a removal can wait, a lost quorum cannot be undone.

Invariant: after a removal that was not refused, a control node that was seen to serve is left, and those of etcd's
remaining members that were healthy are a majority.
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
    """node: the one to be removed. control_nodes: all that are control nodes or will be. members: etcd's voting
    members, and whether each was seen to be healthy. answers: whether its machine has just answered; dead: whether the
    user says that the machine is gone; renewed: whether its lease is being renewed; worker: whether it is no control
    node, was none and becomes none."""

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
    """others: the control nodes that stay → why each is not considered to serve; None where it was seen to, by its own
    API servers, recently and for a while (`seen_to_serve`)."""
    if None in others.values():
        return None
    seen = "; ".join(f"{name}: {obstacle}" for name, obstacle in sorted(others.items()))
    what = f"without node {node} no control node is left that was seen to serve ({seen or 'there is no other one'})"
    return Refusal(SERVES, what, "bring their API servers back first: autarky doctor")


def _life(seen: Seen) -> Refusal | None:
    if seen.dead and (seen.answers or (seen.renewed and not _holds_nothing_up(seen))):
        what = f"node {seen.node} was declared dead, but something answers in its name"
        return Refusal(UNKNOWN_IS_NOT_DOWN, what, f"autarky node remove {seen.node}, or power that machine off first")
    if not seen.dead and not seen.answers:
        what = f"the host of node {seen.node} does not answer"
        go_on = f"power it on; or, if it is gone permanently: autarky node remove {seen.node} --dead"
        return Refusal(UNKNOWN_IS_NOT_DOWN, what, go_on)
    return None


def _holds_nothing_up(seen: Seen) -> bool:
    """A worker has no vote. Anybody with its certificate can renew its lease from anywhere, and would keep it in the
    cluster as long as that counted as a sign of life."""
    return seen.worker and seen.node not in seen.control_nodes and seen.node not in seen.members


def _last(seen: Seen) -> Refusal | None:
    if seen.control_nodes == {seen.node}:
        what = f"node {seen.node} is the only control node"
        return Refusal(LAST_CONTROL_NODE, what, "add another control node first; or remove the cluster: autarky down")
    return None


def _quorum(seen: Seen) -> Refusal | None:
    """The present members have to agree to the removal, and the remaining ones need a quorum."""
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
    """How many of that many members must agree."""
    return members // 2 + 1
