"""Running build tools: bounded output, a line callback for progress, and no survivors when cancelled."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from autarky.errors import CommandFailed, UserError
from autarky.payload.disk import FREE_SOME
from autarky.threads import to_the_end

KEPT_LINES = 40
LONGEST_LINE = 1 << 20
"""Bytes. A linker that fails prints its complete command."""
P = ParamSpec("P")
T = TypeVar("T")


async def run_tool(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], bool | None] | None = None,
) -> str:
    """Run to the end; the last lines of its output (stderr included), which CommandFailed shows when it fails.

    `on_line` gets each line; those for which it says True are left out of the output.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=LONGEST_LINE,
    )
    assert process.stdout is not None  # noqa: S101 # we asked for a pipe
    last: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        async for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            if on_line is None or not on_line(line):
                last.append(line)
        status = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session: compilers it started go with it
            await process.wait()
    if status != 0:
        raise _failure(argv, status, last)
    return "\n".join(last)


def _failure(argv: Sequence[str], status: int, last: Sequence[str]) -> CommandFailed | UserError:
    for line in last:  # the tool says which of its directories is full
        if "no space left on device" in line.lower():
            return UserError(f"{Path(argv[0]).name} found no space left on the disk: {line.strip()}", fix=FREE_SOME)
    return CommandFailed("this machine", argv, status, "\n".join(last))


async def pip_install(lock: Path, target: Path, *, scratch: Path, options: Sequence[str] = ()) -> None:
    """Install exactly what the lock file pins, checked against its hashes, into a directory of its own.

    `scratch` is for pip's temporary files, which stay behind when it is killed.
    """
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"pip is missing from the Python that runs autarky ({sys.executable})",
            fix=f"{sys.executable} -m ensurepip",
        )
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    argv += ["--no-deps", "--only-binary=:all:", "--require-hashes", *options]
    await run_tool([*argv, "--target", str(target), "-r", str(lock)], env={"TMPDIR": str(scratch)})


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work beside the event loop. When cancelled, it is waited for (seconds): the files it
    writes are in a scratch directory that is removed next."""
    return await to_the_end(partial(function, *args, **kwargs))


async def side_by_side(work: Iterable[Coroutine[None, None, object]]) -> None:
    """Two at once: Go uses all cores for one build; a second one fills the gaps of linking and downloading.

    The first failure ends the others and is raised alone.
    """
    limit = asyncio.Semaphore(2)

    async def one(job: Coroutine[None, None, object]) -> None:
        async with limit:
            await job

    jobs = list(work)
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(one(job))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        for job in jobs:
            job.close()  # those that were never begun
