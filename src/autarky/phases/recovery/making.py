"""Making the data of the new etcd on its seat, beside the old.

Contract: the old data is only read. What is made is complete or absent: a file `ready` in the recovery's directory is
written last. If it cannot be made, the old members are released. Which etcds the new one replaces is in its data, so
that no member of it ever serves without that; and it takes writes also where the old one, which was full, took none.
Which etcd has made it is noted beside it: no older minor starts from it (`programs`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.etcd.decide.lineage import former_of
from autarky.engine.phase import Change
from autarky.errors import UserError
from autarky.etcd.log import commits_all, end_of
from autarky.model.etcd_members import peer_url
from autarky.phases.context import Context
from autarky.phases.recovery.fencing import release_all
from autarky.phases.recovery.programs import Programs
from autarky.phases.recovery.reading import log_files
from autarky.phases.recovery.state import Began, Found, FromSnapshot, Recovery, first_revision, on_host, seat_of
from autarky.phases.recovery.versions import how_it_begins
from autarky.ports import Host, Progress

_SLOWEST = 4 * 1024 * 1024
_LEAST_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class MakeData:
    recovery: Recovery
    name: str = "make-data"
    title: str = "Make the data of the new etcd"
    timeout: float = 3 * 3600

    async def plan(self, context: Context) -> Sequence[Change]:
        recovery = self.recovery
        return (
            [] if recovery.made else [Change(f"make a new etcd of one member on {recovery.seat}, {recovery.made_of}")]
        )

    async def run(self, context: Context, progress: Progress) -> None:
        try:
            await self._make(context, progress)
        except BaseException:
            await release_all(context, self.recovery, progress)
            raise
        self.recovery.made = True

    async def _make(self, context: Context, progress: Progress) -> None:
        recovery, host = self.recovery, seat_of(context, self.recovery)
        seat, source = recovery.found[recovery.seat], recovery.source
        beginning = await how_it_begins(context, recovery)  # the seat may be another one than before the fence
        if beginning.newer:
            progress.note(beginning.newer)
        programs = beginning.programs
        if isinstance(source, FromSnapshot):
            size = source.size
            await _unpack(host, source, recovery, programs)
        else:
            size = seat.size
            await _copy(host, seat, recovery, progress)
        former, revision = await _replayed(host, seat, recovery, size, programs)
        progress.note(f"{seat.node}: its data has been brought up to revision {revision:,}")
        first = first_revision(recovery, revision)
        await host.write_files([Began(first, former, programs.text).file(recovery.work)])
        token = recovery.token(context.cluster.name)
        # The database of an etcd that has ended has no hash at its end.
        snapshot = ["old/member/snap/db", "--skip-hash-check"]
        arguments = [recovery.work, seat.node, peer_url(seat.address), token, str(first - revision), *snapshot]
        await on_host(host, ["make", *arguments], timeout=_seconds_for(size), programs=programs.words)


async def _unpack(host: Host, source: FromSnapshot, recovery: Recovery, programs: Programs) -> None:
    snapshot = f"{recovery.work}/snapshot.db"
    await on_host(host, ["begin", recovery.work])
    await host.push(source.path, snapshot, mode=0o600)
    words = ["unpack", recovery.work, snapshot]
    await on_host(host, words, timeout=_seconds_for(source.size), programs=programs.words)


async def _copy(host: Host, seat: Found, recovery: Recovery, progress: Progress) -> None:
    """The member's data, with a log that marks all its entries as committed."""
    await on_host(host, ["copy", recovery.data, recovery.work], timeout=_seconds_for(seat.size))
    _, files = await log_files(host, f"{recovery.work}/old")
    end = end_of(files)
    if not end.committed:
        left = end.newest.index - end.state[2]
        progress.note(f"{seat.node}: {left} entries at the end of its log were not marked as committed: they are kept")
    if end.damaged:
        progress.note(f"{seat.node}: a record of its log is damaged: {end.lost} entries from there on are lost")
    record = commits_all(end)  # also in place of a torn record, which etcd might refuse
    await on_host(host, ["append", recovery.work, str(end.offset), str(len(record))], stdin=record)


async def _replayed(
    host: Host, seat: Found, recovery: Recovery, size: int, programs: Programs
) -> tuple[frozenset[int], int]:
    """(The clusters that the copied data says are replaced, its revision), with all of its log applied."""
    replaced = json.dumps([f"{one:x}" for one in recovery.former])
    words = ["replay", recovery.work, replaced]
    said = await on_host(host, words, timeout=_seconds_for(size), programs=programs.words)
    if not said or not said[-1].isdecimal():
        raise UserError(f"{seat.node}: an etcd that was started from its data says no revision: {said}")
    return former_of("".join(said[:-1]) or None), int(said[-1])


def _seconds_for(size: int) -> float:
    return _LEAST_SECONDS + size / _SLOWEST
