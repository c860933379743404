"""A recovery that was cut: whether it is finished, begins from scratch, or waits for a person.

Contract: it only looks. What was made then fits what was known then: weeks later, over an etcd that serves, it would
take away everything written since. So nothing but its own command goes on with it by itself (`decide.refusing.then`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NoReturn

from autarky.control.etcd.decide.refusing import Begun, Then, then
from autarky.errors import Refused
from autarky.model.cluster import Level
from autarky.phases.context import Context
from autarky.phases.recovery.serving import ONE_ETCD, Quorum, Serving
from autarky.phases.recovery.state import (
    KINDS,
    OF_FORMER,
    Fence,
    Found,
    FromKept,
    FromMember,
    FromSnapshot,
    NotDone,
    Recovered,
    Recovery,
    Source,
)

ONLY_WITHOUT_QUORUM = "a new etcd is made from a member's data only when the old one is lost"
ABANDON = "autarky etcd recover-quorum --abandon"
UNDO = "autarky restore --undo"
OWN_COMMAND = "an interrupted recovery is finished by its own command"
DROP_FENCE = f"rm -f {' '.join(OF_FORMER)}"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A recovery whose data is complete on its seat, by its fence."""

    fence: Fence
    seat: Found

    @property
    def placed(self) -> bool:
        return self.fence.recovery in self.seat.placed

    @property
    def words(self) -> str:
        return f"a recovery {self.fence.made_of} was interrupted on {self.fence.at or 'an unknown date'}"


def interrupted(recovery: Recovery, trusted: Set[str]) -> Interrupted | None:
    """trusted: control nodes of the file, and whom a person has named: what only others say counts for nothing."""
    fences = _fences(recovery)
    known = {fence.recovery for name, fence in fences.items() if name in trusted}
    for fence in (fence for name, fence in sorted(fences.items(), key=lambda one: one[0] not in trusted)):
        seat = recovery.found.get(fence.seat)
        if seat is not None and fence.recovery in seat.made and (fence.seat in trusted or fence.recovery in known):
            return Interrupted(fence, seat)
    return None


def resume(recovery: Recovery, trusted: Set[str], serving: Serving) -> list[str]:
    """Take over an interrupted recovery, where that is right. Returns what is to be said of it; Refused."""
    found = interrupted(recovery, trusted)
    sentences = [_unknown_fence(name) for name in _others(recovery, trusted)]
    if found is None:
        _refuse_silent_seat(recovery, trusted)
        return sentences
    begun = Begun(
        found.placed,
        is_same(found.fence, recovery.source),
        is_replaced(found, [one.recovered for one in recovery.found.values() if one.recovered is not None]),
        None if found.seat.identity is None else found.seat.identity.cluster,
    )
    match then(begun, serving.clusters):
        case Then.RESUME:
            _take_over(recovery, found)
            sentences += _resumed(recovery)
        case Then.AGAIN:
            recovery.seat = found.fence.seat  # what was made there goes
            sentences.append(f"{found.words}: it begins from scratch, with what etcd says now")
        case Then.IGNORE:
            sentences.append(f"{found.words}, and a later one has replaced it: it is not resumed")
        case Then.REFUSE:
            go_on = f"run that command again to finish it, or `{ABANDON}`: the members that it has fenced run again"
            raise Refused(OWN_COMMAND, f"{found.words}, on {found.fence.seat}", go_on)
        case Then.OTHER_SERVES:
            raise Refused(ONE_ETCD, *_other_serves(found, serving))
    return sentences


def _take_over(recovery: Recovery, found: Interrupted) -> None:
    fence = found.fence
    recovery.id, recovery.seat, recovery.made_of = fence.recovery, fence.seat, fence.made_of
    recovery.begun, recovery.as_begun = fence.at or recovery.begun, kind_of(fence)
    recovery.made, recovery.placed = True, found.placed


def _other_serves(found: Interrupted, serving: Serving) -> tuple[str, str]:
    own, seat = None if found.seat.identity is None else found.seat.identity.cluster, found.fence.seat
    answers = [one for one in serving.answers if one.reads and one.cluster != own]
    others = ", ".join(sorted(f"{one.name} ({one.address})" for one in answers))
    seen = f"{found.words}, with its data in its place on {seat}, and another etcd serves on {others}"
    go_on = f"power off {others}, and run the same command again: what they have acknowledged since is lost"
    return seen, f"{go_on}; or keep that etcd: power off {seat}, and `autarky node remove {seat} --dead`"


