"""Stops a node's agent, and all that it started, right after one write: a power cut then finds the disk so.

    python stop_after_write.py INIT_PID PATHS WRITES TAKEN DRAW

INIT_PID is the host's first process as this machine sees it; PATHS a regular expression that is found in the path of a
write; WRITES one that matches the begin of its name; TAKEN a JSON list of writes that are let pass; DRAW the fields of
`parts.Draw`, which says of the others whether they are, as JSON. The first write that is drawn and succeeds stops the
process that made it at the end of that very system call; every other process of the agent stops at its next system
call, since nobody resumes it. Then the write is printed, and the processes stay stopped until they are killed, or this
process is. Before that FOLLOWING is printed, once the agents are followed.

A write is named by its call and its path, random parts replaced by a star: "rename …/checkpoint-*/pod.json". Where
files of one path say different things, one after the other, a rename has what it says behind that: "rename
…/hosted-verdict good" (`names_of_writes`).

Means: ptrace(2), from outside of the host's namespaces, so that nothing in the host needs to know. x86-64 only.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from names_of_writes import is_read, says
from parts import Draw

AGENT = b"autarky.agents.node"
FOLLOWING = "following"
SCAN_SECONDS = 0.3
_SEIZE, _INTERRUPT, _LISTEN, _SYSCALL, _SYSCALL_INFO = 0x4206, 0x4207, 0x4208, 24, 0x420E
_EVENT_STOP = 128
_FOLLOW_ALL = 0x1 | 0x2 | 0x4 | 0x8 | 0x10  # TRACESYSGOOD, and events of fork, vfork, clone, exec
_WALL = 0x40000000
_GROUP_STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_AT_FDCWD = -100

Arguments = tuple[int, ...]
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request: int, tid: int, address: int = 0, data: object = 0) -> int:
    """ProcessLookupError and the like when the kernel refuses: the process may have been killed."""
    result = int(_libc.ptrace(request, tid, address, data))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# --- what is a write, and where ------------------------------------------------------------------------


def _text(tid: int, address: int) -> str:
    with open(f"/proc/{tid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 # one read, not a file's
        memory.seek(address)
        return memory.read(4096 - address % 4096).partition(b"\0")[0].decode(errors="replace")


def _of_descriptor(tid: int, descriptor: int) -> str:
    return str(Path(f"/proc/{tid}/fd/{descriptor}").readlink())


def _at(tid: int, directory: int, address: int) -> str:
    path = _text(tid, address)
    if path.startswith("/"):
        return path
    directory = ctypes.c_int(directory).value
    return f"{_of_descriptor(tid, directory) if directory != _AT_FDCWD else Path(f'/proc/{tid}/cwd').readlink()}/{path}"


def _path(index: int) -> Callable[[int, Arguments], str]:
    return lambda tid, arguments: _at(tid, _AT_FDCWD, arguments[index])


def _path_at(index: int) -> Callable[[int, Arguments], str]:
    return lambda tid, arguments: _at(tid, arguments[index], arguments[index + 1])


def _descriptor(tid: int, arguments: Arguments) -> str:
    return _of_descriptor(tid, arguments[0])


_CALLS: dict[int, tuple[str, Callable[[int, Arguments], str]]] = {
    1: ("write", _descriptor),
    18: ("write", _descriptor),
    74: ("fsync", _descriptor),
    75: ("fsync", _descriptor),
    77: ("truncate", _descriptor),
    82: ("rename", _path(1)),
    83: ("mkdir", _path(0)),
    84: ("rmdir", _path(0)),
    86: ("link", _path(1)),
    87: ("unlink", _path(0)),
    88: ("symlink", _path(1)),
    90: ("chmod", _path(0)),
    91: ("chmod", _descriptor),
    257: ("create", _path_at(0)),
    258: ("mkdir", _path_at(0)),
    263: ("unlink", _path_at(0)),
    264: ("rename", _path_at(2)),
    265: ("link", _path_at(2)),
    266: ("symlink", _path_at(1)),
    268: ("chmod", _path_at(0)),
    316: ("rename", _path_at(2)),
}
"""Number of the system call (x86-64) → its name here, and where its path is."""
_OPENAT, _UNLINKAT = 257, 263
_O_CREAT, _AT_REMOVEDIR = 0o100, 0x200
_RANDOM = (
    (re.compile(r"checkpoint-[0-9a-f]{10}"), "checkpoint-*"),
    (re.compile(r"/files/.*"), "/files/*"),  # all are written alike, one after the other
    (re.compile(r"(/\.[^/]+)\.[a-z0-9_]{8}$"), r"\1.*"),
    (re.compile(r"\b[0-9a-f]{8,10}\b"), "*"),
)
_SOURCES = {82: _path(0), 264: _path_at(0), 316: _path_at(0)}
"""Renames: where the path is that the file has before."""


def _says(tid: int, number: int, arguments: Arguments, path: str) -> str:
    if number in _SOURCES and is_read(path):
        with suppress(OSError):
            source = _SOURCES[number](tid, arguments)
            return says(path, Path(f"/proc/{tid}/root{source}").read_text())
    return ""


def write_of(tid: int, number: int, arguments: Arguments, paths: re.Pattern[str]) -> str | None:
    """The name of the write that the system call makes, or None: it makes none there."""
    if number not in _CALLS or (number == _OPENAT and not arguments[2] & _O_CREAT):
        return None
    name, where = _CALLS[number]
    if number == _UNLINKAT and arguments[2] & _AT_REMOVEDIR:
        name = "rmdir"
    try:
        path = where(tid, arguments)
    except OSError:
        return None
    if not paths.search(path):
        return None
    says = _says(tid, number, arguments, path)
    for random, replacement in _RANDOM:
        path = random.sub(replacement, path)
    return f"{name} {path}{says}"


# --- following the agent's processes --------------------------------------------------------------------


@dataclass
class Tracer:
    init: int
    paths: re.Pattern[str]
    writes: re.Pattern[str]
    taken: frozenset[str]
    draw: Draw
    _followed: set[int] = field(default_factory=set)
    _writes: dict[int, str] = field(default_factory=dict)
    """Thread → the write that its system call is about to make."""

    def first_write_that_is_drawn(self) -> str:
        """Follow all there are and come until one has made it. It stays where it is."""
        while not self._followed:
            self._seize_new()
        _say(FOLLOWING)
        signal.signal(signal.SIGALRM, lambda *_: self._seize_new())
        signal.setitimer(signal.ITIMER_REAL, SCAN_SECONDS, SCAN_SECONDS)
        while True:
            try:
                tid, status = os.waitpid(-1, _WALL)
            except ChildProcessError:
                time.sleep(0.05)
                continue
            made = self._stopped(tid, status) if os.WIFSTOPPED(status) else self._gone(tid)
            if made is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
                return made

    def bury(self) -> None:
        """Wait until all have died. Nobody else can: the host's last process ends when all are waited for."""
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, _WALL)

    def _seize_new(self) -> None:
        for tid in _threads_of_agents(self.init):
            if tid not in self._followed:
                try:
                    _ptrace(_SEIZE, tid, 0, _FOLLOW_ALL)
                    _ptrace(_INTERRUPT, tid)
                except OSError:
                    continue  # it has ended, or came to us as a child meanwhile
                self._followed.add(tid)

    def _gone(self, tid: int) -> str | None:
        """No write was made."""
        self._followed.discard(tid)
        self._writes.pop(tid, None)
        return None

    def _stopped(self, tid: int, status: int) -> str | None:
        """Go on with a thread that stopped, unless it has made the write."""
        self._followed.add(tid)
        number, event = os.WSTOPSIG(status), status >> 16
        try:
            if number == signal.SIGTRAP | 0x80:
                made = self._system_call(tid)
                if made is not None and self.writes.match(made) and self.draw.takes(made, self.taken):
                    return made
                _ptrace(_SYSCALL, tid)
            elif event == _EVENT_STOP and number in _GROUP_STOPS:
                _ptrace(_LISTEN, tid)
            else:
                _ptrace(_SYSCALL, tid, 0, 0 if event else number)
        except OSError:
            self._gone(tid)
        return None

    def _system_call(self, tid: int) -> str | None:
        """At its entry: remember what it is about to write; at its end: what it has written."""
        info = ctypes.create_string_buffer(88)
        _ptrace(_SYSCALL_INFO, tid, len(info), ctypes.addressof(info))
        if info.raw[0] == 1:
            number, *arguments = struct.unpack_from("7Q", info.raw, 24)
            write = write_of(tid, number, tuple(arguments), self.paths)
            if write is not None:
                self._writes[tid] = write
            return None
        write = self._writes.pop(tid, None)
        failed = info.raw[32]
        return None if failed else write


def _threads_of_agents(init: int) -> list[int]:
    """Of all agents in the network of that host: they are on the host's own."""
    network = Path(f"/proc/{init}/ns/net").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if AGENT in (process / "cmdline").read_bytes() and (process / "ns/net").readlink() == network:
                found += [int(task.name) for task in (process / "task").iterdir()]
        except OSError:
            continue
    return found


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _, init_pid, paths, writes, taken, draw = sys.argv
    tracer = Tracer(
        int(init_pid),
        re.compile(paths),
        re.compile(writes),
        frozenset(json.loads(taken)),
        Draw(**json.loads(draw)),
    )
    _say(tracer.first_write_that_is_drawn())
    tracer.bury()
