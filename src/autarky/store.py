"""The user's own files: written atomically, privately and synced; locked by waiting; their digest. Not for hosts."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

NOT_UNDERSTOOD = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
)
"""What reading one of our own files may raise. Readers treat all of these as "not known": a user, a damaged disk or
another release may have left any bytes there."""


def write_private(path: Path, content: bytes, *, mode: int = 0o600, group: int | None = None) -> None:
    """Replace the file in one rename; its directory is made 0700 where it is missing. Durable on return.

    group: its group, set before it is in place; the process must be a member.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            if group is not None:
                os.fchown(file.fileno(), -1, group)
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def file_digest(path: Path) -> str:
    """SHA-256, in hex. It reads all of the file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_directory(directory: Path) -> None:
    """So that what was renamed, made or removed in it stays so after a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@asynccontextmanager
async def waiting_lock(path: Path, on_wait: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Hold a lock file, waiting for its current holder; `on_wait` is called once if that is needed.

    The kernel drops the lock with its holder, so a killed process leaves nothing to clean.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if on_wait is not None:
                    on_wait()
                    on_wait = None
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(descriptor)
