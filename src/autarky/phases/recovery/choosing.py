"""Choosing the member whose data a new etcd is made of, by the logs that were read on hosts."""

from __future__ import annotations

from collections.abc import Collection

from autarky import places
from autarky.control.etcd.decide import recovery as decision
from autarky.errors import Refused, UserError
from autarky.phases.recovery.state import Found, FromMember, Recovery, first_revision

ROOM = "the old data is kept beside the new"
SPARE = 256 * 1024 * 1024
"""Bytes that stay free: etcd's log takes 64 MB at a time."""


def choose_member(recovery: Recovery, source: FromMember) -> tuple[int, str] | None:
    """It becomes the seat. Returns how many entries others have beyond its data, and who has most; UserError."""
    refuse_unreadable(recovery, source.node)
    choice = decision.choose(_logs(recovery, source.node), source.node, replaced(recovery))
    if choice.node is None:
        others = [f"{one.node} has only {one.aside}" for one in _put_aside(recovery)]
        raise UserError("; ".join([choice.sentence, *others]), fix=_how_to_go_on(recovery))
    seat = recovery.found[choice.node]
    refuse_full_disk(seat, 2 * seat.size)
    recovery.seat, recovery.data = choice.node, seat.data
    what = "; ".join(filter(None, [seat.aside, choice.sentence]))
    recovery.made_of = f"made of the data of {choice.node} ({what})"
    first_revision(recovery, 0)
    return choice.lost


def _how_to_go_on(recovery: Recovery) -> str:
    old = replaced(recovery)
    found = [one for one in recovery.found.values() if one.identity and one.identity.cluster not in old]
    usable, put_aside = ([one.node for one in found if bool(one.aside) == aside] for aside in (False, True))
    if put_aside and not usable:
        return (
            f"say --from {' or '.join(sorted(put_aside))} to take that, without what was written since; a backup may be"
            " newer: `autarky restore FILE`"
        )
    if usable or not old:
        return f"say --from NODE; hosts that answer: {names_of(usable or recovery.found)}"
    notes = [one.node for one in recovery.found.values() if one.recovered is not None]
    return (
        "power on the machines of the etcd that has replaced it; if all of them are lost permanently, remove"
        f" {places.ETCD_RECOVERED} on {names_of(notes)}"
    )


def _put_aside(recovery: Recovery) -> list[Found]:
    return [one for one in recovery.found.values() if one.identity is not None and one.aside]


def names_of(nodes: Collection[str]) -> str:
    return ", ".join(sorted(nodes))


def replaced(recovery: Recovery) -> dict[int, str]:
    """The clusters that recoveries have replaced → when, as the hosts where these began have noted it."""
    noted = sorted((one.recovered for one in recovery.found.values() if one.recovered), key=lambda one: one.at)
    found: dict[int, str] = {}
    for one in noted:
        found |= dict.fromkeys(one.replaced - found.keys(), one.at)
    return found


def of_replaced(recovery: Recovery) -> frozenset[str]:
    """The nodes whose data is of an etcd that was replaced, as one that serves says, or hosts have noted: while its
    successor is down, nobody asks that. Two of them may be a majority, which would go on beside it."""
    old = recovery.replaced | replaced(recovery).keys()
    found = recovery.found.values()
    return frozenset(one.node for one in found if one.identity is not None and one.identity.cluster in old)


def refuse_unreadable(recovery: Recovery, node: str | None) -> None:
    found = recovery.found.get(node or "")
    if found is not None and found.unreadable:
        raise UserError(
            f"the data on {node} cannot be read: {found.unreadable}", fix="see its disk, or name another node"
        )


def refuse_full_disk(seat: Found, needed: int) -> None:
    if seat.free < needed + SPARE:
        raise Refused(
            ROOM,
            f"{seat.node} has {seat.free:,} bytes free below {places.ETCD_DATA}, and {needed + SPARE:,} are needed",
            f"free some space there (data of former members is in {places.ETCD_DATA}/kept.*), or name another node",
        )


def _logs(recovery: Recovery, wanted: str | None) -> list[decision.Log]:
    """Without what was put aside long ago, unless a person has named its node."""
    return [
        decision.Log(
            one.node,
            one.identity.cluster,
            one.end.newest.term,
            one.end.newest.index,
            damaged=one.end.damaged > 0,
            lost=one.end.lost,
        )
        for one in recovery.found.values()
        if one.identity is not None and one.end is not None and (not one.aside or one.node == wanted)
    ]
