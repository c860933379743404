"""A test host, entered through the namespaces of its init process.

Danger: process ids are reused. The start time of the init process, as the lab recorded it, tells
whether it is still the same process; everything else is Unreachable, never another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autarky.errors import Unreachable
from autarky.hosts.shell import ENVIRONMENT, ShellHost


def process_start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot (field 22 of /proc/PID/stat), or None."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field, the name, may hold spaces and parentheses; fields count from after the last one.
    return int(stat.rpartition(")")[2].split()[19])


class LabHost(ShellHost):
    def __init__(self, name: str, pid: int, start_time: int, *, address: str) -> None:
        super().__init__(name)
        self._pid = pid
        self._start_time = start_time
        self.address = address

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line of this machine that runs `argv` on the host, for an interactive shell."""
        return self._command(argv)

    def _command(self, argv: Sequence[str]) -> list[str]:
        self._refuse_absent()
        namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
        return ["nsenter", f"--target={self._pid}", *namespaces, "--", "env", "-i", *ENVIRONMENT, *argv]

    def _refuse_absent(self) -> None:
        if process_start_time(self._pid) != self._start_time:
            raise Unreachable(f"lab host {self.name} is not running")
