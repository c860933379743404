"""One writer at a time: a lock on a file that says who holds it (rule 6, on the user's machine).

Contract: the kernel holds the lock (flock), so it ends with the process, however that ends; the text in the
file is only for the message to whoever comes second. Nobody waits: the second one gets a Conflict.

Dangers: the file may be moved or deleted with its directory while it is locked (`autarky down`). The one
who locks therefore looks whether the path still leads to what was locked, and tries again if not.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from autarky.errors import Conflict, UserError


@contextmanager
def exclusive(path: Path, command: str, *, now: float) -> Iterator[None]:
    """Hold the lock for the block. `command` and `now` (Unix seconds) are shown to others.

    The directory is created (0700) where it is missing. Raises Conflict when somebody else holds the lock,
    and UserError when the file cannot be written.
    """
    descriptor = _locked(path)
    try:
        _write_holder(descriptor, {"pid": os.getpid(), "command": command, "since": now})
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    """A descriptor of the file that is at `path` now, locked."""
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            held = _conflict(path, os.pread(descriptor, 4096, 0))
            os.close(descriptor)
            raise held from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(
            f"cannot open the lock file {path}: {error.strerror}", fix="make its directory writable for this user"
        ) from error


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int, holder: dict[str, object]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _conflict(path: Path, text: bytes) -> Conflict:
    return Conflict(f"{path.parent} is in use by {_holder(text)}")


def _holder(text: bytes) -> str:
    """Who holds it, and what to do. The text is absent for a moment after the lock was taken."""
    try:
        holder = json.loads(text)
        pid, command = int(holder["pid"]), str(holder["command"])
        since = datetime.fromtimestamp(float(holder["since"]), UTC)
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return "another command that has just started\n  fix: wait for it to end, then run this command again"
    return (
        f"`{command}` (pid {pid}) since {since:%Y-%m-%d %H:%M:%S} UTC\n"
        f"  fix: wait for it to end, or stop it with `kill {pid}`; then run this command again"
    )
