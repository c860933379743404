"""Making the data of the new etcd on its seat, beside the old.

Contract: the old data is only read. What is made is complete or absent: a file `ready` in the recovery's directory is
written last. If it cannot be made, the old members are released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.engine.phase import Change
from autarky.errors import UserError
from autarky.etcd.log import commits_all, end_of
from autarky.model.etcd_members import peer_url
from autarky.phases.context import Context
from autarky.phases.recovery.fencing import release_all
from autarky.phases.recovery.reading import log_files
from autarky.phases.recovery.state import Found, FromSnapshot, Recovery, first_revision, on_host, seat_of
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
        if isinstance(source, FromSnapshot):
            snapshot, options, size, revision = f"{recovery.work}/snapshot.db", [], source.size, source.revision
            await on_host(host, ["begin", recovery.work])
            await host.push(source.path, snapshot, mode=0o600)
        else:
            revision = await _replayed(host, seat, recovery, progress)
            progress.note(f"{seat.node}: its data has been brought up to revision {revision:,}")
            # The database of an etcd that has ended has no hash at its end.
            snapshot, options, size = "old/member/snap/db", ["--skip-hash-check"], seat.size
        token = recovery.token(context.cluster.name)
        bump = str(first_revision(recovery, revision) - revision)
        arguments = [recovery.work, seat.node, peer_url(seat.address), token, bump, snapshot, *options]
        await on_host(host, ["make", *arguments], timeout=_seconds_for(size))


async def _replayed(host: Host, seat: Found, recovery: Recovery, progress: Progress) -> int:
    """The revision of a copy of the member's data, with all of its log applied."""
    timeout = _seconds_for(seat.size)
    await on_host(host, ["copy", recovery.data, recovery.work], timeout=timeout)
    _, files = await log_files(host, f"{recovery.work}/old")
    end = end_of(files)
    if not end.committed:
        left = end.newest.index - end.state[2]
        progress.note(f"{seat.node}: {left} entries at the end of its log were not marked as committed: they are kept")
    if end.damaged:
        progress.note(f"{seat.node}: a record of its log is damaged: {end.lost} entries from there on are lost")
    record = commits_all(end)  # also in place of a torn record, which etcd might refuse
    await on_host(host, ["append", recovery.work, str(end.offset), str(len(record))], stdin=record)
    said = await on_host(host, ["replay", recovery.work], timeout=timeout)
    if not said or not said[-1].isdecimal():
        raise UserError(f"{seat.node}: an etcd that was started from its data says no revision: {said}")
    return int(said[-1])


def _seconds_for(size: int) -> float:
    return _LEAST_SECONDS + size / _SLOWEST
