"""Programs on this machine: started with pipes, fed, read, and killed with all that they forked.

Contract: nothing is left running by a call that took too long or was cancelled. Its output so far
is kept, because it may say what has to be killed elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes of standard output that are kept; a program that writes more counts as failed: nothing is cut silently."""
END_SECONDS = 2.0
STDERR_KEPT = 64 * 1024
"""Bytes of standard error that are kept: the last ones, which say why."""
Input = bytes | Path
"""Bytes, or a file whose content is streamed."""


@dataclass(slots=True)
class Said:
    """What a program has written so far: the first bytes of its output, the last ones of its errors."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)


async def start(argv: Sequence[str], *, stdin: bool) -> asyncio.subprocess.Process:
    """Start it, with pipes; without `stdin` it reads nothing."""
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A process group of its own: a driver's child (nsenter) forks, and its death alone ends nothing.
        start_new_session=True,
    )


async def converse(
    argv: Sequence[str], stdin: Sequence[Input] | None, said: Said, *, timeout: float, limit: int
) -> int:
    """Run it to its end, and collect up to `limit` bytes of its output in `said`; its status.

    Raises TimeoutError after `timeout` seconds.
    """
    process = await start(argv, stdin=stdin is not None)
    try:
        async with asyncio.timeout(timeout):
            await _exchange(process, stdin, said, limit)
    finally:
        if process.returncode is None:
            await end(process)
    return process.returncode or 0


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill the program with all it forked. Bounded: asyncio also waits for the pipes, and a daemon that left
    the group may hold them forever."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await process.wait()


async def _exchange(process: asyncio.subprocess.Process, stdin: Sequence[Input] | None, said: Said, limit: int) -> None:
    """Feed standard input and collect both outputs, all at once: one full pipe must not stop the others."""
    assert process.stdout is not None  # noqa: S101 # we asked for pipes
    assert process.stderr is not None  # noqa: S101
    async with asyncio.TaskGroup() as group:
        group.create_task(_head(process.stdout, said.stdout, limit), name="stdout")
        group.create_task(_tail(process.stderr, said.stderr, STDERR_KEPT), name="stderr")
        if process.stdin is not None and stdin is not None:
            group.create_task(_feed(process.stdin, stdin), name="stdin")
    await process.wait()


async def _head(stream: asyncio.StreamReader, kept: bytearray, limit: int) -> None:
    """The first bytes; the rest is read and dropped, so that the program comes to its end."""
    while chunk := await stream.read(1 << 16):
        kept += chunk[: limit - len(kept)]


async def _tail(stream: asyncio.StreamReader, kept: bytearray, limit: int) -> None:
    """The last bytes."""
    while chunk := await stream.read(1 << 16):
        kept += chunk
        del kept[:-limit]


async def _feed(pipe: asyncio.StreamWriter, content: Sequence[Input]) -> None:
    """Send it and close; a big file is never completely in memory."""
    try:
        for part in content:
            if isinstance(part, bytes):
                pipe.write(part)
                await pipe.drain()
                continue
            with part.open("rb") as file:  # a local file in the page cache; reads do not block for long
                while chunk := file.read(1 << 20):
                    pipe.write(chunk)
                    await pipe.drain()
        pipe.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the other side ended early; its status and stderr say why
