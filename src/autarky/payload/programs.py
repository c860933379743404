"""Running build tools: bounded output, a line callback for progress, and no survivors when cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autarky import places
from autarky.errors import CommandFailed
from autarky.payload.store import no_space

KEPT_LINES = 40


async def run_tool(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> str:
    """Run to the end; the last lines of its output (stderr included). CommandFailed when it fails."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101 # we asked for a pipe
    last: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        async for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            last.append(line)
            if on_line is not None:
                on_line(line)
        status = await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: compilers it started go with it
            await process.wait()
    text = "\n".join(last)
    if status != 0 and "no space left on device" in text:
        raise no_space(places.cache_dir())
    if status != 0:
        raise CommandFailed("this machine", argv, status, text)
    return text
