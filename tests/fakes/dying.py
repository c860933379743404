"""Runs something in a process of its own that ends, or whose disk is full, right before one of its writes to a tree.

A write is a file opened for writing, a rename, a link, a directory, a removal, a change of a mode, a sync; and whatever
the work calls a write itself. Each but the last is seen by an audit hook: nothing in the work knows of it.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

At = Callable[[int, str], None]
KILLED: Final = 9
FAILED: Final = 7
_WRITES = {"os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Writes:
    """Counts those below `root`. at: what happens before each, by its number and name: "os.rename TO FROM"."""

    def __init__(self, root: Path, at: At) -> None:
        self._root, self._at, self.count = str(root), at, 0

    def note(self, what: str) -> None:
        self.count += 1
        self._at(self.count, what)

    def watch(self) -> None:
        """For as long as this process lives."""
        sys.addaudithook(self._see)
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._sync(name, getattr(os, name)))

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        path: Any = arguments[0] if arguments else None
        if event == "open" and isinstance(path, str) and arguments[2] & _WRITING:
            self._note_path(event, path)
        elif event == "os.mkdir" and os.path.lexists(path):
            pass  # refused, and made sure of
        elif event in ("os.rename", "os.symlink", "os.link"):
            self._note_path(event, arguments[1], str(path))
        elif event in _WRITES:
            directory = arguments[-1]
            if isinstance(directory, int) and directory >= 0 and isinstance(path, str) and not path.startswith("/"):
                path = Path(f"/proc/self/fd/{directory}").readlink() / path  # as shutil.rmtree does it
            self._note_path(event, path)

    def _note_path(self, event: str, path: object, source: str = "") -> None:
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        if isinstance(path, str | Path) and str(path).startswith(self._root):
            self.note(f"{event} {path} {source}".rstrip())

    def _sync(self, name: str, sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(descriptor: int) -> None:
            self._note_path(name, descriptor)
            sync(descriptor)

        return synced


def ends_at(number: int) -> At:
    def at(count: int, _: str) -> None:
        if count == number:
            os._exit(KILLED)

    return at


def full_at(number: int) -> At:
    """From that write on there is room for nothing; what is there can be removed."""

    def at(count: int, what: str) -> None:
        if count >= number and not what.startswith(("os.remove", "os.rmdir", "os.chmod", "fsync", "fdatasync")):
            raise OSError(errno.ENOSPC, "No space left on device")

    return at


def in_a_child(root: Path, at: At, work: Callable[[Writes], object]) -> int:
    """0, or FAILED where the work raised, or KILLED."""
    if (child := os.fork()) == 0:
        status = FAILED
        try:
            writes = Writes(root, at)
            writes.watch()
            work(writes)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
