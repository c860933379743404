"""Taking the last recovery back: which one that is, what is lost by it, and whether a person means that one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from autarky import places
from autarky.control.etcd.decide.refusing import why_not_back
from autarky.errors import Refused, UserError
from autarky.phases.context import Context
from autarky.phases.recovery.choosing import of_replaced, refuse_full_disk, refuse_unreadable
from autarky.phases.recovery.reading import end_in, log_files
from autarky.phases.recovery.resuming import kind_of
from autarky.phases.recovery.state import KINDS, Found, FromKept, Recovered, Recovery, first_revision

MEANT = "a recovery is taken back only by somebody who means that one"


async def what_was_kept(context: Context, recovery: Recovery, source: FromKept) -> str:
    """Of the recovery that made the etcd which runs now. Refused, UserError."""
    one, recovered = last_recovery(recovery)
    _refuse_another(context, recovered, source)
    recovery.seat, recovery.data = one.node, recovered.kept
    recovery.made_of = f"made of what was there before {recovered.at}"
    first_revision(recovery, 0)
    host = context.host(context.cluster.node(one.node))
    sizes, files = await log_files(host, recovered.kept)
    if not files:
        raise UserError(f"{one.node}: there is no data of etcd in {recovered.kept} any more")
    recovery.found[one.node] = replace(one, size=max(one.size, sizes.get("size", 0)))
    refuse_full_disk(recovery.found[one.node], 2 * sizes.get("size", 0))
    return (
        f"the recovery of {recovered.at} is taken back: its etcd on {one.node} was {recovered.made_of}, and"
        f" {_written_since(recovery, recovered)} is lost{_damage(files)}"
    )


def last_recovery(recovery: Recovery) -> tuple[Found, Recovered]:
    """Its seat has the data of the etcd that it made, which no later one has replaced."""
    old = of_replaced(recovery)
    for one in recovery.found.values():
        recovered, own = one.recovered, one.identity
        if recovered is None or one.node in old:
            continue
        if own is None and recovered.kept:
            refuse_unreadable(recovery, one.node)
        elif own is not None and f"{own.cluster:x}" == recovered.cluster:
            if not recovered.kept:
                raise _nothing_kept(one, recovered)
            return one, recovered
    raise UserError("no recovery can be taken back: no control node that answers has the data from before one")


def _nothing_kept(seat: Found, recovered: Recovered) -> UserError:
    return UserError(
        f"the recovery of {recovered.at} cannot be taken back: {seat.node}, where its etcd began, had no data of etcd",
        fix=f"restore a backup; what members had is in {places.ETCD_DATA}/kept.* on their nodes",
    )


def _refuse_another(context: Context, recovered: Recovered, source: FromKept) -> None:
    try:
        ago = context.clock.time() - datetime.fromisoformat(recovered.at).timestamp()
    except ValueError:
        ago = None
    is_undo = kind_of(recovered) == KINDS[FromKept]
    why = why_not_back(recovered.at, ago, is_undo=is_undo, again=source.again, made=source.made)
    if not why:
        return
    options = [*(["--again"] if is_undo and not source.again else []), f"--made {recovered.at}"]
    raise Refused(MEANT, why, f"if that is meant: `autarky restore --undo {' '.join(options)}`")


def _written_since(recovery: Recovery, recovered: Recovered) -> str:
    """etcd counts its changes."""
    if recovery.current is None:
        return "what was written since"
    changes = max(0, recovery.current - recovered.revision)
    return f"what was written since ({changes:,} changes)"


def _damage(files: Sequence[bytes]) -> str:
    end = end_in(files)
    if end is None or not end.damaged:
        return ""
    return f", and so are {end.lost:,} entries of that data, whose log is damaged"
