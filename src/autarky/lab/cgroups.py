"""The control groups of test hosts: how the processes of a host are found, ended, and cleaned up after.

Contract: a host's groups bear its unique name in every hierarchy, wherever below them the lab was started;
so that a run that was killed before it wrote anything down leaves nothing that cannot be found.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from autarky.errors import TimedOut

ROOT = Path("/sys/fs/cgroup")
PREFIX = "autarky-"
KILL_SECONDS = 15.0


async def clear(name: str, root: Path = ROOT) -> None:
    """End every process of the host and remove its groups; there may be none. TimedOut when some stay."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + KILL_SECONDS
    groups = find(name, root)
    while left := [group for group in groups if group.exists()]:
        for group in left:
            _kill_all(group)
            _remove(group)
        if not any(group.exists() for group in left):
            return
        if loop.time() > deadline:
            raise TimedOut(f"waited {KILL_SECONDS:.0f} s until the processes in {left[0]} ended")
        await asyncio.sleep(0.02)


def find(name: str, root: Path = ROOT) -> list[Path]:
    """The groups of that name, one in each hierarchy. Does not look into other hosts, which have many."""
    found = []
    for directory, children, _ in os.walk(root):
        if name in children:
            found.append(Path(directory, name))
        children[:] = [child for child in children if not child.startswith(PREFIX)]
    return found


def _bottom_up(group: Path) -> Iterator[Path]:
    for directory, _, _ in os.walk(group, topdown=False):
        yield Path(directory)


def _kill_all(group: Path) -> None:
    for directory in _bottom_up(group):
        # v1: a frozen process does not die before it is thawed.
        with suppress(OSError):
            if (directory / "freezer.state").exists():
                (directory / "freezer.state").write_text("THAWED")
        with suppress(OSError):
            for pid in map(int, (directory / "cgroup.procs").read_text().split()):
                # 0 stands for a process that cannot be seen from here; to kill() it would mean ourselves.
                if pid > 0:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def _remove(group: Path) -> None:
    """As far as it is empty; the caller tries again."""
    for directory in _bottom_up(group):
        with suppress(OSError):
            directory.rmdir()
