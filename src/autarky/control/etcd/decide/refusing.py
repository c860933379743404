"""What a recovery must not do: begin a second etcd beside one that serves, or go on with what is of another time. Pure.

Invariants:
- an etcd is lost only if no member at any address that is known reads by its quorum (rule 2);
- a new one begins only where each member that serves can be fenced: two etcds would both acknowledge writes, and what
  one of them has acknowledged would be lost;
- a recovery that was cut is taken up by itself only where that cannot surprise: its data is in its place already and
  no other etcd serves, or no etcd serves and the very same thing was asked for. It began with what was known then;
- nothing is taken up that a later recovery has replaced: it would begin with revisions that were used already.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Voter:
    """In the list of the quorum. name: empty until it has started for the first time. address: of its node."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the member at one address. name: of its node, or the address. leads: whether it knows a leader, which it
    forgets without a quorum. reads: whether a read by its quorum succeeded."""

    name: str
    address: str
    cluster: int
    leads: bool = False
    reads: bool = False

    @property
    def serves(self) -> bool:
        return self.leads or self.reads


# --- members that cannot be fenced ----------------------------------------------------------------------------------


def cannot_be_fenced(answers: Sequence[Answer], voters: Sequence[Voter], hosts: Collection[str]) -> list[str]:
    """The members that serve and whose hosts do not answer, as "NAME (ADDRESS)". voters: of the etcd that reads; empty
    where none does. hosts: the addresses of those that answer."""
    outside = {one.address: one.name for one in answers if one.serves and one.address not in hosts}
    inside = {one.address for one in answers if one.address in hosts and one.serves}
    voting = {one.address for one in voters}
    if voting and 2 * len(voting & (inside | outside.keys())) <= len(voting):
        # It has a quorum, and fewer than that have answered to us: others of them serve, of which nobody sees any.
        outside |= {one.address: one.name or one.address for one in voters if one.address not in {*hosts, *outside}}
    return sorted(f"{name} ({address})" for address, name in outside.items())


# --- a recovery that was cut ----------------------------------------------------------------------------------------


class Then(Enum):
    """What becomes of a recovery that was cut and whose data is complete."""

    RESUME = "it is finished"
    AGAIN = "the same begins from scratch, with what is known now"
    REFUSE = "a person says what becomes of it"
    IGNORE = "a later recovery has replaced it"
    OTHER_SERVES = "another etcd serves: only one of the two may go on"


@dataclass(frozen=True, slots=True)
class Begun:
    """The recovery that was cut. same: whether the very same thing is asked for. replaced: whether a later recovery has
    ended since. own: the id of the cluster of the data on its seat, None where that is not known."""

    placed: bool
    same: bool
    replaced: bool
    own: int | None


def then(begun: Begun, serving: Set[int]) -> Then:
    """serving: the ids of the etcds that read by their quorum."""
    if begun.placed:
        return Then.RESUME if serving <= {begun.own} else Then.OTHER_SERVES
    if begun.replaced:
        return Then.IGNORE
    if not begun.same:
        return Then.REFUSE
    return Then.AGAIN if serving else Then.RESUME


# --- a recovery that is taken back ------------------------------------------------------------------------------------

LONGEST_AGO = 24 * 3600.0
"""Seconds: an older one is taken back only by its date."""


def why_not_back(at: str, seconds_ago: float | None, *, is_undo: bool, again: bool, made: str | None) -> str:
    """Why the last recovery is not taken back, as a sentence; empty where it is. at: when it was made. seconds_ago:
    None where that cannot be understood. is_undo: whether it has itself taken one back. again, made: what a person has
    said."""
    if made is not None and made != at:
        return f"the last recovery is that of {at}, and none of {made}"
    if is_undo and not again:
        return (
            f"the last recovery, of {at}, has taken one back: that would be done again, and what was written since lost"
        )
    if made is None and (seconds_ago is None or seconds_ago > LONGEST_AGO):
        return f"the last recovery is that of {at}: more than a day of what was written since would be lost"
    return ""
