"""What other programs write reaches the disk as it comes, so that etcd beside them never waits for all of it at once.

A journal commits what all files have together: where a snapshot of a gigabyte is still in memory, the fsync of a few
bytes of etcd's log waits until that is on the disk, and every write and every linearizable read of the cluster with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PAUSE = 0.05
"""Seconds: what a disk writes meanwhile is what etcd may wait for."""

_Seen = dict[Path, tuple[int, int]]


@contextmanager
def flushed(*directories: Path) -> Iterator[None]:
    """While the block runs, files below these directories that grow or change. A directory need not exist."""
    end = threading.Event()
    # Before the block: what it writes first must not pass for what was there.
    seen: _Seen = {path: state for directory in directories for path, state in _files(directory).items()}

    def work() -> None:
        while not end.wait(_PAUSE):
            for directory in directories:
                _flush(directory, seen)

    thread = threading.Thread(target=work, name="flushing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _flush(directory: Path, seen: _Seen) -> None:
    for path, state in _files(directory).items():
        if seen.get(path) == state:
            continue
        seen[path] = state
        with suppress(OSError):  # gone meanwhile, or no file that can be flushed
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)


def _files(directory: Path) -> _Seen:
    """Regular files, with size and time of the last change."""
    found: _Seen = {}
    for parent, _, names in os.walk(directory):
        for name in names:
            path = Path(parent, name)
            with suppress(OSError):
                state = path.lstat()
                found[path] = (state.st_size, state.st_mtime_ns)
    return found
