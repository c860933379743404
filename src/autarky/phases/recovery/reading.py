"""Reading what a host has of a member's data: whose it is, and where its log ends.

Contract: it only looks. A disk that is full or dying makes one member's data unreadable, and stops no recovery that can
do without it.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.errors import AutarkyError, CommandFailed, Unreachable
from autarky.etcd.data import Identity, identity_in
from autarky.etcd.log import End, end_of
from autarky.phases.recovery.state import Found, on_host
from autarky.ports import Host

_LOG_SECONDS = 120.0
_SCRATCHES = (f"{places.HOST_ROOT}/scratch/recovery", f"{places.RUN}/recovery")
"""Where a copy of the log's end is packed; the second one needs no disk."""


async def with_data(host: Host, found: Found) -> Found:
    """What there is of it now. Data that was moved aside is read where nothing is in its place, and that of a second
    member, which stands in for the only one while that is changed, where it has more of the same etcd."""
    try:
        data = places.ETCD_DATA
        said, files = await log_files(host, data)
        beside, others = await log_files(host, etcd.SECOND_DATA)
        if _has_more(others, files):
            data, files, said = etcd.SECOND_DATA, others, {**said, **beside}
        lone = [] if files else await on_host(host, ["lone", data])
        aside = ""
        if lone:
            word, written, data = lone[0].split(maxsplit=2)
            aside = "" if word == "cut" or _may_be_cut(found) else f"{data}, put aside and written until {written}"
            sizes, files = await log_files(host, data)
            said = {**said, **sizes}
    except (CommandFailed, Unreachable) as error:
        return replace(found, identity=None, end=None, unreadable=str(error))
    return replace(
        found,
        identity=_identity(files),
        end=end_in(files),
        size=said.get("size", 0),
        free=said.get("free", 0),
        data=data,
        aside=aside,
        unreadable="",
    )


def _may_be_cut(found: Found) -> bool:
    """Whether a placing may have been cut there, of which nothing else is left: it is on the seat, behind the fence."""
    return found.fence is not None and found.fence.seat == found.node


def _has_more(others: Sequence[bytes], files: Sequence[bytes]) -> bool:
    """Of two logs on one host: whether the former goes on where the latter ends, by Raft's order."""
    end, its, mine = end_in(others), _identity(others), _identity(files)
    if end is None or its is None:
        return False
    own = end_in(files)
    if own is None or mine is None:
        return not files
    return its.cluster == mine.cluster and end.newest > own.newest


async def identity_of(host: Host, data: str) -> Identity | None:
    """Whose data it is; None where it is nobody's, or does not say."""
    _, files = await log_files(host, data)
    return _identity(files)


def _identity(files: Sequence[bytes]) -> Identity | None:
    try:
        return identity_in(files[-1]) if files else None
    except ValueError:
        return None


def end_in(files: Sequence[bytes]) -> End | None:
    try:
        return end_of(files) if files else None
    except ValueError:
        return None


async def log_files(host: Host, data: str = places.ETCD_DATA) -> tuple[dict[str, int], list[bytes]]:
    """(sizes that the host tells, the last files of the member's log). CommandFailed."""
    on_disk, in_memory = _SCRATCHES
    try:
        return await _log_files(host, data, on_disk)
    except CommandFailed:  # a full disk, it may be
        return await _log_files(host, data, in_memory)


async def _log_files(host: Host, data: str, scratch: str) -> tuple[dict[str, int], list[bytes]]:
    try:
        lines = [line.split() for line in await on_host(host, ["log", data, scratch], timeout=_LOG_SECONDS)]
        files = [await _fetched(host, f"{scratch}/{words[1]}.gz") for words in lines if words[0] == "log"]
        return {words[0]: int(words[1]) for words in lines if words[0] != "log"}, files
    finally:
        with suppress(AutarkyError):
            await host.run(["rm", "-rf", scratch], check=False)


async def _fetched(host: Host, path: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="autarky-recovery-") as scratch:
        local = Path(scratch, "log.gz")
        await host.pull(path, local)
        return gzip.decompress(local.read_bytes())
