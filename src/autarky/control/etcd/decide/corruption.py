"""Which member has lost the common content, once etcd has raised its alarm CORRUPT. Pure.

etcd's leader compares its keys with those of the others, and accuses who differs from itself; so it may accuse the
wrong one. Here all keys are compared once more, by a hash of them at one revision, and a member is guilty only by its
own content.

Invariants:
- rule 2: unknown is not corrupt. A member without a hash is never guilty, nor is one that differs from others which
  differ among themselves.
- a member is guilty only if etcd accuses it, at least two others, all that have answered, have one content, these are
  a quorum without it (rule 3), and its own content differs.
- the alarm of a member is never cleared while it is a member. That of one which was removed is, once at least two
  remain and all of them have one content.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

ENOUGH = 2
"""How many must agree: with two members, one word stands against another."""


@dataclass(frozen=True, slots=True)
class Content:
    """A hash of all keys at the revision that all were asked for, with their history since `compacted`."""

    hash: int
    compacted: int


@dataclass(frozen=True, slots=True)
class Voter:
    """content: None where the member did not answer."""

    id: int
    name: str
    leads: bool = False
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """guilty: the member that should be replaced. cleared: ids whose alarms may be cleared. why: a sentence; what to do
    where nothing is done."""

    why: str
    guilty: Voter | None = None
    cleared: tuple[int, ...] = ()


def judge(accused: Collection[int], voters: Sequence[Voter]) -> Verdict:
    """accused: the ids that the alarms name; 0 is nobody in particular. voters: all members that vote."""
    members = {voter.id for voter in voters}
    suspects = [voter for voter in voters if voter.id in accused]
    if not suspects:
        gone = tuple(sorted(one for one in accused if one and one not in members))
        return _after_removal(gone, voters) if gone else Verdict(f"etcd accuses no member: {_by_hand(voters)}")
    verdicts = [_judge(one, voters) for one in sorted(suspects, key=lambda voter: voter.id)]
    return next((verdict for verdict in verdicts if verdict.guilty is not None), verdicts[0])


def _judge(suspect: Voter, voters: Sequence[Voter]) -> Verdict:
    others = [voter for voter in voters if voter.id != suspect.id]
    asked = [voter for voter in others if voter.content is not None]
    if len(others) < ENOUGH:
        return _undecided(f"of {len(voters)} members nobody can tell which one is right", voters)
    if suspect.content is None or len(asked) < max(ENOUGH, len(others) // 2 + 1):
        silent = ", ".join(sorted(voter.name for voter in voters if voter.content is None))
        return _undecided(f"{silent} gives no hash of its keys, and unknown is not corrupt", voters)
    if len({voter.content for voter in asked}) > 1:
        return _undecided(f"the members other than {suspect.name} differ among themselves", voters)
    return _compared(suspect, suspect.content, asked, voters)


def _compared(suspect: Voter, own: Content, others: Sequence[Voter], voters: Sequence[Voter]) -> Verdict:
    """The others have one content."""
    [common] = {voter.content for voter in others}
    if common is None or own.compacted != common.compacted:
        return _undecided("the members were compacted to different revisions, and cannot be compared", voters)
    if own == common:
        return _undecided(f"{suspect.name} has the same keys as the others", voters)
    names = ", ".join(sorted(voter.name for voter in others))
    return Verdict(f"its keys differ from those of {names}, which agree", guilty=suspect)


def _after_removal(gone: tuple[int, ...], voters: Sequence[Voter]) -> Verdict:
    """The accused is not a member any more."""
    if len(voters) < ENOUGH:
        return Verdict(f"the accused member was removed, and {len(voters)} is left: {_by_hand(voters)}")
    if any(voter.content is None for voter in voters) or len({voter.content for voter in voters}) > 1:
        return Verdict(f"the accused member was removed, and the others do not agree: {_by_hand(voters)}")
    return Verdict("the accused member was removed, and all others have the same keys", cleared=gone)


def _undecided(reason: str, voters: Sequence[Voter]) -> Verdict:
    return Verdict(f"{reason}: {_by_hand(voters)}")


def _by_hand(voters: Sequence[Voter]) -> str:
    """The API cannot be written meanwhile, so it is etcd itself that a person has to tell."""
    shown = "; ".join(f"{one.name} ({one.id:x}): {_shown(one.content)}" for one in voters)
    return (
        f"no member is removed. Hashes of the keys: {shown}. Remove the wrong one (`etcdctl member remove ID`), then"
        " `autarky etcd alarm --disarm`"
    )


def _shown(content: Content | None) -> str:
    return "none" if content is None else f"{content.hash:08x}"
