"""Looks at all processes of this machine some times a second, as a program of its own: a line of JSON for each look.

Test hosts are containers here, so that one /proc shows the processes of all of them; which is whose, and in which
container of a pod, its control group says. It needs nothing but Python, imports little, and ends when its standard
input does: then with the one that started it, however that ends.

A line has only what is new or has changed since the line before:
  at        monotonic seconds, the same clock on all test hosts
  busy      seconds that the machine's processors have worked since boot, for anything
  stolen    seconds that a hypervisor took
  stalled   seconds in which something was ready to run and had no processor (pressure), where the kernel says
  usage     by test host, seconds that its control group has used: all of it, whoever did it
  seen      [process, group, container, name, slot, words]: a new process, or one that runs another program now
  used      [process, seconds]: what a process has used since it began, its ended threads included
  waited    [process, seconds], every few seconds: how long its threads were ready to run and had no processor
where a process is "PID:START", its start in clock ticks since boot: process ids are used more than once.

Danger: a process that lives between two looks is seen by none. `busy` and `usage` have its time; no process has.

    python _timeline_sampler.py FILE
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVERY_SECONDS = 0.25
LOOKS_PER_WAITED = 20
"""It opens a file of every thread: tens of milliseconds."""
HOSTS = "autarky-"
"""Groups of test hosts begin with it (lab/cgroups.py)."""
CONTAINER_LENGTH = 64
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Stat:
    """Of /proc/PID/stat: the program's name, seconds used, start in ticks since boot."""

    name: str
    used: float
    start: int


