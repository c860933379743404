"""Snapshots of etcd that lie on this machine: whether they are intact, and whether an etcd can be started from them.

Contract: the etcd that is started knows no other member, is reached by sockets in a directory of its own only, and is
gone when the call returns, directory and all. It needs the programs `etcd`, `etcdctl` and `etcdutl`, and no shell: the
agents' image has none.

Dangers: an etcd keeps its index in memory, some 200 bytes for each key, beside what the kernel caches of its file.
`etcdutl snapshot status` does not look at the SHA-256 at the end of a snapshot.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from autarky.errors import TimedOut, UserError

_DIGEST = hashlib.sha256().digest_size
_CHUNK = 1024 * 1024
_CLIENT, _PEER = "unix://localhost:1", "unix://localhost:2"
"""etcd wants a name and a number for a socket, and makes a file of these in its working directory."""
_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Intact:
    """A snapshot file whose hash is right. size in bytes, sha256 in hex: of the file with its hash."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Tried:
    """What an etcd that was started from it says: the revision, and how many keys there are."""

    revision: int
    keys: int


def intact(path: Path) -> Intact:
    """UserError if the content is not what the hash at its end says."""
    size = path.stat().st_size
    file_digest, content = hashlib.sha256(), hashlib.sha256()
    left = size - _DIGEST
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(min(_CHUNK, left))):
            file_digest.update(piece)
            content.update(piece)
            left -= len(piece)
        end = file.read()
    file_digest.update(end)
    if size <= _DIGEST or end != content.digest():
        raise UserError(f"snapshot {path} is damaged: its content does not have its hash", fix="take another one")
    return Intact(size, file_digest.hexdigest())


async def tried(
    path: Path, scratch: Path, programs: Path, *, timeout: float, listing: Callable[[Path], None] | None = None
) -> Tried:
    """Restore it below `scratch`, which must not exist, and start an etcd from that. UserError if it cannot be
    restored or served, TimedOut after `timeout` seconds. listing: gets a file with all its keys, as `etcdctl` prints
    them as JSON; it is gone afterwards."""
    scratch.mkdir(mode=0o700)
    try:
        async with asyncio.timeout(timeout):
            await _restored(path, scratch, programs)
            async with _served(scratch, programs) as server:
                found = await _asked(scratch, programs, server)
                if listing is not None:
                    await _list(scratch, programs, listing)
                return found
    except TimeoutError as error:
        raise TimedOut(f"etcd does not serve the restored snapshot {path} after {timeout:.0f} s") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)


async def _restored(path: Path, scratch: Path, programs: Path) -> None:
    argv = ["snapshot", "restore", str(path), "--data-dir", "data"]
    status, said = await _ended(programs / "etcdutl", argv, scratch)
    if status != 0:
        raise UserError(f"snapshot {path} cannot be restored: {_last_line(said)}", fix="take another one")


@asynccontextmanager
async def _served(scratch: Path, programs: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """An etcd with the restored data, until the end of the block. Nothing of it has to survive a power cut."""
    log = scratch / "etcd.log"
    with log.open("wb") as written:
        server = await asyncio.create_subprocess_exec(
            *(str(programs / "etcd"), "--data-dir=data", "--unsafe-no-fsync", "--log-level=error"),
            *(f"--listen-client-urls={_CLIENT}", f"--advertise-client-urls={_CLIENT}"),
            f"--listen-peer-urls={_PEER}",
            cwd=scratch,
            env={"PATH": os.defpath},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    try:
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        await server.wait()


async def _asked(scratch: Path, programs: Path, server: asyncio.subprocess.Process) -> Tried:
    argv = [f"--endpoints={_CLIENT}", "--command-timeout=10s", "get", "", "--prefix", "--count-only", "-w=fields"]
    while True:
        status, said = await _ended(programs / "etcdctl", argv, scratch)
        if status == 0:
            return Tried(_field(said, "Revision"), _field(said, "Count"))
        if server.returncode is not None:
            log = (scratch / "etcd.log").read_text(errors="replace")
            raise UserError(
                f"etcd ends when it is started from the snapshot: {_last_line(log)}", fix="take another one"
            )
        await asyncio.sleep(_PAUSE)


async def _list(scratch: Path, programs: Path, listing: Callable[[Path], None]) -> None:
    # etcdctl gives up after 5 s by itself; the limit of `tried` ends it.
    argv = [f"--endpoints={_CLIENT}", "--command-timeout=10h", "get", "", "--prefix", "--keys-only", "-w=json"]
    keys = scratch / "keys.json"
    with keys.open("wb") as written:
        status, said = await _ended(programs / "etcdctl", argv, scratch, written)
    if status != 0:
        raise UserError(f"its keys cannot be listed: {_last_line(said)}", fix="take another one")
    await asyncio.to_thread(listing, keys)


def _field(said: str, name: str) -> int:
    found = re.search(rf'^"{name}" : (\d+)$', said, re.MULTILINE)
    if found is None:
        raise UserError(f"etcdctl says no {name}: {said[:200]!r}", fix="this etcdctl is not understood")
    return int(found[1])


async def _ended(program: Path, argv: list[str], cwd: Path, output: IO[bytes] | None = None) -> tuple[int, str]:
    """(status, output) of a program; it does not outlive this call. output: a file for its standard output."""
    process = await asyncio.create_subprocess_exec(
        str(program),
        *argv,
        cwd=cwd,
        env={"PATH": os.defpath},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE if output is None else output,
        stderr=asyncio.subprocess.STDOUT if output is None else asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, error = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return process.returncode or 0, (said or error or b"").decode(errors="replace")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it says nothing"
