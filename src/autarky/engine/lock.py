"""One writer per cluster: a BSD lock on a file that says who holds it. The kernel drops it with its holder."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autarky.errors import Conflict


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold the lock while inside; Conflict at once when somebody else holds it, naming them."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(f"{_holder(path)}\n  fix: wait until it has ended, then run the command again") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "what": what, "since": time.time()}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        since = time.strftime("%H:%M:%S", time.localtime(holder["since"]))
        return f"{holder['what']} is running (process {holder['pid']}, since {since})"
    except (ValueError, KeyError, OSError):
        return "another operation is running"
