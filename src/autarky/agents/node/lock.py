"""Who acts on this node: one process at a time, by flock (rule 6), decided before anything big is imported.

Two places run the agent: the DaemonSet's pod (hosted) and, on control nodes, a static pod (standby) that
is always there. Whoever holds LOCK acts; the others are parked on it in the kernel, at the cost of a bare
interpreter. The kernel drops the lock with its holder, however that ended.

The standby yields: a hosted agent holds WANTED while it waits and while it acts, and a standby that acts
looks at it every round. It yields by executing itself anew, which parks it again and gives its memory back.

A holder that hangs (a blocked loop or system call, SIGSTOP) cannot end itself: it is the first process of its
container, which no signal reaches whose action is the default one, and what is stopped runs no handler. So the holder
writes a beat into the file of its lock, and whoever waits for the lock looks at it every LOOK_SECONDS: when there was
none for `hang_seconds()`, it has the holder ended by the container runtime (`end_hung`). What waits with WANTED beats
there as well, so that a standby yields to nobody who hangs.

Beats are of the kernel's monotonic clock: all containers of a node share it, nobody can set it, and it stands still
while the machine sleeps.

Danger: nothing may be imported here but what a bare interpreter has; a parked agent is to stay small.
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
"""The variable that sets another limit, for machines that stand still for longer than that."""
POD = "POD_UID"
"""The variable that tells an agent the uid of its pod."""
BEAT_SECONDS = 5.0
LOOK_SECONDS = 5.0
"""Between two looks of one who waits. It sleeps in the kernel meanwhile."""
START_SECONDS = 300.0
"""For how long at most a holder beats by itself while it imports its parts and begins: a slow machine needs minutes."""
END_HUNG = [sys.executable, "-m", "autarky.agents.node.end_hung"]
"""Ends the holder of the lock that is its argument. A process of its own, so that one that waits stays small."""
_WIDTH = 36
_BEAT_BYTES = 128


def hang_seconds() -> float:
    """After how long without a beat a holder counts as hung."""
    given = os.environ.get(LIMIT, "")
    return float(given) if given.isdigit() and int(given) > 2 * BEAT_SECONDS else HANG_SECONDS


class Hold:
    """The right to act on this node. Lives until the process ends."""

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
            # It waits no more. Who waits next may be of a release that gives no beats there: this one's last must not
            # be taken for its.
            os.ftruncate(self._wanted, 0)
        self.alive()

    def began(self) -> None:
        """From now on it says by `alive` that it is not hung."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _beat_while_it_begins(self) -> None:
        if time.monotonic() < self._begins_until:
            self.alive()
        else:
            self.began()

    def alive(self) -> None:
        """Say that this holder is not hung."""
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
        """At the holder, while this process waits. Two looks must agree: a machine that stood still shows old beats."""
        if self._announced:
            _beat(self._wanted)
        suspected, self._suspected = self._suspected, hung(LOCK) is not None
        if suspected and self._suspected:
            try:
                os.waitpid(os.posix_spawn(END_HUNG[0], [*END_HUNG, LOCK], os.environ), 0)
            except OSError as error:
                sys.stderr.write(f"the holder of {LOCK} hangs and could not be ended: {error}\n")


def last_beat(path: str) -> tuple[float, str] | None:
    """How many seconds ago the last beat was, and the uid of the pod that it came from ("" where that is not known);
    None where there is none, or what is there is none."""
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
    """The uid of the pod whose beats in that file have ceased; None where they go on, or nobody is known."""
    found = last_beat(path)
    return None if found is None or not found[1] or found[0] < hang_seconds() else found[1]


def park_again() -> None:
    """Become a parked process: executing itself closes the lock files, and so frees the lock."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # it would survive that the process executes itself anew
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 # itself


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _beat(descriptor: int) -> None:
    """Of one width, so that a reader never sees parts of two."""
    pod = os.environ.get(POD, "")
    os.pwrite(descriptor, f"{time.monotonic():020.3f} {pod:{_WIDTH}.{_WIDTH}}\n".encode(), 0)
