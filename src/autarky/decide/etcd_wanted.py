"""Which nodes are to have a member of etcd, and when an EtcdMember's wish is to be written. Pure.

Contract: the operator's own idea of a node (Member or Removed) is remembered on the object, and reaches
`spec.state` only when that idea itself has changed: what a user sets there stands (design §10). A node that is not
seen, or that the operator has not made a control node, is left alone: absence means nothing (rule 10).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autarky.decide.etcd_members import MOST_MEMBERS


@dataclass(frozen=True, slots=True)
class ControlNode:
    """A Node that carries the fact label. wished: whether it carries the user's label too."""

    name: str
    address: str
    wished: bool


@dataclass(frozen=True, slots=True)
class Existing:
    """An EtcdMember. idea: what the operator wanted of it last; None where nobody wrote that down. gone: its status
    says Removed."""

    name: str
    present: bool
    idea: bool | None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """present: the new spec.state, or None where it stays."""

    name: str
    idea: bool
    present: bool | None
    address: str = ""
    create: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """forget: EtcdMembers that have done their work and whose node is no control node (any more)."""

    writes: tuple[Write, ...]
    forget: tuple[str, ...]


def wanted(nodes: Sequence[ControlNode], objects: Sequence[Existing], chosen: Collection[str] | None) -> Wanted:
    """chosen: the names that ControlPlane.spec.etcd.members lists; None: every control node, at most MOST_MEMBERS."""
    known = {existing.name: existing for existing in objects}
    members = _members(nodes, known, chosen)
    writes = []
    for node in sorted(nodes, key=lambda one: one.name):
        existing, idea = known.get(node.name), node.name in members
        if existing is None and idea:
            writes.append(Write(node.name, idea=True, present=True, address=node.address, create=True))
        elif existing is not None and existing.idea != idea:
            writes.append(Write(node.name, idea, idea if existing.present != idea else None))
    control = {node.name for node in nodes}
    done = [e.name for e in objects if not e.present and e.gone and e.name not in control]
    return Wanted(tuple(writes), tuple(sorted(done)))


def _members(
    nodes: Sequence[ControlNode], known: Mapping[str, Existing], chosen: Collection[str] | None
) -> frozenset[str]:
    """Those that are members by now stay; the free places go by name."""
    able = sorted(node.name for node in nodes if node.wished)
    if chosen is not None:
        return frozenset(name for name in able if name in chosen)
    stay = [name for name in able if name in known and known[name].idea is not False]
    free = [name for name in able if name not in stay]
    return frozenset((stay + free)[:MOST_MEMBERS])


def even_count(members: Collection[str]) -> str | None:
    """A warning where one member more or less would be better."""
    count = len(members)
    if count == 0 or count % 2:
        return None
    survives = (count - 1) // 2
    return (
        f"etcd is to have {count} members ({', '.join(sorted(members))}): they survive the loss of {survives}, as"
        f" {count - 1} would; add or remove one"
    )


def guard_budget(members: int) -> int:
    """How many of so many members may be away at once; 0 where there is nothing to guard."""
    return (members - 1) // 2
