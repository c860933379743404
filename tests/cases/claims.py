"""Whose a name of a lab is: two runs of tests, of two checkouts say, would take each other's clusters down.

Contract: a name is claimed before the first thing that is done to what has it, and until the process ends, whatever
ends it: the kernel keeps the lock.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_claimed: dict[Path, int] = {}
"""Lock file → its descriptor, which nobody closes."""


class Claimed(Exception):
    """Another run works on it."""


def claim(name: str, state: Path) -> None:
    """From now on it is this process's; again is nothing. Claimed when it is another's."""
    path = state / "claims" / name
    if path in _claimed:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise Claimed(
            f"another run of tests works on {name} (process {holder or 'unknown'}): wait until it ends"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    _claimed[path] = descriptor
