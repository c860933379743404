"""Who acts on this node: one process at a time, by flock (rule 6), decided before anything big is imported.

Two places run the agent: the DaemonSet's pod (hosted) and, on control nodes, a static pod (standby) that is always
there. Whoever holds LOCK acts; the others block on it in the kernel, at the cost of a bare interpreter. The kernel
releases the lock when its holder exits, however that happens.

The standby yields: a hosted agent holds WANTED while it waits and while it acts, and a standby that acts tests it in
every reconcile. It yields by re-executing itself: then it waits again, and its memory is freed.

A holder that hangs (a blocked loop or system call, SIGSTOP) cannot exit by itself: it is the first process of its
container, which ignores signals whose action is the default one, and a stopped process runs no handler. So the holder
writes a heartbeat into the file of its lock, and whoever waits for the lock reads it every LOOK_SECONDS: without a
heartbeat for `hang_seconds()`, it has the container runtime kill the holder (`end_hung`). A process that waits with
WANTED writes a heartbeat there as well, so that a standby yields to no process that hangs.

Heartbeats use the kernel's monotonic clock: all containers of a node share it, nobody can set it, and it stops while
the machine sleeps.

Danger: only what a bare interpreter has loaded may be imported here; a waiting agent must stay small.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time

DIRECTORY = "/run/autarky"
LOCK = f"{DIRECTORY}/node-agent.lock"
WANTED = f"{DIRECTORY}/node-agent.wanted"
HANG_SECONDS = 60.0
LIMIT = "AUTARKY_HANG_SECONDS"
"""Environment variable: another limit, for machines that freeze for longer than that."""
POD = "POD_UID"
"""Environment variable: the uid of the agent's pod."""
BEAT_SECONDS = 5.0
LOOK_SECONDS = 5.0
"""Between two looks of a waiting process, which sleeps in the kernel meanwhile."""
START_SECONDS = 300.0
"""How long at most a timer writes the holder's heartbeat while it imports and starts: a slow machine needs minutes."""
END_HUNG = [sys.executable, "-m", "autarky.agents.node.end_hung"]
"""Kills the holder of the lock that is its argument. A separate process, so that the waiting one stays small."""
_WIDTH = 36
_BEAT_BYTES = 128


def hang_seconds() -> float:
    """After how long without a heartbeat a holder counts as hung."""
    given = os.environ.get(LIMIT, "")
    return float(given) if given.isdigit() and int(given) > 2 * BEAT_SECONDS else HANG_SECONDS


class Hold:
    """The right to act on this node. Lives until the process exits."""

    def __init__(self, standby: bool) -> None:
        os.makedirs(DIRECTORY, mode=0o700, exist_ok=True)  # noqa: PTH103 # pathlib is big
        os.chmod(DIRECTORY, 0o700)  # noqa: PTH101 # others may have made it
        self._standby = standby
        self._wanted, self._lock = _open(WANTED), _open(LOCK)
        self._announced = self._suspected = False
        self._begin_to_look()
        if not standby:
            fcntl.flock(self._wanted, fcntl.LOCK_EX)
            _beat(self._wanted)
            self._announced = True
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._begins_until = time.monotonic() + START_SECONDS
        signal.signal(signal.SIGALRM, lambda *_: self._beat_while_it_begins())
        if not standby:
            # It waits no more. The next that waits may be of a release without heartbeats there: this one's last must
            # not be taken for its own.
            os.ftruncate(self._wanted, 0)
        self.alive()

    def began(self) -> None:
        """It has started: from now on it calls `alive` itself."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _beat_while_it_begins(self) -> None:
        if time.monotonic() < self._begins_until:
            self.alive()
        else:
            self.began()

    def alive(self) -> None:
        """Write a heartbeat: this holder does not hang."""
        _beat(self._lock)

    def silent(self) -> float:
        """Seconds since `alive` was called last. Safe to call from another thread."""
        found = last_beat(LOCK)
        return 0.0 if found is None else found[0]

    def must_yield(self) -> bool:
        """Whether a hosted agent waits for this standby. Never true for a hosted one."""
        if not self._standby:
            return False
        try:
            fcntl.flock(self._wanted, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return hung(WANTED) is None
        fcntl.flock(self._wanted, fcntl.LOCK_UN)
        return False

    def _begin_to_look(self) -> None:
        signal.signal(signal.SIGALRM, lambda *_: self._look())  # the wait for a lock goes on after it
        signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)

    def _look(self) -> None:
        """Check the holder while this process waits. Two looks must agree: after a freeze, heartbeats are old."""
        if self._announced:
            _beat(self._wanted)
        suspected, self._suspected = self._suspected, hung(LOCK) is not None
        if suspected and self._suspected:
            try:
                os.waitpid(os.posix_spawn(END_HUNG[0], [*END_HUNG, LOCK], os.environ), 0)
            except OSError as error:
                sys.stderr.write(f"the holder of {LOCK} hangs and could not be stopped: {error}\n")


def last_beat(path: str) -> tuple[float, str] | None:
    """How many seconds ago the last heartbeat was, and the uid of its pod ("" where that is not known); None where
    there is none, or it is malformed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stamp, _, pod = os.pread(descriptor, _BEAT_BYTES, 0).decode().partition(" ")
        finally:
            os.close(descriptor)
        age = time.monotonic() - float(stamp)
    except (OSError, ValueError):
        return None
    return (age, pod.strip()) if age >= 0 else None


def hung(path: str) -> str | None:
    """The uid of the pod whose heartbeats in that file have stopped; None where they continue, or no pod is known."""
    found = last_beat(path)
    return None if found is None or not found[1] or found[0] < hang_seconds() else found[1]


def park_again() -> None:
    """Wait again: re-executing the process closes the lock files, which releases the lock."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # the timer would survive the exec
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 # itself


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _beat(descriptor: int) -> None:
    """Of a fixed width, so that a reader never sees parts of two."""
    pod = os.environ.get(POD, "")
    os.pwrite(descriptor, f"{time.monotonic():020.3f} {pod:{_WIDTH}.{_WIDTH}}\n".encode(), 0)
