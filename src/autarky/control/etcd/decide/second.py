"""A second member on the node of the only one, while that is changed. Pure.

A single member cannot stop without an outage, so another one stands in for it (design: two slots): a second member on
the same node, with ports and a directory of its own and the new template, joins and gets the vote; the first one leaves
and joins again with the new template; the second one leaves. What joins and leaves, and in which order, is left to
`membership`: here it is only said which of the two should be there.

Invariants:
- the first one is asked to leave only when the second one votes and serves, and the second one only when the first one
  votes and serves (rule 1);
- what is not seen to serve changes nothing (rule 2); nothing here depends on memory (rule 5);
- where the new template is known to fail, the first one stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autarky.model.etcd_members import SECOND_SUFFIX, Desired, Member, second


@dataclass(frozen=True, slots=True)
class Reported:
    """What the EtcdMember says of the second member on its node. reported, disconnected: as of `Desired`."""

    reported: bool = False
    disconnected: int | None = None


def with_second(
    desired: Sequence[Desired], members: Sequence[Member], noted: Mapping[str, Reported]
) -> tuple[Desired, ...]:
    """The desired members, with second ones where there should be one or there is one. noted: by name of the node."""
    at = {member.address: member for member in members}
    found: list[Desired] = []
    for spec in desired:
        found += _both(spec, desired, at, noted.get(spec.name, Reported()))
    return tuple(found)


def _both(spec: Desired, desired: Sequence[Desired], at: Mapping[str, Member], noted: Reported) -> list[Desired]:
    first, other = at.get(spec.address), at.get(second(spec.address))
    changes = _is_alone(spec, desired, at) and spec.should_change and _votes(first)
    if other is None and not changes:
        return [spec]
    if changes:
        stays, present = not _serves(other), True
    else:
        stays, present = spec.present, not (_serves(first) and spec.present)
    beside = Desired(
        f"{spec.name}{SECOND_SUFFIX}",
        second(spec.address),
        present=present,
        reported=noted.reported,
        disconnected=noted.disconnected,
        revision=spec.revision,
    )
    return [replace(spec, present=stays), beside]


def _is_alone(spec: Desired, desired: Sequence[Desired], at: Mapping[str, Member]) -> bool:
    """Whether etcd has, and should have, no other voter than those of this node."""
    own = (spec.address, second(spec.address))
    others = [member for member in at.values() if member.address not in own]
    return [one.name for one in desired if one.present] == [spec.name] and not others


def _votes(member: Member | None) -> bool:
    return member is not None and not member.learner


def _serves(member: Member | None) -> bool:
    return member is not None and not member.learner and member.serves is True
