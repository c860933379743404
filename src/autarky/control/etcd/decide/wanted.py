"""Which nodes should have an etcd member, and when an EtcdMember's `spec.state` is written. Pure.

Contract: the operator's own intent for a node (Member or Removed) is remembered on the object, and is written to
`spec.state` only when that intent itself has changed: what a user sets there stands.

Invariants, whatever happens to all labels, lists and objects at once:
- a member is asked to leave because `control_nodes` decided that its node leaves, or because a list that names only
  control nodes does not name it. A label missing from a node that stays, a node that is not seen and an absent object
  ask for nothing (rules 2, 10);
- the next one is asked when etcd has confirmed the one before (rule 3), and never the last one that votes: one that
  should join may be on a machine that is off;
- a list with a name that is not a control node is refused entirely, and the previous list stays in force.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from autarky.control.control_nodes.decide.procedure import Step
from autarky.control.etcd.decide.membership import MOST_MEMBERS


class Standing(Enum):
    """STAYS: it is a control node and remains one. LEAVES: it should stop being one, and its member leaves first. HELD:
    whether it leaves is undecided: its member stays as it is."""

    STAYS = "stays"
    HELD = "held"
    LEAVES = "leaves"


@dataclass(frozen=True, slots=True)
class ControlNode:
    """A Node that carries the active label."""

    name: str
    address: str
    standing: Standing


@dataclass(frozen=True, slots=True)
class Existing:
    """An EtcdMember. idea: what the operator last wanted; None where that is not recorded. Its status says: gone: it is
    Removed; blocked: the request is refused; votes: it is a member and no longer a learner."""

    name: str
    present: bool
    idea: bool | None
    gone: bool = False
    blocked: bool = False
    votes: bool = True

    @property
    def is_asked_to_go(self) -> bool:
        """By the operator, and etcd has not confirmed it yet."""
        return self.idea is False and not self.present and not self.gone


@dataclass(frozen=True, slots=True)
class InForce:
    """The list of names in force; None: every control node, at most MOST_MEMBERS."""

    names: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Write:
    """present: the new spec.state, or None where it does not change."""

    name: str
    idea: bool
    present: bool | None
    address: str = ""
    create: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """forget: EtcdMembers that are done and whose node is not a control node (any more). in_force: None where no list
    was ever in force and the requested one is refused. refused: why it is refused; empty when it is not."""

    writes: tuple[Write, ...]
    forget: tuple[str, ...]
    in_force: InForce | None
    refused: str = ""


def standing(step: Step | None, *, requested: bool) -> Standing:
    """step: what was decided for the node just now; None where nothing was. requested: whether it carries the label."""
    if requested or step in (Step.REFUSE, Step.RESTORE):
        return Standing.STAYS
    return Standing.LEAVES if step is Step.REMOVE_MEMBER else Standing.HELD


def wanted(
    nodes: Sequence[ControlNode],
    objects: Sequence[Existing],
    asked: Collection[str] | None,
    before: InForce | None,
    unfinished: Collection[str] = (),
) -> Wanted:
    """asked: the names listed in ControlPlane.spec.etcd.members; None: every control node. before: what was in force
    until now; None where that is not known. unfinished: Nodes that are not known to be workers again. The agent there
    stops the member's process when etcd no longer lists it and the API answers, and may read EtcdMembers only while
    its node has one."""
    force, refused = _judged(nodes, asked, before)
    known = {existing.name: existing for existing in objects}
    members = _members(nodes, known, force) | _taken_back(nodes, objects)
    needed = {*(node.name for node in nodes), *unfinished}
    done = [e.name for e in objects if not e.present and e.gone and e.name not in needed]
    return Wanted(_writes(nodes, known, members), tuple(sorted(done)), force, refused)


# --- the list --------------------------------------------------------------------------------------


def _judged(
    nodes: Sequence[ControlNode], asked: Collection[str] | None, before: InForce | None
) -> tuple[InForce | None, str]:
    """What is in force now, and why the requested list is not. An accepted list stays accepted: nodes come and go."""
    if asked is None:
        return InForce(None), ""
    new = InForce(tuple(sorted(asked)))
    control = sorted(node.name for node in nodes)
    unknown = sorted(set(asked) - set(control))
    if new == before or not unknown:
        return new, ""
    what = "; ".join(_unknown(name, [one for one in control if one not in asked] or control) for name in unknown)
    return before, (
        f"spec.etcd.members is not followed: {what}; the control nodes are {', '.join(control) or 'not known'}."
        f" {_until_corrected(before)}"
    )


def _unknown(name: str, candidates: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    return f"{name} is no control node{f' (did you mean {near[0]}?)' if near else ''}"


def _until_corrected(before: InForce | None) -> str:
    if before is None:
        return "Until it is corrected, the members stay as they are"
    if before.names is None:
        return "Until it is corrected, every control node has a member, as before"
    return f"Until it is corrected, the previous list stays in force: {', '.join(before.names)}"


# --- which nodes should have a member --------------------------------------------------------------


def _members(nodes: Sequence[ControlNode], known: Mapping[str, Existing], force: InForce | None) -> frozenset[str]:
    """Existing members stay; free places are filled in the order of names."""
    there = {name for name, existing in known.items() if existing.idea is not False}
    stay = {node.name for node in nodes if node.standing is Standing.STAYS}
    kept = {node.name for node in nodes if node.standing is not Standing.LEAVES} & there
    if force is None:
        return frozenset(kept)
    if force.names is not None:
        return frozenset((stay | kept) & set(force.names))
    free = sorted(stay - kept)[: max(0, MOST_MEMBERS - len(kept))]
    return frozenset({*kept, *free})


def _taken_back(nodes: Sequence[ControlNode], objects: Sequence[Existing]) -> frozenset[str]:
    """If the removal of one is refused now, a node that leaves goes first: it may be the very one that is down, and
    the reason for the refusal. The other is asked to leave again later."""
    leaving = {node.name for node in nodes if node.standing is Standing.LEAVES}
    return frozenset(e.name for e in objects if e.is_asked_to_go and e.blocked and leaving - {e.name})


# --- what is written -------------------------------------------------------------------------------


def _writes(nodes: Sequence[ControlNode], known: Mapping[str, Existing], members: frozenset[str]) -> tuple[Write, ...]:
    """Of members that should leave only one: the one whose node leaves, else the first by name. One that leaves because
    of a list waits until all that the list names vote: otherwise names of machines that are off would cost etcd its
    redundancy."""
    writes = []
    busy = any(existing.is_asked_to_go for existing in known.values())
    left = {name for name, existing in known.items() if existing.present and existing.votes}
    all_vote = all(name in known and known[name].votes for name in members)
    for node in sorted(nodes, key=lambda one: (one.standing is not Standing.LEAVES, one.name)):
        write = _write(node, known.get(node.name), idea=node.name in members)
        if write is not None and write.present is False:
            for_a_list = node.standing is not Standing.LEAVES
            if busy or not left - {node.name} or (for_a_list and not all_vote):
                continue
            busy = True
        if write is not None:
            writes.append(write)
    return tuple(sorted(writes, key=lambda one: one.name))


def _write(node: ControlNode, existing: Existing | None, *, idea: bool) -> Write | None:
    if existing is None:
        if not idea and node.standing is not Standing.LEAVES:
            return None
        return Write(node.name, idea, idea, address=node.address, create=True)
    insists = node.standing is Standing.LEAVES and existing.present
    if existing.idea == idea and not insists:
        return None
    return Write(node.name, idea, idea if existing.present != idea else None)


def even_count(members: Collection[str]) -> str | None:
    """A warning if one member more or less would be better."""
    count = len(members)
    if count == 0 or count % 2:
        return None
    survives = (count - 1) // 2
    return (
        f"etcd should have {count} members ({', '.join(sorted(members))}): they survive the loss of {survives}, as"
        f" {count - 1} would; add or remove one"
    )


def guard_budget(members: int) -> int:
    """How many of this many members may be down at once; 0 where there is nothing to guard."""
    return (members - 1) // 2
