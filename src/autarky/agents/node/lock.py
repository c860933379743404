"""Who acts on this node: one process at a time, by flock (rule 6), decided before anything big is imported.

Two places run the agent: the DaemonSet's pod (hosted) and, on control nodes, a static pod (standby) that
is always there. Whoever holds LOCK acts; the others are parked on it in the kernel, at the cost of a bare
interpreter. The kernel drops the lock with its holder, however that ended.

The standby yields: a hosted agent holds WANTED while it waits and while it acts, and a standby that acts
looks at it every round. It yields by executing itself anew, which parks it again and gives its memory back.

Danger: nothing may be imported here but what a bare interpreter has; a parked agent is to stay small.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys

DIRECTORY = "/run/autarky"
LOCK = f"{DIRECTORY}/node-agent.lock"
WANTED = f"{DIRECTORY}/node-agent.wanted"
WATCHDOG_SECONDS = 60
"""A holder that does not say it is alive for so long is killed by the kernel (SIGALRM), which frees the lock."""


class Hold:
    """The right to act on this node. Lives until the process ends."""

    def __init__(self, standby: bool) -> None:
        os.makedirs(DIRECTORY, mode=0o700, exist_ok=True)  # noqa: PTH103 # pathlib is big
        self._standby = standby
        self._wanted = _open(WANTED)
        if not standby:
            fcntl.flock(self._wanted, fcntl.LOCK_EX)
        self._lock = _open(LOCK)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.alive()

    def alive(self) -> None:
        """Say that this holder is not hung."""
        signal.alarm(WATCHDOG_SECONDS)

    def must_yield(self) -> bool:
        """Whether a hosted agent waits for this standby. Never true for a hosted one."""
        if not self._standby:
            return False
        try:
            fcntl.flock(self._wanted, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._wanted, fcntl.LOCK_UN)
        return False


def park_again() -> None:
    """Become a parked process: executing itself closes the lock files, and so frees the lock."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 # itself


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