def _refuse_silent_seat(recovery: Recovery, trusted: Set[str]) -> None:
    seats = {fence.seat for name, fence in _fences(recovery).items() if name in trusted}
    away = sorted(seats - recovery.found.keys())
    named = isinstance(recovery.source, FromMember) and recovery.source.node is not None
    if away and not named:
        names = ", ".join(sorted(recovery.found))
        raise Refused(
            ONE_ETCD,
            f"an interrupted recovery may have made a new etcd on {', '.join(away)}, which does not answer",
            f"power it on and run the same command again; if it is lost permanently, say --from NODE ({names})",
        )


# --- what a fence says ------------------------------------------------------------------------------------------------


def kind_of(noted: Fence | Recovered) -> str:
    """One of an older release says it by its clause."""
    if noted.kind:
        return noted.kind
    if noted.made_of.startswith("made of the data of "):
        return KINDS[FromMember]
    return KINDS[FromKept] if noted.made_of.startswith("made of what was there before ") else KINDS[FromSnapshot]


def is_same(fence: Fence, source: Source) -> bool:
    """Whether the very same thing was asked for."""
    kind = kind_of(fence)
    if isinstance(source, FromKept):
        return kind == KINDS[FromKept]
    if source.node not in (None, fence.seat):
        return False
    if isinstance(source, FromMember):
        return kind == KINDS[FromMember]
    return kind == KINDS[FromSnapshot] and fence.made_of == made_of(source)


def made_of(source: FromSnapshot) -> str:
    return f"made of {source.name}"


def is_replaced(found: Interrupted, recovered: Sequence[Recovered]) -> bool:
    """By a recovery that has ended since: it came later, or has replaced the etcd whose data the seat has."""
    own, at = found.seat.identity, found.fence.at
    return any((at and one.at > at) or (own is not None and own.cluster in one.replaced) for one in recovered)


def _fences(recovery: Recovery) -> dict[str, Fence]:
    return {one.node: one.fence for one in recovery.found.values() if one.fence is not None}


def _others(recovery: Recovery, trusted: Set[str]) -> list[str]:
    """The nodes whose fence nobody else knows."""
    fences = _fences(recovery)
    known = {fence.recovery for name, fence in fences.items() if name in trusted}
    found = sorted(name for name, fence in fences.items() if not {fence.seat, name} & trusted)
    return [name for name in found if fences[name].recovery not in known]


def _resumed(recovery: Recovery) -> list[str]:
    recovery.not_done = not_done = _not_done(recovery)
    found = [f"an interrupted recovery is resumed: the new etcd on {recovery.seat}, {recovery.made_of}"]
    if not_done is not None:
        found.append(f"{not_done.clause} by this run: give {not_done.command} again when it has ended")
    return found


def _not_done(recovery: Recovery) -> NotDone | None:
    """A member's data is asked for to have an etcd that serves, and any recovery ends with that."""
    source = recovery.source
    if isinstance(source, FromSnapshot) and recovery.made_of != made_of(source):
        return NotDone(f"{source.name} is not restored", "the command")
    if isinstance(source, FromKept) and recovery.kind != KINDS[FromKept]:
        return NotDone("nothing is taken back", f"`{UNDO}`")
    return None


def _unknown_fence(name: str) -> str:
    return f"{name} has the fence of a recovery that no control node of the cluster file knows: that one is not resumed"


# --- a fence beside an etcd that serves -------------------------------------------------------------------------------


def refuse_quorum(context: Context, recovery: Recovery, quorum: Quorum) -> NoReturn:
    usual = "see `autarky etcd status`; a member that is lost is replaced by `autarky node remove NODE --dead`"
    raise Refused(
        ONLY_WITHOUT_QUORUM,
        f"etcd has a quorum: {quorum.said_by} lists {', '.join(quorum.names)}",
        about_fences(context, recovery, quorum) or usual,
    )


def about_fences(context: Context, recovery: Recovery, quorum: Quorum) -> str:
    """How the fences go that a recovery has left, where etcd has a quorum; empty where there is none."""
    return "; ".join(_about(context, recovery, quorum))


def _about(context: Context, recovery: Recovery, quorum: Quorum) -> Iterator[str]:
    fenced = [one for one in recovery.found.values() if one.fence is not None]
    former = sorted(one.node for one in fenced if one.identity is not None and one.identity.cluster in quorum.former)
    others = sorted(one.node for one in fenced if one.node not in former)
    if others:
        yield f"run `{ABANDON}`: a recovery that was cut has left a fence on {', '.join(others)}"
    if not former:
        return
    left = f"a fence is left on {', '.join(former)}, whose data is of an etcd that this one has replaced"
    if context.cluster.hosts_level(Level.ETCD):
        yield f"{left}: after ten minutes its agent lets it join this one"
    else:
        yield f"{left}: remove it there with `{DROP_FENCE}`, and `autarky up` has it join this one"