def parse_stat(text: str) -> Stat:
    """The name may hold spaces and parentheses: fields count from after the last one."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Stat(head.partition("(")[2], (int(fields[11]) + int(fields[12])) / TICKS, int(fields[19]))


def place(cgroup: str) -> tuple[str, str]:
    """Of /proc/PID/cgroup: the group of the test host and the id of the container, each empty where there is none."""
    host = container = ""
    for line in cgroup.splitlines():
        parts = line.split("/")
        at = _host_at(parts)
        if at is not None:
            host = parts[at]
            container = container or next((part for part in parts[at:] if _is_id(part)), "")
    return host, container


def _host_at(parts: Sequence[str]) -> int | None:
    return next((number for number, part in enumerate(parts) if part.startswith(HOSTS)), None)


def _is_id(name: str) -> bool:
    return len(name) == CONTAINER_LENGTH and not name.strip("0123456789abcdef")


def parse_machine(stat: str) -> tuple[float, float]:
    """Of /proc/stat: seconds that all processors together have worked, and those that were stolen."""
    user, nice, system, _, _, interrupts, soft, stolen = map(int, stat.split("\n", 1)[0].split()[1:9])
    return (user + nice + system + interrupts + soft) / TICKS, stolen / TICKS


def parse_pressure(text: str) -> float:
    """Of /proc/pressure/cpu."""
    return int(text.split("\n", 1)[0].rpartition("total=")[2]) / 1e6


def usage_files(cgroup: str) -> list[str]:
    """Of a process's /proc/PID/cgroup: where its test host's own group may say what that has used (v1, v2)."""
    files = []
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        parts = path.split("/")
        at = _host_at(parts)
        if at is None:
            continue
        own = "/".join(parts[: at + 1])
        if "cpuacct" in controllers.split(","):
            files += [f"/sys/fs/cgroup/{name}{own}/cpuacct.usage" for name in dict.fromkeys(("cpuacct", controllers))]
        elif not controllers:
            files.append(f"/sys/fs/cgroup{own}/cpu.stat")
    return files


def parse_usage(text: str) -> float:
    """Nanoseconds alone (v1), or lines of which one has microseconds (v2); in seconds."""
    if text.strip().isdigit():
        return int(text) / 1e9
    return int(text.partition("usage_usec ")[2].split("\n", 1)[0]) / 1e6


@dataclass
class Sampler:
    proc: Path
    _names: dict[str, str] = field(default_factory=dict)
    _used: dict[str, float] = field(default_factory=dict)
    _hosts: dict[str, str] = field(default_factory=dict)
    """Process → its test host."""
    _files: dict[str, list[str]] = field(default_factory=dict)
    """Test host → where its usage may be."""

    def look(self, at: float, *, waited: bool) -> dict[str, Any]:
        here: dict[str, int] = {}
        seen: list[list[str]] = []
        used: list[list[str | float]] = []
        for name in os.listdir(self.proc):  # noqa: PTH208 # a quarter of the time that Path takes, four times a second
            if not name.isdigit():
                continue
            try:
                stat = parse_stat(self._read(name, "stat"))
                process = f"{name}:{stat.start}"
                # A process that was forked has its parent's name, group and words until it runs its own program.
                if self._names.get(process) != stat.name:
                    seen.append([process, *self._described(name, process, stat.name)])
                    self._names[process] = stat.name
            except (OSError, ValueError, IndexError):  # it has ended meanwhile
                continue
            here[process] = int(name)
            if self._used.get(process) != stat.used:
                self._used[process] = stat.used
                used.append([process, stat.used])
        self._forget(here)
        line: dict[str, Any] = {"at": at, "seen": seen, "used": used, **self._of_machine(), "usage": self._usage()}
        if waited:
            line["waited"] = [[process, self._waited(pid)] for process, pid in here.items()]
        return line

    def _described(self, pid: str, process: str, name: str) -> tuple[str, str, str, str, str]:
        cgroup = self._read(pid, "cgroup")
        group, container = place(cgroup)
        self._hosts[process] = group
        if group and group not in self._files:
            self._files[group] = usage_files(cgroup)
        slot = words = ""
        if name.startswith("python"):
            words = self._read(pid, "cmdline").replace("\0", " ")
            environment = self._read(pid, "environ").split("\0")
            slot = next((one.partition("=")[2] for one in environment if one.startswith("AUTARKY_SLOT=")), "")
        return group, container, name, slot or "-", words

    def _forget(self, here: Mapping[str, int]) -> None:
        for process in self._names.keys() - here.keys():
            for known in (self._names, self._used, self._hosts):
                known.pop(process, None)

    def _of_machine(self) -> dict[str, Any]:
        busy, stolen = parse_machine((self.proc / "stat").read_text())
        try:
            stalled = parse_pressure((self.proc / "pressure/cpu").read_text())
        except (OSError, ValueError):
            stalled = None
        return {"busy": busy, "stolen": stolen, "stalled": stalled}

    def _usage(self) -> dict[str, float]:
        """Of hosts that run. One that boots again has a group of the same name, which begins at nothing."""
        found = {}
        for host in set(self._hosts.values()) - {""}:
            for file in self._files[host]:
                try:
                    found[host] = parse_usage(Path(file).read_text())
                    break
                except (OSError, ValueError):
                    continue
        return found

    def _waited(self, pid: int) -> float:
        total = 0
        try:
            for thread in os.listdir(self.proc / str(pid) / "task"):  # noqa: PTH208 # as above
                total += int(self._read(str(pid), f"task/{thread}/schedstat").split()[1])
        except (OSError, ValueError, IndexError):
            pass
        return total / 1e9

    def _read(self, pid: str, name: str) -> str:
        # One system call to read, where a text file of Python's makes five.
        descriptor = os.open(f"{self.proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 1 << 16).decode(errors="replace")
        finally:
            os.close(descriptor)


def main() -> None:
    sampler, number = Sampler(Path("/proc")), 0
    with Path(sys.argv[1]).open("w") as written:
        pause, ended = 0.0, False
        while not ended:
            ended = bool(select.select([sys.stdin], [], [], pause)[0])
            line = sampler.look(time.monotonic(), waited=ended or number % LOOKS_PER_WAITED == 0)
            written.write(json.dumps(line) + "\n")
            written.flush()
            number += 1
            pause = EVERY_SECONDS


if __name__ == "__main__":
    main()
