"""Which member's data a new etcd is made from. Pure.

Invariants:
- of members of one cluster it is the one with the latest log, by Raft's own order: whatever a majority of those that
  can be read acknowledged is in it;
- a log with a damaged record ends before it, whatever was acknowledged behind: another one is taken if that is no older
  than what can be read of it, and else a person chooses;
- data of an etcd that a later recovery has replaced is never chosen, also not by a person: its successor has
  acknowledged writes since;
- data of different clusters is never compared: their logs say nothing about each other. Then a person chooses;
- the choice of a person stands, and what it loses is reported;
- the new etcd begins far above every revision that any client may have seen, of whatever history: one that has seen a
  later one than there is waits for it (a kubelet: "Too large resource version"), and one that resumes a watch within
  what there is misses what happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BUMP = 1_000_000_000
"""Revisions between two histories: more than anybody writes in one (upstream's own figure for a restore)."""


@dataclass(frozen=True, slots=True)
class Log:
    """The end of one member's log, and the cluster that it belongs to. damaged: whether it ends at a damaged record;
    lost: how many entries are behind that."""

    node: str
    cluster: int
    term: int
    index: int
    damaged: bool = False
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """node: None where none can be chosen, for the reason in `sentence`; else that
    says what the data is. lost: how many entries others have beyond it,
    with the name of the one that has most."""

    node: str | None
    sentence: str
    lost: tuple[int, str] | None = None


def choose(logs: Sequence[Log], wanted: str | None = None, replaced: Mapping[int, str] | None = None) -> Choice:
    """replaced: the clusters that later recoveries have replaced → when."""
    old = {one.node: replaced[one.cluster] for one in logs if one.cluster in replaced} if replaced else {}
    logs = [one for one in logs if one.node not in old]
    if wanted in old:
        return Choice(None, f"the data of {wanted} is of an etcd that the recovery of {old[wanted]} has replaced")
    if wanted is not None:
        return _named(logs, wanted)
    if not logs:
        others = "".join(f"; that of {node} was replaced by the recovery of {at}" for node, at in sorted(old.items()))
        return Choice(None, f"no host that answers has data of etcd{others}")
    if len({one.cluster for one in logs}) > 1:
        whose = ", ".join(f"{one.node}: {one.cluster:x}" for one in sorted(logs, key=lambda one: one.node))
        return Choice(None, f"the hosts have data of different clusters of etcd ({whose})")
    intact = max((one for one in logs if not one.damaged), key=_order, default=None)
    damaged = [one for one in logs if one.damaged]
    if intact is None or any((one.term, one.index) > (intact.term, intact.index) for one in damaged):
        found = "; ".join(f"{one.node}: {_end_of(one)}" for one in sorted(logs, key=lambda one: one.node))
        return Choice(None, f"a log is damaged, and no other one has all that can be read of it ({found})")
    newest = f"the newest: entry {intact.index:,} of term {intact.term}"
    return Choice(intact.node, newest, _most(intact, [(one.index + one.lost, one.node) for one in damaged]))


def _named(logs: Sequence[Log], wanted: str) -> Choice:
    chosen = next((one for one in logs if one.node == wanted), None)
    if chosen is None:
        having = ", ".join(sorted(one.node for one in logs)) or "none"
        return Choice(None, f"{wanted} has no data of etcd that can be read; these have: {having}")
    ahead = [
        one for one in logs if one.cluster == chosen.cluster and (one.term, one.index) > (chosen.term, chosen.index)
    ]
    best = max(ahead, key=_order, default=None)
    lost = None if best is None else (max(0, best.index - chosen.index), best.node)
    return Choice(wanted, f"as asked: {_end_of(chosen)}", lost)


def _order(one: Log) -> tuple[int, int, str]:
    return one.term, one.index, one.node


def _most(chosen: Log, ends: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """What the others have had beyond it."""
    index, node = max(ends, default=(0, ""))
    return (index - chosen.index, node) if index > chosen.index else None


def _end_of(one: Log) -> str:
    end = f"entry {one.index:,} of term {one.term}"
    return f"{end}, where its log is damaged; {one.lost:,} entries from there on are lost" if one.damaged else end


def beginning(source: int, current: int | None, begun: Sequence[int]) -> int:
    """The revision with which the new etcd begins. source: of its data. current: of the etcd that it replaces, None
    where that does not answer. begun: with which earlier recoveries began, as far as that is known."""
    latest = [one + BUMP for one in begun] if current is None else [current]
    return max([source, *begun, *latest]) + BUMP
