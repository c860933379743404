"""A lock on a host, held by a program there that lives as long as its owner here.

Contract: the host's kernel holds the lock (flock). It is released when the holder says so, when its end of
the pipe closes (it was killed, its connection ended), or when nothing was heard from it for `SILENCE` seconds
(its machine or the network is gone, which a host may not notice for hours). Nothing waits for a lock here.
The file says who holds it, for others; it is removed when the lock is released.

Danger: a holder that was stopped for longer than `SILENCE` (a laptop that slept) has lost the lock and
learns of it when it continues: `lost` returns then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from autarky.errors import CommandFailed, Held, Unreachable, UserError
from autarky.hosts.process import end

SILENCE = 30
"""Seconds without a heartbeat after which the host releases the lock."""
BEAT = 3.0
ANSWER_SECONDS = 30.0
_IN_USE = 75  # EX_TEMPFAIL

# The file may be removed by its last holder between our opening and locking it: then we hold a lock on nothing
# that others would find. `dd` reads one byte of the pipe, and what it does not read within the time is no beat. It does
# not have the lock: it would keep it for that time if only the shell is killed.
_SCRIPT = f"""\
set -u
umask 077 # who may open the file may hold the lock
IFS= read -r holder
while :; do
  exec 9>>"$1"
  chmod 600 "$1" # an earlier release has left it open to all
  flock -n 9 || {{ cat "$1"; exit {_IN_USE}; }}
  [ "$(stat -L -c %d:%i "/proc/$$/fd/9")" = "$(stat -c %d:%i "$1" 2>/dev/null)" ] && break
done
printf '%s\\n' "$holder" >"$1"
echo held
while [ "$(timeout "$2" dd bs=1 count=1 status=none 9>&-)" = . ]; do :; done
rm -f "$1"
"""
Start = Callable[[Sequence[str]], Awaitable[asyncio.subprocess.Process]]


@dataclass(frozen=True, slots=True)
class Holding:
    """Implements ports.Hold."""

    _gone: asyncio.Task[None]

    async def lost(self) -> None:
        await asyncio.shield(self._gone)


@asynccontextmanager
async def hold(name: str, start: Start, path: str, holder: str) -> AsyncIterator[Holding]:
    """Hold the lock at `path` for the block. `holder` is one line of text."""
    process = await start(["sh", "-c", _SCRIPT, "sh", path, str(SILENCE)])
    assert process.stdin is not None  # noqa: S101 # we asked for pipes
    beating = gone = None
    try:
        process.stdin.write(f"{holder}\n".encode())
        await _until_held(name, process, path)
        beating = asyncio.create_task(_beat(process.stdin), name=f"beat {name}")
        gone = asyncio.create_task(_until_gone(process), name=f"lock {name}")
        yield Holding(gone)
    finally:
        for task in (beating, gone):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await _give_up(process)


async def _until_held(name: str, process: asyncio.subprocess.Process, path: str) -> None:
    assert process.stdout is not None  # noqa: S101 # we asked for pipes
    assert process.stderr is not None  # noqa: S101
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            said = await process.stdout.readline()
            if said == b"held\n":
                return
            said += await process.stdout.read(4096)
            complaint = (await process.stderr.read(4096)).decode(errors="replace").strip()
            status = await process.wait()
    except TimeoutError as error:
        raise Unreachable(f"{name}: no answer to the request for the lock {path}") from error
    except ValueError as error:  # a line that never ends
        raise Unreachable(f"{name}: the answer to the request for the lock {path} cannot be read") from error
    if status == _IN_USE:
        raise Held(name, said.decode(errors="replace").strip())
    if "ermission denied" in complaint:
        raise UserError(f"{name}: cannot make {path}: permission denied", fix="run the command as root")
    raise CommandFailed(name, ["flock", path], status, complaint)


async def _beat(pipe: asyncio.StreamWriter) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # `_until_gone` sees the same, and says so
        while True:
            pipe.write(b".")
            await pipe.drain()
            await asyncio.sleep(BEAT)


async def _until_gone(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None  # noqa: S101 # we asked for pipes
    await process.stdout.read()


async def _give_up(process: asyncio.subprocess.Process) -> None:
    """Close the pipe and let the program remove its file; kill it if it does not."""
    assert process.stdin is not None  # noqa: S101 # we asked for pipes
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            await process.wait()
    if process.returncode is None:
        await end(process)
